"""`Corral.sync`: the same methods for callers without an event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from corral.arguments import checked
from corral.checking import CheckResult
from corral.results import ExecutionResult
from corral.running.options import RunOptions
from corral.running.request import ExecutionRequest
from corral.sessions import SessionFiles
from corral.sessions.shell import Files, Shell
from corral.tools.tool_sources import Tools
from corral.types import Audience, Language

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

Call = Callable[[Callable[[], Awaitable[Any]]], Any]
"""Calls a function in the Corral's event loop, and waits until it ends."""
Block = Callable[[AbstractAsyncContextManager[Any]], AbstractContextManager[Any]]
"""Converts an async context manager to a sync one that is entered and left in the Corral's event loop."""
_WRAPPED = (SessionFiles, Shell, Files)


class Blocking:
    """Wraps an object of an event loop so that its methods block: their results are awaited, entered or iterated
    there."""

    def __init__(self, target: Any, call: Call, block: Block) -> None:
        self._target = target
        self._call = call
        self._block = block

    def __repr__(self) -> str:
        return repr(self._target)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if isinstance(value, _WRAPPED):
            return Blocking(value, self._call, self._block)
        if not callable(value):
            return value

        def method(*arguments: Any, **options: Any) -> Any:
            async def called() -> Any:
                returned = value(*arguments, **options)
                return await returned if inspect.isawaitable(returned) else returned

            returned = self._call(called)
            if hasattr(returned, "__aenter__"):
                return self._entered(returned)
            return self._iterated(returned) if hasattr(returned, "__anext__") else returned

        return method

    def __iter__(self) -> Iterator[Any]:
        return self._iterated(aiter(self._target))

    @contextmanager
    def _entered(self, manager: AbstractAsyncContextManager[Any]) -> Generator[Any]:
        with self._block(manager) as entered:
            yield Blocking(entered, self._call, self._block)

    def _iterated(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[T, ...]:
            async for item in items:
                return (item,)
            return ()

        while item := self._call(following):
            yield item[0]


class SyncCorral:
    """Methods of a Corral for callers without an event loop, such as scripts: `Corral.sync`.

    `with Corral(...).sync as corral` opens the Corral, whose event loop runs in a thread until the block ends. Without
    such a block, `execute` and `check` start and end a loop each time.

    Raises:
        ConfigError: each method raises it in a thread that already runs an event loop; await the Corral's own methods
            there.
    """

    _shown_as = "Corral.sync"  # in errors

    def __init__(self, corral: Any, call: Call, block: Block) -> None:
        self._corral = corral
        self._call = call
        self._all = Blocking(corral, call, block)
        self.tools = corral.tools
        self.model = corral.model
        self.executions: Any = Blocking(corral.executions, call, block)
        """`Corral.executions`, whose methods block."""
        self.remote: Any = Blocking(corral.remote, call, block)
        """`Corral.remote`, whose methods block."""

    def __repr__(self) -> str:
        return f"{self._corral!r}.sync"

    def __enter__(self) -> Self:
        self._corral.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._corral.__exit__(kind, error, traceback)

    @checked
    def execute(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. Takes the options of `Corral.execute`."""
        return self._call(lambda: self._corral.execute(source, **options))

    @checked
    def check(
        self,
        source: str,
        language: Language = "typescript",
        *,
        tools: Tools | None = None,
        env: bool = False,
        **audience: Unpack[Audience],
    ) -> CheckResult:
        """Type-checks a program. Takes the options of `Corral.check`."""
        return self._call(lambda: self._corral.check(source, language, tools=tools, env=env, **audience))

    def start(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> AbstractContextManager[Any]:
        """Starts a program, like `Corral.start`. Use `for event in run` and `run.result()`.

        Raises:
            ConfigError: the Corral was not opened by `with`.
        """
        return self._all.start(source, **options)

    def session(self, **options: Any) -> AbstractContextManager[Any]:
        """Opens a session, like `Corral.session`. Use `session.execute(...)` and `session.files.write_text(...)`.

        Raises:
            ConfigError: the Corral was not opened by `with`.
        """
        return self._all.session(**options)
