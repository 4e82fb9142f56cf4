"""Styles of parameters in a request: those of OpenAPI, after RFC 6570."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

Place: TypeAlias = Literal["path", "query", "header", "cookie"]

Encode: TypeAlias = Callable[[str], str]

_DELIMITERS = {"form": ",", "simple": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "deepObject": ","}
_MAX_LEVELS = 10
"""Maximum depth of `deepObject`; beyond one level, servers differ: most of them read `a[b][c]` and `a[0]`."""


class Unwritable(Exception):
    """A value cannot be written at this place of a request; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Style:
    name: str
    explode: bool
    reserved: bool = False
    """True if RFC 3986's reserved characters are not encoded, unless they would end the value."""

    @property
    def encode(self) -> Encode:
        return _quoted_but_reserved if self.reserved else quoted_all


quoted_all = cast("Encode", partial(quote, safe=""))
_quoted_but_reserved = cast("Encode", partial(quote, safe="/:?@!$'()*,="))
in_cookie = cast("Encode", partial(quote, safe="!#$&'()*+-./:<=>?@[]^_`{|}~"))
"""Characters that RFC 6265 allows in the value of a cookie."""


def plain_text(value: object) -> str:
    """Writes a scalar. Raises Unwritable for lists, objects and bytes, and for NaN and infinities."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float() if not math.isfinite(value):
            raise Unwritable("NaN and infinities cannot be sent")
        case float() if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
        case int() | float():
            return json.dumps(value)
        case bytes():
            raise Unwritable("bytes cannot be sent here")
        case _:
            raise Unwritable("nested lists and objects cannot be sent here")


def pairs(name: str, value: Any, style: Style, encode: Encode) -> list[tuple[str, str]]:
    """Returns encoded names and values of one parameter in a query, a form or a cookie; empty for an empty list."""
    key = quoted_all(name)
    if style.name == "deepObject" and isinstance(value, dict | list):
        return [(key + suffix, text) for suffix, text in _deep(cast("object", value), encode, 0)]
    match value:
        case list():
            texts = [encode(plain_text(each)) for each in cast("list[object]", value)]
            if style.explode:
                return [(key, each) for each in texts]
            return [(key, _DELIMITERS[style.name].join(texts))] if texts else []
        case dict():
            members = [(quoted_all(key), encode(plain_text(each))) for key, each in _members(value)]
            if style.explode:
                return members
            joined = _DELIMITERS[style.name].join(text for member in members for text in member)
            return [(key, joined)] if members else []
        case _:
            return [(key, encode(plain_text(value)))]


def in_path(name: str, value: Any, style: Style, encode: Encode) -> str:
    """Writes a parameter in a path or a header: simple, label or matrix."""
    prefix, named = {"label": ".", "matrix": ";"}.get(style.name, ""), style.name == "matrix"
    between = (prefix or ",") if style.explode else ","
    match value:
        case list():
            texts = [encode(plain_text(each)) for each in cast("list[object]", value)]
            if named and style.explode:
                texts = [f"{encode(name)}={each}" for each in texts]
        case dict():
            members = [(encode(key), encode(plain_text(each))) for key, each in _members(value)]
            joint = "=" if style.explode else ","
            texts = [joint.join(member) for member in members]
        case _:
            text = encode(plain_text(value))
            return f";{encode(name)}={text}" if named and text else f";{encode(name)}" if named else prefix + text
    if named and not style.explode:
        return f";{encode(name)}={between.join(texts)}"
    return prefix + between.join(texts)


def _members(value: Any) -> Iterator[tuple[str, object]]:
    return ((str(key), each) for key, each in cast("Mapping[str, object]", value).items() if each is not None)


def _deep(value: Any, encode: Encode, level: int) -> Iterator[tuple[str, str]]:
    """Yields the keys in brackets, such as `[a][0]`, and the text of each scalar in the value."""
    if level > _MAX_LEVELS:
        raise Unwritable("it is nested too deeply")
    members: Iterator[tuple[str, object]]
    match value:
        case dict():
            members = _members(value)
        case list():
            members = ((str(number), each) for number, each in enumerate(cast("list[object]", value)))
        case _:
            yield "", encode(plain_text(value))
            return
    for key, each in members:
        for suffix, text in _deep(each, encode, level + 1):
            yield f"%5B{quoted_all(key)}%5D{suffix}", text
