"""Workers that die, fall silent, drain, are full, are of another release, and lie."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import resource
import signal
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from corral import Corral, ExecutionContext, ExecutionResult, Limits, tool
from corral.cli.dispatch import run as cli
from corral.cli.options import mutual_tls
from corral.cluster import WorkerSandbox, provider
from corral.cluster.command import first_certificate
from corral.cluster.fleet import SILENT_SECONDS, Discover, Fleet, Node, Ticket
from corral.cluster.wire import (
    HEAD,
    MAX_RECORD,
    NONCE_BYTES,
    PROOF_BYTES,
    SECONDS,
    Kind,
    Peer,
    WireError,
    _Tls,  # pyright: ignore[reportPrivateUsage]
    engine_version,
    guest_digest,
    json_record,
    nonce,
    proof,
    record,
)
from corral.cluster.worker import Worker
from corral.errors import ConfigError, StartFailed
from corral.events import Event
from corral.guest import FrameKind, encode_frame
from corral.languages import LANGUAGES
from corral.ledger import MemoryLedger
from corral.sandboxes import CPythonSandbox
from corral.types import Owner, SandboxConfig
from tests.cluster.processes import SECRET, WorkerProcess, make_certificates
from tests.processes import descendants
from tests.until import until

pytestmark = pytest.mark.anyio
WAITING = "await tools.hold()\n1"
READY = encode_frame(FrameKind.READY, b"[1]", bytes(16))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


_BEATS_OFTEN = """
import sys
from corral.cluster import worker
from corral.cli import main
worker._ALIVE_BEATS = 1
sys.exit(main())
"""


@pytest.fixture(scope="module")
def start() -> Generator[Callable[[], WorkerProcess]]:
    """Returns workers that tests may end. Two of them start in advance, at the same time as `shared`."""
    begin = partial(WorkerProcess, "--warm", "python", "--probe-port", "0")
    workers = [begin(), begin()]
    spares = [*workers]

    def start() -> WorkerProcess:
        if not spares:
            workers.append(begin())
            return workers[-1]
        return spares.pop()

    yield start
    for worker in workers:
        worker.end()


@pytest.fixture(scope="module")
def shared() -> Generator[WorkerProcess]:
    """A worker with four places, which tests leave as it is."""
    worker = WorkerProcess("--warm", "python", "--probe-port", "0", capacity=4, python=("-c", _BEATS_OFTEN))
    yield worker
    worker.end()


class Gate:
    """A tool that holds its callers until it is opened."""

    def __init__(self) -> None:
        self.callers = 0
        self.opened = anyio.Event()

        @tool(read_only=True)
        async def hold() -> None:
            """Waits."""
            self.callers += 1
            await self.opened.wait()

        self.tool = hold


def corral_over(*addresses: str, gate: Gate | None = None, **settings: Any) -> Corral:
    options: dict[str, Any] = {"secret": SECRET, "containment": "landlock", **settings}
    provider = WorkerSandbox(addresses, **options)
    return Corral([gate.tool] if gate else [], sandbox=provider, check=False)


async def run(corral: Corral, source: str = "1", **settings: Any) -> ExecutionResult:
    return await corral.execute(source, language="python", **settings)


def code_of(result: ExecutionResult) -> str:
    return "" if result.error is None else result.error.code


@asynccontextmanager
async def held(corral: Corral, gate: Gate, count: int) -> AsyncGenerator[list[ExecutionResult]]:
    """Starts executions that wait for the tool. After the block, their results are in the list."""
    results: list[ExecutionResult] = []

    async def hold() -> None:
        results.append(await run(corral, WAITING))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(hold)
        await until(lambda: gate.callers == count)
        yield results


# --- workers that end


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGSTOP, marks=pytest.mark.matrix("a worker that says nothing is lost as a killed one is")),
    ],
)
async def test_a_lost_worker_ends_its_executions_with_one_line_in_the_log_and_durable_ones_go_on(
    start: Callable[..., WorkerProcess], shared: WorkerProcess, how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    first, gate, durable, count = start(), Gate(), list[ExecutionResult](), 0
    sandbox = WorkerSandbox([first.address, shared.address], secret=SECRET, containment="landlock")
    async with Corral([gate.tool], sandbox=sandbox, ledger=MemoryLedger(), resume_on_loss=True, check=False) as corral:

        async def go_on() -> None:
            durable.append(await run(corral, WAITING, durable=True))

        await run(corral, "7")
        await until(lambda: len(sandbox.nodes()) == 2)
        async with anyio.create_task_group() as tasks, held(corral, gate, 6) as results:
            for _ in range(3):  # `shared` has one place left
                tasks.start_soon(go_on)
            await until(lambda: gate.callers == 9)
            [lost] = [node for node in sandbox.nodes() if node.address == first.address]
            count = lost.mine
            first.signal(how)
            await until(lambda: any(code_of(each) == "sandbox_lost" for each in results))
            gate.opened.set()
        after = await run(corral, "7")
    codes = Counter(map(code_of, results))
    assert codes.keys() == {"", "sandbox_lost"}, "each worker had some of them"
    reason = "it hung up" if how == signal.SIGKILL else "no word for 1."
    expected = f"the sandbox is lost: worker {first.address}: {reason}"
    assert all(each.error.message.startswith(expected) for each in results if each.error)
    assert [each.value for each in durable] == [1, 1, 1]
    assert after.value == 7
    lines = [each for each in caplog.records if first.address in each.getMessage() and "is lost" in each.getMessage()]
    assert len(lines) == 1
    assert f"its {count} executions are lost" in lines[0].getMessage()
    assert count >= codes["sandbox_lost"] + 2
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.matrix("a worker that drains is not lost in the gate; here the host itself stands still")
async def test_a_host_that_stood_still_loses_no_worker(shared: WorkerProcess) -> None:
    gate = Gate()
    async with corral_over(shared.address, gate=gate) as corral, held(corral, gate, 2) as results:
        time.sleep(1.5 * SILENT_SECONDS)  # noqa: ASYNC251  # the whole process stands still
        for _ in range(20):  # turns of the loop, in which the timers that are late run
            await anyio.lowlevel.checkpoint()
        gate.opened.set()
    assert [each.value for each in results] == [1, 1]


async def test_a_drained_worker_finishes_its_programs_and_gets_no_more(
    start: Callable[..., WorkerProcess], shared: WorkerProcess
) -> None:
    first, gate = start(), Gate()
    async with corral_over(first.address, shared.address, gate=gate) as corral:
        async with held(corral, gate, 3) as results:
            first.signal(signal.SIGTERM)
            await until(lambda: probe(first.probes) == (503, "draining\n"))
            new = [await run(corral, "2") for _ in range(6)]
            assert first.process.poll() is None
            gate.opened.set()
        await until(lambda: first.process.poll() is not None)
    assert [each.value for each in (*results, *new)] == [1] * 3 + [2] * 6
    assert first.process.returncode == 0


def probe(url: str) -> tuple[int, str]:
    try:
        with closing(urllib.request.urlopen(url, timeout=20)) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, error.read().decode()


async def test_probes_show_health_and_metrics(shared: WorkerProcess) -> None:
    worker, gate = shared, Gate()
    async with corral_over(worker.address, gate=gate) as corral, held(corral, gate, 3):
        status, text = await anyio.to_thread.run_sync(probe, worker.probes.replace("/health", "/metrics"))
        assert status == 200
        assert {"corral_worker_live 3", "corral_worker_capacity 4", "corral_worker_hosts 1"} <= set(text.splitlines())
        assert (await anyio.to_thread.run_sync(probe, worker.probes + "x"))[0] == 404
        gate.opened.set()


@pytest.mark.matrix("the gate ends guests of silent and lying workers; here one that reads no replies")
async def test_a_guest_that_reads_nothing_ends_with_its_execution(
    shared: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    @tool(read_only=True)
    async def large() -> str:
        """Returns more than a pipe holds."""
        nonlocal calls
        calls += 1
        return "x" * 200_000

    monkeypatch.setattr(provider, "_CLOSE_SECONDS", 0.1)  # CLOSE waits behind the replies, so the host hangs up
    source = "import asyncio, time\ncalls = [asyncio.create_task(tools.large()) for _ in range(60)]\n"
    source += "await calls[0]\ntime.sleep(1000)"
    sandbox = WorkerSandbox([shared.address], secret=SECRET, containment="landlock")
    metrics = shared.probes.replace("/health", "/metrics")
    async with Corral([large], sandbox=sandbox, check=False) as corral:
        async with corral.start(source, language="python") as program:
            await until(lambda: calls > 20)  # more than the worker keeps for a guest
            await until(lambda: "corral_worker_live 1" in probe(metrics)[1].split("\n"))
            program.cancel()
        await until(lambda: "corral_worker_live 0" in probe(metrics)[1].split("\n"))


# --- places


async def test_executions_wait_while_the_workers_are_full_and_all_are_served(shared: WorkerProcess) -> None:
    async with corral_over(shared.address) as corral:
        results: list[object] = []

        async def answer(number: int) -> None:
            results.append((await run(corral, f"{number}")).value)

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(answer, number)
    assert sorted(map(str, results)) == sorted(map(str, range(40)))


async def test_workers_that_stay_full_are_a_failed_start(shared: WorkerProcess) -> None:
    gate = Gate()
    async with corral_over(shared.address, gate=gate, wait_seconds=0.1) as corral, held(corral, gate, 4):
        with pytest.raises(StartFailed, match=r"the only worker was full for 0\.1 s; add workers"):
            await run(corral)
        gate.opened.set()


def ticket(user: str | None = None, organization: str | None = None) -> Ticket:
    owner = None if user is None else Owner(organization, user)
    return Ticket(SandboxConfig(language="typescript", owner=owner), "landlock")


def fleet_of(*capacities: int, discover: Discover | None = None) -> Fleet:
    fleet = Fleet((), discover, secret=SECRET.encode(), tls=None, server_name=None)
    for number, capacity in enumerate(capacities):
        node = fleet.nodes[f"w{number}:1"] = Node(f"w{number}:1")
        node.capacity = capacity
        node.guests["typescript"] = guest_digest("typescript"), "namespaces", "deno 1"
    return fleet


async def test_two_hundred_wait_in_order_and_tenants_take_turns() -> None:
    fleet = fleet_of(1)
    (node,) = fleet.nodes.values()
    await fleet.place(ticket(), 1)
    served: list[str] = []

    async def wait(name: str, organization: str) -> None:
        assert await fleet.place(ticket(name, organization), 60) is node
        served.append(name)
        fleet.release(node)

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(wait, f"{number}", "large")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(wait, "small", "small")
        await anyio.lowlevel.checkpoint()
        fleet.release(node)
    assert served.index("small") <= 2, "one tenant's queue does not delay another's"
    assert [each for each in served if each != "small"] == [f"{number}" for number in range(200)]
    assert node.mine == 0


async def test_who_waits_for_one_language_does_not_delay_another() -> None:
    fleet = fleet_of(1, 1)
    python, typescript = fleet.nodes.values()
    python.guests = {"python": (guest_digest("python"), "namespaces", "cpython 3")}
    waiting = Ticket(SandboxConfig(language="python"), "landlock")
    assert await fleet.place(Ticket(SandboxConfig(language="python"), "landlock"), 0) is python
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.place, waiting, 60)
        await anyio.lowlevel.checkpoint()
        assert await fleet.place(ticket(), 0) is typescript
        tasks.start_soon(fleet.place, ticket(), 60)
        await anyio.lowlevel.checkpoint()
        fleet.release(typescript)
        assert (typescript.mine, waiting.place.done()) == (1, False), "the place went to the one that can use it"
        fleet.release(python)


async def test_a_user_returns_to_the_same_worker_until_it_has_too_much() -> None:
    fleet, other = fleet_of(50, 50, 50), fleet_of(50, 50, 50)
    first = [(await fleet.place(ticket(f"u{number}"), 1)).address for number in range(12)]
    assert len(set(first)) == 3
    assert first[:3] == [(await other.place(ticket(f"u{number}"), 1)).address for number in range(3)]
    many = Counter([(await fleet.place(ticket("u0"), 1)).address for _ in range(60)])
    assert max(many.values()) <= 0.5 * 60
    assert max(node.load for node in fleet.nodes.values()) <= 1.25 * 25


async def test_durable_programs_run_only_on_workers_with_the_engine_of_the_host() -> None:
    fleet = fleet_of(1, 1)
    config = SandboxConfig(language="typescript", durable=True)
    with pytest.raises(StartFailed, match="worker w0:1 has deno 1, and durable executions of this host need deno 2"):
        await fleet.place(Ticket(config, "landlock"), 0)
    other = fleet.nodes["w1:1"]
    other.guests["typescript"] = (
        *other.guests["typescript"][:2],
        WorkerSandbox(["w:1"], secret=SECRET).engine_version(config),
    )
    assert await fleet.place(Ticket(config, "landlock"), 0) is other


async def test_a_start_that_is_given_up_leaves_no_place_and_no_ticket() -> None:
    fleet = fleet_of(1)
    (node,) = fleet.nodes.values()
    await fleet.place(ticket(), 1)
    with anyio.move_on_after(0):
        await fleet.place(ticket("ann"), 10)
    fleet.release(node)
    assert node.mine == 0
    assert await fleet.place(ticket("ann"), 0) is node


async def test_a_worker_that_discovery_names_again_is_used_again() -> None:
    named = ["w0:1"]

    async def addresses() -> list[str]:
        return named

    fleet = fleet_of(1, discover=addresses)
    (node,) = fleet.nodes.values()
    named.clear()
    await fleet.refresh()
    with pytest.raises(StartFailed):
        await fleet.place(ticket(), 0)
    named.append("w0:1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.place, ticket(), 60)
        await anyio.lowlevel.checkpoint()
        await fleet.refresh()
    assert node.mine == 1


# --- workers and hosts that do not fit


async def test_a_worker_of_another_release_is_left_out(shared: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Liar, "guests", {"python": ["0" * 32, "namespaces", "cpython 3"]})
    server = await asyncio.get_running_loop().create_server(partial(Liar, says()), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        async with corral_over(f"{host}:{port}", shared.address) as corral:
            assert [(await run(corral)).value for _ in range(4)] == [1] * 4
        with pytest.raises(StartFailed) as raised:
            async with corral_over(f"{host}:{port}") as corral:
                await run(corral)
    finally:
        server.close()
    assert f"worker {host}:{port} has corral 9 with another guest; update it or this host" in str(raised.value)


async def test_a_host_with_another_secret_is_told_so(shared: WorkerProcess) -> None:
    worker = shared
    with pytest.raises(StartFailed, match="its secret differs from this host's"):
        async with corral_over(worker.address, secret="x" * 32):
            pass


async def test_what_workers_do_not_have_is_refused_with_the_reason(shared: WorkerProcess) -> None:
    worker = shared
    async with corral_over(worker.address) as corral:
        with pytest.raises(StartFailed, match="memory_mb=65 is above the worker's --memory-mb 64"):
            await run(corral, limits=Limits(memory_mb=65))
        with pytest.raises(StartFailed, match=r"does not run typescript"):
            await corral.execute("return 1")
        with pytest.raises(StartFailed, match="session files run on the host's own machine"):
            async with corral.session():
                pass


async def test_executions_with_files_run_on_the_hosts_own_machine(shared: WorkerProcess) -> None:
    worker = shared
    provider = WorkerSandbox(
        [worker.address], secret=SECRET, containment="landlock", local={"python": CPythonSandbox(pool_size=0)}
    )
    async with (
        Corral(sandbox={"typescript": provider, "python": provider}, check=False) as corral,
        corral.session(languages=["python"]) as session,
    ):
        await session.execute("open('/workspace/a', 'w').write('kept')", language="python")
        assert (await session.execute("open('/workspace/a').read()", language="python")).value == "kept"
        assert (await run(corral)).value == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"workers": ["nowhere"]}, "'nowhere' is not the address of a worker"),
        ({"workers": []}, "has no workers"),
        ({"workers": ["a:1"], "secret": "short"}, "the workers' secret has 5 bytes"),
        ({"discover": "consul:x:1"}, "neither a function nor dns:name:port"),
        ({"workers": ["a:1"], "wait_seconds": -1}, "is not a number of seconds"),
    ],
)
async def test_wrong_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    make: Any = WorkerSandbox
    with pytest.raises(ConfigError, match=reason):
        make(**{"secret": SECRET, **settings})


@pytest.mark.parametrize("option", ["--port", "--probe-port"])
def test_a_port_that_there_is_not_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_WORKER_SECRET", SECRET)
    assert cli(["worker", option, "99999"]) == 2
    assert f"{option} 99999 is not between 0 and 65535" in capfd.readouterr().err


async def test_workers_are_discovered_and_leave(shared: WorkerProcess) -> None:
    worker = shared

    async def addresses() -> list[str]:
        return [worker.address]

    port = worker.address.partition(":")[2]
    for discover in (addresses, f"dns:localhost:{port}"):
        provider = WorkerSandbox(discover=discover, secret=SECRET, containment="landlock")
        async with Corral(sandbox=provider, check=False) as corral:
            assert (await run(corral)).value == 1


@pytest.mark.parametrize("secret", [SECRET, "x" * 32])
def test_the_doctor_examines_a_worker(
    shared: WorkerProcess, secret: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_WORKER_SECRET", secret)
    code = cli(["doctor", "--worker", shared.address])
    text = capfd.readouterr().out
    if secret == SECRET:
        assert "the same guests" in text
        assert "a program runs in tier" in text
        assert "not served" in text
        assert code == 0
    else:
        assert "its secret differs from this host's" in text
        assert code == 1


async def test_a_worker_that_fails_to_serve_a_guest_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(secret=SECRET.encode(), capacity=1)
    state = {"others": 0, "capacity": 1, "draining": False, "release": "9"}
    guests = {"python": [guest_digest("python"), "namespaces", "cpython 3"]}

    def with_guests(_: bytes) -> bytes:
        return json_record(Kind.STATE, {**state, "guests": guests})

    async def fail(*_: object) -> None:
        raise OSError("its disk is full")

    monkeypatch.setattr(worker, "state", with_guests)
    monkeypatch.setattr(worker, "open", fail)
    address = f"127.0.0.1:{await worker.listen('127.0.0.1', 0)}"
    try:
        async with corral_over(address, wait_seconds=0.1) as corral:
            with pytest.raises(StartFailed, match=f"worker {address}: it hung up"):
                await run(corral)
    finally:
        await worker.aclose()


# --- a worker that lies


class Liar(Peer):
    """Speaks the protocol up to OPEN, and then what the test says. `state` answers as control."""

    guests: ClassVar = {language: [guest_digest(language), "namespaces", "1"] for language in LANGUAGES}

    def __init__(self, lie: Callable[[Liar], None]) -> None:
        super().__init__()
        self.lie = lie
        self.ended = False
        self.take = self.hello

    def hello(self, kind: int, payload: bytes) -> None:
        self.theirs, self.ours = payload[1:], nonce()
        self.write(record(Kind.PROOF, self.ours + proof(SECRET.encode(), b"worker", self.ours, self.theirs, None)))
        self.take = self.join

    def join(self, kind: int, payload: bytes) -> None:
        self.bound = MAX_RECORD
        self.take = self.asked
        if payload[PROOF_BYTES + NONCE_BYTES :] == b"control":
            state = {"others": 0, "capacity": 8, "draining": False, "release": "9", "guests": self.guests}
            self.write(json_record(Kind.STATE, state))
            asyncio.get_running_loop().create_task(self.beat(json_record(Kind.STATE, state)))

    async def beat(self, state: bytes) -> None:
        while not self.over:
            await anyio.sleep(0.2)
            self.write(state)

    def asked(self, kind: int, payload: bytes) -> None:
        if kind == Kind.OPEN:
            self.write(json_record(Kind.OPENED, {"tier": "namespaces"}) + record(Kind.OUTPUT, READY))
        elif kind == Kind.DATA:
            self.take = lambda _kind, _payload: None
            self.start = payload
            self.lie(self)


def says(*records_: bytes) -> Callable[[Liar], None]:
    def lie(liar: Liar) -> None:
        for each in records_:
            liar.write(each)

    return lie


def gigabyte(liar: Liar) -> None:
    async def pour() -> None:
        piece = record(Kind.OUTPUT, bytes(MAX_RECORD))
        for _ in range(1024):
            liar.write(piece)
            await liar.drained()
            if liar.over:
                return

    liar.pouring = asyncio.get_running_loop().create_task(pour())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def clock(*seconds: float) -> Callable[[Liar], None]:
    return says(*(record(Kind.CPU, SECONDS.pack(each)) for each in seconds))


def frame(kind: FrameKind, payload: bytes) -> Callable[[Liar], None]:
    """A frame with the nonce of this execution, which the worker has read in START."""

    def lie(liar: Liar) -> None:
        liar.write(record(Kind.OUTPUT, encode_frame(kind, payload, liar.start[6:22])))

    return lie


END = json_record(Kind.END, {"status": 0, "oom": False, "stderr": ""})
LIES: dict[str, tuple[Callable[[Liar], None], set[str]]] = {
    "a length above the maximum": (says(HEAD.pack(MAX_RECORD + 1, Kind.OUTPUT)), {"sandbox_lost"}),
    "a length of four gigabytes": (says(HEAD.pack((1 << 32) - 1, Kind.OUTPUT)), {"sandbox_lost"}),
    "an unknown kind": (says(record(99)), {"sandbox_lost"}),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "OPENED twice": (says(json_record(Kind.OPENED, {"tier": "none"})), {"sandbox_lost"}),
    "CLOSED without CLOSE": (says(record(Kind.CLOSED)), {"sandbox_lost"}),
    "STATE on a guest's connection": (says(json_record(Kind.STATE, {})), {"sandbox_lost"}),
    "END twice": (says(END, END), {"sandbox_lost"}),
    "output after END": (says(END, record(Kind.OUTPUT, b"x")), {"sandbox_lost"}),
    "a malformed END": (says(json_record(Kind.END, [1])), {"sandbox_lost"}),
    "an END that is no JSON": (says(record(Kind.END, b"\xff")), {"sandbox_lost"}),
    "a clock that runs backwards": (clock(2.0, 1.0), {"sandbox_lost"}),
    "a clock that is no number": (clock(float("nan")), {"sandbox_lost"}),
    "a clock that ticks without end": (clock(*(n / 1e6 for n in range(1, 200))), {"sandbox_lost"}),
    "READY for ever": (says(*[record(Kind.OUTPUT, READY)] * 1000), {"malformed_message"}),
    "frames of another execution": (
        says(record(Kind.OUTPUT, encode_frame(FrameKind.EXIT, b'["value",1,[],0,[]]', b"x" * 16))),
        {"malformed_message"},
    ),
    "a gigabyte of output": (gigabyte, {"malformed_message", "message_too_large"}),
    "a call that is not granted": (frame(FrameKind.CALL, b'[1,"secret",{}]'), set()),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_worker_that_lies_ends_its_own_execution_only(name: str, caplog: pytest.LogCaptureFixture) -> None:
    lie, codes = LIES[name]
    server = await asyncio.get_running_loop().create_server(partial(Liar, lie), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        async with corral_over(f"{host}:{port}") as corral:
            result = await run(corral, limits=Limits(wall_seconds=30 if codes else 0.3))
            if codes:
                assert code_of(result) in codes, result
            else:  # it is answered like any program's call of a tool that does not exist
                assert [each.error is None for each in result.tool_calls] == [False]
            assert result.value is None
    finally:
        server.close()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown <= 4, f"{name} took {grown} MB"
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_durable_program_does_not_return_to_the_worker_that_has_hung_up(
    shared: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = {"python": [guest_digest("python"), "namespaces", engine_version("python")]}
    monkeypatch.setattr(Liar, "guests", guests)
    server = await asyncio.get_running_loop().create_server(partial(Liar, Peer.abort), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    sandbox = WorkerSandbox([f"{host}:{port}", shared.address], secret=SECRET, containment="landlock")
    try:
        async with Corral(sandbox=sandbox, ledger=MemoryLedger(), resume_on_loss=True, check=False) as corral:
            (fleet,) = sandbox._fleets.values()  # pyright: ignore[reportPrivateUsage]
            contexts = (ExecutionContext(user_id=str(number)) for number in itertools.count())
            firsts = ((each, next(fleet._ranked(each.owner)).address) for each in contexts)  # pyright: ignore[reportPrivateUsage]
            context = next(each for each, address in firsts if address == f"{host}:{port}")
            events = list[Event]()
            assert (await run(corral, context=context, durable=True, on_event=events.append)).value == 1
            assert [each.type for each in events].count("execution_resumed") == 1
    finally:
        server.close()


async def test_a_closed_channel_writes_nothing_to_the_next_guest_of_its_connection() -> None:
    kinds: list[int] = []

    class Recorder(Liar):
        def asked(self, kind: int, payload: bytes) -> None:
            kinds.append(kind)
            if kind == Kind.OPEN:
                self.write(json_record(Kind.OPENED, {"tier": "namespaces"}))
            elif kind == Kind.CLOSE:
                self.write(record(Kind.CLOSED))

    server = await asyncio.get_running_loop().create_server(partial(Recorder, says()), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    sandbox = WorkerSandbox([f"{host}:{port}"], secret=SECRET)
    config = SandboxConfig(language="python")
    try:
        first = await sandbox.connect(config, sandbox.guest_files(config))
        await first.aclose()
        (node,) = sandbox.nodes()
        await until(lambda: node.idle)
        second = await sandbox.connect(config, sandbox.guest_files(config))
        first.send_now(b"1")
        await first.send(b"2")
        first.limit_cpu(3)
        await second.aclose()
        await until(lambda: node.idle)
    finally:
        await sandbox.aclose()
        server.close()
    assert kinds == [Kind.OPEN, Kind.CLOSE, Kind.OPEN, Kind.CLOSE]


async def test_a_kept_connection_that_was_lost_does_not_exclude_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    kinds: list[int] = []

    class Forgetful(Liar):
        def asked(self, kind: int, payload: bytes) -> None:
            kinds.append(kind)
            if kind == Kind.CLOSE:
                self.ended = True
                self.write(record(Kind.CLOSED))
            elif self.ended:
                self.abort()
            else:
                self.write(json_record(Kind.OPENED, {"tier": "namespaces"}))

    server = await asyncio.get_running_loop().create_server(partial(Forgetful, says()), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    sandbox = WorkerSandbox([f"{host}:{port}"], secret=SECRET, wait_seconds=0)
    config = SandboxConfig(language="python")
    try:
        channels = [await sandbox.connect(config, sandbox.guest_files(config)) for _ in range(3)]
        for each in channels:
            await each.aclose()
        (node,) = sandbox.nodes()
        await until(lambda: len(node.idle) == 3)
        await sandbox.connect(config, sandbox.guest_files(config))
        assert (node.mine, node.idle, node.hung_up) == (1, [], 0), "the others may be lost as well"
    finally:
        await sandbox.aclose()
        server.close()
    assert kinds == [Kind.OPEN] * 3 + [Kind.CLOSE] * 3 + [Kind.OPEN] * 2
    assert not caplog.records


class NoState(Liar):
    """Answers as control with something else than its state."""

    def join(self, kind: int, payload: bytes) -> None:
        self.write(record(Kind.STATE, b"[" * 4000))


async def test_a_worker_that_cannot_be_used_does_not_keep_the_host_from_others(shared: WorkerProcess) -> None:
    server = await asyncio.get_running_loop().create_server(partial(NoState, says()), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        for address in (f"{host}:{port}", f"{'x' * 64}.example:1"):
            async with corral_over(address, shared.address) as corral:
                assert (await run(corral)).value == 1
            with pytest.raises(StartFailed, match="no worker can be used"):
                async with corral_over(address):
                    pass
    finally:
        server.close()


async def test_a_stranger_gets_nothing_before_it_proves_the_secret(shared: WorkerProcess) -> None:
    worker = shared
    host, _, port = worker.address.partition(":")
    for message in (
        b"GET / HTTP/1.1\r\n\r\n",
        HEAD.pack(1 << 31, Kind.OPEN),
        record(Kind.OPEN, b"{}"),
        record(Kind.HELLO, bytes([9]) + nonce()),
        record(Kind.HELLO, bytes([1]) + nonce()) + record(Kind.JOIN, bytes(PROOF_BYTES + NONCE_BYTES) + b"guest"),
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(message)
        answer = await reader.read()
        assert len(answer) in (0, HEAD.size + NONCE_BYTES + PROOF_BYTES)
        assert not answer or struct.unpack_from(">IB", answer)[1] == Kind.PROOF
        writer.close()
    async with corral_over(worker.address) as corral:
        assert (await run(corral)).value == 1


async def test_a_host_has_one_attempt_to_prove_that_it_knows_the_secret(shared: WorkerProcess) -> None:
    host, _, port = shared.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    ours = nonce()
    writer.write(record(Kind.HELLO, bytes([1]) + ours))
    answer = await reader.readexactly(HEAD.size + NONCE_BYTES + PROOF_BYTES)
    theirs = answer[HEAD.size : HEAD.size + NONCE_BYTES]
    right = proof(SECRET.encode(), b"host", ours, theirs, None)
    joins = [record(Kind.JOIN, each + ours + b"control") for each in (bytes(PROOF_BYTES), right)]
    writer.write(b"".join(joins))
    assert await reader.read() == b"", "no state"
    writer.close()


async def test_certificates_have_to_fit(tmp_path: Path) -> None:
    contexts: list[ssl.SSLContext] = []
    for name in ("ours", "other"):
        (tmp_path / name).mkdir()
        contexts.append(make_certificates(tmp_path / name)[1])
    files = tmp_path / "ours"
    arguments = argparse.Namespace(cert=files / "worker.pem", key=files / "worker.key", ca=files / "ca.pem")
    nobody = ssl.create_default_context(cafile=arguments.ca)
    shown = ssl.PEM_cert_to_DER_cert(first_certificate(arguments.cert))
    worker = Worker(secret=SECRET.encode(), capacity=1, tls=mutual_tls(arguments, is_server=True), certificate=shown)
    address = f"127.0.0.1:{await worker.listen('127.0.0.1', 0)}"
    try:
        for tls, name, reason in (
            (contexts[1], "worker", "TLS with it fails: .*certificate verify failed"),
            (contexts[0], "else", "TLS with it fails: .*Hostname mismatch"),
            (nobody, "worker", "TLS with it fails: .*certificate required"),
            (None, None, "it hung up: its version or TLS may differ"),
        ):
            with pytest.raises(StartFailed, match=reason):
                async with corral_over(address, tls=tls, server_name=name):
                    pass
        async with corral_over(address, tls=contexts[0], server_name="worker"):
            assert len(worker.controls) == 1
    finally:
        await worker.aclose()


def tls_pair(folder: Path) -> tuple[_Tls, _Tls]:
    """Returns both sides of a connection after the handshake: of the host and of the worker. The file `keys` has the
    worker's secrets."""
    _, context = make_certificates(folder)
    files = argparse.Namespace(cert=folder / "worker.pem", key=folder / "worker.key", ca=folder / "ca.pem")
    server = mutual_tls(files, is_server=True)
    assert server is not None
    server.keylog_filename, server.num_tickets = str(folder / "keys"), 0
    host, worker = _Tls(context, "worker"), _Tls(server, None)
    host.advance()
    while not (host.is_established and worker.is_established):
        worker.advance(host.outgoing())
        host.advance(worker.outgoing())
    return host, worker


