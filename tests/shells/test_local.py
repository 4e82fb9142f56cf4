"""Shells of this machine, held to the public suites."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from corral.shells import JailedShell, LocalShell, Shell
from corral.testing import FilesSuite, ShellSuite

pytestmark = pytest.mark.anyio


class _Local:
    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        with tempfile.TemporaryDirectory() as folder:
            async with LocalShell(folder) as shell:
                yield shell


class _Jailed:
    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        async with JailedShell() as shell:
            yield shell


class TestLocalCommands(_Local, ShellSuite):
    pass


class TestLocalFiles(_Local, FilesSuite):
    pass


class TestJailedCommands(_Jailed, ShellSuite):
    pass


class TestJailedFiles(_Jailed, FilesSuite):
    pass
