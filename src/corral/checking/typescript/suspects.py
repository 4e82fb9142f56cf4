"""Finds possible mistakes in TypeScript programs that the compiler accepts.

The search uses only the syntax tree, so for most programs the server need not be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import accumulate, takewhile

from tree_sitter import Node

from corral.checking.declared_types import DeclaredTypes
from corral.checking.typescript.dynamic_members import root_of, writes_of
from corral.checking.typescript.expressions import is_awaited, is_shown
from corral.concurrency.cached_property import cached_property
from corral.programs.syntax.parsing import ancestors, arguments_of, inside, is_a, part, with_wrappers
from corral.programs.syntax.typescript import (
    FUNCTION_VALUES,
    FUNCTIONS,
    child_of_type,
    finder,
    text_of,
    unwrapped,
    walk,
)

_CALLS = finder("(call_expression) @call (variable_declarator name: (identifier) @held value: (call_expression))")
_NAMES = finder("[(identifier) (shorthand_property_identifier)] @name")
_REASSIGNED = finder(
    "[(assignment_expression left: (identifier) @name) (augmented_assignment_expression left: (identifier) @name)"
    " (update_expression argument: (identifier) @name)]"
)
_WHOLE = frozenset({"pair", "object", "array", "parenthesized_expression", "as_expression"})
_MEMBERS = finder("(member_expression) @member")
_AWAITED = finder("(await_expression [(member_expression) (identifier) (parenthesized_expression)] @value)")
_DECLARED = finder("(variable_declarator name: (identifier) @name)")
_BINDS = frozenset(
    "variable_declarator required_parameter optional_parameter function_declaration generator_function_declaration "
    "function_expression generator_function import_specifier import_clause namespace_import catch_clause "
    "for_in_statement rest_pattern array_pattern object_pattern pair_pattern assignment_pattern arrow_function "
    "enum_declaration".split()
)
"""Types of nodes that can bind an identifier directly below them."""
_OWN = finder(
    "[(class_declaration name: (_) @name) (abstract_class_declaration name: (_) @name) (class name: (_) @name)"
    " (shorthand_property_identifier_pattern) @name"
    ' (binary_expression left: (string (string_fragment) @name) operator: "in")]'
)
"""Other names that a program binds, and names of members that it tests."""
_NODE = "node:"
_IMPORTS = finder(
    "[(import_statement) @import (variable_declarator value: [(call_expression) (await_expression)]) @held]"
)
_CATCHES = finder(
    "[(catch_clause) @clause (member_expression property: (property_identifier) @method"
    ' (#match? @method "^(catch|then|allSettled)$"))]'
)
_LATER = FUNCTIONS | {"public_field_definition"}
"""Nodes whose code can run later, where its failure may be caught."""
_PASSED = frozenset(
    {"if_statement", "ternary_expression", "switch_case", "for_statement", "for_in_statement", "while_statement"}
)
_TOOLS = ("tools", "codemode")
ARRAY_METHODS = frozenset(
    "map filter find findIndex findLast forEach reduce reduceRight some every flatMap flat slice splice sort toSorted "
    "join includes indexOf push unshift pop shift concat reverse at fill".split()
)
_VISITS = frozenset({"forEach", "filter", "find", "findIndex", "findLast", "some", "every", "sort", "toSorted"})
"""Array methods that ignore a promise returned by their callback."""


class Places:
    """Calls and members in a program. Each kind is searched for once."""

    def __init__(self, root: Node) -> None:
        self.root = root
        matches = _CALLS(root)
        self.calls = matches.get("call", [])
        self.held = matches.get("held", [])
        """Variables initialized with the result of a call."""

    @cached_property
    def members(self) -> list[Node]:
        return _MEMBERS(self.root).get("member", [])


def absent_names(root: Node, lacks: Collection[str]) -> Iterator[tuple[Node, str]]:
    """Yields uses of globals, and calls of modules and their members, that fail because the engine lacks them.

    `lacks` has them as in `Capabilities.lacks`. Left to the engine are names that the program binds or tests anywhere,
    parts of modules that it uses other than by calls, and uses whose failure it may catch.
    """
    imported = _imported_names(root) if any(name.startswith(_NODE) for name in lacks) else {}
    names = {name.partition(".")[0].encode() for name in lacks} | imported.keys()
    nodes = [each for each in _NAMES(root).get("name", ()) if each.text in names]
    bound = Counter(each.text for each in _OWN(root).get("name", ()))
    bound.update(each.text for each in nodes if _is_bound(each))
    tested = {
        each.text for each in nodes if is_a(each.parent, "unary_expression") and text_of(each.parent)[:6] == "typeof"
    }
    catches = bool(_CATCHES(root))
    uses: list[tuple[Node, str, set[str]]] = []
    kept: set[str] = set()
    for node in nodes:
        module = imported.get(node.text)
        if node.text in tested or bound[node.text] != (module is not None) or _is_bound(node):
            continue
        path, use = _path(node, module or text_of(node))
        if module is not None and not _is_call(use):
            kept.add(path)
            continue
        prefixes = [*accumulate(path.split("."), "{}.{}".format)]
        name = next((each for each in prefixes if each in lacks), None)
        around = {each.type for each in ancestors(node)} if name is not None else set[str]()
        if name is not None and "try_statement" not in around and (not catches or around.isdisjoint(_LATER)):
            uses.append((node, name, {*prefixes}))
    for node, name, prefixes in uses:
        if kept.isdisjoint(prefixes):
            yield node, name


def _path(node: Node, name: str) -> tuple[str, Node]:
    """Returns the name of a member, such as `node:zlib.gzipSync`, from that of its object, and its node."""
    while (member := node.parent) is not None and member.type == "member_expression" and part(member, "object") == node:
        name, node = f"{name}.{text_of(part(member, 'property'))}", member
    return name.replace("node:fs.promises", "node:fs/promises"), node


def _is_call(function: Node) -> bool:
    """True if a function is called, or constructed, whether or not it exists."""
    call = function.parent
    return "?." not in text_of(function) and (
        (
            is_a(call, "call_expression")
            and part(call, "function") == function
            and "?." not in map(text_of, call.children)
        )
        or (is_a(call, "new_expression") and part(call, "constructor") == function)
    )


def _imported_names(root: Node) -> dict[bytes | None, str]:
    """Returns the variables that hold modules of node and their members, such as `node:crypto.createHash`."""
    names: dict[bytes | None, str] = {}

    def bind(pattern: Node | None, module: str) -> None:
        if pattern is None or pattern.type == "identifier":
            names[pattern and pattern.text] = module
        for each in pattern.named_children if is_a(pattern, "named_imports", "object_pattern") else ():
            name, alias = part(each, "name") or part(each, "key") or each, part(each, "alias") or part(each, "value")
            member = text_of(name)
            names[(alias or name).text] = module if member == "default" else f"{module}.{member}"

    matches = _IMPORTS(root)
    for statement in matches.get("import", ()):
        clause = child_of_type(statement, "import_clause")
        for each in clause.named_children if clause is not None else ():
            is_namespace = each.type == "namespace_import"
            bind(inside(each) if is_namespace else each, _module(part(statement, "source")))
    for declarator in matches.get("held", ()):
        value = unwrapped(part(declarator, "value") or declarator)
        call = unwrapped(value.named_children[0]) if value.type == "await_expression" else value
        if text_of(part(call, "function")) in ("require", "import") and (passed := arguments_of(call)):
            bind(part(declarator, "name"), _module(passed[0]))
    return names


def _module(literal: Node | None) -> str:
    return _NODE + text_of(literal)[1:-1].removeprefix(_NODE)


def _is_bound(name: Node) -> bool:
    """True if an identifier is bound here, so that it is not a use."""
    return is_a(name.parent, *_BINDS) and not _is_value(name)


def _is_value(node: Node) -> bool:
    """True if the identifier is the value of its parent, and not a name that it binds."""
    fields = ("right", "body") if is_a(node.parent, "pair_pattern") else ("value", "right", "body")
    return any(part(node.parent, field) == node for field in fields)


def forgotten_calls(places: Places) -> Iterator[Node]:
    """Yields calls, and constants that may hold a call's promise, where only a value makes sense."""
    candidates, held = places.calls, {name.text for name in places.held}
    if held:
        candidates = [*candidates, *(name for name in _NAMES(places.root).get("name", ()) if name.text in held)]
    return (node for node in candidates if is_shown(node) and not is_awaited(node))


