"""A guest that was taken over can write anything to its pipe. Each forgery ends the run with a named error, and only it.

The hostile guest is a real process that knows the format and the nonce: more than a program in the sandbox ever does.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_core import to_json
from typing_extensions import override

from corral import ExecutionContext, Limits
from corral.calls import CallRecorder, Grant
from corral.calls.records import ValueRoom
from corral.errors import BridgeError
from corral.events import EventStream
from corral.guest import FrameKind, FrameReader, encode_frame
from corral.guest.python.frames import NO_NONCE
from corral.jail import LauncherClient, Plan
from corral.ledger import MemoryLedger, Records
from corral.programs import prepare_typescript
from corral.results import LogEntry
from corral.running import journal as running
from corral.running.journal import Journal
from corral.sandboxes import Job
from corral.sandboxes.channel import GuestChannel, PostMortem
from corral.sandboxes.framed.link import ChannelLink
from corral.sandboxes.framed.session import WINDOW_BYTES, GuestSession
from corral.sandboxes.jailed.guest_starter import GuestProcess
from corral.tools import ToolRegistry
from corral.types import CallRequest, EncodedValue, Exit, PipeEndpoint, Reply
from tests.sandboxes.recording import Recording
from tests.until import until

pytestmark = pytest.mark.anyio

HOSTILE = """
import array, fcntl, os, signal, struct, sys, termios
def unread():
    count = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, count)
    return count[0]
header = os.read(0, 1 << 20)
nonce = header[6:22]
def frame(kind, payload, nonce=nonce, flags=0):
    return struct.pack(">IBB16s", 18 + len(payload), kind, flags, nonce) + payload
def write(data):
    while data:
        data = data[os.write(1, data):]
CALL, LOG, EXIT, OUTCOME, CREDIT, CANCEL = 17, 18, 19, 20, 21, 22
END = frame(EXIT, b'["value",1,[],0,[]]')
"""

LIMITS = Limits(calls=10, log_bytes=100, value_bytes=1000, tool_input_bytes=1000, wall_seconds=5)


class Host:
    """What a session needs: a handler that counts, and a place for logs."""

    def __init__(self) -> None:
        self.calls: list[CallRequest] = []
        self.logs: list[LogEntry] = []
        self.outcomes: list[Exit] = []
        self.reply = Reply(value=1, encoded=EncodedValue(b"1", tagged=False))

    async def handle(self, call: CallRequest) -> Reply:
        self.calls.append(call)
        await anyio.lowlevel.checkpoint()
        return self.reply

    def job(self) -> Job:
        return Job(
            execution_id="x",
            program=prepare_typescript("1"),
            limits=LIMITS,
            tools=(),
            env=None,
            on_log=self.logs.append,
            on_outcome=self.outcomes.append,
        )


@pytest.fixture
async def host() -> Host:
    return Host()


async def run(host: Host, script: str) -> list[Any] | None:
    python = Path(sys.executable)
    arguments = (str(python), "-I", "-S", "-c", HOSTILE + script)
    launcher = LauncherClient()
    process = GuestProcess.spawn(launcher, Plan(executable=python, arguments=arguments, environment={}))
    try:
        with anyio.fail_after(30):
            return await GuestSession(process, host.job(), PipeEndpoint(handler=host.handle)).run({})
    finally:
        process.close()
        launcher.close()


@pytest.mark.parametrize(
    "script",
    [
        'write(b"hello, this is not a frame at all")',
        "write(frame(EXIT, b'[\"value\",1,[],0,[]]', nonce=bytes(16)))",
        "write(frame(99, b'[]'))",
        "write(frame(1, b'[{}]'))",
        "write(frame(2, b'[1,true,1]'))",
        "write(frame(16, b'[1]'))",
        "write(struct.pack('>IBB16s', 0xffffffff, CALL, 0, nonce))",
        "write(struct.pack('>IBB16s', 3, CALL, 0, nonce))",
        "write(frame(CALL, b'x' * 100_000))",
        "write(frame(EXIT, b'\"' + b'x' * 2_000_000 + b'\"'))",
        "write(frame(CALL, b'[1,\"a\"]'))",
        'write(frame(CALL, b\'["1","a",{}]\'))',
        "write(frame(CALL, b'{\"sequence\":1}'))",
        "write(frame(CALL, b'[1,\"a\",' + b'[' * 400 + b']' * 400 + b']'))",
        'write(frame(CALL, b\'[1,"a","\\xff\\xfe"]\'))',
        'write(frame(CALL, b\'[1,"a",{"$bytes":7}]\', flags=1))',
        "for i in range(1, 12): write(frame(CALL, b'[%d,\"a\",{}]' % i))",
        *(
            f"write(frame(CALL, b'[{numbers[0]},\"a\",{{}}]') + frame(CALL, b'[{numbers[1]},\"a\",{{}}]'))"
            for numbers in (
                ("1", "1"),
                ("1", "3"),
                ("0", "1"),
                ("true", "2"),
                ("1.0", "2"),
                ("1", "-2"),
                ("1", "9" * 500),
            )
        ),
        'for i in range(200): write(frame(LOG, b\'["log","x"]\'))',
        'write(frame(LOG, b\'["shout","x"]\'))',
        "write(frame(LOG, b'[\"log\",7]'))",
        "write(frame(EXIT, b'[]'))",
        "write(frame(OUTCOME, b'[\"value\",1]'))",
        "write(2 * frame(OUTCOME, b'[\"value\",1,true]'))",
        "write(frame(OUTCOME, b'[\"value\",1,false]') + frame(CALL, b'[1,\"a\",{}]'))",
        'write(frame(LOG, b\'["log","",true]\'))',
        'write(frame(LOG, b\'["log","x",false]\'))',
        'for i in range(200): write(frame(LOG, b\'["log","x",true]\'))',
        "write(frame(EXIT, b'[\"value\",1]'))",
        "write(frame(EXIT, b'[\"other\",1,[],0,[]]'))",
    ],
)
async def test_a_forged_frame_ends_the_run(host: Host, script: str) -> None:
    with pytest.raises(BridgeError) as raised:
        await run(host, f"{script}\nos.read(0, 1)\nsys.exit()")
    assert raised.value.code in {"malformed_message", "message_too_large"}
    assert len(host.calls) <= LIMITS.calls
    assert len(host.logs) <= LIMITS.log_bytes


class Streaming(Host):
    """Its tool yields endlessly, as fast as it can; the stream of the second call is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.abandoned = False

    async def handle(self, call: CallRequest) -> Reply:
        self.calls.append(call)
        assert call.open_stream is not None
        sink = call.open_stream(self.abandon)
        while not self.abandoned and call.sequence == 1:
            self.sent += ITEM_BYTES
            if not sink.put(EncodedValue(b"1" * ITEM_BYTES, tagged=False)):
                await sink.room()
            await anyio.lowlevel.checkpoint()
        return Reply(nothing=True)

    def abandon(self) -> None:
        self.abandoned = True


