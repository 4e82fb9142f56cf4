"""Checks TypeScript programs: decides which compiler errors mean that a program does not fit the declarations.

Errors about the program's own values do not count: types are erased when it runs, and much code that a compiler rejects
runs well. If the compiler reports such an error about a variable, the variable becomes `any` and the program is checked
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.base import Check
from corral.checking.conditions import condition_on, never_there
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.declared_types import Reach, is_dictionary
from corral.checking.findings import Finding, near
from corral.checking.hints.typescript import NO_LIBRARIES, SENDS_REQUESTS, conversion_hint, without_markup
from corral.checking.inputs import Written, spells
from corral.checking.servers.specs import GLOBALS
from corral.checking.servers.workspace import Document, Location, Remark
from corral.checking.source_map import CheckedText
from corral.checking.typescript.dynamic_members import DynamicMembers, Write, is_written, root_of
from corral.checking.typescript.expressions import (
    affected,
    anchor,
    annotate,
    assigned_in,
    assigned_names,
    binder,
    bound_by,
    called_on,
    called_with,
    defines_async,
    has_default,
    hedged_name,
    hedged_variable,
    is_called,
    is_caught,
    is_compared,
    is_conditional,
    is_on_failure,
    is_presence_test,
    is_tried,
    is_typeof,
    iterated,
    loop_over,
    operands,
    path_after,
    receiver,
    untyped_parameter,
    value_at,
)
from corral.checking.typescript.messages import (
    certainly_differs,
    is_object,
    is_text_for_less,
    mismatch,
    missing,
    named_types,
    shortened,
    union_members,
)
from corral.checking.typescript.suspects import (
    ARRAY_METHODS,
    Places,
    async_visits,
    calls_by_name,
    forgotten_calls,
    gathered_too_late,
    misused_dictionaries,
    named_tools,
    tools_as_callbacks,
)
from corral.checking.written import read_typescript
from corral.concurrency.cached_property import cached_property
from corral.programs import TypedProgram
from corral.programs.syntax.parsing import arguments_of, ascent, enclosing, inside, is_a, part, with_wrappers
from corral.programs.syntax.typescript import FUNCTION_VALUES, FUNCTIONS, finder, text_of, unwrapped, walk
from corral.texts import TextIndex, located
from corral.types import Position

_ROUNDS = 5
"""Maximum number of checks of a program, each with more variables as `any`."""
_OF_TYPES = frozenset({"argument", "member"})
"""Kinds of findings that are uncertain while the compiler is wrong about a variable."""
_WARNED = frozenset({1, 2})
"""Severities that are read: errors and warnings."""
_AT_TOP = frozenset({"import_statement", "export_statement", "internal_module", "module", "ambient_declaration"})
"""Statements that are not allowed in functions. The tree has a namespace inside an expression statement."""
_SILENT = frozenset({1108, 1375, 1378, 2307, 2792})
"""Codes for `return` and `await` outside functions, which work here, and for missing modules, which fail at run
time."""
_IMPLICIT_ANY = range(7000, 7100)
_UNBOUND = frozenset({2304, 2552, 2580, 2581, 2582, 2583, 2584, 2591, 2592, 2593, 2663, 2868, 18004})
_MEMBER = frozenset({2339, 2551, 2550, 2568, 2570, 2576})
_EXCESS = frozenset({2353, 2561})
_COUNT = frozenset({2554, 2555})
_ARGUMENT = frozenset({2322, 2345, 2559, 2560, 2739, 2740, 2741, 2769, 2820}) | _EXCESS | _COUNT
_ITERATED = frozenset({2461, 2488, 2495, 2504, 2548, 2549, 2802})
_COMPUTED = frozenset({2356, 2362, 2363, 2365})
_VALUE = _ITERATED | _COMPUTED | {2349, 2351, 2367, 2538, 2678, 2801, 7053, 18046}
"""Codes for a value that is used as another type."""
_OWN = _MEMBER | _ARGUMENT | {2349, 2351, 2403, 2451, 2540, 2719, 7005, 7034, 7053}
"""Codes which show that the compiler is wrong about a variable."""
_NOT_CALLABLE = 2349
_NOT_MADE = frozenset({2349, 2351})
"""Codes for a called value that is not a function, and a constructed one that is not a class."""
_NO_DEFAULT = frozenset({1192, 1259, 2613})
"""Code for a package without a default export. The guest provides its namespace instead."""
_REDECLARED = 2403
_GIVEN = ("'process'", "'require'")
_ADVICE = re.compile(r" (?:Do you need to (?:install|change)|Try changing the 'lib')\b.*", re.DOTALL)
"""Advice of the compiler that does not apply here."""
_OF_PROMISE = re.compile(r"\b(?:[Tt]ypes?|this) '(?:[^']*(?:' and '| ))?Promise<")
_OF_STREAM = re.compile(r"\b[Tt]ype '(?:Promise<)?AsyncIterable<[^|]*'")
_PLATFORM = frozenset(re.findall(r"(?:declare var|,) ([A-Z]\w*):", GLOBALS.read_text(encoding="utf-8")))
"""Global classes. Declarations can use their names for other types."""
_READ_STREAM = (
    "It is a stream: read it with `for await (const item of ...)` or collect it with `await Array.fromAsync(...)`."
)
_AWAIT_IT = "It is a promise: `await` it first."
_TAKEN_OF = re.compile(r"does not exist on type '(.*?)'\.(?: |$)", re.MULTILINE | re.DOTALL)
_TEXT = frozenset({"string", "String"})
_KEY = re.compile(r"^\s*(?:readonly )?([\w$]+|\"[^\"]*\")\??:|[{;] (?:readonly )?([\w$]+|\"[^\"]*\")\??:", re.MULTILINE)
_TYPE = re.compile(r"Type '(.*?)' (?:must have|is not an array type|is not a generic|can only be)", re.DOTALL)
_IF_JSON = "If it is JSON, parse it first: JSON.parse(...)."
_MAX_SHOWN_CHARS = 60
_MAX_WRITES = 60
"""Maximum number of writes. With more, no error about declared types counts."""
_OWN_VALUES = FUNCTION_VALUES | {"object", "array", "new_expression", "class"}
_NOTHING = frozenset({"null", "undefined", "[]", "{}"})
_SPREAD = finder("(spread_element (_) @source)")
_NAMESPACES = finder("(import_statement (import_clause (namespace_import (identifier) @name)))")


class _AssumeAny(NamedTuple):
    """Raised to make the variable of this identifier `any` in the next round."""

    variable: Node | None
    finding: Finding | None
    """Result of a round; None if there is nothing to report."""


class TypeScriptCheck(Check):
    """`env`: the program has a `process`. `modules`: it may load packages. `network`: it may send requests."""

    def __init__(
        self, typed: TypedProgram, tools: ToolSet, *, env: bool, modules: bool = False, network: bool = False
    ) -> None:
        super().__init__(typed.root, tools, start=typed.start)
        self._typed = typed
        self._env = env
        self._modules = modules
        self._network = network
        self._relaxed: dict[int, Node] = {}
        self.put(self._composed())

    def locate(self, offset: int) -> Position:
        place = self._positions.position(offset)
        return located(self._typed.positions, place.line, place.column)

    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        return not any(map(_is_relevant, remarks)) and not any(map(any, self._suspects()))

    def judge(self, document: Document) -> list[Finding]:
        findings: list[Finding] = []
        unreported: list[Finding] = []
        for number in range(_ROUNDS):
            document.write(self.text.text)
            unreported += [] if number else [*self._uncalled(), *self._dictionaries(), *self._unfinished()]
            judged = [each for remark in document.remarks() if (each := self._judge(remark))]
            results = [each.finding if isinstance(each, _AssumeAny) else each for each in judged]
            findings = [each for each in results if each is not None]
            known = len(self._relaxed)
            for each in judged:
                if isinstance(each, _AssumeAny):
                    self._relax(each.variable)
            if len(self._relaxed) == known:
                break
            self.put(self._composed())
        else:
            findings = [replace(each, kind=None) if each.kind in _OF_TYPES else each for each in findings]
        findings += [*unreported, *self._forgotten()]
        results = self.with_flaws(findings)
        return [replace(each, message=shortened(each.message)) for each in results]

    @cached_property
    def _positions(self) -> TextIndex:
        return TextIndex(self._typed.edits.text)

    @cached_property
    def _probed(self) -> set[str]:
        """Names that the program tests with `typeof`."""
        return {text_of(node.named_children[0]) for node in walk(self.root) if is_typeof(node)}

    @cached_property
    def _namespaces(self) -> set[str]:
        """Names of whole packages, from `import * as name`, if the program may load any."""
        names = _NAMESPACES(self.root).get("name", ()) if self._modules else ()
        return set(map(text_of, names))

    @cached_property
    def _undeclared(self) -> dict[str, str]:
        """Hints to declare names that the program assigns to, by name."""
        return {
            name: f"Declare it: `let {name}`." if kind == "assignment" else f"Declare it: `for (const {name} of ...)`."
            for name, kind in assigned_names(self.root)
        }

    # --- what the server reads

    def _composed(self) -> CheckedText:
        typed = self._typed
        edits = typed.edits.copy()
        for function in typed.entered:
            if (parameter := untyped_parameter(function)) is not None:
                annotate(edits, parameter, typed.unused)
        for variable in self._relaxed.values():
            annotate(edits, variable, "any")
        prefix, suffix = f"export {{}}; type {typed.unused} = typeof codemode; ", ""
        prefix += "".join(f"declare let {name}: any; " for name in typed.unknown)
        if typed.commonjs:
            prefix += "declare const module: any, exports: any; "
        if self._modules:
            prefix += "declare global { var require: any, process: any; } "
        elif self._env:
            prefix += "declare const process: { readonly env: { readonly [name: string]: string } }; "
        if not any(_kind_of(each) in _AT_TOP for each in self.root.named_children):
            # inside a function, top-level `return` values are not checked
            prefix, suffix = f"{prefix}async function {typed.unused}_() {{", "\n}"
        return CheckedText(*edits.apply(prefix.encode(), suffix.encode()))

    def _relax(self, variable: Node | None) -> None:
        """Makes the variable of an identifier `any`, wherever the program binds it."""
        for location in self.definitions(variable):
            if location.own:
                node = self.node_at(location)
                bound = None if node is None else binder(node)
                if bound is not None:
                    self._relaxed.setdefault(bound.start_byte, bound)

    # --- what the server says

    def _judge(self, remark: Remark) -> Finding | _AssumeAny | None:
        """Turns a diagnostic into a finding; None if it is irrelevant."""
        if not _is_relevant(remark):
            return None
        code = _number(remark)
        start, end = self.text.offsets(remark.span)
        node = self.node_between(start, end)
        warning = Finding(code=f"TS{code}", message=_ADVICE.sub("", remark.message), offset=start)
        if self._modules and (
            code in _NO_DEFAULT or (code == _REDECLARED and any(map(warning.message.__contains__, _GIVEN)))
        ):
            return None
        if node is None or any(first <= start < last for first, last in self._typed.types):
            return warning
        if code in _NOT_MADE and (root := root_of(node)) is not None and text_of(root) in self._namespaces:
            return None  # here, a package that exports a function is that function
        if code in _UNBOUND:
            return self._unbound(warning, node)
        if code in _MEMBER | _ITERATED and _OF_STREAM.search(remark.message) and not is_tried(node):
            return warning.rejected("stream", hint=_READ_STREAM)
        if code in _MEMBER:
            return self._member(warning, node)
        if code in _ARGUMENT and (call := self._tool_call(node, counted=code in _COUNT)) is not None:
            return self._argument(warning, node, call, code)
        if code == _NOT_CALLABLE and (finding := self._not_callable(warning, node)) is not None:
            return finding
        if code in _ITERATED and (finding := self._not_iterable(warning, node)) is not None:
            return finding
        if "is not assignable to type 'Promise<" in remark.message:
            return _AssumeAny(affected(node), warning)
        if code in _VALUE | _ARGUMENT and _OF_PROMISE.search(remark.message):
            if (finding := self._unawaited(warning, node)) is not None:
                return finding
            if code in _ITERATED | _COMPUTED:
                return warning.rejected("unawaited", hint=_AWAIT_IT)
        reported = None if code in _IMPLICIT_ANY else warning
        return _AssumeAny(affected(node) if code in _OWN else None, reported)

    def _unbound(self, warning: Finding, node: Node) -> Finding | None:
        name = text_of(node)
        if node.type not in ("identifier", "shorthand_property_identifier"):
            return None if self._modules else warning  # a Node module
        if name in self._probed or name in self._dynamic.names or is_tried(node) or is_on_failure(node):
            return warning
        if name == "process" and is_conditional(node):
            return warning
        is_called = is_a(node.parent, "call_expression") and "Did you" not in warning.message
        hint = self.tools.hint_for(name, is_called=is_called, path=path_after(node))
        if hint == NO_LIBRARIES and self._modules:
            hint = "It is not imported."
        elif self._network and (hint == NO_LIBRARIES or name == "require"):
            hint = SENDS_REQUESTS
        if hint is None and "Did you" in warning.message:
            return warning.rejected("unbound")
        if hint is None:
            hint = self._undeclared.get(name, self.unbound_hint)
        return warning.rejected("unbound", message=warning.message.partition(" Did you mean")[0], hint=hint)

    def _member(self, warning: Finding, node: Node) -> Finding | _AssumeAny:
        name, owner = text_of(node).strip("\"'`"), receiver(node)
        match = _TAKEN_OF.search(warning.message)
        owner_type = match[1] if match else None
        if owner is None or owner_type is None:
            return warning
        parent = node.parent
        own = _AssumeAny(root_of(owner), warning)
        is_target = is_a(parent, "member_expression") and is_written(parent)
        if owner_type.startswith("Promise<") and not is_target:
            return self._unawaited(warning, owner) or warning.rejected("unawaited", hint=_AWAIT_IT)
        if is_target or name in self._dynamic.names:  # an added member does not prove that others exist
            return warning if self.declared_types(anchor(owner)) else own
        if owner_type in ("never", "any", "{}", "unknown"):
            return own
        if name in self._hedged or has_default(node) or bound_by(node) in self._hedged_variables:
            places = self.declared_types(anchor(owner))
            is_misspelt = "Did you mean" in warning.message and not any(map(self._is_rewritten, places))
            hedged = replace(warning, always=is_misspelt)
            return (self._never(node, owner, owner_type) or hedged) if places else own
        if owner_type in _PLATFORM and self._is_annotated(owner):
            return own  # the platform's class
        places = self.declared_types(anchor(owner))
        if any(map(self._is_rewritten, places)):
            return own
        excerpts = [self.tools.excerpt(each) for each in places]
        if any("): Promise<" in each for each in excerpts):
            return self._unknown_tool(warning, node, owner)
        members = [each for each in union_members(owner_type) if each not in ("null", "undefined")]
        if any(each.startswith(("Record<", "{ [")) for each in members):
            return own  # the compiler reports nullable dictionaries like this
        is_array = len(members) == 1 and members[0].endswith("]")
        if excerpts and is_array:
            return warning.rejected("member", hint="It is an array.", declared=excerpts[0])
        if excerpts:
            if len(members) > len(excerpts) or any(name in _keys_of(each) for each in excerpts):
                return warning  # one of several types can have it
            hint = None if "Did you mean" in warning.message else near(name, _keys_of(excerpts[0]))
            is_meant = hint is not None or "Did you mean" in warning.message or name in ARRAY_METHODS
            is_meant = is_meant or (parent is not None and is_called(parent))  # results have no functions
            never = self._never(node, owner, owner_type)
            is_hedged = is_presence_test(node) or (never is not None and not is_compared(node))
            if not is_meant and (is_hedged or any(map(self.tools.is_open, places))):
                return never or warning
            if name in ARRAY_METHODS and len(arrays := self.tools.types.arrays(self.tools.span(places[0]))) == 1:
                hint = f"It is an object; its array is {arrays[0]!r}."
            return warning.rejected("member", hint=hint, declared=excerpts[0])
        if len(members) != 1 or not self._is_declared(owner):
            return own
        return self._of_text(warning, node, owner) if members[0] in _TEXT else warning.rejected("member")

    def _never(self, name: Node, owner: Node, owner_type: str) -> Finding | None:
        """Returns the finding for a condition on a member that a closed result does not have."""
        member, places = name.parent, self.declared_types(anchor(owner))
        condition = None if member is None else condition_on(member)
        known = [self.tools.types.members_at(*self.tools.span(each)) for each in places]
        members = [each for each in union_members(owner_type) if each not in ("null", "undefined")]
        if member is None or condition is None or len(members) > len(places) or not all(known):
            return None
        if any(self._is_rewritten(each) or self.tools.is_open(each) for each in places):
            return None
        listed = {each for one in known for each in one}
        if text_of(name) in listed:  # one of several types has it
            return None
        return self.finding_on(condition, never_there(name, text_of(name), listed, text_of(owner), condition.holds))

    def _unknown_tool(self, warning: Finding, node: Node, owner: Node) -> Finding:
        around = node.parent and node.parent.parent
        if is_tried(node) or (around is not None and is_typeof(around)):
            return warning
        path = text_of(node)
        if (chain := text_of(unwrapped(owner))) not in ("tools", "codemode"):
            path = f"{chain.rpartition('.')[2]}.{path}"
        if node.parent is not None and (after := path_after(node.parent)):
            path = f"{path}.{after}"
        return warning.rejected("tool", message=self.tools.not_found(path))

    def _argument(self, warning: Finding, node: Node, call: Node, code: int) -> Finding | _AssumeAny | None:
        tool = self._tool_of(self._called(call))
        self._calls += [] if tool is None else [(call, tool)]
        types = mismatch(warning.message)
        signature = None if tool is None else self._with_types(tool.signature, types)
        value = value_at(node)
        variable = root_of(value)
        own = _AssumeAny(variable, warning)
        if code in _COUNT:
            return warning.rejected("argument", hint=self._right_call(tool), declared=signature)
        if types is not None and types[1].startswith("Promise<"):
            return own
        if types is not None and any(each.startswith("Promise<") for each in union_members(types[0])):
            return self._unawaited(warning, value) or own
        if variable is not None and self._is_set_elsewhere(variable):
            return own
        if code in _EXCESS:
            return None if is_a(node.parent, "pair") and text_of(part(node.parent, "value")) == "undefined" else warning
        if self._inputs.is_whole(value):
            return warning  # the schema decides
        if types is not None and types[0] == "undefined" and _is_element(value):
            types = "null", types[1]
        differs = types is not None and certainly_differs(*types, self._named)
        is_variable = unwrapped(value).type not in ("object", "array")
        if is_variable and types is not None and not differs and is_object(types[1], self._named):
            names = missing(warning.message)
            is_grown = self._dynamic.computed or self._dynamic.names & set(names)
            if names and not is_grown:
                return warning.rejected("argument", declared=signature)
        if types is None or not differs:
            return own
        if is_text_for_less(*types, self._named) and not (
            self._is_known(value) and not (self._spells(value) and tool and self.accepts_text(call, tool.name, value))
        ):
            return own
        hint = None if "Did you mean" in warning.message else _near_literal(*types)
        if hint is None and value.parent is not None and value.parent.parent == call:
            hint = self._right_call(tool)
        return warning.rejected("argument", hint=hint, declared=signature)

    def _right_call(self, tool: DeclaredTool | None) -> str | None:
        return None if tool is None else f"Write `{self.tools.call_of(tool.name)}`."

    def _with_types(self, signature: str, types: tuple[str, str] | None) -> str:
        names = [] if types is None else [each for each in union_members(types[1]) if each in self._named]
        return "; ".join([signature, *(f"type {name} = {self._named[name]}" for name in names)])

    def _unawaited(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about an unawaited tool call in or around a node."""
        for each in operands(node):
            if (tool := self._promised(each)) is not None:
                hint = f"{tool} returns a promise: write `await {tool}(...)`."
                return warning.rejected("unawaited", hint=hint)
        return None

    # --- mistakes that the compiler accepts

    def _suspects(self) -> Iterator[Iterable[object]]:
        yield forgotten_calls(self._places)
        yield named_tools(self._places, self._tool_names)
        yield misused_dictionaries(self._places, self.tools.types)
        yield tools_as_callbacks(self._places, self._tool_names)
        yield async_visits(self._places)
        yield self.flawed

    def read(self, value: Node) -> Written:
        return read_typescript(value)

    def calls_by_name(self) -> Iterator[tuple[Node, str]]:
        return calls_by_name(self._places)

    def input_of(self, call: Node) -> Written | None:
        passed = arguments_of(call)
        return read_typescript(passed[0]) if len(passed) == 1 else None

    def is_caught(self, call: Node) -> bool:
        return is_caught(call)

    def tool_called(self, call: Node) -> DeclaredTool | None:
        return self._tool_of(self._called(call))

    def _forgotten(self) -> Iterator[Finding]:
        """Yields findings about unawaited calls."""
        for node in forgotten_calls(self._places):
            if (tool := self._promised(node)) is not None:
                message = f"{tool}(...) is used without `await`: this is a promise, not its value."
                hint = f"Write `await {tool}(...)`."
                yield Finding(code="unawaited", message=message, offset=node.start_byte, kind="unawaited", hint=hint)

    # --- results used as another type, unless the program catches that or tests for it

    @cached_property
    def _places(self) -> Places:
        return Places(self.root)

    @cached_property
    def _hedged(self) -> set[str]:
        """Names of members that the program does not rely on."""
        return {name for node in walk(self.root) if (name := hedged_name(node))}

    @cached_property
    def _hedged_variables(self) -> set[str]:
        return {name for node in walk(self.root) if (name := hedged_variable(node))}

    @cached_property
    def _named(self) -> dict[str, str]:
        return named_types(self.tools.declarations.text)

    @cached_property
    def _tool_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.tools.tools)

    def _not_callable(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about a call of a result's member, because results have no functions."""
        member = node.parent if node.type == "property_identifier" else None
        owner = part(member, "object")
        if member is None or owner is None or not is_called(member) or is_tried(node):
            return None
        places = self.declared_definitions(node)
        if text_of(node) in self._hedged | self._dynamic.names or not places or any(map(self._is_rewritten, places)):
            return None
        if self._is_array_tested(owner) or not self._is_declared(owner) or self._is_dictionary(owner):
            return None  # `_dictionaries` reports dictionaries
        message = f"{text_of(node)!r} is not a function"
        declared = text_of(self.tools.types.at(*self.tools.span(places[0]))) or None
        return warning.rejected("member", message=message, declared=declared)

    def _of_text(self, warning: Finding, name: Node, owner: Node) -> Finding:
        """Returns the finding about a member that a declared string does not have."""
        message, _, suggestion = without_markup(warning.message).partition(" Did you mean")
        hint = conversion_hint(text_of(name), _shown(owner))
        # Strings have only one property, so without a call a method is not the intended member.
        is_near = "'length'" in suggestion or (name.parent is not None and is_called(name.parent))
        if hint is None and suggestion and is_near:
            return warning.rejected("member", message=f"{message} Did you mean{suggestion}")
        return warning.rejected("member", message=message, hint=hint or f"{self._text_taken(owner)} {_IF_JSON}")

    def _text_taken(self, value: Node) -> str:
        """Describes the string whose member a program reads."""
        source = self._looped(value)
        first = self._initial(source) if is_a(source, "identifier") else None
        if source is None or self._result_of(called_on(first or source)) != "Promise<string>":
            return "It is a string."
        return f"{_shown(source)} is a string; the loop iterates over its characters."

    def _result_of(self, called: Node | None) -> str | None:
        """Returns the declared result type of a function."""
        places = [] if called is None else self.declared_definitions(anchor(called))
        result = self.tools.types.at(*self.tools.span(places[0])) if places else None
        return None if result is None else text_of(result).removeprefix(":").strip()

    def _not_iterable(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about iterating over a declared object."""
        value = iterated(node)
        taken = _TYPE.search(warning.message)
        if value is None or taken is None or is_tried(value) or self._is_array_tested(value):
            return None
        members = [each for each in union_members(taken[1]) if each not in ("null", "undefined")]
        is_object = bool(members) and all(certainly_differs(each, "any[] | string", self._named) for each in members)
        if not is_object or "Promise<" in taken[1] or not self._is_declared(value):
            return None
        if self._is_dictionary(value):
            return warning.rejected("member", message="A dictionary is not an array", hint=_values_of(value))
        places = self.declared_types(anchor(value))
        if any(map(self._is_rewritten, places)):
            return None
        declared = self.tools.excerpt(places[0]) if places else None
        return warning.rejected("member", message="This object is not an array", declared=declared)

    def _uncalled(self) -> Iterator[Finding]:
        """Yields findings about tools that are used as values instead of called."""
        for node in named_tools(self._places, self._tool_names):
            if self._tool_of(node) is not None and not is_tried(node):
                message, hint = f"{text_of(node)} is not called", f"Write `await {text_of(node)}(...)`."
                yield Finding(code="uncalled", message=message, offset=node.start_byte, kind="tool", hint=hint)
        for node in tools_as_callbacks(self._places, self._tool_names):
            if (tool := self._tool_of(node)) is not None and not is_tried(node):
                message = f"{text_of(node)} takes one object, but is called with an element, its index and the array"
                hint = f"Write `(each) => {self.tools.call_of(tool.name)}`."
                yield Finding(code="uncalled", message=message, offset=node.start_byte, kind="argument", hint=hint)

    def _dictionaries(self) -> Iterator[Finding]:
        """Yields findings about dictionaries used as arrays."""
        for member in misused_dictionaries(self._places, self.tools.types):
            owner, name = part(member, "object"), part(member, "property")
            if owner is not None and name is not None and self._is_misused(member, owner, name):
                message = f"A dictionary is not an array: it has no {text_of(name)!r}"
                hint = _values_of(owner)
                yield Finding(code="dictionary", message=message, offset=name.start_byte, kind="member", hint=hint)

    def _is_misused(self, member: Node, owner: Node, name: Node) -> bool:
        if text_of(name) in self._hedged | self._dynamic.names or is_tried(member) or self._is_array_tested(owner):
            return False
        if not self._is_declared(owner) or not self._is_dictionary(owner) or is_presence_test(name):
            return False
        # there may be a member `length`, unless all members are objects
        return is_called(member) or (text_of(name) == "length" and bool(self.types(name)))

    def _is_dictionary(self, expression: Node) -> bool:
        """True if a value is declared with arbitrary member names."""
        name = anchor(expression)
        places = [each for each in (*self.definitions(name), *self.types(name)) if each.declared]
        types = [self.tools.types.at(*self.tools.span(each)) for each in places]
        return bool(types) and all(each is not None and is_dictionary(each) for each in types)

    def _is_array_tested(self, owner: Node) -> bool:
        """True if the program tests whether a value is an array."""
        return f"Array.isArray({text_of(owner)})" in text_of(self.root)

    def _unfinished(self) -> Iterator[Finding]:
        """Yields findings about async callbacks of array methods that ignore promises."""
        for call, name in async_visits(self._places):
            called = self._called(call)
            if any(each.own or each.declared for each in self.definitions(part(called, "property"))):
                continue
            message = f"`{name}` does not wait for an async callback"
            finding = Finding(code=f"async-{name}", message=message, offset=call.start_byte, always=True)
            if name == "forEach" and (lost := gathered_too_late(call)) is not None:
                hint = f"{lost!r} is read too early: use `for...of`."
                yield finding.rejected("unawaited", hint=hint)
            elif name == "forEach":
                yield replace(
                    finding, hint="Use `for (const each of list)`, or `await Promise.all(list.map(async ...))`."
                )
            else:
                hint = "The promise that it returns counts as true. Await the values first, with Promise.all."
                yield finding.rejected("unawaited", hint=hint)

    # --- origins of values: tools, their results, or the program itself

    @cached_property
    def _dynamic(self) -> DynamicMembers:
        return DynamicMembers.of(self.root)

    @cached_property
    def _assigned(self) -> dict[str, list[tuple[int, int]]]:
        return assigned_in(self.root)

    def _promised(self, expression: Node) -> str | None:
        """Returns the source text of the tool whose promise an expression is, directly or through a constant."""
        call = self._held(expression)
        if call.type != "call_expression":
            return None
        called = self._called(call)
        tool = self._tool_of(called)
        promises = self._is_async(called) if tool is None else not tool.is_stream
        return text_of(called) if promises else None

    def _is_async(self, called: Node) -> bool:
        """True if the called function is the program's own async function."""
        places = [each for each in self.definitions(called) if each.own] if called.type == "identifier" else []
        return len(places) == 1 and (name := self.node_at(places[0])) is not None and defines_async(name)

    def _called(self, call: Node) -> Node:
        return unwrapped(part(call, "function") or call)

    def _tool_of(self, called: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(called))

    def _tool_call(self, node: Node, *, counted: bool = False) -> Node | None:
        """Returns the innermost call with the node among its arguments, if it calls a tool.

        With `counted`, the node can be any part of the call.
        """
        for below, above in ascent(node):
            if above.type in FUNCTIONS:
                break
            if above.type == "call_expression" and (counted or below == part(above, "arguments")):
                return above if self._tool_of(self._called(above)) is not None else None
        return None

    def _bound(self, name: Node) -> Node | None:
        """Returns the identifier that binds a variable of the program."""
        own = next((each for each in self.definitions(name) if each.own), None)
        return None if own is None else self.node_at(own)

    def _initial(self, name: Node, keywords: tuple[str, ...] = ("const",)) -> Node | None:
        """Returns the initial value of a constant, or of a variable that one of these keywords declares."""
        bound = self._bound(name)
        declarator = None if bound is None else bound.parent
        if not is_a(declarator, "variable_declarator") or declarator.parent is None:
            return None
        return part(declarator, "value") if declarator.parent.children[0].type in keywords else None

    def _is_declared(self, expression: Node, hops: int = 2) -> bool:
        """True if an expression is a declared result or a member of one."""
        name = anchor(expression)
        if name is None:
            return False
        is_shorthand = name.type == "shorthand_property_identifier"  # its definitions include the member
        declared = [] if is_shorthand else self.declared_definitions(name)
        if declared:
            return not any(map(self._is_rewritten, declared))
        if not (is_shorthand or name.type in ("identifier", "shorthand_property_identifier_pattern")) or not hops:
            return False
        value = self._initial(name) or self._visited(name) or self._looped(name)
        return value is not None and self._is_declared(value, hops - 1)

    def _is_set_elsewhere(self, name: Node) -> bool:
        """True if another function assigns to the variable, which the compiler does not track."""
        functions = self._assigned.get(text_of(name), ())
        return any(not start <= name.start_byte < end for start, end in functions)

    def _looped(self, name: Node) -> Node | None:
        """Returns the iterable of the loop that binds a constant: `rows` in `for (const row of rows)`."""
        bound = self._bound(name)
        return None if bound is None else loop_over(bound)

    def _visited(self, name: Node) -> Node | None:
        """Returns the array that passes a callback parameter: `rows` in `rows.map((row) => …)`."""
        bound = self._bound(name)
        call = None if bound is None else called_with(bound)
        return None if call is None else part(self._called(call), "object")

    def _is_annotated(self, expression: Node) -> bool:
        """True if the program annotates the type of a variable."""
        root = root_of(expression)
        bound = None if root is None else self._bound(root)
        return bound is not None and part(bound.parent, "type") is not None

    def _is_known(self, expression: Node) -> bool:
        """True if a value is a literal or has a declared type."""
        literal = self._held(expression)
        return literal.type in ("string", "template_string") or self._is_declared(literal)

    def _spells(self, expression: Node) -> bool:
        """True if a value is a string literal with the form of a number or a boolean."""
        return isinstance(text := self.read(self._held(expression)).value, str) and spells(text)

    def _held(self, expression: Node) -> Node:
        """Returns the value of a constant, or the expression itself."""
        expression = unwrapped(expression)
        value = self._initial(expression) if expression.type.endswith("identifier") else None
        return expression if value is None else unwrapped(value)

    # --- declared types that no longer hold because the program stores other values in their place
    #
    # The compiler accepts `order.items = order.items.map((item) => ({ ...item, total }))`, since the new items have
    # every declared member, and later reports that they have no `total`. Values are not tracked, since they can be
    # moved. So errors about their type, or about the assigned member, do not count.

    def _is_rewritten(self, location: Location) -> bool:
        return self._rewritten.covers(self.tools.span(location)[0])

    @cached_property
    def _rewritten(self) -> Reach:
        """Declared types whose values the program replaces."""
        reach = Reach(self.tools.types)
        if len(self._dynamic.writes) > _MAX_WRITES:
            reach.add_everything()
            return reach
        for write in self._dynamic.writes:
            if text_of(write.value) not in _NOTHING:
                self._rewrite(reach, write)
        return reach

    def _rewrite(self, reach: Reach, write: Write) -> None:
        root = root_of(write.target)
        initial = None if root is None else self._first_value(root)
        is_own = initial is not None and initial.type in _OWN_VALUES
        declared = self._declared_at(write.target)
        if not declared and initial is not None and not is_own and write.target == root:
            declared = self._declared_at(initial)
        name = write.name
        if name is None and not declared and not write.into and write.target.type == "member_expression":
            is_own = is_own or any(each.own for each in self.definitions(anchor(write.target)))
            name = text_of(part(write.target, "property"))
        if name is not None and name in self.tools.types.members:
            if not is_own:
                reach.add_members(name)
        elif declared:
            if write.name is None and not self._fits(write.value, declared):
                self._reach(reach, declared)
        elif write.into and root is not None:
            self._rewrite_contents(reach, write, root, initial)

    def _rewrite_contents(self, reach: Reach, write: Write, root: Node, initial: Node | None) -> None:
        """Adds the declared types that a container can hold, although the container itself is not declared."""
        if self._is_parameter(root):
            reach.add_everything()
        elif not is_a(initial, "object", "array") or self._is_annotated(root):
            value = write.value and unwrapped(write.value)
            if is_a(value, "identifier"):
                value = self._first_value(value) or value
            for source in [] if value is None else _SPREAD(value).get("source", []):
                self._reach(reach, self._declared_at(source))

    def _reach(self, reach: Reach, declared: Iterable[Location]) -> None:
        for each in declared:
            reach.add(self.tools.types.at(*self.tools.span(each)))

    def _declared_at(self, target: Node) -> list[Location]:
        """Returns the declarations of a target: its member and its type."""
        name = anchor(unwrapped(target))
        return [each for each in (*self.definitions(name), *self.types(name)) if each.declared]

    def _fits(self, value: Node | None, declared: list[Location]) -> bool:
        types = self.declared_types(anchor(inside(value) if is_a(value, "spread_element") else value))
        return bool(types) and all(each in declared for each in types)

    def _first_value(self, name: Node) -> Node | None:
        """Returns the initial value of a variable."""
        value = self._initial(name, ("const", "let", "var", "using", "await"))
        return None if value is None else unwrapped(value)

    def _is_parameter(self, name: Node) -> bool:
        """True if a name is a parameter of a named function, whose arguments are unknown."""
        bound = self._bound(name)
        around = enclosing(bound, FUNCTIONS | {"variable_declarator", "statement_block"})
        return around is not None and around.type in FUNCTIONS and called_with(name) is None


def _near_literal(source: str, target: str) -> str | None:
    """Returns a question that suggests a similar literal of the target type."""
    texts = [each.strip('"') for each in union_members(target) if each[0] == '"']
    return near(source.strip('"'), texts) if source[0] == '"' else None


def _is_element(value: Node) -> bool:
    """True if a value is an array element, where undefined is sent as null."""
    return is_a(with_wrappers(value, ("parenthesized_expression", "as_expression"))[1], "array")


def _is_relevant(remark: Remark) -> bool:
    """True if a diagnostic can indicate a real problem."""
    return remark.severity in _WARNED and _number(remark) not in _SILENT


def _number(remark: Remark) -> int:
    return int(remark.code) if remark.code.isdecimal() and len(remark.code) < 10 else 0


def _keys_of(type_: str) -> list[str]:
    """Returns the member names in a printed type, including nested ones."""
    return [(first or second).strip('"') for first, second in _KEY.findall(type_)]


def _kind_of(statement: Node) -> str:
    inner = inside(statement) if statement.type == "expression_statement" else None
    return statement.type if inner is None else inner.type


def _shown(value: Node) -> str:
    """Returns an expression's source text if it is short, else `...`."""
    text = text_of(unwrapped(value))
    return text if len(text) <= _MAX_SHOWN_CHARS else "..."


def _values_of(dictionary: Node) -> str:
    return f"Use Object.values({_shown(dictionary)}) or Object.entries({_shown(dictionary)})."
