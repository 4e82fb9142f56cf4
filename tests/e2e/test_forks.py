"""`DenoSandbox(isolation="fork")`: what forked processes share with nobody, how they end, and what is done where none work."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import ctypes
import logging
import os
import platform
import random
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, Limits, define_tool, tool
from corral.containment import Tier
from corral.errors import StartFailed
from corral.guest import typescript_server
from corral.sandboxes import DenoSandbox, deno
from corral.sandboxes.jailed import fork_self_test
from corral.sandboxes.jailed.fork_server import ForkServer, fork
from corral.sandboxes.jailed.guest_starter import GuestProcess, StartedGuest
from corral.types import Owner
from tests.conftest import TOOLS
from tests.processes import assert_ending, descendants, guests, stop
from tests.security.modes import TIERS
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann")
BOB = ExecutionContext(user_id="bob")
SECONDS = 30
libc = ctypes.CDLL(None, use_errno=True)


class Meeting:
    """A tool in which programs wait for each other, until `size` of them are there and looked at."""

    def __init__(self) -> None:
        self.size = 1
        self.come: list[Any] = []
        self.everybody = anyio.Event()
        self.go = anyio.Event()

    async def meet(self, input: Any) -> None:
        self.come.append(input)
        if len(self.come) >= self.size:
            self.everybody.set()
        await self.go.wait()


@pytest.fixture
async def meeting() -> Meeting:
    return Meeting()


@pytest.fixture
def tier() -> Tier | Literal["auto"]:
    return "auto"


@pytest.fixture
def sandbox(tier: Tier | Literal["auto"]) -> DenoSandbox:
    return DenoSandbox(isolation="fork", tier=tier, pool_size=0, allow_wasm=True)


@pytest.fixture
async def corral(sandbox: DenoSandbox, meeting: Meeting) -> AsyncIterator[Corral]:
    """Every test must leave it so that the next execution works, and ends with it."""
    others = set(descendants())
    limits = Limits(wall_seconds=SECONDS, cpu_seconds=10)
    meet = define_tool(name="meet", execute=meeting.meet)
    with anyio.fail_after(3 * SECONDS):
        async with Corral([*TOOLS, meet], sandbox=sandbox, limits=limits, check=False) as corral:
            yield corral
            after = await corral.execute("return await tools.add({a: 1, b: 2})", context=ANN)
            assert after.value == 3, after.error
    assert_ending(set(descendants()) - others)


def servers(sandbox: DenoSandbox, context: ExecutionContext = ANN) -> list[int]:
    assert sandbox._forks is not None
    domain = Owner(context.organization_id, context.user_id)
    found = [each for config, each in sandbox._forks._servers._boxes.items() if config.owner == domain]
    return [server._guest.process.pid for each in found for server in cast("list[ForkServer]", each)]


async def live(sandbox: DenoSandbox) -> set[int]:
    """The processes of a user that run a program: without those that are ready for the next one."""
    assert sandbox._forks is not None
    found = {pid for server in servers(sandbox) for pid in guests(server)}
    return found - {spare.pid for spare in await spares(sandbox)}


async def spares(sandbox: DenoSandbox) -> list[GuestProcess]:
    """The processes that are ready for the next execution, each once it is born."""
    assert sandbox._forks is not None
    found: list[GuestProcess] = []
    for forks in sandbox._forks._servers._boxes.values():
        for server in cast("list[ForkServer]", forks):
            spare = server._spare
            while spare is not None and not spare.ended and spare.pid == 0:
                await anyio.lowlevel.checkpoint()
            found += [] if spare is None else [spare]
    return found


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def opened(pid: int) -> list[int]:
    return [int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()]


def in_common(one: int, other: int) -> list[tuple[int, int, str]]:
    """Descriptors by which two processes have the same open file: kcmp(2), KCMP_FILE."""
    number = {"x86_64": 312, "aarch64": 272}[platform.machine()]
    return [
        (mine, theirs, str(Path(f"/proc/{one}/fd/{mine}").readlink()))
        for mine in opened(one)
        for theirs in opened(other)
        if libc.syscall(number, one, other, 0, mine, theirs) == 0
    ]


# --- what a process is


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at the files of processes that hide themselves")
@pytest.mark.parametrize(
    "tier",
    ["namespaces", pytest.param("landlock", marks=pytest.mark.matrix("the same filter and rights in namespaces"))],
)
async def test_the_kernel_shows_a_process_that_can_do_nothing_to_others(
    corral: Corral, sandbox: DenoSandbox, meeting: Meeting
) -> None:
    meeting.size = 2
    async with anyio.create_task_group() as tasks:
        for say in range(2):
            tasks.start_soon(partial(corral.execute, f"await tools.meet({{say: {say}}})", context=ANN))
        await meeting.everybody.wait()
        [server] = servers(sandbox)
        children = await live(sandbox)
        assert len(children) == 2
        own = status(server)
        for pid in children:
            found = status(pid)
            assert found["Uid"].split()[0] == own["Uid"].split()[0] != "0"
            assert (found["Seccomp"], found["NoNewPrivs"], int(found["CapEff"], 16)) == ("2", "1", 0)
            assert int(found["Seccomp_filters"]) == int(own["Seccomp_filters"]) + 1
            assert found["Threads"] == "1"
            assert re.search(r"Max open files +64 +64 ", Path(f"/proc/{pid}/limits").read_text())
            assert max(opened(pid)) < 16
        assert in_common(server, server), "or nothing would be seen"
        one, other = children
        # The server closes its own ends of a fork after the fork, which may have called a tool by then.
        await until(lambda: not any(in_common(*pair) for pair in ((one, other), (server, one), (server, other))))
        meeting.go.set()


async def test_a_process_serves_one_execution_and_ends(corral: Corral, sandbox: DenoSandbox) -> None:
    first = await corral.execute("globalThis.left = 1; Array.prototype.left = 2; return 1", context=ANN)
    [server] = servers(sandbox)
    second = await corral.execute("return [typeof left, [].left ?? null]", context=ANN)
    assert (first.value, second.value) == (1, ["undefined", None])
    assert servers(sandbox) == [server]
    assert_ending(await live(sandbox))


async def test_a_server_serves_one_user(corral: Corral, sandbox: DenoSandbox) -> None:
    for context in (ANN, BOB, ExecutionContext(user_id="ann", organization_id="x")):
        assert (await corral.execute("return 1", context=context)).value == 1
    [ann], [bob] = servers(sandbox), servers(sandbox, BOB)
    assert ann != bob


async def test_siblings_draw_different_random_numbers(corral: Corral, sandbox: DenoSandbox) -> None:
    program = """
        const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 128 }, true, ["encrypt"]);
        const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign"]);
        return [
          Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(16)).toHex(),
          new Uint8Array(await crypto.subtle.exportKey("raw", key)).toHex(),
          (await crypto.subtle.exportKey("jwk", pair.privateKey)).d,
        ];
    """
    drawn: list[Any] = []

    async def draw() -> None:
        result = await corral.execute(program, context=ANN)
        assert result.error is None, result.error
        drawn.extend(result.value)

    for at_once in (1, 1, 6):
        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(draw)
    assert len(servers(sandbox)) == 1
    assert len(drawn) == 40
    assert len({*map(str, drawn)}) == 40


@pytest.mark.matrix("siblings draw other numbers, says the gate; how they are spread")
async def test_random_numbers_are_what_they_should_be(corral: Corral) -> None:
    program = """
        const all = Array.from({ length: 100_000 }, Math.random);
        return [Math.min(...all.slice(0, 50_000)) >= 0, Math.max(...all.slice(0, 50_000)) < 1,
          all.reduce((sum, each) => sum + each) / all.length, new Set(all).size, Math.random.name, Math.random.length];
    """
    result = await corral.execute(program, context=ANN)
    least, most, mean, different, name, length = result.value
    assert (least, most, different, name, length) == (True, True, 100_000, "random", 0)
    assert 0.49 < mean < 0.51


REPLACED = [
    "for (const name of ['set', 'fill', 'subarray', 'slice', 'indexOf', 'includes']) Uint8Array.prototype.__proto__[name] = stolen",
    "for (const name of ['length', 'byteLength', 'buffer']) Object.defineProperty(Uint8Array.prototype.__proto__, name, { get: stolen })",
    "for (const name of ['push', 'pop', 'shift', 'map', 'forEach', Symbol.iterator]) Array.prototype[name] = stolen",
    "Function.prototype.apply = Function.prototype.bind = stolen; Promise.prototype.then = stolen",
    "globalThis.Number = globalThis.BigInt = globalThis.Int32Array = globalThis.Uint8Array = stolen; Math.random = stolen",
    "Object.defineProperty(Object.prototype, 'fd', { set: stolen }); Object.prototype.then = stolen; Object.prototype.get = stolen",
]


async def test_what_a_program_replaces_gets_nothing_of_the_guest(corral: Corral) -> None:
    program = """
        let seen = 0;
        function stolen(...values) {
          for (const value of [this, ...values]) if (ArrayBuffer.isView(value)) seen++;
          return undefined;
        }
        const { add } = tools;
        REPLACED;
        const pending = add({ a: 1, b: 2 });
        setTimeout(() => 0, 1);
        return seen;
    """
    for replaced in REPLACED:
        result = await corral.execute(program.replace("REPLACED", replaced), context=ANN)
        assert result.error is not None or result.value == 0, (replaced, result)


async def test_a_killed_server_is_replaced(corral: Corral, sandbox: DenoSandbox) -> None:
    assert (await corral.execute("return 1", context=ANN)).value == 1
    [server] = servers(sandbox)
    assert_ending(_killed({server}))
    assert (await corral.execute("return 2", context=ANN)).value == 2
    assert servers(sandbox) != [server]


@pytest.mark.matrix("a killed server is replaced in the gate; here it is killed in its self-test")
async def test_a_server_that_is_killed_in_its_self_test_is_no_engine_that_does_not_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    self_test = fork_self_test.self_test

    def killed(guest: StartedGuest) -> None:
        assert_ending(_killed({guest.process.pid}))
        self_test(guest)

    monkeypatch.setattr(fork_self_test, "_passed", set[object]())
    async with Corral(sandbox=DenoSandbox(isolation="fork", pool_size=0), check=False) as corral:
        with monkeypatch.context() as patch:
            patch.setattr(fork_self_test, "self_test", killed)
            with pytest.raises(StartFailed):
                await corral.execute("return 1", context=ANN)
        assert (await corral.execute("return 1", context=ANN)).value == 1


async def test_a_process_that_was_killed_before_its_program_came_gets_none(
    corral: Corral, sandbox: DenoSandbox
) -> None:
    assert (await corral.execute("return 1", context=ANN)).value == 1
    [server] = servers(sandbox)
    with anyio.fail_after(LIMIT_SECONDS):
        while not await spares(sandbox):
            await anyio.lowlevel.checkpoint()
    [spare] = await spares(sandbox)
    values: list[object] = []

    async def run() -> None:
        values.append((await corral.execute("return 2", context=ANN)).value)

    stop(server)  # so that it does not say that one of its processes has ended
    try:
        assert_ending(_killed({spare.pid}))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while spare in await spares(sandbox):
                await anyio.lowlevel.checkpoint()
            os.kill(server, signal.SIGCONT)
    finally:
        os.kill(server, signal.SIGCONT)
    assert values == [2]


async def test_a_killed_process_takes_nobody_along(corral: Corral, sandbox: DenoSandbox, meeting: Meeting) -> None:
    meeting.size = 2
    results: dict[int, ExecutionResult] = {}

    async def run(say: int) -> None:
        results[say] = await corral.execute(f"await tools.meet({{say: {say}}}); return {say}", context=ANN)

    async with anyio.create_task_group() as tasks:
        for say in range(2):
            tasks.start_soon(run, say)
        await meeting.everybody.wait()
        assert_ending(_killed({min(await live(sandbox))}))
        meeting.go.set()
    codes = sorted(str(each.error and each.error.code) for each in results.values())
    assert codes == ["None", "sandbox_lost"]


def _killed(pids: set[int]) -> set[int]:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


@tool
async def slow(x: int, ms: int) -> int:
    """Gives `x` back after some time."""
    await anyio.sleep(ms / 1000)
    return x


LIMITS = Limits(calls=1000, wall_seconds=300, cpu_seconds=100)
SHORT = Limits(wall_seconds=300, cpu_seconds=0.2)
MIXED: Mapping[str, tuple[str, Callable[[int], object] | str]] = {
    "plain": ("return N", lambda n: n),
    "calls": (
        "let s = 0; for (let i = 0; i < 10; i++) s += await tools.slow({x: N, ms: 0}); return s",
        lambda n: 10 * n,
    ),
    "parallel": (
        "return (await Promise.all([...Array(20).keys()].map(() => tools.slow({x: N, ms: 3})))).reduce((a, b) => a + b)",
        lambda n: 20 * n,
    ),
    "timer": ("await new Promise(r => setTimeout(r, 3)); return await tools.slow({x: N, ms: 1})", lambda n: n),
    "crypto": (
        "return (await crypto.subtle.digest('SHA-256', new Uint8Array(N))).byteLength + N",
        lambda n: 32 + n,
    ),
    "stream": (
        (
            "const stream = new Blob(['x'.repeat(N)]).stream().pipeThrough(new CompressionStream('gzip'));\n"
            "return (await new Response(stream.pipeThrough(new DecompressionStream('gzip'))).text()).length"
        ),
        lambda n: n,
    ),
    "heap": ("const a = []; for (let i = 0; i < 200000; i++) a.push({i}); return a.length + N", lambda n: 200_000 + n),
    "throws": ("throw new Error('N')", "program_failed"),
    "hangs": ("while (true) {} // N", "program_timeout"),
    "needs all memory": ("const a = []; for (;;) a.push(new Array(1000).fill(N))", "memory_exceeded"),
}


@pytest.mark.parametrize(
    "tier",
    [
        each if each == "namespaces" else pytest.param(each, marks=pytest.mark.matrix("as in the namespaces tier"))
        for each in TIERS
    ],
)
async def test_many_executions_at_once_do_what_each_alone_would(sandbox: DenoSandbox) -> None:
    kinds = [*MIXED] * 2
    random.Random(7).shuffle(kinds)  # noqa: S311
    wrong: list[object] = []

    async def run(number: int, kind: str, corral: Corral, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            program, expected = MIXED[kind]
            limits = SHORT if kind == "hangs" else LIMITS
            result = await corral.execute(
                program.replace("N", str(number)), context=(ANN, BOB)[number % 2], limits=limits
            )
        if callable(expected):
            wanted: object = expected(number)
            found: object = result.value
        else:
            wanted, found = expected, result.error and result.error.code
        if found != wanted:
            wrong.append((kind, number, result.status, result.value, result.error))

    others = set(descendants())
    async with (
        Corral([slow], sandbox=sandbox, check=False) as corral,
        anyio.create_task_group() as tasks,
    ):
        limiter = anyio.CapacityLimiter(12)
        for number, kind in enumerate(kinds):
            tasks.start_soon(run, number, kind, corral, limiter)
    assert wrong == []
    assert_ending(set(descendants()) - others)


# --- native calls


def changed(monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Has servers start with other code."""
    server = typescript_server()
    for old, new in changes:
        assert old in server, old
        server = server.replace(old, new)
    monkeypatch.setattr(deno, "typescript_server", lambda: server)


