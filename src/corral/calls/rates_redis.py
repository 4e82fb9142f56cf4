"""Rate limits shared by several hosts in one Redis or Valkey. Requires the extra `redis`, and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from corral.arguments import checked
from corral.calls.rates import Bucket, MemoryRates, RateStore, Refusal
from corral.errors import ConfigError, requires_extra
from corral.logs import get_logger

with requires_extra("RedisRates", "redis"):
    from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import MovedError

__all__ = ["RedisRates", "WhenAway"]

logger = get_logger("corral.rates")

WhenAway: TypeAlias = Literal["deny", "allow", "local"]
"""Policy while Redis does not answer. "local" counts calls in this process."""

_CONSEQUENCES = {
    "deny": "calls with a rate limit are denied",
    "allow": "calls are not limited",
    "local": "this process counts alone",
}
_CONNECTIONS = 16
"""Maximum connections per event loop. Further calls wait for one, up to the timeout."""
_RETRY_SECONDS = 1.0
"""`retry_after_seconds` in replies to programs while calls are denied."""

# Same as MemoryRates.take. ARGV has, for each key, the interval and the time that a full bucket is paid for, in
# microseconds; then 1 to count, or 0 only to look. Numbers stay below 2^53. EVAL needs no reloading after a restart or
# a failover, unlike EVALSHA.
_TAKE = """
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local paid, longest, narrowest = {}, 0, 0
for i, key in ipairs(KEYS) do
  local interval, full = tonumber(ARGV[2 * i - 1]), now + tonumber(ARGV[2 * i])
  local before = tonumber(redis.call("GET", key) or now)
  paid[i] = math.min(math.max(before, now), full) + interval
  if paid[i] - full > longest then longest, narrowest = paid[i] - full, i end
