"""Operations of a document: their list, their names as tools, and their selection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from corral.errors import ConfigError
from corral.sources.openapi.documents import DocumentNode, Unusable

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""RFC 9110, 9.2.1: safe methods."""
_IDEMPOTENT = _READING | {"PUT", "DELETE"}
_MAX_OPERATIONS = 10_000
_MAX_NAME = 100
_MAX_DESCRIPTION = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a document."""

    method: str
    """HTTP method, in upper case."""
    path: str
    operation_id: str | None
    tags: tuple[str, ...]
    description: str
    deprecated: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path[:200]}"

    @property
    def read_only(self) -> bool:
        return self.method in _READING

    @property
    def idempotent(self) -> bool:
        return self.method in _IDEMPOTENT


class Skipped(NamedTuple):
    """Operation that is not offered as a tool."""

    operation: str
    """Method and path of the operation."""
    reason: str


Select: TypeAlias = str | Iterable[str] | Callable[[Operation], bool]
"""Selection of operations: patterns, of which one must match, or a function.

A pattern is a method ("GET"), a path ("/repos/*"), both ("GET /repos/*"), a tag ("tag:issues") or an operationId
("issues/*"). In paths, tags and ids `*` stands for any text, and `?` for one character.
"""


class Listed(NamedTuple):
    operation: Operation
    name: str
    """Name of its tool."""
    item: DocumentNode
    """Path item that contains the operation."""
    part: DocumentNode


def list_operations(document: DocumentNode, skipped: list[Skipped]) -> list[Listed]:
    """Lists all readable operations, and adds the others to `skipped`.

    Raises:
        ConfigError: there are too many, or `paths` is not an object.
    """
    try:
        paths = document.own("paths")
        members = list(paths.members()) if paths else []
    except Unusable as problem:
        raise ConfigError(f"the OpenAPI document cannot be used. {problem}") from None
    operations: list[tuple[Operation, DocumentNode, DocumentNode]] = []
    for path, item in members:
        if path.startswith("x-"):
            continue
        try:
            item = item.resolved()
            declared = dict(item.members())
        except Unusable as problem:
            skipped.append(Skipped(path[:200], str(problem)))
            continue
        for method in (method for method in _METHODS if method in declared):
            if len(operations) >= _MAX_OPERATIONS:
                raise ConfigError(f"the OpenAPI document has more than {_MAX_OPERATIONS} operations")
            try:
                operations.append((_operation(method.upper(), path, declared[method]), item, declared[method]))
            except Unusable as problem:
                skipped.append(Skipped(f"{method.upper()} {path[:200]}", str(problem)))
        if "trace" in declared:
            skipped.append(Skipped(f"TRACE {path[:200]}", "it would echo credentials"))
    names = _names([operation for operation, _, _ in operations])
    return [Listed(operation, name, *parts) for (operation, *parts), name in zip(operations, names, strict=True)]


def _operation(method: str, path: str, part: DocumentNode) -> Operation:
    tags = part.own("tags")
    deprecated = part.flag("deprecated")
    texts = (part.text("summary").strip(), part.text("description").strip(), "Deprecated." if deprecated else "")
    description = "\n\n".join(dict.fromkeys(filter(None, texts))) or f"{method} {path}"
    return Operation(
        method=method,
        path=path,
        operation_id=part.text("operationId") or None,
        tags=tuple(str(each.value)[:_MAX_NAME] for each in tags.items()) if tags else (),
        description=description if len(description) <= _MAX_DESCRIPTION else f"{description[:_MAX_DESCRIPTION]}…",
        deprecated=deprecated,
    )


# --- names


def _names(operations: list[Operation]) -> list[str]:
    """Returns a name for each operation. It does not depend on their order in the document.

    The name is the operationId or, without one, the method and path. Equal names get their method and path appended
    and, if they are still equal or too long, the start of a digest.
    """
    first = [_usable(each.operation_id or "") or _by_path(each) for each in operations]
    shared = {name for name, times in Counter(first).items() if times > 1}
    second = [
        name if name not in shared else _by_path(each) if not each.operation_id else f"{name}_{_by_path(each)}"
        for name, each in zip(first, operations, strict=True)
    ]
    counted = Counter(second)
    return [
        name if counted[name] == 1 and len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 9]}_{_digest(each)}"
        for name, each in zip(second, operations, strict=True)
    ]


def _usable(name: str) -> str:
    """Converts a text to an identifier; returns "" if that is impossible."""
    return name if any(character.isalnum() for character in name) else ""


def _by_path(operation: Operation) -> str:
    """Names an operation: `GET /users/{id}.json` becomes `get_users_id_json`."""
    words = [word for word in re.split(r"[\W_]+", operation.path) if word]
    return "_".join([operation.method.lower(), *words])


def _digest(operation: Operation) -> str:
    return sha256(f"{operation.method} {operation.path}".encode()).hexdigest()[:8]


# --- selection


def selected(operations: Iterable[Operation], select: Select, option: str) -> set[Operation]:
    """Returns the selected operations. Raises ConfigError if a pattern matches no operation."""
    known = list(operations)
    if callable(select):
        return {each for each in known if select(each)}
    chosen: set[Operation] = set()
    for pattern in [select] if isinstance(select, str) else select:
        matching = set(_matching(known, pattern))
        if not matching:
            raise ConfigError(
                f"{option}={pattern!r} matches no operation; patterns are an operationId, 'GET', '/path/*', "
                "'GET /path/*' or 'tag:name'"
            )
        chosen |= matching
    return chosen


def _matching(operations: list[Operation], pattern: str) -> Iterator[Operation]:
    method, space, path = pattern.partition(" ")
    for each in operations:
        if pattern.startswith("tag:"):
            matches = any(fnmatchcase(tag, pattern[4:]) for tag in each.tags)
        elif pattern.startswith("/"):
            matches = fnmatchcase(each.path, pattern)
        elif method.lower() in _METHODS and method.isupper():
            matches = each.method == method and (not space or fnmatchcase(each.path, path))
        else:
            matches = fnmatchcase(each.operation_id or "", pattern)
        if matches:
            yield each
