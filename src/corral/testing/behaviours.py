"""Cases of shell suites, and their table: for each case, the behaviour of shells that lack a capability."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import anyio

from corral.errors import FileError
from corral.shells import Shell, ShellCapabilities

C = TypeVar("C", bound=Callable[..., Any])
E = TypeVar("E", bound=Exception)

_PREFIX = "test_"
_PATIENCE_SECONDS = 30.0
_DIFFERENCES = "_corral_differences"


class BehaviourSuite:
    """Tests of shells. Implement `shell`."""

    def shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens the shell to test. Can return the same one for all tests, which use different file names."""
        raise NotImplementedError

    def fresh_shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens an empty shell that the test may close. Implement it if `shell` always returns the same one."""
        return self.shell()

    @asynccontextmanager
    async def _opened(self, *, fresh: bool = False) -> AsyncGenerator[Shell]:
        async with self.fresh_shell() if fresh else self.shell() as shell:
            with anyio.fail_after(_PATIENCE_SECONDS):
                yield shell


def differs(**instead: str) -> Callable[[C], C]:
    """Marks a case with the behaviour of a shell that lacks a capability, by the capability's name."""

    def mark(case: C) -> C:
        setattr(case, _DIFFERENCES, instead)
        return case

    return mark


def behaviours(suite: type[BehaviourSuite], capabilities: ShellCapabilities) -> dict[str, str]:
    """Returns the suite's cases as sentences, each with "yes" or the different behaviour for these capabilities."""
    rows: dict[str, str] = {}
    for name, case in vars(suite).items():
        if name.startswith(_PREFIX):
            instead: Mapping[str, str] = getattr(case, _DIFFERENCES, {})
            sentence = name.removeprefix(_PREFIX).replace("_", " ").replace("time out", "time-out")
            rows[sentence] = next((text for lacks, text in instead.items() if not getattr(capabilities, lacks)), "yes")
    return rows


async def expect_file_error(work: Awaitable[object], word: str) -> None:
    """Expects a `FileError` with this word.

    Raises:
        AssertionError: it was not raised.
    """
    failure = await expect_failure(work, FileError)
    assert word in str(failure), failure


async def expect_failure(work: Awaitable[object], kind: type[E]) -> E:
    """Expects an exception, and returns it.

    Raises:
        AssertionError: it was not raised.
    """
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