ITEM_BYTES = 10_000
TAKE = """
seen = bytearray()
def asked(times=1):  # reads until so many CHUNKs have asked for a CREDIT
    while seen.count(b",true]") < times:
        seen.extend(os.read(0, 1 << 20))
write(frame(CALL, b'[1,"a",{}]'))
"""


@pytest.mark.parametrize(
    "script",
    [
        "asked(); write(100 * frame(CREDIT, b'[1]'))",
        "write(frame(CREDIT, b'[2]'))",
        "write(frame(CREDIT, b'[true]'))",
        "write(frame(CREDIT, b'[1,1]'))",
        "write(frame(CREDIT, b'[1' + b'0' * 100 + b']'))",
        "asked(); write(frame(CANCEL, b'[7]'))",
        "asked(); write(frame(CANCEL, b'[\"1\"]'))",
        "asked(); write(frame(CANCEL, b'{}'))",
        "asked(); write(2 * frame(CANCEL, b'[1]'))",
        "asked(); write(frame(5, b'[1,[1]]'))",
        "asked(); write(frame(CALL, b'[2,\"a\",{}]')); os.read(0, 1); write(frame(CREDIT, b'[2]'))",
    ],
)
async def test_a_guest_that_lies_about_a_stream_ends_the_run(script: str) -> None:
    host = Streaming()
    with pytest.raises(BridgeError) as raised:
        await run(host, f"{TAKE}{script}\nwhile os.read(0, 1 << 20): pass\nsys.exit()")
    assert raised.value.code in {"malformed_message", "message_too_large"}


async def test_a_guest_that_reads_no_stream_gets_no_more_than_its_window() -> None:
    host = Streaming()
    read = 'asked()\nwrite(frame(LOG, b\'["log","x"]\'))\nimport time\nwhile os.read(0, 1 << 20): pass'
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, host, f"{TAKE}{read}")
        await until(lambda: host.logs and host.sent >= WINDOW_BYTES)
        await anyio.wait_all_tasks_blocked()
        assert host.sent <= WINDOW_BYTES + ITEM_BYTES
        tasks.cancel_scope.cancel()