REVOKE = 'native.permissions.revokeSync({ name: "ffi" });'


async def test_native_calls_are_refused_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, (REVOKE, f"{REVOKE} globalThis[Symbol.for('native')] = native;"))
    program = """
        const native = globalThis[Symbol.for("native")];
        const attempts = {
          open: () => native.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }),
          address: () => native.UnsafePointer.of(new Uint8Array(1)),
          pointer: () => native.UnsafePointer.create(4096n),
          callback: () => new native.UnsafeCallback({ parameters: [], result: "void" }, () => {}),
          ask: () => { if (native.permissions.requestSync({ name: "ffi" }).state !== "granted") throw new TypeError("denied") },
          run: () => new native.Command("/bin/true").outputSync(),
          read: () => native.readTextFileSync("/etc/passwd"),
        };
        return Object.entries(attempts).map(([name, attempt]) => {
          try { attempt(); return `${name} works`; } catch (error) { return `${name} ${error.name}`; }
        });
    """
    async with Corral(sandbox=DenoSandbox(isolation="fork", pool_size=0), check=False) as corral:
        result = await corral.execute(program)
    assert result.error is None, result.error
    refused = {each.split()[0]: each.split()[1] for each in result.value}
    assert set(refused) == {"open", "address", "pointer", "callback", "ask", "run", "read"}
    assert set(refused.values()) <= {"NotCapable", "TypeError"}, refused


