"""Parameters of an operation: their list, their names for programs, and their styles according to RFC 6570."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote, unquote

from corral.sources.openapi.documents import DocumentNode
from corral.sources.openapi.schemas import Schemas, SchemaUse

Place: TypeAlias = Literal["path", "query", "header", "cookie"]

Encode: TypeAlias = Callable[[str], str]

_DELIMITERS = {"form": ",", "simple": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "deepObject": ","}
_MAX_LEVELS = 10
"""Maximum depth of `deepObject`. Beyond one level, servers differ; most read `a[b][c]` and `a[0]`."""


class Unwritable(Exception):
    """A value cannot be written at this location of a request. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Style:
    name: str
    explode: bool
    reserved: bool = False
    """True if RFC 3986's reserved characters stay unencoded, unless they would end the value."""

    @property
    def encode(self) -> Encode:
        return _quoted_but_reserved if self.reserved else quoted_all


quoted_all = cast("Encode", partial(quote, safe=""))
_quoted_but_reserved = cast("Encode", partial(quote, safe="/:?@!$'()*,="))
in_cookie = cast("Encode", partial(quote, safe="!#$&'()*+-./:<=>?@[]^_`{|}~"))
"""Characters that RFC 6265 allows in the value of a cookie."""


def plain_text(value: object) -> str:
    """Writes a scalar. Raises Unwritable for lists, objects, bytes, NaN and infinities."""
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
    """Returns encoded names and values of one parameter in a query, form or cookie; empty for an empty list."""
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


def _in_path(name: str, value: Any, style: Style, encode: Encode) -> str:
    """Writes a parameter in a path or a header, in the style simple, label or matrix."""
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
    """Yields each scalar in the value as text, with its keys in brackets, such as `[a][0]`."""
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


# --- parameters ---------------------------------------------------------------------------------------------

BODY = "body"
"""Name of a request's body among the parameters."""

_NotOurs: TypeAlias = Callable[[Place, str], bool]
"""True if a parameter is for credentials, which the host sets."""