def calls_by_name(places: Places) -> Iterator[tuple[Node, str]]:
    for call in places.calls:
        called = part(call, "function")
        first, _, name = text_of(called).partition(".")
        if first in _TOOLS and name and is_a(called, "member_expression"):
            yield call, name


def named_tools(places: Places, names: frozenset[str]) -> Iterator[Node]:
    """Yields names of possible tools that are awaited, or whose length is read, without a call."""
    for awaited in _AWAITED(places.root).get("value", []):
        if text_of(unwrapped(awaited)).rpartition(".")[2] in names:
            yield unwrapped(awaited)
    for member in places.members:
        owner = part(member, "object")
        if owner is None or owner.type != "member_expression" or not text_of(member).endswith(".length"):
            continue
        path = text_of(owner)
        if path.partition(".")[0] in _TOOLS and path.rpartition(".")[2] in names:
            yield owner


def tools_as_callbacks(places: Places, names: frozenset[str]) -> Iterator[Node]:
    """Yields names of possible tools passed to array methods, which call them with three arguments."""
    for call in places.calls:
        passed = arguments_of(call)
        if len(passed) == 1 and text_of(part(call, "function", "property")) in ("map", "flatMap", "forEach"):
            callback, around = unwrapped(passed[0]), call.parent and call.parent.parent
            is_settled = text_of(part(around, "function")) == "Promise.allSettled"
            is_named = callback.type in ("identifier", "member_expression")
            if is_named and not is_settled and text_of(callback).rpartition(".")[2] in names:
                yield callback


