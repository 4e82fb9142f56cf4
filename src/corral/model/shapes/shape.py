"""Shapes of values, the representation between JSON Schema and printed declarations.

Shapes are frozen and compare by the values they accept; descriptions do not count. A named shape is a `Definition`,
which other shapes mention by `TypeReference`, so that recursive shapes are finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

Kind: TypeAlias = Literal["string", "bytes", "number", "boolean", "null", "array", "object"]

ALL_KINDS: frozenset[Kind] = frozenset(("string", "bytes", "number", "boolean", "null", "array", "object"))

OBJECTS: frozenset[Kind] = frozenset(("object",))


@dataclass(frozen=True, slots=True)
class Doc:
    """Description: lines of text, tags with their texts, and the default as JSON. Printing escapes all of it."""

    text: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    default: str | None = None

    def __bool__(self) -> bool:
        return bool(self.text or self.tags or self.default not in (None, "null"))


@dataclass(frozen=True, slots=True)
class Unknown:
    """Accepts everything."""


@dataclass(frozen=True, slots=True)
class Never:
    """Accepts nothing."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """Accepts every value of a kind that has no parts. In languages that distinguish integers, they are separate
    numbers."""

    kind: Literal["string", "bytes", "number", "integer", "boolean", "null", "object"]
    """"object" is for readers only: an object whose members are not shown."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Accepts one string, number or boolean; `text` is how both JSON and TypeScript spell it."""

    kind: Literal["string", "number", "boolean"]
    text: str


@dataclass(frozen=True, slots=True)
class Array:
    """Accepts arrays. `prefix` describes the first items, `rest` the others; None if the schema says nothing about
    them."""

    prefix: tuple[Shape, ...] = ()
    rest: Shape | None = None
    min_items: int = 0
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    shape: Shape
    required: bool
    doc: Doc = field(default=Doc(), compare=False)


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """Keys that begin with `prefix` and end with `suffix`, with any text or number between the two.

    Unless `exact`, the schema's regular expression matches only some of these keys.
    """

    prefix: str
    suffix: str
    hole: Literal["string", "number"] = "string"
    exact: bool = True

    def covers(self, other: KeyPattern | str) -> bool:
        """True if this pattern matches the key, or every key that the other pattern matches."""
        if isinstance(other, KeyPattern):
            fits = self.hole == "string" or self == other
            return fits and other.prefix.startswith(self.prefix) and other.suffix.endswith(self.suffix)
        hole = other[len(self.prefix) : len(other) - len(self.suffix)]
        if other != f"{self.prefix}{hole}{self.suffix}":
            return False
        return self.hole == "string" or hole.isdecimal()

    def overlaps(self, other: KeyPattern | str) -> bool:
        """True if this pattern matches the key, or a key that the other pattern can match."""
        if isinstance(other, str):
            return self.covers(other)
        prefixes = sorted((self.prefix, other.prefix), key=len)
        suffixes = sorted((self.suffix, other.suffix), key=len)
        return prefixes[1].startswith(prefixes[0]) and suffixes[1].endswith(suffixes[0])


@dataclass(frozen=True, slots=True)
class Object:
    """Accepts objects: `patterns` and `additional` describe properties that are not listed.

    `additional` is None if the schema says nothing about them: other properties are allowed, but not announced.
    """

    properties: tuple[Property, ...] = ()
    patterns: tuple[tuple[KeyPattern, Shape], ...] = ()
    additional: Shape | None = None
    title: str = field(default="", compare=False)
    """Title of the schema, if it has one."""


@dataclass(frozen=True, slots=True)
class Union:
    """At least two different members, none of them a union. Made by `algebra.union`."""

    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Intersection:
    """At least two members, none of them an intersection. Made by `algebra.intersect`."""

    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class TypeReference:
    """Accepts what the definition accepts."""

    definition: Definition


Shape: TypeAlias = Unknown | Never | Primitive | Constant | Array | Object | Union | Intersection | TypeReference


@dataclass(frozen=True, slots=True)
class Traits:
    """Facts about a shape that intersections need."""

    kinds: frozenset[Kind]
    """Kinds of values that it can accept. Can include kinds that it does not, but never misses one."""
    alternatives: int = 1
    """Number of union members that it contributes."""
    transparent: bool = False
    """True if it accepts only objects and leaves unlisted properties open, so that `&` is exact."""
    accepts_empty: bool = False
    """True if `{}` certainly matches."""


@final
class Definition:
    """Shape with a name. It is read when first needed, because definitions can refer to each other."""

    def __init__(self, base_name: str, doc: Doc, read: Callable[[], Shape | None]) -> None:
        self.base_name = base_name
        """Valid type name. Several definitions can have the same one."""
        self.doc = doc
        self.traits: Traits | None = None
        """Cache of `traits`."""
        self._read = read
        self._reading = False
        self._shape: Shape | None = None

    @property
    def shape(self) -> Shape | None:
        """Shape of the definition; None while it is being read, or if reading it now would nest too deeply."""
        if self._shape is None and not self._reading:
            self._reading = True
            try:
                self._shape = self._read()
            finally:
                self._reading = False
        return self._shape


UNKNOWN = Unknown()
NEVER = Never()
STRING = Primitive("string")
NUMBER = Primitive("number")
INTEGER = Primitive("integer")
BOOLEAN = Primitive("boolean")
BYTES = Primitive("bytes")
NULL = Primitive("null")
ELIDED = Primitive("object")
ANY_ARRAY = Array()
ANY_OBJECT = Object()
ANY_KEY = KeyPattern("", "", exact=False)
