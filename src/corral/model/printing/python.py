"""Prints tools as Python stubs, for models to read and programs to be checked against."""

from __future__ import annotations

import json
import keyword
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import NamedTuple, cast
from unicodedata import normalize

from corral.model.printing.abbreviations import abbreviate
from corral.model.printing.named_types import share
from corral.model.printing.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.model.shapes import descriptions as describing
from corral.model.shapes.algebra import MAX_EXPANSIONS, alternatives, intersect, union
from corral.model.shapes.constants import constants
from corral.model.shapes.descriptions import printable, tool_lines
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
from corral.model.shapes.traits import layout, members_of
from corral.model.shapes.type_systems import PYTHON
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ToolName

_ENDS_DOCSTRING = re.compile(r'\\|"(?="")')
_DIRECTIVE = re.compile(r"#(?=\s*[\w-]+\s*:)")
"""Matches directives such as `# type: ignore` or `# pyright: basic`, which type checkers recognise in any comment."""


def is_name(text: str) -> bool:
    """True if the text is an identifier that neither normalization nor class scope changes."""
    plain = text.isidentifier() and normalize("NFKC", text) == text and not text.startswith("__")
    return plain and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """Returns a string literal. Invisible characters are escaped."""
    marked = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in marked)


def _constant_text(constant: Constant) -> str:
    return literal(json.loads(constant.text))


def literal(value: object) -> str:
    """Writes a JSON value as Python does."""
    match value:
        case str():
            return quoted(value)
        case list():
            return f"[{', '.join(map(literal, cast('list[object]', value)))}]"
        case dict():
            members = cast("dict[str, object]", value).items()
            return f"{{{', '.join(f'{quoted(name)}: {literal(each)}' for name, each in members)}}}"
        case _:
            return repr(value)


def description_lines(doc: Doc, *, default: bool = True) -> list[str]:
    shown = literal(json.loads(doc.default)) if default and doc.default not in (None, "null") else None
    return describing.description_lines(doc, default=shown)


def docstring(lines: Sequence[str]) -> list[str]:
    """Returns the lines as a docstring; empty if there are none."""
    safe = [_ENDS_DOCSTRING.sub(r"\\\g<0>", line) for line in lines]
    if not safe:
        return []
    if safe[-1].endswith('"'):
        safe[-1] = f'{safe[-1][:-1]}\\"'
    safe[0] = f'"""{safe[0]}'
    safe[-1] += '"""'
    return safe


def commented(lines: Sequence[str]) -> list[str]:
    """Returns the lines as comments that type checkers cannot take for directives."""
    return [f"#: {_DIRECTIVE.sub('#:', printable(line))}".rstrip() for line in lines]


def _with_comment(line: str, lines: Sequence[str]) -> list[str]:
    """Adds comments to the line: one at its end, several above it."""
    if len(lines) == 1:
        return [f"{line} {commented(lines)[0]}"]
    return [*commented(lines), line]


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


_MAX_NAME_CHARACTERS = 40
_MAX_ALTERNATIVES = 32
"""Maximum number of alternatives to which an intersection is expanded."""
_MAX_INTERSECTIONS = 200
"""Maximum number of expanded intersections, because merging parts creates further intersections."""
_MAX_LEVELS = 20
"""Maximum nesting of an expression. Type checkers give up on deeper ones, so deeper types get names."""
_MAX_BARS = 50
"""Maximum number of members of a union written with `|`, for the same reason."""
_MAX_OPTIONAL_ITEMS = 4
"""Maximum number of optional items of a tuple for which each length is printed as a type of its own."""

_WORD = re.compile(r"\w+")
_PRIMITIVES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
_BUILTINS = frozenset(("bool", "bytes", "dict", "float", "int", "list", "str", "tuple"))


@dataclass(frozen=True)
class _ExpressionScope:
    """Position of an expression. `owner` begins the names of its classes if shorter ones are taken. `shadowed` has the
    names with another meaning there. `level` is its depth within another expression. `inline` spells objects out as
    programs write them, for readers only."""

    owner: str
    shadowed: frozenset[str] = frozenset()
    level: int = 0
    inline: bool = False