# --- where an engine does not fork


BREAK = {
    "it still grants native calls": ((REVOKE, ""),),
    "there is no such library": (("libc.so.6", "libno.so.6"),),
    "the kernel makes no process": (("return call.fork();", "return -1;"),),
    "processes draw the same numbers": (("this.#reseed();", "Math.random = () => 0.5;"),),
    "a process ends at once": (("filter?.seal(this.#libc);", "if (filter !== null) call._exit(3);"),),
    "a process never answers": (("filter?.seal(this.#libc);", "while (filter !== null);"),),
    "the engine's own loop is of another kind": (("wakers.length === 0", "true"),),
    "descriptors are of another kind": (("mode === SOCKET", "false"),),
}


@pytest.fixture(scope="module")
async def usual() -> ExecutionResult:
    """A result of an engine of its own, as it was asked for."""
    async with Corral(sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
        return await corral.execute("return 1")


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(
            reason,
            marks=[]
            if reason in ("it still grants native calls", "processes draw the same numbers", "a process ends at once")
            else [pytest.mark.matrix("self-tests fail in the gate before, at and after a fork; other failures")],
        )
        for reason in BREAK
    ],
)
async def test_where_the_self_test_fails_each_execution_starts_an_engine(
    reason: str, usual: ExecutionResult, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    changed(monkeypatch, *BREAK[reason])
    if reason == "a process never answers":
        monkeypatch.setattr(fork_self_test, "_SECONDS", 1.0)
    sandbox = DenoSandbox(pool_size=0)
    with caplog.at_level(logging.WARNING, "corral"):
        async with Corral(TOOLS, sandbox=sandbox, check=False) as corral:
            results = [await corral.execute("return await tools.add({a: 1, b: 2})", context=ANN) for _ in range(2)]
    assert [each.value for each in results] == [3, 3], results
    assert sandbox.fork_failure is not None
    assert [each.getMessage() for each in caplog.records] == [
        f"each execution starts its own engine, because this one does not fork: {sandbox.fork_failure}"
    ]
    assert results[0].containment == usual.containment, "the same jail as without"


async def test_what_was_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, ("return call.fork();", "return -1;"))
    with pytest.raises(StartFailed, match="fork"):
        await Corral(sandbox=DenoSandbox(isolation="fork", pool_size=0), check=False).execute("return 1")


