"""Sandboxes behind a byte channel: the provider of examples/sandbox_provider, and channels that are slow, broken or lie."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import Containment, Corral, ExecutionResult, Limits, tool
from corral.containment import ContainmentKind
from corral.errors import ConfigError, LimitNotEnforceable, StartFailed
from corral.guest import FrameKind, encode_frame
from corral.plugins import load_by_name
from corral.sandboxes import ChannelLost, CPythonSandbox, FramedProvider, GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed import link
from corral.types import Language, LimitName, SandboxConfig
from tests.conftest import TOOLS

EXAMPLE = Path(__file__).parents[2] / "examples" / "sandbox_provider"
UNENFORCED: tuple[LimitName, ...] = ("cpu_seconds", "memory_mb")
READY = b"\x00\x00\x00\x15\x10\x00" + bytes(16) + b"[1]"

pytestmark = [pytest.mark.anyio]
both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
other_loop_too = pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.matrix("real guests on the other loop"))]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Redirects temporary files here; nothing may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.glob("plain-*"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as an installed package: its module, and the metadata that pip writes."""
    metadata = tmp_path / "site" / "plain_sandbox-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-sandbox\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[corral.sandboxes]\nplain = plain_sandbox:PlainSandbox\n")
    monkeypatch.setattr(sys, "path", [str(metadata.parent), str(EXAMPLE), *sys.path])


@pytest.fixture
def open_corral(installed: None) -> Callable[..., Corral]:
    del installed
    return partial(Corral, TOOLS, sandbox="plain", containment=Containment.development(), check=False)


@other_loop_too
@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "console.log('hello'); return (await tools.add({ a: 1, b: 2 })) + 0.5"),
        ("python", "print('hello')\n(await tools.add(a=1, b=2)) + 0.5"),
    ],
)
async def test_a_provider_by_name_runs_programs(
    open_corral: Callable[..., Corral], language: Language, program: str
) -> None:
    async with open_corral() as corral:
        result = await corral.execute(program, language=language)
    assert (result.value, [entry.text for entry in result.logs]) == (3.5, ["hello"])
    assert (result.containment, [call.name for call in result.tool_calls]) == ("plain", ["add"])
    assert result.containment is not None
    assert result.containment.strength == "process"


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "const a = 1;\nconsole.log(new Error('here').stack);\nthrow new RangeError('no')"),
        ("python", "import traceback\nprint(''.join(traceback.format_stack()))\nraise OverflowError('no')"),
    ],
)
async def test_errors_and_printed_stacks_are_at_the_models_own_lines(
    open_corral: Callable[..., Corral], language: Language, program: str
) -> None:
    async with open_corral() as corral:
        result = await corral.execute(program, language=language)
    assert result.error is not None
    assert (result.error.name, result.error.line) in {("RangeError", 3), ("OverflowError", 3)}
    printed = "\n".join(entry.text for entry in result.logs)
    assert "program.ts:2:" in printed or 'File "program.py", line 2' in printed
    assert "corral:" not in printed


async def test_many_calls_at_once_and_large_values_come_through(open_corral: Callable[..., Corral]) -> None:
    program = """
    const text = "x".repeat(300_000);
    const replies = await Promise.all(Array.from({ length: 40 }, (_, n) => tools.echo({ n, text })));
    return [replies.length, replies.every((each, n) => each.n === n && each.text === text)];
    """
    async with open_corral() as corral:
        result = await corral.execute(program)
    assert result.value == [40, True], result.error


async def test_the_hosts_limits_hold_without_the_provider(open_corral: Callable[..., Corral]) -> None:
    short = Limits(wall_seconds=0.3)
    async with open_corral(limits=Limits(wall_seconds=20, calls=1, log_bytes=10, value_bytes=100)) as corral:
        codes = [
            (result.error and result.error.code, bool(result.truncated))
            for result in [
                await corral.execute("for (;;);", limits=short),
                await corral.execute("while True: pass", language="python", limits=short),
                await corral.execute("await tools.nothing({}); await tools.nothing({})"),
                await corral.execute("return 'x'.repeat(1000)"),
                await corral.execute("console.log('x'.repeat(1000))"),
            ]
        ]
    assert codes == [
        ("program_timeout", False),
        ("program_timeout", False),
        ("call_budget_exceeded", False),
        ("output_exceeded", False),
        (None, True),
    ]


@other_loop_too
async def test_a_guest_that_is_killed_is_lost_and_leaves_nothing(open_corral: Callable[..., Corral]) -> None:
    program = "import os, signal\nawait tools.nothing()\nos.kill(os.getpid(), signal.SIGKILL)"
    async with open_corral() as corral:
        result = await corral.execute(program, language="python")
        after = await corral.execute("return 1")
    assert result.error is not None
    assert (result.error.code, after.value) == ("sandbox_lost", 1)
    assert "signal 9" in result.error.message


