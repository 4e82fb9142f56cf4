"""The tools that a program is checked against: their declarations, and what can be said of a name that is none."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.findings import near
from corral.checking.openness import is_closed
from corral.checking.text import Declarations
from corral.checking.verdict import Verdict
from corral.checking.workspace import Location
from corral.declarations import declare_python, declare_typescript, discovery_tools
from corral.errors import ToolNotFound
from corral.guest.python.calls import failure_classes
from corral.programs.grammar import parse as parse_typescript
from corral.programs.python.grammar import Parsing
from corral.tools import Tool, ToolRegistry
from corral.types import Language, References, ToolName

__all__ = ["DeclaredTool", "ToolSet", "ToolSets"]

_COMMENT = re.compile(r"/\*\*.*?\*/\s*|\"\"\".*?\"\"\"\s*|#:[^\n]*", re.DOTALL)
_SPACE = re.compile(r"\s*\n\s*")
_METHODS = frozenset({"method_signature", "function_definition"})
_NAMESPACES = frozenset({"property_signature", "class_definition"})
_HINTS = {
    "require": "Programs may load nothing: use the global `tools`.",
    "process": "No environment was passed to this program.",
}
_MAX_CLOSE = 200
_MAX_VERDICTS = 200
_MAX_SETS = 8
_MANY_TOOLS = 200
_MANY_DEFINITIONS = 2_000
"""With more tools, or more schemas that they share, programs are declared only those that they name. One that may call
any makes all of them be declared, in the background, and goes unchecked meanwhile."""
_MOST_DEFINITIONS = 20_000
"""With more, not all tools are declared together: it would take minutes."""


_FAILURES = "".join(
    f"class {name}({', '.join(base.__name__ for base in each.__bases__)}):\n"
    "    code: str\n    retry_after_seconds: float | None\n    def __getattr__(self, name: str): ...\n"
    for name, each in failure_classes().items()
)
"""What calls fail with, and programs may catch."""


class DeclaredTool(NamedTuple):
    """A tool as it is declared."""

    name: ToolName
    signature: str


class ToolSet:
    """Tools of a registry, declared in one language. Making one takes a second for thousands of them."""

    def __init__(self, registry: ToolRegistry, language: Language, tools: Mapping[ToolName, Tool]) -> None:
        self.language: Language = language
        self.tools = tools
        self._registry = registry
        self.verdicts: dict[tuple[str, bool], Verdict] = {}
        """On the last programs, by source and whether they find an environment."""
        declared = {**self.tools, **discovery_tools(registry, language)}
        if language == "python":
            self.declarations = Declarations(declare_python(declared) + _FAILURES)
        else:
            self.declarations = Declarations(declare_typescript(declared, unknown="any"))

    def remember(self, source: str, verdict: Verdict, *, env: bool) -> None:
        """Keeps the verdict on a program, which the same program will get again."""
        self.verdicts[source, env] = verdict
        while len(self.verdicts) > _MAX_VERDICTS:
            self.verdicts.pop(next(iter(self.verdicts)), None)

    def declared_at(self, location: Location) -> DeclaredTool | None:
        """The tool that is declared at a place of the declarations."""
        node: Node | None = self._root.named_descendant_for_byte_range(*self.declarations.offsets(location.span))
        while node is not None and node.type not in _METHODS:
            node = node.parent
        if node is None:
            return None
        names, above = [_name(node)], node.parent
        while above is not None:
            names += [_name(above)] if above.type in _NAMESPACES else []
            above = above.parent
        path = [name for name in reversed(names) if name != "tools"]
        name = ToolName(path[-2] if len(path) > 1 else None, path[-1])
        text = _SPACE.sub(" ", _COMMENT.sub("", (node.text or b"").decode())).strip()
        owner = f"tools.{name.namespace}." if name.namespace else "tools."
        start = text.find(name.name)
        return DeclaredTool(name, owner + text[max(start, 0) :].removesuffix(";"))

    def is_closed(self, name: ToolName, path: Sequence[str | None]) -> bool:
        """Whether an object in a tool's input takes no other members than it lists."""
        tool = self.tools.get(name)
        schema = None if tool is None else tool.input_schema
        return schema is not None and is_closed(schema, path)

    def class_named(self, name: str) -> str | None:
        """What is declared under a name, in Python."""
        for node in self._root.named_children:
            if _name(node) == name or (node.text or b"").startswith(f"{name} = ".encode()):
                return (node.text or b"").decode()
        return None

    def not_found(self, path: str) -> str:
        """What there is to say of a path that leads to no tool."""
        try:
            self._registry.resolve(path)
        except ToolNotFound as error:
            return str(error)
        return f"no tool {path!r}"

    def hint_for(self, name: str, *, is_called: bool) -> str | None:
        """What may have been meant by a name that is bound to nothing."""
        if name in _HINTS:
            return _HINTS[name]
        names = self._registry.names()
        if name in {tool.namespace for tool in names}:
            return f"Did you mean `tools.{name}`?"
        if not is_called:
            return None
        same = next((tool for tool in names if tool.name == name), None)
        if same is not None:
            return f"Did you mean `tools.{same}`?"
        return near(name, [tool.name for tool in names[:_MAX_CLOSE]])

    @cached_property
    def _root(self) -> Node:
        text = self.declarations.text.encode()
        tree = Parsing().parse(text) if self.language == "python" else parse_typescript(text)
        return tree.root_node