@dataclass(frozen=True)
class _Pending:
    """A class or an alias that is mentioned but not printed yet."""

    name: str
    shape: Shape
    doc: Doc
    scope: _ExpressionScope


class _PythonTypes:
    """Prints types, and remembers the declarations that they need."""

    def __init__(self, definitions: Mapping[Definition, str], names: TypeNames, stream: str | None = None) -> None:
        self._definitions = definitions
        self._names = names
        self._stream = stream
        """Class of streams that can also be awaited. None shows them as async iterators."""
        self._pending: deque[_Pending] = deque()
        self._mentioned: set[Definition] = set()
        self._intersections: dict[tuple[Intersection, frozenset[str], bool], str | None] = {}
        self._imported: set[str] = set()
        self._modules: set[str] = set()
        self._extends_typing = False

    def show(self, shape: Shape, hint: str, scope: _ExpressionScope) -> str:
        """Prints the type on one line. An object with properties becomes a class named after the hint."""
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

    def stream(self, item: str, scope: _ExpressionScope) -> str:
        """Prints the type of a stream with items of type `item`."""
        return f"{self._stream or self._word('AsyncIterator', scope)}[{item}]"

    @property
    def needs_declarations(self) -> bool:
        """True if a mentioned type still has to be declared."""
        return bool(self._pending)

    def declarations(self) -> list[str]:
        """Returns the lines that declare everything mentioned: imports first, then by name."""
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

    def _word(self, name: str, scope: _ExpressionScope) -> str:
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
            self._pending.append(_Pending(name, definition.shape or UNKNOWN, definition.doc, _ExpressionScope(name)))
        return name

    def _union(self, members: Sequence[Shape], hint: str, scope: _ExpressionScope) -> str:
        """Prints constants as one `Literal`. Those with a fraction become `float`, because Python has no type for
        them."""
        known = [NUMBER if _is_fraction(each) else each for each in members if each != UNKNOWN]
        members = [*members_of(union(known)), *([UNKNOWN] if UNKNOWN in members else [])]
        constants = ", ".join(_constant_text(each) for each in members if isinstance(each, Constant))
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

    def _intersection(self, shape: Intersection, hint: str, scope: _ExpressionScope) -> str:
        """Expands each intersection once. One that would contain itself without a class in between becomes `Any`."""
        key = (shape, scope.shadowed, scope.inline)
        if key not in self._intersections and len(self._intersections) < _MAX_INTERSECTIONS:
            self._intersections[key] = None
            self._intersections[key] = self.show(_worked_out(shape), hint, scope)
        return self._intersections.get(key) or self._word("Any", scope)

    def _array(self, shape: Array, hint: str, scope: _ExpressionScope) -> str:
        tuple_layout = layout(shape)
        if tuple_layout is None:
            return self._word("Never", scope)
        hint = f"{hint}-item"
        if not tuple_layout.spelt:
            return f"{self._word('list', scope)}[{self.show(tuple_layout.rest or NEVER, hint, scope)}]"
        items = [self.show(item, hint, scope) for item in tuple_layout.spelt]
        if len(items) - tuple_layout.required <= _MAX_OPTIONAL_ITEMS:
            lengths = [items[:length] for length in range(tuple_layout.required, len(items) + 1)]
            rest = tuple_layout.rest
        else:
            lengths = [items[: tuple_layout.required]]
            rest = union((*tuple_layout.spelt[tuple_layout.required :], tuple_layout.rest or NEVER))
        if rest is not None:
            lengths[-1] = [*lengths[-1], f"*{self._word('tuple', scope)}[{self.show(rest, hint, scope)}, ...]"]
        return " | ".join(f"{self._word('tuple', scope)}[{', '.join(length) or '()'}]" for length in lengths)

    def _object(self, shape: Object, hint: str, scope: _ExpressionScope) -> str:
        if not listed(shape):
            otherwise = UNKNOWN if shape.additional is None and not shape.properties else NEVER
            values = self.show(extra_items(shape) or otherwise, f"{hint}-value", scope)
            return f"{self._word('dict', scope)}[{self._word('str', scope)}, {values}]"
        if scope.inline and extra_items(shape) is None:
            members = (f"{quoted(each.name)}: {self._member(each, scope)}" for each in listed(shape))
            return f"{{{', '.join(members)}}}"
        return self._named(shape, hint, scope)

    def _named(self, shape: Shape, hint: str, scope: _ExpressionScope) -> str:
        title = shape.title if isinstance(shape, Object) else ""
        base = pascal_case(title or hint)[:_MAX_NAME_CHARACTERS]
        name = self._names.pick(base, f"{pascal_case(scope.owner)[:_MAX_NAME_CHARACTERS]}{base}")
        self._pending.append(_Pending(name, shape, Doc(), _ExpressionScope(scope.owner)))
        return name

    # --- declarations

    def _declaration(self, pending: _Pending) -> list[str]:
        shape = _worked_out(pending.shape)
        if isinstance(shape, Object) and listed(shape):
            return self._typed_dict(pending, shape)
        alias = f"{pending.name}: {self._word('TypeAlias', pending.scope)} = "
        return [*commented(description_lines(pending.doc)), alias + self.show(shape, pending.name, pending.scope)]

    def _typed_dict(self, pending: _Pending, shape: Object) -> list[str]:
        """Writes a class or, if member names are not valid in a class, a call to `TypedDict`."""
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
            for line in _with_comment(
                f"{each.name}: {text}" if is_class else f"{quoted(each.name)}: {text},", description_lines(each.doc)
            )
        ]
        if is_class:
            members = [*docstring(description_lines(pending.doc)), *members]
            return [f"class {pending.name}({base}{arguments}):", *indented(members)]
        start, end = f'{pending.name} = {base}("{pending.name}", {{', f"}}{arguments})"
        line = f"{start}{' '.join(members).removesuffix(',')}{end}"
        is_short = not any(each.doc for each in properties) and len(line) <= _LINE_CHARACTERS
        return [*commented(description_lines(pending.doc)), *([line] if is_short else [start, *indented(members), end])]

    def _member(self, each: Property, scope: _ExpressionScope, *, is_total: bool = True) -> str:
        text = self.show(each.shape, each.name[:_MAX_NAME_CHARACTERS], scope)
        return text if each.required or not is_total else f"{self._word('NotRequired', scope)}[{text}]"


