"""Declared tools that programs are checked against, and messages about unknown names."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.case import Case, CaseKey
from corral.checking.declared_types import DeclaredTypes, tool_name
from corral.checking.findings import near
from corral.checking.languages import CHECKED
from corral.checking.servers.workspace import Location
from corral.checking.source_map import Declarations
from corral.checking.verdict import Verdict
from corral.concurrency.cached_property import cached_property
from corral.errors import ToolNotFound
from corral.model import checked_discovery, declare_tools
from corral.model.printing.schema_weight import MAX_WEIGHT, affordable, weight
from corral.programs.edits import Edits
from corral.programs.syntax.parsing import inside, is_a, parsing_within, part, text_of
from corral.programs.syntax.python import finder
from corral.texts import LINE_END
from corral.tools import Tool, ToolRegistry
from corral.tools.json_schema.keywords import open_objects
from corral.tools.schema import TypeOutput
from corral.types import Language, References, ToolName

_COMMENT = re.compile(r"#:[^\n]*")
_WITH_KEYS = re.compile(r"^(?:class (\w+)\(|(\w+) = TypedDict\()", re.MULTILINE)
_KEY = re.compile(r"^\s+(\w+):|[{,\s]\"((?:[^\"\\]|\\.)*)\":", re.MULTILINE)
_SPACE = re.compile(r"(?<!\s)\s*\n\s*")
_METHODS = frozenset({"method_signature", "function_definition"})
_ROOTS = frozenset({"functions", "api", "client", "default_api", "tool", "mcp", "sdk", "Tools", "server", "agent"})
"""Names under which other systems provide tools."""
_OF_EARLIER = "Programs share no state: define functions of earlier programs again here."
_SEARCH = 'Use names as they are declared; await tools.search("words") finds them.'
_FEW_TOOLS = 20
"""Maximum number of tools that the answer to an unknown name lists in full."""
_MAX_CLOSE = 200
_MAX_MEMBERS = 6
"""Maximum number of members in an example call."""
_MAX_VERDICTS = 200
_DECLARATIONS_SECONDS = 20.0
"""Maximum seconds to parse declarations. Those of 2,000 tools take 0.1 to 0.2 s."""
_MAX_SETS = 64
_MAX_SETS_CHARS = 4_000_000
"""Maximum total size of the cached declarations, not counting the `_LEAST_SETS` newest sets."""
_LEAST_SETS = 8
_MANY_TOOLS = 200
_MANY_DEFINITIONS = 2_000
_MUCH_WEIGHT = 100_000
"""Above any of these limits on tools, shared definitions or schema weight, only the tools that a program names are
declared. For a program that may call any tool, all declarations are made in the background; until then, it runs
unchecked."""
_MOST_DEFINITIONS = 20_000
"""Maximum number of tools or shared definitions declared together. More would take minutes."""
_OF_TOOLS = "tools."
_IDENTIFIERS = finder("(identifier) @name")
_NOT_YET = frozenset({"extra_items", "closed"})
"""Arguments of `TypedDict` that only later versions of Python accept."""
_IMPORTS = frozenset({"import_statement", "import_from_statement"})


class DeclaredTool(NamedTuple):
    """Declaration of a tool."""

    name: ToolName
    signature: str
    """Name and parameters. Without the result type, which does not help to correct an input."""
    is_stream: bool = False
    returns: str = ""
    """Result type, in Python."""


class ToolSet:
    """Tools of a registry, declared in one language. Creating it for thousands of tools takes a second."""

    def __init__(self, registry: ToolRegistry, language: Language, tools: Mapping[ToolName, Tool]) -> None:
        self.language: Language = language
        self.tools = tools
        self.among = registry.snapshot()
        """All tools that the program may know about. Messages must not name others."""
        self.identity = _identity(tools)
        self._registry = registry.copy()
        self._verdicts: dict[CaseKey, tuple[Verdict, float]] = {}
        """Verdicts on recent programs, with their expiry (`time.monotonic`)."""
        others = {other: tools[name] for other, name in registry.spellings().items() if name in tools}
        declared = {**affordable({**tools, **others}), **checked_discovery(registry, language)}
        declarations = declare_tools(declared, language, checked=True)
        self.declarations = Declarations(declarations + CHECKED[language].surroundings)

    @cached_property
    def every(self) -> tuple[object, ...]:
        """Cache key of all tools in `among`, and of the reasons why others are missing."""
        return _identity(self.among), self._registry.problems

    def remember(self, case: Case, verdict: Verdict, *, seconds: float = inf) -> None:
        self._verdicts[case.key] = verdict, time.monotonic() + seconds
        while len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.pop(next(iter(self._verdicts)), None)

    def known(self, case: Case) -> Verdict | None:
        verdict, until = self._verdicts.get(case.key, (None, 0.0))
        return verdict if time.monotonic() < until else None

    def declared_at(self, location: Location) -> DeclaredTool | None:
        node: Node | None = self._root.named_descendant_for_byte_range(*self.span(location))
        while node is not None and node.type not in _METHODS:
            node = node.parent
        if node is None:
            return None
        name = tool_name(node)
        text = _in_one_line(_head(node))
        owner = f"tools.{name.namespace}." if name.namespace else "tools."
        tool = self.tools.get(name)
        signature = owner + text[max(text.find(name.name), 0) :]
        is_stream = tool is not None and tool.stream
        return DeclaredTool(name, signature, is_stream, text_of(part(node, "return_type")))

    def call_of(self, name: ToolName) -> str:
        """Returns an example call in TypeScript, with the required members of the input or else its first member."""
        tool = self.tools.get(name)
        schema = {} if tool is None or tool.input_schema is None else tool.input_schema
        known, required = schema.get("properties", {}), schema.get("required", [])
        members = [each for each in known if each in required][:_MAX_MEMBERS] or list(known)[:1]
        shown = ", ".join(f"{each if each.isidentifier() else json.dumps(each)}: ..." for each in members)
        return f"tools.{name}({{ {shown or '...'} }})"

    def span(self, location: Location) -> tuple[int, int]:
        """Returns the byte offsets of a location in the declarations."""
        return self.declarations.offsets(location.span)

    def excerpt(self, location: Location) -> str:
        """Returns the declaration at a location, on one line."""
        return _in_one_line(self.declarations.excerpt(location.span))

    def is_open(self, location: Location) -> bool:
        """True if an object in a result can have undeclared members.

        Nothing removes such members if the output schema is only documentation.
        """
        members = self.types.members_at(*self.span(location))
        return self._open is None or members in self._open

    @cached_property
    def taking_keywords(self) -> frozenset[str]:
        """Paths of the tools that Python declares with keyword parameters instead of one input value."""
        classes = (each for each in self._root.named_children if _name(each) == "tools")
        return frozenset(path for each in classes for path in _taking_keywords(each))

    def is_closed(self, name: str) -> bool:
        """True if a declared Python class has no members besides the listed ones."""
        keys = _KEY.findall(self.class_named(name) or "")
        return (
            bool(keys)
            and self._open is not None
            and frozenset(first or second for first, second in keys) not in self._open
        )

    @cached_property
    def _open(self) -> frozenset[frozenset[str]] | None:
        """Result objects whose schemas allow undeclared members; None if that is unknown. Types themselves allow
        none."""
        open_sets: set[frozenset[str]] = set()
        for tool in self.tools.values():
            schema = None if isinstance(tool.output, TypeOutput) else tool.output_schema
            objects = set[frozenset[str]]() if schema is None else open_objects(schema)
            if objects is None:
                return None
            open_sets |= objects
        return frozenset(open_sets)

    def class_named(self, name: str) -> str | None:
        """Returns the Python declaration of a name."""
        return text_of(self.type_declarations.get(name)) or None

    def declares(self, name: str, key: str) -> bool:
        """True if a declared Python type has a member of that name."""
        declared = self.class_named(name) or ""
        return re.search(rf"^\s*{re.escape(key)}:|[\"']{re.escape(key)}[\"']:", declared, re.MULTILINE) is not None

    @cached_property
    def objects(self) -> frozenset[str]:
        """Names of the declared TypedDicts."""
        return frozenset(first or second for first, second in _WITH_KEYS.findall(self.declarations.text))

    @cached_property
    def type_declarations(self) -> Mapping[str, Node]:
        """The statements that declare Python types, by type name."""
        return {name: each for each in self._root.named_children if (name := _declared(each))}

    def values_of(self, name: str) -> tuple[str, ...]:
        """Returns the values of a declared Python `Literal` type, as source text."""
        literal = part(inside(self.type_declarations.get(name)), "right")
        if literal is None or text_of(part(literal, "value")) != "Literal":
            return ()
        return tuple(map(text_of, literal.children_by_field_name("subscript")))

    def runnable_types(self, names: Iterable[str]) -> str:
        """Returns executable definitions of the declared Python types among these names."""
        return _runnable_types(self._root, self.type_declarations, names)

    def not_found(self, path: str) -> str:
        """Returns the message about a path that is not a tool."""
        try:
            self._registry.resolve(path)
        except ToolNotFound as error:
            is_helped = "did you mean" in str(error) or len(self.among) <= _FEW_TOOLS
            return str(error) if is_helped else f"{error}. {_SEARCH}"
        return f"no tool {path!r}"

    def hint_for(self, name: str, *, is_called: bool, path: str = "") -> str | None:
        """Returns a hint about an unbound name. `path` is the member chain read from it, such as `shop.find`."""
        names = self._registry.names()
        if name in {tool.namespace for tool in names}:
            return f"Did you mean `tools.{name}`?"
        if path and (tool_name := self._tool_in(path, names)):
            return f"Did you mean `tools.{tool_name}`?"
        known = CHECKED[self.language].names
        if hint := known.get(f"{name}.{path}", known.get(name)):
            return hint
        if name in _ROOTS and path:
            return "Tools are members of `tools`."
        if not is_called:
            return None
        same = next((tool for tool in names if tool.name == name), None)
        if same is not None:
            return f"Did you mean `tools.{same}`?"
        paths = {tool.name: str(tool) for tool in reversed(names[:_MAX_CLOSE])}
        question = near(name, paths)
        match = None if question is None else paths.get(question.partition("'")[2].partition("'")[0])
        return None if match is None else f"Did you mean `tools.{match}`? {_OF_EARLIER}"

    def _tool_in(self, path: str, names: Sequence[ToolName]) -> ToolName | None:
        """Returns the tool that a path starts with: `shop.find` for `shop.find.length`."""
        parts = path.split(".")
        candidates = [ToolName(None, parts[0]), *([ToolName(parts[0], parts[1])] if len(parts) > 1 else [])]
        exact = next((each for each in candidates if each in names), None)
        return exact or next((each for each in names if each.name == parts[0]), None)

    @cached_property
    def types(self) -> DeclaredTypes:
        return DeclaredTypes(self._root)

    @cached_property
    def _root(self) -> Node:
        text = self.declarations.text.encode()
        with parsing_within(_DECLARATIONS_SECONDS):
            return CHECKED[self.language].parse(text).root_node


class ToolSets:
    """Cache of recent tool sets. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: list[ToolSet] = []
        self._measured: dict[int, tuple[Mapping[ToolName, Tool], bool]] = {}
        """Recent tool mappings by id, and whether each is large."""
        self._declaring: set[tuple[object, ...]] = set()

    def known(self, registry: ToolRegistry, language: Language, references: References | None) -> ToolSet | None:
        return self._find(self._selected(registry, references), registry, language)

    def declared(
        self, registry: ToolRegistry, language: Language, references: References | None = None, *, must: bool = False
    ) -> ToolSet | None:
        """Returns the tool set for a program with these references, and declares it if necessary.

        Unless `must` is true, a large set is declared in the background, and None is returned. None also stands for a
        set that is too large to declare.
        """
        selected = self._selected(registry, references)
        known = self._find(selected, registry, language)
        if known is not None or (len(selected) > _MOST_DEFINITIONS or _definitions(selected) > _MOST_DEFINITIONS):
            return known
        if must or not _is_large(selected):
            return self._declare(registry, language, selected)
        key = (language, *_identity(selected))
        with self._lock:
            if key not in self._declaring and len(self._declaring) < _LEAST_SETS:
                self._declaring.add(key)
                threading.Thread(target=self._declare, args=(registry, language, selected, key), daemon=True).start()
        return None

    def _find(self, now: Mapping[ToolName, Tool], registry: ToolRegistry, language: Language) -> ToolSet | None:
        sets = [each for each in self._sets if each.language == language]
        among = registry.snapshot()
        same = next((each for each in sets if each.tools is now and each.among is among), None)
        if same is not None or not sets:
            return same
        identity, every = _identity(now), None
        for each in sets:
            if each.identity == identity:
                if each.among is among:
                    return each
                every = every or (_identity(among), registry.problems)
                if each.every == every:
                    return each
        return None

    def _selected(self, registry: ToolRegistry, references: References | None) -> Mapping[ToolName, Tool]:
        """Returns all tools or, from a large registry, only those that the program refers to, if these are known."""
        tools = registry.snapshot()
        measured = self._measured.get(id(tools))
        if measured is None or measured[0] is not tools:
            measured = tools, _is_large(tools)
            self._measured = {**dict([*self._measured.items()][-_MAX_SETS:]), id(tools): measured}
        is_large = measured[1]
        if not is_large or references is None or references.computed:
            return tools
        selected = _named(tools, [registry.guest_name(reference.path) for reference in references.named])
        return tools if len(selected) > _MANY_TOOLS else selected

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
            self._sets = _last([*self._sets, declared])
        return declared


