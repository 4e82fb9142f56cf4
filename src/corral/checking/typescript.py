"""TypeScript before it runs: which of a compiler's errors mean that a program does not fit the declarations.

What a program does with values of its own is its own affair: types are erased when it runs, and much of what a compiler
refuses runs well. Where the compiler disagrees with a program about one of its own variables, that variable counts as
`any` and the program is checked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.check import Check
from corral.checking.expressions import (
    affected,
    anchor,
    annotate,
    binder,
    called_with,
    defines_async,
    first_parameter,
    hedged_name,
    is_awaited,
    is_shown,
    is_tried,
    is_typeof,
    operands,
    path_in,
    receiver,
    value_at,
)
from corral.checking.findings import Finding, near
from corral.checking.growth import Growth, is_written, root_of
from corral.checking.kinds import GLOBALS
from corral.checking.text import CheckedText
from corral.checking.toolset import DeclaredTool, ToolSet
from corral.checking.typescript_texts import (
    certainly_differs,
    is_object,
    is_text_for_less,
    literal_target,
    mismatch,
    missing,
    named_types,
    union_members,
)
from corral.checking.workspace import Document, Remark
from corral.programs import TypedProgram
from corral.programs.edits import TextIndex
from corral.programs.grammar import FUNCTIONS, finder, text_of, unwrapped, walk
from corral.types import Position

__all__ = ["TypeScriptCheck"]

_ROUNDS = 3
"""How often a program is checked with more of its variables as `any`."""
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
"""What shows that the compiler has a wrong idea of a variable."""
_OF_PROMISE = re.compile(r"\b(?:[Tt]ypes?|this) '(?:[^']*(?:' and '| ))?Promise<")
_ENVIRONMENTS = frozenset({"require", "module", "process", "window", "document", "navigator", "Deno", "Bun"})
"""What programs look for to find out where they run."""
_PLATFORM = frozenset(re.findall(r"declare var ([A-Z]\w*)", GLOBALS.read_text(encoding="utf-8")))
"""Classes that a program finds, by whose names declarations may call other types."""
_CALLS = finder("(call_expression) @call (variable_declarator name: (identifier) @held value: (call_expression))")
_NAMES = finder("(identifier) @name")
_AWAIT_IT = "It is a promise: `await` it first."
_TAKEN_OF = re.compile(r"does not exist on type '(.*?)'\.(?: |$)", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^\s*(?:readonly )?([\w$]+|\"[^\"]*\")\??:|[{;] (?:readonly )?([\w$]+|\"[^\"]*\")\??:", re.MULTILINE)


class _Relax(NamedTuple):
    """The compiler is not to know the type of what this identifier names."""

    variable: Node | None
    finding: Finding | None
    """None: there is nothing to be said of it."""


class TypeScriptCheck(Check):
    """`env`: the program finds a `process`."""

    def __init__(self, typed: TypedProgram, tools: ToolSet, *, env: bool) -> None:
        super().__init__(typed.root, tools)
        self._typed = typed
        self._env = env
        self._relaxed: dict[int, Node] = {}
        self.put(self._composed())

    def locate(self, offset: int) -> Position:
        return self._positions.position(offset)

    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        return not any(map(_is_told, remarks)) and not any(True for _ in self._shown())

    def judged(self, document: Document) -> list[Finding]:
        findings: list[Finding] = []
        for _ in range(_ROUNDS):
            document.write(self.text.text)
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
        return [*findings, *self._forgotten()]

    @cached_property
    def _positions(self) -> TextIndex:
        return TextIndex(self._typed.edits.text)

    @cached_property
    def _growth(self) -> Growth:
        return Growth.of(self.root)

    @cached_property
    def _is_grown_openly(self) -> bool:
        """Whether members are added to a result whose names are not written out."""
        return any(any(each.declared for each in self.types(anchor(owner))) for owner in self._growth.open)

    @cached_property
    def _probed(self) -> set[str]:
        """Names that the program asks the type of before it uses them."""
        return {text_of(node.named_children[0]) for node in walk(self.root) if is_typeof(node)}

    @cached_property
    def _hedged(self) -> set[str]:
        """Members that the program does not count on."""
        return {name for node in walk(self.root) if (name := hedged_name(node))}

    @cached_property
    def _named(self) -> dict[str, str]:
        return named_types(self.tools.declarations.text)

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
        if self._env:
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
        """What a remark means. None: nothing."""
        if not _is_told(remark):
            return None
        code = _number(remark)
        start, end = self.text.offsets(remark.span)
        node = self.node_between(start, end)
        warning = Finding(code=f"TS{code}", message=remark.message, offset=start)
        if node is None or self._is_erased(start):
            return warning
        if code in _UNBOUND:
            return self._unbound(warning, node)
        if code in _MEMBER:
            return self._member(warning, node)
        if code in _ARGUMENT and (call := self._tool_call(node, code)) is not None:
            return self._argument(warning, node, call, code)
        if "is not assignable to type 'Promise<" in remark.message:
            return _Relax(affected(node), warning)
        if code in _VALUE | _ARGUMENT and _OF_PROMISE.search(remark.message):
            if (found := self._unawaited(warning, node)) is not None:
                return found
            if code in _ITERATED | _COMPUTED:
                return warning.rejected("unawaited", hint=_AWAIT_IT)
        told = None if code in _IMPLICIT_ANY else warning
        return _Relax(affected(node) if code in _OWN else None, told)

    def _unbound(self, warning: Finding, node: Node) -> Finding:
        name = text_of(node)
        if node.type not in ("identifier", "shorthand_property_identifier"):
            return warning
        if name in self._probed or name in self._growth.names or (name in _ENVIRONMENTS and is_tried(node)):
            return warning
        is_called = node.parent is not None and node.parent.type == "call_expression"
        hint = None if "Did you mean" in warning.message else self.tools.hint_for(name, is_called=is_called)
        return warning.rejected("unbound", hint=hint)

    def _member(self, warning: Finding, node: Node) -> Finding | _Relax:
        name, owner = text_of(node).strip("\"'`"), receiver(node)
        taken = _taken_of(warning.message)
        if owner is None or taken is None:
            return warning
        parent = node.parent
        own = _Relax(root_of(owner), warning)
        if parent is not None and parent.type == "member_expression" and is_written(parent):
            return own
        if taken.startswith("Promise<"):
            return self._unawaited(warning, owner) or warning.rejected("unawaited", hint=_AWAIT_IT)
        if self._is_grown_openly:
            return own
        if name in self._growth.names or taken in ("never", "any", "{}", "unknown") or name in self._hedged:
            return own
        if taken in _PLATFORM and self._is_annotated(owner):
            return own  # it means the platform's class
        places = [each for each in self.types(anchor(owner)) if each.declared]
        excerpts = [self.tools.declarations.excerpt(each.span) for each in places]
        if any("): Promise<" in each for each in excerpts):
            return self._unknown_tool(warning, node, owner)
        members = [each for each in union_members(taken) if each not in ("null", "undefined")]
        is_array = len(members) == 1 and members[0].endswith("]")
        if excerpts and is_array:
            return warning.rejected("member", hint="It is an array.", declared=excerpts[0])
        if excerpts:
            if len(members) > len(excerpts) or any(name in _keys_of(each) for each in excerpts):
                return warning  # one of several types may have it
            hint = None if "Did you mean" in warning.message else near(name, _keys_of(excerpts[0]))
            return warning.rejected("member", hint=hint, declared=excerpts[0])
        if len(members) == 1 and self._is_declared(owner):
            return warning.rejected("member")
        return own

    def _unknown_tool(self, warning: Finding, node: Node, owner: Node) -> Finding:
        if is_tried(node):
            return warning
        path = text_of(node)
        if (chain := text_of(unwrapped(owner))) not in ("tools", "codemode"):
            path = f"{chain.rpartition('.')[2]}.{path}"
        return warning.rejected("tool", message=self.tools.not_found(path))

    def _argument(self, warning: Finding, node: Node, call: Node, code: int) -> Finding | _Relax | None:
        tool = self._tool_of(self._called(call))
        found = mismatch(warning.message)
        signature = None if tool is None else self._with_types(tool.signature, found)
        value = value_at(node)
        own = _Relax(root_of(value), warning)
        if code in _COUNT:
            return warning.rejected("argument", declared=signature)
        if found is not None and found[1].startswith("Promise<"):
            return own
        if found is not None and any(each.startswith("Promise<") for each in union_members(found[0])):
            return self._unawaited(warning, value) or own
        differs = found is not None and certainly_differs(*found, self._named)
        if (
            found is not None
            and is_object(found[1], self._named)
            and not differs
            and (names := missing(warning.message))
        ):
            literal = unwrapped(value).type == "object"
            if self._growth.names & set(names) or (self._growth.computed and not literal):
                return own
            return warning.rejected("argument", declared=signature)
        if code in _EXCESS and _is_undefined(node):
            return None
        if code in _EXCESS or (found is not None and found[1] == "never"):
            wanted = literal_target(warning.message)
            if wanted is not None and certainly_differs("{ member: any }", wanted, self._named):
                return warning.rejected("argument", declared=signature)
            path = path_in(node, call)
            if tool is None or path is None or not self.tools.is_closed(tool.name, path):
                return warning
            return warning.rejected("argument", declared=signature)
        if found is None or not differs or (is_text_for_less(*found, self._named) and not self._is_known(value)):
            return own
        return warning.rejected("argument", declared=signature)

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

    # --- calls that nothing awaits, where the compiler has nothing against them

    def _forgotten(self) -> Iterator[Finding]:
        for node in self._shown():
            if (tool := self._promised(node)) is not None:
                message = f"{tool}(...) is used without `await`: this is a promise, and not yet its value."
                finding = Finding(code="unawaited", message=message, offset=node.start_byte)
                yield finding.rejected("unawaited", hint=f"Write `await {tool}(...)`.")

    def _shown(self) -> Iterator[Node]:
        """Calls, and constants that may hold one's promise, where only a value is of use."""
        found = _CALLS(self.root)
        candidates = found.get("call", [])
        held = {name.text for name in found.get("held", ())}
        if held:
            candidates = [*candidates, *(name for name in _NAMES(self.root).get("name", ()) if name.text in held)]
        return (node for node in candidates if is_shown(node) and not is_awaited(node))

    # --- where things come from

    def _promised(self, expression: Node) -> str | None:
        """The tool, as the program calls it, whose promise an expression is: its call, or a constant that holds it."""
        expression = unwrapped(expression)
        if expression.type == "identifier":
            value = self._initial(expression)
            if value is None:
                return None
            expression = unwrapped(value)
        if expression.type != "call_expression":
            return None
        called = self._called(expression)
        return text_of(called) if self._is_tool(called) or self._is_async(called) else None

    def _is_async(self, called: Node) -> bool:
        """Whether it is a function of the program's own that gives a promise."""
        if called.type != "identifier":
            return False
        places = [each for each in self.definitions(called) if each.own]
        return len(places) == 1 and (name := self.node_at(places[0])) is not None and defines_async(name)

    def _called(self, call: Node) -> Node:
        return unwrapped(call.child_by_field_name("function") or call)

    def _is_tool(self, called: Node) -> bool:
        return self._tool_of(called) is not None

    def _tool_of(self, called: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(called))

    def _tool_call(self, node: Node, code: int) -> Node | None:
        """The call of a tool that something is in the arguments of; it belongs to the innermost call around it."""
        below, above = node, node.parent
        while above is not None and (above.type not in FUNCTIONS or above == node):
            if above.type == "call_expression":
                is_argument = below == above.child_by_field_name("arguments")
                if is_argument or code in _COUNT:
                    return above if self._is_tool(self._called(above)) else None
            below, above = above, above.parent
        return None

    def _initial(self, name: Node) -> Node | None:
        """What a constant is bound to where it is declared."""
        for location in self.definitions(name):
            if location.own:
                node = self.node_at(location)
                declarator = None if node is None else node.parent
                if node is not None and declarator is not None and declarator.type == "variable_declarator":
                    is_constant = declarator.parent is not None and declarator.parent.children[0].type == "const"
                    return (
                        declarator.child_by_field_name("value") if is_constant and node.type == "identifier" else None
                    )
        return None

    def _is_declared(self, expression: Node, hops: int = 2) -> bool:
        """Whether an expression is a member of a result, or a result, as the declarations have it."""
        name = anchor(expression)
        if name is None:
            return False
        is_shorthand = name.type == "shorthand_property_identifier"  # its definitions are also what it is given for
        if not is_shorthand and any(each.declared for each in self.definitions(name)):
            return True
        if not (is_shorthand or name.type in ("identifier", "shorthand_property_identifier_pattern")) or not hops:
            return False
        value = self._initial(name) or self._visited(name)
        return value is not None and self._is_declared(value, hops - 1)

    def _visited(self, name: Node) -> Node | None:
        """What a function goes through whose parameter a name is: `rows` in `rows.map((row) => …)`."""
        for location in self.definitions(name):
            if location.own and (bound := self.node_at(location)) is not None:
                call = called_with(bound)
                called = None if call is None else self._called(call)
                return None if called is None else called.child_by_field_name("object")
        return None

    def _is_annotated(self, expression: Node) -> bool:
        """Whether the program itself says of what type a variable is."""
        root = root_of(expression)
        nodes = [] if root is None else [self.node_at(each) for each in self.definitions(root) if each.own]
        parents = [node.parent for node in nodes if node is not None and node.parent is not None]
        return any(parent.child_by_field_name("type") is not None for parent in parents)

    def _is_known(self, expression: Node) -> bool:
        """Whether the program spells a value out, or the declarations say what it is."""
        expression = unwrapped(expression)
        if expression.type.endswith("identifier") and (value := self._initial(expression)) is not None:
            expression = unwrapped(value)
        return expression.type in ("string", "template_string") or self._is_declared(expression)

    def _is_erased(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._typed.types)


def _is_undefined(key: Node) -> bool:
    """Whether a member is given as undefined, which does not leave the program."""
    pair = key.parent
    value = None if pair is None or pair.type != "pair" else pair.child_by_field_name("value")
    return value is not None and text_of(value) == "undefined"


def _is_told(remark: Remark) -> bool:
    """Whether a remark may mean something."""
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
    inner = statement.named_children[0] if statement.named_children else statement
    return inner.type if statement.type == "expression_statement" else statement.type
