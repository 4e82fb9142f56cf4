"""OpenAPI document as plain data of limited size, whose nodes know their JSON pointers. Swagger 2.0 is converted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import yaml
from yaml import CollectionEndEvent, CollectionStartEvent, MappingNode, SequenceNode, YAMLError, load, parse  # pyright: ignore[reportUnknownVariableType]

from corral.errors import ConfigError
from corral.tools.json_schema.keywords import pointer_tokens, value_at

_MAX_EVENTS = 500_000
"""Maximum number of YAML events, which take three seconds to read. Airflow's document (460 kB) has 42,000."""
_MAX_MERGED = 100_000


def load_yaml(text: str) -> Any:
    """Parses YAML. Raises ValueError if it is invalid, too deeply nested, or expands too much."""
    try:
        _require_flat(text)
        return load(text, _Loader)  # noqa: S506 - a safe loader
    except YAMLError as error:
        raise ValueError(str(error)) from error


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""LibYAML's loader, if PyYAML was built with it."""


def _require_flat(text: str) -> None:
    """Raises ValueError if nesting is deep: LibYAML's loader recurses in C without a limit, but its parser does not."""
    level = 0
    for number, event in enumerate(cast("Iterable[object]", parse(text, _SafeLoader))):
        if number >= _MAX_EVENTS:
            raise ValueError("it has too many parts; JSON can have more")
        if isinstance(event, CollectionStartEvent):
            level += 1
        elif isinstance(event, CollectionEndEvent):
            level -= 1
        if level > _MAX_LEVELS:
            raise ValueError("it is nested too deeply")