class ToolSets:
    """The sets that were needed last. Any thread may ask for one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: list[ToolSet] = []
        self._measured: tuple[Mapping[ToolName, Tool], bool] = {}, False
        """The tools that were looked at last, and whether they are many."""
        self._declaring: set[tuple[object, ...]] = set()

    def known(self, registry: ToolRegistry, language: Language, references: References | None) -> ToolSet | None:
        """What a program with these references is declared of a registry's tools, if that has been done already."""
        return self._find(self._wanted(registry, references), language)

    def declared(
        self, registry: ToolRegistry, language: Language, references: References | None = None, *, must: bool = False
    ) -> ToolSet | None:
        """What a program with these references is declared of a registry's tools.

        None: that takes a while, and is begun; with `must` it waits. Or it would take for ever.
        """
        wanted = self._wanted(registry, references)
        found = self._find(wanted, language)
        if found is not None or _is_too_large(wanted):
            return found
        if must or not _is_large(wanted):
            return self._declare(registry, language, wanted)
        key = (language, *_identity(wanted))
        with self._lock:
            if key not in self._declaring and len(self._declaring) < _MAX_SETS:
                self._declaring.add(key)
                threading.Thread(target=self._declare, args=(registry, language, wanted, key), daemon=True).start()
        return None

    def _find(self, now: Mapping[ToolName, Tool], language: Language) -> ToolSet | None:
        sets = [each for each in self._sets if each.language == language]
        same = next((each for each in sets if each.tools is now), None)
        if same is not None or not sets:
            return same
        identity = _identity(now)
        return next((each for each in sets if _identity(each.tools) == identity), None)

    def _wanted(self, registry: ToolRegistry, references: References | None) -> Mapping[ToolName, Tool]:
        """All tools; of many, those that a program refers to, if it says which."""
        tools = registry.snapshot()
        known, is_large = self._measured
        if known is not tools:
            is_large = _is_large(tools)
            self._measured = tools, is_large
        if not is_large or references is None or references.computed:
            return tools
        wanted = _named(tools, [reference.path for reference in references.named])
        return tools if len(wanted) > _MANY_TOOLS else wanted

    def _declare(
        self,
        registry: ToolRegistry,
        language: Language,
        tools: Mapping[ToolName, Tool],
        key: tuple[object, ...] = (),
    ) -> ToolSet:
        try:
            declared = ToolSet(registry, language, tools)
        finally:
            with self._lock:
                self._declaring.discard(key)
        with self._lock:
            self._sets = [*self._sets, declared][-_MAX_SETS:]
        return declared


def _is_large(tools: Mapping[ToolName, Tool]) -> bool:
    return len(tools) > _MANY_TOOLS or _definitions(tools) > _MANY_DEFINITIONS


def _is_too_large(tools: Mapping[ToolName, Tool]) -> bool:
    return len(tools) > _MOST_DEFINITIONS or _definitions(tools) > _MOST_DEFINITIONS


def _definitions(tools: Mapping[ToolName, Tool]) -> int:
    """How many schemas they share. It asks for all their schemas, which a source may make only then."""
    schemas = [schema for tool in tools.values() for schema in (tool.input_schema, tool.output_schema)]
    return sum(len(schema.get("$defs", ())) for schema in schemas if schema is not None)


def _named(tools: Mapping[ToolName, Tool], paths: Iterable[str]) -> Mapping[ToolName, Tool]:
    """The tools that paths lead to, or through; all of a namespace that is named alone, and one of a namespace in which
    there is no such tool, so that it is declared."""
    wanted: dict[ToolName, Tool] = {}
    for path in paths:
        name = ToolName.parse(path)
        above = name if name.namespace is None else ToolName(None, name.namespace)
        found = [each for each in (name, above) if each in tools]
        if not found:
            space = [each for each in tools if each.namespace == above.name]
            found = space[:1] if name.namespace is not None else space
        wanted |= {each: tools[each] for each in found}
    return wanted


def _identity(tools: Mapping[ToolName, Tool]) -> tuple[object, ...]:
    """What tells tools apart from others that live."""
    return tuple((name, id(tool)) for name, tool in tools.items())


def _name(node: Node) -> str:
    name = node.child_by_field_name("name")
    return "" if name is None else (name.text or b"").decode().strip("\"'")
