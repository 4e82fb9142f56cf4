"""Conditions on members that results do not have, in both languages, and loops that would end only by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.findings import Finding
from corral.programs.syntax.parsing import enclosing, is_a, part, text_of, with_wrappers

_NEGATIONS = frozenset({"!", "not"})
_EQUAL = frozenset({"==", "===", "is"})
_UNEQUAL = frozenset({"!=", "!==", "is not"})
_NOTHING = frozenset({"None", "null", "undefined"})
_LITERALS = frozenset({"string", "number", "integer", "float", "true", "false", "none", "null", "undefined"})
_BRANCHES = frozenset({"if_statement", "elif_clause"})
_LOOPS = frozenset({"while_statement", "do_statement", "for_statement", "for_in_statement"})
_FUNCTIONS = frozenset(
    "function_declaration function_expression arrow_function method_definition generator_function "
    "generator_function_declaration function_definition lambda class_declaration class_definition".split()
)
_ENDS = frozenset({"return_statement", "throw_statement", "raise_statement"})
_DIVERTING = frozenset({"continue_statement", *_ENDS})
_THROWS = frozenset({"throw_statement", "raise_statement"})
_HANDLERS = frozenset({"catch_clause", "except_clause", "except_group_clause"})
_CAUGHT = frozenset({"switch_statement", *_LOOPS})
"""Statements that a `break` ends."""
_ASSIGNMENTS = frozenset(
    {"assignment", "assignment_expression", "augmented_assignment", "augmented_assignment_expression"}
)
_REMARKS = ("print", "console.", "sleep", "asyncio.sleep", "time.sleep", "setTimeout")
_MAX_NODES = 20_000
_MAX_LISTED = 12


class Condition(NamedTuple):
    """Condition that is always true or always false."""

    node: Node
    holds: bool


def condition_on(value: Node) -> Condition | None:
    """Returns the largest condition around a missing value that depends on nothing else."""
    node, holds, is_test = value, False, False
    while (above := node.parent) is not None:
        match above.type:
            case "parenthesized_expression":
                pass
            case "unary_expression" | "not_operator" if above.children[0].type in _NEGATIONS:
                holds, is_test = not holds, True
            case "binary_expression" | "boolean_operator" if above.children[1].type in ("&&", "and") and not holds:
                is_test = is_test or above.named_children[0] == node
            case "binary_expression" | "comparison_operator" if node == value and len(above.named_children) == 2:
                outcome = _compared(above)
                if outcome is None:
                    return None
                holds, is_test = outcome, True
            case "if_statement" | "elif_clause" | "while_statement" | "do_statement" | "ternary_expression":
                return Condition(node, holds) if part(above, "condition") == node else None
            case "conditional_expression" if above.named_children[1:2] == [node]:
                return Condition(node, holds)
            case _:
                return Condition(node, holds) if is_test else None
        node = above
    return None


def _compared(comparison: Node) -> bool | None:
    """Returns the result of comparing a missing value with a literal."""
    sign = " ".join(each.type for each in comparison.children[1:-1])
    other = comparison.named_children[1]
    if other.type not in _LITERALS:
        return None
    is_nothing = text_of(other) in _NOTHING
    return is_nothing if sign in _EQUAL else not is_nothing if sign in _UNEQUAL else None


def never_there(value: Node, name: str, members: Iterable[str], owner: str, holds: bool) -> Finding:
    """Returns the warning about a constant condition."""
    listed = sorted(members)
    shown = ", ".join(listed[:_MAX_LISTED]) + (", ..." if len(listed) > _MAX_LISTED else "")
    message = f"{owner} has no member {name} (it has {shown}): the condition is {'always' if holds else 'never'} true."
    return Finding(code="condition", message=message, offset=value.start_byte, always=True)


def is_only_exit(condition: Condition, has_effect: Callable[[Node], bool]) -> bool:
    """True if this condition is the only exit of a loop that makes a call with effects.

    Loops over the arguments of their calls end by themselves.
    """
    _, above = with_wrappers(condition.node, ("parenthesized_expression",))
    if is_a(above, *_LOOPS):
        body = part(above, "body")
        return condition.holds and body is not None and not any(_exits(body)) and _repeats(above, body, has_effect)
    loop = enclosing(above, _LOOPS | _FUNCTIONS) if is_a(above, *_BRANCHES) else None
    body = part(loop, "body")
    dead = [] if above is None else _dead(above, condition.holds)
    if loop is None or loop.type in _FUNCTIONS or body is None or not dead:
        return False
    exits = [_is_within(each, dead) for each in _exits(body)]
    return all(exits) and bool(exits or _ends_by(loop, body, dead)) and _repeats(loop, body, has_effect)


def _is_within(node: Node, parts: Iterable[Node]) -> bool:
    return any(each.start_byte <= node.start_byte < each.end_byte for each in parts)


def _dead(branch: Node, holds: bool) -> list[Node]:
    """Returns the nodes around an `if` that never run."""
    consequence, block = part(branch, "consequence"), branch.parent
    if not holds:
        return [] if consequence is None else [consequence]
    if branch.type == "elif_clause":
        return []
    if consequence is None or block is None:
        return []
    last = [consequence, *consequence.named_children][-1]
    goes_on = _DIVERTING.isdisjoint((consequence.type, last.type))
    rest = [] if goes_on else [each for each in block.named_children if each.start_byte > branch.start_byte]
    return [*branch.children_by_field_name("alternative"), *rest]


def _within(node: Node) -> Iterator[Node]:
    """Yields the nodes in a body, without nested functions and calls that only print or wait."""
    waiting, left = [node], _MAX_NODES
    while waiting and left > 0:
        each = waiting.pop()
        left -= 1
        yield each
        waiting += [inner for inner in each.named_children if inner.type not in _FUNCTIONS and not _is_remark(inner)]


def _is_remark(node: Node) -> bool:
    function = part(node, "function") if node.type in ("call", "call_expression") else None
    return function is not None and text_of(function).startswith(_REMARKS)


def _exits(body: Node) -> Iterator[Node]:
    """Yields the statements that end a loop."""
    waiting, left = [(body, False, False)], _MAX_NODES
    while waiting and left > 0:
        node, is_inner, is_tried = waiting.pop()
        left -= 1
        ends = node.type in _ENDS and not (is_tried and node.type in _THROWS)
        if ends or (node.type == "break_statement" and (not is_inner or node.named_children)):
            yield node
        is_inner = is_inner or node.type in _CAUGHT
        inner = [each for each in node.named_children if each.type not in _FUNCTIONS]
        tries = node.type == "try_statement" and any(each.type in _HANDLERS for each in inner)
        tried = part(node, "body") if tries else None
        waiting += [(each, is_inner, is_tried or each == tried) for each in inner]


def _ends_by(loop: Node, body: Node, dead: list[Node]) -> bool:
    """True if a variable of the loop's condition is assigned only in dead code."""
    names = _identifiers(part(loop, "condition"))
    assigned: dict[str, bool] = {}
    for each in _within(body):
        name = text_of(part(each, "left")) if each.type in _ASSIGNMENTS else ""
        if name in names:
            assigned[name] = assigned.get(name, True) and _is_within(each, dead)
    return any(assigned.values())


def _repeats(loop: Node, body: Node, has_effect: Callable[[Node], bool]) -> bool:
    """True if a loop makes a call with effects and does not iterate over that call's input."""
    over, names = part(loop, "right"), _identifiers(part(loop, "left") or part(loop, "initializer"))
    if over is not None and not text_of(over).startswith("range("):
        return False
    inside = list(_within(body))
    is_bounded = any(each.type == "identifier" and text_of(each) in names for each in inside)
    return not is_bounded and any(has_effect(each) for each in inside if each.type in ("call", "call_expression"))


def _identifiers(node: Node | None) -> set[str]:
    return set[str]() if node is None else {text_of(each) for each in _within(node) if each.type == "identifier"}
