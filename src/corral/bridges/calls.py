"""Calls on their way through the guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from corral.bridges.grants import Grant
from corral.bridges.parking import Decision
from corral.tools import ParsedInput, Tool
from corral.types import CallRequest, Progress, Reply

__all__ = ["Call", "Handler"]


class Call:
    """One tool call: the request of a guest, and the findings of the guards.

    Not frozen: guards store their findings for the inner guards, and for the audit around them. Reading a finding
    before its guard has stored it raises AttributeError.
    """

    __slots__ = (
        "_tool",
        "decision",
        "grant",
        "parsed",
        "progress",
        "protocol",
        "remark",
        "request",
        "streamed",
        "token",
    )

    grant: Grant
    """Permissions and state of its execution. Set by the bridge, else by `authenticate`."""
    parsed: ParsedInput
    """Validated input. Set by `validate_input`."""

    def __init__(
        self, request: CallRequest, grant: Grant | None = None, *, protocol: str = "pipe", token: str | None = None
    ) -> None:
        self.request = request
        if grant is not None:
            self.grant = grant
        self.protocol = protocol
        """Name of the bridge protocol."""
        self.token = token
        """Execution token that came with it, if the bridge does not know the grant."""
        self.progress: Progress = "pending"
        self.remark: str | None = None
        """Remark on a result that was delivered."""
        self.streamed: str | None = None
        """Note on the items of a stream, in place of an output."""
        self.decision: Decision | None = None
        """Decision on a call that needed an approval."""
        self._tool: Tool | None = None

    @property
    def authenticated(self) -> bool:
        """True once `grant` is set."""
        return hasattr(self, "grant")

    @property
    def tool(self) -> Tool:
        """Tool of the call, looked up once, so that all guards see the one that runs.

        Raises:
            ToolNotFound: no such tool; with suggestions, the first few times in an execution.
        """
        if self._tool is None:
            tool = self._tool = self.grant.find_tool(self.request.tool)
            if tool.must_finish:
                self.grant.must_finish.add(self.request.sequence)
        return self._tool

    def warn(self, remark: str) -> None:
        """Sets the remark on the result."""
        self.remark = remark


Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]
"""Function that answers calls. Every guard takes a handler and returns a handler."""
