"""Lowers TypeScript constructs with run-time effects: enums, namespaces, parameter properties, `accessor`.

Every token that runs stays on its line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tree_sitter import Node

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.programs.edits import Edits, Places
from corral.programs.syntax.parsing import is_a, part
from corral.programs.syntax.typescript import (
    CLASSES,
    DECLARED_FUNCTIONS,
    FUNCTIONS,
    NAMESPACES,
    VARIABLES,
    bound_names,
    child_of_type,
    declaration_of,
    declared_names,
    statements,
    text_of,
    unwrapped,
    walk,
)
from corral.programs.typescript.names import Names

_TEXTS = frozenset({"string", "template_string"})
_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression", "for_in_statement"})
_IDENTIFIER = re.compile(rb"[\w$]+")
_MEMBER_ASSIGNED = re.compile(rb"\.\s*([\w$]+)\s*(?:[-+*/%&|^?<>]{0,3}=(?![=>])|\+\+|--)")
_THIS = re.compile(rb"(?<![\w$])(?:this|super)(?![\w$])")
_MODIFIERS = frozenset({"accessibility_modifier", "override_modifier", "readonly"})


@dataclass(slots=True)
class _Merged:
    """State shared by the merged declarations of one name in a scope."""

    scope: int = 0
    members: dict[str, None] = field(default_factory=dict[str, None])
    """Their exports so far."""
    declared: bool = False


class _Space(NamedTuple):
    """The variable that holds a namespace in its body, and its merged state."""

    variable: str
    merged: _Merged


class Lowering:
    """Lowers the constructs of one program. Each method adds the edits for one node."""

    def __init__(self, root: Node, edits: Edits, names: Names) -> None:
        self._root = root
        self._edits = edits
        self._text = edits.text
        self._names = names
        self._count = 0
        self._merged: defaultdict[tuple[int, str], _Merged] = defaultdict(_Merged)
        self._occupied: dict[int, set[str]] = {}
        self._spaces: dict[int, _Space] = {}
        """Namespaces by the offset of their body."""

    def _fresh(self) -> str:
        """Makes a name that the program does not use."""
        self._count += 1
        return f"{self._names.local}{self._count}"

    # --- enums

    def enum(self, node: Node) -> None:
        """`enum A { B, C = 5 }` becomes a function that fills an object; numeric members map in both directions."""
        name, body = part(node, "name"), part(node, "body")
        if name is None or body is None:
            return
        merged, before, after = self._open(node, text_of(name))
        space = self._fresh()
        self._edits.blank(node.start_byte, name.start_byte, first=before)
        previous: str | None = "-1"
        for member in body.named_children:
            if member.type == "comment":
                continue
            key, value = member, None
            if member.type == "enum_assignment":
                key, value = part(member, "name") or member, part(member, "value")
            spelled = _spelled(key)
            target = f"{space}[{spelled}]"
            reverse = f"{space}[{target}] = {spelled};"
            if value is None:
                auto = "void 0" if previous is None else f"{previous} + 1"
                self._edits.replace(key.start_byte, key.end_byte, f"{target} = {auto}; {reverse}".encode())
            else:
                self._qualify(value, space, merged)
                self._edits.replace(key.start_byte, key.end_byte, target.encode())
                both = reverse if value.type == "number" else f'typeof {target} === "string" || ({reverse[:-1]});'
                self._edits.wrap(value.start_byte, value.end_byte, b"(", f"); {both}".encode())
            previous = None if value is not None and unwrapped(value).type in _TEXTS else target
            if key.type == "property_identifier":
                merged.members[text_of(key)] = None
        for comma in body.children:
            if comma.type == ",":
                self._edits.blank(comma.start_byte, comma.end_byte)
        self._edits.wrap(body.start_byte, body.end_byte, f"; (function ({space}) ".encode(), after.encode())

    def _qualify(self, value: Node, space: str, merged: _Merged) -> None:
        """Makes references to other members in a member's value read from the enum."""
        pending = [value]
        while pending:
            node = pending.pop()
            if node.type == "identifier" and text_of(node) in merged.members:
                self._edits.wrap(node.start_byte, node.end_byte, f"{space}.".encode(), b"")
            pending += node.named_children

    # --- namespaces

    def namespace(self, node: Node) -> None:
        """`namespace A.B { export const x = 1 }` becomes nested functions that each fill an object."""
        name, body = part(node, "name"), part(node, "body")
        if name is None or body is None or name.type == "string":
            return
        first, *below = "".join(text_of(name).split()).split(".")
        merged, keyword, after = self._open(node, first)
        space = outer = self._fresh()
        before = f"; (function ({outer}) "
        for inner in below:
            space = self._fresh()
            before += f"{{ let {inner}; (function ({space}) "
            after = f")({inner} = {outer}.{inner} || ({outer}.{inner} = {{}})); }}{after}"
            outer = space
        if below:
            merged = self._merged[(merged.scope, ".".join([first, *below]))]
        self._edits.blank(node.start_byte, name.start_byte, first=keyword)
        self._edits.blank(name.start_byte + len(first.encode()), body.start_byte)
        self._edits.wrap(body.start_byte, body.end_byte, before.encode(), after.encode())
        self._share(body, space, merged)
        self._spaces[body.start_byte] = _Space(space, merged)

    def _share(self, body: Node, space: str, merged: _Merged) -> None:
        """Makes a namespace's exports from other declarations visible in this one."""
        if not merged.members:
            return
        words = set(_IDENTIFIER.findall(self._text, body.start_byte, body.end_byte))
        own = {name for each in statements(body) for name in declared_names(declaration_of(each))}
        shared = [name for name in merged.members if name.encode() in words and name not in own]
        if shared:
            code = f" const {{ {', '.join(shared)} }} = {space};"
            self._edits.wrap(body.start_byte + 1, body.start_byte + 1, code.encode(), b"")

    def export(self, statement: Node) -> None:
        """Lowers `export const x = 1` in a namespace."""
        declared, word = part(statement, "declaration"), child_of_type(statement, "export")
        shared = self._spaces.get(statement.parent.start_byte) if statement.parent is not None else None
        if declared is None or word is None or shared is None:
            return
        space, merged = shared
        names = declared_names(declared)
        self._edits.blank(word.start_byte, word.end_byte)
        merged.members.update(dict.fromkeys(names))
        if declared.type == "enum_declaration" or declared.type in NAMESPACES:
            return  # `_open` makes them members of the outer namespace
        varies = declared.type in VARIABLES and declared.children[0].type != "const"
        code = "".join(
            _live(space, name) if varies and name in self._assigned else f" {space}.{name} = {name};" for name in names
        )
        self._edits.wrap(statement.start_byte, statement.end_byte, b"", f";{code}".encode())

    @cached_property
    def _assigned(self) -> frozenset[str]:
        """Names that are assigned to anywhere, as variables or as members."""
        names = {each.decode(errors="replace") for each in _MEMBER_ASSIGNED.findall(self._text)}
        for node in walk(self._root):
            if node.type in _ASSIGNMENTS:
                target = part(node, "left")
            elif node.type == "update_expression":
                target = part(node, "argument")
            else:
                continue
            names.update(bound_names(target) if target is not None else ())
        return frozenset(names)

    # --- the object of an enum or a namespace

    def _open(self, node: Node, name: str) -> tuple[_Merged, bytes, str]:
        """Returns the merged state of this name, the declaring keyword, and the end of the initializer."""
        statement = node.parent if is_a(node.parent, "expression_statement") else node
        exported = is_a(statement.parent, "export_statement")
        owner = statement.parent if exported else statement
        scope = owner.parent if owner is not None else None
        if scope is None:
            return _Merged(), b"", ")({});"
        merged = self._merged[(scope.start_byte, name)]
        merged.scope = scope.start_byte
        shared = self._spaces.get(scope.start_byte) if exported else None
        around = shared and shared.variable
        is_block = (
            scope.type != "program" and scope.start_byte not in self._spaces and not is_a(scope.parent, *FUNCTIONS)
        )
        keyword = "let" if is_block or around else "var"
        taken = merged.declared and keyword == "let"
        declares = not taken and name not in self._declared_in(scope)
        merged.declared = True
        before = (keyword if declares else "").encode()
        if around is None:
            return merged, before, f")({name} || ({name} = {{}}));"
        return merged, before, f")({name} = {around}.{name} || ({around}.{name} = {{}}));"

    def _declared_in(self, scope: Node) -> set[str]:
        """Returns the classes and functions of a scope, which enums and namespaces can merge with."""
        if scope.start_byte not in self._occupied:
            declarations = [declaration_of(each) for each in statements(scope)]
            names = (part(each, "name") for each in declarations if each.type in CLASSES | DECLARED_FUNCTIONS)
            self._occupied[scope.start_byte] = {text_of(name) for name in names if name is not None}
        return self._occupied[scope.start_byte]

    # --- classes

    def parameter_properties(self, constructor: Node, properties: list[Node]) -> None:
        """`constructor(private x)` sets `this.x`, after `super(…)` and before the fields that read it."""
        body, members = part(constructor, "body"), constructor.parent
        names = [text_of(name) for each in properties if (name := part(each, "pattern")) is not None]
        if body is None or members is None:
            return
        for each in properties:
            for modifier in each.children:
                if modifier.type in _MODIFIERS:
                    self._edits.blank(modifier.start_byte, modifier.end_byte)
        code = "".join(f" this.{name} = {name};" for name in names)
        code += "".join(f" this.#{each}();" for each in self._postpone(members))
        self._after(members.start_byte + 1, "".join(f" {name};" for name in names))
        first = statements(body)
        derived = members.parent is not None and child_of_type(members.parent, "class_heritage") is not None
        called = next((each for each in first if derived and _calls_super(each)), None)
        if called is not None:
            self._edits.wrap(called.start_byte, called.end_byte, b"", f";{code}".encode())
        else:
            self._after(body.start_byte + 1, code)

    def _postpone(self, members: Node) -> list[str]:
        """Moves initializers that read `this` into methods for the constructor. Returns the methods' names."""
        setters: list[str] = []
        for each in members.named_children:
            name, value = part(each, "name"), part(each, "value")
            if each.type != "public_field_definition" or name is None or value is None or _is_static(each):
                continue
            sign = next((child for child in each.children if child.type == "="), None)
            special = name.type == "computed_property_name" or is_accessor(each, self._text)
            if special or sign is None or not _THIS.search(self._text, value.start_byte, value.end_byte):
                continue
            setters.append(setter := self._fresh())
            is_name = name.type in ("property_identifier", "private_property_identifier")
            target = f"this.{text_of(name)}" if is_name else f"this[{text_of(name)}]"
            self._edits.replace(sign.start_byte, sign.end_byte, f"; #{setter} = () => {target} =".encode())
            self._edits.wrap(value.start_byte, value.end_byte, b"(", b")")
        return setters

    def accessor(self, node: Node) -> None:
        """`accessor x = 1` becomes a private field, a getter and a setter."""
        name, word = part(node, "name"), child_of_type(node, "readonly")
        if name is None or word is None:
            return
        if name.type == "computed_property_name":
            raise rejected(
                "An `accessor` with a computed name is not supported. Give it a plain name", self._text, node
            )
        storage, spelled = f"#{self._fresh()}", text_of(name)
        static = "static " if _is_static(node) else ""
        code = f"; {static}get {spelled}() {{ return this.{storage}; }}"
        code += f" {static}set {spelled}(value) {{ this.{storage} = value; }}"
        self._edits.blank(word.start_byte, word.end_byte)
        self._edits.replace(name.start_byte, name.end_byte, storage.encode())
        self._edits.wrap(node.start_byte, node.end_byte, b"", code.encode())

    def _after(self, offset: int, code: str) -> None:
        self._edits.wrap(offset, offset, code.encode(), b"")


def is_accessor(member: Node, text: bytes) -> bool:
    """True if a field is an `accessor`, which the parser sees as `readonly`."""
    word = child_of_type(member, "readonly")
    return word is not None and text[word.start_byte : word.end_byte] == b"accessor"


def rejected(problem: str, text: bytes, node: Node) -> ProgramRejected:
    """Returns an error with a node's position."""
    return Places(text).rejected(f"{problem} ({{place}}).", node.start_byte)


def _spelled(key: Node) -> str:
    """Returns the key of an enum's member as an expression."""
    if key.type == "computed_property_name":
        return f"({text_of(key)[1:-1]})"
    return text_of(key) if key.type in ("string", "number") else f'"{text_of(key)}"'


def _live(space: str, name: str) -> str:
    """Returns code that keeps a namespace's member in sync with its variable."""
    accessors = f"get: () => {name}, set: (value) => {{ {name} = value; }}"
    return f' Object.defineProperty({space}, "{name}", {{ {accessors}, enumerable: true, configurable: true }});'


def _is_static(member: Node) -> bool:
    return child_of_type(member, "static") is not None


def _calls_super(statement: Node) -> bool:
    return any(each.type == "super" and is_a(each.parent, "call_expression") for each in walk(statement))