end
if narrowest == 0 and ARGV[2 * #KEYS + 1] == "1" then
  for i, key in ipairs(KEYS) do
    redis.call("SET", key, string.format("%.0f", paid[i]), "PX", math.ceil((paid[i] - now) / 1000))
  end
end
return {longest, narrowest}
"""
# Takes a count back. Between `take` and this, another call may have been refused that would have been allowed.
_RETURN = """
for i, key in ipairs(KEYS) do
  local paid = redis.call("GET", key)
  if paid then redis.call("SET", key, string.format("%.0f", paid - ARGV[2 * i - 1]), "KEEPTTL") end
end
"""


def problem_of(error: Exception) -> str:
    if isinstance(error, MovedError):
        return f"this is one node of a cluster, which has keys on others; pass a redis.asyncio.RedisCluster ({error})"
    return f"{type(error).__name__}: {error}"


@contextmanager
def _second_half(limit: asyncio.Timeout, seconds: float) -> Generator[None]:
    """Timeout in two halves: the second starts only when the event loop has noticed the end of the first.

    If the loop is blocked for the whole timeout, replies that arrived meanwhile are still read.
    """
    loop = asyncio.get_running_loop()
    middle = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + seconds))
    try:
        yield
    finally:
        middle.cancel()


@checked
class RedisRates(RateStore):
    """Counts in Redis 6 or later, or Valkey, by that server's clock, so that all hosts share the limits.

    Pass a URL, or a client of `redis.asyncio`, which you close yourself. Keys begin with the prefix and the
    organization in braces, so that a cluster keeps those of one organization on one node, and spreads organizations.
    Use it in one event loop at a time: with a URL it reconnects in another loop,
    while your own client is tied to its loop. Call `aclose` in the last loop used.

    A call waits for at most `timeout_seconds`; with your own client on Python 3.11, for its `socket_timeout` if that
    is longer. `when_away` applies after a timeout or an error from Redis; the log has one warning when this begins and
    one when Redis is back.

    Raises:
        ConfigError: an option is invalid.
    """

    def __init__(
        self,
        redis: str | Redis | RedisCluster,
        *,
        when_away: WhenAway = "deny",
        prefix: str = "corral:rate:",
        timeout_seconds: float = 0.25,
    ) -> None:
        if not prefix or set(prefix) & set("{}"):
            raise ConfigError(
                f"prefix={prefix!r} must have characters, but no braces: they would move keys in a cluster"
            )
        if not 0 < timeout_seconds <= 60:
            raise ConfigError(f"timeout_seconds must be positive and at most 60, not {timeout_seconds}")
        if isinstance(redis, str):
            try:
                parse_url(redis)
            except ValueError as error:
                raise ConfigError(f"RedisRates: {error}") from None
        self._redis = redis
        self._when_away: WhenAway = when_away
        self._prefix = prefix
        self._timeout_seconds = timeout_seconds
        self._local = MemoryRates()
        self._own: tuple[asyncio.AbstractEventLoop, Redis] | None = None
        self._away = False

    async def take(self, buckets: Sequence[Bucket]) -> Refusal | None:
        """Raises ConfigError in an event loop that is not asyncio's."""
        client = self._client()
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                with _second_half(limit, self._timeout_seconds / 2):
                    refusal = await self._take(client, buckets)
        except Exception as error:
            return await self._take_without_redis(buckets, error)
        if self._away:
            self._away = False
            logger.warning("Redis answers again: rate limits are shared again")
        return refusal

    async def _take(self, client: Redis | RedisCluster, buckets: Sequence[Bucket]) -> Refusal | None:
        """Takes the buckets of the organization and those of everyone, which are on different nodes of a cluster."""
        groups = [[each for each in buckets if bool(each.organization) is own] for own in (True, False)]
        groups = [group for group in groups if group]
        refusals: list[Refusal] = []
        for index, group in enumerate(groups):
            refusal = await self._run(client, _TAKE, group, 1)
            if refusal is not None:
                refusals.append(refusal)
                for taken in groups[:index]:
                    await self._run(client, _RETURN, taken)
                for other in groups[index + 1 :]:
                    also = await self._run(client, _TAKE, other, 0)
                    refusals += [] if also is None else [also]
                break
        return max(refusals, key=lambda refusal: refusal.seconds, default=None)

    async def _run(
        self, client: Redis | RedisCluster, script: str, buckets: Sequence[Bucket], *more: int
    ) -> Refusal | None:
        keys = [f"{{{self._prefix}{bucket.organization}}}{bucket.key}" for bucket in buckets]
        times = [each for _, rate, _ in buckets for each in (rate.interval_us, rate.interval_us * rate.count)]
        answer = await client.eval(script, len(keys), *keys, *times, *more)
        if answer is None:
            return None
        longest_us, narrowest = answer
        return Refusal(longest_us / 1_000_000, buckets[narrowest - 1]) if narrowest else None

    async def aclose(self) -> None:
        if self._own is not None:
            loop, client = self._own
            self._own = None
            if loop is asyncio.get_running_loop():
                await client.aclose()

    def _client(self) -> Redis | RedisCluster:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("RedisRates runs on asyncio only, as redis-py does; on trio use MemoryRates") from None
        if not isinstance(self._redis, str):
            return self._redis
        if self._own is None or self._own[0] is not loop:
            pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
                self._redis,
                max_connections=_CONNECTIONS,
                timeout=None,
                socket_timeout=None,  # redis-py would use wait_for, which can lose a cancellation in Python 3.11
                retry=Retry(NoBackoff(), 1),  # for a connection lost since its last use
            )
            self._own = (loop, Redis.from_pool(pool))
        return self._own[1]

    async def _take_without_redis(self, buckets: Sequence[Bucket], error: Exception) -> Refusal | None:
        if not self._away:
            self._away = True
            logger.warning("Redis does not answer, so %s: %s", _CONSEQUENCES[self._when_away], problem_of(error))
        match self._when_away:
            case "deny":
                return Refusal(_RETRY_SECONDS, None)
            case "allow":
                return None
            case "local":
                return await self._local.take(buckets)