class _Loader(_SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012

    _merged = 0

    def flatten_mapping(self, node: MappingNode) -> None:
        """Counts the members of merge keys before they are copied, because they can multiply."""
        for key, value in cast("list[tuple[Any, Any]]", node.value):
            if key.tag != "tag:yaml.org,2002:merge":
                continue
            merged = value.value if isinstance(value, SequenceNode) else [value]
            for each in merged:
                if isinstance(each, MappingNode) and each is not node:
                    self.flatten_mapping(each)
                    self._merged += len(each.value)
                if self._merged > _MAX_MERGED:
                    raise ValueError(
                        f"its merge keys (<<) add more than {_MAX_MERGED} members; write them out where they are used"
                    )
        super().flatten_mapping(node)  # pyright: ignore[reportUnknownMemberType]


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?", "-0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


_MAX_JSON_BYTES = 64_000_000
_MAX_YAML_BYTES = 8_000_000
"""Maximum size of YAML: parsing a megabyte takes a second."""
_MAX_NODES = 5_000_000
"""Maximum number of parts, counting every repetition by a YAML alias. GitHub's document has half a million."""
_MAX_LEVELS = 200
_MAX_HOPS = 32
"""Maximum length of a chain of references."""
_SLASH = re.compile("%2F", re.IGNORECASE)
"""Escape that documents use for a slash within a name, where RFC 6901 requires `~1`."""


class Unusable(Exception):
    """A part of a document cannot be used. The text has its pointer and the reason."""


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """Value in a document, and its JSON pointer."""

    root: dict[str, Any]
    value: Any
    pointer: str = "#"

    def refused(self, why: str) -> Unusable:
        return Unusable(f"{self.pointer[:300]}: {why}")

    def member(self, name: str) -> DocumentNode | None:
        """Returns a member with references resolved; None if it is null or missing."""
        node = self.own(name)
        return node and node.resolved()

    def own(self, name: str) -> DocumentNode | None:
        """Returns a member like `member`, but does not resolve a reference, because schemas resolve their own."""
        value = self.object().get(name)
        return None if value is None else self._below(name, value)

    def members(self) -> Iterator[tuple[str, DocumentNode]]:
        """Yields all members, without resolving references."""
        return ((name, self._below(name, value)) for name, value in self.object().items())

    def items(self) -> list[DocumentNode]:
        """Returns the items of a list, with references resolved."""
        if not isinstance(self.value, list):
            raise self.refused("is not a list")
        return [self._below(str(number), each).resolved() for number, each in enumerate(cast("list[Any]", self.value))]

    def object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.refused("is not an object")
        return cast("dict[str, Any]", self.value)

    def text(self, name: str) -> str:
        """Returns a member that is a string; "" if it is missing."""
        value = self.object().get(name, "")
        if not isinstance(value, str):
            raise self._below(name, value).refused("is not a string")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.object().get(name, default)
        if not isinstance(value, bool):
            raise self._below(name, value).refused("is neither true nor false")
        return value

    def resolved(self) -> DocumentNode:
        """Follows a chain of references to its end; returns itself if it is not a reference."""
        part = self
        for _ in range(_MAX_HOPS):
            if not isinstance(part.value, dict):
                return part
            known = cast("dict[str, Any]", part.value)
            if "$ref" not in known:
                return part
            part = part.target(known["$ref"])
        raise self.refused("its references are circular, or too many")

    def target(self, reference: object) -> DocumentNode:
        """Follows one reference."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            shown = json.dumps(reference, default=str)[:100]
            raise self.refused(f"refers to {shown}, which is not in this document; bundle it into one document")
        fragment = unquote(_SLASH.sub("~1", reference[1:]))
        try:
            value = value_at(self.root, pointer_tokens(fragment))
        except LookupError:
            raise self.refused(f"refers to {reference[:200]}, which does not exist") from None
        return DocumentNode(self.root, value, reference)

    def _below(self, name: str, value: Any) -> DocumentNode:
        return DocumentNode(self.root, value, child_pointer(self.pointer, name))


def child_pointer(pointer: str, name: str) -> str:
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


def read_document(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Reads a document from an object, a file, or text, which is JSON if it begins with a brace, and YAML otherwise.

    A text of one line, without a brace, is the path of a file.

    Raises:
        ConfigError: the document is invalid, too large, or not OpenAPI 3.0 or 3.1 or Swagger 2.0.
    """
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        raise ConfigError("the OpenAPI document is a URL: download it first; nothing is fetched")
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source and "{" not in source):
        source = _file(Path(source))
    root, size = _Copy().of(_parse(source) if isinstance(source, str) else source)
    if size > _MAX_NODES:
        raise ConfigError(f"the OpenAPI document has {size} parts; at most {_MAX_NODES} are allowed")
    if not isinstance(root, dict):
        raise ConfigError(f"the OpenAPI document is not an object, but {type(root).__name__}; pass the whole document")
    known = cast("dict[str, Any]", root)
    if is_swagger(known):
        return known
    version = known.get("openapi")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        kind = f"swagger {known['swagger']}" if "swagger" in known else f"openapi {json.dumps(version)[:40]}"
        raise ConfigError(f"the document must be OpenAPI 3.0 or 3.1, or Swagger 2.0; it is {kind}")
    return known


def is_swagger(root: Mapping[str, Any]) -> bool:
    """True if a document declares that it is Swagger 2.0."""
    return str(root.get("swagger")) == "2.0"


