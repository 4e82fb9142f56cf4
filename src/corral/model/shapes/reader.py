"""Reads JSON Schema into shapes: draft 2020-12, and the common keywords of older drafts and OpenAPI."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple

from corral.model.shapes.algebra import (
    few_patterns,
    fill_additional,
    fill_rest,
    intersect,
    intersect_all,
    intersect_kind,
    union,
    unlisted,
)
from corral.model.shapes.constants import constants, strings_of
from corral.model.shapes.definitions import Definitions
from corral.model.shapes.descriptions import describe
from corral.model.shapes.names import pascal_case
from corral.model.shapes.shape import (
    ANY_KEY,
    ANY_OBJECT,
    BOOLEAN,
    BYTES,
    INTEGER,
    NEVER,
    NULL,
    NUMBER,
    OBJECTS,
    STRING,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Intersection,
    KeyPattern,
    Kind,
    Object,
    Property,
    Shape,
    TypeReference,
    Union,
)
from corral.model.shapes.traits import members_of, properties_of, traits
from corral.model.shapes.type_systems import TypeSystem
from corral.tools.json_schema.indexed_schema import IndexedSchema, ReferenceScope, ReferenceTarget, integer
from corral.tools.json_schema.keywords import Pointer, listing, mapping, subschemas
from corral.tools.json_schema.older_drafts import enumerated

_MAX_HOPS = 20
_MAX_FORBIDDEN = 24
"""Maximum number of properties added to a union to keep its members distinct."""


def exclusive(members: Sequence[Shape], *, one_of: bool, announced: Collection[str] | None, with_named: bool) -> Shape:
    """Returns the union with members that forbid properties announced only by others, because TypeScript would let
    literals mix them.

    Applies to closed objects and, with `one_of`, to a property whose presence selects another member. Members that are
    discriminated by a property with constants need no change.

    Args:
        members: of the union. one_of: True if a value must match exactly one member. announced: properties described
            next to the union; None if any property could be. with_named: True to treat references too, by replacing
            them with their objects.
    """
    objects = {position: own for position, member in enumerate(members) if (own := _object(member)) is not None}
    if not 2 <= len(objects) <= _MAX_FORBIDDEN or _discriminated(list(objects.values())):
        return union(members)
    forbidden: dict[int, list[str]] = {}
    for position, own in objects.items():
        others = {place: other for place, other in objects.items() if place != position}
        names: list[str] = []
        if own.additional == NEVER and not own.patterns:
            names = [each.name for other in others.values() for each in other.properties]
        elif one_of and own.additional is None and not own.patterns:
            names = [name for other in others if (name := _decisive(objects, other, announced))]
        known = {each.name for each in own.properties}
        forbidden[position] = [name for name in dict.fromkeys(names) if name not in known]
    if sum(map(len, forbidden.values())) > _MAX_FORBIDDEN:
        return union(members)
    return union(
        _without(member, forbidden[position])
        if forbidden.get(position) and (with_named or isinstance(member, Object))
        else member
        for position, member in enumerate(members)
    )


def mixed(members: Sequence[Shape]) -> list[Shape]:
    """Lets each open object have properties that only others announce, because Python requires literals to match one
    member.

    Applies to objects without a name. Members that are discriminated by a property with constants do not mix.
    """
    candidates = [_open_object(member) for member in members]
    objects = [each for each in candidates if each is not None]
    if not 2 <= len(objects) <= _MAX_FORBIDDEN:
        return list(members)
    announced: dict[str, Property] = {}
    for each in (each for own in objects for each in own.properties):
        shapes = [announced[each.name].shape] if each.name in announced else []
        announced[each.name] = replace(each, shape=union((*shapes, each.shape)), required=False)
    if len(objects) * len(announced) > _MAX_FORBIDDEN or _discriminated(objects):
        return list(members)
    return [member if own is None else _with(own, announced) for member, own in zip(members, candidates, strict=True)]


def forbid(name: str) -> Object:
    """Returns the shape of objects that lack the property."""
    return Object((Property(name, NEVER, required=False),))


def branch(shape: Shape, condition: Shape, then: Shape, otherwise: Shape) -> Shape:
    """Restricts objects of the shape to `then` if they match `condition`, else to `otherwise`.

    The two cases become a union. They overlap if the opposite of the condition cannot be expressed.
    """
    then, otherwise = intersect(ANY_OBJECT, then), intersect(ANY_OBJECT, otherwise)
    if then == otherwise == ANY_OBJECT:
        return shape
    positive = intersect(intersect(ANY_OBJECT, condition), then)
    opposite = _opposite(condition, shape)
    if opposite is None:
        names = properties_of(shape).keys()
        if otherwise == ANY_OBJECT and properties_of(positive).keys() <= names:
            return shape
        opposite = Object(tuple(Property(name, UNKNOWN, required=False) for name in properties_of(condition)))
    return intersect(shape, union((positive, intersect(opposite, otherwise))))


def _decisive(objects: dict[int, Object], position: int, announced: Collection[str] | None) -> str | None:
    """Returns a property whose presence alone makes an object match that member, if there is one."""
    own = objects[position]
    required = [each.name for each in own.properties if each.required]
    if len(required) != 1 or own.additional is not None or own.patterns:
        return None
    elsewhere = {
        each.name for other, other_object in objects.items() if other != position for each in other_object.properties
    }
    for each in own.properties:
        constrained_twice = announced is None or each.name in announced or each.name in elsewhere
        if constrained_twice and each.shape != UNKNOWN:
            return None
    return required[0]


def _open_object(shape: Shape) -> Object | None:
    """Returns the shape if it is an object without a name that can have any other properties."""
    return shape if isinstance(shape, Object) and shape.additional is None and not shape.patterns else None


def _with(shape: Object, announced: dict[str, Property]) -> Object:
    listed = {each.name: each for each in shape.properties}
    return replace(shape, properties=tuple((announced | listed).values()))


def _without(member: Shape, names: list[str]) -> Shape:
    absent = tuple(Property(name, NEVER, required=False) for name in names)
    if isinstance(member, Object):
        return replace(member, properties=member.properties + absent)
    return Intersection((member, Object(absent)))


def _object(shape: Shape) -> Object | None:
    """Returns the object that the shape is or refers to."""
    for _ in range(_MAX_HOPS):
        match shape:
            case TypeReference(definition=Definition(shape=defined)) if defined:
                shape = defined
            case Object():
                return shape
            case _:
                return None
    return None


def _discriminated(objects: list[Object]) -> bool:
    """True if a property's constants tell which of the objects a value is."""
    shapes = [{member.name: member.shape for member in each.properties} for each in objects]
    return any(_tells_apart(candidate.name, shapes) for candidate in objects[0].properties)


