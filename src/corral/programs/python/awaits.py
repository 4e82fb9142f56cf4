"""Adds missing `await`: for `asyncio.run(…)`, and before coroutines whose value is discarded.

A tool call that is used as a value without `await` is rejected, unless it is repaired: it would do nothing, or fail
halfway. Generator expressions with `await`, which are async generators, become lists where an iterable is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tree_sitter import Node

from corral.programs.edits import Edits, NotAwaited, Places
from corral.programs.python.functions import Functions
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.parsing import ancestors, arguments_of, enclosing, is_a, part, text_of, with_wrappers
from corral.programs.syntax.python import FUNCTIONS, finder, is_async

FUTURES = frozenset({"asyncio.gather", "gather", "asyncio.wait_for", "asyncio.sleep", "asyncio.wait"})
"""Functions whose result does nothing until it is awaited, or whose outcome would be lost."""
_FUTURES = re.compile(rb"\b(?:gather|wait_for|sleep|wait)\b(?=\s*\()")
_OWN_GATHER = re.compile(rb"\bdef[ \t]+gather\b|\bgather[ \t]*=(?!=)")
_TASKS = re.compile(rb"\b(?:create_task|ensure_future|gather|get_running_loop|get_event_loop|Future)\b")
_RUNNERS = re.compile(rb"\b(?:run|run_until_complete)\b(?=\s*\()|\bclose\b(?=\s*\(\s*\))|\bapply\b(?=\s*\()")
_RUN = frozenset({"asyncio.run", "anyio.run", "trio.run", "run"})
_OF_FUNCTIONS = frozenset({"anyio.run", "trio.run"})
"""Functions that run another function with arguments."""
_TAKING_COROUTINES = frozenset({"create_task", "ensure_future", "run_until_complete"})
_LOOP = re.compile(rb"\b(\w+)\s*=\s*(?:asyncio\s*\.\s*)?get_(?:event|running)_loop\s*\(")
_MAX_CALLS = 200

_CONSUMERS = frozenset(
    {
        *("len", "str", "int", "float", "bool", "repr", "print", "sum", "min", "max", "sorted", "reversed", "abs"),
        *("list", "tuple", "set", "frozenset", "dict", "enumerate", "zip", "any", "all", "round", "iter", "next"),
        *("json.dumps", "json.loads"),
    }
)
"""Functions that cannot use an unawaited call."""
_COLLECTORS = frozenset({"list", "tuple", "set", "sorted", "enumerate"})
_OPERATIONS = frozenset({"binary_operator", "unary_operator", "not_operator", "comparison_operator", "interpolation"})
_SPREADS = frozenset({"list_splat", "dictionary_splat"})
_UNPACKED = frozenset({"pattern_list", "tuple_pattern", "list_pattern"})
_FIELDS = {
    "attribute": "object",
    "subscript": "value",
    "for_statement": "right",
    "for_in_clause": "right",
    "if_statement": "condition",
    "elif_clause": "condition",
    "while_statement": "condition",
    "augmented_assignment": "right",
    "with_item": "value",
}
_IDENTITY = frozenset({"is", "is not"})


def run_where_it_stands(root: Node, edits: Edits) -> None:
    """Replaces code that runs an event loop at the top level with `await`: a loop is already running."""
    text = edits.text
    loops = {match[1] for match in _LOOP.finditer(text)}
    for number, match in enumerate(_RUNNERS.finditer(text)):
        if number == _MAX_CALLS:
            return
        callee = _callee_at(root, match)
        call = None if callee is None else callee.parent
        if callee is None or call is None or callee != part(call, "function") or enclosing(call, FUNCTIONS) is not None:
            continue
        path = dotted_path(callee)
        if match[0] == b"close" or match[0] == b"apply":
            if path == "nest_asyncio.apply" or path.encode().removesuffix(b".close") in loops:
                edits.blank(call.start_byte, call.end_byte, first=b"None")
        elif match[0] == b"run_until_complete" or (path in _RUN and (path != "run" or _imports_runner(text))):
            _await_in_place(call, callee, path, edits)


def await_coroutines(root: Node, functions: Functions, names: Names, edits: Edits) -> None:
    """Awaits coroutines of the program's own functions that top-level code discards or prints."""
    for function in functions.all:
        if not function.is_async or functions.named(function.name) is None:
            continue
        try:
            uses = names.in_module(function.name)
        except TooMuch:
            return
        for use in uses:
            call = use.node.parent
            is_called = call is not None and use.node == part(call, "function")
            if call is not None and is_called and use.owner == root and _is_thrown_away(call):
                edits.wrap(call.start_byte, call.end_byte, b"await ", b"")


def starts_tasks(text: bytes) -> bool:
    """True if a program may need an event loop without any `await`."""
    return _TASKS.search(text) is not None


def await_futures(root: Node, edits: Edits) -> None:
    """Awaits the results of `asyncio.gather` and similar functions that a statement discards."""
    is_own = _OWN_GATHER.search(edits.text) is not None
    for number, match in enumerate(_FUTURES.finditer(edits.text)):
        callee = _callee_at(root, match)
        call = None if callee is None else callee.parent
        if number == _MAX_CALLS or not is_a(call, "call"):
            continue
        path = dotted_path(callee)
        if _is_statement(call.parent) and path in FUTURES and not (is_own and path == "gather") and may_await(call):
            edits.wrap(call.start_byte, call.end_byte, b"await ", b"")


