"""Shells of services with the real SDKs against servers that speak their wires, held to the suites of shells."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from corral.shells.clouds.daytona import DaytonaShell
from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs
from tests.shells.shared import ENDS_AND_STREAMS, gate_has

pytestmark = pytest.mark.anyio

COMMANDS = """
    a_time_out_keeps_what_was_written a_folder_may_be_relative_or_absolute a_file_is_no_folder_to_run_in
    a_process_without_input_refuses_it a_nul_in_a_command_is_refused a_name_of_a_variable_is_checked
    short_and_marked_output_arrives_whole
""".split()
WHOLE = "the gate has the whole suite in a jail, programs in E2B, and here what depends on where commands run"
OTHERS = gate_has(
    *"""
    output_and_errors_are_apart a_process_gives_bytes_exactly output_arrives_while_the_command_runs
    an_exit_code_is_the_commands cancelling_ends_a_command closing_a_shell_ends_its_commands_and_it_starts_no_more
    input_of_bytes_is_exact a_variable_has_quotes_lines_and_dollars
    """.split(),
    rest="the gate has these cases in E2B and in a jail; here the parts of the wire in which services differ",
)
FILES = gate_has("bytes_are_exact", rest="files of all services are commands: the gate has the whole suite in E2B")


@pytest.fixture(scope="class", autouse=True)
async def opened(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncGenerator[None]:
    kind = cast("type[CloudShell] | None", request.cls)  # pyright: ignore[reportUnknownMemberType]
    if kind is None:
        yield
        return
    with opened_cloud(kind.cloud):
        async with kind.shared():
            yield


class Commands(CloudShell, ShellSuite):
    async def test_programs_run_there(self) -> None:
        await run_programs(self.opened)

    async def test_short_and_marked_output_arrives_whole(self) -> None:
        for text in ("", "a", "a\n", "corral-end-", "x\n\ncorral", "\\n"):
            assert (await self.opened.run(f"printf %s '{text}'")).stdout == text


class Files(CloudShell, FilesSuite):
    many_files = 1_000


@gate_has(*ENDS_AND_STREAMS, *COMMANDS, "programs_run_there", rest=WHOLE)
class TestE2BCommands(Commands):
    cloud = CLOUDS["e2b"]


class TestE2BFiles(Files):
    cloud = CLOUDS["e2b"]


@OTHERS
class TestDaytonaCommands(Commands):
    cloud = CLOUDS["daytona"]


@FILES
class TestDaytonaFiles(Files):
    cloud = CLOUDS["daytona"]


@OTHERS
class TestVercelCommands(Commands):
    cloud = CLOUDS["vercel"]


@FILES
class TestVercelFiles(Files):
    cloud = CLOUDS["vercel"]


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
