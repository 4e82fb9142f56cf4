"""Checks of policies: rules that miss their aim, the tests in files, and verdicts on calls of earlier executions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from corral.arguments import did_you_mean
from corral.policy.flow import DataFlow
from corral.policy.policy import Policy
from corral.policy.rules import RANKS, CompiledRule, Globbed, PolicyCall, RuleSet, names_of
from corral.tools import Tool, ToolRegistry
from corral.types import ExecutionContext

_NAMED = 3
Past: TypeAlias = Literal["allowed", "asked", "denied"]
"""Outcome of an earlier call, as far as a policy is concerned."""
_CUT = ("…", "[redacted]", "[integer of", " bytes]")
"""Marks of texts that an audit log does not have in full."""


def failed_tests(policy: Policy) -> list[str]:
    """Runs the tests in the files, against all files together. Returns a line about each test that failed."""
    failed: list[str] = []
    for rules in policy.rule_sets:
        for number, case in enumerate(rules.document.test, 1):
            caller = case.context
            context = ExecutionContext(
                user_id=caller.user_id, organization_id=caller.organization_id, scopes=caller.scopes
            )
            verdict = policy.decide(PolicyCall(case.tool, case.arguments, context))
            decision = verdict.would or verdict.decision
            if decision != case.expect:
                by = "no rule" if verdict.rule is None else f"rule {verdict.rule}"
                failed.append(f"{rules.name}: test {number} of {case.tool}: {decision} by {by}, not {case.expect}")
    return failed


def problems(policy: Policy, tools: ToolRegistry | None = None) -> list[str]:
    """Returns a line about each rule that misses its aim. `tools` are those that programs have, if they are known.

    With tools, a rule has to match one, and its conditions have to be about fields of their inputs. Without them, only
    rules that never decide are found.
    """
    return [text for rules in policy.rule_sets for text in _problems(rules, tools)]


def _problems(rules: RuleSet, tools: ToolRegistry | None) -> Iterator[str]:
    known = None if tools is None else {str(name): tool for name, tool in tools.snapshot().items()}
    subjects = {each.rule.id: _Subjects(each, known) for each in rules.rules}
    for each in rules.rules:
        where = f"{rules.name}: rule {each.rule.id!r}"
        if known is not None:
            for glob in each.rule.tools:
                globbed = Globbed([glob], ignore_case=each.rule.do != "allow")
                if not any(globbed.has(names_of(path, tool)) for path, tool in known.items()):
                    yield f"{where}: no tool matches {glob!r}; {did_you_mean(glob, known)}".rstrip("; ")
            yield from (f"{where}: {text}" for text in _unknown_fields(each, known))
        if each.rule.do == "allow" and each.limit is None and rules.default == "allow":
            yield f'{where} never decides: the default is "allow"'
        for other in rules.rules:
            if other is not each and subjects[other.rule.id].covers(subjects[each.rule.id]):
                yield f"{where} never decides: rule {other.rule.id!r} {_VERBS[other.rule.do]} all its calls"
                break
    for label in rules.document.label:
        globbed = Globbed(label.tools, ignore_case=False)
        where = f"{rules.name}: label of {', '.join(label.tools[:_NAMED])}"
        about = [tool for path, tool in (known or {}).items() if globbed.has((path,))]
        if known is not None and not about:
            yield f"{where}: no tool matches"
        names = {each.partition(".")[0] for each in label.sends}
        yield from (f"{where}: {text}" for text in _absent_fields(names, about))


def unlabelled(policy: Policy, tools: ToolRegistry) -> list[str]:
    """Returns a line about each tool that neither a file nor its own settings label: its assumed label, if a file has
    labels."""
    flow = DataFlow(policy)
    if not flow.is_active:
        return []
    lines: list[str] = []
    for path, tool in tools.snapshot().items():
        own = tool.untrusted is not None or tool.changes is not None or bool(tool.sends)
        if own or policy.labels(str(path)):
            continue
        label = flow.label(str(path), tool)
        parts = ["results are untrusted" if label.untrusted else "results are trusted"]
        parts += [f"sends by {', '.join(label.sends)}"] if label.sends else []
        parts += ["changes something"] if label.changes else []
        lines.append(f"{path} has no label: {'; '.join(parts)}")
    return lines


_VERBS = {"allow": "allows", "limit": "limits", "ask": "asks about", "deny": "denies"}


class _Subjects:
    """Tools and callers that a rule is about."""

    def __init__(self, rule: CompiledRule, known: Mapping[str, Tool] | None) -> None:
        self._rule = rule
        who = rule.rule.who
        self._scopes, self._organizations = frozenset(who.scopes), frozenset(who.organizations)
        self._tools = frozenset(
            rule.rule.tools if known is None else (path for path in known if rule.is_about(names_of(path, known[path])))
        )

    def covers(self, other: _Subjects) -> bool:
        """True if this rule decides on all calls of the other one's. Of two equal rules, only the first covers."""
        own, others = self._rule.rule, other._rule.rule
        if not self._rule.is_unconditional or own.do in ("allow", "limit") or not self._spans(other):
            return False
        if RANKS[own.do] > RANKS[others.do]:
            return True
        is_equal = other._rule.is_unconditional and other._spans(self)
        return own.do == others.do and (not is_equal or own.id < others.id)

    def _spans(self, other: _Subjects) -> bool:
        return (
            bool(other._tools)
            and other._tools <= self._tools
            and _is_within(other._scopes, self._scopes)
            and _is_within(other._organizations, self._organizations)
        )