def extra_items(shape: Object) -> Shape | None:
    """Returns the type of unlisted properties of any name; None if none are announced.

    An empty pattern counts too, because type checkers do not take it for a member's name.
    """
    values = [value for _, value in shape.patterns]
    values += [each.shape for each in shape.properties if not each.name and each.shape != NEVER]
    if shape.additional not in (None, NEVER):
        values.append(shape.additional)
    return union(values) if values else None


def listed(shape: Object) -> tuple[Property, ...]:
    """Returns the properties to list. A forbidden property is left out if no others are announced."""
    is_open = extra_items(shape) is not None
    return tuple(each for each in shape.properties if each.name and (is_open or each.required or each.shape != NEVER))


def _worked_out(shape: Shape) -> Shape:
    """Expands an intersection at the top of the shape, because Python has none. Widens it if the result is too long.

    Nested intersections stay, and are each expanded once.
    """
    if not isinstance(shape, Intersection):
        return shape
    merged: list[Shape] = [UNKNOWN]
    is_exact = True
    for factor in shape.members:
        others = alternatives(factor, MAX_EXPANSIONS)
        if others is None or len(merged) * len(others) > _MAX_ALTERNATIVES:
            is_exact = False
        else:
            merged = [intersect(one, other, MAX_EXPANSIONS) for one, other in product(merged, others)]
    return union(merged if is_exact else map(_open, merged))


def _open(shape: Shape) -> Shape:
    is_silent = isinstance(shape, Object) and shape.additional is None
    return replace(shape, additional=UNKNOWN) if is_silent else shape


def _is_fraction(shape: Shape) -> bool:
    """True for a number that is not written as an integer."""
    return isinstance(shape, Constant) and shape.kind == "number" and not shape.text.lstrip("-").isdecimal()


def _kind_of(shape: Object) -> str:
    """Returns the discriminator of an object in a union: its first constant, or else its most required property."""
    needed = [each for each in shape.properties if each.required]
    for each in needed:
        if isinstance(each.shape, Constant) and each.shape.kind == "string":
            return _constant_text(each.shape)[1:-1]
    return needed[-1].name if needed else ""


