"""Request bodies: their schema for programs, and their encoding."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from corral.sources.openapi.documents import DocumentNode
from corral.sources.openapi.parameters import Style, Unwritable, header_value, pairs, plain_text, quoted_all
from corral.sources.openapi.schemas import Schemas, SchemaUse

T = TypeVar("T")

Kind: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]

_PREFERRED: tuple[Kind, ...] = ("json", "form", "multipart", "text", "binary")
_TEXTS = re.compile(r"text/.*|application/(.*\+)?(xml|yaml|x-yaml|graphql|sql|x-ndjson|javascript)")
_ESSENCE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+")
_FORM_STYLES = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
_BYTES: dict[str, Any] = {"type": "string", "format": "binary"}
_FILE: dict[str, Any] = {
    "anyOf": [
        _BYTES,
        {
            "type": "object",
            "properties": {
                "data": _BYTES,
                "filename": {"type": "string"},
                "content_type": {"type": "string"},
            },
            "required": ["data"],
            "additionalProperties": False,
        },
    ]
}
"""Schema of a file in a form: its content, or an object with its content and name."""

_ABOUT = frozenset({"deprecated", "description"})

Form: TypeAlias = list[tuple[str, tuple[str | None, bytes, str]]]
"""Parts of a multipart body: name, and tuple of file name, content and media type."""


class Content(NamedTuple):
    """Body to send: bytes of a media type, or parts, whose boundary is chosen when they are encoded."""

    media: str
    data: bytes
    parts: Form | None = None


def kind_of(media: str) -> Kind:
    """Returns the kind of body for a media type, which decides how it is read and written. Wildcards count as JSON."""
    essence = media.partition(";")[0].strip().lower()
    if essence in ("application/json", "*/*", "application/*") or essence.endswith(("+json", "/json")):
        return "json"
    if essence == "application/x-www-form-urlencoded":
        return "form"
    if essence.startswith("multipart/"):
        return "multipart"
    return "text" if _TEXTS.fullmatch(essence) else "binary"


@dataclass(frozen=True, slots=True)
class Body:
    media: str
    kind: Kind
    required: bool
    schema: SchemaUse
    styles: Mapping[str, Style] = field(default_factory=dict[str, Style])
    """Styles of a form's fields, if the document declares them."""
    media_of: Mapping[str, str] = field(default_factory=dict[str, str])
    """Media types of a multipart body's parts, if the document declares them."""

    def write(self, value: Any) -> Content:
        """Raises Unwritable."""
        match self.kind:
            case "json":
                return Content(self.media, _json(value))
            case "form":
                return Content(self.media, self._form(_fields(value)))
            case "multipart":
                fields = _fields(value).items()
                parts = [part for name, each in fields if each is not None for part in self._parts(name, each)]
                return Content(self.media, b"", parts)
            case _:
                return Content(self.media, _raw(value))

    def _form(self, fields: dict[str, Any]) -> bytes:
        encoded: list[tuple[str, str]] = []
        for name, value in fields.items():
            if value is None:
                continue
            style = self.styles.get(name)
            if style is None and _is_nested(value):
                encoded.append((quoted_all(name), quoted_all(_json(value).decode())))
            else:
                style = style or Style("form", explode=True)
                encoded += _with_field(name, partial(pairs, name, value, style, style.encode))
        return "&".join(f"{name}={text}" for name, text in encoded).encode("ascii")

    def _parts(self, name: str, value: object) -> Form:
        if isinstance(value, list) and not self.media_of.get(name, "").endswith("json"):
            return [self._part(name, each) for each in cast("list[object]", value) if each is not None]
        return [self._part(name, value)]

    def _part(self, name: str, value: Any) -> tuple[str, tuple[str | None, bytes, str]]:
        media = self.media_of.get(name, "")
        file = _file(value)
        if file is not None:
            content_type = str(file.get("content_type") or media or "application/octet-stream")
            _with_field(name, lambda: header_value(content_type))
            return name, (str(file.get("filename") or name), _raw(file["data"]), content_type)
        if isinstance(value, dict | list):
            return name, (None, _json(cast("object", value)), media or "application/json")
        return name, (None, _with_field(name, lambda: plain_text(value)).encode("utf-8"), media or "text/plain")