def _is_within(inner: frozenset[str], outer: frozenset[str]) -> bool:
    """True if callers with one of the `inner` names have one of the `outer` ones; no names stand for all callers."""
    return not outer or (bool(inner) and inner <= outer)


def _unknown_fields(rule: CompiledRule, known: Mapping[str, Tool]) -> Iterator[str]:
    """Yields a text about each field of a condition that no tool of the rule has."""
    about = [tool for path, tool in known.items() if rule.is_about(names_of(path, tool))]
    yield from _absent_fields({**rule.rule.when, **rule.rule.unless}, about)


def _absent_fields(names: Iterable[str], about: Sequence[Tool]) -> Iterator[str]:
    schemas = [tool.input_schema for tool in about]
    if not about or any(_takes_any_field(schema) for schema in schemas):
        return
    fields = {name for schema in schemas for name in cast("dict[str, Any]", (schema or {}).get("properties") or {})}
    for name in names:
        if name not in fields:
            labels = ", ".join(tool.label for tool in about[:_NAMED])
            yield f"no input of {labels} has a field {name!r}; {did_you_mean(name, fields)}".rstrip("; ")


def _takes_any_field(schema: Mapping[str, Any] | None) -> bool:
    return schema is None or not isinstance(schema.get("properties"), dict) or "$ref" in schema or "allOf" in schema


class Judgment(NamedTuple):
    """Decision of a policy on a call in an audit log, and its outcome then."""

    tool: str
    past: Past
    now: Past
    rule: str | None


def judge(
    policy: Policy, tool: str, arguments: object, context: ExecutionContext, past: Past, scopes: frozenset[str] | None
) -> Judgment | None:
    """Decides on an earlier call; None if the audit log lacks something that a matching rule needs.

    A rule with scopes needs `scopes`, which the log does not have. A rule with conditions needs a complete copy of the
    call's input.
    """
    call = PolicyCall(tool, arguments, context, scopes=scopes or frozenset())
    for rules in policy.rule_sets:
        for each in rules.rules_of((tool,)):
            organizations = each.rule.who.organizations
            if organizations and context.organization_id not in organizations:
                continue
            if each.rule.who.scopes and scopes is None:
                return None
            if not each.is_unconditional and (not isinstance(arguments, dict) or _is_cut(cast("object", arguments))):
                return None
    verdict = policy.decide(call)
    decision = verdict.would or verdict.decision
    now: Past = "denied" if decision == "deny" else "asked" if decision == "ask" else "allowed"
    return Judgment(tool, past, now, verdict.rule)


def _is_cut(value: object) -> bool:
    match value:
        case str():
            return any(each in value for each in _CUT)
        case dict():
            members = cast("dict[str, object]", value)
            return any(map(_is_cut, members)) or any(map(_is_cut, members.values()))
        case list():
            return any(map(_is_cut, cast("list[object]", value)))
        case _:
            return False
