"""A shell for all tests of a module: opening one costs more than most tests do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

from corral.shells import Shell

__all__ = ["SharedShell"]


class SharedShell:
    """The factory of the suites, of a kind of shell. A fixture of the module keeps one of them `shared`."""

    opened: ClassVar[Shell]

    @classmethod
    @asynccontextmanager
    async def shared(cls) -> AsyncGenerator[Shell]:
        """Opens the shell that the tests share."""
        async with cls().fresh_shell() as cls.opened:
            yield cls.opened

    def fresh_shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens another one."""
        raise NotImplementedError

    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        """Gives the one that is shared."""
        yield self.opened