_PLACES: tuple[Place, ...] = ("path", "query", "header", "cookie")
_STYLES: dict[Place, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles by location; the first one is the default."""
_OWN_HEADERS = frozenset(
    """accept accept-encoding authorization connection content-encoding content-length content-type cookie expect
    forwarded host keep-alive proxy-authorization proxy-connection te trailer transfer-encoding upgrade via""".split()
)
"""Headers that cannot be parameters: OpenAPI excludes them, or they frame a request or name its sender."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_MAX_DESCRIPTION = 1_000


@dataclass(slots=True)
class Line:
    """Request as built from parameters, before its body."""

    path: str = ""
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    key: str
    """Name of the parameter in a tool's input."""
    name: str
    place: Place
    required: bool
    schema: SchemaUse
    style: Style | None
    """Style of the parameter; None if it is encoded as `media`."""
    media: str = ""

    def path_text(self, value: object) -> str:
        """Writes the value for the path, percent-encoded. Raises Unwritable."""
        return (
            quoted_all(self._content(value))
            if self.style is None
            else _in_path(self.name, value, self.style, quoted_all)
        )

    def write(self, value: object, line: Line) -> None:
        """Adds the value to the query, the headers or the cookies. Raises Unwritable."""
        style = self.style or Style("form", explode=False)
        value = self._content(value) if self.style is None else value
        match self.place:
            case "query":
                line.query += pairs(self.name, value, style, style.encode)
            case "cookie":
                line.cookies += pairs(self.name, value, style, in_cookie)
            case _:
                line.headers.append((self.name, header_value(_in_path(self.name, value, style, str))))

    def _content(self, value: object) -> str:
        if "json" not in self.media:
            return plain_text(value)
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise Unwritable("it is not JSON") from error


def header_value(text: str) -> str:
    """Returns the text unchanged. Raises Unwritable if a header cannot contain it."""
    if not _VALUE.fullmatch(text):
        raise Unwritable("a header must be printable ASCII, without line breaks or surrounding spaces")
    return text


class PathTemplate:
    """Path such as `/users/{id}`, whose parameters stay within their segments. Raises Unusable."""

    def __init__(self, template: DocumentNode, text: str, parameters: Iterable[Parameter]) -> None:
        known = {each.name: each for each in parameters if each.place == "path"}
        if not text.startswith("/") or re.search(r"[?#\s\\]", text):
            raise template.refused("its path does not begin with a slash, or is more than a path")
        self.parameters: list[Parameter] = []
        self._segments: list[list[str | Parameter]] = []
        for segment in text.split("/")[1:]:
            parts: list[str | Parameter] = []
            for position, piece in enumerate(re.split(r"\{([^{}]*)\}", segment)):
                if position % 2 == 0:
                    parts.append(quote(piece, safe="%:@!$&'()*+,;=~"))
                elif piece in known:
                    parts.append(known[piece])
                    self.parameters.append(known[piece])
                else:
                    raise template.refused(f"its path has {{{piece[:50]}}}, which is not one of its parameters")
            if unquote(segment) in (".", ".."):
                raise template.refused("its path has the segment '.' or '..'")
            self._segments.append(parts)

    def fill(self, values: dict[str, Any]) -> str:
        """Returns the path, percent-encoded. Raises Unwritable if a value would lead elsewhere."""
        return "".join(f"/{self._segment(parts, values)}" for parts in self._segments)

    def _segment(self, parts: list[str | Parameter], values: dict[str, Any]) -> str:
        written = ""
        for part in parts:
            if isinstance(part, str):
                written += part
                continue
            value = values.get(part.key)
            try:
                if value in (None, "", [], {}):
                    raise Unwritable("a part of a path cannot be empty")
                written += part.path_text(value)
                if {".", ".."} & set(re.split(r"[/\\]", unquote(written))):
                    raise Unwritable("it would lead to another path")
            except Unwritable as problem:
                raise Unwritable(f"{part.key}: {problem}") from None
        return written


def read_parameters(
    item: DocumentNode, operation: DocumentNode, schemas: Schemas, not_ours: _NotOurs
) -> list[Parameter]:
    """Reads the parameters of the path, and of the operation, which override them. Omits those that the host sets.

    In a tool's input, parameters keep their names. If several share a name, the first in the order path, query, header,
    cookie keeps it; the others get a prefix, as in `query_id`, `header_id`, `cookie_id`. The name `body` always gets
    one. Raises Unusable.
    """
    nodes: dict[tuple[str, str], DocumentNode] = {}
    for owner in (item, operation):
        declared = owner.member("parameters")
        for each in declared.items() if declared else ():
            name = each.text("name")
            nodes[each.text("in"), name.lower() if each.text("in") == "header" else name] = each
    parts = sorted(nodes.values(), key=lambda part: _PLACES.index(_place(part)))
    keys = {BODY}
    parameters: list[Parameter] = []
    for part in parts:
        name, place = part.text("name"), _place(part)
        if not name or (place in ("header", "cookie") and not _TOKEN.fullmatch(name)):
            raise part.refused("its name cannot be sent")
        if (place == "header" and name.lower() in _OWN_HEADERS) or not_ours(place, name):
            continue
        key = name if name not in keys else f"{place}_{name}"
        while key in keys:
            key += "_"
        keys.add(key)
        parameters.append(_parameter(part, key, name, place, schemas))
    return parameters


def _place(part: DocumentNode) -> Place:
    for place in _PLACES:
        if part.text("in") == place:
            return place
    raise part.refused(f"a parameter must be in one of {', '.join(_PLACES)}")


def _parameter(part: DocumentNode, key: str, name: str, place: Place, schemas: Schemas) -> Parameter:
    style: Style | None = None
    media, owner = "", part
    content = part.member("content")
    if content is not None:
        media, owner = next(content.members(), ("", content))
    else:
        named = part.text("style") or _STYLES[place][0]
        if named not in _STYLES[place]:
            raise part.refused(f"no {place} parameter has the style {named[:50]!r}")
        style = Style(named, part.flag("explode", default=named == "form"), part.flag("allowReserved"))
    declared = owner.own("schema")
    use = schemas.read(declared) if declared else SchemaUse({})
    description = part.text("description")[:_MAX_DESCRIPTION]
    schema = {} if isinstance(use.schema, bool) else dict(use.schema)
    if description:
        schema["description"] = description
    if part.flag("deprecated"):
        schema["deprecated"] = True
    return Parameter(
        key=key,
        name=name,
        place=place,
        required=place == "path" or part.flag("required"),
        schema=SchemaUse(schema, use.names, use.same_value),
        style=style,
        media=media,
    )