def _last(sets: list[ToolSet]) -> list[ToolSet]:
    """Returns the newest sets, within the limits of the cache."""
    chars = 0
    for number, each in enumerate(reversed(sets)):
        chars += len(each.declarations.text)
        if number >= _MAX_SETS or (number >= _LEAST_SETS and chars > _MAX_SETS_CHARS):
            return sets[-number:]
    return sets


def _is_large(tools: Mapping[ToolName, Tool]) -> bool:
    if len(tools) > _MANY_TOOLS or _definitions(tools) > _MANY_DEFINITIONS:
        return True
    left = _MUCH_WEIGHT
    for tool in tools.values():
        left -= min(weight(tool), MAX_WEIGHT)
    return left < 0


def _definitions(tools: Mapping[ToolName, Tool]) -> int:
    """Counts the definitions in all schemas. This loads schemas that their source creates on demand."""
    schemas = [schema for tool in tools.values() for schema in (tool.input_schema, tool.output_schema)]
    return sum(len(schema.get("$defs", ())) for schema in schemas if schema is not None)


def _named(tools: Mapping[ToolName, Tool], paths: Iterable[str]) -> Mapping[ToolName, Tool]:
    """Returns the tools that the paths name or pass through.

    A bare namespace selects all of its tools. For an unknown tool in a namespace, one tool of that namespace is
    selected, so that the namespace is declared.
    """
    selected: dict[ToolName, Tool] = {}
    for path in paths:
        name = ToolName.parse(path)
        above = name if name.namespace is None else ToolName(None, name.namespace)
        matches = [each for each in (name, above) if each in tools]
        if not matches:
            space = [each for each in tools if each.namespace == above.name]
            matches = space[:1] if name.namespace is not None else space
        selected |= {each: tools[each] for each in matches}
    return selected