def _tells_apart(name: str, shapes: list[dict[str, Shape]]) -> bool:
    seen: set[Shape] = set()
    for each in shapes:
        own = _constants(each.get(name, UNKNOWN))
        if not own or not seen.isdisjoint(own):
            return False
        seen.update(own)
    return True


def _constants(shape: Shape) -> list[Shape]:
    """Returns the constants that a shape consists of; empty if it accepts anything else."""
    members = members_of(shape)
    return list(members) if all(isinstance(member, Constant) for member in members) else []


def _opposite(condition: Shape, shape: Shape) -> Shape | None:
    """Returns the shape of objects that do not meet the condition; None if it cannot be expressed.

    That is possible if the condition is about one property: its presence, or which of the shape's constants it has.
    """
    match condition:
        case Object(properties=(Property(name=name, shape=value, required=required),), patterns=(), additional=None):
            if value == UNKNOWN:
                return forbid(name) if required else None
        case _:
            return None
    excluded = frozenset(_constants(value))
    possible = _possible_constants(shape, name)
    if not excluded or not possible:
        return None
    left = union(each for each in possible if each not in excluded)
    return NEVER if left == NEVER and not required else Object((Property(name, left, required=not required),))


def _possible_constants(shape: Shape, name: str) -> list[Shape]:
    """Returns the constants to which a property is limited; empty if it can have other values."""
    for factor in shape.members if isinstance(shape, Intersection) else (shape,):
        own = _object(factor)
        declared = [each.shape for each in own.properties if each.name == name] if own else []
        if declared and (values := _constants(declared[0])):
            return values
    return []


_ANYTHING = frozenset((".*", ".+", r"[\s\S]*", r"[\s\S]+"))
_DIGITS = frozenset((r"\d+", "[0-9]+", r"[\d]+"))
_TOKEN = re.compile(r"\\.?|\[(?:\\.?|[^\]\\])*+\]?|.", re.DOTALL)
"""Character of a regular expression, escape or class."""
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[^}]*\}?)\??")


class _Part(NamedTuple):
    source: str
    character: str | None
    """Character that it matches, if there is exactly one."""