def _callee_at(root: Node, match: re.Match[bytes]) -> Node | None:
    """Returns the called name if it ends with a word."""
    word = root.descendant_for_byte_range(*match.span())
    return word.parent if word is not None and is_a(word.parent, "attribute") else word


def _is_statement(owner: Node | None) -> bool:
    """True for a statement that consists of an expression."""
    return is_a(owner, "expression_statement") and owner.child_count == 1


def may_await(node: Node) -> bool:
    """True if `await` is allowed there: in an async function, or at the top level."""
    function = enclosing(node, FUNCTIONS)
    return function is None or is_async(function)


def check_calls(calls: Iterable[tuple[Node, str]], names: Names, places: Places) -> None:
    """Raises NotAwaited for the first tool call that certainly lacks an `await`."""
    for call, path in calls:
        value, owner = unwrap(call)
        if owner is None:
            continue
        if _is_statement(owner):
            raise _forgotten(path, call, places, "so it would not run")
        if needs_value(value, owner, names):
            continued = owner.type in ("attribute", "subscript")
            raise _forgotten(path, call, places, "so it has no value yet", continued, _in_stream(owner))


def lacks_await(call: Node, names: Names) -> bool:
    """True for a tool call whose value is used at once, stored for use, or discarded."""
    value, owner = unwrap(call)
    if owner is None or _in_stream(owner):
        return False
    return needs_value(value, owner, names) or _is_statement(owner) or _is_kept_as_value(call, owner, names)


def add_await(call: Node, edits: Edits) -> None:
    """Awaits a call. Parentheses are added where its value is used at once; an `await` of a part of it is removed."""
    value, owner = unwrap(call)
    plain = owner is None or _is_statement(owner) or owner.type == "assignment"
    edits.wrap(call.start_byte, call.end_byte, b"await " if plain else b"(await ", b"" if plain else b")")
    while is_a(owner, "attribute", "subscript") and value == owner.named_children[0]:
        value, owner = unwrap(owner)
    if is_a(owner, "await") and not plain:
        word = owner.children[0]
        edits.replace(word.start_byte, word.end_byte, b"")


def is_given_to_loop(call: Node) -> bool:
    """True for a coroutine that is awaited, or an argument of a function such as `gather`."""
    for node in ancestors(call):
        if node.type == "await" and unwrap(call)[1] == node:
            return True
        if node.type == "call":
            path = dotted_path(part(node, "function"))
            if path in FUTURES | _RUN or path.rpartition(".")[2] in _TAKING_COROUTINES:
                return True
        if node.type in FUNCTIONS or node.type.endswith("_statement"):
            return False
    return False


def _is_kept_as_value(call: Node, owner: Node, names: Names) -> bool:
    """True if a call is assigned to a variable that is only used as its value."""
    left = part(owner, "left") if owner.type == "assignment" else None
    if left is None or left.type != "identifier" or part(owner, "right") != call:
        return False
    try:
        word = text_of(left)
        occurrences = names.of(word)
        if sum(each.binds for each in occurrences) != 1 or names.is_declared_elsewhere(word):
            return False
        uses = [unwrap(each.node) for each in occurrences if not each.binds]
        return bool(uses) and all(outer is not None and needs_value(use, outer, names) for use, outer in uses)
    except TooMuch:
        return False


def _in_stream(owner: Node) -> str:
    """Returns code that iterates over a call, in case the tool returns a stream."""
    if owner.type in ("for_statement", "for_in_clause"):
        return "async for ... in {}(...)"
    is_collected = text_of(part(owner.parent, "function")) in _COLLECTORS
    return "[each async for each in {}(...)]" if is_collected else ""


def _forgotten(
    path: str, call: Node, places: Places, why: str, continued: bool = False, in_stream: str = ""
) -> NotAwaited:
    called = text_of(part(call, "function"))
    shown = called if len(called) <= 80 and "\n" not in called else f"tools.{path}"
    fix = f"(await {shown}(...))" if continued else f"await {shown}(...)"
    or_stream = f", or `{in_stream.format(shown)}` if it returns a stream" if in_stream else ""
    message = f"{shown}(...) at {{place}} is not awaited, {why}: write `{fix}`{or_stream}."
    return places.not_awaited(message, call.start_byte)


def needs_value(value: Node, owner: Node, names: Names) -> bool:
    """True if the use of a value rules out an unawaited call."""
    kind = owner.type
    if kind == "comparison_operator":
        return not any(child.type in _IDENTITY for child in owner.children)
    if kind in _OPERATIONS or kind in _SPREADS:
        return True
    if kind == "conditional_expression":
        return [child for child in owner.named_children if child.type != "comment"][1] == value
    if kind == "assignment":
        left = part(owner, "left")
        return left is not None and left.type in _UNPACKED and value == part(owner, "right")
    if kind == "argument_list":
        path = dotted_path(part(owner.parent, "function"))
        return path in _CONSUMERS and ("." in path or not any(name.binds for name in names.of(path)))
    if kind == "as_pattern" and is_a(owner.parent, "with_item"):
        return value == owner.named_children[0] and not _is_async_statement(owner.parent)
    if kind in ("for_statement", "for_in_clause", "with_item") and _is_async_statement(owner):
        return False
    field = _FIELDS.get(kind)
    if field is None or value != part(owner, field):
        return False
    return kind != "attribute" or not text_of(part(owner, "attribute")).startswith("__")


