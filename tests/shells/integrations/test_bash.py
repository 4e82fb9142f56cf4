"""A bash that goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral.shells import Completed, LocalShell
from corral.shells.integrations import anthropic as lasting_bash
from corral.shells.integrations.anthropic import LastingBash
from tests.until import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bash(tmp_path: Path) -> AsyncGenerator[LastingBash]:
    async with LocalShell(tmp_path) as shell, LastingBash(shell) as bash:
        yield bash


async def test_folder_variables_and_functions_stay(bash: LastingBash) -> None:
    await bash.run('mkdir a && cd a; x=1; f() { echo "f $x"; }')
    done = await bash.run("f; basename $PWD; echo no >&2; false")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "f 1\na\n", "no\n")
    assert (await bash.run("(exit 77)")).exit_code == 77


async def test_unfinished_syntax_is_an_error_and_the_next_command_runs(bash: LastingBash) -> None:
    for unfinished in ("echo 'a", 'echo "a', "if true; then", "echo $(", "cat <<'E'\nit's", "f() {"):
        done = await bash.run(unfinished)
        assert done.exit_code != 0 or "here-document" in done.stderr, unfinished
        assert done.stderr, unfinished
        assert (await bash.run("echo on")).stdout == "on\n", unfinished


async def test_a_bash_that_ends_is_told_and_begins_anew(bash: LastingBash) -> None:
    await bash.run("x=1")
    done = await bash.run("echo before; exit 3")
    assert done.exit_code is None
    assert done.stdout == "before\n"
    assert "bash has ended" in done.stderr
    assert (await bash.run('echo "[$x]"')).stdout == "[]\n"


async def test_a_restart_forgets_variables(bash: LastingBash) -> None:
    await bash.run("x=1")
    await bash.restart()
    assert (await bash.run('echo "[$x]"')).stdout == "[]\n"


async def test_output_that_looks_like_a_mark_is_output(bash: LastingBash) -> None:
    forged = f"\\n{'0' * 32} 0\\n"
    done = await bash.run(f"printf '{forged}'; printf '{forged}' >&2; (exit 4)")
    assert done.exit_code == 4
    assert "0" * 32 in done.stdout
    assert "0" * 32 in done.stderr


async def test_a_command_may_define_a_printf_of_its_own(bash: LastingBash) -> None:
    await bash.run("printf() { echo own; }; alias printf=false; shopt -s expand_aliases")
    done = await bash.run("(exit 5)")
    assert (done.exit_code, done.stdout) == (5, "")


@pytest.mark.parametrize("code", ["9" * 5_000, "²", "-1", "x"])
async def test_a_forged_exit_code_that_is_none_ends_bash(bash: LastingBash, code: str) -> None:
    done = await bash.run(f'builtin() {{ command printf "${{2/\\%s/{code}}}"; }}')
    assert (done.exit_code, done.timed_out) == (None, False)
    assert (await bash.run("false")).exit_code == 1


async def test_a_command_does_not_read_the_mark_as_input(bash: LastingBash) -> None:
    assert (await bash.run('cat; read -r line; echo "[$line]"')).stdout == "[]\n"


async def test_of_a_huge_output_both_ends_are_kept(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell, LastingBash(shell, output_bytes=1_000) as bash:
        done = await bash.run("seq 1 1000000")
        assert done.exit_code == 0
        assert done.truncated
        assert done.stdout.startswith("1\n2\n")
        assert done.stdout.endswith("999999\n1000000\n")
        assert len(done.stdout) < 1_200
        assert (await bash.run("echo on")).stdout == "on\n"


async def timed_out(bash: LastingBash, command: str, output: str, patch: pytest.MonkeyPatch) -> Completed:
    """Runs a command whose time is over once bash has written this."""
    deadline = anyio.CancelScope()
    patched: dict[str, Any] = {**vars(anyio), "move_on_after": lambda _: deadline}  # pyright: ignore[reportUnknownLambdaType]
    with patch.context() as patching:
        patching.setattr(lasting_bash, "anyio", SimpleNamespace(**patched))
        done: list[Completed] = []

        async def run() -> None:
            done.append(await bash.run(command))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: bash._outputs and output.encode() in bash._outputs[0]._rest)  # pyright: ignore[reportPrivateUsage]
            deadline.cancel()
    return done[0]


async def test_a_command_without_end_is_ended_and_the_next_one_runs(
    bash: LastingBash, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await timed_out(bash, "echo a; sleep 1000", "a\n", monkeypatch)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, None, "a\n")
    assert (await bash.run("echo on")).stdout == "on\n"


async def test_a_cancelled_command_ends_its_bash(bash: LastingBash, tmp_path: Path) -> None:
    await bash.run("x=1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bash.run, "touch begun; sleep 1000")
        await until((tmp_path / "begun").exists)
        tasks.cancel_scope.cancel()
    assert (await bash.run('echo "[$x]"')).stdout == "[]\n"


async def test_a_command_whose_errors_never_end_is_over_after_the_time_and_bash_begins_anew(
    bash: LastingBash, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "sleep 60 > /dev/null & exec 2> /dev/null; echo out"
    done = await timed_out(bash, command, "out\n", monkeypatch)
    assert (done.exit_code, done.timed_out) == (None, True)
    assert done.stdout.rstrip("\n") == "out"  # and perhaps the line end that the mark of the end begins with
    assert "bash was ended" in done.stderr
    assert (await bash.run("echo on >&2")).stderr == "on\n"
