"""Approvals from the person behind the MCP client whose program makes the call: each question is an elicitation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mcp import MCPError
from mcp.server.session import ServerSession
from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitResult, RequestId
from pydantic import ValidationError

from corral import ApprovalRequest, Approved, Denied, ExecutionContext, Later
from corral.errors import ApprovalDenied
from corral.integrations.kit import carrying

_CLIENT = "corral.integrations.mcp.client"
"""Key of the client in the `local` of a program's context."""
_FORM: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {"approve": {"type": "boolean", "title": "Approve this call"}},
        "required": ["approve"],
    }
)


class Client(ABC):
    """The client that sent a program."""

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Approved | Denied | Later:
        """Asks the client about a call.

        Raises:
            ApprovalDenied: it cannot be asked.
        """


class ClientInTouch(Client):
    """A client that takes requests while it waits for an answer, as in the handshake era of the protocol."""

    def __init__(self, session: ServerSession, request_id: RequestId | None) -> None:
        self._session = session
        self._request_id = request_id

    async def ask(self, request: ApprovalRequest) -> Approved | Denied:
        asked = question(request).params
        assert isinstance(asked, ElicitRequestFormParams)
        try:
            answer = await self._session.elicit_form(asked.message, asked.requested_schema, self._request_id)
        except (MCPError, ValidationError) as error:
            raise ApprovalDenied("the MCP client did not answer the question") from error
        return decision_of(answer, request)


async def ask_client(request: ApprovalRequest) -> Approved | Denied | Later:
    """The function for `Corral(approve=...)`: asks the MCP client whose program makes the call.

    Raises:
        ApprovalDenied: it has no elicitation, or the program did not come from a client of `mcp_server`.
    """
    client = request.context.local.get(_CLIENT)
    if not isinstance(client, Client):
        raise ApprovalDenied("no MCP client can be asked for an approval: it needs elicitation")
    return await client.ask(request)


def asked_by(context: ExecutionContext, client: Client | None) -> ExecutionContext:
    """The context in which `ask_client` asks this client, or nobody."""
    return carrying(context, _CLIENT, client)


def can_elicit(capabilities: ClientCapabilities | None) -> bool:
    """True if a client shows forms. A client that names no kind of elicitation does (MCP 2025-11-25)."""
    if capabilities is None or (elicitation := capabilities.elicitation) is None:
        return False
    return elicitation.form is not None or elicitation.url is None


def question(request: ApprovalRequest) -> ElicitRequest:
    """The form that asks about a call: what is called, and with what.

    Raises:
        ApprovalDenied: the input cannot be shown whole.
    """
    input = request.shown().replace("\n", "\n    ")  # a block of code, where a client reads Markdown
    message = f"A program wants to call {request.tool}, which needs your approval, with:\n\n    {input}"
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(_FORM)))


def decision_of(answer: object, request: ApprovalRequest) -> Approved | Denied:
    """Returns the decision of the request's user; only a clear yes approves."""
    by = request.context.user_id
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        return Denied(by=by)
    return Approved(by=by) if answer.content.get("approve") is True else Denied(by=by)
