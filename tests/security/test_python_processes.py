"""What the processes of Python guests share, whom they serve, and that all of them end."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, Limits, define_tool
from corral.containment import TIERS, Tier
from corral.sandboxes import CPythonSandbox
from corral.types import Owner
from tests.processes import assert_ending, descendants
from tests.security.modes import TIERS as JAILS

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
ANN = ExecutionContext(user_id="ann")
SECONDS = 60
"""For what takes a second; so long as to be a failure, not bad luck."""
both = pytest.mark.parametrize("tier", JAILS)


def mostly(tier: Tier, other: Tier, reason: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tier", [tier, pytest.param(other, marks=pytest.mark.matrix(reason))])


ends = mostly("namespaces", "landlock", "a jail of more processes ends in `namespaces`")

# All that a process can read of its own memory, without /proc: a socket takes only what is there.
SCAN = r"""
import ctypes, gc, os, re, socket
gc.unfreeze()
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
out, into = (each.detach() for each in socket.socketpair())
def content(page):
    return os.read(out, 4096) if libc.write(into, ctypes.c_void_p(page << 12), 4096) == 4096 else None
known = {id(each) >> 12 for each in gc.get_objects()}
known |= {id(each) >> 12 for some in gc.get_objects() for each in gc.get_referents(some)}
known |= {libc.sbrk(0) - 4096 >> 12, ctypes.addressof(ctypes.c_void_p.in_dll(libc, "environ")) >> 12}
known.add(ctypes.c_void_p.in_dll(libc, "environ").value >> 12)
pages = set()
while known:
    page = known.pop()
    if page not in pages and content(page) is not None:
        pages.add(page)
        known |= {page - 1, page + 1} - pages
def holds(pattern):
    return sum(re.search(pattern, content(page) or b"") is not None for page in pages)
"""


def sought(text: str) -> bytes:
    """A pattern for a text that does not hold the text itself, so that a search does not find what it looks for."""
    return re.escape(text[:1].encode()) + b"[" + text[1:2].encode() + b"]" + re.escape(text[2:].encode())


@dataclass
class Meeting:
    """A tool in which programs wait to be let go; what they say as they come is kept."""

    come: list[Any] = field(default_factory=list[Any])
    size: int = 1
    everybody: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)

    async def meet(self, input: Any) -> None:
        self.come.append(input["say"])
        if len(self.come) >= self.size:
            self.everybody.set()
        await self.go.wait()


@dataclass
class Bench:
    corral: Corral
    sandbox: CPythonSandbox
    meeting: Meeting

    async def run(self, program: str, context: ExecutionContext = ANN) -> ExecutionResult:
        with anyio.fail_after(SECONDS):
            return await self.corral.execute(program, context=context, language="python")

    def servers(self, context: ExecutionContext = ANN) -> list[int]:
        domain = Owner(context.organization_id, context.user_id)
        found = [each for config, each in self.sandbox._servers._boxes.items() if config.owner == domain]
        return [guest._guest.process.pid for guests in found for guest in guests]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


@asynccontextmanager
async def bench(tier: Tier | None = None, **limits: Any) -> AsyncGenerator[Bench]:
    before = set(descendants())
    meeting = Meeting()
    sandbox = CPythonSandbox(tier=tier or "auto", pool_size=0)
    meet = define_tool(name="meet", execute=meeting.meet)
    async with Corral([meet], sandbox=sandbox, limits=Limits(wall_seconds=SECONDS, **limits), check=False) as corral:
        yield Bench(corral, sandbox, meeting)
        after = await corral.execute("1 + 1", context=ANN, language="python")
        assert after.value == 2, after.error
    assert_ending(set(descendants()) - before)


async def beside(bench: Bench, program: str, other: str) -> ExecutionResult:
    """The result of a program that runs while another one of the same user waits in the tool."""
    results: list[ExecutionResult] = []
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.run, other)
            await bench.meeting.everybody.wait()
            results.append(await bench.run(program.replace("OTHER", str(bench.meeting.come[0]))))
            bench.meeting.go.set()
    return results[0]


@mostly("namespaces", "landlock", "what is forked, and how, is the same in `namespaces`")
async def test_no_memory_of_an_execution_is_in_the_next_one_or_one_beside_it(tier: Tier) -> None:
    text = f"secret-of-{secrets.token_hex(8)}"
    hold = f"kept = {text!r} * 3\nkept_too = bytearray({text!r}.encode() * 3)\n"
    look = f"{SCAN}\n[len(pages), holds({sought(text)!r})]"
    async with bench(tier, memory_mb=256) as guests:
        assert (await guests.run(hold)).error is None
        alone = await guests.run(look)
        paired = await beside(guests, look, f"{hold}await tools.meet(say=0)")
        itself = await guests.run(f"{hold}{look}")
        assert len(guests.servers()) == 1
    assert [each.error for each in (alone, paired, itself)] == [None] * 3
    assert alone.value[0] > 1000
    assert (alone.value[1], paired.value[1]) == (0, 0)
    assert itself.value[1] > 1, "or the search would find nothing at all"


@mostly("landlock", "namespaces", "in `landlock` there is /proc, and so more to open")
async def test_no_pipe_or_memory_of_an_execution_can_be_opened_by_one_beside_it(tier: Tier) -> None:
    attack = """
