"""What holds for every policy: rules that ask or deny only narrow, order means nothing, nothing unsuitable excuses."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from corral import ExecutionContext
from corral.errors import ConfigError
from corral.policy import Policy, PolicyCall
from corral.policy.conditions import Condition
from corral.policy.rules import RANKS, Globbed, RuleSet

GLOBS = ["pay.*", "**", "*", "**.send", "**.re*", "pay.refund", "mail.**", "look"]
TOOLS = ["pay.refund", "mail.send", "look", "send", "mail.read"]
SCOPES = ["a", "b"]
ORGANIZATIONS = ["north", "south"]
FIELDS = ["amount", "to", "data"]
VALUES: list[Any] = [
    0, 7, 500, 501, -1, 2.5, True, None, "", "500", "ann@acme.com", "eve@evil.example", "/tmp/x", "/tmp/../etc", [],
    ["ann@acme.com"], ["ann@acme.com", 5], [7], {}, {"amount": 7}, {"amount": "7"},
]  # fmt: skip
ENORMOUS: list[Any] = [10**400, -(10**400), 1e308, "a" * 100_000, [7] * 20_000, {"amount": 10**30}]
UNREADABLE: list[Any] = [math.nan, math.inf, "\ud800", {1: 2, (1,): 3}, object()]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


DEEP = nested(5_000)


def numbers(dice: random.Random) -> dict[str, Any]:
    keyword = dice.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
    return {keyword: dice.choice([0, 7, 500])}


def strings(dice: random.Random) -> dict[str, Any]:
    return dice.choice([{"pattern": "^[^@]+@acme\\.com$"}, {"maxLength": 5}, {"minLength": 1}])


def condition(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    """A condition on one value."""
    match dice.randrange(8 if depth < 2 else 4):
        case 0:
            return numbers(dice)
        case 1:
            return strings(dice)
        case 2:
            return {**numbers(dice), **numbers(dice), **({"type": "number"} if dice.random() < 0.3 else {})}
        case 3:
            return dice.choice(
                [{"const": 7}, {"enum": ["500", None]}, {"type": "string"}, {"type": ["number", "null"]}]
            )
        case 4:
            return {dice.choice(["items", "contains"]): condition(dice, depth + 1)}
        case 5:
            return {dice.choice(["anyOf", "allOf"]): [condition(dice, depth + 1), condition(dice, depth + 1)]}
        case 6:
            return {"properties": {"amount": condition(dice, depth + 1)}}
        case _:
            return {"not": condition(dice, depth + 1)}


def conditions(dice: random.Random) -> dict[str, Any]:
    return {name: condition(dice) for name in dice.sample(FIELDS, dice.randint(1, 2))}


def rule(dice: random.Random, number: int, *effects: str) -> dict[str, Any]:
    do = dice.choice(effects or ["allow", "allow", "limit", "ask", "deny"])
    made: dict[str, Any] = {"id": f"r{number}", "tools": dice.sample(GLOBS, dice.randint(1, 2)), "do": do}
    if do == "limit" or (do == "allow" and dice.random() < 0.1):
        made["limit"] = "20/day"
    for part in ("when", "unless"):
        if dice.random() < 0.4:
            made[part] = conditions(dice)
    if dice.random() < 0.3:
        made["who"] = {"scopes": dice.sample(SCOPES, 1)} if dice.random() < 0.5 else {"organizations": ["north"]}
    return made


def toml(value: Any) -> str:
    """A value in TOML, which has inline tables for objects and no null."""
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in cast("dict[str, Any]", value).items())
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(toml(each) for each in cast("list[Any]", value) if each is not None) + "]"
    return json.dumps(value)


def text_of(rules: list[dict[str, Any]], default: str | None = None) -> str:
    lines = [] if default is None else [f"default = {toml(default)}"]
    for each in rules:
        lines += ["[[rule]]", *(f"{key} = {toml(value)}" for key, value in each.items())]
    return "\n".join([*lines, "[end]", ""])


def call(dice: random.Random) -> PolicyCall:
    pool = VALUES if dice.random() < 0.9 else [*ENORMOUS[:3], *UNREADABLE]
    value = {name: dice.choice(pool) for name in dice.sample(FIELDS, dice.randint(0, 3))}
    caller = ExecutionContext(
        scopes=dice.sample(SCOPES, dice.randint(0, 2)), organization_id=dice.choice([None, "north"])
    )
    validated = {**value, "amount": dice.choice(VALUES)} if dice.random() < 0.3 else None
    return PolicyCall(dice.choice(TOOLS), value, caller, validated=validated)


def rank(policy: Policy, asked: PolicyCall) -> int:
    return RANKS[policy.decide(asked).decision]


def expect_narrowing(seed: int, calls: int = 1) -> None:
    """One policy, and the same with more rules and in another order, asked about some calls."""
    dice = random.Random(seed)  # noqa: S311
    rules = [rule(dice, number) for number in range(dice.randint(0, 4))]
    default = dice.choice([None, "allow", "ask", "deny"])
    more = [*rules, rule(dice, 10, "ask", "deny")]
    before, after = (Policy(texts=[text_of(each, default)]) for each in (rules, more))
    dice.shuffle(more)
    shuffled = Policy(texts=[text_of(more, default)])
    beside = None if seed % 4 else Policy(texts=[text_of(rules, default), text_of([rule(dice, 20)])])
    for _ in range(calls):
        asked = call(dice)
        assert rank(after, asked) >= rank(before, asked), text_of(more, default)
        other, verdict = shuffled.decide(asked), after.decide(asked)
        assert (other.decision, sorted(other.rules)) == (verdict.decision, sorted(verdict.rules))
        if beside is not None:
            assert rank(beside, asked) >= rank(before, asked)


def test_more_rules_never_allow_more_and_order_means_nothing() -> None:
    for seed in range(200):
        expect_narrowing(seed)


@pytest.mark.matrix("200 of the same decisions; here 100,000")
def test_more_rules_never_allow_more_in_a_hundred_thousand_decisions() -> None:
    """Five calls for each policy: reading one costs twenty times as much as asking it."""
    for seed in range(200, 20_200):
        expect_narrowing(seed, calls=5)


USUAL: dict[str, Any] = {"amount": 7, "to": "ann@acme.com", "data": {"amount": 7}}


def quiet(dice: random.Random, part: str) -> dict[str, Any]:
    """Conditions of a rule that does not match the usual input, as is true of most rules."""
    while True:
        fields = conditions(dice)
        if dice.random() < 0.01 or (judge({"properties": fields}, USUAL) is True) is (part == "unless"):
            return fields


def expect_same_matches(seeds: range) -> None:
    """Many rules about one tool, which are judged together, match as each of them does by itself."""
    outcomes = {True: 0, False: 0}
    for seed in seeds:
        dice = random.Random(seed)  # noqa: S311
        made = [rule(dice, number) for number in range(dice.randint(3, 40))]
        for each in made:
            part, other = dice.sample(["when", "unless"], 2)
            each |= {"tools": ["**"], part: quiet(dice, part)}
            if dice.random() < 0.8:
                each.pop(other, None)
        rules = RuleSet(text_of(made, "allow"), "p")
        for _ in range(24):  # schemas for several rules are compiled one by one, from the second call on
            rules.decide(PolicyCall("send", USUAL, ExecutionContext(scopes=SCOPES, organization_id="north")))
        for _ in range(40):
            asked = call(dice)
            if dice.random() < 0.7:
                caller = ExecutionContext(scopes=SCOPES, organization_id="north")
                asked = PolicyCall("send", {**USUAL, dice.choice(FIELDS): dice.choice(VALUES)}, caller)
            alone = {
                each.rule.id
                for each in rules.rules_of(asked.names)
                if each.is_for(asked.context, asked.scopes) and each.matches(asked.forms)
            }
            assert {each.id for each in rules.decide(asked)[1]} == alone, (text_of(made), asked.forms)
            outcomes[bool(alone)] += 1
    assert min(outcomes.values()) > len(seeds) / 10


def test_rules_that_are_judged_together_match_as_they_do_one_by_one() -> None:
    expect_same_matches(range(30))


@pytest.mark.matrix("30 of the same policies; here 2,500, which are judged 100,000 times")
def test_many_rules_that_are_judged_together_match_as_they_do_one_by_one() -> None:
    expect_same_matches(range(30, 2_530))


# --- conditions, judged a second time by the words of their documentation


def kind(value: object) -> str:
    names: dict[type, str] = {
        bool: "boolean",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return "null" if value is None else names[type(value)]


def equal(left: object, right: object) -> bool:
    return kind(left) == kind(right) and left == right


def judge(schema: dict[str, Any], value: Any) -> bool | None:
    """True, False, or None for a condition that does not apply to the value."""
    outcomes = [judge_keyword(keyword, each, value, schema) for keyword, each in schema.items()]
    return None if None in outcomes else all(outcomes)


def judge_keyword(keyword: str, asked: Any, value: Any, schema: dict[str, Any]) -> bool | None:
    number = kind(value) == "number"
    match keyword:
        case "minimum":
            return value >= asked if number else None
        case "maximum":
            return value <= asked if number else None
        case "exclusiveMinimum":
            return value > asked if number else None
        case "exclusiveMaximum":
            return value < asked if number else None
        case "pattern":
            return re.search(asked, value) is not None if isinstance(value, str) else None
        case "maxLength":
            return len(value) <= asked if isinstance(value, str) else None
        case "minLength":
            return len(value) >= asked if isinstance(value, str) else None
        case "type":
            fits = kind(value) in ([asked] if isinstance(asked, str) else asked)
            return fits if fits or len(schema) == 1 else None
        case "const":
            return equal(value, asked) if kind(value) == kind(asked) else None
        case "enum":
            return any(equal(value, each) for each in asked) if kind(value) in map(kind, asked) else None
        case "items" | "contains":
            if not isinstance(value, list):
                return None
            each = [judge(asked, item) for item in cast("list[Any]", value)]
            return None if None in each else (all if keyword == "items" else any)(map(bool, each))
        case "properties":
            if not isinstance(value, dict) or not asked.keys() <= value.keys():
                return None
            each = [judge(part, value[name]) for name, part in asked.items()]
            return None if None in each else all(map(bool, each))
        case "allOf":
            each = [judge(part, value) for part in asked]
            return None if None in each else all(map(bool, each))
        case "anyOf":
            each = [judge(part, value) for part in asked]
            return None if all(part is None for part in each) else any(map(bool, each))
        case _:
            outcome = judge(asked, value)
            return None if outcome is None else not outcome


def samples(count: int, first: int = 0) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for seed in range(first, first + count):
        dice = random.Random(seed)  # noqa: S311
        pool = VALUES if dice.random() < 0.95 else [each for each in ENORMOUS if each not in (10**400, -(10**400))]
        yield conditions(dice), {name: dice.choice(pool) for name in dice.sample(FIELDS, dice.randint(0, 3))}


def expect_judgments(count: int, first: int = 0) -> None:
    outcomes = {True: 0, False: 0}
    for fields, value in samples(count, first):
        expected = judge({"properties": fields}, value) is True
        assert Condition(fields, excuses=True).holds(value) is expected, (fields, value)
        outcomes[expected] += 1
    assert min(outcomes.values()) > count / 50


def test_a_condition_holds_only_for_values_to_which_it_applies() -> None:
    expect_judgments(2_000)


@pytest.mark.matrix("2,000 of the same conditions; here 100,000")
def test_a_hundred_thousand_conditions_hold_only_for_values_to_which_they_apply() -> None:
    expect_judgments(100_000, 2_000)


CAPPED = """
[[rule]]
id = "cap"
tools = ["pay"]
do = "deny"
unless = { amount = { exclusiveMinimum = 0, maximum = 500 } }
[[rule]]
id = "inside"
tools = ["pay"]
do = "deny"
unless = { to = { items = { pattern = "^[^@]+@acme\\\\.com$" } } }
[[rule]]
id = "not-evil"
tools = ["pay"]
do = "deny"
unless = { to = { not = { contains = { pattern = "evil" } } } }
[end]
"""


@pytest.mark.parametrize("field", ["amount", "to"])
def test_an_absent_wrong_or_enormous_field_never_excuses(field: str) -> None:
    policy = Policy(texts=[CAPPED])
    good: dict[str, Any] = {"amount": 500, "to": ["ann@acme.com"]}
    assert policy.decide(PolicyCall("pay", good, ExecutionContext())).decision == "allow"
    wrong: list[Any] = [True, None, "500", "ann@acme.com", ["ann@acme.com", 7], {}, *ENORMOUS, *UNREADABLE, DEEP]
    wrong += [501, 0, -1] if field == "amount" else [["eve@evil.example"]]
    for value in wrong:
        forms: list[Any] = [{**good, field: value}, None, [], "x", {field: good[field]}, {}]
        for form in forms:
            assert policy.decide(PolicyCall("pay", form, ExecutionContext())).decision == "deny", (field, form)
        mixed = PolicyCall("pay", good, ExecutionContext(), validated={**good, field: value})
        assert policy.decide(mixed).decision == "deny", (field, value)


def test_a_rule_that_denies_matches_what_cannot_be_read_and_one_that_allows_does_not() -> None:
    text = '{0} = ["x"]\n{1} = {{ path = {{ const = "a" }} }}\n'
    for do, decision in (("allow", "deny"), ("deny", "deny"), ("ask", "ask")):
        rules = f'[[rule]]\nid = "r"\ndo = "{do}"\n{text.format("tools", "when")}[end]'
        for value in (math.nan, "\ud800", object(), DEEP):
            asked = PolicyCall("x", {"path": value}, ExecutionContext())
            assert Policy(texts=[rules]).decide(asked).decision == decision


def test_a_file_that_was_cut_off_anywhere_is_refused_or_the_same() -> None:
    dice = random.Random(1)  # noqa: S311
    for _ in range(8):
        text = text_of([rule(dice, number) for number in range(3)], "deny")
        whole = RuleSet(text, "p").document
        for length in range(len(text)):
            try:
                part = RuleSet(text[:length], "p").document
            except ConfigError:
                continue
            assert part == whole, text[:length]


@pytest.mark.parametrize(
    ("pattern", "sample"), [("^(a+)+$", "a"), ("^(a|aa)+$", "a"), ("^.*a.*a.*a.*b$", "a"), ("(x|x)*y", "x")]
)
def test_patterns_take_linear_time(pattern: str, sample: str) -> None:
    condition = Condition({"text": {"pattern": pattern}}, excuses=True)

    def seconds(size: int) -> float:
        document = {"text": sample * size + "!"}
        times: list[float] = []
        for _ in range(5):
            started = time.process_time()
            assert not condition.holds(document)
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(400_000) < 20 * max(seconds(50_000), 1e-4)


def test_globs_of_many_stars_take_linear_time() -> None:
    globbed = Globbed(["**a**a**a**a**a**a**a**a**b"], ignore_case=True)
    started = time.process_time()
    assert not globbed.has(["a" * 200] * 100)
    assert time.process_time() - started < 5
