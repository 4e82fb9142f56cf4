"""`DaytonaShell` with the real SDK against a server that speaks its wire, held to the suites of shells."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import anyio
import pytest

from corral.shells.clouds.daytona import DaytonaShell
from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs
from tests.shells.shared import ENDS_AND_STREAMS, gate_has

pytestmark = pytest.mark.anyio


class _Daytona(CloudShell):
    cloud = CLOUDS["daytona"]


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    with opened_cloud(_Daytona.cloud):
        async with _Daytona.shared():
            yield


@gate_has(*ENDS_AND_STREAMS, rest="the gate has the whole suite in E2B, and here what the services differ in")
class TestCommands(_Daytona, ShellSuite):
    pass


@gate_has("bytes_are_exact", rest="files of all services are commands: the gate has the whole suite in E2B")
class TestFiles(_Daytona, FilesSuite):
    many_files = 1_000


@pytest.mark.matrix("programs are run by commands, whose input and output the suite has: the gate has them in E2B")
async def test_programs_run_there() -> None:
    await run_programs(_Daytona.opened)


async def test_short_and_marked_output_arrives_whole() -> None:
    for text in ("", "a", "a\n", "corral-end-", "x\n\ncorral", "\\n"):
        assert (await _Daytona.opened.run(f"printf %s '{text}'")).stdout == text


async def test_input_is_sent_in_the_order_of_the_calls() -> None:
    lines: list[str] = []

    async def send(_session: str, _command: str, line: str) -> None:
        await anyio.lowlevel.checkpoint()
        lines.append(line)

    sandbox = SimpleNamespace(process=SimpleNamespace(send_session_command_input=send))
    process = DaytonaShell(sandbox).process(stdin=True)
    long = b"a" * 200_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.write, long)
        tasks.start_soon(process.write, b"b")
        tasks.start_soon(process.close_stdin)
    process.finish(0)
    process.discard()
    assert lines.pop() == ".\n"
    assert b"".join(map(base64.b64decode, lines)) == long + b"b"