def key_pattern(regular_expression: str) -> KeyPattern | str:
    """Returns a pattern of the matching keys, or a string if there is only one.

    Expressions that a template cannot express are widened, up to `ANY_KEY`, and are then not `exact`.
    """
    parts = list(_parts(regular_expression))
    if any(part.source == "|" for part in parts):
        return ANY_KEY
    starts = bool(parts) and parts[0].source == "^"
    ends = bool(parts) and parts[-1].source == "$"
    body = parts[starts : len(parts) - ends]
    prefix = "".join(_literals(body)) if starts else ""
    if starts and ends and len(prefix) == len(body):
        return prefix
    rest = body[len(prefix) :]
    suffix = "".join(reversed(_literals(rest[::-1]))) if ends else ""
    middle = "".join(part.source for part in rest[: len(rest) - len(suffix)])
    if starts and ends and middle in _DIGITS:
        return KeyPattern(prefix, suffix, "number", exact=False)
    return KeyPattern(prefix, suffix, exact=not middle or middle in _ANYTHING)


def _literals(parts: list[_Part]) -> list[str]:
    """Returns the characters with which every match begins."""
    return [part.character for part in takewhile(lambda part: part.character is not None, parts) if part.character]


def _parts(source: str) -> Iterator[_Part]:
    """Yields the pieces of a regular expression, each with its quantifier. Groups and classes are one piece."""
    position = 0
    while position < len(source):
        start, depth = position, 0
        for token in _TOKEN.finditer(source, start):
            position = token.end()
            depth += (token[0] == "(") - (token[0] == ")")
            if depth <= 0:
                break
        atom, quantifier = source[start:position], _QUANTIFIER.match(source, position)
        position = position if quantifier is None else quantifier.end()
        is_literal = quantifier is None and atom not in {"^", "$", ".", "|"} and atom[0] not in "[("
        yield _Part(source[start:position], _character(atom) if is_literal else None)


def _character(atom: str) -> str | None:
    if not atom.startswith("\\"):
        return atom
    return None if len(atom) == 1 or atom[1].isalnum() else atom[1]


def _read_object(keywords: dict[str, object], read: Callable[[object], Shape], names: object) -> Shape:
    """Returns the objects that the keywords allow.

    Args:
        keywords: a schema of objects. read: function that reads a schema within these. names: the `propertyNames`, with
            references resolved; None without that keyword.
    """
    schemas = mapping(keywords.get("properties"))
    required = {name: None for name in listing(keywords.get("required")) if isinstance(name, str)}
    shapes = {name: read(schema) for name, schema in schemas.items()}
    others = _others(keywords, read, shapes)
    by_pattern = replace(others, additional=UNKNOWN)
    shapes = {name: intersect(shape, unlisted(by_pattern, name)) for name, shape in shapes.items()}
    for name in required:
        shapes.setdefault(name, unlisted(others, name))
    if names is not None:
        shapes, others = _restrict(shapes, others, read(names), mapping(names).get("pattern"))
    if any(shapes.get(name, NEVER) == NEVER for name in required):
        return NEVER
    properties = (
        Property(name, shape, name in required, describe(schemas.get(name), name)) for name, shape in shapes.items()
    )
    title = keywords.get("title")
    return replace(others, properties=tuple(properties), title=title if isinstance(title, str) else "")


def _others(keywords: dict[str, object], read: Callable[[object], Shape], listed: dict[str, Shape]) -> Object:
    """Shapes of properties by pattern, and of the rest. A pattern for a single name adds to `listed`."""
    patterns: dict[KeyPattern, Shape] = {}
    alike: defaultdict[KeyPattern, list[Shape]] = defaultdict(list)
    for expression, schema in mapping(keywords.get("patternProperties")).items():
        key, shape = key_pattern(expression), read(schema)
        if isinstance(key, str):
            listed[key] = intersect(listed.get(key, UNKNOWN), shape)
        elif key.exact:
            patterns[key] = intersect(patterns.get(key, UNKNOWN), shape)
        else:
            patterns.setdefault(key, NEVER)
            alike[key].append(shape)
    patterns |= {key: union(shapes) for key, shapes in alike.items()}
    additional = read(keywords["additionalProperties"]) if "additionalProperties" in keywords else None
    return Object(patterns=few_patterns(patterns.items()), additional=additional)


