"""TypeScript before it runs: which of a compiler's errors mean that a program does not fit the declarations.

What a program does with values of its own is its own affair: types are erased when it runs, and much of what a compiler
refuses runs well. Where the compiler disagrees with a program about one of its own variables, that variable counts as
`any` and the program is checked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.conditions import condition_on, never_there
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.findings import NOTHING_SHARED, Finding, near
from corral.checking.hints.typescript import NO_LIBRARIES, SENDS_REQUESTS
from corral.checking.inputs import Written
from corral.checking.servers.specs import GLOBALS
from corral.checking.servers.workspace import Document, Remark
from corral.checking.source_map import CheckedText
from corral.checking.typescript.dynamic_members import is_written, root_of
from corral.checking.typescript.expressions import (
    affected,
    anchor,
    annotate,
    assigned_names,
    binder,
    bound_by,
    first_parameter,
    has_default,
    is_asked,
    is_called,
    is_caught,
    is_compared,
    is_conditional,
    is_on_failure,
    is_tried,
    is_typeof,
    operands,
    path_after,
    receiver,
    value_at,
)
from corral.checking.typescript.messages import (
    certainly_differs,
    is_object,
    is_text_for_less,
    mismatch,
    missing,
    shortened,
    union_members,
)
from corral.checking.typescript.misuse import Misuse
from corral.checking.typescript.suspects import (
    ARRAY_METHODS,
    async_visits,
    calls_by_name,
    forgotten_calls,
    given_to,
    misused_dictionaries,
    named_tools,
    tools_as_callbacks,
)
from corral.checking.written import read_typescript
from corral.concurrency.cached_property import cached_property
from corral.programs import TypedProgram
from corral.programs.syntax.typescript import text_of, unwrapped, walk
from corral.texts import TextIndex, located
from corral.types import Position

__all__ = ["TypeScriptCheck"]

_ROUNDS = 5
"""Most checks of a program with ever more of its variables as `any`."""
_OF_TYPES = frozenset({"argument", "member"})
"""Remarks that are uncertain while the compiler is wrong about a variable."""
_WARNED = frozenset({1, 2})
"""Severities: errors and warnings."""
_AT_TOP = frozenset({"import_statement", "export_statement", "internal_module", "module", "ambient_declaration"})
"""Statements that no function may hold. A namespace is in a statement of its own."""
_SILENT = frozenset({1108, 1375, 1378, 2307, 2792})
"""`return` and `await` outside of functions, which work here; modules that are not there, which fail by themselves."""
_IMPLICIT_ANY = range(7000, 7100)
_UNBOUND = frozenset({2304, 2552, 2580, 2581, 2582, 2583, 2584, 2591, 2592, 2593, 2663, 2868, 18004})
_MEMBER = frozenset({2339, 2551, 2550, 2568, 2570, 2576})
_EXCESS = frozenset({2353, 2561})
_COUNT = frozenset({2554, 2555})
_ARGUMENT = frozenset({2322, 2345, 2559, 2560, 2739, 2740, 2741, 2769, 2820}) | _EXCESS | _COUNT
_ITERATED = frozenset({2461, 2488, 2495, 2504, 2548, 2549, 2802})
_COMPUTED = frozenset({2356, 2362, 2363, 2365})
_VALUE = _ITERATED | _COMPUTED | {2349, 2351, 2367, 2538, 2678, 2801, 7053, 18046}
"""Something is used as what it is not."""
_OWN = _MEMBER | _ARGUMENT | {2349, 2351, 2403, 2451, 2540, 2719, 7005, 7034, 7053}
"""Remarks that show that the compiler is wrong about a variable."""
_NOT_CALLABLE = 2349
_NOT_MADE = frozenset({2349, 2351})
"""Something is called that is not a function, or made that is not a class."""
_NO_DEFAULT = frozenset({1192, 1259, 2613})
"""A package has no default export; the guest gives its whole namespace for it."""
_REDECLARED = 2403
_GIVEN = ("'process'", "'require'")
_INDEXED = frozenset({7015, 7053})
_NULLISH = frozenset({2531, 18047})
_ADVICE = re.compile(r" (?:Do you need to (?:install|change)|Try changing the 'lib')\b.*", re.DOTALL)
"""Advice of the compiler that nobody can follow here."""
_OF_PROMISE = re.compile(r"\b(?:[Tt]ypes?|this) '(?:[^']*(?:' and '| ))?Promise<")
_OF_STREAM = re.compile(r"\b[Tt]ype '(?:Promise<)?AsyncIterable<[^|]*'")
_PLATFORM = frozenset(re.findall(r"declare var ([A-Z]\w*)", GLOBALS.read_text(encoding="utf-8")))
"""Classes that a program finds, by whose names declarations may call other types."""
_READ_STREAM = (
    "It is a stream: read it with `for await (const item of ...)`, or gather it with `await Array.fromAsync(...)`."
)
_AWAIT_IT = "It is a promise: `await` it first."
_TAKEN_OF = re.compile(r"does not exist on type '(.*?)'\.(?: |$)", re.MULTILINE | re.DOTALL)
_TEXT = frozenset({"string", "String"})
_KEY = re.compile(r"^\s*(?:readonly )?([\w$]+|\"[^\"]*\")\??:|[{;] (?:readonly )?([\w$]+|\"[^\"]*\")\??:", re.MULTILINE)


class _Relax(NamedTuple):
    """The compiler is not to know the type of what this identifier names."""

    variable: Node | None
    finding: Finding | None
    """None: there is nothing to be said of it."""


class TypeScriptCheck(Misuse):
    """`env`: the program finds a `process`. `modules`: it may load packages. `network`: it may send requests."""

    def __init__(
        self, typed: TypedProgram, tools: ToolSet, *, env: bool, modules: bool = False, network: bool = False
    ) -> None:
        super().__init__(typed.root, tools)
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
        return not any(map(_is_told, remarks)) and not any(map(any, self._suspects()))

    def judged(self, document: Document) -> list[Finding]:
        findings: list[Finding] = []
        unsaid: list[Finding] = []
        for number in range(_ROUNDS):
            document.write(self.text.text)
            unsaid += [] if number else [*self._uncalled(), *self._dictionaries(), *self._unfinished()]
            judged = [each for remark in document.remarks() if (each := self._judged(remark))]
            told = [each.finding if isinstance(each, _Relax) else each for each in judged]
            findings = [each for each in told if each is not None]
            known = len(self._relaxed)
            for each in judged:
                if isinstance(each, _Relax):
                    self._relax(each.variable)
            if len(self._relaxed) == known:
                break
            self.put(self._composed())
        else:
            findings = [replace(each, kind=None) if each.kind in _OF_TYPES else each for each in findings]
        findings += [*unsaid, *self._forgotten()]
        told = self.with_flaws(findings)
        return [replace(each, message=shortened(each.message)) for each in told]

    @cached_property
    def _positions(self) -> TextIndex:
        return TextIndex(self._typed.edits.text)

    @cached_property
    def _probed(self) -> set[str]:
        """Names that the program asks the type of before it uses them."""
        return {text_of(node.named_children[0]) for node in walk(self.root) if is_typeof(node)}

    @cached_property
    def _namespaces(self) -> set[str]:
        """Names for whole packages, `import * as name`, if it may load any."""
        imports = (
            [each for each in self.root.named_children if each.type == "import_statement"] if self._modules else []
        )
        return {
            text_of(node.named_children[-1])
            for each in imports
            for node in walk(each)
            if node.type == "namespace_import"
        }

    @cached_property
    def _undeclared(self) -> dict[str, str]:
        """Declarations of names that the program assigns to, by name."""
        return {
            name: f"Declare it: `let {name}`." if kind == "assignment" else f"Declare it: `for (const {name} of ...)`."
            for name, kind in assigned_names(self.root)
        }

    # --- what the server reads

    def _composed(self) -> CheckedText:
        typed = self._typed
        edits = typed.edits.copy()
        for function in typed.entered:
            if (parameter := first_parameter(function)) is not None:
                annotate(edits, parameter, typed.unused)
        for variable in self._relaxed.values():
            annotate(edits, variable, "any")
        prefix, suffix = f"export {{}}; type {typed.unused} = typeof codemode; ", ""
        if typed.commonjs:
            prefix += "declare const module: any, exports: any; "
        if self._modules:
            prefix += "declare global { var require: any, process: any; } "
        elif self._env:
            prefix += "declare const process: { readonly env: { readonly [name: string]: string } }; "
        if not any(_kind_of(each) in _AT_TOP for each in self.root.named_children):
            # what a top level returns is not checked, since it must not
            prefix, suffix = f"{prefix}async function {typed.unused}_() {{", "\n}"
        return CheckedText(*edits.apply(prefix.encode(), suffix.encode()))

    def _relax(self, variable: Node | None) -> None:
        """Makes `any` of the variable that an identifier names, wherever the program binds it."""
        for location in self.definitions(variable):
            if location.own:
                node = self.node_at(location)
                bound = None if node is None else binder(node)
                if bound is not None:
                    self._relaxed.setdefault(bound.start_byte, bound)

    # --- what the server says

    def _judged(self, remark: Remark) -> Finding | _Relax | None:
        """The finding of a remark. None: nothing."""
        if not _is_told(remark):
            return None
        code = _number(remark)
        start, end = self.text.offsets(remark.span)
        node = self.node_between(start, end)
        warning = Finding(code=f"TS{code}", message=_ADVICE.sub("", remark.message), offset=start)
        if self._modules and (
            code in _NO_DEFAULT or (code == _REDECLARED and any(map(warning.message.__contains__, _GIVEN)))
        ):
            return None
        if node is None or self._is_erased(start):
            return warning
        if code in _NOT_MADE and (root := root_of(node)) is not None and text_of(root) in self._namespaces:
            return None  # a package that exports a function is that function here
        if code in _UNBOUND:
            return self._unbound(warning, node)
        if code in _MEMBER | _ITERATED and _OF_STREAM.search(remark.message) and not is_tried(node):
            return warning.rejected("stream", hint=_READ_STREAM)
        if code in _MEMBER:
            return self._member(warning, node)
        if code in _ARGUMENT and (call := self._tool_call(node, counted=code in _COUNT)) is not None:
            return self._argument(warning, node, call, code)
        if code == _NOT_CALLABLE and (found := self._not_callable(warning, node)) is not None:
            return found
        if code in _INDEXED and (found := self._indexed_text(warning, node)) is not None:
            return found
        if code in _NULLISH and (found := self._of_nothing(warning, node)) is not None:
            return found
        if code in _ITERATED and (found := self._not_iterable(warning, node)) is not None:
            return found
        if "is not assignable to type 'Promise<" in remark.message:
            return _Relax(affected(node), warning)
        if code in _VALUE | _ARGUMENT and _OF_PROMISE.search(remark.message):
            if (found := self._unawaited(warning, node)) is not None:
                return found
            if code in _ITERATED | _COMPUTED:
                return warning.rejected("unawaited", hint=_AWAIT_IT)
        told = None if code in _IMPLICIT_ANY else warning
        return _Relax(affected(node) if code in _OWN else None, told)

    def _unbound(self, warning: Finding, node: Node) -> Finding | None:
        name = text_of(node)
        if node.type not in ("identifier", "shorthand_property_identifier"):
            return None if self._modules else warning  # a module of node
        if name in self._probed or name in self._dynamic.names or is_tried(node) or is_on_failure(node):
            return warning
        if name == "process" and is_conditional(node):
            return warning
        is_called = (
            node.parent is not None and node.parent.type == "call_expression" and "Did you" not in warning.message
        )
        hint = self.tools.hint_for(name, is_called=is_called, path=path_after(node))
        if hint == NO_LIBRARIES and self._modules:
            hint = "It is not imported."
        elif self._network and (hint == NO_LIBRARIES or name == "require"):
            hint = SENDS_REQUESTS
        if hint is None and "Did you" in warning.message:
            return warning.rejected("unbound")
        if hint is None:
            hint = self._undeclared.get(name, NOTHING_SHARED)
        return warning.rejected("unbound", message=warning.message.partition(" Did you mean")[0], hint=hint)

    def _member(self, warning: Finding, node: Node) -> Finding | _Relax:
        name, owner = text_of(node).strip("\"'`"), receiver(node)
        taken = _taken_of(warning.message)
        if owner is None or taken is None:
            return warning
        parent = node.parent
        own = _Relax(root_of(owner), warning)
        is_target = parent is not None and parent.type == "member_expression" and is_written(parent)
        if taken.startswith("Promise<") and not is_target:
            return self._unawaited(warning, owner) or warning.rejected("unawaited", hint=_AWAIT_IT)
        if is_target or name in self._dynamic.names:  # what is added to a result says nothing about the rest of it
            return warning if self.declared_types(anchor(owner)) else own
        if taken in ("never", "any", "{}", "unknown"):
            return own
        if name in self._hedged or has_default(node) or bound_by(node) in self._hedged_variables:
            places = self.declared_types(anchor(owner))
            is_misspelt = "Did you mean" in warning.message and not any(map(self._is_rewritten, places))
            hedged = replace(warning, always=is_misspelt)
            return (self._never(node, owner, taken) or hedged) if places else own
        if taken in _PLATFORM and self._is_annotated(owner):
            return own  # it means the platform's class
        places = self.declared_types(anchor(owner))
        if any(map(self._is_rewritten, places)):
            return own
        excerpts = [self.tools.excerpt(each) for each in places]
        if any("): Promise<" in each for each in excerpts):
            return self._unknown_tool(warning, node, owner)
        members = [each for each in union_members(taken) if each not in ("null", "undefined")]
        if any(each.startswith(("Record<", "{ [")) for each in members):
            return own  # the compiler says so of a dictionary that may be null
        is_array = len(members) == 1 and members[0].endswith("]")
        if excerpts and is_array:
            return warning.rejected("member", hint="It is an array.", declared=excerpts[0])
        if excerpts:
            if len(members) > len(excerpts) or any(name in _keys_of(each) for each in excerpts):
                return warning  # one of several types may have it
            hint = None if "Did you mean" in warning.message else near(name, _keys_of(excerpts[0]))
            is_meant = hint is not None or "Did you mean" in warning.message or name in ARRAY_METHODS
            is_meant = is_meant or (parent is not None and is_called(parent))  # results have no functions
            never = self._never(node, owner, taken)
            is_hedged = is_asked(node) or (never is not None and not is_compared(node))
            if not is_meant and (is_hedged or any(map(self.tools.may_have_more, places))):
                return never or warning
            if name in ARRAY_METHODS and len(arrays := self.tools.types.arrays(self.tools.span(places[0]))) == 1:
                hint = f"It is an object; its array is {arrays[0]!r}."
            return warning.rejected("member", hint=hint, declared=excerpts[0])
        if len(members) != 1 or not self._is_declared(owner):
            return own
        return self._of_text(warning, node, owner) if members[0] in _TEXT else warning.rejected("member")

    def _never(self, name: Node, owner: Node, taken: str) -> Finding | None:
        """The finding on a condition on a member that a result, which is closed, does not have."""
        member, places = name.parent, self.declared_types(anchor(owner))
        condition = None if member is None else condition_on(member)
        known = [self.tools.types.members_at(*self.tools.span(each)) for each in places]
        members = [each for each in union_members(taken) if each not in ("null", "undefined")]
        if member is None or condition is None or len(members) > len(places) or not all(known):
            return None
        if any(self._is_rewritten(each) or self.tools.may_have_more(each) for each in places):
            return None
        listed = {each for one in known for each in one}
        if text_of(name) in listed:  # which one of several types has
            return None
        return self.told_of(condition, never_there(name, text_of(name), listed, text_of(owner), condition.holds))

    def _unknown_tool(self, warning: Finding, node: Node, owner: Node) -> Finding:
        if is_tried(node) or (
            node.parent is not None and node.parent.parent is not None and is_typeof(node.parent.parent)
        ):
            return warning
        path = text_of(node)
        if (chain := text_of(unwrapped(owner))) not in ("tools", "codemode"):
            path = f"{chain.rpartition('.')[2]}.{path}"
        if node.parent is not None and (after := path_after(node.parent)):
            path = f"{path}.{after}"
        return warning.rejected("tool", message=self.tools.not_found(path))

    def _argument(self, warning: Finding, node: Node, call: Node, code: int) -> Finding | _Relax | None:
        tool = self._tool_of(self._called(call))
        self._calls += [] if tool is None else [(call, tool)]
        found = mismatch(warning.message)
        signature = None if tool is None else self._with_types(tool.signature, found)
        value = value_at(node)
        variable = root_of(value)
        own = _Relax(variable, warning)
        if code in _COUNT:
            return warning.rejected("argument", hint=self._right_call(tool), declared=signature)
        if found is not None and found[1].startswith("Promise<"):
            return own
        if found is not None and any(each.startswith("Promise<") for each in union_members(found[0])):
            return self._unawaited(warning, value) or own
        if variable is not None and self._is_set_elsewhere(variable):
            return own
        if code in _EXCESS:
            return None if _is_undefined(node) else warning
        if self._inputs.is_whole(value):
            return warning  # which its schema is to judge
        if found is not None and found[0] == "undefined" and _is_element(value):
            found = "null", found[1]
        differs = found is not None and certainly_differs(*found, self._named)
        is_variable = unwrapped(value).type not in ("object", "array")
        if is_variable and found is not None and not differs and is_object(found[1], self._named):
            names = missing(warning.message)
            is_grown = self._dynamic.computed or self._dynamic.names & set(names)
            if names and not is_grown:
                return warning.rejected("argument", declared=signature)
        if found is None or not differs:
            return own
        if is_text_for_less(*found, self._named) and not (
            self._is_known(value) and not (self._spells(value) and tool and self.takes_spelt(call, tool.name, value))
        ):
            return own
        hint = None if "Did you mean" in warning.message else _literal_meant(*found)
        if hint is None and value.parent is not None and value.parent.parent == call:
            hint = self._right_call(tool)
        return warning.rejected("argument", hint=hint, declared=signature)

    def _right_call(self, tool: DeclaredTool | None) -> str | None:
        return None if tool is None else f"Write `{self.tools.call_of(tool.name)}`."

    def _with_types(self, signature: str, found: tuple[str, str] | None) -> str:
        """A signature, and what the types are called otherwise that a message names as wanted."""
        wanted = [] if found is None else [each for each in union_members(found[1]) if each in self._named]
        return "; ".join([signature, *(f"type {name} = {self._named[name]}" for name in wanted)])

    def _unawaited(self, warning: Finding, node: Node) -> Finding | None:
        """A finding about a call of a tool in what a node spans that nothing awaits, if there is one."""
        for each in operands(node):
            if (tool := self._promised(each)) is not None:
                hint = f"{tool} gives a promise: write `await {tool}(...)`."
                return warning.rejected("unawaited", hint=hint)
        return None

    # --- where the compiler has nothing against it

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
        given = given_to(call)
        return None if given is None else read_typescript(given)

    def is_caught(self, call: Node) -> bool:
        return is_caught(call)

    def tool_called(self, call: Node) -> DeclaredTool | None:
        return self._tool_of(self._called(call))

    def _forgotten(self) -> Iterator[Finding]:
        """Calls that nothing awaits."""
        for node in forgotten_calls(self._places):
            if (tool := self._promised(node)) is not None:
                message = f"{tool}(...) is used without `await`: this is a promise, and not yet its value."
                hint = f"Write `await {tool}(...)`."
                yield Finding(code="unawaited", message=message, offset=node.start_byte, kind="unawaited", hint=hint)

    def _is_erased(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._typed.types)


def _literal_meant(given: str, wanted: str) -> str | None:
    """A question after the text that may have been meant, of those that are possible."""
    texts = [each.strip('"') for each in union_members(wanted) if each[0] == '"']
    return near(given.strip('"'), texts) if given[0] == '"' else None


def _is_element(value: Node) -> bool:
    """True if a value is an array's element: undefined leaves the program as null there."""
    parent = value.parent
    while parent is not None and parent.type in ("parenthesized_expression", "as_expression"):
        parent = parent.parent
    return parent is not None and parent.type == "array"


def _is_undefined(key: Node) -> bool:
    """True if a member is given as undefined, which does not leave the program."""
    pair = key.parent
    value = None if pair is None or pair.type != "pair" else pair.child_by_field_name("value")
    return value is not None and text_of(value) == "undefined"


def _is_told(remark: Remark) -> bool:
    """True if a remark may mean something."""
    return remark.severity in _WARNED and _number(remark) not in _SILENT


def _number(remark: Remark) -> int:
    return int(remark.code) if remark.code.isdecimal() and len(remark.code) < 10 else 0


def _taken_of(message: str) -> str | None:
    """The type of which a member was taken that it does not have."""
    found = _TAKEN_OF.search(message)
    return found[1] if found else None


def _keys_of(type_: str) -> list[str]:
    """The names of the members that a type lists, those of its members' types too."""
    return [(first or second).strip('"') for first, second in _KEY.findall(type_)]


def _kind_of(statement: Node) -> str:
    inner = statement.named_child(0) if statement.type == "expression_statement" else None  # `named_children` stay
    return statement.type if inner is None else inner.type