_LINE_CHARACTERS = 240
_MAX_HOPS = 20
_NO_INPUT = Object(additional=NEVER)
_BY_POSITION = {ToolName(None, name) for name in RESERVED_ROOT_NAMES}
"""Corral's own tools, whose first parameter can also be positional. No other tools have these names."""
_STREAM = """\
import typing as _typing
_Item = _typing.TypeVar("_Item", covariant=True)
class ToolStream(_typing.AsyncIterator[_Item], _typing.Awaitable[_typing.AsyncIterator[_Item]]):
    async def aclose(self) -> None: ...
"""
"""Type of a stream, for a checker: programs can await the call or iterate over it directly."""
_ALIAS = "codemode = tools\n"


def declare_python(tools: Mapping[ToolName, ToolShape], *, checked: bool = False) -> str:
    """Declares `tools`, its alias `codemode`, and the types that they mention, as a stub file.

    A tool takes keywords if its input is an object whose members can be keywords; otherwise it takes its input by
    position. The text does not depend on the order of the tools. Never raises: types that Python cannot express are
    widened, up to `Any`, and texts and names in the schemas cannot break out of their place.

    Args:
        tools: by their names in programs.
        checked: prints for a type checker instead of a reader: without descriptions.
    """
    signatures = share(read_signatures(tools, PYTHON), PYTHON, texts=not checked)
    return print_python(signatures, checked=checked) + _ALIAS


def print_python(signatures: Mapping[ToolName, Signature], *, checked: bool = False) -> str:
    """Declares `tools`, and the types that they mention."""
    signatures = {name: _with_keywords(name, each, checked=checked) for name, each in signatures.items()}
    own_names = {part for name in signatures for part in (name.namespace, name.name) if part}
    legend = abbreviate({name: each.doc for name, each in signatures.items()})
    signatures = {name: each._replace(doc=legend.docs[name]) for name, each in signatures.items()}
    names = TypeNames(PYTHON.taken | own_names | {"tools", "codemode"})
    stream = names.pick("ToolStream") if checked and any(each.is_stream for each in signatures.values()) else None
    types = _PythonTypes(name_definitions(signatures.values(), names), names, stream)
    tree = _tree(signatures, types)
    lines = (*types.declarations(), *commented(legend.lines), *tree)
    return "".join(f"{line}\n" for line in lines) + (_STREAM.replace("ToolStream", stream) if stream else "")


def python_call(name: ToolName, signature: Signature) -> str | None:
    """Prints the call to a tool that mentions no definitions on one line; None if it does not fit on one line."""
    types = _PythonTypes({}, TypeNames())
    path = _attribute("tools" if name.namespace is None else _attribute("tools", name.namespace), name.name)
    parameters, returned = _parameters(name, _with_keywords(name, signature), types, _ExpressionScope(name.name))
    shown = ", ".join(each.text for each in parameters)
    return None if types.needs_declarations else f"{path}({shown}) -> {returned}"


def _with_keywords(name: ToolName, signature: Signature, *, checked: bool = False) -> Signature:
    """Returns the signature, with its input as keywords if possible."""
    if signature.is_empty and not checked:
        return signature._replace(input=_NO_INPUT)
    members = members_of(signature.input) if name in _BY_POSITION else (signature.input,)
    keywords = next((each for each in map(_keywords, members) if each), None)
    return signature._replace(input=keywords or signature.input)


def _tree(signatures: Mapping[ToolName, Signature], types: _PythonTypes) -> list[str]:
    """Prints the class `tools`: methods without a namespace first, then a class for each namespace."""
    entries: list[str] = []
    names = {name.namespace or name.name for name in signatures}
    for namespace, group in groupby(signatures.items(), key=lambda item: item[0].namespace):
        members = dict(group)
        owner, shadowed = (
            ("tools", names) if namespace is None else (_attribute("tools", namespace), {each.name for each in members})
        )
        scope = frozenset(shadowed)
        methods: list[str] = []
        for name, signature in members.items():
            method = _method(name, signature, types, _ExpressionScope(name.name, scope))
            methods += _declaration_lines(owner, name.name, method)
        entries += methods if namespace is None else _declaration_lines("tools", namespace, _class(namespace, methods))
    return _class("tools", entries)