def _restrict(
    shapes: dict[str, Shape], others: Object, names: Shape, expression: object
) -> tuple[dict[str, Shape], Object]:
    """Keeps only properties with certain names: listed as constants, or matching a regular expression."""
    key = key_pattern(expression) if isinstance(expression, str) else ANY_KEY
    allowed = [key] if isinstance(key, str) else strings_of(names)
    if allowed is not None:
        return {name: shapes.get(name, unlisted(others, name)) for name in allowed}, Object(additional=NEVER)
    if isinstance(key, str) or key == ANY_KEY:
        return shapes, others
    values = (UNKNOWN if others.additional is None else others.additional, *(shape for _, shape in others.patterns))
    return shapes, Object(patterns=((key, union(values)),), additional=NEVER)


_MAX_LEVELS = 60
"""Maximum depth of reading; deeper schemas are unknown. Each level takes several frames of the interpreter's stack."""
_MAX_LEVELS_AROUND_DEFINITION = 20
"""Maximum depth of reading at which a definition can still be read, to merge it."""
_MAX_ALIASES = 30
"""Maximum length of a chain of schemas that only refer to or combine others."""
_MAX_COMBINED = 500
"""Maximum number of definitions that such combinations can reach."""
_MAX_CONDITIONS = 100
"""Maximum number of conditions read per schema, because each can be compared with all others."""
_MIN_READS = 1_000
_READS_PER_NODE = 10

_OBJECT_KEYWORDS = frozenset(("properties", "required", "additionalProperties", "patternProperties", "propertyNames"))
_ARRAY_KEYWORDS = frozenset(("items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems"))
"""Keywords that imply a type if the schema has none."""
_SAME_VALUE_KEYWORDS = frozenset(("allOf", "anyOf", "oneOf", "if", "then", "else", "dependencies", "dependentSchemas"))
"""Keywords whose subschemas describe the same value as the schema."""
_BEYOND_TYPES = _SAME_VALUE_KEYWORDS | {"dependentRequired", "not", "unevaluatedItems", "unevaluatedProperties"}
"""Keywords other than types and constants. Most schemas have none of them."""

_NONE_ANNOUNCED: frozenset[str] = frozenset()

_MAYBE_BYTES = union((STRING, BYTES))


