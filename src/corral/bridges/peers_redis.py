"""Several hosts that find each other in one Redis or Valkey. Requires the extras `hosts` and `redis`, and asyncio."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from ssl import SSLContext
from typing import Any

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.peers import Peers, logger, parse_url
from corral.calls.rates_redis import problem_of
from corral.concurrency.kept import Lease
from corral.errors import ConfigError, CorralError, SessionElsewhere, StartFailed, requires_extra
from corral.types import ExecutionContext

with requires_extra("RedisPeers", "redis"):
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.connection import parse_url as parse_redis_url
    from redis.exceptions import RedisError

__all__ = ["RedisPeers"]

_LEAST_LEASE_SECONDS = 0.5
_LOOK_SECONDS = 0.1
"""Minimum seconds between looks for a host that is not known yet."""

# KEYS: the end of each host's lease, in milliseconds; each host's instance and URL; each held name's host and instance.
_START = """
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function drop(host)
  redis.call("ZREM", KEYS[1], host)
  redis.call("HDEL", KEYS[2], host)
  local held = redis.call("HGETALL", KEYS[3])
  for i = 1, #held, 2 do
    if string.find(held[i + 1], host .. " ", 1, true) == 1 then redis.call("HDEL", KEYS[3], held[i]) end
  end
end
local function instance(host)
  local lease = redis.call("ZSCORE", KEYS[1], host)
  local value = lease and tonumber(lease) > now and redis.call("HGET", KEYS[2], host)
  return value and string.match(value, "^%S+")
end
"""
# ARGV: name, instance, URL, lease. Returns the instance and URL of another host with this name, or 1 if this host's
# lease had not ended, else 0, and the names, instances and URLs of all hosts.
_RENEW = f"""{_START}
for _, name in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now)) do drop(name) end
local own = ARGV[2] .. " " .. ARGV[3]
local other = redis.call("HGET", KEYS[2], ARGV[1])
if other and other ~= own then return {{other}} end
redis.call("ZADD", KEYS[1], now + ARGV[4], ARGV[1])
redis.call("HSET", KEYS[2], ARGV[1], own)
local hosts = redis.call("HGETALL", KEYS[2])
table.insert(hosts, 1, other and "1" or "0")
return hosts
"""
# ARGV: name, instance, URL.
_LEAVE = f"""{_START}
if redis.call("HGET", KEYS[2], ARGV[1]) == ARGV[2] .. " " .. ARGV[3] then drop(ARGV[1]) end
"""
# ARGV: host, instance, held name, 1 to take it if it is free. Returns its holder, if any.
_HOLD = f"""{_START}
local holder = redis.call("HGET", KEYS[3], ARGV[3])
local host = holder and string.match(holder, "^%S+")
if host and holder == host .. " " .. (instance(host) or "") then return host end
if ARGV[4] == "0" or instance(ARGV[1]) ~= ARGV[2] then return false end
redis.call("HSET", KEYS[3], ARGV[3], ARGV[1] .. " " .. ARGV[2])
return ARGV[1]
"""
# ARGV: host, instance, held name.
_RELEASE = """
if redis.call("HGET", KEYS[3], ARGV[3]) == ARGV[1] .. " " .. ARGV[2] then redis.call("HDEL", KEYS[3], ARGV[3]) end
"""


def _now() -> float:
    """Returns seconds of a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _name_of(context: ExecutionContext) -> str:
    key = context.organization_id, context.user_id, context.session_id
    return sha256(json.dumps(key).encode()).hexdigest()


class _Claim:
    """Name that this host holds, or is about to hold, for its users."""

    def __init__(self) -> None:
        self.changing = asyncio.Lock()
        self.is_held = False
        self.users = 0
        self.callbacks: list[Callable[[], object]] = []


class _Lease:
    """Use of a name that this host holds."""

    def __init__(self, peers: RedisPeers, name: str, claim: _Claim, on_lost: Callable[[], object]) -> None:
        self._peers = peers
        self._name = name
        self._claim = claim
        self._on_lost = on_lost
        self._released = False
        claim.callbacks.append(on_lost)

    @property
    def is_held(self) -> bool:
        return self._on_lost in self._claim.callbacks and self._peers.is_joined

    async def release(self) -> None:
        if not self._released:
            self._released = True
            with suppress(ValueError):
                self._claim.callbacks.remove(self._on_lost)
            with anyio.CancelScope(shield=True):
                await self._peers.release(self._name, self._claim)


