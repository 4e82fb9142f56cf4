"""TypeScript types of the declarations, by location, and the types to which they refer."""

from __future__ import annotations

from tree_sitter import Node

from corral.concurrency.cached_property import cached_property
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import finder, text_of
from corral.types import ToolName

_NAMESPACES = frozenset({"property_signature", "class_definition"})
_ALIASES = finder("(type_alias_declaration name: (type_identifier) @name)")
_MEMBERS = finder("(property_signature name: (_) @name)")
_METHODS = finder("(method_signature name: (_) @name)")
_REFERENCES = finder("(type_identifier) @name")


class DeclaredTypes:
    """Index of the types and members of declarations."""

    def __init__(self, root: Node) -> None:
        self._root = root

    @cached_property
    def aliases(self) -> dict[str, Node]:
        """Named types, by name."""
        names = _ALIASES(self._root).get("name", [])
        return {text_of(name): name.parent for name in names if name.parent is not None}

    @cached_property
    def members(self) -> dict[str, list[Node]]:
        """Members of all types, by name."""
        by_name: dict[str, list[Node]] = {}
        for name in _MEMBERS(self._root).get("name", []):
            if name.parent is not None:
                by_name.setdefault(text_of(name).strip("\"'"), []).append(name.parent)
        return by_name

    @cached_property
    def dictionaries(self) -> frozenset[str]:
        """Names of members and tools whose values are dictionaries."""
        names = {name for name, members in self.members.items() if any(map(is_dictionary, members))}
        methods = _METHODS(self._root).get("name", [])
        return frozenset(names | {text_of(each) for each in methods if each.parent and is_dictionary(each.parent)})

    def arrays(self, span: tuple[int, int]) -> list[str]:
        """Returns the array members of an object."""
        node = self.at(*span)
        members = [] if node is None else [each for each in node.named_children if each.type == "property_signature"]
        types = ((part(each, "name"), part(each, "type")) for each in members)
        return [text_of(name) for name, type_ in types if name and type_ and text_of(type_).endswith("]")]

    def members_at(self, start: int, end: int) -> frozenset[str]:
        """Returns the member names of the first object type at a location."""
        waiting = [node for node in [self.at(start, end)] if node is not None]
        while waiting:
            node = waiting.pop(0)
            if node.type == "object_type":
                members = (each for each in node.named_children if each.type == "property_signature")
                return frozenset(map(_name_of, members))
            waiting += node.named_children
        return frozenset()

    def at(self, start: int, end: int) -> Node | None:
        """Returns the type at a location: the member for a member's name, the result type for a tool's name."""
        node = self._root.named_descendant_for_byte_range(start, max(start, end - 1))
        above = None if node is None else node.parent
        if node is None or above is None or part(above, "name") != node:
            return node
        return part(above, "return_type") if above.type == "method_signature" else above


def tool_name(declared: Node) -> ToolName:
    """Returns the name of the tool that a method declares, in either language."""
    names, above = [_name_of(declared)], declared.parent
    while above is not None:
        names += [_name_of(above)] if above.type in _NAMESPACES else []
        above = above.parent
    path = [name for name in reversed(names) if name != "tools"]
    return ToolName(path[-2] if len(path) > 1 else None, path[-1])


def _name_of(node: Node) -> str:
    name = part(node, "name")
    return text_of(name).strip("\"'")


def is_dictionary(declared: Node) -> bool:
    """True if a member, a tool's result or a type is an object with arbitrary member names, possibly nullable."""
    waiting = [declared]
    has_record = False
    while waiting:
        node = waiting.pop()
        match node.type:
            case "property_signature" | "method_signature":
                inner = node.child_by_field_name("return_type" if node.type == "method_signature" else "type")
                waiting += [] if inner is None else [inner]
            case "union_type" | "type_annotation" | "parenthesized_type":
                waiting += node.named_children
            case "literal_type" if text_of(node) == "null":
                continue
            case "generic_type" if text_of(node).startswith("Promise<"):
                waiting += node.named_children[-1].named_children
            case "generic_type" if text_of(node).startswith("Record<"):
                has_record = True
            case "object_type" if [each.type for each in node.named_children] == ["index_signature"]:
                has_record = True
            case _:
                return False
    return has_record


class Reach:
    """Part of the declarations: the types that were added, and every type to which they refer."""

    def __init__(self, types: DeclaredTypes) -> None:
        self._types = types
        self._stretches: list[tuple[int, int]] = []
        self.named: set[str] = set()
        self._is_everything = False

    def add(self, node: Node | None) -> None:
        """Adds a type, or the type of a member."""
        waiting = [] if node is None else [node]
        while waiting:
            node = waiting.pop()
            self._stretches.append((node.start_byte, node.end_byte))
            for reference in _REFERENCES(node).get("name", []):
                name = text_of(reference)
                if name in self._types.aliases and name not in self.named:
                    self.named.add(name)
                    waiting.append(self._types.aliases[name])

    def add_members(self, name: str) -> None:
        for member in self._types.members.get(name, ()):
            self.add(member)

    def add_everything(self) -> None:
        self._is_everything = True

    def covers(self, start: int) -> bool:
        """True if the offset is inside this part."""
        return self._is_everything or any(first <= start < last for first, last in self._stretches)