def _identity(tools: Mapping[ToolName, Tool]) -> tuple[object, ...]:
    """Cache key of tools. It is valid while the tools are alive."""
    return tuple((name, id(tool)) for name, tool in tools.items())


def _in_one_line(declaration: str) -> str:
    return _SPACE.sub(" ", _COMMENT.sub("", declaration)).strip()


def _head(declared: Node) -> str:
    """Returns the declaration of a tool without its result type."""
    text, parameters = declared.text or b"", part(declared, "parameters")
    return text.decode() if parameters is None else text[: parameters.end_byte - declared.start_byte].decode()


def _taking_keywords(owner: Node, prefix: str = "") -> Iterator[str]:
    body = part(owner, "body")
    for each in body.named_children if body is not None else ():
        node = part(each, "definition") or each
        parameters = part(node, "parameters")
        if node.type == "class_definition" and not prefix:
            yield from _taking_keywords(node, f"{_name(node)}.")
        elif is_a(inside(parameters), "keyword_separator"):
            yield prefix + _name(node)


def _name(node: Node) -> str:
    return text_of(part(node, "name")).strip("\"'")


def _runnable_types(declarations: Node, declared: Mapping[str, Node], names: Iterable[str]) -> str:
    """Returns definitions of the named types and their dependencies; `tools.Name` also becomes a member of `tools`."""
    used = [name for name in names if name.removeprefix(_OF_TOOLS) in declared]
    if not used:
        return ""
    waiting, needed = [name.removeprefix(_OF_TOOLS) for name in used], dict[str, list[str]]()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = [each for each in _words(declared[name]) if each in declared]
            waiting += needed[name]
    imports = (_import(each) for each in declarations.named_children if each.type in _IMPORTS)
    lines = [*imports, *(_runnable(declared[name]) for name in needed if _is_class(declared[name]))]
    at_once = {name: words for name, words in needed.items() if not _is_class(declared[name])}
    members = (f'vars(tools)["{name}"] = {name}' for each in used if (name := each.removeprefix(_OF_TOOLS)) != each)
    return "\n".join([*lines, *_in_order(at_once, declared), *members])


