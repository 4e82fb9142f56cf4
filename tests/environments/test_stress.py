"""What a process is denied, and what is done to it from outside: one clear outcome each, and nothing is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.test_environments import TRIED, tried
from tests.processes import assert_ending, descendants
from tests.surroundings import Surroundings, refused, run_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

CLONE_CHILD_SETTID = 0x0100_0000
"""Of fork(3), and not of pthread_create(3)."""
# Executions in flight, one of which has its tool send a signal to a process. Prints how they ended, how the next one
# ends, and how many processes are left.
SIGNALLED = """
import asyncio, json, os, signal, sys
from corral import Corral, tool
from corral.sandboxes import DenoSandbox
from tests.processes import descendants
from tests.until import until
sandbox = DenoSandbox(isolation="fork", pool_size=0)
arrived, before = [], {}
def launcher():
    return sandbox._forks._starter._launcher._process.pid
def victim():
    if sys.argv[1] == "host":
        return os.getpid()
    if sys.argv[1] == "launcher":
        return launcher()
    [server] = [box for boxes in sandbox._forks._servers._boxes.values() for box in boxes]
    return server._guest.process.pid
@tool
async def wait(n: int) -> int:
    arrived.append(n)
    await until(lambda: len(arrived) >= 3)
    if n == 0:
        before.update(descendants())
        os.kill(victim(), int(sys.argv[2]))
    if sys.argv[1] != "host":
        await asyncio.Event().wait()  # so that no program ends before it is lost
    return n
async def main():
    async with Corral([wait], sandbox=sandbox, check=False) as corral:
        programs = [f"return await tools.wait({{ n: {n} }}) + await tools.wait({{ n: 1 }})" for n in range(3)]
        ends = await asyncio.gather(*map(corral.execute, programs))
        if sys.argv[1] != "host":
            await until(lambda: not before.keys() - {launcher()} & descendants().keys())
        ends.append(await corral.execute("return 1"))
    await until(lambda: not descendants())
    print(json.dumps([each.error.code if each.error else each.value for each in ends]))
asyncio.run(main())
"""


def signalled(victim: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SIGNALLED, victim, str(int(number))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "victim",
    [
        "launcher",
        pytest.param("server", marks=pytest.mark.matrix("the gate has the launcher, with which its servers end")),
    ],
)
def test_executions_whose_launcher_or_server_is_killed_are_lost_and_the_next_one_runs(victim: str) -> None:
    out, _ = signalled(victim, signal.SIGKILL).communicate(timeout=60)
    assert out == '["sandbox_lost", "sandbox_lost", "sandbox_lost", 1]\n'


@pytest.mark.matrix("hosts and launchers are killed in the gate; one that is stopped for a moment")
def test_a_host_that_is_stopped_goes_on_with_its_executions() -> None:
    host = signalled("host", signal.SIGSTOP)
    pid, status = os.waitpid(host.pid, os.WUNTRACED)
    assert (pid, os.WIFSTOPPED(status)) == (host.pid, True)
    host.send_signal(signal.SIGCONT)
    out, _ = host.communicate(timeout=60)
    assert out == "[1, 2, 3, 1]\n"


def test_a_host_that_is_killed_leaves_no_process() -> None:
    host = signalled("host", signal.SIGSTOP)
    os.waitpid(host.pid, os.WUNTRACED)
    processes = descendants(host.pid)
    assert len(processes) > 3
    host.kill()
    host.communicate()
    assert_ending(processes)


def test_where_no_process_can_be_forked_the_limit_to_raise_is_named() -> None:
    rules = refused("clone", error=errno.EAGAIN, bits=CLONE_CHILD_SETTID)
    outcomes, warnings = tried(None, rules, "unchecked typescript")
    assert outcomes["unchecked typescript"] == [42, "interpreter", "invalid_arguments"]
    reason = "fork: Resource temporarily unavailable: raise the limit of processes (ulimit -u"
    assert any(reason in each for each in warnings)


@pytest.mark.parametrize(
    "where",
    [
        "read-only temporary files",
        pytest.param(
            "temporary files that do not execute",
            marks=pytest.mark.matrix("the gate has those that cannot be written; nothing is executed there"),
        ),
    ],
)
def test_programs_run_where_temporary_files_are_restricted(where: Surroundings, tmp_path: Path) -> None:
    done = run_in(where, [sys.executable, "-c", TRIED, "unchecked typescript"], TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"unchecked typescript": [42, "' in done.stdout
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("streams", "code", "lines"),
    [
        pytest.param(
            *("<&- >&-", 0, ""),
            id="closed",
            marks=pytest.mark.matrix("a full disk stops the same writes in the gate; streams that are closed"),
        ),
        pytest.param('> "$FULL"', 1, "error: No space left on device\n", id="full"),
    ],
)
def test_a_command_whose_output_leads_nowhere_ends_with_one_line_at_most(
    streams: str, code: int, lines: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.ts"
    program.write_text("return 1")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    command = f'exec "$1" run "$2" --no-check {streams}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", Path(sys.executable).with_name("corral"), program],
        env=os.environ | {"FULL": str(full)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, lines)
