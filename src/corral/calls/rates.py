"""Rate limits of tools, users and organizations, and the store that counts calls.

The algorithm is GCRA, the generic cell rate algorithm. A bucket stores a time, which each call moves `seconds / count`
into the future. The bucket is full when that time is `seconds` from now. So at most `count + T * count / seconds` calls
are allowed in any period T.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from corral.arguments import checked
from corral.errors import ConfigError, RateLimited
from corral.policy.rules import Limit
from corral.tools import Tool
from corral.tools.rates import Rate, RateScope, parse_rates
from corral.types import ExecutionContext

_LONGEST_ID = 120
"""Maximum characters of an id, with its organization, in a key. Longer ones are hashed."""


class Bucket(NamedTuple):
    """Calls counted together: an ASCII key of bounded length, and their rate.

    `organization` is the key of the callers' organization; empty for a bucket that counts the calls of everyone.
    """

    key: str
    rate: Rate
    organization: str = ""


class Refusal(NamedTuple):
    """Refusal of a call: the bucket that will be full the longest, and for how many seconds.

    Without a bucket, the store is unreachable, and `seconds` is the time until the next attempt.
    """

    seconds: float
    bucket: Bucket | None


class RateStore(ABC):
    """Store that counts calls. Subclass it to share limits between hosts."""

    @abstractmethod
    async def take(self, buckets: Sequence[Bucket]) -> Refusal | None:
        """Counts one call in every bucket if all allow it, else in no bucket. The buckets' keys are distinct.

        After `Refusal.seconds` all of them allow a call, unless another caller took it. An unreachable store must not
        raise.
        """

    async def aclose(self) -> None:
        """Frees the store's resources. Idempotent."""


class MemoryRates(RateStore):
    """Counts in this process, for any number of event loops and threads.

    At most `most_keys` buckets are kept. Beyond that, empty buckets are dropped, which loses nothing. If nearly all are
    in use, the least recently used ones are reset. Refusing calls instead would let a caller who keeps using new names
    lock out everyone else.

    Raises:
        ConfigError: `most_keys` is not positive.
    """

    def __init__(self, *, most_keys: int = 100_000, clock: Callable[[], int] = time.monotonic_ns) -> None:
        if most_keys < 1:
            raise ConfigError(f"most_keys must be positive, not {most_keys}")
        self._most_keys = most_keys
        self._clock = clock
        self._paid_until: dict[str, int] = {}  # microseconds; least recently used first
        self._lock = threading.Lock()

    async def take(self, buckets: Sequence[Bucket]) -> Refusal | None:
        longest, narrowest = 0, None
        taken: list[tuple[str, int]] = []
        with self._lock:
            now = self._clock() // 1000
            paid_until = self._paid_until
            for bucket in buckets:
                key, rate, _ = bucket
                interval = rate.interval_us
                full = now + rate.count * interval
                until = paid_until.get(key, now)
                if until < now:
                    until = now
                elif until > full:  # the rate was lower then
                    until = full
                until += interval
                if until - full > longest:
                    longest, narrowest = until - full, bucket
                taken.append((key, until))
            if narrowest is not None:
                return Refusal(longest / 1_000_000, narrowest)
            for key, until in taken:
                paid_until.pop(key, None)
                paid_until[key] = until
            if len(paid_until) > self._most_keys:
                self._make_room(now)
        return None

    def _make_room(self, now: int) -> None:
        """Drops at least an eighth of the buckets. This takes milliseconds, so it should be rare."""
        live = {key: until for key, until in self._paid_until.items() if until > now}
        excess = len(live) - self._most_keys * 7 // 8
        self._paid_until = dict(islice(live.items(), max(excess, 0), None))


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Rate limits over all tools together, and their store. A tool's own rates apply too.

    Raises:
        ConfigError: a rate is invalid.
    """

    user: str | None = None
    """For each user of each organization, for example `30/minute`."""
    organization: str | None = None
    """For each organization, over all its users."""
    everyone: str | None = None
    """For all calls."""
    store: RateStore = field(default_factory=MemoryRates)
    _rates: Mapping[RateScope, Rate] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        limits: dict[RateScope, str | None] = {
            "user": self.user,
            "organization": self.organization,
            "everyone": self.everyone,
        }
        try:
            rates = parse_rates({scope: text for scope, text in limits.items() if text is not None})
        except ValueError as error:
            raise ConfigError(f"RateLimits: {error}") from None
        object.__setattr__(self, "_rates", rates)

    def buckets(self, tool: Tool, name: str, context: ExecutionContext) -> tuple[Bucket, ...]:
        """Returns the buckets for a call of `tool`, which programs call `name`; empty if no rate applies."""
        if not (tool.rates or self._rates):
            return ()
        return _buckets((("", self._rates), (name, tool.rates)), context)

    def buckets_of(self, limits: Iterable[Limit], context: ExecutionContext) -> tuple[Bucket, ...]:
        """Returns the buckets for a policy's limits, one for all tools of a rule."""
        return _buckets(((f"rule {limit.rule}", limit.rates) for limit in limits), context)

    async def take(self, buckets: Sequence[Bucket], name: str) -> None:
        """Counts one call of a tool, which programs call `name`.

        Raises:
            RateLimited: a bucket is full; the call is not counted.
        """
        refusal = await self.store.take(buckets)
        if refusal is not None:
            raise RateLimited(_explained(refusal, name), retry_after_seconds=refusal.seconds)


def _buckets(named: Iterable[tuple[str, Mapping[RateScope, Rate]]], context: ExecutionContext) -> tuple[Bucket, ...]:
    """Returns the buckets for rates by name. No name has a colon, so that keys are unambiguous."""
    whose = _identities(context)
    return tuple(
        Bucket(f"{scope}:{name}:{whose[scope]}", rate, "" if scope == "everyone" else whose["organization"])
        for name, rates in named
        for scope, rate in rates.items()
    )


def _identities(context: ExecutionContext) -> dict[RateScope, str]:
    """Returns the caller's key for each scope. Keys are distinct, and short however long the ids are."""
    name = context.organization_id
    organization = "-" if name is None else f"{len(name)}:{name}"
    return {"user": _key(f"{organization}:{context.user_id}"), "organization": _key(organization), "everyone": ""}


def _key(identity: str) -> str:
    if len(identity) <= _LONGEST_ID and identity.isascii():
        return identity
    return "#" + sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()  # others begin with a digit or "-"


def _explained(refusal: Refusal, name: str) -> str:
    again = f"try again in {math.ceil(refusal.seconds * 10) / 10:.1f}".removesuffix(".0") + " s"
    if refusal.bucket is None:
        return f"tools.{name} has a rate limit that cannot be checked at the moment; {again}"
    scope, tool, _ = refusal.bucket.key.split(":", 2)
    whose = "for everyone" if scope == "everyone" else f"per {scope}"
    which = "" if tool else " over all tools"
    return f"tools.{name}: the limit of {refusal.bucket.rate} {whose}{which} is used up; {again}"