import os
found = []
for pid in (OTHER, os.getppid()):
    for name in ("mem", "maps", "environ", "exe", *(f"fd/{number}" for number in range(64))):
        for way in (os.readlink, lambda path: os.open(path, os.O_RDONLY | os.O_NONBLOCK)):
            try: found.append(f"{pid} {name} {way(f'/proc/{pid}/{name}')}")
            except OSError: pass
for act in (lambda: os.kill(OTHER, 0), lambda: os.kill(OTHER, 9), lambda: os.kill(os.getppid(), 9), lambda: os.pidfd_open(OTHER)):
    try: found.append(str(act()))
    except OSError: pass
found
"""
    async with bench(tier) as guests:
        result = await beside(guests, attack, "import os\nawait tools.meet(say=os.getpid())\n'ended by itself'")
    assert (result.value, result.error) == ([], None)


async def test_two_executions_draw_different_random_numbers() -> None:
    draw = "import random, secrets, tempfile, uuid\n[random.random(), secrets.token_hex(), str(uuid.uuid4()), next(tempfile._get_candidate_names())]"
    async with bench() as guests:
        first, second = (await guests.run(draw)).value, (await guests.run(draw)).value
        assert len(guests.servers()) == 1
    assert all(one != other for one, other in zip(first, second, strict=True))


async def test_users_and_organizations_never_share_a_server() -> None:
    contexts = [ANN, ExecutionContext(user_id="bob"), ExecutionContext(user_id="ann", organization_id="acme")]
    async with bench() as guests:
        seeds = [[(await guests.run("hash('text')", each)).value for _ in range(2)] for each in contexts]
        servers = [guests.servers(each) for each in contexts]
    assert all(one == other for one, other in seeds)
    assert len({one for one, _ in seeds}) == 3
    assert [len(each) for each in servers] == [1, 1, 1]
    assert len({pid for [pid] in servers}) == 3


@mostly("namespaces", "landlock", "the same filter, rights and user in `namespaces`")
async def test_the_kernel_says_that_server_and_process_are_shut_in(tier: Tier) -> None:
    def status(pid: int) -> dict[str, str]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async with bench(tier) as guests, anyio.create_task_group() as tasks:
        tasks.start_soon(guests.run, "await tools.meet(say=1)")
        await guests.meeting.everybody.wait()
        [server] = guests.servers()
        [process] = descendants(server)
        of_server, of_process = status(server), status(process)
        guests.meeting.go.set()
        for each in (of_server, of_process):
            assert {int(each[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {0}
            assert (each["NoNewPrivs"], each["Seccomp"]) == ("1", "2")
        assert int(of_process["Seccomp_filters"]) == int(of_server["Seccomp_filters"]) + 1
        own = Path("/proc/self/status").read_text().partition("NSpid:")[2].splitlines()[0].split()
        assert len(of_process["NSpid"].split()) == len(own) + (tier == "namespaces")


async def test_in_namespaces_nothing_names_the_host_its_files_or_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_CANARY", canary := f"canary-{secrets.token_hex(8)}")
    names = [str(ROOT), str(Path(sys.prefix)), tempfile.gettempdir() + "/corral-", canary]
    program = f"""{SCAN}