async def test_a_guest_that_runs_out_of_memory_says_so(open_corral: Callable[..., Corral]) -> None:
    async with open_corral() as corral:
        result = await corral.execute("const all = []; for (;;) all.push(new Array(1e5).fill(0.5))")
    assert result.error is not None
    assert result.error.code == "memory_exceeded"


@other_loop_too
async def test_a_cancelled_execution_ends_its_process(open_corral: Callable[..., Corral], folder: Path) -> None:
    called = anyio.Event()

    pids: list[int] = []

    @tool
    async def note(pid: int) -> None:
        """Takes a number."""
        pids.append(pid)
        called.set()

    program = "import os\nawait tools.note(pid=os.getpid())\nwhile True: pass"
    async with open_corral() as corral, corral.start(program, language="python", tools=[note]) as run:
        await called.wait()
        assert list(folder.glob("plain-*"))
        run.cancel()
        result = await run.result()
    assert result.status == "cancelled"
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


# --- limits and tiers


async def test_a_limit_that_is_not_enforced_is_accepted_by_name_only(open_corral: Callable[..., Corral]) -> None:
    with pytest.raises(LimitNotEnforceable) as raised:
        await open_corral(containment=Containment(required="none", accept_unenforced={"memory_mb"})).execute("return 1")
    assert str(raised.value) == (
        "sandbox 'plain' does not enforce cpu_seconds on this system; use one that does, such as 'wasm' for "
        "TypeScript or 'monty' for Python (corral[monty,wasm]), or accept it with "
        "Containment(accept_unenforced={'cpu_seconds', 'memory_mb'})"
    )


