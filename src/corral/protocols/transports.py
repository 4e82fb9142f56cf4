"""Transports of guests over the protocols in this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from corral.guest import Transport
from corral.types import Language

_SUFFIXES: Mapping[Language, str] = {"typescript": ".ts", "python": ".py"}


@cache
def transport(protocol: str, language: Language, *shared: str) -> Transport:
    """Returns the transport of a protocol. `shared` are modules of `guests` that it imports."""
    folder, suffix = files("corral.protocols.guests"), _SUFFIXES[language]
    source, *others = ((folder / f"{name}{suffix}").read_text(encoding="utf-8") for name in (protocol, *shared))
    return Transport(source, tuple(zip(shared, others, strict=True)))