@checked
class RedisPeers(Peers):
    """Hosts behind one address that find each other in Redis 6 or later, or Valkey.

    `name` identifies this host, and `url` is the address at which the others reach its bridge. Each process needs its
    own. The others know the host while it renews its lease of `lease_seconds`, which it does three times in that
    period. No request of a bridge waits for Redis, unless its token names a host that is not known yet. While Redis
    does not answer, known hosts stay known. Sessions kept by name are held by one host at a time, until it closes them
    or its lease ends; a host that cannot renew its lease in time closes them itself. `secret` and `ssl_context` are as
    in `Peers`.

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
            raise ConfigError(f"prefix={prefix!r} must have characters, but no braces, which the keys add")
        if isinstance(redis, str):
            try:
                parse_redis_url(redis)
            except ValueError as error:
                raise ConfigError(f"RedisPeers: {error}") from None
        parse_url(name, url)
        self._own_url = url
        self._redis = redis
        self._lease_seconds = lease_seconds
        self._keys = tuple(f"{{{prefix}}}{name}" for name in ("until", "hosts", "held"))
        self._instance = secrets.token_hex(8)
        self._client: Redis | RedisCluster | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        """Lock of renewals, so that an older answer cannot replace a newer one."""
        self._looked = 0.0
        self._joined_until = 0.0
        """End of this host's lease, if it is not renewed."""
        self._claims: dict[str, _Claim] = {}
        self._unreleased: set[str] = set()
        """Names whose release has not reached Redis."""
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
            while (other := await self._renew()) is not None:
                if time.monotonic() > end:
                    raise ConfigError(f"another process is the host {self._name!r}, at {other}; give this one a name")
                await asyncio.sleep(self._lease_seconds / 10)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"RedisPeers cannot join its peers: {problem_of(error)}") from error
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
                    await client.eval(_LEAVE, 3, *self._keys, self._name, self._instance, self._own_url)
            except Exception as error:
                logger.warning("this host could not leave its peers before its lease ends: %s", error)
            if isinstance(self._redis, str):
                await client.aclose()
        self._joined_until = 0.0
        await super().aclose()

    @override
    async def knows(self, host: str) -> bool:
        if host not in self._urls:
            await self._look(lambda: host in self._urls, f"the host {host!r} is not known")
        return host in self._urls

    @override
    async def ask(self, name: str, body: bytes) -> dict[str, bytes | CorralError]:
        await self._look(lambda: False, "hosts that have just joined are not asked")
        return await super().ask(name, body)

    async def _look(self, is_known: Callable[[], bool], otherwise: str) -> None:
        """Reads the other hosts, unless that was done a moment ago."""
        if self._client is None:
            return
        async with self._looking:
            if not is_known() and time.monotonic() - self._looked >= _LOOK_SECONDS:
                try:
                    await self._renew_alone()
                except Exception as error:
                    logger.warning("Redis does not answer, so %s: %s", otherwise, error)

    async def _keep(self) -> None:
        """Renews the lease. Says so once when Redis does not answer, or when another process has taken the name."""
        problem: str | None = None
        while True:
            left = self._joined_until - _now()
            await asyncio.sleep(min(self._lease_seconds / 3, left if left > 0 else math.inf))
            before, problem = problem, None
            try:
                if (other := await self._renew()) is not None:
                    problem = f"another process is the host {self._name!r} now, at {other}"
                else:
                    await self._free_unreleased()
            except Exception as error:
                problem = f"Redis does not answer: {type(error).__name__}: {error}"
            if not self.is_joined:
                self._lose_claims()
            if problem is not None and before is None:
                logger.warning("this host cannot renew its lease: %s", problem)
            elif problem is None and before is not None:
                logger.warning("this host renews its lease again")

    async def _renew(self) -> str | None:
        """Renews the lease, and reads the other hosts. Returns the URL of another host with its name."""
        async with self._looking:
            return await self._renew_alone()

    async def _renew_alone(self) -> str | None:
        began = _now()
        try:
            arguments = self._name, self._instance, self._own_url, str(round(self._lease_seconds * 1000))
            answer = await self._eval(_RENEW, *arguments)
        finally:
            self._looked = time.monotonic()  # also after a failure, or all who wait to look would time out in turn
        texts: list[str] = [each.decode() if isinstance(each, bytes) else each for each in answer]
        if len(texts) == 1:
            return texts[0].partition(" ")[2]
        if texts.pop(0) == "0":  # this host joins, or its lease had ended
            self._lose_claims()
        self._joined_until = began + self._lease_seconds
        known = {name: value for name, value in zip(texts[::2], texts[1::2], strict=True) if name != self._name}
        gone = [name for name, value in self._known.items() if known.get(name) != value]
        self._urls = {name: parse_url(name, value.partition(" ")[2]) for name, value in known.items()}
        self._known = known
        for name in gone:
            for end in [*self._forwarding.get(name, ())]:
                end()
        return None

    async def _eval(self, script: str, *arguments: str) -> Any:
        if self._client is None:
            raise StartFailed("RedisPeers is not open; open the Corral with `async with`")
        async with asyncio.timeout(self._lease_seconds / 3):
            return await self._client.eval(script, 3, *self._keys, *arguments)

    # --- leases of names

    @property
    def is_joined(self) -> bool:
        """True while no other host can take over the sessions of this one."""
        return _now() < self._joined_until

    @override
    async def hold(self, context: ExecutionContext, on_lost: Callable[[], object]) -> Lease:
        name = _name_of(context)
        claim = self._claims.setdefault(name, _Claim())
        claim.users += 1
        try:
            async with claim.changing:
                if not (claim.is_held and self.is_joined):
                    await self._take(name)
                    claim.is_held = True
        except BaseException:
            self._leave(name, claim)
            raise
        return _Lease(self, name, claim, on_lost)

    async def _take(self, name: str) -> None:
        self._unreleased.add(name)  # until it is known that this host does not hold it, or uses it
        try:
            holder = await self._holder(name, takes=True)
        except (TimeoutError, OSError, RedisError) as error:
            text = f"Redis does not answer, so no lease of a session can be taken: {type(error).__name__}: {error}"
            raise StartFailed(text) from error
        self._unreleased.discard(name)
        if holder is None:
            raise StartFailed("this host's own lease has ended, so it cannot open a session; try again in a moment")
        if holder != self._name:
            raise SessionElsewhere(f"the host {holder!r} has this session open; send its programs there", host=holder)

    @override
    async def holder(self, context: ExecutionContext) -> str | None:
        name = _name_of(context)
        if (claim := self._claims.get(name)) is not None and claim.is_held and self.is_joined:
            return None
        try:
            holder = await self._holder(name, takes=False)
        except (TimeoutError, OSError, RedisError) as error:
            logger.warning("Redis does not answer, so the host of a session is not known: %s", error)
            return None
        return None if holder == self._name else holder

    async def _holder(self, name: str, *, takes: bool) -> str | None:
        holder = await self._eval(_HOLD, self._name, self._instance, name, str(int(takes)))
        return holder.decode() if isinstance(holder, bytes) else holder

    async def release(self, name: str, claim: _Claim) -> None:
        """Ends one use of a name, and frees it after the last."""
        try:
            async with claim.changing:
                if claim.users == 1 and claim.is_held:
                    claim.is_held = False
                    await self._tell_released(name)
        finally:
            self._leave(name, claim)

    async def _free_unreleased(self) -> None:
        """Tells Redis which names are free. Stops in time for the next renewal, which goes on with the rest."""
        with anyio.move_on_after(self._lease_seconds / 6):
            for name in [*self._unreleased]:
                await self._free(name)

    async def _free(self, name: str) -> None:
        """Tells Redis that a name is free, unless it is in use again."""
        claim = self._claims.setdefault(name, _Claim())
        claim.users += 1
        try:
            async with claim.changing:
                if claim.is_held:
                    self._unreleased.discard(name)
                else:
                    await self._tell_released(name)
        finally:
            self._leave(name, claim)

    async def _tell_released(self, name: str) -> None:
        self._unreleased.add(name)  # until Redis has answered, or a cancelled release would hold it for ever
        try:
            await self._eval(_RELEASE, self._name, self._instance, name)
        except Exception as error:
            logger.warning("Redis does not answer, so a session is still held by this host: %s", error)
        else:
            self._unreleased.discard(name)

    def _leave(self, name: str, claim: _Claim) -> None:
        claim.users -= 1
        if claim.users == 0 and self._claims.get(name) is claim:
            del self._claims[name]
            if claim.is_held:  # its last user was cancelled before it could free it
                self._unreleased.add(name)

    def _lose_claims(self) -> None:
        """Notifies the users of all held names that another host can now hold them."""
        claims = [(name, claim) for name, claim in self._claims.items() if claim.is_held]
        if claims:
            logger.warning("this host's lease has ended, so it has lost %d sessions, which it closes", len(claims))
        for name, claim in claims:
            claim.is_held = False
            self._unreleased.add(name)
            callbacks, claim.callbacks = claim.callbacks, []
            for callback in callbacks:
                callback()
