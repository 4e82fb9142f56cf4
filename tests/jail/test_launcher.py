"""The launcher, with a real child: its environment, the report of its end, and that nothing outlives the host."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.errors import StartFailed
from corral.jail import LauncherClient, Plan, seccomp
from corral.jail.process import ContainedProcess
from tests.processes import assert_ending, descendants

pytestmark = pytest.mark.anyio

PYTHON = Path(sys.executable)


def plan(script: str, **others: object) -> Plan:
    arguments = (str(PYTHON), "-I", "-S", "-c", script)
    return Plan(executable=PYTHON, arguments=arguments, environment={"ONLY": "this"}, **others)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def launcher() -> Iterator[LauncherClient]:
    launcher = LauncherClient()
    yield launcher
    launcher.close()


def launcher_of(launcher: LauncherClient) -> int:
    assert launcher._process is not None  # pyright: ignore[reportPrivateUsage]
    return launcher._process.pid  # pyright: ignore[reportPrivateUsage]


async def test_a_child_has_three_descriptors_the_given_environment_and_its_own_session(
    launcher: LauncherClient,
) -> None:
    script = (
        "import os\n"
        "open_ = [n for n in range(1000) if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "print(open_, open('/proc/self/environ').read().split('\\0'), os.getsid(0) == os.getpid(), flush=True)\n"
        "os.read(0, 1)\n"
    )
    process = ContainedProcess.spawn(launcher, plan(script))
    assert process.await_output(30).decode() == "[0, 1, 2] ['ONLY=this', ''] True\n"
    process.close()


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)]
)
async def test_its_status_is_told(launcher: LauncherClient, end: str, status: int) -> None:
    process = ContainedProcess.spawn(launcher, plan(f"import os, sys\nprint(1, flush=True)\nos.read(0, 1)\n{end}"))
    process.await_output(30)
    assert process.alive
    process.write_now(b"x")
    assert await process.wait(30) == status
    assert not process.alive
    process.close()


async def test_one_that_does_not_end_is_killed_after_its_grace(launcher: LauncherClient) -> None:
    process = ContainedProcess.spawn(launcher, plan("import signal\nprint(1, flush=True)\nwhile True: signal.pause()"))
    process.await_output(30)
    assert await process.wait(0.01) == -signal.SIGKILL
    process.close()


async def test_limits_are_in_force_from_the_first_instruction(launcher: LauncherClient) -> None:
    import resource

    limits = ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0))
    script = f"import resource\nprint([resource.getrlimit(n) for n in {[n for n, _ in limits]}], flush=True)\ninput()"
    process = ContainedProcess.spawn(launcher, plan(script, limits=limits))
    assert process.await_output(30).decode() == "[(16, 16), (0, 0), (0, 0)]\n"
    process.close()


async def test_what_cannot_be_started_says_at_which_step(launcher: LauncherClient) -> None:
    missing = Plan(executable=Path("/nowhere/engine"), arguments=("engine",), environment={})
    process = ContainedProcess.spawn(launcher, missing)
    with pytest.raises(StartFailed, match=r"descriptors: .*No such file"):
        process.await_output(30)
    process.close()
    wrong = plan("", limits=((-1, 0),))
    process = ContainedProcess.spawn(launcher, wrong)
    with pytest.raises(StartFailed, match="limits: "):
        process.await_output(30)
    process.close()


async def test_an_executable_that_does_not_start_is_told_although_the_filter_is_in_force(
    launcher: LauncherClient, tmp_path: Path
) -> None:
    broken = tmp_path / "engine"
    broken.write_bytes(b"no executable")
    broken.chmod(0o755)
    refused = Plan(
        executable=broken, arguments=("engine",), environment={}, confine=True, filter=seccomp.filter_program()
    )
    process = ContainedProcess.spawn(launcher, refused)
    with pytest.raises(StartFailed, match="exec: "):
        process.await_output(30)
    process.close()


async def test_closing_kills_what_runs_and_leaves_no_process(launcher: LauncherClient) -> None:
    running = [ContainedProcess.spawn(launcher, plan("print(1, flush=True)\nwhile True: pass")) for _ in range(3)]
    for process in running:
        process.await_output(30)
    pids = {process.pid for process in running}
    assert pids <= set(descendants())
    own = launcher_of(launcher)
    running[0].close()
    launcher.close()
    assert not (pids | {own}) & set(descendants())
    for process in running:
        process.close()


async def test_a_launcher_that_is_killed_takes_its_children_along_and_is_replaced(launcher: LauncherClient) -> None:
    process = ContainedProcess.spawn(launcher, plan("print(1, flush=True)\nwhile True: pass"))
    process.await_output(30)
    os.kill(launcher_of(launcher), signal.SIGKILL)
    assert_ending([process.pid, launcher_of(launcher)])
    assert await process.wait(30) == -signal.SIGKILL
    process.close()
    another = ContainedProcess.spawn(launcher, plan("print(2, flush=True)\ninput()"))
    assert another.await_output(30) == b"2\n"
    another.close()


async def test_a_launcher_that_is_asked_faster_than_it_starts_goes_on_with_what_it_has(
    launcher: LauncherClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    process = ContainedProcess.spawn(launcher, plan("import signal\nprint(1, flush=True)\nsignal.pause()"))
    process.await_output(30)
    before = launcher_of(launcher)
    with monkeypatch.context() as context:
        context.setattr(socket, "send_fds", refuse)
        with pytest.raises(StartFailed, match="Too many references"):
            ContainedProcess.spawn(launcher, plan("pass"))
    assert launcher_of(launcher) == before
    assert process.alive
    process.close()


async def test_a_child_outlives_the_thread_that_asked_for_it(launcher: LauncherClient) -> None:
    made: list[ContainedProcess] = []

    def ask() -> None:
        made.append(
            ContainedProcess.spawn(
                launcher, plan("print(1, flush=True)\nimport os\nos.read(0, 1)\nprint(2, flush=True)")
            )
        )
        made[0].await_output(30)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    [process] = made
    process.write_now(b"x")
    assert process.await_output(30) == b"2\n"
    process.close()


def run_host(script: str, lines: int) -> tuple[subprocess.Popen[str], list[str]]:
    prelude = "import os, sys, time\nfrom tests.jail.test_launcher import *\nlauncher = LauncherClient()\n"
    loop = "LOOP = 'print(1, flush=True)\\nwhile True: pass'\n"
    host = subprocess.Popen([sys.executable, "-c", prelude + loop + script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    return host, [host.stdout.readline().strip() for _ in range(lines)]


def test_nothing_outlives_a_host_that_is_killed() -> None:
    host, [line] = run_host(
        "running = [ContainedProcess.spawn(launcher, plan(LOOP)) for _ in range(3)]\n"
        "for process in running: process.await_output(30)\n"
        "print('ready', flush=True)\nsys.stdin.read()\n",
        1,
    )
    assert line == "ready"
    left = set(descendants(host.pid))
    assert len(left) == 4, "the launcher and three children"
    host.kill()
    host.wait()
    assert host.stdout is not None
    host.stdout.close()
    assert_ending(left)


@pytest.mark.matrix("nothing outlives a host in the gate; one with a fork of itself")
def test_nothing_outlives_a_host_whose_forked_child_lives_on() -> None:
    """The fork has a copy of the control socket, so its closing alone would not tell."""
    host, [fork] = run_host(
        "process = ContainedProcess.spawn(launcher, plan(LOOP))\nprocess.await_output(30)\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(60)\n"
        "print(child, flush=True)\nsys.stdin.read()\n",
        1,
    )
    left = set(descendants(host.pid)) - {int(fork)}
    assert len(left) == 2
    host.kill()
    host.wait()
    assert host.stdout is not None
    host.stdout.close()
    assert_ending(left)
    os.kill(int(fork), signal.SIGKILL)


def test_a_forked_host_gets_a_launcher_of_its_own() -> None:
    host, lines = run_host(
        "process = ContainedProcess.spawn(launcher, plan(LOOP))\nprocess.await_output(30)\n"
        "if os.fork() == 0:\n"
        "    mine = ContainedProcess.spawn(launcher, plan(LOOP))\n    mine.await_output(30)\n    mine.close()\n"
        "    launcher.close()\n    print('done', flush=True)\n    os._exit(0)\n"
        "os.wait()\nprint(process.alive, flush=True)\nprocess.close()\nlauncher.close()\n",
        2,
    )
    assert lines == ["done", "True"]
    assert host.wait(20) == 0
    assert host.stdout is not None
    host.stdout.close()


async def test_memory_is_limited_as_the_user_of_the_process(launcher: LauncherClient) -> None:
    """Root without CAP_SYS_RESOURCE may not set a limit of another user's process; the user itself may."""
    user = os.geteuid() or 65534
    shell = Plan(  # readable by every user
        executable=Path("/bin/sh"),
        arguments=("sh", "-c", "echo; read _; ulimit -d"),
        environment={},
        user=None if os.geteuid() else user,
    )
    process = ContainedProcess.spawn(launcher, shell)
    process.await_output(30)
    assert launcher.limit_data(process.pid, 1 << 30, user)
    process.write_now(b"\n")
    assert process.await_output(30) == b"1048576\n"  # KiB
    process.close()
    assert not launcher.limit_data((1 << 22) + 1, 1 << 30, user)  # a number that no process has
