"""Rates: how many calls are allowed in a period, and whose calls are counted together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, cast, get_args

RateScope: TypeAlias = Literal["user", "organization", "everyone"]
"""Callers whose calls are counted together. A user belongs to an organization; a user without one counts alone."""

RateLimit: TypeAlias = str | Mapping[RateScope, str]
"""Rates: `"30/minute"` counts per user; a mapping has rates by scope, as in `{"user": "30/minute", "everyone":
"500/minute"}`."""

_NAMES = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_UNITS = {**_NAMES, **{name[0]: seconds for name, seconds in _NAMES.items()}}
_RATE = re.compile(r"(\d{1,9})/(?:(second|minute|hour|day)|(\d{1,7})([smhd]))", re.ASCII)

_MOST_SECONDS = 30 * 86_400
_MOST_PER_SECOND = 10_000
"""Maximum rate. Times are kept in whole microseconds; up to this rate, rounding costs less than one percent."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` calls in `seconds`: that many at once, then one more each time that `seconds / count` have passed."""

    count: int
    seconds: int
    interval_us: int = field(init=False, repr=False)
    """Microseconds until one more call is allowed, rounded up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval_us", -(self.seconds * -1_000_000 // self.count))

    def __str__(self) -> str:
        unit = [name for name, seconds in _NAMES.items() if self.seconds % seconds == 0][-1]
        number = self.seconds // _NAMES[unit]
        return f"{self.count}/{unit}" if number == 1 else f"{self.count}/{number}{unit[0]}"


def parse_rate(text: str) -> Rate:
    """Parses `30/minute` (second, minute, hour, day) or `100/10s` (s, m, h, d). Inverse of `str`.

    Raises:
        ValueError: the format is unknown, or the rate is not between 1 call in 30 days and 10,000 a second.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:100]!r} is not a rate; write a count, a slash, and second, minute, hour or day, or a number of "
            "s, m, h or d: '30/minute', '100/10s'"
        )
    count, seconds = int(match[1]), int(match[3] or 1) * _UNITS[match[2] or match[4]]
    if count < 1 or not 1 <= seconds <= _MOST_SECONDS or count > _MOST_PER_SECOND * seconds:
        raise ValueError(f"{text!r}: a rate is at least 1 call, in 1 second to 30 days, and at most 10,000 a second")
    return Rate(count, seconds)


def parse_rates(limit: RateLimit | None) -> Mapping[RateScope, Rate]:
    """Parses the rates in a `rate_limit`, by scope; empty for None.

    Raises:
        ValueError: the type is wrong, a scope is unknown, or `parse_rate` rejects a rate.
    """
    by_scope = cast("object", {} if limit is None else {"user": limit} if isinstance(limit, str) else limit)
    if not isinstance(by_scope, Mapping):
        raise ValueError(f"{by_scope!r} is neither a rate such as '30/minute' nor a mapping from scopes to rates")
    rates: dict[RateScope, Rate] = {}
    for scope, text in cast("Mapping[RateScope, object]", by_scope).items():
        if scope not in get_args(RateScope):
            raise ValueError(f"unknown rate scope {scope!r}; known: {', '.join(get_args(RateScope))}")
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not a rate such as '30/minute'")
        rates[scope] = parse_rate(text)
    return MappingProxyType(rates)