class Reader:
    """Reads the schemas of one document.

    Never raises, and takes time linear in the size of the document. A schema that is nested too deeply, refers to
    itself directly or would be read repeatedly is unknown.
    """

    def __init__(
        self,
        document: IndexedSchema,
        *,
        root_name: str,
        definitions: Definitions,
        language: TypeSystem,
        returns_bytes: bool = False,
    ) -> None:
        self._document = document
        self._root_name = root_name
        self._definitions = definitions
        self._language = language
        self._binary = BYTES if returns_bytes else _MAYBE_BYTES
        """Shape of strings with `format: binary`."""
        self._depth = 0
        self._depth_of_definition = 0
        self._reads_left = _MIN_READS + _READS_PER_NODE * document.size
        self._circular: dict[ReferenceTarget, bool] = {}
        self._reached: dict[ReferenceTarget, set[ReferenceTarget]] = {}

    def read_root(self, root: Pointer = ()) -> Shape:
        """Returns the shape of the schema at a location: a reference if something in the document refers to all of
        it."""
        if root or not self._document.has_references:
            return self._read(self._document.at(root), ReferenceScope())
        targets = self._document.targets_within(ReferenceTarget((), ReferenceScope()))
        whole = next((target for target in targets if target and not target.pointer), None)
        return self._read(self._document.root, ReferenceScope()) if whole is None else self._reference(whole)

    def _read(self, schema: object, scope: ReferenceScope, announced: frozenset[str] | None = _NONE_ANNOUNCED) -> Shape:
        """Reads a schema. `announced` are the properties that schemas around this one describe for the same value; None
        stands for any."""
        if schema is False:
            return NEVER
        keywords = mapping(schema)
        too_deep = self._depth - self._depth_of_definition >= _MAX_LEVELS
        if not keywords or too_deep or self._reads_left <= 0:
            return UNKNOWN
        self._reads_left -= 1
        self._depth += 1
        try:
            return self._schema(keywords, self._document.enter(keywords, scope), announced)
        finally:
            self._depth -= 1

    def _schema(self, keywords: dict[str, object], scope: ReferenceScope, announced: frozenset[str] | None) -> Shape:
        references = [
            UNKNOWN if target is None else self._reference(target)
            for target in self._document.references(keywords, scope)
        ]
        shape = intersect_all(references)
        if keywords.keys().isdisjoint(_BEYOND_TYPES):  # like most schemas
            if not (references and self._document.references_stand_alone):
                shape = self._typed(shape, keywords, scope)
        elif not (references and self._document.references_stand_alone):
            shape = self._combined(shape, keywords, scope, announced)
            shape = self._typed(shape, keywords, scope)
            shape = self._conditional(shape, keywords, scope)
            shape = self._unevaluated(shape, keywords, scope)
            shape = self._negated(shape, keywords, scope)
        nullable = keywords.get("nullable") is True
        return union((shape, NULL)) if nullable else shape

    # --- references

    def _reference(self, target: ReferenceTarget) -> Shape:
        if self._is_circular(target):
            return UNKNOWN
        base_name = self._base_name(target)
        definition = self._definitions.find(self._document, target, base_name)
        if definition is None:
            doc = describe(self._document.at(target.pointer), base_name)
            definition = Definition(base_name, doc, partial(self._definition, target))
            self._definitions.add(self._document, target, definition)
        return TypeReference(definition)

    def _definition(self, target: ReferenceTarget) -> Shape | None:
        if self._depth > _MAX_LEVELS_AROUND_DEFINITION:
            return None
        outer, self._depth_of_definition = self._depth_of_definition, self._depth
        binary, self._binary = self._binary, _MAYBE_BYTES  # an input may refer to it too
        try:
            return self._read(self._document.at(target.pointer), target.scope)
        finally:
            self._depth_of_definition, self._binary = outer, binary

    def _base_name(self, target: ReferenceTarget) -> str:
        title = mapping(self._document.at(target.pointer)).get("title")
        if target.pointer:
            return pascal_case(target.pointer[-1], self._language.taken)
        return pascal_case(title if isinstance(title, str) else self._root_name, self._language.taken)

    def _is_circular(self, target: ReferenceTarget) -> bool:
        """True if reading the target leads back to the target for the same value, or if that takes too long to tell."""
        if target not in self._circular:
            seen: set[ReferenceTarget] = set()
            reached = self._reached_from(target)
            for _ in range(_MAX_ALIASES):
                seen |= reached
                if not reached or target in seen or len(seen) > _MAX_COMBINED:
                    break
                reached = set[ReferenceTarget]().union(*map(self._reached_from, reached)) - seen
            self._circular[target] = bool(reached)
        return self._circular[target]

    def _reached_from(self, target: ReferenceTarget) -> set[ReferenceTarget]:
        """Returns the targets of references that describe the same value as this target."""
        if target not in self._reached:
            reached: set[ReferenceTarget] = set()
            waiting = [(self._document.at(target.pointer), target.scope)]
            while waiting and len(reached) <= _MAX_COMBINED:
                schema, outer = waiting.pop()
                scope = self._document.enter(schema, outer)
                reached.update(each for each in self._document.references(schema, scope) if each is not None)
                waiting += [(member, scope) for path, member in subschemas(schema) if path[0] in _SAME_VALUE_KEYWORDS]
            self._reached[target] = reached
        return self._reached[target]

    # --- combinations

    def _combined(
        self, shape: Shape, keywords: dict[str, object], scope: ReferenceScope, announced: frozenset[str] | None
    ) -> Shape:
        parts = listing(keywords.get("allOf"))
        for each in map(_announced, (keywords, *map(mapping, parts))):
            announced = None if announced is None or each is None else announced | each
        shape = intersect_all([shape, *(self._read(member, scope, announced) for member in parts)])
        for keyword in ("anyOf", "oneOf"):
            members = [self._read(member, scope, announced) for member in listing(keywords.get(keyword))]
            if members:
                one_of, mixes = keyword == "oneOf", self._language.mixes_members
                members = members if one_of or mixes else mixed(members)
                either = exclusive(members, one_of=one_of, announced=announced, with_named=mixes)
                shape = intersect(shape, either)
        return shape

    def _conditional(self, shape: Shape, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        """Applies combinations. Conditions that stand alone in an `allOf` apply to this shape too."""
        room = _MAX_CONDITIONS
        for schema in (keywords, *map(mapping, listing(keywords.get("allOf")))):
            inner = self._document.enter(schema, scope)
            for condition, then, otherwise in islice(self._conditions(schema, inner), room):
                room -= 1
                if traits(shape).kinds <= OBJECTS:
                    shape = branch(shape, condition, then, otherwise)
        return shape

    def _conditions(self, keywords: dict[str, object], scope: ReferenceScope) -> Iterator[tuple[Shape, Shape, Shape]]:
        if "if" in keywords:
            condition, then, otherwise = (keywords.get(each, True) for each in ("if", "then", "else"))
            yield self._read(condition, scope), self._read(then, scope), self._read(otherwise, scope)
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, dependent in mapping(keywords.get(keyword)).items():
                required = listing(dependent)
                schema = {"required": required} if required else dependent
                yield _present(name), self._read(schema, scope), UNKNOWN

    def _unevaluated(self, shape: Shape, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        if "unevaluatedProperties" in keywords:
            shape = fill_additional(shape, self._read(keywords["unevaluatedProperties"], scope))
        if "unevaluatedItems" in keywords:
            shape = fill_rest(shape, self._read(keywords["unevaluatedItems"], scope))
        return shape

    def _negated(self, shape: Shape, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        """Applies `not` to everything, certain constants, null, or a required property. Ignores other forms."""
        negated = keywords.get("not")
        if negated is True or negated == {}:
            return NEVER
        match mapping(negated):
            case {"required": [str() as name], **others} if others.keys() <= {"type"}:
                return intersect_kind(shape, "object", forbid(name))
            case {**others} if others.keys() <= {"const", "enum", "type"}:
                excluded = frozenset(members_of(self._read(others, scope)))
                if all(isinstance(each, Constant) or each == NULL for each in excluded):
                    return union(each for each in members_of(shape) if each not in excluded)
            case _:
                pass
        return shape

    # --- types

    def _typed(self, shape: Shape, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        """Applies the type and the constants. Without a type, keywords for objects and arrays imply one."""
        declared = keywords.get("type")
        types = [declared] if isinstance(declared, str) else listing(declared)
        integers = "integer" in types and "number" not in types
        if "const" in keywords:
            shape = intersect(shape, constants([keywords["const"]], integers=integers))
        if isinstance(keywords.get("enum"), list):
            shape = intersect(shape, constants(enumerated(keywords), integers=integers))
        if types:
            return intersect(shape, union([self._of_type(each, keywords, scope) for each in types]))
        implied: list[tuple[Kind, Shape]] = []
        if keywords.keys() & _OBJECT_KEYWORDS:
            implied.append(("object", self._of_type("object", keywords, scope)))
        if keywords.keys() & _ARRAY_KEYWORDS:
            implied.append(("array", self._of_type("array", keywords, scope)))
        if shape == UNKNOWN and implied:
            shape = union(constraint for _, constraint in implied)
            return Union((shape, UNKNOWN)) if isinstance(shape, Array) else shape
        for kind, constraint in implied:
            shape = intersect_kind(shape, kind, constraint)
        return shape

    def _of_type(self, name: object, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        match name:
            case "string" if keywords.get("format") == "binary":
                return self._binary
            case "string":
                return STRING
            case "integer" if self._language.has_integers:
                return INTEGER
            case "number" | "integer":
                return NUMBER
            case "boolean":
                return BOOLEAN
            case "null":
                return NULL
            case "object":
                return _read_object(keywords, partial(self._read, scope=scope), self._names(keywords, scope))
            case "array":
                return self._array(keywords, scope)
            case _:
                return UNKNOWN

    def _array(self, keywords: dict[str, object], scope: ReferenceScope) -> Shape:
        prefix, rest = keywords.get("prefixItems"), "items"
        if isinstance(keywords.get("items"), list):
            prefix, rest = keywords["items"], "additionalItems"
        maximum = integer(keywords.get("maxItems"))
        return Array(
            tuple(self._read(member, scope) for member in listing(prefix)),
            self._read(keywords[rest], scope) if rest in keywords else None,
            max(integer(keywords.get("minItems")) or 0, 0),
            None if maximum is None else max(maximum, 0),
        )

    def _names(self, keywords: dict[str, object], scope: ReferenceScope) -> object:
        """Returns the schema of property names, with references resolved; None without that keyword."""
        schema = keywords.get("propertyNames")
        for _ in range(_MAX_ALIASES):
            target = next(self._document.references(schema, scope), None)
            if target is None:
                break
            schema, scope = self._document.at(target.pointer), target.scope
        return schema


def _present(name: str) -> Object:
    return Object((Property(name, UNKNOWN, required=True),))


def _announced(keywords: dict[str, object]) -> frozenset[str] | None:
    """Returns the properties that the schema itself describes; None if it describes properties of any name."""
    others = (keywords.get(each, False) for each in ("additionalProperties", "unevaluatedProperties"))
    if "$ref" in keywords or "patternProperties" in keywords or any(schema is not False for schema in others):
        return None
    return frozenset(mapping(keywords.get("properties")))