async def test_executions_are_forked_by_default() -> None:
    sandbox = DenoSandbox(pool_size=0)
    async with Corral(sandbox=sandbox, check=False) as corral:
        assert (await corral.execute("return 1", context=ANN)).value == 1
        assert len(servers(sandbox)) == 1
        assert sandbox.fork_failure is None


async def test_an_engine_that_forks_is_started_in_the_background_for_the_second_execution() -> None:
    sandbox = DenoSandbox(pool_size=1)
    async with Corral(sandbox=sandbox, check=False) as corral:
        for _ in range(2):
            assert (await corral.execute("return 1", context=ANN)).value == 1
            assert servers(sandbox) == []
        await sandbox.settled()
        assert (await corral.execute("return 1", context=ANN)).value == 1
        assert len(servers(sandbox)) == 1


async def test_where_that_does_not_fork_each_execution_starts_an_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    changed(monkeypatch, ("return call.fork();", "return -1;"))
    sandbox = DenoSandbox(pool_size=1)
    async with Corral(sandbox=sandbox, check=False) as corral:
        await corral.execute("return 1", context=ANN)
        await corral.execute("return 1", context=ANN)
        await sandbox.settled()
        with caplog.at_level(logging.WARNING, "corral"):
            assert (await corral.execute("return 1", context=ANN)).value == 1
    assert sandbox.fork_failure is not None
    message = f"each execution starts its own engine, because this one does not fork: {sandbox.fork_failure}"
    assert message in [each.getMessage() for each in caplog.records]


async def test_an_engine_is_tested_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        async with Corral(sandbox=DenoSandbox(pool_size=0), check=False) as corral:
            assert (await corral.execute("return 1", context=ANN)).value == 1
        monkeypatch.setattr(fork_self_test, "self_test", pytest.fail)


def test_a_server_whose_end_is_not_seen_yet_is_one_that_has_ended() -> None:
    """The kernel closes the sockets of a process before it can be waited for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()

    def ask(message: bytes, descriptors: list[int]) -> None:
        socket.send_fds(ours, [message], descriptors, socket.MSG_NOSIGNAL)

    dying: Any = SimpleNamespace(tier="none", alive=True, process=SimpleNamespace(ask=ask))
    with ours:
        assert fork(dying) is None
