"""The shell that the documentation writes, held to the suites as it says."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from docs_src.own_shell import OwnShell
from typing_extensions import override

from corral.shells import Shell
from corral.testing import FilesSuite, ShellSuite
from tests.shells.shared import SharedShell, gate_has

pytestmark = pytest.mark.anyio


REST = "the gate has the suites on our own shells; this one is an example, and no code of ours"


class _Own(SharedShell):
    @override
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        with tempfile.TemporaryDirectory() as folder:
            async with OwnShell(folder) as shell:
                yield shell


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    async with _Own.shared():
        yield


@gate_has("output_and_errors_are_apart", "cancelling_ends_a_command", rest=REST)
class TestCommands(_Own, ShellSuite):
    pass


@gate_has("bytes_are_exact", rest=REST)
class TestFiles(_Own, FilesSuite):
    many_files = 1_000