async def test_a_credit_is_for_what_was_read_and_a_cancel_for_all() -> None:
    host = Streaming()
    script = "asked(2); write(frame(CREDIT, b'[1]')); asked(3); write(frame(CANCEL, b'[1]') + END)"
    assert await run(host, f"{TAKE}{script}") == ["value", 1, [], 0, []]
    assert host.abandoned
    assert host.sent >= WINDOW_BYTES


async def test_a_credit_and_a_cancel_may_cross_the_end_of_the_stream() -> None:
    host = Streaming()
    call = "write(frame(CALL, b'[2,\"a\",{}]'))\nwhile b'[2,true]' not in os.read(0, 1 << 20): pass"
    script = f"{call}\nwrite(frame(CANCEL, b'[2]') + END)"
    assert await run(host, f"{TAKE}asked()\n{script}") == ["value", 1, [], 0, []]


async def test_nothing_after_an_exit_is_read(host: Host) -> None:
    assert await run(host, "write(END + frame(CALL, b'[1,\"a\",{}]') + b'garbage')") == ["value", 1, [], 0, []]
    assert host.calls == []


async def test_a_guest_that_ignores_that_its_program_has_ended_is_told_to_finish(host: Host) -> None:
    calls = "write(frame(CALL, b'[1,\"a\",{}]') + frame(OUTCOME, b'[\"value\",1,false]'))"
    finish = "while os.read(0, 1 << 20)[-20:-18] != bytes([4, 0]): pass"
    assert await run(host, f"{calls}\n{finish}\nwrite(END)") == ["value", 1, [], 0, []]


async def test_parts_of_an_entry_are_one_also_where_the_guest_dies_within_it(host: Host) -> None:
    part = 'write(frame(LOG, b\'["log","a",true]\'))'
    whole = 'write(frame(LOG, b\'["log","b"]\'))'
    assert await run(host, f"{part}\n{part}\n{whole}\n{part}\nos.close(1); os.read(0, 1)") is None
    assert [entry.text for entry in host.logs] == ["aab", "a"]


async def test_a_guest_that_only_closes_its_pipe_is_lost(host: Host) -> None:
    assert await run(host, "os.close(1); os.read(0, 1)") is None


async def test_a_guest_that_never_reads_its_replies_cannot_stop_the_session(host: Host) -> None:
    host.reply = Reply(value=None, encoded=EncodedValue(b'"' + b"x" * 2_000_000 + b'"', tagged=False))
    calls = "for i in range(1, 11): write(frame(CALL, b'[%d,\"a\",{}]' % i))"
    until_full = "while unread() < fcntl.fcntl(0, fcntl.F_GETPIPE_SZ) * 3 // 4: pass"  # a user with many has small ones
    assert await run(host, f"{calls}\n{until_full}\nwrite(END)\nwhile True: signal.pause()") == ["value", 1, [], 0, []]
    assert host.calls


class SlowLink:
    """A guest that writes the test's frames, and reads nothing after START until released."""

    nonce = bytes(16)
    lost = ""

    def __init__(self) -> None:
        self.receive: Callable[[bytes], None] = lambda data: None
        self.may_read = anyio.Event()
        self.read = b""

    @asynccontextmanager
    async def reading(self, receive: Callable[[bytes], None]) -> AsyncGenerator[None]:
        self.receive = receive
        yield

    def write_now(self, data: bytes | bytearray) -> int:
        return 0

    async def write(self, data: bytes | bytearray) -> None:
        if data[4] != FrameKind.START:
            await self.may_read.wait()
            self.read += data

    def kill(self) -> None: ...

    def cpu_time(self) -> None: ...
    def reports_cpu(self, changed: Callable[[], object]) -> bool:
        return False

    def threads(self) -> int:
        return 0

    async def post_mortem(self) -> PostMortem:
        return PostMortem()

    async def says(self, kind: FrameKind, payload: bytes) -> None:
        self.says_at_once((kind, payload))
        await anyio.wait_all_tasks_blocked()

    def says_at_once(self, *frames: tuple[FrameKind, bytes]) -> None:
        self.receive(b"".join(encode_frame(kind, payload, self.nonce) for kind, payload in frames))


EXITED: list[Any] = ["value", 1, [], 0, []]


@asynccontextmanager
async def served(host: Host) -> AsyncGenerator[SlowLink]:
    """A session that has started, and has to end as EXITED says."""
    link = SlowLink()
    session = GuestSession(link, host.job(), PipeEndpoint(handler=host.handle))

    async def run() -> None:
        with anyio.fail_after(30):
            assert await session.run({}) == EXITED

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        yield link
        await link.says(FrameKind.EXIT, to_json(EXITED))


