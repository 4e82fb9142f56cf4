"""Bodies of requests and responses: their schemas for programs, their encoding, and the reading of results."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import httpx
from pydantic_core import from_json

from corral.errors import ToolError
from corral.sources.openapi.documents import DocumentNode, Unusable
from corral.sources.openapi.parameters import Style, Unwritable, header_value, pairs, plain_text, quoted_all
from corral.sources.openapi.schemas import Schemas, SchemaUse
from corral.tools.json_schema.problems import cut

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


def _kind_of(media: str) -> Kind:
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
    media, part = min(offered, key=lambda each: (_PREFERRED.index(_kind_of(each[0])), "+" in each[0]))
    kind = _kind_of(media)
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


Headers: TypeAlias = Literal["declared", "none", "all"]

_EXCERPT_CHARS = 1_000
_MAX_FAILURES = 5
_MAX_MEMBERS = 100
_STATUS = re.compile(r"[1-5](\d\d|XX)|default")
_NOISE = re.compile(
    r"(x-)?rate-?limit.*|.*-rate-?limit.*|retry-after|(x-)?(.*-)?(request|correlation|trace)-?id|content-(?!location).*"
    r"|access-control-.*|age|cache-control|connection|date|expires|pragma|server|set-cookie|status|strict-transport.*"
    r"|transfer-encoding|vary|via|x-(content-type|frame|powered|xss|runtime|served|cache|timer).*",
    re.IGNORECASE,
)
"""Headers that do not by themselves justify a result with headers: about the connection, rates or the server."""
_CHARSETS = re.compile(r"iso-8859-([1-9]|1[013-6])|windows-125[0-8]|us-ascii|utf-16(le|be)?", re.IGNORECASE)
_KINDS: tuple[Kind, ...] = ("json", "text", "binary", "form", "multipart")


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: str
    media: str
    """Media type; "" if there is no content."""
    kind: Kind | None
    schema: SchemaUse


@dataclass(frozen=True, slots=True)
class Responses:
    """Successful responses of an operation."""

    outcomes: tuple[_Outcome, ...]
    headers: dict[str, Any] | None
    """Schemas of the headers to include, by name in lower case. None means that the result is the data alone."""
    all_headers: bool

    @property
    def accept(self) -> str:
        """Accept header: the media types to request."""
        return ", ".join(dict.fromkeys(each.media for each in self.outcomes if each.media)) or "*/*"

    @property
    def redirects(self) -> bool:
        """True if a redirect is the operation's result, and so must not be followed."""
        return all(each.status.startswith("3") for each in self.outcomes) and bool(self.outcomes)

    @property
    def schema(self) -> SchemaUse:
        """Schema of a result."""
        data = _either([each.schema for each in self.outcomes])
        if self.headers is None:
            return data
        more: Any = {"type": "string"} if self.all_headers else False
        headers = {"type": "object", "properties": self.headers, "additionalProperties": more}
        properties = {"data": data.schema, "headers": headers}
        members = {"type": "object", "properties": properties, "required": ["data", "headers"]}
        return SchemaUse({**members, "additionalProperties": False}, data.names, data.same_value)

    def read(self, response: httpx.Response, operation: str) -> object:
        """Converts a response to a value for a program.

        Raises:
            ToolError: the response is not a success, or is an HTML page although JSON is declared.
        """
        status = response.status_code
        outcome = self._outcome(status)
        if not (response.is_success or (self.redirects and response.is_redirect)):
            raise ToolError(_failure(response, operation))
        data = _data(response, outcome, operation)
        if self.headers is None:
            return data
        return {"data": data, "headers": self._headers(response.headers)}

    def _outcome(self, status: int) -> _Outcome | None:
        """Returns the content declared for a status; for an undeclared one, the first declared content."""
        by_status = {each.status: each for each in self.outcomes}
        for name in (str(status), f"{status // 100}XX", "default"):
            if name in by_status:
                return by_status[name]
        return self.outcomes[0] if self.outcomes else None

    def _headers(self, headers: httpx.Headers) -> dict[str, object]:
        assert self.headers is not None
        names = [name for name in headers if name != "set-cookie"] if self.all_headers else self.headers
        return {name: _convert_header(headers[name], self.headers.get(name)) for name in names if name in headers}


