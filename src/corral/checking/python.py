"""Python before it runs: which of a type checker's remarks mean that a program does not fit the declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from tree_sitter import Node

from corral.checking.check import Check
from corral.checking.findings import Finding
from corral.checking.python_expressions import (
    anchor,
    call_around,
    holds_other_texts,
    is_annotation,
    is_probed,
    is_result,
    is_tried,
    literal_in,
    openly_written,
    operands,
    own_classes,
    path_to,
    written_keys,
)
from corral.checking.python_texts import certainly_differs, is_text_for_number, mismatch, union_members
from corral.checking.text import CheckedText
from corral.checking.toolset import DeclaredTool, ToolSet
from corral.checking.workspace import MODULE, Document, Remark
from corral.guest.python.calls import failure_classes
from corral.programs import TypedPython
from corral.programs.python.awaits import needs_value, unwrap
from corral.programs.python.grammar import finder, text_of
from corral.types import Position

__all__ = ["PythonCheck"]

_WARNED = frozenset({1, 2})
_SYNTAX = "invalid-syntax"
"""`await` and `return` outside of functions, which work here; what does not is found when the program is recovered."""
_UNBOUND = frozenset({"unresolved-reference"})
_KEY = frozenset({"invalid-typed-dict-key", "invalid-key"})
_ATTRIBUTE = frozenset({"missing-attribute", "unresolved-attribute"})
_COUNT = frozenset({"missing-argument", "unknown-argument", "too-many-positional-arguments"})
_OF_LITERAL = frozenset({"missing-typed-dict-key", "unknown-typed-dict-constructor-key"})
_ARGUMENT = _COUNT | _OF_LITERAL | {"invalid-argument-type", "positional-only-parameter-as-kwarg"}
_COROUTINE = re.compile(r"`Coroutine(?:Type)?\[")
_OBJECT = re.compile(r"(?:Object of type|Class|Attribute on type) `(?P<type>.*?)` has no attribute")
_TYPED_DICT = re.compile(r"for TypedDict `(?P<name>[^`]*)`")
_NOT_AWAITABLE = re.compile(r"^`(\w+)` is not awaitable")
_ONE_OF = re.compile(r"subscripted object has type `(?P<types>[^`]*)`")
_KEY_VALUE = re.compile(r"with declared type `(?P<target>[^`]*)` on TypedDict .*value of type `(?P<source>[^`]*)`")
_STRINGS = frozenset({"string", "string_content", "string_start", "string_end"})
_DECLARED_TYPE = re.compile(r"^(?:class (\w+)\(|(\w+) = TypedDict\()", re.MULTILINE)
_DYNAMIC = re.compile(rb"\bglobals\(|\bexec\(|\bvars\(|\bimport \*|\bNameError\b|\b__builtins__\b")
_HEADER = f"from {MODULE} import tools, codemode, {', '.join(failure_classes())}\n"
_FOREIGN = frozenset({"not-subscriptable", "not-iterable", "missing-attribute", "unsupported-operator"})
"""What no coroutine can be used for, whoever made it."""
_SCALARS = frozenset(
    {"string", "integer", "float", "true", "false", "none", "list", "tuple", "set", "list_comprehension"}
)
_CALLS = finder(
    "(call) @call (assignment left: (identifier) @held right: (call))"
    "(named_expression name: (identifier) @held value: (call))"
)
_NAMES = finder("(identifier) @name")
_AWAIT_IT = "It is a coroutine: `await` it first."


class PythonCheck(Check):
    """A program, as ty sees it."""

    def __init__(self, typed: TypedPython, tools: ToolSet) -> None:
        super().__init__(typed.root, tools)
        self._typed = typed
        edits = typed.edits.copy()
        for parameter in typed.parameters:
            if parameter.type == "identifier":
                edits.insert(parameter.end_byte, b": type[codemode]")
        self.put(CheckedText(*edits.apply(_HEADER.encode())))

    @cached_property
    def _grown(self) -> set[str]:
        """Keys that the program sets somewhere."""
        return written_keys(self.root)

    @cached_property
    def _open_growth(self) -> list[Node]:
        """What the program adds members to whose names are not written out."""
        return list(openly_written(self.root))

    @cached_property
    def _is_dynamic(self) -> bool:
        """Whether names may be bound in ways that cannot be seen."""
        return _DYNAMIC.search(self._typed.edits.text) is not None

    @cached_property
    def _objects(self) -> frozenset[str]:
        """The declared types that have keys, but for those whose names the program uses for something else."""
        names = [first or second for first, second in _DECLARED_TYPE.findall(self.tools.declarations.text)]
        return frozenset(names) - own_classes(self.root)

    def locate(self, offset: int) -> Position:
        return self._typed.places.at(offset)

    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        return not any(map(_is_told, remarks)) and not any(True for _ in self._consumed())

    def judged(self, document: Document) -> list[Finding]:
        document.write(self.text.text)
        judged = [each for remark in document.remarks() if (each := self._judged(remark))]
        return [*judged, *self._forgotten()]

    def _judged(self, remark: Remark) -> Finding | None:
        """What a remark means. None: nothing."""
        if not _is_told(remark):
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
            if remark.severity == 1 and (found := self._unawaited(warning, node)) is not None:
                return found
        if remark.code in _KEY:
            return self._key(warning, node)
        if remark.code == "invalid-await" and (named := _NOT_AWAITABLE.search(warning.message)) is not None:
            is_namespace = named[1] in {tool.namespace for tool in self.tools.tools}
            return (
                warning.rejected("tool", hint=f"tools.{named[1]} has tools; it is none.") if is_namespace else warning
            )
        if remark.code == "not-subscriptable" or "`__getitem__`" in warning.message:
            return self._subscript(warning, node)
        if remark.code in _ATTRIBUTE:
            return self._attribute(warning, node)
        if remark.code in _ARGUMENT:
            return self._argument(warning, node, remark.code)
        return warning

    def _unbound(self, warning: Finding, node: Node) -> Finding:
        if node.type != "identifier" or self._is_dynamic or is_annotation(node):
            return warning
        is_called = node.parent is not None and node.parent.type == "call"
        hint = None if "Did you mean" in warning.message else self.tools.hint_for(text_of(node), is_called=is_called)
        return warning.rejected("unbound", hint=hint)

    def _key(self, warning: Finding, node: Node) -> Finding:
        found = _TYPED_DICT.search(warning.message)
        key = text_of(node).strip("\"'")
        if found is None or node.type not in _STRINGS or key in self._grown or is_probed(node):
            return warning
        types = union_members(of["types"]) if (of := _ONE_OF.search(warning.message)) else [found["name"]]
        types = [each for each in types if each != "None"]
        if any(self._is_of_declared(each) for each in self._open_growth):
            return warning
        if not self._objects.issuperset(types) or any(self._declares(each, key) for each in types):
            return warning
        return warning.rejected("member", declared=self.tools.class_named(found["name"]))

    def _subscript(self, warning: Finding, node: Node) -> Finding:
        """A text as the key of what has none, as far as the declarations say what it is."""
        around = [each for each in (node, node.parent) if each is not None and each.type == "subscript"]
        texts = [each for each in around if each.children_by_field_name("subscript")[0].type == "string"]
        taken = texts[0] if texts else node.parent
        keys = [] if taken is None else taken.children_by_field_name("subscript")
        value = None if taken is None else taken.child_by_field_name("value")
        if (
            value is None
            or [each.type for each in keys] != ["string"]
            or is_probed(node)
            or "`None`" in warning.message
        ):
            return warning
        name = anchor(value)
        is_one_type = name is None or len({each.span for each in self.types(name)}) <= 1
        if not is_one_type or not self._is_declared(value) or self._may_be_object(name):
            return warning
        message = f"{text_of(value)} has no keys, so not {text_of(keys[0])}: it is a list, a text or a number."
        return warning.rejected("member", message=message)

    def _is_of_declared(self, value: Node) -> bool:
        """Whether a value may be part of a result."""
        name = anchor(value)
        return name is None or any(each.declared for each in self.types(name))

    def _may_be_object(self, name: Node | None) -> bool:
        """Whether a name stands for an object in some case, or goes through a value that may be one."""
        if name is None:
            return False
        return self._iterated(name) is not None and any(each.declared for each in self.types(name))

    def _declares(self, name: str, key: str) -> bool:
        """Whether a declared type has a member of that name."""
        declared = self.tools.class_named(name) or ""
        return re.search(rf"^\s*{re.escape(key)}:|[\"']{re.escape(key)}[\"']:", declared, re.MULTILINE) is not None

    def _attribute(self, warning: Finding, node: Node) -> Finding:
        name = text_of(node.child_by_field_name("attribute") or node)
        found = _OBJECT.search(warning.message)
        if found is None:
            return warning
        owner = node if node.type == "attribute" else node.parent
        value = None if owner is None else owner.child_by_field_name("object")
        if value is not None and warning.message.startswith("Class") and self._is_namespace(value):
            if is_tried(node):
                return warning
            path = name if text_of(value) in ("tools", "codemode") else f"{text_of(value).rpartition('.')[2]}.{name}"
            return warning.rejected("tool", message=self.tools.not_found(path))
        members = union_members(found["type"])
        if any(" & ~" in each for each in members):
            return warning  # what is left of a dict that is none does not exist
        is_list = members[0].startswith("tuple[")  # which a tuple is when it has come from the host
        if len(members) == 1 and not is_list and value is not None and self._is_declared(value):
            hint = f'Results are dicts: write `["{name}"]`.' if members[0] in self._objects else None
            return warning.rejected("member", hint=hint, declared=self.tools.class_named(members[0]))
        if len(members) != 1 or not any(re.search(rf"\b{each}\b", members[0]) for each in self._objects):
            return warning
        hint = f'Results are dicts: write `["{name}"]`.' if members[0] in self._objects else None
        declared = self.tools.class_named(members[0])
        return warning.rejected("member", hint=hint, declared=declared)

    def _argument(self, warning: Finding, node: Node, code: str) -> Finding:
        call = call_around(node)
        if (literal := literal_in(node)) is not None and (code in _OF_LITERAL or _KEY_VALUE.search(warning.message)):
            return self._literal(warning, literal, code)
        function = None if call is None else call.child_by_field_name("function")
        arguments = None if call is None else call.child_by_field_name("arguments")
        tool = None if function is None else self._tool_of(function)
        if tool is None or arguments is None:
            return warning
        given = arguments.named_children
        positional = [each for each in given if each.type not in ("keyword_argument", "dictionary_splat", "comment")]
        spread = any(each.type in ("dictionary_splat", "list_splat") for each in given)
        if len(given) == 1 and positional and positional[0].type in _SCALARS and "input: " not in tool.signature:
            return warning.rejected("argument", declared=tool.signature)
        as_one = code in _COUNT and ((positional and len(given) == 1) or (given and "input: " in tool.signature))
        if as_one:
            return warning  # the whole input as one value, or the members of such a value as keywords
        if spread and (code != "unknown-argument" or node.type == "dictionary_splat"):
            return warning
        rejected = warning.rejected("argument", declared=tool.signature)
        if code == "unknown-argument":
            return rejected if self.tools.is_closed(tool.name, []) else warning
        found = mismatch(warning.message)
        if found is None:
            return rejected if code in _COUNT else warning
        given_value = node.child_by_field_name("value") or node
        if (
            given_value.type == "float"
            and "int" in union_members(found[1])
            and not float(text_of(given_value)).is_integer()
        ):
            return rejected
        if given_value.type == "list" and holds_other_texts(given_value, found[1]):
            return rejected
        if is_text_for_number(*found) and not self._is_spelt(given_value) and not self._is_declared(given_value):
            return warning  # it may spell one
        return rejected if certainly_differs(*found, self._objects) else warning

    def _literal(self, warning: Finding, literal: Node, code: str) -> Finding:
        """A remark on a dict: it counts for one that is written out in a call of a tool."""
        place = path_to(literal)
        function = None if place is None else place[0].child_by_field_name("function")
        tool = None if function is None else self._tool_of(function)
        if place is None or tool is None:
            return warning
        rejected = warning.rejected("argument", declared=tool.signature)
        if code == "missing-typed-dict-key":
            return rejected if all(each.type in ("pair", "comment") for each in literal.named_children) else warning
        if code == "unknown-typed-dict-constructor-key":
            return rejected if self.tools.is_closed(tool.name, place[1]) else warning
        found = _KEY_VALUE.search(warning.message)
        differs = found is not None and certainly_differs(found["source"], found["target"], self._objects)
        return rejected if differs else warning

    def _unawaited(self, warning: Finding, node: Node) -> Finding | None:
        """A finding about a call of a tool in what a node spans that nothing awaits, if there is one."""
        for each in (node, *operands(node)):
            if (name := self._promised(each)) is not None:
                return warning.rejected("unawaited", hint=f"{name} gives a coroutine: write `await {name}(...)`.")
        return None

    def _promised(self, expression: Node) -> str | None:
        """The tool, as the program calls it, whose coroutine an expression is: its call, or a name for that."""
        call = self._initial(expression) if expression.type == "identifier" else expression
        function = None if call is None or call.type != "call" else call.child_by_field_name("function")
        return None if function is None or self._tool_of(function) is None else text_of(function)

    def _forgotten(self) -> Iterator[Finding]:
        for node in self._consumed():
            if (name := self._promised(node)) is not None:
                message = f"{name}(...) is used without `await`: this is a coroutine, and not yet its value."
                finding = Finding(code="unawaited", message=message, offset=node.start_byte)
                yield finding.rejected("unawaited", hint=f"Write `await {name}(...)`.")

    def _consumed(self) -> Iterator[Node]:
        """Calls, and names that may stand for one's coroutine, where only a value is of use."""
        found = _CALLS(self.root)
        for call in found.get("call", ()):
            _, owner = unwrap(call)
            if owner is not None and is_result(owner):
                yield call
        held = {name.text for name in found.get("held", ())}
        for name in _NAMES(self.root).get("name", ()) if held else ():
            value, owner = unwrap(name)
            if name.text not in held or owner is None:
                continue
            if is_result(owner) or needs_value(value, owner, self._typed.names):
                yield name

    def _initial(self, name: Node) -> Node | None:
        """What is assigned to a name where it is bound, if that is one place."""
        own = [each for each in self.definitions(name) if each.own]
        if len(own) != 1:
            return None
        node = self.node_at(own[0])
        while node is not None and node.type not in ("assignment", "named_expression"):
            node = node.parent if node.type in ("identifier", "expression_statement") else None
        return None if node is None else node.child_by_field_name("right") or node.child_by_field_name("value")

    def _iterated(self, name: Node) -> Node | None:
        """What a loop goes through whose variable a name is."""
        own = [each for each in self.definitions(name) if each.own]
        bound = self.node_at(own[0]) if len(own) == 1 else None
        loop = None if bound is None else bound.parent
        if loop is None or loop.type not in ("for_statement", "for_in_clause"):
            return None
        return loop.child_by_field_name("right") if loop.child_by_field_name("left") == bound else None

    def _is_spelt(self, value: Node) -> bool:
        """Whether a text is written out: where it is used, where its name is bound, or in a list gone through."""
        if value.type != "identifier":
            return value.type == "string"
        bound = self._initial(value)
        if bound is not None:
            return bound.type == "string"
        gone_through = self._iterated(value)
        if gone_through is not None and gone_through.type == "identifier":
            gone_through = self._initial(gone_through)
        texts = gone_through is not None and gone_through.type in ("list", "tuple") and gone_through.named_children
        return bool(texts) and all(each.type == "string" for each in texts)

    def _is_declared(self, value: Node, hops: int = 8) -> bool:
        """Whether a value is what a tool gives, or part of it."""
        found: Node | None = value
        for _ in range(hops):
            match None if found is None else found.type:
                case "identifier":
                    found = None if found is None else self._initial(found) or self._iterated(found)
                case "subscript":
                    found = None if found is None else found.child_by_field_name("value")
                case "await" | "parenthesized_expression":
                    found = found.named_children[0] if found is not None and found.named_children else None
                case "call":
                    function = None if found is None else found.child_by_field_name("function")
                    return function is not None and self._tool_of(function) is not None
                case _:
                    return False
        return False

    def _is_namespace(self, value: Node) -> bool:
        """Whether an expression is the tools, or a namespace of theirs."""
        name = anchor(value)
        return name is not None and any(each.declared for each in self.types(name))

    def _tool_of(self, function: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(function))


def _is_told(remark: Remark) -> bool:
    """Whether a remark may mean something."""
    return remark.severity in _WARNED and remark.code != _SYNTAX