def test_limits_that_the_host_enforces_cannot_be_given_up() -> None:
    with pytest.raises(ConfigError, match="accept_unenforced"):
        Containment(accept_unenforced={"wall_seconds"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_required_tier_is_compared_with_the_strength(open_corral: Callable[..., Corral]) -> None:
    with pytest.raises(StartFailed) as raised:
        await open_corral(containment=Containment(accept_unenforced=UNENFORCED)).execute("return 1")
    assert str(raised.value) == (
        "sandbox 'plain' runs with containment 'plain' (process), below the required tier 'landlock'; accept it with "
        "Corral(containment='none')"
    )


@pytest.mark.parametrize(
    ("containment", "tiers"),
    [
        (ContainmentKind("docker", "kernel"), ["none", "landlock", "namespaces"]),
        (ContainmentKind("firecracker", "vm"), ["none", "landlock", "namespaces"]),
        (ContainmentKind("interpreter", "interpreter"), ["none", "landlock"]),
        (ContainmentKind("plain", "process"), ["none"]),
        (ContainmentKind("here", "none"), ["none"]),
        (ContainmentKind.of_tier("landlock"), ["none", "landlock"]),
        (ContainmentKind.of_tier("namespaces"), ["none", "landlock", "namespaces"]),
        (ContainmentKind.of_tier("none"), ["none"]),
    ],
)
def test_every_isolation_has_its_place_among_the_tiers(containment: ContainmentKind, tiers: list[Any]) -> None:
    assert [tier for tier in ("none", "landlock", "namespaces") if containment.reaches(tier)] == tiers
    for copied in (pickle.loads(pickle.dumps(containment)), copy.deepcopy(containment)):  # noqa: S301
        assert (copied, copied.strength) == (containment, containment.strength)


# --- channels that do not behave


class Channel(GuestChannel):
    """A scripted guest: its output, and its reactions to input."""

    def __init__(self, *pieces: bytes | Exception, send: Exception | None = None, close: bool = True) -> None:
        self.pieces, self.sending, self.closing = pieces, send, close
        self.sent = anyio.Event()
        self.closed = 0
        self.seconds: list[float] = []
        self.traces = PostMortem()

    async def send(self, data: bytes) -> None:
        self.sent.set()
        if self.sending is not None:
            raise self.sending

    async def received(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece
            if piece.endswith(READY):
                await self.sent.wait()
        if self.sending is not None or self.seconds:
            await anyio.sleep_forever()

    async def cpu_seconds(self) -> float | None:
        return self.seconds.pop(0) if len(self.seconds) > 1 else (self.seconds or [None])[0]

    async def post_mortem(self) -> PostMortem:
        return self.traces

    async def aclose(self) -> None:
        self.closed += 1
        if not self.closing:
            await anyio.sleep_forever()


class Pushed(GuestChannel):
    """A scripted guest whose output is pushed: at once up to READY, the rest when START was sent."""

    def __init__(self, *pieces: bytes, seconds: list[float] | None = None, error: Exception | None = None) -> None:
        self.pieces, self.seconds, self.error = pieces, seconds or [], error
        self.sent: list[bytes] = []
        self.limit = 0.0
        self.closed = 0

    def attach(
        self,
        receive: Callable[[bytes], None],
        ended: Callable[[Exception | None], None],
        on_cpu: Callable[[float], None],
    ) -> bool:
        self.receive, self.ended, self.on_cpu = receive, ended, on_cpu
        receive(READY[:5])
        receive(READY[5:])
        return True

    def send_now(self, data: bytes | bytearray) -> int:
        self.sent.append(bytes(data[:10]))  # the rest goes to `send`
        return min(10, len(data))

    async def send(self, data: bytes) -> None:
        self.sent.append(data)
        for each in self.seconds:
            self.on_cpu(each)
        for each in self.pieces:
            self.receive(each)
        if self.error is not None or not self.seconds:
            self.ended(self.error)

    async def post_mortem(self) -> PostMortem:
        return PostMortem(status=3)

    async def aclose(self) -> None:
        self.closed += 1


class Provider(FramedProvider):
    name = "test"
    languages = frozenset({"typescript"})
    containment = ContainmentKind("test", "process")
    enforces = frozenset({"cpu_seconds", "memory_mb"})

    def __init__(self, channel: GuestChannel) -> None:
        self.channel = channel

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        del config
        assert guest.command("deno", "/x")[-1] == "/x/main.js"
        return self.channel


async def run(channel: GuestChannel, provider: type[Provider] = Provider, **limits: Any) -> ExecutionResult:
    limits_ = Limits(**limits)
    async with Corral(sandbox=provider(channel), containment="none", limits=limits_, check=False) as corral:
        with anyio.fail_after(20):
            return await corral.execute("return 1")


@both_loops
@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([], "ended with status 7 before it was ready: no such engine"),
        ([b"hello, this is no frame"], "did not start the guest"),
        ([b"\xff" * (1 << 20)], "did not start the guest"),
        ([READY.replace(b"[1]", b"[9]")], "another version"),
        ([OSError("the network is down")], "the network is down"),
    ],
)
async def test_a_guest_that_does_not_get_ready_is_a_failed_start(pieces: list[bytes | Exception], reason: str) -> None:
    channel = Channel(*pieces)
    channel.traces = PostMortem(status=7, stderr="no such\nengine")
    with pytest.raises(StartFailed, match=reason):
        await run(channel)
    assert channel.closed == 1


async def test_a_start_has_the_providers_own_time() -> None:
    class Hasty(Provider):
        start_timeout_seconds = 0.05

    channel = Channel(send=OSError("never sent"))
    with pytest.raises(StartFailed, match=r"did not start within 0\.05 s"):
        await run(channel, Hasty)
    assert channel.closed == 1


@both_loops
@pytest.mark.parametrize(
    ("channel", "code"),
    [
        (lambda: Channel(READY), "sandbox_lost"),
        (lambda: Channel(READY, b""), "sandbox_lost"),
        (lambda: Channel(READY, OSError("reset")), "sandbox_lost"),
        (lambda: Channel(READY, send=OSError("broken")), "sandbox_lost"),
        (lambda: Channel(READY, b"\x00" * 100), "malformed_message"),
        (lambda: Channel(READY, READY), "malformed_message"),
    ],
)
async def test_what_a_channel_does_wrong_ends_the_execution_only(channel: Callable[[], Channel], code: str) -> None:
    made = channel()
    result = await run(made)
    assert result.error is not None
    assert (result.error.code, made.closed) == (code, 1)


async def test_pieces_of_any_size_are_one_stream() -> None:
    result = await run(Channel(*(bytes([each]) for each in READY[:-1]), b"", READY[-1:], b"", b"\x00"))
    assert result.error is not None
    assert result.error.code == "sandbox_lost"


@both_loops
async def test_processor_time_that_a_channel_measures_is_limited() -> None:
    channel = Channel(READY)
    channel.seconds = [5.0, 5.5, 9.0]  # 5 before the program began
    result = await run(channel, cpu_seconds=2)
    assert result.error is not None
    assert (result.status, result.error.code, channel.closed) == ("timed_out", "program_timeout", 1)
    assert "processor time" in result.error.message


async def test_the_traces_of_a_lost_guest_tell_the_reason() -> None:
    channel = Channel(READY)
    channel.traces = PostMortem(out_of_memory=True)
    result = await run(channel)
    assert result.error is not None
    assert result.error.code == "memory_exceeded"


async def test_standard_error_of_any_length_is_cut_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    channel = Channel(READY)
    channel.traces = PostMortem(status=3, stderr="x" * 10_000_000)
    result = await run(channel)
    assert result.error is not None
    assert "status 3" in result.error.message
    assert len(caplog.text) < 100_000


@both_loops
async def test_a_channel_that_does_not_close_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link, "_CLOSE_SECONDS", 0.05)
    result = await run(Channel(READY, close=False))
    assert result.error is not None
    assert result.error.code == "sandbox_lost"
    assert "not closed within 0.05 s" in caplog.text


