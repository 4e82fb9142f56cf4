"""Approvals by the user of the MCP client whose program makes the call. Each question is an elicitation."""

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
    """Client that sent a program."""

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Approved | Denied | Later:
        """Asks the client about a call. Raises ApprovalDenied if the client does not support questions."""


class ClientInTouch(Client):
    """Client that accepts requests while it waits for an answer, as in the protocol's handshake era."""

    def __init__(self, session: ServerSession, request_id: RequestId | None) -> None:
        self._session = session
        self._request_id = request_id

    async def ask(self, request: ApprovalRequest) -> Approved | Denied:
        params = question(request).params
        assert isinstance(params, ElicitRequestFormParams)
        try:
            answer = await self._session.elicit_form(params.message, params.requested_schema, self._request_id)
        except (MCPError, ValidationError) as error:
            raise ApprovalDenied("the MCP client did not answer the question") from error
        return decision_of(answer, request)


class ClientAway(Client):
    """A client that gets the questions about a paused program as the result of its call."""

    async def ask(self, request: ApprovalRequest) -> Later:
        question(request)  # denied now, if it cannot be shown completely
        return Later()


async def ask_client(request: ApprovalRequest) -> Approved | Denied | Later:
    """Asks the MCP client whose program makes the call. Pass it as `Corral(approve=...)`.

    Raises:
        ApprovalDenied: the client does not support elicitation, or the program is not from a client of `mcp_server`.
    """
    client = request.context.local.get(_CLIENT)
    if not isinstance(client, Client):
        raise ApprovalDenied("approval needs an MCP client with elicitation, and this program has none")
    return await client.ask(request)


def asked_by(context: ExecutionContext, client: Client | None) -> ExecutionContext:
    """Returns the context in which `ask_client` asks this client. None stands for no client."""
    return carrying(context, _CLIENT, client)


def can_elicit(capabilities: ClientCapabilities | None) -> bool:
    """True if a client supports forms, which is the default if it names no kind of elicitation (MCP 2025-11-25)."""
    if capabilities is None or (elicitation := capabilities.elicitation) is None:
        return False
    return elicitation.form is not None or elicitation.url is None


def question(request: ApprovalRequest) -> ElicitRequest:
    """Makes the form that asks about a call, with its tool and input.

    Raises:
        ApprovalDenied: the input is too large to show completely.
    """
    input = request.shown().replace("\n", "\n    ")  # a code block for clients that render Markdown
    message = f"A program wants to call {request.tool}, which needs your approval, with:\n\n    {input}"
    message = "\n\n".join([message, *(f"Asked because: {each.text}." for each in request.doubts)])
    if request.reason is not None:
        message = f"{message}\n\nAsked again, because {request.reason}."
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(_FORM)))


def decision_of(answer: object, request: ApprovalRequest) -> Approved | Denied:
    """Returns the user's decision; only an explicit yes approves."""
    by = request.context.user_id
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        return Denied(by=by)
    return Approved(by=by) if answer.content.get("approve") is True else Denied(by=by)
