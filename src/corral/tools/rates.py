"""Rates: how many calls in how much time, and whose calls count together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, cast, get_args

RateScope: TypeAlias = Literal["user", "organization", "everyone"]
"""The callers whose calls count together. A user belongs to an organization; no organization is a tenant of its own."""

RateLimit: TypeAlias = str | Mapping[RateScope, str]
"""`"30/minute"` counts for each user; a mapping says for whom: `{"user": "30/minute", "everyone": "500/minute"}`."""

_NAMES = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_UNITS = {**_NAMES, **{name[0]: seconds for name, seconds in _NAMES.items()}}
_RATE = re.compile(r"(\d{1,9})/(?:(second|minute|hour|day)|(\d{1,7})([smhd]))", re.ASCII)

_MOST_SECONDS = 30 * 86_400
_MOST_PER_SECOND = 10_000
"""Times are kept in whole microseconds; up to here rounding costs a rate less than one percent."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` calls in `seconds`: so many at once, and then one each time that its share of the period has passed."""

    count: int
    seconds: int
    interval_us: int = field(init=False, repr=False)
    """Microseconds in which one more call becomes allowed, rounded up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval_us", -(self.seconds * -1_000_000 // self.count))

    def __str__(self) -> str:
        unit = [name for name, seconds in _NAMES.items() if self.seconds % seconds == 0][-1]
        number = self.seconds // _NAMES[unit]
        return f"{self.count}/{unit}" if number == 1 else f"{self.count}/{number}{unit[0]}"


def parse_rate(text: str) -> Rate:
    """Reads `30/minute` (second, minute, hour, day) or `100/10s` (s, m, h, d): the inverse of `str`.

    Raises:
        ValueError: it has another form, or is not between 1 call in 30 days and 10,000 a second.
    """
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:100]!r} is not a rate; write a count, a slash, and second, minute, hour or day, or a number of "
            "s, m, h or d: '30/minute', '100/10s'"
        )
    count, seconds = int(found[1]), int(found[3] or 1) * _UNITS[found[2] or found[4]]
    if count < 1 or not 1 <= seconds <= _MOST_SECONDS or count > _MOST_PER_SECOND * seconds:
        raise ValueError(f"{text!r}: a rate is of at least 1 call, in 1 second to 30 days, and at most 10,000 a second")
    return Rate(count, seconds)


def parse_rates(limit: RateLimit | None) -> Mapping[RateScope, Rate]:
    """The rates in a `rate_limit`, by scope; empty for None.

    Raises:
        ValueError: it is of another type, a scope is unknown, or as `parse_rate`.
    """
    given = cast("object", {} if limit is None else {"user": limit} if isinstance(limit, str) else limit)
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r} is neither a rate such as '30/minute' nor a mapping from scopes to rates")
    rates: dict[RateScope, Rate] = {}
    for scope, text in cast("Mapping[RateScope, object]", given).items():
        if scope not in get_args(RateScope):
            raise ValueError(f"unknown rate scope {scope!r}; known: {', '.join(get_args(RateScope))}")
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not a rate such as '30/minute'")
        rates[scope] = parse_rate(text)
    return MappingProxyType(rates)