import platform, traceback
seen = [path for path, folders, files in os.walk("/") if not path.startswith(("/python", "/proc"))]
try: 1 / 0
except ZeroDivisionError: text = traceback.format_exc()
memory = b"".join(content(page) or b"" for page in pages)
named = [each for each in {[sought(each) for each in names]!r} if re.search(each, memory)]
[platform.node(), os.getuid(), os.getgid(), os.getpid() < 100, dict(os.environ), seen, named, text]
"""
    async with bench("namespaces", memory_mb=256) as guests:
        result = await guests.run(program)
    assert result.error is None
    node, user, group, few, environment, seen, named, text = result.value
    assert (node, user, group, few, environment) == ("guest", 65534, 65534, True, {})
    assert named == []
    assert {"/", "/guest"} <= {*seen}
    # Shared libraries are where the loader looks for them, which may be below the interpreter's own place.
    assert not any(each.startswith(("/home/", "/tmp", "/srv", "/etc", str(ROOT))) for each in seen)
    assert "program.py" in text


@ends
async def test_a_killed_server_loses_what_runs_in_it_and_the_next_execution_has_another(tier: Tier) -> None:
    results: list[ExecutionResult] = []

    async def one() -> None:
        results.append(await guests.run("await tools.meet(say=1)"))

    before: list[int] = []
    async with bench(tier) as guests:
        guests.meeting.size = 3
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one)
                await guests.meeting.everybody.wait()
                [server] = before = guests.servers()
                lost = descendants(server)
                assert len(lost) == 3
                os.kill(server, signal.SIGKILL)
                assert_ending({server, *lost})
        assert [each.error and each.error.code for each in results] == ["sandbox_lost"] * 3
        assert (await guests.run("2")).value == 2
        assert before != guests.servers() != []


@ends
async def test_a_killed_launcher_takes_all_with_it_and_the_next_execution_has_another(tier: Tier) -> None:
    results: list[ExecutionResult] = []

    async def one() -> None:
        results.append(await guests.run("await tools.meet(say=1)"))

    async with bench(tier) as guests:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one)
                await guests.meeting.everybody.wait()
                launcher = guests.sandbox._starter._launcher._process
                assert launcher is not None
                lost = descendants(launcher.pid)
                os.kill(launcher.pid, signal.SIGKILL)
                assert_ending(lost)
        assert [each.error and each.error.code for each in results] == ["sandbox_lost"]


@ends
def test_nothing_is_left_when_the_host_is_killed(tier: Tier, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import anyio\n"
        "from corral import Corral, tool\n"
        "from corral.sandboxes import CPythonSandbox\n"
        "@tool\n"
        "async def hang() -> None:\n"
        "    print('called', flush=True)\n"
        "    await anyio.sleep(600)\n"
        f"sandbox = CPythonSandbox(tier={tier!r}, pool_size=0)\n"
        "Corral([hang], sandbox=sandbox).sync.execute('await tools.hang()', language='python')\n"
    )
    host = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert host.stdout is not None
    assert host.stdout.readline() == "called\n"
    left = descendants(host.pid)
    assert len(left) >= 3, "launcher, server, process"
    host.kill()
    host.wait()
    host.stdout.close()
    assert_ending(left)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [], "the launcher has removed the guest's code"


@ends
async def test_an_execution_that_is_cancelled_at_any_moment_leaves_no_process(tier: Tier) -> None:
    chance = random.Random(1)  # noqa: S311 - moments, not secrets
    cancelled = 0

    async def cut_short(seconds: float) -> None:
        nonlocal cancelled
        with anyio.move_on_after(seconds) as scope:
            await guests.run("for number in range(10**9): print(number)")
        cancelled += scope.cancelled_caught

    async with bench(tier) as guests:
        await guests.run("1")
        for _ in range(15):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(cut_short, chance.uniform(0, 0.03))
        [server] = guests.servers()
        assert_ending(descendants(server), but=1)  # which was forked ahead for the next execution
        assert (await guests.run("2")).value == 2
        assert guests.servers() == [server]
    assert cancelled == 60


async def test_what_a_program_leaves_running_ends_with_it() -> None:
    program = """
import signal, sys, threading
def burn():
    while True: pass
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
await tools.meet(say=1)
for _ in range(3): threading.Thread(target=burn).start()
sys.setswitchinterval(1e-6)
'over'
"""
    left: list[int] = []
    async with bench() as guests:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guests.run, program)
            await guests.meeting.everybody.wait()
            [server] = guests.servers()
            left += descendants(server)
            guests.meeting.go.set()
        assert len(left) == 1
        assert_ending(left)  # while its server lives on
        assert len(guests.servers()) == 1


async def test_many_executions_of_one_user_at_once_all_run() -> None:
    results: list[ExecutionResult] = []

    async def one() -> None:
        results.append(await guests.run("1"))

    async with bench() as guests:
        await one()
        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(one)
    assert {(each.status, each.value) for each in results} == {("succeeded", 1)}


def test_the_tiers_that_are_tested_are_all_that_shut_anything_in() -> None:
    assert {*JAILS} == {*TIERS} - {"none"}
