"""Declared types as definitions that run, for programs in Python that use them outside of annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.parsing import text_of
from corral.programs.syntax.python import finder
from corral.texts import LINE_END

_OF_TOOLS = "tools."
_IDENTIFIERS = finder("(identifier) @name")
_NOT_YET = frozenset({"extra_items", "closed"})
"""Arguments of `TypedDict` that Python knows only in later versions."""
_IMPORTS = frozenset({"import_statement", "import_from_statement"})


def declared_names(root: Node) -> dict[str, Node]:
    """The statements that declare types, without what else declarations hold, by the names of the types."""
    return {name: each for each in root.named_children if (name := _declared(each))}


def runnable_types(declarations: Node, declared: Mapping[str, Node], names: Iterable[str]) -> str:
    """The types with these names, and what they refer to; those that are wanted as `tools.Name` become its members."""
    wanted = [name for name in names if name.removeprefix(_OF_TOOLS) in declared]
    if not wanted:
        return ""
    waiting, needed = [name.removeprefix(_OF_TOOLS) for name in wanted], dict[str, list[str]]()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = [each for each in _words(declared[name]) if each in declared]
            waiting += needed[name]
    imports = (_import(each) for each in declarations.named_children if each.type in _IMPORTS)
    lines = [*imports, *(_runnable(declared[name]) for name in needed if _is_class(declared[name]))]
    at_once = {name: words for name, words in needed.items() if not _is_class(declared[name])}
    members = (f'vars(tools)["{name}"] = {name}' for each in wanted if (name := each.removeprefix(_OF_TOOLS)) != each)
    return "\n".join([*lines, *_in_order(at_once, declared), *members])


def literal_values(declaration: Node | None) -> tuple[str, ...]:
    """The values of a declared type that is nothing but a `Literal`, as they are written."""
    assigned = None if declaration is None else declaration.named_children[0]
    literal = None if assigned is None else assigned.child_by_field_name("right")
    if literal is None or literal.type != "subscript" or text_of(literal.child_by_field_name("value")) != "Literal":
        return ()
    return tuple(text_of(each) for each in literal.children_by_field_name("subscript"))


def _in_order(needed: Mapping[str, list[str]], declared: Mapping[str, Node]) -> Iterator[str]:
    """Definitions that are evaluated at once, each after those that it needs; those in circles have gaps."""
    try:
        order = list(TopologicalSorter({name: needed.keys() & words for name, words in needed.items()}).static_order())
    except CycleError:
        order = list(needed)
        yield from (f"{name} = object" for name in order)
    yield from (_runnable(declared[name]) for name in order)


def _declared(statement: Node) -> str:
    if _is_class(statement):
        bases = text_of(statement.child_by_field_name("superclasses"))
        return text_of(statement.child_by_field_name("name")) if bases.startswith("(TypedDict") else ""
    assigned = statement.named_children[0] if statement.type == "expression_statement" else None
    if assigned is None or assigned.type != "assignment":
        return ""
    called = assigned.child_by_field_name("right")
    function = None if called is None else called.child_by_field_name("function")
    is_type = text_of(assigned.child_by_field_name("type")) == "TypeAlias" or text_of(function) == "TypedDict"
    return text_of(assigned.child_by_field_name("left")) if is_type else ""


def _is_class(statement: Node) -> bool:
    """True for a class, whose annotations are not evaluated."""
    return statement.type == "class_definition"


def _words(declaration: Node) -> dict[str, None]:
    """The names in a declaration, without the one that it declares."""
    defined = declaration.child_by_field_name("body") or declaration.named_children[0].child_by_field_name("right")
    return dict.fromkeys(text_of(each) for each in _IDENTIFIERS(defined or declaration).get("name", ()))


def _import(statement: Node) -> str:
    return text_of(statement).replace("from typing_extensions ", "from typing ")


def _runnable(declaration: Node) -> str:
    edits = Edits((declaration.text or b""), LINE_END)
    waiting = [declaration]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type == "keyword_argument" and text_of(node.child_by_field_name("name")) in _NOT_YET:
            before = node.prev_sibling
            start = (node if before is None else before).start_byte
            edits.replace(start - declaration.start_byte, node.end_byte - declaration.start_byte, b"")
    return edits.apply()[0].decode()