def read_body(operation: DocumentNode, schemas: Schemas) -> Body | None:
    """Reads the body of an operation, in the media type that is easiest for programs. Raises Unusable."""
    declared = operation.member("requestBody")
    if declared is None:
        return None
    content = declared.member("content")
    offered = [(media, part) for media, part in content.members() if _ESSENCE.match(media)] if content else []
    if not offered:
        return None
    media, part = min(offered, key=lambda each: (_PREFERRED.index(kind_of(each[0])), "+" in each[0]))
    kind = kind_of(media)
    owner = part.resolved()
    schema = owner.own("schema")
    use = schemas.read(schema) if schema else SchemaUse({})
    if "*" in media:
        is_binary = isinstance(use.schema, dict) and use.schema.get("format") == "binary"
        media, kind = ("application/octet-stream", "binary") if is_binary else ("application/json", "json")
    styles: dict[str, Style] = {}
    media_of: dict[str, str] = {}
    encoding = owner.member("encoding") if kind in ("form", "multipart") else None
    for name, each in encoding.members() if encoding else ():
        if {"style", "explode", "allowReserved"} & each.object().keys():
            named = each.text("style") or "form"
            if named not in _FORM_STYLES:
                raise each.refused(f"no field has the style {named[:50]!r}")
            styles[name] = Style(named, each.flag("explode", default=named == "form"), each.flag("allowReserved"))
        first = each.text("contentType").partition(",")[0].strip()
        if _ESSENCE.fullmatch(first) and "*" not in first:
            media_of[name] = first
    body = Body(media, kind, declared.flag("required"), use, styles, media_of)
    match kind:
        case "text":
            return replace(body, schema=SchemaUse({"type": "string"}))
        case "binary":
            return replace(body, schema=SchemaUse(_BYTES))
        case "multipart":
            return replace(body, schema=_with_files(use, schema, schemas))
        case _:
            return body


def _with_files(use: SchemaUse, declared: DocumentNode | None, schemas: Schemas) -> SchemaUse:
    """Returns the schema of a multipart body with its binary fields as files. Resolves references to such fields."""
    part = declared.resolved() if declared else None
    if part is None or not isinstance(part.value, dict) or part.own("properties") is None:
        return use
    written = use if part is declared else schemas.read(part)
    assert isinstance(written.schema, dict)
    properties = cast("dict[str, Any]", written.schema.get("properties", {}))
    files = {name: _as_file(each) for name, each in properties.items()}
    return SchemaUse({**written.schema, "properties": files}, written.names, written.same_value)


def _as_file(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    if known.get("type") == "array" and "items" in known:
        return {**known, "items": _as_file(known["items"])}
    is_binary = known.get("format") == "binary" or ("contentMediaType" in known and "contentEncoding" not in known)
    return {**_FILE, **{key: known[key] for key in _ABOUT & known.keys()}} if is_binary else known


def _file(value: object) -> dict[str, Any] | None:
    """Converts a file in either form of `_FILE` to the form with a name."""
    if isinstance(value, bytes):
        return {"data": value}
    if not isinstance(value, dict):
        return None
    known = cast("dict[str, Any]", value)
    is_file = isinstance(known.get("data"), bytes | str) and known.keys() <= {"data", "filename", "content_type"}
    return known if is_file else None


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unwritable("body: a form must be an object")
    return cast("dict[str, Any]", value)


def _raw(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode("utf-8", "replace")
        case _:
            raise Unwritable("body: expected a string or bytes")


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_base64)
        return text.encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise Unwritable("body: it is not JSON: NaN, infinities and cycles cannot be sent") from error


def _base64(value: object) -> str:
    """Encodes bytes in JSON as OpenAPI's `format: byte`."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    raise TypeError(type(value).__name__)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in cast("list[object]", value))
    )


def _with_field(name: str, write: Callable[[], T]) -> T:
    """Returns the result of `write`. Adds the field's name to an Unwritable."""
    try:
        return write()
    except Unwritable as problem:
        raise Unwritable(f"body.{name}: {problem}") from None