def _file(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MAX_JSON_BYTES:
            raise ConfigError(f"{path} has {size} bytes; the maximum is {_MAX_JSON_BYTES}")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _parse(text: str) -> object:
    is_json = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    allowed = _MAX_JSON_BYTES if is_json else _MAX_YAML_BYTES
    if len(text) > allowed:
        hint = "" if is_json else "; JSON can be longer"
        raise ConfigError(f"the OpenAPI document has {len(text)} characters; the maximum is {allowed}{hint}")
    try:
        if not is_json:
            return load_yaml(text)
        try:
            return json.loads(text.lstrip("\ufeff"))
        except json.JSONDecodeError:
            if len(text) > _MAX_YAML_BYTES:
                raise
            return load_yaml(text)  # its flow style also begins with a brace
    except RecursionError:
        raise ConfigError("the OpenAPI document is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"the OpenAPI document is neither JSON nor YAML: {str(error)[:300]}") from error


class _Copy:
    """Copies plain data. Values repeated by YAML's aliases are copied once, but counted each time."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}
        self._kept: list[object] = []
        """Originals, kept alive so that no other object gets the identity of one."""
        self._path: list[str] = []
        self._open: set[int] = set()

    def of(self, value: Any) -> tuple[Any, int]:
        """Returns the copy and its number of parts."""
        if isinstance(value, str):
            return _well_formed(value), 1
        if value is None or isinstance(value, bool | int | float):
            return value, 1
        identity = id(value)
        if identity in self._known:
            return self._known[identity]
        if len(self._path) >= _MAX_LEVELS or identity in self._open:
            raise self._refusal("is nested too deeply")
        self._open.add(identity)
        copied: Any
        size = 1
        if isinstance(value, dict | Mapping):
            copied = {}
            for key, each in cast("Mapping[object, object]", value).items():
                if not isinstance(key, str | int) or isinstance(key, bool):
                    raise self._refusal(f"has the non-string key {key!r:.50}")
                name = _well_formed(str(key))
                copied[name], more = self._member(name, each)
                size += more
        elif isinstance(value, list | tuple):
            copied = []
            for number, each in enumerate(cast("list[object]", value)):
                member, more = self._member(str(number), each)
                copied.append(member)
                size += more
        else:
            raise self._refusal(f"has a {type(value).__name__}, which is not data")
        self._open.discard(identity)
        self._kept.append(cast("object", value))
        self._known[identity] = copied, size
        return copied, size

    def _member(self, name: str, value: object) -> tuple[Any, int]:
        if value is None or value is True or value is False:
            return value, 1
        self._path.append(name)
        copied = self.of(value)
        self._path.pop()
        return copied

    def _refusal(self, why: str) -> ConfigError:
        pointer = reduce(child_pointer, self._path, "#")
        return ConfigError(f"the OpenAPI document cannot be used. {pointer[:300]}: {why}")


def _well_formed(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# --- Swagger 2.0 --------------------------------------------------------------------------------------------

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_MAX_MEDIA_TYPES = 10
_JSON = ["application/json"]
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_FILE = {"type": "string", "format": "binary"}
_OF_A_PARAMETER = frozenset({"allowEmptyValue", "collectionFormat", "description", "in", "name", "required"})
"""Members of a parameter that are not part of its schema; all others are."""
_STYLES: Mapping[object, Mapping[str, object]] = {
    "csv": {"explode": False},
    "multi": {"explode": True},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
}

Parameters = dict[tuple[str, str], dict[str, Any]]
"""Parameters by their location and name."""


def converted(root: dict[str, Any]) -> dict[str, Any]:
    """Returns the document as OpenAPI 3.0."""
    return _Conversion(root).document()


class _Conversion:
    """Converts each part of a document once, however often it is referenced."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[tuple[str, ...], int], Any] = {}

    def document(self) -> dict[str, Any]:
        root = self._root
        paths = root.get("paths")
        if isinstance(paths, dict):
            items = cast("dict[str, Any]", paths).items()
            paths = {path: self._usable(item, self._path_item, "path") for path, item in items}
        schemes = root.get("securityDefinitions")
        if isinstance(schemes, dict):
            schemes = {name: _scheme(each) for name, each in cast("dict[str, Any]", schemes).items()}
        return {
            **root,
            "openapi": "3.0.3",
            "servers": [{"url": url}] if (url := _base_url(root)) else [],
            "paths": paths,
            "components": {"securitySchemes": schemes or {}},
        }

    def _usable(self, value: Any, convert: Callable[[DocumentNode], Any], *kind: str) -> Any:
        """Converts a part of some kind, or the target of its reference. Leaves unusable parts unchanged."""
        try:
            node = DocumentNode(self._root, value).resolved()
            if (kind, id(node.value)) not in self._known:
                self._known[kind, id(node.value)] = convert(node)
            return self._known[kind, id(node.value)]
        except Unusable:
            return value

    def _path_item(self, item: DocumentNode) -> dict[str, Any]:
        shared = self._parameters(item)
        members = {name: each for name, each in item.object().items() if name not in ("parameters", *_METHODS)}
        for method in _METHODS:
            if (operation := item.own(method)) is not None:
                try:
                    members[method] = self._operation(operation, shared)
                except Unusable:
                    members[method] = operation.value
        return members

    def _operation(self, operation: DocumentNode, shared: Parameters) -> dict[str, Any]:
        parameters = [*(shared | self._parameters(operation)).values()]
        consumes, produces = (self._media(operation, name) for name in ("consumes", "produces"))
        members = dict(operation.object())
        members["parameters"] = [_parameter(each) for each in parameters if each.get("in") not in ("body", "formData")]
        body = next((each for each in parameters if each.get("in") == "body"), None)
        fields = [each for each in parameters if each.get("in") == "formData"]
        if body is not None:
            content = {media: {"schema": body.get("schema", {})} for media in consumes or _JSON}
            members["requestBody"] = {"required": body.get("required", False), "content": content}
        elif fields:
            members["requestBody"] = _form(fields, consumes)
        responses = operation.own("responses")
        if responses is not None:
            media = produces or _JSON
            convert = partial(_response, media)
            members["responses"] = {
                name: self._usable(each.value, convert, *media) for name, each in responses.members()
            }
        return members

    def _parameters(self, owner: DocumentNode) -> Parameters:
        declared = owner.own("parameters")
        parts = [each.object() for each in declared.items()] if declared else []
        return {(str(each.get("in")), str(each.get("name"))): each for each in parts}

    def _media(self, operation: DocumentNode, name: str) -> list[str]:
        """Returns the media types of an operation or, if it has none, of the document."""
        media = operation.object().get(name, self._root.get(name))
        listed = cast("list[object]", media) if isinstance(media, list) else []
        return [each for each in listed[:_MAX_MEDIA_TYPES] if isinstance(each, str)]


def _base_url(root: dict[str, Any]) -> str:
    host, path, schemes = (root.get(name) for name in ("host", "basePath", "schemes"))
    path = path.rstrip("/") if isinstance(path, str) else ""
    if not isinstance(host, str) or not host:
        return path
    listed = cast("list[object]", schemes) if isinstance(schemes, list) else []
    return f"{'http' if listed and 'https' not in listed else 'https'}://{host}{path}"


def _scheme(scheme: Any) -> Any:
    match scheme:
        case {"type": "basic"}:
            return {**scheme, "type": "http", "scheme": "basic"}
        case _:
            return scheme


def _schema(part: dict[str, Any]) -> dict[str, Any]:
    return (
        _FILE if part.get("type") == "file" else {key: each for key, each in part.items() if key not in _OF_A_PARAMETER}
    )


def _style(part: dict[str, Any]) -> Mapping[str, object]:
    """Returns the style. Keeps an unknown style, which is refused later."""
    if part.get("type") != "array":
        return {}
    named = part.get("collectionFormat", "csv")
    return _STYLES.get(named, {"style": str(named)}) if isinstance(named, str) else {"style": str(named)}


def _parameter(part: dict[str, Any]) -> dict[str, Any]:
    members = {key: part[key] for key in ("in", "name", "required", "description") if key in part}
    return {**members, "schema": _schema(part), **_style(part)}


def _form(fields: Iterable[dict[str, Any]], consumes: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    encoding: dict[str, Any] = {}
    required: list[str] = []
    has_files = False
    for each in fields:
        name = str(each.get("name"))
        schema = _schema(each)
        has_files = has_files or schema is _FILE
        properties[name] = {**schema, **({"description": each["description"]} if "description" in each else {})}
        if style := _style(each):
            encoding[name] = style
        if each.get("required") is True:
            required.append(name)
    media = _MULTIPART if has_files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    schema = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {media: {"schema": schema, "encoding": encoding}}}


def _response(produces: list[str], response: DocumentNode) -> dict[str, Any]:
    members = dict(response.object())
    schema, headers = members.pop("schema", None), members.get("headers")
    if isinstance(schema, dict):
        is_file = cast("dict[str, Any]", schema).get("type") == "file"
        body: dict[str, object] = {"schema": _FILE if is_file else schema}
        members["content"] = dict.fromkeys(["*/*"] if is_file else produces, body)
    if isinstance(headers, dict):
        known = DocumentNode(response.root, headers).members()
        members["headers"] = {name: {"schema": _schema(each.object())} for name, each in known}
    return members
