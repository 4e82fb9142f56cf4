"""Converts Swagger 2.0 documents to OpenAPI 3.0.

Only the structure around schemas is converted: `definitions` and references to them stay in place. Parts that cannot
be converted stay unchanged, so that the reader of the document reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

from corral.sources.openapi.documents import DocumentNode, Unusable

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_MAX_MEDIA_TYPES = 10
_JSON = ["application/json"]
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_FILE = {"type": "string", "format": "binary"}
_OF_A_PARAMETER = frozenset({"allowEmptyValue", "collectionFormat", "description", "in", "name", "required"})
"""Members of a parameter that are not part of its schema, unlike all others."""
_STYLES: Mapping[object, Mapping[str, object]] = {
    "csv": {"explode": False},
    "multi": {"explode": True},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
}

Parameters = dict[tuple[str, str], dict[str, Any]]
"""Parameters by place and name."""


def converted(root: dict[str, Any]) -> dict[str, Any]:
    """Returns the document as OpenAPI 3.0."""
    return _Conversion(root).document()


class _Conversion:
    """Converts each part of a document once, however often it is referred to."""

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
        """Converts a part of a kind, or the target of its reference; leaves unusable parts unchanged."""
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
        """Returns the media types of an operation, or else of the document."""
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
    """Returns the style; keeps an unknown one, which is refused later."""
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