@pytest.mark.parametrize(
    "frames",
    [
        [(FrameKind.PONG, b'[1,0,""]')],
        [(FrameKind.EXIT, b'["value",1,[],0,[]]')],
        [(FrameKind.EXIT, b'["value",1,[],0,[],1,""]')],
        [(FrameKind.EXIT, b'["value",1,[],0,[],0,"%b"]' % (b"x" * 65))],
        [(FrameKind.OUTCOME, b'["value",1,false,1,""]')],
        [(FrameKind.CANCEL, b"[1]")],
        [(FrameKind.CALL, b'[1,"$timer",9]'), (FrameKind.CANCEL, b"[1]"), (FrameKind.CANCEL, b"[1]")],
        [(FrameKind.CALL, b'[1,"$timer",%b]' % (b"9" * 1000))],
        [(FrameKind.CALL, b'[%d,"$timer",9]' % number) for number in range(1, 10_002)],
        [(FrameKind.CALL, b'[%d,"$fetch",9]' % number) for number in range(1, LIMITS.calls_in_flight + 2)],
    ],
    ids=lambda frames: f"{frames[0][0].name} {len(frames)}",
)
async def test_a_durable_guest_that_lies_about_its_program_ends_the_run(
    host: Host, frames: list[tuple[FrameKind, bytes]]
) -> None:
    link = SlowLink()
    job = replace(host.job(), durable=Recording(wrong, ""), services=("$fetch",))
    session = GuestSession(link, job, PipeEndpoint(handler=host.handle))
    async with anyio.create_task_group() as tasks:
        ended = anyio.Event()

        async def run() -> None:
            with pytest.raises(BridgeError):
                await session.run({})
            ended.set()

        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        link.says_at_once(*frames)
        await ended.wait()


async def test_an_input_that_cannot_be_recorded_ends_the_run_and_an_endless_timer_does_not(host: Host) -> None:
    grant = Grant(context=ExecutionContext(), limits=LIMITS, tools=ToolRegistry())
    recorder = CallRecorder(EventStream("x", grant.context, None, ()), rooms=ValueRoom())
    journal = Journal(
        running.Recording(records=Records(MemoryLedger())), grant, recorder, {"now": 0.0, "seed": ""}, None
    )
    link = SlowLink()
    endpoint = PipeEndpoint(handler=journal.wrap(host.handle))
    session = GuestSession(link, replace(host.job(), durable=journal), endpoint)
    async with anyio.create_task_group() as tasks:
        ended = anyio.Event()

        async def run() -> None:
            with pytest.raises(BridgeError, match="an input that cannot be recorded"):
                await session.run({})
            ended.set()

        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await link.says(FrameKind.CALL, b'[1,"$timer",1' + b"0" * 400 + b"]")
        await link.says(FrameKind.CALL, b'[2,"\\u0061",' + b"[" * 150 + b"]" * 150 + b"]")  # encoded anew
        await ended.wait()
    assert not host.calls


async def test_timers_that_are_set_in_the_turn_in_which_others_are_cleared_are_no_more_than_allowed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.sandboxes.framed.session._MAX_TIMERS", 200)
    link = SlowLink()
    link.may_read.set()
    journal = Recording(wrong, "")
    session = GuestSession(link, replace(host.job(), durable=journal), PipeEndpoint(handler=journal.handle))
    first, second = (
        [(FrameKind.CALL, b'[%d,"$timer",60000]' % number) for number in range(at, at + 200)] for at in (1, 201)
    )
    cleared = [(FrameKind.CANCEL, b"[%d]" % number) for number in range(1, 201)]
    async with anyio.create_task_group() as tasks:
        start: dict[str, object] = {}
        tasks.start_soon(session.run, start)
        await anyio.wait_all_tasks_blocked()
        link.says_at_once(*first, *cleared, *second)
        await until(lambda: len(journal.calls) == 400)
        await link.says(FrameKind.EXIT, b'["value",1,[],0,[],400,"x"]')
    assert journal.state == (400, "x")