def read_responses(operation: DocumentNode, schemas: Schemas, headers: Headers, *, is_head: bool) -> Responses:
    """Reads the responses of an operation. Raises Unusable."""
    declared = operation.member("responses")
    parts: dict[str, DocumentNode] = {}
    for status, each in declared.members() if declared else ():
        if not status.startswith("x-"):
            if not _STATUS.fullmatch(status.replace("x", "X")):
                raise each.refused("is neither a status nor a range of them")
            parts[status.replace("x", "X")] = each.resolved()
    chosen = _successes(parts)
    failures = [
        part for status, part in sorted(parts.items(), reverse=True) if status[0] in "d4" and status not in chosen
    ]
    outcomes = [_outcome(status, part, schemas, failures, is_head=is_head) for status, part in chosen.items()]
    if not outcomes:
        outcomes = [_Outcome("default", "", None, SchemaUse({"type": "null"}))]
    schemas_by_name: dict[str, Any] = {}
    for part in chosen.values():
        named = part.member("headers")
        for name, each in named.members() if named and headers != "none" else ():
            if not _NOISE.fullmatch(name):
                schemas_by_name[name.lower()] = _header(each.resolved(), schemas)
    if headers != "none" and not schemas_by_name and all(status.startswith("3") for status in chosen) and chosen:
        schemas_by_name["location"] = {"type": "string"}
    goes_along = headers == "all" or (headers == "declared" and (bool(schemas_by_name) or is_head))
    return Responses(
        outcomes=tuple(outcomes),
        headers=schemas_by_name if goes_along else None,
        all_headers=headers == "all" or (is_head and not schemas_by_name),
    )


def _successes(parts: dict[str, DocumentNode]) -> dict[str, DocumentNode]:
    """Returns the 2xx responses; failing that, `default`, which otherwise describes errors; else the 3xx ones."""
    for first in ("2", "d", "3"):
        if matching := {status: part for status, part in sorted(parts.items()) if status.startswith(first)}:
            return {status: part for status, part in matching.items() if status != "304"} or matching
    return {}


def _outcome(
    status: str, part: DocumentNode, schemas: Schemas, failures: Iterable[DocumentNode], *, is_head: bool
) -> _Outcome:
    content = part.member("content")
    offered = dict(content.members()) if content and not is_head and status not in ("204", "205", "304") else {}
    if not offered:
        return _Outcome(status, "", None, SchemaUse({"type": "null"}))
    media = min(offered, key=lambda each: (_KINDS.index(_kind_of(each)), "+" in each, "*" in each))
    kind = _kind_of(media)
    owner = offered[media].resolved()
    declared = owner.own("schema")
    if declared and kind == "json":
        declared = _or_failure(declared, failures)
    use = schemas.read(declared) if declared and kind in ("json", "binary") else SchemaUse({})
    if "*" in media and isinstance(use.schema, dict) and use.schema.get("format") == "binary":
        kind = "binary"
    if kind == "binary":
        use = SchemaUse({"type": "string", "format": "binary"})
    elif kind != "json":
        use = SchemaUse({"type": "string"})
    return _Outcome(status, media if media.isascii() and media.isprintable() else "*/*", kind, use)


def _or_failure(success: DocumentNode, failures: Iterable[DocumentNode]) -> DocumentNode:
    """Adds the members of a failure, as optional ones, to the schema of a success, for APIs that send both with 2xx.

    That is the case if a member, such as `ok`, tells them apart: a boolean, or one with different constants.
    """
    for failure in islice(failures, _MAX_FAILURES):
        try:
            ours, theirs = _properties(success), _properties(_json_schema(failure))
            telling = {name for name in ours.keys() & theirs.keys() if _tells(ours[name]) and _tells(theirs[name])}
        except Unusable:  # failures have no other use
            continue
        if telling:
            known = success.resolved()
            also = {name: _open(each) for name, each in theirs.items() if name not in ours or name in telling}
            properties = {name: each.value for name, each in ours.items()} | also
            return replace(known, value={**known.object(), "properties": properties})
    return success


def _json_schema(response: DocumentNode) -> DocumentNode | None:
    content = response.member("content")
    media = next((each for name, each in content.members() if _kind_of(name) == "json"), None) if content else None
    return media and media.resolved().own("schema")