def key_updates(secret: bytes, count: int) -> list[bytes]:
    """Returns records of TLS_AES_256_GCM_SHA384 that each ask for new keys (RFC 8446, sections 4.6.3 and 7)."""

    def expand(label: bytes, length: int) -> bytes:
        info = struct.pack(">HB", length, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(hashes.SHA384(), length, info).derive(secret)

    updates: list[bytes] = []
    for _ in range(count):
        head = b"\x17\x03\x03" + struct.pack(">H", 22)
        body = AESGCM(expand(b"key", 32)).encrypt(expand(b"iv", 12), b"\x18\0\0\x01\x01\x16", head)
        updates.append(head + body)
        secret = expand(b"traffic upd", 48)
    return updates


def test_key_updates_are_bounded_because_each_costs_time_and_an_answer(tmp_path: Path) -> None:
    host, _ = tls_pair(tmp_path)
    lines = (tmp_path / "keys").read_text(encoding="ascii").splitlines()
    secrets = dict(line.split()[::2] for line in lines if not line.startswith("#"))
    updates = key_updates(bytes.fromhex(secrets["SERVER_TRAFFIC_SECRET_0"]), 2500)
    assert host.advance(b"".join(updates[:1000])) == b""
    assert len(host.outgoing()) > 20_000
    with pytest.raises(WireError, match="it sends TLS records without content"):
        host.advance(b"".join(updates[1000:]))


def test_many_records_with_content_are_none_without(tmp_path: Path) -> None:
    host, worker = tls_pair(tmp_path)
    for length, count in ((1, 10_000), (100_000, 10)):
        for _ in range(count):
            worker.encrypt(b"x" * length)
        data = worker.outgoing()
        received = [host.advance(data[at : at + 7_001]) for at in range(0, len(data), 7_001)]
        assert len(b"".join(received)) == length * count


def test_bytes_after_the_end_of_tls_are_an_error(tmp_path: Path) -> None:
    host, worker = tls_pair(tmp_path)
    worker.encrypt(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        worker.object.unwrap()
    with pytest.raises(WireError, match="it ended TLS"):
        host.advance(worker.outgoing() + b"more")


async def test_a_burst_of_starts_does_not_look_like_an_attack_of_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.cluster.worker._MAX_UNPROVED", 32)
    worker = Worker(secret=SECRET.encode(), capacity=1)
    address = f"127.0.0.1:{await worker.listen('127.0.0.1', 0)}"
    fleet = Fleet([address], None, secret=SECRET.encode(), tls=None, server_name=None)
    node = Node(address)
    peers: list[Peer] = []

    async def connect() -> None:
        peers.append(await fleet.connect_guest(node))

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(connect)
        await until(lambda: worker.unproved == 0)
        assert len(worker.connections) == len(peers) == 200
    finally:
        for peer in peers:
            peer.abort()
        await worker.aclose()


async def test_both_sides_find_out_that_the_others_machine_is_gone() -> None:
    worker = Worker(secret=SECRET.encode(), capacity=1)
    address = f"127.0.0.1:{await worker.listen('127.0.0.1', 0)}"
    try:
        fleet = Fleet([address], None, secret=SECRET.encode(), tls=None, server_name=None)
        peers = [await fleet.connect(address, b"guest"), *worker.connections]
        for peer in peers:
            assert peer.transport is not None
            connection = peer.transport.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
        assert len(peers) == 2
        peers[0].abort()
    finally:
        await worker.aclose()


# --- everything at once


@pytest.mark.matrix("deaths, drains and places are each tested in the gate; here all at once, in a thousand executions")
async def test_a_thousand_executions_survive_nine_deaths_and_five_drains(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(4)  # noqa: S311
    made: Counter[tuple[int, int]] = Counter()

    @tool
    async def change(id: int, n: int) -> int:
        """Changes something."""
        made[id, n] += 1
        await anyio.sleep(0.05)
        return n

    begin = partial(WorkerProcess, "--warm", "python", "--probe-port", "0")
    workers, spares = [begin() for _ in range(3)], [begin()]
    gone: dict[str, tuple[WorkerProcess, signal.Signals]] = {}
    theirs: set[tuple[int, str]] = set()
    """Processes of the workers that ended, by number and time of their start."""
    most_guests, in_flight = 0, 0
    errors: list[str] = []
    numbers = iter(range(1000))
    ended, replacing = 0, anyio.Lock()

    async def addresses() -> list[str]:
        return [each.address for each in workers]

    async def replace(number: signal.Signals) -> None:
        nonlocal most_guests, in_flight
        async with replacing:
            replacement = spares.pop()
            spares.append(begin())
            await anyio.to_thread.run_sync(lambda: replacement.address)
            position = chance.randrange(3)
            old, workers[position] = workers[position], replacement
            await fleet.refresh()
            most_guests = max(most_guests, len(guests_of(old)))
            theirs.update((pid, started_at(pid)) for pid in descendants(old.process.pid))
            if number == signal.SIGKILL:
                in_flight += fleet.nodes[old.address].mine
            gone[old.address] = old, number
            old.signal(number)

    async def change_all() -> None:
        nonlocal ended
        for number in numbers:
            source = f"for n in range(4):\n    await tools.change(id={number}, n=n)\n{number}"
            result = await run(corral, source, context=ExecutionContext(user_id=f"u{number % 5}"))
            ended += 1
            if result.error is None:
                assert result.value == number
                assert [made[number, n] for n in range(4)] == [1] * 4
            else:
                assert result.error.code == "sandbox_lost", result.error
                errors.append(result.error.message)
            if ended % 100 == 0 and ended < 1000:
                await replace(signal.SIGKILL)
            elif ended % 200 == 50:
                await replace(signal.SIGTERM)

    try:
        provider = WorkerSandbox(discover=addresses, secret=SECRET, containment="landlock")
        async with Corral([change], sandbox=provider, check=False) as corral:
            (fleet,) = provider._fleets.values()  # pyright: ignore[reportPrivateUsage]
            async with anyio.create_task_group() as runs:
                for _ in range(16):
                    runs.start_soon(change_all)
            assert ended == 1000
            assert Counter(number for _, number in gone.values()) == {signal.SIGKILL: 9, signal.SIGTERM: 5}
            assert max(made.values()) == 1, "nothing was done twice"
            lost_by = {address for address in gone if any(address in each for each in errors)}
            assert all(gone[address][1] == signal.SIGKILL for address in lost_by), "drained ones finish their programs"
            assert 0 < len(errors) <= in_flight, "only what ran on a killed worker is lost"
            await until(lambda: [node.mine for node in fleet.nodes.values()] == [0] * 3)
            assert most_guests > 0
            for each in workers:
                metrics = each.probes.replace("/health", "/metrics")
                await until(lambda metrics=metrics: "corral_worker_live 0" in probe(metrics)[1].splitlines())
                await until(lambda each=each: all(count == 1 for count in Counter(guests_of(each).values()).values()))
        await until(lambda: all(old.process.poll() is not None for old, _ in gone.values()))
        codes = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 0}
        assert all(old.process.returncode == codes[number] for old, number in gone.values())
        assert len(theirs) > len(gone)
        await until(lambda: not [pid for pid, time in theirs if started_at(pid) == time])
    finally:
        for each in (*workers, *spares, *(old for old, _ in gone.values())):
            each.end()


def guests_of(worker: WorkerProcess) -> dict[int, int]:
    """Returns the processes of its programs, and their servers: forks, which have the command of their parent. A server
    keeps one ready for the next program of its user."""

    def command(pid: int) -> tuple[str, int]:
        try:
            text = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return "", 0
        return text, int(fields[1])

    commands = {pid: command(pid) for pid in descendants(worker.process.pid)}
    return {
        pid: parent
        for pid, (text, parent) in commands.items()
        if "guest.py" in text and commands.get(parent, ("", 0))[0] == text
    }


def started_at(pid: int) -> str:
    """Returns when a process was started (field 22 of /proc/PID/stat); "" once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
