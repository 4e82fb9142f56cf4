"""`ToolCall`: the call that a tool is answering, for tools that want it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from threading import get_ident
from typing import Any

from corral.concurrency.threads import thread_safe_scheduler
from corral.errors import ToolError
from corral.logs import safe_child
from corral.types import ExecutionContext

Report = Callable[[float, float | None, str | None], object]
"""Function that receives `done`, `total` and `message` of a tool's progress, in the event loop."""

SHELL: ContextVar[Any] = ContextVar("corral_shell", default=None)
"""The agent's restricted `Shell`, if any. Typed loosely, because this package does not depend on shells."""

traced_elsewhere: ContextVar[Container[str]] = ContextVar("corral_traced_elsewhere", default=())
"""Guest names of tools whose spans an agent framework creates."""

_MOST_REPORTS = 1_000
_MESSAGE_CHARS = 1_000


class ToolCall:
    """One call of a tool. A function receives it in a parameter annotated `ToolCall`, which is hidden from programs.

    Created by Corral. To test a tool, create a `ToolCall(context)`, which discards progress.
    """

    __slots__ = (
        "_parent",
        "_report",
        "_reports",
        "_schedule",
        "_thread",
        "_undoing",
        "context",
        "execution_id",
        "sequence",
        "tool",
    )

    def __init__(
        self,
        context: ExecutionContext,
        *,
        execution_id: str = "",
        sequence: int = 0,
        tool: str = "",
        report: Report | None = None,
        logger: logging.Logger | None = None,
        undoing: bool = False,
    ) -> None:
        self.context = context
        """Caller of the program."""
        self.execution_id = execution_id
        self.sequence = sequence
        """Number of the call within its execution: 1, 2, 3 and so on, in order of arrival."""
        self.tool = tool
        """Path of the tool as in the program: `name` or `namespace.name`."""
        self._report = report
        self._parent = logger
        self._undoing = undoing
        self._reports = 0
        self._thread = 0
        self._schedule: Callable[[Callable[[], object]], object] | None = None

    def __repr__(self) -> str:
        return f"<ToolCall {self.idempotency_key} of {self.tool}>"

    @property
    def idempotency_key(self) -> str:
        """`execution_id:sequence`: constant during one call, and different for every other call. It ends with `:undo`
        while the call is undone."""
        return f"{self.execution_id}:{self.sequence}{':undo' if self._undoing else ''}"

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger of this tool, `tools.<tool>` below `Corral(logger=...)`.

        Its records have the attributes `execution_id` and `sequence`. Each message is one line: line breaks and control
        characters in it are escaped.
        """
        parent = self._parent or logging.getLogger("corral")
        extra: dict[str, object] = {"execution_id": self.execution_id, "sequence": self.sequence}
        return _CallLogger(safe_child(parent, f"tools.{self.tool}"), extra)

    @property
    def shell(self) -> Any:
        """The agent's shell, a `corral.shells.Shell` restricted to commands and files.

        Raises:
            ToolError: the agent has no shell.
        """
        return expect_shell()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Reports progress as a `ToolCallProgress` event, from any thread.

        At most 1,000 reports per call are delivered, with at most 1,000 characters per message. Reports after the end
        of the call are dropped.
        """
        if self._report is None or self._reports >= _MOST_REPORTS:
            return
        self._reports += 1
        text = None if message is None else message[:_MESSAGE_CHARS]
        if self._schedule is None or self._thread == get_ident():
            self._deliver(done, total, text)
        else:
            with suppress(RuntimeError):  # the event loop has ended
                self._schedule(lambda: self._deliver(done, total, text))

    def attach(self) -> ToolCall:
        """Binds the call to the running event loop, which delivers its progress."""
        if self._report is not None:
            self._thread, self._schedule = get_ident(), thread_safe_scheduler()
        return self

    def end(self) -> None:
        """Drops any further progress."""
        self._report = None

    def _deliver(self, done: float, total: float | None, message: str | None) -> None:
        if self._report is not None:
            self._report(done, total, message)


def expect_shell() -> Any:
    """Returns the agent's shell.

    Raises:
        ToolError: the agent has no shell.
    """
    shell = SHELL.get()
    if shell is None:
        raise ToolError(
            "this tool needs a shell, and there is none: use shell_tools(shell), `with use_shell(shell)`, or an"
            " integration's shell="
        )
    return shell


class _CallLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the call to each record, besides the record's own `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}
