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

from corral import ApprovalRequest, ExecutionContext
from corral.errors import ApprovalDenied
from corral.integrations.kit import carrying

__all__ = ["Client", "ClientInTouch", "approves", "ask_client", "asked_by", "can_elicit", "question"]

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
    async def approves(self, request: ApprovalRequest) -> bool:
        """True if the client lets this call run.

        Raises:
            ApprovalDenied: it cannot be asked.
        """


class ClientInTouch(Client):
    """A client that takes requests while it waits for an answer, as in the handshake era of the protocol."""

    def __init__(self, session: ServerSession, request_id: RequestId | None) -> None:
        self._session = session
        self._request_id = request_id

    async def approves(self, request: ApprovalRequest) -> bool:
        asked = question(request).params
        assert isinstance(asked, ElicitRequestFormParams)
        try:
            answer = await self._session.elicit_form(asked.message, asked.requested_schema, self._request_id)
        except (MCPError, ValidationError) as error:
            raise ApprovalDenied("the MCP client did not answer the question") from error
        return approves(answer)


async def ask_client(request: ApprovalRequest) -> bool:
    """The function for `Corral(approve=...)`: asks the MCP client whose program makes the call.

    Raises:
        ApprovalDenied: it has no elicitation, or the program did not come from a client of `mcp_server`.
    """
    client = request.context.local.get(_CLIENT)
    if not isinstance(client, Client):
        raise ApprovalDenied("there is no MCP client that can ask somebody: it needs elicitation")
    return await client.approves(request)


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


def approves(answer: object) -> bool:
    """True if the answer to the form is a clear yes."""
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return False
    return answer.content is not None and answer.content.get("approve") is True