def _class(name: str, entries: list[str]) -> list[str]:
    is_empty = all(line.startswith("#") for line in entries)
    return [f"class {name}:", *indented([*entries, *(["..."] if is_empty else [])])]


def _declaration_lines(owner: str, name: str, lines: list[str]) -> list[str]:
    """Returns the declaration or, if the name is not valid in Python, comments that say how to reach the tool."""
    return lines if is_name(name) else commented([_attribute(owner, name), *lines])


def _attribute(owner: str, name: str) -> str:
    return f"{owner}.{name}" if is_name(name) else f"getattr({owner}, {quoted(name)})"


def _method(name: ToolName, signature: Signature, types: _PythonTypes, scope: _ExpressionScope) -> list[str]:
    parameters, returned = _parameters(name, signature, types, scope)
    documented = docstring(tool_lines(signature.doc))
    start, end = (
        f"{'def' if signature.is_stream else 'async def'} {name.name}(",
        f") -> {returned}:{'' if documented else ' ...'}",
    )
    head = [f"{start}{', '.join(each.text for each in parameters)}{end}"]
    if any(each.description for each in parameters) or (len(head[0]) > _LINE_CHARACTERS and parameters):
        star = "*," if parameters[0].text == "*" else ""
        lines = [_with_comment(f"{each.text},", each.description) for each in parameters[bool(star) :]]
        head = [f"{start}{star}", *indented([line for each in lines for line in each]), end]
    return ["@staticmethod", *head, *indented(documented)]


class _Parameter(NamedTuple):
    text: str
    description: Sequence[str] = ()


def _parameters(
    name: ToolName, signature: Signature, types: _PythonTypes, scope: _ExpressionScope
) -> tuple[list[_Parameter], str]:
    """Returns the declared parameters of the function, and its return type."""
    keywords = _keywords(signature.input)
    input_scope = replace(scope, inline=signature.inline_input)
    if keywords is None:
        shown = types.show(signature.input, f"{name.name}-input", input_scope)
        parameters = [_Parameter(f"input: {shown}{'' if signature.needs_input else ' = ...'}"), _Parameter("/")]
    else:
        parameters = [_parameter(each, types.show(each.shape, each.name, input_scope)) for each in keywords.properties]
        by_position = 1 if name in _BY_POSITION else 0
        if len(parameters) > by_position:
            parameters.insert(by_position, _Parameter("*"))
        if signature.is_elided:
            parameters.append(_Parameter(f"**more: {types.show(UNKNOWN, name.name, scope)}"))
    returned = types.show(signature.output, f"{name.name}-output", replace(scope, inline=signature.inline_output))
    return parameters, types.stream(returned, scope) if signature.is_stream else returned


def _parameter(each: Property, shown: str) -> _Parameter:
    default = _default(each)
    description = description_lines(each.doc, default=default in ("", "..."))
    return _Parameter(f"{each.name}: {shown}{default and f' = {default}'}", description)


def _keywords(shape: Shape) -> Object | None:
    """Returns the object whose members can be keywords of a call; None if the input must be one value."""
    for _ in range(_MAX_HOPS):
        if not isinstance(shape, TypeReference):
            break
        shape = shape.definition.shape or UNKNOWN
    shape = _worked_out(shape)
    if not isinstance(shape, Object) or extra_items(shape) is not None:
        return None
    properties = listed(shape)
    is_open = not properties and shape.additional is None
    return (
        None if is_open or not all(is_name(each.name) for each in properties) else replace(shape, properties=properties)
    )


def _default(each: Property) -> str:
    """Returns a parameter's default: empty if required, `...` if unknown, too large or of another type."""
    if each.required:
        return ""
    value: object = None if each.doc.default is None else json.loads(each.doc.default)
    if each.doc.default is None or isinstance(value, list | dict):
        return "..."
    accepted = each.shape.definition.shape or UNKNOWN if isinstance(each.shape, TypeReference) else each.shape
    shape = constants([value])
    if union((accepted, shape)) != accepted:
        return "..."
    return _constant_text(shape) if isinstance(shape, Constant) else "None"
