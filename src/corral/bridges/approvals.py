"""Approvals: the program waits until the host has allowed a call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from corral.bridges.calls import Call, Handler
from corral.bridges.dispatch import being_cancelled, unexpected
from corral.errors import ApprovalDenied
from corral.rendering.full_text import full_text
from corral.tools import Tool
from corral.types import ExecutionContext, Reply

__all__ = ["ApprovalRequest", "Approve", "require_approval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Call that waits for an approval. `input` is what the tool will receive: validated, not copied."""

    tool: str
    """As the program wrote it: `name` or `namespace.name`."""
    input: Any
    """For a function, a dict from parameter to value; else the parsed input document."""
    arguments: Any
    """Input as the program wrote it: plain data, without defaults."""
    description: str
    read_only: bool
    context: ExecutionContext
    execution_id: str
    sequence: int

    def shown(self, max_chars: int = 10_000) -> str:
        """Formats the whole input for a person: JSON, one member a line if it is not short.

        Characters that hide, move or imitate others, such as control characters and directions, are escaped.

        Raises:
            ApprovalDenied: the text is longer than `max_chars`, or a value cannot be shown. Raised within `approve`, it
                denies the call with this reason.
        """
        return full_text(self.input, max_chars)


Approve: TypeAlias = Callable[[ApprovalRequest], bool | Awaitable[bool]]
"""Function that decides on a call that needs an approval. True allows it. `ApprovalDenied` denies it with a reason that
the program sees. Concurrent calls are asked about concurrently."""


def require_approval(handler: Handler, approve: Approve | None, within_seconds: float) -> Handler:
    """Asks `approve` about calls of tools with `needs_approval`. Only True, in time, lets a call through.

    The program's clock is paused meanwhile. After one request timed out, no other is made for that execution: else a
    program could keep its clock paused for ever.
    """

    async def guarded(call: Call) -> Reply:
        tool, parsed = call.tool, call.parsed
        if tool.needs_approval is False or not await _needed(tool, parsed.value, call):
            return await handler(call)
        if approve is None:
            raise ApprovalDenied(f"tools.{call.request.tool} needs an approval, and nobody can be asked for it here")
        grant = call.grant
        if grant.approval_timed_out:
            raise ApprovalDenied(
                f"tools.{call.request.tool} needs an approval, and an earlier request was not answered in time"
            )
        request = ApprovalRequest(
            tool=call.request.tool,
            input=parsed.value if tool.resolve is None else await tool.resolve(parsed.value, grant.context),
            arguments=call.request.input,
            description=tool.description,
            read_only=tool.read_only,
            context=grant.context,
            execution_id=grant.execution_id,
            sequence=call.request.sequence,
        )
        answer: object = None
        with grant.clock.paused() if grant.clock is not None else nullcontext():
            with anyio.move_on_after(within_seconds) as deadline:
                answer = await _answer(approve, request, call)
        if deadline.cancelled_caught:
            grant.approval_timed_out = True
            raise ApprovalDenied(
                f"tools.{call.request.tool} needs an approval, and none came within {within_seconds:g} s"
            )
        if answer is not True:
            raise ApprovalDenied(f"tools.{call.request.tool} was not approved")
        return await handler(call)

    return guarded


async def _needed(tool: Tool, value: Any, call: Call) -> bool:
    if not callable(tool.needs_approval):
        return tool.needs_approval is not False
    needed = tool.needs_approval(value, call.grant.context)
    return bool(await needed if inspect.isawaitable(needed) else needed)


async def _answer(approve: Approve, request: ApprovalRequest, call: Call) -> object:
    try:
        answer = approve(request)
        return await answer if inspect.isawaitable(answer) else answer
    except ApprovalDenied as denied:
        reason = f": {denied}" if str(denied) else ""
        raise ApprovalDenied(f"tools.{call.request.tool} was not approved{reason}") from denied
    except anyio.get_cancelled_exc_class() as error:
        if being_cancelled():
            raise
        raise ApprovalDenied(f"tools.{call.request.tool} was not approved: {unexpected(call, 'asking')}") from error
    except Exception as error:
        raise ApprovalDenied(f"tools.{call.request.tool} was not approved: {unexpected(call, 'asking')}") from error
