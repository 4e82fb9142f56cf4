"""Decorators as the proposal of ECMAScript has them, lowered in place: the guest's `Decoration` does the work.

A class that has some gets a `Decoration`. What stands in front of a member becomes a static method whose computed name
collects the decorators, so that each is evaluated where and when it should be; a static block in front of all other
members applies them.
"""

from __future__ import annotations

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.typescript import child_of_type, text_of
from corral.programs.typescript.erasure.lower import Lowering, is_accessor, rejected
from corral.programs.typescript.names import Names


def decorate(node: Node, edits: Edits, names: Names, lowering: Lowering) -> None:
    """Adds the edits for the class `node`, if it or a member of it is decorated.

    Raises ProgramRejected for decorators that the guest cannot apply.
    """
    body = node.child_by_field_name("body")
    if body is None:
        return
    own = _decorators(node)
    if node.parent is not None and node.parent.type == "export_statement":
        own = [*_decorators(node.parent), *own]
    members = _members(body, edits.text)
    if not own and not members:
        return
    name = node.child_by_field_name("name")
    if name is None or node.type == "class":
        place = next(iter(own), None) or members[0][0][0]
        raise rejected("Decorators need a class declaration with a name, not a class expression", edits.text, place)
    _Decorated(edits, lowering, lowering.fresh(), text_of(name)).run(node, own, members, body, names.decorate)


def _decorators(node: Node) -> list[Node]:
    return [each for each in node.children if each.type == "decorator"]


def _members(body: Node, text: bytes) -> list[tuple[list[Node], Node]]:
    """The members that have decorators, with these."""
    found: list[tuple[list[Node], Node]] = []
    waiting: list[Node] = []
    for each in body.named_children:
        if each.type == "decorator":
            waiting.append(each)
        elif each.type != "comment":
            here = [*waiting, *_decorators(each)]
            waiting = []
            if here and each.type in ("method_definition", "public_field_definition"):
                found.append((here, each))
            _refuse_parameters(each, text)
    return found


def _refuse_parameters(member: Node, text: bytes) -> None:
    parameters = member.child_by_field_name("parameters")
    for each in parameters.named_children if parameters is not None else ():
        if (decorator := child_of_type(each, "decorator")) is not None:
            raise rejected(
                "Decorators of parameters are not supported. Decorate the method or the class", text, decorator
            )


class _Decorated:
    """A class, and the variable of its `Decoration`."""

    def __init__(self, edits: Edits, lowering: Lowering, variable: str, name: str) -> None:
        self._edits = edits
        self._lowering = lowering
        self._variable = variable
        self._name = name

    def run(self, node: Node, own: list[Node], members: list[tuple[list[Node], Node]], body: Node, helper: str) -> None:
        begin = f'{self._variable} = {helper}("{self._name}", ['
        applied = f"{self._variable}.apply(this)"
        if own:
            self._spread(own, f"let {self._name}, {begin}", "]); ")
            if (name := node.child_by_field_name("name")) is not None:
                self._edits.blank(name.start_byte, name.end_byte)
            word = next(each for each in node.children if each.type == "class")
            self._edits.replace(
                word.start_byte, word.end_byte, f"{self._name} = {self._variable}.finish(class".encode()
            )
            self._edits.wrap(node.start_byte, node.end_byte, b"", b");")
            applied = f"{self._name} = {applied}"
        else:
            self._edits.wrap(node.start_byte, node.end_byte, f"const {begin}]); ".encode(), b"")
        starts = any(child_of_type(member, "static") is None for _, member in members)
        code = f" static {{ {applied}; }}" + f" #{self._lowering.fresh()} = {self._variable}.start(this);" * starts
        self._edits.wrap(body.start_byte + 1, body.start_byte + 1, code.encode(), b"")
        for index, (decorators, member) in enumerate(members):
            self._member(index, decorators, member)

    def _spread(self, decorators: list[Node], before: str, after: str) -> None:
        """Makes an array of decorators: each `@` becomes a comma, but for the first."""
        for number, each in enumerate(decorators):
            self._edits.replace(each.start_byte, each.start_byte + 1, b", " if number else before.encode())
        last = decorators[-1]
        self._edits.wrap(last.start_byte, last.end_byte, b"", after.encode())

    def _member(self, index: int, decorators: list[Node], member: Node) -> None:
        name = member.child_by_field_name("name") or member
        if name.type == "private_property_identifier":
            raise rejected(
                "Decorators of private members are not supported. Give the member a name without #",
                self._edits.text,
                decorators[0],
            )
        variable, static = self._variable, child_of_type(member, "static") is not None
        key = text_of(name) if name.type in ("string", "number") else f'"{text_of(name)}"'
        if name.type == "computed_property_name":
            key = "void 0"
            self._edits.wrap(name.start_byte + 1, name.end_byte - 1, f"{variable}.key(".encode(), b")")
        kind = _kind(member, self._edits.text)
        collect = f'static [{variable}.on("{kind}", {"true" if static else "false"}, {key}, ['
        self._spread(decorators, collect, "])]() {}; ")
        initial = f"{variable}.init({index}, this, ", ")"
        if kind == "accessor":
            self._lowering.accessor(member, initial)
        elif kind == "field":
            if (value := member.child_by_field_name("value")) is not None:
                self._edits.wrap(value.start_byte, value.end_byte, initial[0].encode(), initial[1].encode())
            else:
                self._edits.wrap(name.start_byte, name.end_byte, b"", f" = {initial[0]}void 0)".encode())
        if kind in ("accessor", "field"):
            behind = f"; {'static ' * static}#{self._lowering.fresh()} = {variable}.after({index}, this)"
            self._edits.wrap(member.start_byte, member.end_byte, b"", behind.encode())


def _kind(member: Node, text: bytes) -> str:
    if member.type == "public_field_definition":
        return "accessor" if is_accessor(member, text) else "field"
    if child_of_type(member, "get") is not None:
        return "getter"
    return "setter" if child_of_type(member, "set") is not None else "method"
