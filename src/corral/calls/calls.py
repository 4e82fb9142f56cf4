"""Calls on their way through the guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from corral.calls.grants import Grant
from corral.policy import Verdict
from corral.policy.flow import FlowLabel
from corral.tools import ParsedInput, Tool
from corral.types import CallRequest, CallState, Decision, Doubt, Reply


class Call:
    """One tool call: the request of a guest, and the findings of the guards.

    Not frozen: guards store their findings here, for the guards inside them and the audit around them. Reading a
    finding that no guard has stored yet raises AttributeError.
    """

    __slots__ = (
        "continued",
        "decision",
        "doubts",
        "grant",
        "label",
        "parsed",
        "protocol",
        "remark",
        "request",
        "state",
        "streamed",
        "token",
        "tool",
        "verdict",
    )

    grant: Grant
    """Permissions and state of the call's execution. Set by the bridge, else by `authenticate`."""
    parsed: ParsedInput
    """Validated input. Set by `validate_input`."""
    tool: Tool
    """Tool of the call, looked up once, so that all guards see the tool that will run.

    Reading it raises ToolNotFound if the tool does not exist, with suggestions the first few times in an execution.
    """

    def __init__(
        self, request: CallRequest, grant: Grant | None = None, *, protocol: str = "pipe", token: str | None = None
    ) -> None:
        if grant is not None:
            self.grant = grant
            request = request._replace(tool=grant.tools.guest_name(request.tool))
        self.request = request
        self.protocol = protocol
        """Name of the bridge protocol."""
        self.token = token
        """Execution token from the message; needed if the bridge does not know the grant."""
        self.state: CallState = "waiting"
        self.remark: str | None = None
        """Remark on a result that was delivered."""
        self.streamed: str | None = None
        """Note on a stream's items, recorded in place of the output."""
        self.verdict: Verdict | None = None
        """Verdict of the policy. Set by `enforce_policy`."""
        self.doubts: tuple[Doubt, ...] = ()
        """Reasons of the policy to ask a person about it."""
        self.label: FlowLabel | None = None
        """Label of its tool, if the flow of data is followed."""
        self.decision: Decision | None = None
        """Decision on a call that required approval."""
        self.continued = False
        """True if the call waited for a decision, and is made again now. It counts once. Set by `record_calls`."""

    @property
    def log_fields(self) -> dict[str, object]:
        """`extra` fields for log records about this call. A call without a valid token has no execution."""
        tool = self.request.tool
        if not self.authenticated:
            return {"tool": tool}
        return {"execution_id": self.grant.execution_id, "user_id": self.grant.context.user_id, "tool": tool}

    @property
    def authenticated(self) -> bool:
        """True once `grant` is set."""
        return hasattr(self, "grant")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Looks the tool up on first access."""
            if name != "tool":
                raise AttributeError(name)
            tool = self.tool = self.grant.find_tool(self.request.tool)
            if tool.must_finish:
                self.grant.must_finish.add(self.request.sequence)
            return tool

    def warn(self, remark: str) -> None:
        """Sets the remark on the result."""
        self.remark = remark


Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]
"""Function that answers calls. Every guard takes a handler and returns a handler."""
