"""Several hosts that find each other in one Redis or Valkey. Requires the extras `hosts` and `redis`, and asyncio."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from ssl import SSLContext

from typing_extensions import override

from corral.arguments import checked
from corral.bridges.peers import Peers, logger, parse_url
from corral.errors import ConfigError, requires_extra

with requires_extra("RedisPeers", "redis"):
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.connection import parse_url as parse_redis_url

__all__ = ["RedisPeers"]

_LEAST_LEASE_SECONDS = 0.5
_LOOK_SECONDS = 0.1
"""Minimum seconds between looks for a host that is not known yet."""

# KEYS: until when each host is alive, in milliseconds; and its instance and URL. ARGV: name, instance, URL, lease.
# Returns the instance and URL of another host with this name, or the names, instances and URLs of all hosts.
_RENEW = """
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, name in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now)) do
  redis.call("ZREM", KEYS[1], name)
  redis.call("HDEL", KEYS[2], name)
end
if ARGV[4] ~= "0" then
  local own = ARGV[2] .. " " .. ARGV[3]
  local other = redis.call("HGET", KEYS[2], ARGV[1])
  if other and other ~= own then return {other} end
  redis.call("ZADD", KEYS[1], now + ARGV[4], ARGV[1])
  redis.call("HSET", KEYS[2], ARGV[1], own)
end
return redis.call("HGETALL", KEYS[2])
"""
_LEAVE = """
if redis.call("HGET", KEYS[2], ARGV[1]) == ARGV[2] .. " " .. ARGV[3] then
  redis.call("ZREM", KEYS[1], ARGV[1])
  redis.call("HDEL", KEYS[2], ARGV[1])
end
"""


@checked
class RedisPeers(Peers):
    """Hosts behind one address that find each other in Redis 6 or later, or Valkey.

    `name` is this host, and `url` the address of its bridge for the others. Both must be those of one process only. The
    host is known to the others while it renews its lease of `lease_seconds`, which it does three times in that time; no
    request waits for Redis, unless its token names a host that has just joined. While Redis does not answer, the hosts
    that were known stay so. `secret` and `ssl_context` are as in `Peers`.

    Pass the URL of Redis, or a client of `redis.asyncio`, which you close yourself.

    Raises:
        ConfigError: an option is invalid, or there is no secret.
    """

    def __init__(
        self,
        name: str,
        url: str,
        redis: str | Redis | RedisCluster,
        *,
        secret: str | bytes | None = None,
        ssl_context: SSLContext | None = None,
        lease_seconds: float = 3.0,
        prefix: str = "corral:hosts:",
    ) -> None:
        super().__init__(name, {}, secret=secret, ssl_context=ssl_context)
        if not _LEAST_LEASE_SECONDS <= lease_seconds <= 60:
            raise ConfigError(f"lease_seconds must be {_LEAST_LEASE_SECONDS:g} to 60, not {lease_seconds}")
        if not prefix or set(prefix) & set("{}"):
            raise ConfigError(f"prefix={prefix!r} must have characters, but no braces")
        if isinstance(redis, str):
            try:
                parse_redis_url(redis)
            except ValueError as error:
                raise ConfigError(f"RedisPeers: {error}") from None
        parse_url(name, url)
        self._own_url = url
        self._redis = redis
        self._lease_seconds = lease_seconds
        self._keys = f"{{{prefix}}}until", f"{{{prefix}}}hosts"
        self._instance = secrets.token_hex(8)
        self._client: Redis | RedisCluster | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._looked = 0.0
        self._known: dict[str, str] = {}
        """Instance and URL of each other host."""

    @override
    async def open(self) -> None:
        """Joins the peers. If another process has the name, waits until its lease has ended.

        Raises:
            ConfigError: another process keeps the name, Redis does not answer, or the event loop is not asyncio's.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("RedisPeers runs on asyncio only, as redis-py does; on trio use Peers") from None
        self._looking = asyncio.Lock()
        self._client = Redis.from_url(self._redis) if isinstance(self._redis, str) else self._redis  # pyright: ignore[reportUnknownMemberType]
        end = time.monotonic() + 1.5 * self._lease_seconds
        try:
            while (other := await self._renew(self._lease_seconds)) is not None:
                if time.monotonic() > end:
                    raise ConfigError(f"another process is the host {self._name!r}, at {other}; give this one a name")
                await asyncio.sleep(self._lease_seconds / 10)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"RedisPeers cannot join its peers: {type(error).__name__}: {error}") from error
        self._renewing = asyncio.create_task(self._keep())

    @override
    async def aclose(self) -> None:
        """Leaves the peers. Idempotent."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
        client, self._client = self._client, None
        if client is not None:
            try:
                async with asyncio.timeout(self._lease_seconds):
                    await client.eval(_LEAVE, 2, *self._keys, self._name, self._instance, self._own_url)
            except Exception as error:
                logger.warning("this host could not leave its peers before its lease ends: %s", error)
            if isinstance(self._redis, str):
                await client.aclose()
        await super().aclose()

    @override
    async def knows(self, host: str) -> bool:
        if host not in self._urls and self._client is not None:
            async with self._looking:
                if host not in self._urls and time.monotonic() - self._looked >= _LOOK_SECONDS:
                    try:
                        await self._renew(0)
                    except Exception as error:
                        logger.warning("Redis does not answer, so the host %r is not known: %s", host, error)
        return host in self._urls

    async def _keep(self) -> None:
        """Renews the lease. Says so once when Redis does not answer, or when another process has taken the name."""
        problem: str | None = None
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            before, problem = problem, None
            try:
                if (other := await self._renew(self._lease_seconds)) is not None:
                    problem = f"another process is the host {self._name!r} now, at {other}"
            except Exception as error:
                problem = f"Redis does not answer: {type(error).__name__}: {error}"
            if problem is not None and before is None:
                logger.warning("this host cannot renew its lease: %s", problem)
            elif problem is None and before is not None:
                logger.warning("this host renews its lease again")

    async def _renew(self, lease_seconds: float) -> str | None:
        """Renews the lease, unless it is 0, and learns the other hosts. Returns the URL of a host with its name."""
        assert self._client is not None
        lease = str(round(lease_seconds * 1000))
        arguments = self._name, self._instance, self._own_url, lease
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                answer = await self._client.eval(_RENEW, 2, *self._keys, *arguments)
        finally:
            self._looked = time.monotonic()  # also after a failure, or all who wait to look would time out in turn
        texts: list[str] = [each.decode() if isinstance(each, bytes) else each for each in answer]
        if len(texts) == 1:
            return texts[0].partition(" ")[2]
        known = {name: value for name, value in zip(texts[::2], texts[1::2], strict=True) if name != self._name}
        gone = [name for name, value in self._known.items() if known.get(name) != value]
        self._urls = {name: parse_url(name, value.partition(" ")[2]) for name, value in known.items()}
        self._known = known
        for name in gone:
            for end in [*self._forwarding.get(name, ())]:
                end()
        return None