async def test_a_ping_follows_the_reply_that_was_being_made(host: Host) -> None:
    link = SlowLink()
    link.may_read.set()
    journal = Recording(wrong, "")

    async def handle(call: CallRequest) -> Reply:
        journal.ask()
        return host.reply._replace(stamp=(1.5, 2.0))

    session = GuestSession(link, replace(host.job(), durable=journal), PipeEndpoint(handler=handle))
    async with anyio.create_task_group() as tasks:
        start: dict[str, object] = {}
        tasks.start_soon(session.run, start)
        await anyio.wait_all_tasks_blocked()
        await link.says(FrameKind.CALL, b'[1,"a",{}]')
        await until(lambda: b"[1]" in link.read)
        assert link.read[22:].startswith(b"[1,true,1,1.500,2.000]")
        await link.says(FrameKind.PONG, b'[1,1,"x"]')
        assert journal.idle_states == [(1, "x")]
        await link.says(FrameKind.EXIT, b'["value",1,[],0,[],1,"x"]')
    assert journal.state == (1, "x")


async def wrong(tool: str, input: object) -> Reply:
    raise AssertionError


async def test_the_end_is_heard_while_calls_have_to_wait_for_room(host: Host) -> None:
    host.reply = Reply(value=None, encoded=EncodedValue(b'"' + b"x" * 9_000_000 + b'"', tagged=False))
    async with served(host) as link:
        for number in range(1, 5):
            await link.says(FrameKind.CALL, b'[%d,"a",{}]' % number)
        assert len(host.calls) == 2  # the reply to one is being written, that to the other takes all room for replies


async def test_a_reply_that_is_being_written_as_the_grace_ends_is_written_whole() -> None:
    cut = anyio.Event()

    class Waiting(Host):
        @override
        async def handle(self, call: CallRequest) -> Reply:
            if call.tool == "quick":
                return self.reply
            try:
                await anyio.Event().wait()
            finally:
                cut.set()
            return self.reply

    async with served(Waiting()) as link:
        await link.says(FrameKind.CALL, b'[1,"quick",{}]')
        await link.says(FrameKind.CALL, b'[2,"stuck",{}]')
        await link.says(FrameKind.OUTCOME, b'["value",1,false]')
        with anyio.fail_after(30):
            await cut.wait()
        link.may_read.set()
        await anyio.wait_all_tasks_blocked()
        frames = FrameReader(NO_NONCE, {FrameKind.REPLY: 100, FrameKind.FINISH: 100}).feed(link.read)
        assert [frame.kind for frame in frames] == [FrameKind.REPLY, FrameKind.FINISH]


async def test_a_grace_that_ends_after_its_guest_does_not_keep_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    class Patient(Host):
        @override
        async def handle(self, call: CallRequest) -> Reply:
            await may_answer.wait()
            return self.reply

    async def sleep(seconds: float) -> None:
        await grace_over.wait()

    may_answer, grace_over = anyio.Event(), anyio.Event()
    monkeypatch.setattr(anyio, "sleep", sleep)
    host, link = Patient(), SlowLink()
    link.may_read.set()
    session = GuestSession(link, host.job(), PipeEndpoint(handler=host.handle, must_finish={1}))

    async def run() -> None:
        with anyio.fail_after(30):
            assert await session.run({}) is None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await link.says(FrameKind.CALL, b'[1,"a",{}]')
        await link.says(FrameKind.OUTCOME, b'["value",1,false]')
        link.receive(b"")
        await anyio.wait_all_tasks_blocked()
        grace_over.set()
        await anyio.wait_all_tasks_blocked()
        may_answer.set()


async def test_a_deadline_in_the_turn_in_which_the_outcome_has_come_does_not_take_it(host: Host) -> None:
    link = SlowLink()
    link.may_read.set()
    session = GuestSession(link, host.job(), PipeEndpoint(handler=host.handle))
    ends: list[Any] = []
    deadline = anyio.CancelScope()

    async def run() -> None:
        with deadline:
            ends.append(await session.run({}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await link.says(FrameKind.CALL, b'[1,"a",{}]')
        link.receive(encode_frame(FrameKind.EXIT, to_json(EXITED), link.nonce))
        deadline.cancel()
    assert ends == [EXITED]
    assert not deadline.cancelled_caught


async def test_a_deadline_while_a_channel_is_being_left_does_not_take_the_outcome(host: Host) -> None:
    deadline = anyio.CancelScope()

    class Channel(GuestChannel):
        @override
        async def send(self, data: bytes) -> None: ...

        @override
        async def received(self) -> AsyncGenerator[bytes]:
            yield encode_frame(FrameKind.EXIT, to_json(EXITED), link.nonce)
            deadline.cancel()
            await anyio.sleep_forever()

        @override
        async def aclose(self) -> None: ...

    link = ChannelLink(Channel())
    with deadline:
        assert await GuestSession(link, host.job(), PipeEndpoint(handler=host.handle)).run({}) == EXITED
    assert not deadline.cancelled_caught
    await link.aclose()
