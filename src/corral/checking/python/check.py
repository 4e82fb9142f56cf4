"""Checks Python programs: decides which diagnostics of ty mean that a program does not fit the declarations."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.base import Check, DeclarationsUnread
from corral.checking.conditions import Condition, condition_on, never_there
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.findings import Finding, near
from corral.checking.hints.python import cannot_be_added, has_no_keys, method_hint, operation_hint, text_hint
from corral.checking.inputs import Written, spells
from corral.checking.languages import ANY
from corral.checking.python.dynamic_members import Writes, key_of, value_of
from corral.checking.python.expressions import (
    TAKING_VALUES,
    aggregated,
    anchor,
    async_generator,
    call_around,
    gathered_list,
    is_caught,
    is_probed,
    is_result,
    is_tried,
    iterable_of,
    operands,
    own_classes,
    path_from,
    subscript_in,
    takes_apart,
)
from corral.checking.python.messages import certainly_differs, is_text_for_number, lacks, mismatch, union_members
from corral.checking.servers.workspace import MODULE, Document, Remark
from corral.checking.source_map import CheckedText
from corral.checking.written import python_arguments, read_python
from corral.concurrency.cached_property import cached_property
from corral.guest.python.failures import failure_classes
from corral.programs import TypedPython
from corral.programs.edits import Edits
from corral.programs.mends.origins import Origins
from corral.programs.python.awaits import FUTURES, may_await, needs_value, unwrap
from corral.programs.python.imports import STAR, is_annotation
from corral.programs.python.names import Names, TooMuch, dotted_path, is_binding
from corral.programs.syntax.parsing import arguments_of, enclosing, inside, is_a, part, text_of
from corral.programs.syntax.python import finder
from corral.tools.json_schema.keywords import mapping, part_of
from corral.tools.schema import TypeOutput
from corral.types import Position, ToolName

_WARNED = frozenset({1, 2})
_SYNTAX = "invalid-syntax"
"""Codes for `await` and `return` outside functions, which work here. Other syntax errors are reported when a program is
prepared."""
_UNBOUND = frozenset({"unresolved-reference"})
_UNFOUND = frozenset({"import-not-found", "unresolved-import"})
"""Codes for a missing module, in different versions of ty."""
_KEY = frozenset({"invalid-typed-dict-key", "invalid-key"})
_ATTRIBUTE = frozenset({"missing-attribute", "unresolved-attribute"})
_COUNT = frozenset({"missing-argument", "unknown-argument", "too-many-positional-arguments"})
_OF_INSTANCES = "isinstance-against-typed-dict"
_OF_LITERAL = frozenset({"missing-typed-dict-key", "unknown-typed-dict-constructor-key"})
_ARGUMENT = _COUNT | _OF_LITERAL | {"invalid-argument-type", "positional-only-parameter-as-kwarg"}
_COROUTINE = re.compile(r"`Coroutine(?:Type)?\[")
_OF_STREAM = re.compile(r"`(?:AsyncIterator|ToolStream)\[[^|]*`")
_OF_DICT = re.compile(r"on object of type `dict\[")
_OF_TEXT = re.compile(r"on object of type `str`")
_PARAMETER = re.compile(r"(?:\(|, |\* )(\w+): ")
_MAPPED = re.compile(r"constructor `map\.__new__` is incorrect: Expected `\((?:str|int|float|bool|Literal)\b")
_MAX_SHOWN = 200
_NO_ITEMS = re.compile(r"Object of type `(?:int|float|bool|None)` is not iterable")
_OBJECT = re.compile(r"(?:Object of type|Class|Attribute on type) `(?P<type>.*?)` has no attribute")
_TYPED_DICT = re.compile(r"for TypedDict `(?P<name>[^`]*)`")
_BY_NUMBER = re.compile(r"can only be subscripted with a string literal key, got key of type `Literal\[\d+\]`")
_REVEALED = "revealed-type"
_TYPE = re.compile(r"Revealed type: `(.*?)`(?:\n|$)", re.DOTALL)
_NOT_AWAITABLE = re.compile(r"^`(\w+)` is not awaitable")
_ONE_OF = re.compile(r"subscripted object has type `(?P<types>[^`]*)`")
_STRINGS = frozenset({"string", "string_content", "string_start", "string_end"})
_DYNAMIC = re.compile(rb"\bglobals\(|\bexec\(|\bvars\(|\bNameError\b|\b__builtins__\b|" + STAR)
_IMPORT = f"from typing import Any; from {MODULE} import tools, codemode, {ANY}, {', '.join(failure_classes())}"
_MISFITS = frozenset({"invalid-assignment", "unsupported-operator", "invalid-argument-type"})
"""Codes for a value that the declarations do not allow."""
_OPERATIONS = frozenset({"binary_operator", "comparison_operator", "augmented_assignment"})
_FILLING = frozenset({"append", "insert", "extend", "add", "setdefault", "update", "__setitem__"})
_STATEMENTS = frozenset({"block", "module", "function_definition", "lambda"})
_MISTAKEN = frozenset({"not-iterable", "not-subscriptable", "no-matching-overload", "invalid-argument-type"})
"""Codes for async generators used as iterables, and dict methods used as members."""
_METHOD = re.compile(r"`bound method (?P<type>\w+)\.(?P<name>\w+)\(")
_FOREIGN = frozenset({"not-subscriptable", "not-iterable", "missing-attribute", "unsupported-operator"})
"""Codes for uses that fail for any coroutine."""
_SCALARS = frozenset(
    {"string", "integer", "float", "true", "false", "none", "list", "tuple", "set", "list_comprehension"}
)
_CALLS = finder(
    "(call) @call (assignment left: (identifier) @held right: (call))"
    "(named_expression name: (identifier) @held value: (call))"
)
_MAX_NAMES = 1_000
_MAX_REPLACEMENTS = 60
"""Maximum number of unbound names that get a specific hint."""
_NAMES = finder("(identifier) @name")
_TASKS = frozenset({"asyncio.create_task", "asyncio.ensure_future", "create_task", "ensure_future"})
_READ_STREAM = "It is a stream: read it with `async for item in ...` or collect it with `[item async for item in ...]`."
_ASYNC_GENERATOR = "A generator expression with `await` is an async generator, not an iterable."
_LIST_IT = "Write a list: `[... for ...]` in brackets."
_AWAIT_IT = "It is a coroutine: `await` it first."
_MAX_VALUES = 12
_NO_LETTER = re.compile(r"[\W_]+")
_METHOD_CALLS = finder("(call function: (attribute)) @call")
_PAIRS = frozenset({"pair", "dictionary_splat", "comment"})
_SIGN = re.compile(rb"\*\*|\(\s*\{")
_MAX_CALLS = 500
_DICT = re.compile(r"(?:builtins\.)?dict\[")
_MEMBER = r"^\s*[\"']?{}[\"']?: (?:NotRequired\[)?(dict\[|)"


class PythonCheck(Check):
    """Checks a Python program with ty."""

    def __init__(self, typed: TypedPython, tools: ToolSet) -> None:
        super().__init__(typed.root, tools, start=typed.start)
        self._writes = Writes(typed.root, typed.names, typed.edits.text)
        self._typed = typed
        self._owners: dict[Finding, tuple[Node, str]] = {}
        """Findings about members, by the owner and the key or `.attribute`."""
        self._replacements: dict[tuple[str, tuple[str, ...], bool], str] = {}
        """Hints for unbound names, by use."""
        self._used_types = [each for each in typed.free if each in tools.type_declarations]
        self.put(self._composed())

    def _composed(self) -> CheckedText:
        """Builds the text that the server reads."""
        return CheckedText(*self._edits().apply(self._header))

    @cached_property
    def _header(self) -> bytes:
        """The line that imports a program's globals, including the types that it uses as values."""
        unknown = "".join(f"; {name} = {ANY}(0)" for name in self._typed.unknown)
        return ", ".join([_IMPORT, *self._used_types]).encode() + unknown.encode() + b"\n"

    def _edits(self) -> Edits:
        edits = self._typed.edits.copy()
        for parameter in self._typed.parameters:
            if parameter.type == "identifier":
                edits.insert(parameter.end_byte, b": type[codemode]")
        _as_keywords(self.root, self.tools.taking_keywords, edits)
        self._writes.hide(edits)
        return edits

    @cached_property
    def _is_dynamic(self) -> bool:
        """True if the program can bind names dynamically."""
        return _DYNAMIC.search(self._typed.edits.text) is not None

    @cached_property
    def _objects(self) -> frozenset[str]:
        """Names of the declared TypedDicts that the program does not redefine."""
        return self.tools.objects - own_classes(self.root)

    def locate(self, offset: int) -> Position:
        return self._typed.places.at(offset)

    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        is_silent = not any(map(_is_relevant, remarks)) and not self.flawed and not self._missing_key_conditions
        return is_silent and not any(True for _ in chain(self._consumed(), self._enumerations()))

    def judge(self, document: Document) -> list[Finding]:
        document.write(self.text.text)
        remarks = document.remarks()
        if self._forgets(remarks):
            self.put(self._composed())
            document.write(self.text.text)
            remarks = document.remarks()
        if any(each.code in _UNFOUND and each.span.line == 0 for each in remarks):  # the header's import
            raise DeclarationsUnread("ty does not find the module that declares the tools")
        judged = [each for remark in remarks if (each := self._judge(remark))]
        reported = {each.offset for each in judged if each.kind == "unawaited"}
        forgotten = [each for each in self._forgotten() if each.offset not in reported]
        more = [*forgotten, *self._enumerations(), *self._missing_keys()]
        return [*self.with_flaws(self._confirmed(document, judged)), *more]

    @cached_property
    def _missing_key_conditions(self) -> list[_MissingKey]:
        if self._writes.open:
            return []
        asked = missing_keys(self.root, self.tools, self._typed.names)
        return [each for each in asked if not self._writes.sets(each.key)]

    @cached_property
    def _tested_keys(self) -> frozenset[str]:
        """Keys tested by the program's conditions, on any value."""
        return frozenset(_name(key) for _, _, key, _ in _key_tests(self.root))

    def _missing_keys(self) -> Iterator[Finding]:
        """Yields conditions on keys that results do not have."""
        for condition, name, key, owner, members in self._missing_key_conditions:
            yield self.finding_on(condition, never_there(name, key, members, text_of(owner), condition.holds))

    def _enumerations(self) -> Iterator[Finding]:
        """Yields findings about `Literal[...]` types that are used like enum classes."""
        for name in self._used_types:
            values = self.tools.values_of(name)
            try:
                uses = self._typed.names.of(name) if values else []
            except TooMuch:
                return
            for use in uses:
                hint = _hint(use.node, name, values)
                if hint is not None and not is_tried(use.node):
                    shown = ", ".join(values[:_MAX_VALUES]) + (", ..." if len(values) > _MAX_VALUES else "")
                    message = f"{name} is not an enum, but a `Literal` of the values {shown}."
                    yield Finding(code="enum", message=message, offset=use.node.start_byte, kind="type", hint=hint)

    def read(self, value: Node) -> Written:
        return read_python(value, self._dict_of)

    def calls_by_name(self) -> Iterator[tuple[Node, str]]:
        for call in _CALLS(self.root).get("call", ()):
            owner, _, name = dotted_path(part(call, "function")).partition(".")
            if owner in ("tools", "codemode") and name:
                yield call, name

    def input_of(self, call: Node) -> Written | None:
        return python_arguments(call, self._dict_of)

    def is_caught(self, call: Node) -> bool:
        return is_caught(call)

    def tool_called(self, call: Node) -> DeclaredTool | None:
        return self._tool_of(part(call, "function"))

    def _dict_of(self, name: Node) -> Node | None:
        return _input_bound(name, self._typed.names)

    def _confirmed(self, document: Document, findings: list[Finding]) -> list[Finding]:
        """Turns a member's finding into a warning unless every type of a union lacks the member.

        ty reports one type of a union at a time, so `reveal_type` asks for the whole union.
        """
        members = {each: self._owners[each] for each in findings if each.kind is not None and each in self._owners}
        if not members:
            return findings
        edits = self._edits()
        for node in {node.id: node for node, _ in members.values()}.values():
            edits.wrap(node.start_byte, node.end_byte, b"reveal_type(", b")")
        self.put(CheckedText(*edits.apply(self._header)))
        document.write(self.text.text)
        types: dict[tuple[int, int], str] = {}
        for remark in document.remarks():
            if remark.code == _REVEALED and (match := _TYPE.search(remark.message)) is not None:
                types[self.text.offsets(remark.span)] = match[1]
        doubted = {
            each
            for each, (owner, member) in members.items()
            if not self._lacks(types.get((owner.start_byte, owner.end_byte), ""), member)
        }
        return [replace(each, kind=None, hint=None, declared=None) if each in doubted else each for each in findings]

    def _lacks(self, type_: str, member: str) -> bool:
        """True if no value of a type has a member: a key as source text, or `.attribute`."""
        if member.startswith("+"):
            return cannot_be_added(type_, member[1:], self._objects)
        members = [each for each in union_members(type_) if each != "None"]
        return not members or all(lacks(each, member, self._has_key) for each in members)

    def _has_key(self, name: str, key: str) -> bool:
        return name not in self._objects or self.tools.declares(name, key)

    def _forgets(self, remarks: Sequence[Remark]) -> bool:
        """True if these diagnostics reveal another location in which the program stores an undeclared type."""
        owners = [owner for each in remarks if each.code in _MISFITS and (owner := self._filled(each)) is not None]
        return len([owner for owner in owners if self._writes.forget(owner)]) > 0

    def _filled(self, remark: Remark) -> Node | None:
        """Returns the container in a diagnostic about a stored value."""
        node = self.node_between(*self.text.offsets(remark.span))
        while node is not None and node.type not in _STATEMENTS:
            if node.type == "call" and remark.code in _ARGUMENT:
                method = text_of(part(node, "function", "attribute"))
                return value_of(node) if method in _FILLING and self.tool_called(node) is None else None
            if node.type in ("assignment", "augmented_assignment"):
                left = part(node, "left")
                return None if left is None else value_of(left) if left.type == "subscript" else left
            node = node.parent
        return None

    def _judge(self, remark: Remark) -> Finding | None:
        """Turns a diagnostic into a finding; None if it is irrelevant."""
        if not _is_relevant(remark):
            return None
        start, end = self.text.offsets(remark.span)
        node = self.node_between(start, end)
        warning = Finding(code=f"ty:{remark.code}", message=remark.message.partition("\n\n")[0], offset=start)
        if node is None:
            return warning
        if remark.code in _UNBOUND:
            return self._unbound(warning, node)
        if _COROUTINE.search(warning.message):
            if remark.code in _FOREIGN and " | " not in warning.message:
                return self._unawaited(warning, node) or warning.rejected("unawaited", hint=_AWAIT_IT)
            if remark.severity == 1 and (finding := self._unawaited(warning, node)) is not None:
                return finding
        if remark.code in _FOREIGN | _ATTRIBUTE and _OF_STREAM.search(warning.message) and not is_tried(node):
            return warning.rejected("stream", hint=_READ_STREAM)
        if remark.code in _MISTAKEN and not is_tried(node) and (finding := self._method(warning, node)) is not None:
            return finding
        if remark.code in _MISTAKEN and (generator := async_generator(node)) is not None and not is_tried(node):
            hint = _LIST_IT if may_await(generator) else f"{_LIST_IT} The function around it must be `async def`."
            return warning.rejected("unawaited", message=_ASYNC_GENERATOR, hint=hint)
        may_be_uncalled = "`def " in warning.message or remark.code == "no-matching-overload"
        if may_be_uncalled and not is_tried(node) and (finding := self._uncalled(warning, node)) is not None:
            return finding
        if remark.code == "no-matching-overload" and (together := gathered_list(node)) is not None:
            message = f"{text_of(together)} takes awaitables as separate arguments, not as a list."
            return warning.rejected("unawaited", message=message, hint=f"Write `await {text_of(together)}(*[...])`.")
        if remark.code == "no-matching-overload" and (added := aggregated(node)) is not None:
            return self._added(warning, *added)
        if remark.code == "not-iterable" and self._is_certain(node) and _NO_ITEMS.match(warning.message):
            return warning.rejected("member", hint=f"{text_of(node)} cannot be iterated over.")
        if remark.code == _OF_INSTANCES and not is_tried(node):
            return warning.rejected("type", hint="Write `isinstance(value, dict)`.")
        if remark.code == "unsupported-operator":
            return self._operation(warning, node)
        if remark.code in _KEY:
            return self._key(warning, node)
        if remark.code == "invalid-await" and (named := _NOT_AWAITABLE.search(warning.message)) is not None:
            is_namespace = named[1] in {tool.namespace for tool in self.tools.tools}
            hint = f"tools.{named[1]} is a namespace, not a tool."
            return warning.rejected("tool", hint=hint) if is_namespace else warning
        if remark.code == "not-subscriptable" or "`__getitem__`" in warning.message:
            return self._subscript(warning, node)
        if remark.code in _ATTRIBUTE:
            return self._attribute(warning, node)
        if remark.code in _ARGUMENT:
            return self._argument(warning, node, remark.code)
        return warning

    def _method(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about a dict method that is used as a member of a result."""
        match = _METHOD.search(warning.message)
        type_, name = ("", "") if match is None else (match["type"], match["name"])
        if type_ not in self._objects:
            return None
        function = text_of(part(call_around(node), "function"))
        attributes = (each for each in (node, *operands(node)) if each.type == "attribute")
        taken = next((each for each in attributes if text_of(part(each, "attribute")) == name), None)
        is_passed = warning.code.endswith("argument-type") and function not in TAKING_VALUES
        if taken is None or is_passed or not self.tools.declares(type_, name):
            return None
        shown = text_of(part(taken, "object"))
        message = f"{text_of(taken)} is a method of dicts, not the member {name}."
        return warning.rejected("member", message=message, hint=f'Write `{shown}["{name}"]`.')

    def _is_certain(self, value: Node) -> bool:
        """True if a value has a declared type, and the program does not catch errors at that place."""
        return not is_probed(value) and not is_tried(value) and self._is_declared(value)

    def _added(self, warning: Finding, value: Node, function: str) -> Finding:
        """Returns the finding about `sum` of items that are not numbers, or `join` of items that are not strings."""
        if not self._is_certain(value):
            return warning
        name = function.removesuffix("[]")
        kind = "number" if name == "sum" else "string"
        message = f"`{name}` takes {kind}s, but {text_of(value)} "
        message += "has other items." if function != name else f"is not a {kind}."
        hint = "Write `str(each)`." if kind == "string" else "Take a number from each, with `float(...)` from a string."
        return self._remember_owner(warning.rejected("member", message=message, hint=hint), value, f"+{function}")

    def _unbound(self, warning: Finding, node: Node) -> Finding:
        if node.type != "identifier" or self._is_dynamic or is_annotation(node):
            return warning
        hint = None if "Did you mean" in warning.message else self._replacement(node)
        return warning.rejected("unbound", hint=hint)

    def _replacement(self, name: Node) -> str:
        """Returns a hint about an unbound name."""
        is_called = is_a(name.parent, "call")
        use = text_of(name), tuple(path_from(name)), is_called
        if use not in self._replacements:
            if len(self._replacements) == _MAX_REPLACEMENTS:
                return self.unbound_hint
            self._replacements[use] = self._find_replacement(*use)
        return self._replacements[use]

    def _find_replacement(self, word: str, path: tuple[str, ...], is_called: bool) -> str:
        hint = self.tools.hint_for(word, is_called=is_called, path=".".join(path[1:]))
        if hint is not None:
            return hint
        if len(path) > 1 and word in sys.stdlib_module_names:
            return f"Write `import {word}` first."
        return near(word, self._bound) or self.unbound_hint

    @cached_property
    def _bound(self) -> list[str]:
        """Names that the program binds."""
        names = _NAMES(self.root).get("name", ())[:_MAX_NAMES]
        return list(dict.fromkeys(text_of(each) for each in names if is_binding(each)))

    def _key(self, warning: Finding, node: Node) -> Finding:
        match = _TYPED_DICT.search(warning.message)
        if _BY_NUMBER.search(warning.message) and not is_probed(node):
            value = part(node if node.type == "subscript" else node.parent, "value")
            if value is None or not self._is_declared(value):
                return warning
            return self._remember_owner(warning.rejected("member", hint="It is a dict."), value, "0")
        key = text_of(node).strip("\"'")
        if match is None or node.type not in _STRINGS or self._writes.sets(key) or is_probed(node):
            return warning
        types = union_members(of["types"]) if (of := _ONE_OF.search(warning.message)) else [match["name"]]
        types = [each for each in types if each != "None"]
        if key in self._tested_keys:
            return warning
        if any(self._is_of_declared(each) for each in self._writes.open):
            return warning
        if not self._objects.issuperset(types) or any(self.tools.declares(each, key) for each in types):
            return warning
        if "did you mean" not in warning.message and not all(map(self.tools.is_closed, types)):
            return warning  # the schemas allow other members
        rejected = warning.rejected("member", declared=self.tools.class_named(match["name"]))
        value = part(node.parent, "value") if is_a(node.parent, "subscript") else None
        return rejected if value is None else self._remember_owner(rejected, value, f'"{key}"')

    def _remember_owner(self, finding: Finding, value: Node, member: str) -> Finding:
        self._owners[finding] = value, member
        return finding

    def _subscript(self, warning: Finding, node: Node) -> Finding:
        """Returns the finding for a key that the declared type does not have."""
        taken, key = subscript_in(node, warning.message)
        value = part(taken, "value")
        if taken is None or value is None or key is None or is_probed(node):
            return warning
        name = anchor(value)
        if len({each.span for each in self.types(name)}) > 1 or not self._is_declared(value):
            return warning
        shown = text_of(value)
        if key.type != "string":
            if _OF_DICT.search(warning.message) is None or key.type not in ("integer", "slice"):
                return warning
            message = f"{shown} is a dict, and {text_of(key)} is not one of its keys."
            hint = f"Write `list({shown}.values())[{text_of(key)}]`."
            if key.type == "integer" and text_of(key) != "0":
                hint = f'Its keys are strings: write `{shown}["{text_of(key)}"]`, or for a value by position {hint[6:]}'
            return self._remember_owner(warning.rejected("member", message=message, hint=hint), value, "0")
        if _OF_DICT.search(warning.message) is not None or self._may_be_object(name):
            return warning
        source = self._iterated(name) if name is not None and _OF_TEXT.search(warning.message) else None
        if source is not None and self._is_dict(source):
            message = f"{shown} is a key of {text_of(source)}, which is a dict: iterating over it gives its keys."
            hint = f"Write `{text_of(source)}.values()`."
        else:
            message, hint = has_no_keys(shown, text_of(key), warning.message)
        member = f'"{key_of(taken)}"'
        return self._remember_owner(warning.rejected("member", message=message, hint=hint), value, member)

    def _uncalled(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about a tool that is named but not called."""
        call = call_around(node) if warning.code.endswith(("argument-type", "overload")) else None
        around = [node, *operands(node)] if call is None else arguments_of(call)
        if call is not None and text_of(part(call, "function")) not in TAKING_VALUES | FUTURES:
            return self._mapped(warning, around)
        for each in around:
            named = self._initial(each) if each.type == "identifier" else each
            is_callee = part(each.parent, "function") == each
            if named is not None and named.type == "attribute" and not is_callee and self._tool_of(named) is not None:
                shown = text_of(named)
                message = f"{shown} is a tool, but it is not called."
                return warning.rejected("unawaited", message=message, hint=f"Write `await {shown}(...)`.")
        return None

    def _attribute(self, warning: Finding, node: Node) -> Finding:
        name = text_of(part(node, "attribute") or node)
        match = _OBJECT.search(warning.message)
        if match is None:
            return warning
        value = part(node if node.type == "attribute" else node.parent, "object")
        if text_of(value) in self._used_types:
            hint = "It is a `TypedDict`: its values are plain dicts."
            return warning if is_tried(node) else warning.rejected("type", hint=hint)
        if value is not None and warning.message.startswith("Class") and self._is_namespace(value):
            if is_tried(node):
                return warning
            space = [] if text_of(value) in ("tools", "codemode") else [text_of(value).rpartition(".")[2]]
            path = ".".join((*space, *path_from(value)[1:]))
            if name in failure_classes():
                return warning.rejected("tool", hint=f"Write `{name}`: it needs no import.")
            return warning.rejected("tool", message=self.tools.not_found(path))
        members = union_members(match["type"])
        hint = None if value is None or len(members) > 1 else method_hint(members[0], name, text_of(value))
        if value is None or is_probed(node) or any(" & ~" in each for each in members):
            return warning  # ty has narrowed the type too far
        is_list = members[0].startswith("tuple[")  # a tuple reaches the program as a list
        is_declared = len(members) == 1 and not is_list and self._is_declared(value)
        holds_objects = len(members) == 1 and any(
            re.search(rf"\b{re.escape(each)}\b", members[0]) for each in self._objects
        )
        if hint is None and not is_declared and not holds_objects:
            return warning
        if hint is None and (members[0] in self._objects or members[0].startswith("dict[")):
            hint = f'Results are dicts: write `["{name}"]`.'
        if hint is None and members == ["str"]:
            hint = text_hint(name, text_of(value))
        rejected = warning.rejected("member", hint=hint, declared=self.tools.class_named(members[0]))
        return self._remember_owner(rejected, value, f".{name}")

    def _argument(self, warning: Finding, node: Node, code: str) -> Finding:
        call = call_around(node)
        tool = None if call is None else self.tool_called(call)
        if call is None or tool is None:
            return warning
        self._calls.append((call, tool))
        passed = arguments_of(call)
        positional = [each for each in passed if each.type not in ("keyword_argument", "dictionary_splat")]
        if code in _COUNT:
            is_object = bool(python_arguments(call, self._dict_of).members)
            is_misplaced = positional and not is_object and "input: " not in tool.signature
            return self._by_position(warning, tool, positional, passed, code) if is_misplaced else warning
        if any("splat" in each.type and each.named_children[0].type != "dictionary" for each in passed):
            return warning
        types = mismatch(warning.message)
        value = part(node.parent if is_a(node.parent, "pair") else node, "value") or node
        if types is None or self._inputs.is_whole(value):
            return warning  # the schema decides
        if is_text_for_number(*types) and not self._is_declared(value):
            texts = self._texts(value)
            if not texts or (self._spells(texts) and self.accepts_text(call, tool.name, value)):
                return warning  # the string may be numeric
        differs = certainly_differs(*types, self._objects)
        return warning.rejected("argument", declared=tool.signature) if differs else warning

    def _mapped(self, warning: Finding, arguments: list[Node]) -> Finding | None:
        """Returns a finding about a tool passed to `map`, which would pass the tool's arguments by position."""
        tool = self._tool_of(arguments[0]) if arguments and _MAPPED.search(warning.message) else None
        names = [] if tool is None else _PARAMETER.findall(tool.signature)
        if tool is None or not names or "input: " in tool.signature:
            return None
        message = f"tools.{tool.name} takes its arguments by keyword."
        hint = f"Write `[tools.{tool.name}({names[0]}=each) for each in {text_of(arguments[-1])}]`."
        return warning.rejected("argument", message=message, hint=hint, declared=tool.signature)

    def _by_position(
        self, warning: Finding, tool: DeclaredTool, positional: list[Node], arguments: list[Node], code: str
    ) -> Finding:
        """Returns the finding about positional arguments. A single one can be the whole input."""
        names = _PARAMETER.findall(tool.signature)
        if code == "missing-argument" or any(each.type == "list_splat" for each in arguments):
            return warning
        if not names:
            is_value = len(arguments) > 1 or positional[0].type in _SCALARS
            return warning.rejected("argument", declared=tool.signature) if is_value else warning
        keywords = [f"{name}={text_of(each)}" for name, each in zip(names, positional, strict=False)]
        others = [text_of(each) for each in arguments if each not in positional]
        right = f"await tools.{tool.name}({', '.join([*keywords, *others])})"
        is_shown = len(right) <= _MAX_SHOWN and "\n" not in right
        hint = f"Write `{right}`." if is_shown else "Name each argument."
        message = f"tools.{tool.name} takes its arguments by keyword."
        rejected = warning.rejected("argument", message=message, hint=hint, declared=tool.signature)
        if len(arguments) > 1 or positional[0].type in _SCALARS:
            return rejected
        return self._remember_owner(rejected, positional[0], f'"{names[0]}"')

    def _operation(self, warning: Finding, node: Node) -> Finding:
        """Checks arithmetic with a result that is a string, a dict or a list."""
        while node.type not in _OPERATIONS and node.parent is not None:
            if node.type in ("block", "module", "call"):
                return warning
            node = node.parent
        hint = operation_hint(warning.message, self._objects)
        if hint is None or is_probed(node) or not any(map(self._is_declared, node.named_children)):
            return warning
        return warning.rejected("member", hint=hint)

    def _unawaited(self, warning: Finding, node: Node) -> Finding | None:
        """Returns a finding about an unawaited tool call in or around a node."""
        for each in (node, *operands(node)):
            if (name := self._promised(each)) is not None:
                return warning.rejected("unawaited", hint=f"{name} returns a coroutine: write `await {name}(...)`.")
        return None

    def _promised(self, expression: Node) -> str | None:
        """Returns the source text of the tool that returned the coroutine in an expression, directly or through a
        name."""
        call = self._initial(expression) if expression.type == "identifier" else expression
        tool = self.tool_called(call) if is_a(call, "call") else None
        return None if tool is None or tool.is_stream else text_of(part(call, "function"))

    def _forgotten(self) -> Iterator[Finding]:
        for node in self._consumed():
            _, owner = unwrap(node)
            if owner is not None and node.type == "identifier" and takes_apart(node, owner):
                path = dotted_path(part(self._initial(node), "function"))
                if path in FUTURES | _TASKS:
                    message = f"{text_of(node)} is the future that {path}(...) returns, not its value."
                    hint = f"Write `await {path}(...)`, or `await {text_of(node)}`."
                    yield _not_awaited(node, message, hint)
            if (name := self._promised(node)) is not None:
                message = f"{name}(...) is used without `await`: this is a coroutine, not its value."
                yield _not_awaited(node, message, f"Write `await {name}(...)`.")

    def _consumed(self) -> Iterator[Node]:
        """Yields calls, and names that may hold a call's coroutine, where only a value makes sense."""
        matches = _CALLS(self.root)
        for call in matches.get("call", ()):
            _, owner = unwrap(call)
            if owner is not None and is_result(owner):
                yield call
        held = {name.text for name in matches.get("held", ())}
        for name in _NAMES(self.root).get("name", ()) if held else ():
            value, owner = unwrap(name)
            if name.text not in held or owner is None:
                continue
            if is_result(owner) or needs_value(value, owner, self._typed.names):
                yield name

    # --- origins of values: bindings of names, and tools

    def _initial(self, name: Node) -> Node | None:
        """Returns the value assigned to a name that is bound exactly once."""
        own = [each for each in self.definitions(name) if each.own]
        if len(own) != 1:
            return None
        node = self.node_at(own[0])
        while node is not None and node.type not in ("assignment", "named_expression"):
            node = node.parent if node.type in ("identifier", "expression_statement") else None
        return part(node, "right") or part(node, "value")

    def _iterated(self, name: Node) -> Node | None:
        """Returns the iterable of the loop that has the name as its variable."""
        own = [each for each in self.definitions(name) if each.own]
        bound = self.node_at(own[0]) if len(own) == 1 else None
        return None if bound is None else iterable_of(bound)

    def _texts(self, value: Node) -> list[Node]:
        """Returns the literals that a string can be: itself, the value of its name, or the items of an iterated
        list."""
        texts: list[Node | None] = [value]
        if value.type == "identifier":
            bound = self._initial(value)
            iterable = self._iterated(value) if bound is None else None
            iterable = self._initial(iterable) if is_a(iterable, "identifier") else iterable
            texts = [*iterable.named_children] if is_a(iterable, "list", "tuple") else [bound]
        strings = [each for each in texts if is_a(each, "string")]
        return strings if len(strings) == len(texts) else []

    def _spells(self, texts: list[Node]) -> bool:
        """True if all of these literals have the form of numbers or booleans."""
        values = [self.read(each).value for each in texts]
        return all(isinstance(each, str) and spells(each) for each in values)

    def _is_declared(self, value: Node, hops: int = 8) -> bool:
        """True if a value is a tool's result or part of one."""
        node: Node | None = value
        for _ in range(hops):
            if node is not None and self._writes.is_forgotten(node):
                return False
            match None if node is None else node.type:
                case "identifier":
                    node = None if node is None else self._initial(node) or self._iterated(node)
                case "subscript":
                    node = part(node, "value")
                case "await" | "parenthesized_expression":
                    node = inside(node)
                case "call":
                    function = part(node, "function")
                    return text_of(function) in FUTURES or self._tool_of(function) is not None
                case _:
                    return False
        return False

    def _is_dict(self, value: Node) -> bool:
        """True if a value is declared as a dict with arbitrary keys, such as `dict[str, Order]`."""
        node = self._initial(value) or value if value.type == "identifier" else value
        if node.type in ("await", "parenthesized_expression"):
            node = node.named_children[0]
        if node.type == "call":
            tool = self._tool_of(part(node, "function"))
            return tool is not None and _DICT.match(tool.returns) is not None
        key = key_of(node) if node.type == "subscript" else None
        if key is None:
            return False
        declared = re.findall(_MEMBER.format(re.escape(key)), self.tools.declarations.text, re.MULTILINE)
        return bool(declared) and all(each == "dict[" for each in declared)

    def _is_of_declared(self, value: Node) -> bool:
        """True if a value may be part of a result."""
        types = self.types(anchor(value))
        return not types or any(each.declared for each in types)

    def _may_be_object(self, name: Node | None) -> bool:
        """True if a name iterates over a value and can be a declared object."""
        return name is not None and self._iterated(name) is not None and bool(self.declared_types(name))

    def _is_namespace(self, value: Node) -> bool:
        """True if an expression is `tools` or one of its namespaces."""
        return bool(self.declared_types(anchor(value)))

    def _tool_of(self, function: Node | None) -> DeclaredTool | None:
        return self.tool_named(anchor(function))


_ASKED = finder(
    '(call function: (attribute attribute: (identifier) @get (#eq? @get "get"))) @call (comparison_operator) @in'
)
_EMPTY = frozenset({"None", "False", "''", '""', "[]", "{}"})
_MAX_ASKED = 200


class _MissingKey(NamedTuple):
    """Condition on a key that a value does not have."""

    condition: Condition
    name: Node
    key: str
    owner: Node
    members: tuple[str, ...]


def missing_keys(root: Node, tools: ToolSet, names: Names) -> Iterator[_MissingKey]:
    """Yields conditions on keys that closed tool results do not have, for names that can be traced to a call."""
    origins = Origins(names, annotated=False)
    for condition, owner, key, holds in _key_tests(root):
        try:
            members = () if owner is None else _members(owner, tools, origins)
        except TooMuch:
            return
        if owner is not None and members and _name(key) not in members:
            yield _MissingKey(condition._replace(holds=condition.holds != holds), key, _name(key), owner, members)


def _key_tests(root: Node) -> Iterator[tuple[Condition, Node | None, Node, bool]]:
    """Yields conditions on keys: the condition, the tested value, the key, and the outcome if the key is missing."""
    matches = _ASKED(root)
    for node in [*matches.get("call", ()), *matches.get("in", ())][:_MAX_ASKED]:
        owner, key, holds = _tested(node)
        condition = None if key is None else condition_on(node)
        if key is not None and condition is not None:
            yield condition, owner, key, holds


def _tested(node: Node) -> tuple[Node | None, Node | None, bool]:
    """Returns the tested value, the key, and the result of the test if the key is missing."""
    if node.type == "call":
        passed = arguments_of(node)
        is_plain = len(passed) == 1 or (len(passed) == 2 and text_of(passed[1]) in _EMPTY)
        key = passed[0] if is_plain and passed[0].type == "string" else None
        return part(node, "function", "object"), key, False
    sign = " ".join(each.type for each in node.children[1:-1])
    sides = node.named_children
    is_key = sign in ("in", "not in") and len(sides) == 2 and sides[0].type == "string"
    return (sides[1], sides[0], sign == "not in") if is_key else (None, None, False)


def _members(value: Node, tools: ToolSet, origins: Origins) -> tuple[str, ...]:
    """Returns the keys of a closed object; empty if it can have others or is not an object."""
    origin = origins.of(value)
    tool = None if origin is None else tools.tools.get(ToolName.parse(origin.path))
    if origin is None or tool is None or tool.stream or tool.output_schema is None:
        return ()
    known = part_of(tool.output_schema, origin.steps)
    if known is None or known.get("type", "object") != "object" or "patternProperties" in known:
        return ()
    others = known.get("additionalProperties")
    is_closed = others is False or (others is None and isinstance(tool.output, TypeOutput))
    return tuple(mapping(known.get("properties"))) if is_closed else ()


def _not_awaited(node: Node, message: str, hint: str) -> Finding:
    return Finding(code="unawaited", message=message, offset=node.start_byte, kind="unawaited", hint=hint)


def _is_relevant(remark: Remark) -> bool:
    """True if a diagnostic can indicate a real problem."""
    return remark.severity in _WARNED and remark.code != _SYNTAX


def _hint(use: Node, name: str, values: tuple[str, ...]) -> str | None:
    """Returns the fix for a use of a type; None if it can be correct."""
    owner = use.parent
    if use == part(owner, "object"):
        member = text_of(part(owner, "attribute"))
        return None if member.startswith("_") else f"Write {_enum_value(member, values)}."
    if use == part(owner, "function"):
        return "Write the value itself."
    if is_a(owner, "subscript") and use == part(owner, "value"):
        return f"Write {_enum_value(text_of(part(owner, 'subscript')), values)}."
    is_looped = is_a(owner, "for_statement", "for_in_clause") and use == part(owner, "right")
    return f"Write `typing.get_args({name})`." if is_looped else None


def _enum_value(member: str, values: tuple[str, ...]) -> str:
    """Returns the literal value that matches an enum member's name."""
    letters = _NO_LETTER.sub("", member).lower()
    return next((f"`{each}`" for each in values if _NO_LETTER.sub("", each).lower() == letters), "one of them")


def _as_keywords(root: Node, tools: Collection[str], edits: Edits) -> None:
    """Rewrites `tools.x({"a": 1})` and `tools.x(**{"a": 1})` as `tools.x(a=1)`.

    `tools` are the paths of the tools with keyword parameters.
    """
    matches = _METHOD_CALLS(root) if _SIGN.search(edits.text) else {}
    for call in matches.get("call", ())[:_MAX_CALLS]:
        owner, _, path = dotted_path(part(call, "function")).partition(".")
        passed = arguments_of(call) if owner in ("tools", "codemode") and path in tools else []
        for each in passed:
            literal = each.named_children[0] if each.type == "dictionary_splat" and each.named_children else each
            if literal.type == "dictionary" and (each != literal or len(passed) == 1) and _is_plain(literal):
                _open(each, literal, edits)


def _open(argument: Node, literal: Node, edits: Edits) -> None:
    """Turns a dict literal into keyword arguments."""
    opening, closing = literal.children[0], literal.children[-1]
    edits.replace(argument.start_byte, opening.end_byte, b"")
    edits.replace(closing.start_byte, closing.end_byte, b"")
    for pair in literal.named_children:
        if pair.type == "dictionary_splat" and pair.named_children:
            inner = pair.named_children[0]  # its members are unknown
            edits.wrap(inner.start_byte, inner.end_byte, f"{ANY}(".encode(), b")")
        key, value = part(pair, "key"), part(pair, "value")
        if key is not None and value is not None and key.end_point.row == value.start_point.row:
            edits.replace(key.start_byte, value.start_byte, _name(key).encode() + b"=")


def _is_plain(literal: Node) -> bool:
    """True if all items of a dict can become keywords."""
    keys = [part(each, "key") for each in literal.named_children if each.type == "pair"]
    is_plain = all(each is not None and each.type == "string" and _name(each).isidentifier() for each in keys)
    return is_plain and all(each.type in _PAIRS for each in literal.named_children)


def _name(key: Node) -> str:
    return text_of(key).strip("\"'")


def _input_bound(name: Node, names: Names) -> Node | None:
    """Returns the dict literal of a variable that is bound once and only used as the input of calls."""
    try:
        uses = names.of(text_of(name))
    except TooMuch:
        return None
    bound = [each.node.parent for each in uses if each.binds]
    if len(bound) != 1 or bound[0] is None or bound[0].type != "assignment":
        return None
    literal = part(bound[0], "right")
    is_only_passed = all(each.binds or _is_passed(each.node) for each in uses)
    is_one = len({each.owner.id for each in uses}) == 1 and is_only_passed
    return literal if is_one and literal is not None and literal.type == "dictionary" else None


def _is_passed(use: Node) -> bool:
    """True if a variable is the input of a tool call, directly or as `**`."""
    call, above = enclosing(use, ("call",)), use.parent
    argument = above if above is not None and above.type == "dictionary_splat" else use
    return argument in arguments_of(call) and dotted_path(part(call, "function")).startswith(("tools.", "codemode."))