@both_loops
@pytest.mark.parametrize(
    ("channel", "code", "message", "logged"),
    [
        (lambda: Pushed(), "sandbox_lost", "the sandbox's process ended without a result (status 3)", True),
        (lambda: Pushed(error=OSError("reset")), "sandbox_lost", "ended without a result", True),
        (lambda: Pushed(error=ChannelLost("rack 7 is dark")), "sandbox_lost", "is lost: rack 7 is dark", False),
        (lambda: Pushed(READY), "malformed_message", "the sandbox", False),
        (lambda: Pushed(seconds=[0.5, 2.5]), "program_timeout", "its 2 s of processor time", False),
    ],
)
async def test_a_pushed_channel_ends_its_execution_only(
    channel: Callable[[], Pushed], code: str, message: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = channel()
    result = await run(made, cpu_seconds=2)
    assert result.error is not None
    assert (result.error.code, made.closed) == (code, 1)
    assert message in result.error.message
    assert len(made.sent[0]) == 10, "the first bytes of START are sent at once, and the rest after them"
    assert b'"code"' in b"".join(made.sent)
    assert bool(caplog.records) is logged


async def test_a_pushed_channel_that_writes_before_its_program_is_not_kept_in_memory() -> None:
    class Early(Pushed):
        def attach(
            self,
            receive: Callable[[bytes], None],
            ended: Callable[[Exception | None], None],
            on_cpu: Callable[[float], None],
        ) -> bool:
            for _ in range(1000):
                receive(b"x" * 1000)
            return super().attach(receive, ended, on_cpu)

    with pytest.raises(StartFailed, match="did not start the guest"):
        await run(Early())


async def test_a_local_guest_is_bytes_for_whoever_speaks_frames(folder: Path) -> None:
    del folder
    async with CPythonSandbox(pool_size=0) as provider:
        guest = await provider.guest(SandboxConfig(language="python", memory_mb=64))
        output: list[bytes] = []
        ended = anyio.Event()
        start = encode_frame(FrameKind.START, b"[{}]", bytes(16))  # without a program, which the guest refuses
        async with guest.process.reading(lambda data: (output.append(data), data or ended.set())[0]):
            await guest.process.write(start)
            await ended.wait()
        await guest.aclose()
        await guest.aclose()
    assert guest.process.ended


def test_the_example_is_short_and_shown_and_imports_public_names_only(installed: None) -> None:
    source = (EXAMPLE / "plain_sandbox.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    assert source in (EXAMPLE.parents[1] / "docs" / "providers.md").read_text(encoding="utf-8")
    imported = [line for line in source.splitlines() if line.startswith("from corral")]
    assert {line.split()[1] for line in imported} == {"corral.containment", "corral.sandboxes", "corral.types"}
    assert load_by_name("corral.sandboxes", "plain").name == "plain"
    assert sys.modules["plain_sandbox"]


class _Spent(GuestChannel):
    """A channel whose guest has used up its processor time by the second look."""

    def __init__(self, channel: GuestChannel) -> None:
        self._channel = channel
        self._looks = 0

    async def send(self, data: bytes) -> None:
        await self._channel.send(data)

    def received(self) -> AsyncIterator[bytes]:
        return self._channel.received()

    async def aclose(self) -> None:
        await self._channel.aclose()

    async def cpu_seconds(self) -> float | None:
        self._looks += 1
        return 0.0 if self._looks == 1 else 100.0


def test_a_loop_that_anyio_did_not_start_ends_a_guest_at_its_processor_limit(installed: None) -> None:
    del installed
    plain: FramedProvider = load_by_name("corral.sandboxes", "plain")
    connect = plain.connect

    async def spent(config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        return _Spent(await connect(config, guest))

    async def run() -> ExecutionResult:
        corral = Corral(sandbox=plain, containment=Containment.development(), check=False)
        return await corral.execute("while (true) {}", limits=Limits(cpu_seconds=5, wall_seconds=20))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "connect", spent)
        result = asyncio.run(run())
    assert result.error is not None
    assert result.error.message == "the program used up its 5 s of processor time"