def async_visits(places: Places) -> Iterator[tuple[Node, str]]:
    """Yields calls such as `list.forEach(async …)`, with the method's name."""
    for call in places.calls:
        name = text_of(part(call, "function", "property"))
        for visit in arguments_of(call)[:1] if name in _VISITS else ():
            if visit.type in FUNCTION_VALUES and visit.children[0].type == "async":
                yield call, name


def gathered_too_late(call: Node) -> str | None:
    """Returns a variable that an unawaited async callback changes and a later `return` reads.

    A variable that is returned unchanged is safe, because a program's value is encoded after all of its work has ended.
    """
    statement = call.parent
    block = statement.parent if is_a(statement, "expression_statement") else None
    if statement is None or block is None:
        return None
    callback = arguments_of(call)[0]
    awaited = [each for each in walk(callback, into_functions=False) if each.type == "await_expression"]
    if not awaited or _may_be_passed(awaited[0], callback):
        return None
    filled = {
        text_of(root)
        for each in walk(callback)
        for write in writes_of(each)
        if each.end_byte >= awaited[0].end_byte and (root := root_of(write.target)) is not None
    }
    reassigned = {
        text_of(each) for each in _REASSIGNED(callback).get("name", []) if each.end_byte >= awaited[0].end_byte
    }
    own = {text_of(name) for name in _DECLARED(callback).get("name", [])}
    for later in block.named_children:
        if later.start_byte <= statement.start_byte:
            continue
        if any(each.type == "await" for each in walk(later)):
            return None
        if later.type == "return_statement":
            names = ((text_of(each), each) for each in _NAMES(later).get("name", []) if text_of(each) not in own)
            lost = (name for name, node in names if name in reassigned or (name in filled and not _is_whole(node)))
            return next(lost, None)
    return None


def _is_whole(name: Node) -> bool:
    """True if a variable is returned unchanged, directly or in an object or array."""
    return is_a(with_wrappers(name, _WHOLE)[1], "return_statement")


def _may_be_passed(node: Node, function: Node) -> bool:
    """True if a function can finish without reaching a node."""
    return any(
        above.type in _PASSED or (above.type == "binary_expression" and above.children[1].type in ("&&", "||", "??"))
        for above in takewhile(lambda each: each != function, ancestors(node))
    )


def misused_dictionaries(places: Places, types: DeclaredTypes) -> Iterator[Node]:
    """Yields members such as `users.length` and `users.map` of values that may be declared as dictionaries."""
    if not types.dictionaries:
        return
    held: set[str] | None = None
    for member in places.members:
        owner, name = part(member, "object"), part(member, "property")
        if owner is None or name is None or text_of(name) not in ARRAY_METHODS | {"length"}:
            continue
        owner = unwrapped(owner)
        if owner.type == "identifier":
            held = _held_dictionaries(places.root, types) if held is None else held
            is_suspect = text_of(owner) in held
        else:
            is_suspect = _tail(owner) in types.dictionaries
        if is_suspect:
            yield member


def _held_dictionaries(root: Node, types: DeclaredTypes) -> set[str]:
    """Returns the names of dictionary members, and of variables initialized with a dictionary."""
    names = set(types.dictionaries)
    for name in _DECLARED(root).get("name", []):
        value = part(name.parent, "value")
        if value is not None and _tail(unwrapped(value)) in types.dictionaries:
            names.add(text_of(name))
    return names


def _tail(expression: Node) -> str:
    """Returns the last name in the expression that produces a value."""
    while expression.type in ("await_expression", "call_expression", "parenthesized_expression", "non_null_expression"):
        expression = part(expression, "function") or expression.named_children[0]
    name = part(expression, "property") or expression
    return "" if name.child_count else text_of(name)
