"""Repairs of TypeScript: names of tools, conventions of other frameworks, `await` where a value is used at once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from tree_sitter import Node

from corral.concurrency.cached_property import cached_property
from corral.programs.edits import Edits
from corral.programs.mends.base import Mender, asynchronous
from corral.programs.mends.names import ToolNames
from corral.programs.syntax.parsing import TooLongToParse, ancestors, arguments_of, enclosing, is_a, part, with_wrappers
from corral.programs.syntax.typescript import (
    FUNCTION_VALUES,
    FUNCTIONS,
    bound_names,
    child_of_type,
    imported_names,
    parse,
    text_of,
    walk,
)
from corral.programs.typescript.tool_imports import bindings_of
from corral.texts import LINE_END as LINE_END
from corral.texts import TypedText

WORDS = frozenset({"print", "process", "functions", "default_api", "call_tool", "callTool", "tools", "codemode"})
"""Names that programs use in other frameworks."""
SIGN = re.compile(r"import|\(\s*\w+\s*=(?![=>])|\.map\(\s*async\b")
"""An import, keyword arguments as in Python, or an array of promises."""
_TOOLS = ("tools", "codemode")
_HOLDERS = (*_TOOLS, "functions", "default_api")
_BRIDGES = ("call_tool", "callTool")
_GLOBALS = frozenset(
    """
    fetch require console process structuredClone setTimeout setInterval setImmediate Object Array Promise Math JSON
    Date Number String Boolean Map Set RegExp Error Symbol parseInt parseFloat isNaN isFinite crypto performance Intl
    Temporal globalThis self global queueMicrotask btoa atob escape unescape eval Function
    """.split()
)
_PROMISED = frozenset({"then", "catch", "finally"})
_NAMED = {
    "variable_declarator": "name",
    "function_declaration": "name",
    "generator_function_declaration": "name",
    "class_declaration": "name",
    "abstract_class_declaration": "name",
    "enum_declaration": "name",
    "internal_module": "name",
    "function_expression": "name",
    "required_parameter": "pattern",
    "optional_parameter": "pattern",
    "arrow_function": "parameter",
    "catch_clause": "parameter",
    "for_in_statement": "left",
}
_IDENTIFIERS = frozenset({"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"})
_LITERALS = frozenset({"string", "number", "template_string"})
_PLAIN = _LITERALS | {"true", "false"}
_EQUALITIES = frozenset({"==", "===", "!=", "!=="})
_TAKING_VALUES = ("console.", "JSON.stringify", "JSON.parse", "Object.keys", "Object.values", "Object.entries")
"""Functions that take values, never promises."""
_WRAPPERS = ("parenthesized_expression", "as_expression", "non_null_expression")
_PARAMETERS = frozenset({"required_parameter", "optional_parameter"})
_BUILT_IN = frozenset("fs path os http https crypto util events stream zlib url axios".split())


def mends_of(typed: TypedText, names: ToolNames, edits: Edits) -> list[str]:
    """Adds the edits of all certain repairs. Returns a message for each."""
    try:
        return _Mender(parse(typed.parsed).root_node, names, edits).run()
    except TooLongToParse:
        return []


class _Mender(Mender):
    def __init__(self, root: Node, names: ToolNames, edits: Edits) -> None:
        super().__init__(names, edits)
        self._nodes = [root, *walk(root)]
        self._bound: set[str] = set()
        self._parameters: set[str] = set()
        self._waiting: list[tuple[Node, bytes, bytes]] = []
        """Expressions to await in functions that are not async, and the text to put around them."""
        for node in self._nodes:
            field = _NAMED.get(node.type)
            if field is not None and (pattern := part(node, field)) is not None:
                held = self._parameters if node.type in _PARAMETERS else self._bound
                held.update([text_of(pattern)] if pattern.child_count == 0 else bound_names(pattern))
            elif node.type == "import_clause":
                self._bound.update(imported_names(node))

    @cached_property
    def _identifiers(self) -> defaultdict[str, list[Node]]:
        by_name: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self._nodes:
            if node.type in _IDENTIFIERS:
                by_name[text_of(node)].append(node)
        return by_name

    def run(self) -> list[str]:
        for node in self._nodes:
            if node.type == "call_expression":
                self._call(node)
            elif node.type == "import_statement":
                self._import(node)
            elif node.type == "await_expression" and not _may_await(node):
                self._waiting.append((node, b"", b""))
        self._make_async()
        return self.mends

    def _is_free(self, name: str) -> bool:
        return name not in self._bound and name not in self._parameters

    def _call(self, call: Node) -> None:
        callee = part(call, "function")
        if text_of(part(callee, "property")) == "map":
            self._await_all(call)
        parts = None if callee is None else _parts(callee)
        if callee is None or parts is None:
            return
        is_free = self._is_free(parts[0])
        if parts == ["print"] and is_free:
            self._interpret(callee, "print", "console.log")
        elif parts == ["process", "exit"] and is_free:
            self._exit(call)
        elif len(parts) == 1 and parts[0] in _BRIDGES and is_free:
            self._bridge(call, callee)
        elif (path := self._path(callee, parts)) is not None:
            self._input(call, path)
            self._await(call, f"tools.{path}")

    def _path(self, callee: Node, parts: list[str]) -> str | None:
        """Returns the tool that a call refers to, and repairs its name."""
        root, written = parts[0], ".".join(parts[1:])
        if root not in self._bound and len(parts) > 2 and parts[1] in _TOOLS and root not in _HOLDERS:
            path = self._tools.resolve(".".join(parts[2:])) if root in self._parameters else None
        elif root in _HOLDERS and self._is_free(root):
            path = self._tools.resolve(written)
        elif self._is_free(root) and root not in _GLOBALS:
            path = self._tools.resolve(".".join(parts))
        else:
            return None
        if path is None:
            return None
        new = f"{root if root in _TOOLS else 'tools'}.{path}"
        if new != ".".join(parts):
            self._interpret(callee, ".".join(parts), new)
        return path

    def _input(self, call: Node, path: str) -> None:
        """Repairs a sole required member passed by position, and members that differ only in case and underscores."""
        passed = arguments_of(call)
        if passed and all(map(self._is_keyword, passed)):
            self._keywords(passed, path)
        if len(passed) != 1:
            return
        if passed[0].type in _LITERALS and (sole := self._tools.sole_member(path)) is not None:
            self._edits.wrap(passed[0].start_byte, passed[0].end_byte, f"{{ {sole}: ".encode(), b" }")
            self._tell(f"The argument of `tools.{path}` was interpreted as `{sole}`: write `{{ {sole}: … }}`.")
        keys: dict[str, Node] = {}
        for each in passed[0].named_children if passed[0].type == "object" else ():
            key = part(each, "key") if each.type == "pair" else each
            if key is not None and key.type in ("property_identifier", "shorthand_property_identifier"):
                keys[text_of(key)] = key
        for word, key in keys.items():
            if (member := self._tools.resolve_member(path, word, keys)) is not None:
                new = member if key.type == "property_identifier" else f"{member}: {word}"
                self._edits.replace(key.start_byte, key.end_byte, new.encode())
                self._tell(f"`{word}` was interpreted as `{member}` of `tools.{path}`.")

    def _is_keyword(self, argument: Node) -> bool:
        """True for `name=value` with a name that the program does not bind."""
        name = part(argument, "left") if argument.type == "assignment_expression" else None
        return is_a(name, "identifier") and self._is_free(text_of(name))

    def _keywords(self, arguments: list[Node], path: str) -> None:
        """Repairs `tools.x(query="lamp")`, as in Python, if the input has these members."""
        names = [text_of(part(each, "left")) for each in arguments]
        if len(set(names)) != len(names) or not all(self._tools.has_input(path, each) for each in names):
            return
        for each in arguments:
            sign = next(part for part in each.children if part.type == "=")
            self._edits.replace(sign.start_byte, sign.end_byte, b":")
        self._edits.wrap(arguments[0].start_byte, arguments[-1].end_byte, b"{ ", b" }")
        self._tell(f"The arguments of `tools.{path}` were put into one object: write `{{ {names[0]}: … }}`.")

    def _exit(self, call: Node) -> None:
        """Repairs `process.exit()` as a statement outside functions, which ends the program."""
        owner = call.parent
        if not is_a(owner, "expression_statement") or enclosing(call, FUNCTIONS) is not None:
            return
        self._edits.blank(call.start_byte, call.end_byte, first=b"return")
        self._tell("`process.exit` was interpreted as `return`: programs have no process.")

    # --- imports

    def _import(self, node: Node) -> None:
        """Repairs `import { get_order } from "functions"` if every name is a tool."""
        module, clause = text_of(part(node, "source"))[1:-1], child_of_type(node, "import_clause")
        is_typed = child_of_type(node, "type") is not None
        if clause is None or node.has_error or is_typed or module in _BUILT_IN:
            return
        space = module.rpartition("/")[2].removesuffix(".js").removesuffix(".ts")
        bindings, code = bindings_of(clause), ""
        for each in bindings:
            path = each.imported and self._tools.imported(space, each.imported, is_home=space in _HOLDERS)
            if path is None and (each.imported is not None or module.rpartition("/")[2] not in _HOLDERS):
                return
            code += f"const {each.local} = {'tools' if path is None else f'tools.{path}'}; "
        if not bindings or (len(bindings) == 1 and bindings[0].local in _TOOLS):
            return
        self._edits.blank(node.start_byte, node.end_byte, first=b";")
        self._edits.wrap(node.start_byte, node.start_byte, code.encode(), b"")
        self._tell(f'The import from "{module}" was replaced: the tools are the global `tools`.')

    # --- await

    def _await(self, call: Node, shown: str) -> None:
        """Awaits a call whose value is used at once, or is stored in a constant that is only used as a value."""
        value, owner = with_wrappers(call, _WRAPPERS)
        needs = _needs_value
        while is_a(owner, "member_expression") and text_of(part(owner, "property")) in _PROMISED:
            if not is_a(owner.parent, "call_expression"):
                return
            call, needs = owner.parent, _needs_text_or_value
            value, owner = with_wrappers(call, _WRAPPERS)
        if owner is None or owner.type == "await_expression":
            return
        uses = self._uses(owner) if owner.type == "variable_declarator" else []
        if needs(value, owner):
            before, after = b"(await ", b")"
        elif uses and all(needs(each, above) for each, above in uses):
            before, after = b"await ", b""
        else:
            return
        if not _may_await(call):
            self._waiting.append((call, before, after))
            return
        self._edits.wrap(call.start_byte, call.end_byte, before, after)
        self._tell(f"`await` was added before `{shown}(…)`.")

    def _uses(self, declarator: Node) -> list[tuple[Node, Node]]:
        """Returns the uses of a variable, each with its parent; empty if declared twice or used too early."""
        name = part(declarator, "name")
        if not is_a(name, "identifier"):
            return []
        others = [each for each in self._identifiers[text_of(name)] if each.start_byte != name.start_byte]
        uses = [(each, each.parent) for each in others if each.parent is not None]
        late = all(each.type == "identifier" and each.start_byte > declarator.end_byte for each in others)
        return uses if late else []

    def _await_all(self, call: Node) -> None:
        """Awaits `items.map(async …)` that becomes text."""
        value, owner = with_wrappers(call, _WRAPPERS)
        function = next(iter(arguments_of(call)), None)
        if owner is None or not is_a(function, *FUNCTION_VALUES) or not _is_async(function) or not _may_await(call):
            return
        uses = self._uses(owner) if owner.type == "variable_declarator" else [(value, owner)]
        kinds = [_shows_items(each, parent) for each, parent in uses]
        if True in kinds and False not in kinds:
            self._edits.wrap(call.start_byte, call.end_byte, b"(await Promise.all(", b"))")
            self._tell(f"`await Promise.all(…)` was added around `{_shown(part(call, 'function'))}(async …)`.")

    def _make_async(self) -> None:
        """Makes functions async that have to await, and awaits all their calls."""
        change = asynchronous((node for node, _, _ in self._waiting), self._calls_of, FUNCTIONS)
        for function in change.functions:
            self._edits.wrap(function.start_byte, function.end_byte, b"async ", b"")
            name = text_of(part(function, "name") or part(function.parent, "name"))
            self._tell(f"`{name or 'the callback'}` was made async, and its calls are awaited.")
        for call in change.calls:
            is_map = text_of(part(call, "function", "property")) == "map"
            before, after = (b"(await Promise.all(", b"))") if is_map else (b"(await ", b")")
            self._edits.wrap(call.start_byte, call.end_byte, before, after)
        awaitable = {each.id for each in change.expressions}
        for node, before, after in self._waiting:
            if node.id in awaitable:
                self._edits.wrap(node.start_byte, node.end_byte, before, after)

    def _calls_of(self, function: Node) -> list[Node] | None:
        """Returns the calls to await if a function becomes async; None if it is used otherwise."""
        owner = function.parent
        if owner is None or function.type not in ("arrow_function", "function_expression", "function_declaration"):
            return None
        if owner.type == "arguments":
            call = owner.parent
            is_map = text_of(part(call, "function", "property")) == "map" and arguments_of(call)[0] == function
            calls = [call] if is_map and call is not None else None
        else:
            name = part(function if function.type == "function_declaration" else owner, "name")
            if owner.type == "variable_declarator" or function.type == "function_declaration":
                calls = _calls_in(each for each in self._identifiers[text_of(name)] if each != name)
            else:
                calls = None
        return None if calls is None else [each for each in calls if not _is_awaited(each)]


def _parts(callee: Node) -> list[str] | None:
    """Returns `a.b.c` as a list; None for other expressions."""
    parts: list[str] = []
    while callee.type == "member_expression":
        name, owner = part(callee, "property"), part(callee, "object")
        if owner is None or not is_a(name, "property_identifier") or callee.child_count != 3:
            return None
        parts.append(text_of(name))
        callee = owner
    return [text_of(callee), *reversed(parts)] if callee.type == "identifier" and len(parts) < 4 else None


def _calls_in(uses: Iterable[Node]) -> list[Node] | None:
    """Returns the calls of a function; None if it is used otherwise."""
    owners = [(each, each.parent) for each in uses]
    calls = [owner for each, owner in owners if is_a(owner, "call_expression") and part(owner, "function") == each]
    return calls if len(calls) == len(owners) else None


def _is_awaited(call: Node) -> bool:
    """True if a promise is awaited, chained, or given to `Promise.all` and its like."""
    _, owner = with_wrappers(call, _WRAPPERS)
    if is_a(owner, "await_expression"):
        return True
    if is_a(owner, "member_expression") and text_of(part(owner, "property")) in _PROMISED:
        return True
    around = (text_of(part(each, "function")) for each in ancestors(call) if each.type == "call_expression")
    return any(each.startswith("Promise.") for each in around)


def _shows_items(value: Node, owner: Node) -> bool | None:
    """True if the items of an array become text, which those of promises cannot; None where they do not matter."""
    if owner.type == "member_expression" and value == part(owner, "object"):
        member = text_of(part(owner, "property"))
        return True if member == "join" else None if member == "length" else False
    if owner.type == "arguments":
        return text_of(part(owner.parent, "function")) == "JSON.stringify"
    return owner.type == "template_substitution"


def _shown(node: Node | None) -> str:
    text = text_of(node)
    return text if len(text) <= 40 and "\n" not in text else "….map"


def _needs_value(value: Node, owner: Node) -> bool:
    """True if the use of a value rules out a promise."""
    match owner.type:
        case "member_expression":
            is_owner = value == part(owner, "object")
            return is_owner and text_of(part(owner, "property")) not in _PROMISED
        case "subscript_expression":
            return value == part(owner, "object")
        case "binary_expression" if owner.children[1].type in _EQUALITIES:
            return any(each.type in _PLAIN for each in owner.named_children)
        case "binary_expression":
            return owner.children[1].type in ("-", "*", "/", "%", "<", ">", "<=", ">=")
        case "for_in_statement":
            return value == part(owner, "right") and child_of_type(owner, "await") is None
        case "unary_expression":
            return owner.children[0].type in ("!", "-", "+")
        case "variable_declarator":
            return is_a(part(owner, "name"), "object_pattern", "array_pattern")
        case "spread_element":
            return True
        case "if_statement" | "while_statement" | "ternary_expression":
            return value == part(owner, "condition")
        case "arguments":
            return text_of(part(owner.parent, "function")).startswith(_TAKING_VALUES)
        case _:
            return False


def _needs_text_or_value(value: Node, owner: Node) -> bool:
    """True also where a value becomes text, which for a tool's own result would hide that it is an object."""
    is_sum = owner.type == "binary_expression" and owner.children[1].type == "+"
    return is_sum or owner.type == "template_substitution" or _needs_value(value, owner)


def _may_await(node: Node) -> bool:
    function = enclosing(node, FUNCTIONS)
    return function is None or _is_async(function)


def _is_async(function: Node) -> bool:
    return function.children[0].type == "async"