def _in_order(needed: Mapping[str, list[str]], declared: Mapping[str, Node]) -> Iterator[str]:
    """Yields definitions that are evaluated eagerly, dependencies first. Cycles get `object` as a placeholder."""
    try:
        order = list(TopologicalSorter({name: needed.keys() & words for name, words in needed.items()}).static_order())
    except CycleError:
        order = list(needed)
        yield from (f"{name} = object" for name in order)
    yield from (_runnable(declared[name]) for name in order)


def _declared(statement: Node) -> str:
    if _is_class(statement):
        bases = text_of(part(statement, "superclasses"))
        return text_of(part(statement, "name")) if bases.startswith("(TypedDict") else ""
    assigned = inside(statement) if statement.type == "expression_statement" else None
    is_dict = text_of(part(assigned, "right", "function")) == "TypedDict"
    return text_of(part(assigned, "left")) if is_dict or text_of(part(assigned, "type")) == "TypeAlias" else ""


def _is_class(statement: Node) -> bool:
    """True for a class, whose annotations are not evaluated."""
    return statement.type == "class_definition"


def _words(declaration: Node) -> dict[str, None]:
    """Returns the names in a declaration, except the one that it declares."""
    defined = part(declaration, "body") or part(declaration.named_children[0], "right")
    return dict.fromkeys(text_of(each) for each in _IDENTIFIERS(defined or declaration).get("name", ()))


def _import(statement: Node) -> str:
    return text_of(statement).replace("from typing_extensions ", "from typing ")


def _runnable(declaration: Node) -> str:
    edits = Edits((declaration.text or b""), LINE_END)
    waiting = [declaration]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type == "keyword_argument" and text_of(part(node, "name")) in _NOT_YET:
            before = node.prev_sibling
            start = (node if before is None else before).start_byte
            edits.replace(start - declaration.start_byte, node.end_byte - declaration.start_byte, b"")
    return edits.apply()[0].decode()
