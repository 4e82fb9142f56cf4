"""Shapes as types of Python: expressions, and the classes and aliases that these mention."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from corral.model.printing.python_text import (
    commented,
    constant_text,
    docstring,
    indented,
    is_name,
    quoted,
    told,
    with_comment,
)
from corral.model.printing.signatures import TypeNames
from corral.model.shapes.algebra import MAX_EXPANSIONS, alternatives, intersect, union
from corral.model.shapes.arrays import layout
from corral.model.shapes.names import pascal_case
from corral.model.shapes.shape import (
    NEVER,
    NUMBER,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Doc,
    Intersection,
    Never,
    Object,
    Primitive,
    Property,
    Shape,
    TypeReference,
    Union,
    Unknown,
)
from corral.model.shapes.traits import members_of

_LINE_CHARACTERS = 240
_MAX_NAME_CHARACTERS = 40
_MAX_ALTERNATIVES = 32
"""Maximum number of alternatives of an intersection that is worked out."""
_MAX_INTERSECTIONS = 200
"""Maximum number of intersections that are worked out: the parts of what is merged have to be merged too, and so on."""
_MAX_LEVELS = 20
"""Maximum nesting of an expression: type checkers give up on deeper ones. What is below gets a name."""
_MAX_BARS = 50
"""Maximum number of members of a union that is written with `|`, for the same reason."""
_MAX_OPTIONAL_ITEMS = 4
"""Most optional items of a tuple for which each length is printed as its own type."""

_WORD = re.compile(r"\w+")
_PRIMITIVES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
_BUILTINS = frozenset(("bool", "bytes", "dict", "float", "int", "list", "str", "tuple"))


@dataclass(frozen=True)
class ExpressionScope:
    """Position of an expression: `owner` begins the names of its classes where shorter ones are taken; `shadowed`
    are the names that mean something else there; `level` is how deep it is in another one; `inline` asks for objects to
    be spelt out as they would be in a program, which is for readers only."""

    owner: str
    shadowed: frozenset[str] = frozenset()
    level: int = 0
    inline: bool = False


@dataclass(frozen=True)
class _Pending:
    """A class or an alias that is mentioned and not printed yet."""

    name: str
    shape: Shape
    doc: Doc
    scope: ExpressionScope


class PythonTypes:
    """Prints types, and remembers what has to be declared for them."""

    def __init__(self, definitions: Mapping[Definition, str], names: TypeNames, stream: str | None = None) -> None:
        self._definitions = definitions
        self._names = names
        self._stream = stream
        """Class of streams that may be awaited, too; None: they are shown as async iterators."""
        self._pending: deque[_Pending] = deque()
        self._mentioned: set[Definition] = set()
        self._intersections: dict[tuple[Intersection, frozenset[str], bool], str | None] = {}
        self._imported: set[str] = set()
        self._modules: set[str] = set()
        self._extends_typing = False

    def show(self, shape: Shape, hint: str, scope: ExpressionScope) -> str:
        """The type, on one line. An object with properties becomes a class that is named by the hint."""
        scope = replace(scope, level=scope.level + 1)
        match shape:
            case Array() | Object() if scope.level > _MAX_LEVELS:
                return self._named(shape, hint, scope)
            case Unknown():
                return self._word("Any", scope)
            case Never():
                return self._word("Never", scope)
            case Primitive(kind="object"):
                return "{...}"
            case Primitive(kind=kind):
                return "None" if kind == "null" else self._word(_PRIMITIVES.get(kind, kind), scope)
            case Constant():
                return self._union((shape,), hint, scope)
            case Union(members=members):
                return self._union(members, hint, scope)
            case Intersection():
                return self._intersection(shape, hint, scope)
            case TypeReference(definition=definition):
                return self._reference(definition)
            case Array():
                return self._array(shape, hint, scope)
            case Object():
                return self._object(shape, hint, scope)

    def stream(self, item: str, scope: ExpressionScope) -> str:
        """The type of a stream of what is shown as `item`."""
        return f"{self._stream or self._word('AsyncIterator', scope)}[{item}]"

    @property
    def needs_declarations(self) -> bool:
        """True if types were mentioned that have to be declared."""
        return bool(self._pending)

    def declarations(self) -> list[str]:
        """The lines that declare all that was mentioned, by name; first the imports."""
        declared: dict[str, list[str]] = {}
        while self._pending:
            each = self._pending.popleft()
            declared[each.name] = self._declaration(each)
        lines = [f"import {module}" for module in sorted(self._modules)]
        extensions = {"TypedDict"} if self._extends_typing else set[str]()
        for module, names in (("typing", self._imported - extensions), ("typing_extensions", extensions)):
            lines += [f"from {module} import {', '.join(sorted(names))}"] if names else []
        return lines + [line for name in sorted(declared) for line in declared[name]]

    # --- expressions

    def _word(self, name: str, scope: ExpressionScope) -> str:
        module = "builtins" if name in _BUILTINS else "typing"
        if name in scope.shadowed:
            self._modules.add(module)
            return f"{module}.{name}"
        if module == "typing":
            self._imported.add(name)
        return name

    def _reference(self, definition: Definition) -> str:
        name = self._definitions[definition]
        if definition not in self._mentioned:
            self._mentioned.add(definition)
            self._pending.append(_Pending(name, definition.shape or UNKNOWN, definition.doc, ExpressionScope(name)))
        return name

    def _union(self, members: Sequence[Shape], hint: str, scope: ExpressionScope) -> str:
        """Constants are one `Literal`; those with a fraction are any number, as Python has no type for them."""
        known = [NUMBER if _is_fraction(each) else each for each in members if each != UNKNOWN]
        members = [*members_of(union(known)), *([UNKNOWN] if UNKNOWN in members else [])]
        constants = ", ".join(constant_text(each) for each in members if isinstance(each, Constant))
        literal = f"{self._word('Literal', scope)}[{constants}]" if constants else ""
        are_several = sum(isinstance(each, Object) for each in members) > 1
        types: dict[str, None] = {}
        for each in members:
            if isinstance(each, Constant):
                types[literal] = None
            else:
                kind = _kind_of(each) if are_several and isinstance(each, Object) else ""
                types[self.show(each, f"{hint}-{kind}", scope)] = None
        return " | ".join(types) if len(types) <= _MAX_BARS else f"{self._word('Union', scope)}[{', '.join(types)}]"

    def _intersection(self, shape: Intersection, hint: str, scope: ExpressionScope) -> str:
        """Worked out once. What would be part of itself without a class in between is `Any`."""
        key = (shape, scope.shadowed, scope.inline)
        if key not in self._intersections and len(self._intersections) < _MAX_INTERSECTIONS:
            self._intersections[key] = None
            self._intersections[key] = self.show(worked_out(shape), hint, scope)
        return self._intersections.get(key) or self._word("Any", scope)

    def _array(self, shape: Array, hint: str, scope: ExpressionScope) -> str:
        found = layout(shape)
        if found is None:
            return self._word("Never", scope)
        hint = f"{hint}-item"
        if not found.spelt:
            return f"{self._word('list', scope)}[{self.show(found.rest or NEVER, hint, scope)}]"
        items = [self.show(item, hint, scope) for item in found.spelt]
        if len(items) - found.required <= _MAX_OPTIONAL_ITEMS:
            lengths = [items[:length] for length in range(found.required, len(items) + 1)]
            rest = found.rest
        else:
            lengths = [items[: found.required]]
            rest = union((*found.spelt[found.required :], found.rest or NEVER))
        if rest is not None:
            lengths[-1] = [*lengths[-1], f"*{self._word('tuple', scope)}[{self.show(rest, hint, scope)}, ...]"]
        return " | ".join(f"{self._word('tuple', scope)}[{', '.join(length) or '()'}]" for length in lengths)

    def _object(self, shape: Object, hint: str, scope: ExpressionScope) -> str:
        if not listed(shape):
            otherwise = UNKNOWN if shape.additional is None and not shape.properties else NEVER
            values = self.show(extra_items(shape) or otherwise, f"{hint}-value", scope)
            return f"{self._word('dict', scope)}[{self._word('str', scope)}, {values}]"
        if scope.inline and extra_items(shape) is None:
            members = (f"{quoted(each.name)}: {self._member(each, scope)}" for each in listed(shape))
            return f"{{{', '.join(members)}}}"
        return self._named(shape, hint, scope)

    def _named(self, shape: Shape, hint: str, scope: ExpressionScope) -> str:
        title = shape.title if isinstance(shape, Object) else ""
        base = pascal_case(title or hint)[:_MAX_NAME_CHARACTERS]
        name = self._names.pick(base, f"{pascal_case(scope.owner)[:_MAX_NAME_CHARACTERS]}{base}")
        self._pending.append(_Pending(name, shape, Doc(), ExpressionScope(scope.owner)))
        return name

    # --- declarations

    def _declaration(self, pending: _Pending) -> list[str]:
        shape = worked_out(pending.shape)
        if isinstance(shape, Object) and listed(shape):
            return self._typed_dict(pending, shape)
        alias = f"{pending.name}: {self._word('TypeAlias', pending.scope)} = "
        return [*commented(told(pending.doc)), alias + self.show(shape, pending.name, pending.scope)]

    def _typed_dict(self, pending: _Pending, shape: Object) -> list[str]:
        """A class, or a call of `TypedDict` where a class cannot have members of such names."""
        base, extra, arguments = self._word("TypedDict", pending.scope), extra_items(shape), ""
        properties = listed(shape)
        is_total = any(each.required for each in properties)
        types = [self._member(each, pending.scope, is_total=is_total) for each in properties]
        if extra is not None:
            self._extends_typing = True
            arguments = f", extra_items={self.show(extra, f'{pending.name}-extra', pending.scope)}"
        words = {word for text in types for word in _WORD.findall(text)}
        is_class = all(is_name(each.name) and each.name not in words for each in properties)
        if not is_total:
            arguments += ", total=False"
        members = [
            line
            for each, text in zip(properties, types, strict=True)
            for line in with_comment(
                f"{each.name}: {text}" if is_class else f"{quoted(each.name)}: {text},", told(each.doc)
            )
        ]
        if is_class:
            members = [*docstring(told(pending.doc)), *members]
            return [f"class {pending.name}({base}{arguments}):", *indented(members)]
        start, end = f'{pending.name} = {base}("{pending.name}", {{', f"}}{arguments})"
        line = f"{start}{' '.join(members).removesuffix(',')}{end}"
        is_short = not any(each.doc for each in properties) and len(line) <= _LINE_CHARACTERS
        return [*commented(told(pending.doc)), *([line] if is_short else [start, *indented(members), end])]

    def _member(self, each: Property, scope: ExpressionScope, *, is_total: bool = True) -> str:
        text = self.show(each.shape, each.name[:_MAX_NAME_CHARACTERS], scope)
        return text if each.required or not is_total else f"{self._word('NotRequired', scope)}[{text}]"


def extra_items(shape: Object) -> Shape | None:
    """The type of unlisted properties, whatever their names; None if none are announced.

    An empty name is among these: type checkers do not take it for that of a member.
    """
    values = [value for _, value in shape.patterns]
    values += [each.shape for each in shape.properties if not each.name and each.shape != NEVER]
    if shape.additional not in (None, NEVER):
        values.append(shape.additional)
    return union(values) if values else None


def listed(shape: Object) -> tuple[Property, ...]:
    """The properties that a type lists: where no others are announced, forbidding one says nothing."""
    is_open = extra_items(shape) is not None
    return tuple(each for each in shape.properties if each.name and (is_open or each.required or each.shape != NEVER))


def worked_out(shape: Shape) -> Shape:
    """The shape without an intersection at its top: Python has none. It is widened where that would be too long.

    Intersections further down stay as they are, to be worked out once each.
    """
    if not isinstance(shape, Intersection):
        return shape
    found: list[Shape] = [UNKNOWN]
    is_exact = True
    for factor in shape.members:
        others = alternatives(factor, MAX_EXPANSIONS)
        if others is None or len(found) * len(others) > _MAX_ALTERNATIVES:
            is_exact = False
        else:
            found = [intersect(one, other, MAX_EXPANSIONS) for one, other in product(found, others)]
    return union(found if is_exact else map(_opened, found))


def _opened(shape: Shape) -> Shape:
    is_silent = isinstance(shape, Object) and shape.additional is None
    return replace(shape, additional=UNKNOWN) if is_silent else shape


def _is_fraction(shape: Shape) -> bool:
    """True if it is a number that is not written as an integer."""
    return isinstance(shape, Constant) and shape.kind == "number" and not shape.text.lstrip("-").isdecimal()


def _kind_of(shape: Object) -> str:
    """Discriminator of an object in a union: its first constant, or else its most required property."""
    needed = [each for each in shape.properties if each.required]
    for each in needed:
        if isinstance(each.shape, Constant) and each.shape.kind == "string":
            return constant_text(each.shape)[1:-1]
    return needed[-1].name if needed else ""