def _properties(schema: DocumentNode | None) -> dict[str, DocumentNode]:
    """Returns the properties of an object; empty if there are too many."""
    properties = schema and schema.resolved().own("properties")
    return dict(properties.members()) if properties and len(properties.object()) <= _MAX_MEMBERS else {}


def _tells(member: DocumentNode) -> bool:
    schema = member.resolved().object()
    return schema.get("type") == "boolean" or not {"const", "enum"}.isdisjoint(schema)


def _open(member: DocumentNode) -> object:
    """Returns a member's schema without constants: these can be many, and differ from those of a success."""
    schema: Any = member.value
    if not isinstance(schema, dict) or ("$ref" in schema and not _tells(member)):
        return cast("object", schema)
    keywords = member.resolved().object()
    return {key: each for key, each in keywords.items() if key not in ("const", "enum")}


def _header(part: DocumentNode, schemas: Schemas) -> dict[str, Any]:
    declared = part.own("schema")
    declared_schema = schemas.read(declared).schema if declared else {}
    kind = declared_schema.get("type") if isinstance(declared_schema, dict) else None
    schema: dict[str, Any] = {"type": kind if kind in ("integer", "number", "boolean") else "string"}
    if description := part.text("description")[:300]:
        schema["description"] = description
    return schema


def _convert_header(text: str, schema: Any) -> object:
    """Converts a header's value to the type that its schema declares, if possible."""
    if schema and schema["type"] != "string":
        try:
            return from_json(text)
        except ValueError:
            pass
    return text


def _either(uses: list[SchemaUse]) -> SchemaUse:
    schemas: list[Any] = []
    for each in uses:
        if each.schema not in schemas:
            schemas.append(each.schema)
    if len(schemas) == 1:
        return uses[0]
    names = set[str]().union(*(each.names for each in uses))
    total = sum((each.same_value for each in uses), start=type(uses[0].same_value)())
    return SchemaUse({"anyOf": schemas}, names, total)


# --- received responses


def _data(response: httpx.Response, outcome: _Outcome | None, operation: str) -> object:
    if outcome is None or outcome.kind is None or response.status_code in (204, 205):
        return None
    if response.request.method == "HEAD":
        return None
    if outcome.kind == "binary":
        return response.content
    if outcome.kind != "json":
        return _text(response, response.content)
    try:
        return from_json(response.content.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    except ValueError:
        return _unexpected_body(response, operation)


def _unexpected_body(response: httpx.Response, operation: str) -> object:
    """Returns the unchanged body of a response that is not JSON as declared. The operation has taken effect by then.

    Raises:
        ToolError: the body is an HTML page, such as a proxy's sign-in page.
    """
    media = response.headers.get("content-type") or "text/plain"
    if "html" in media.lower():
        text = f"{operation} answered {response.status_code} with {_media(response)} instead of JSON"
        raise ToolError(f"{text}; it may have taken effect: {_excerpt(response)}", outcome_known=False)
    if not response.content:
        return None
    return response.content if _kind_of(media) == "binary" else _text(response, response.content)


def _failure(response: httpx.Response, operation: str) -> str:
    text = f"{operation} answered {response.status_code} {response.reason_phrase}".rstrip()
    if response.is_redirect:
        text += f", a redirect to {response.headers.get('location', '')[:300]!r}, which is not followed"
    if wait := response.headers.get("retry-after"):
        text += f" (retry after {wait[:50]}{' s' if wait.isdecimal() else ''})"
    excerpt = _excerpt(response)
    return f"{text}: {excerpt}" if excerpt else text


def _media(response: httpx.Response) -> str:
    return response.headers.get("content-type", "no content type")[:100]


def _excerpt(response: httpx.Response) -> str:
    """Returns the beginning of a body, if it is text."""
    if _kind_of(response.headers.get("content-type") or "text/plain") == "binary":
        return f"{len(response.content)} bytes of {_media(response)}" if response.content else ""
    return cut(" ".join(_text(response, response.content[: 4 * _EXCERPT_CHARS]).split()), _EXCERPT_CHARS)


def _text(response: httpx.Response, content: bytes) -> str:
    """Decodes the content. The charset can also name a Python codec that is not for text, such as `zlib`."""
    charset = response.charset_encoding or ""
    return content.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", "replace")