def _is_async_statement(node: Node) -> bool:
    return is_async((enclosing(node, ("with_statement",)) if node.type == "with_item" else node) or node)


def unwrap(expression: Node) -> tuple[Node, Node | None]:
    """Returns an expression including the parentheses around it, and its parent."""
    return with_wrappers(expression, ("parenthesized_expression",))


def _await_in_place(call: Node, callee: Node, path: str, edits: Edits) -> None:
    passed = arguments_of(call)
    if not passed or passed[0].type in ("keyword_argument", "generator_expression", *_SPREADS):
        return
    edits.replace(callee.start_byte, callee.end_byte, b"(" if is_a(call.parent, "await") else b"(await ")
    edits.wrap(call.start_byte, call.end_byte, b"", b")")
    first = passed[0]
    if path in _OF_FUNCTIONS and first.type != "call":
        positional = [each.text or b"" for each in passed[1:] if each.type != "keyword_argument"]
        rest = b", ".join(positional).replace(b"\n", b" ")
        edits.wrap(first.start_byte, first.end_byte, b"(", b")(" + rest + b")")
    edits.blank(first.end_byte, call.end_byte - 1)


def _imports_runner(text: bytes) -> bool:
    return re.search(rb"\bfrom[ \t]+(?:asyncio|anyio|trio)[ \t]+import\b[^\n]*\brun\b", text) is not None


def _is_thrown_away(call: Node) -> bool:
    """True if a coroutine is discarded: it is a statement, printed, or an exit status."""
    _, owner = unwrap(call)
    takes = dotted_path(part(owner.parent, "function")) if is_a(owner, "argument_list") else ""
    return _is_statement(owner) or takes in ("print", "sys.exit", "exit", "SystemExit")


_GENERATORS = finder("(generator_expression) @generator")
ITERATING = frozenset(
    {
        *("sum", "min", "max", "sorted", "list", "tuple", "set", "frozenset", "dict", "enumerate", "zip"),
        *("Counter", "deque", "mean", "median", "statistics.mean", "statistics.median", "math.prod", "math.fsum"),
    }
)
"""Functions that consume a whole iterable. `any` and `all` do not: they must not evaluate the rest."""
_METHODS = frozenset({"join", "extend", "update"})
_OWN_SCOPES = frozenset({"lambda", "generator_expression"})


def list_generators(root: Node, names: Names, edits: Edits) -> None:
    """Turns iterated async generators into lists, and loops over them into `async for`."""
    if b"await" not in edits.text and b"async" not in edits.text:
        return
    for generator in _GENERATORS(root).get("generator", ()):
        if not (may_await(generator) and awaits(generator)):
            continue
        value, owner = unwrap(generator)
        if owner is None:
            continue
        start, end = generator.start_byte, generator.end_byte
        if owner.type == "call" and part(owner, "arguments") == value:
            if _goes_through(owner, names):
                edits.insert(start + 1, b"[")
                edits.wrap(start + 1, end - 1, b"", b"]")
        elif owner.type == "for_statement" and part(owner, "right") == value and not is_async(owner):
            edits.insert(owner.start_byte, b"async ")
        elif _takes_list(value, owner, names):
            edits.replace(start, start + 1, b"[")
            edits.replace(end - 1, end, b"]")


def awaits(generator: Node) -> bool:
    """True if a generator expression is async: it awaits more than the iterable of its first loop."""
    clauses = [each for each in generator.named_children if each.type == "for_in_clause"]
    waiting = [generator]
    while waiting:
        node = waiting.pop()
        if node.type == "await" or (node.type == "for_in_clause" and is_async(node)):
            return True
        outside = part(node, "right") if node == clauses[0] else None
        waiting += [each for each in node.named_children if each.type not in _OWN_SCOPES and each != outside]
    return False


def _takes_list(value: Node, owner: Node, names: Names) -> bool:
    """True if the parent iterates over the expression."""
    if owner.type == "list_splat":
        return True
    if owner.type == "for_in_clause":
        return part(owner, "right") == value and not is_async(owner)
    return is_a(owner, "argument_list") and owner.parent is not None and _goes_through(owner.parent, names)


def _goes_through(call: Node, names: Names) -> bool:
    path = dotted_path(part(call, "function"))
    if path in ITERATING:
        try:
            return "." in path or not any(name.binds and not _is_import(name.node) for name in names.of(path))
        except TooMuch:
            return False
    return text_of(part(call, "function", "attribute")) in _METHODS


def _is_import(node: Node) -> bool:
    return node.parent is not None and is_a(node.parent.parent, "import_from_statement")
