"""`corral policy`: checks and tries policy files."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter

from corral import Corral, ExecutionContext
from corral.audit import AuditEvent, AuditFilter, open_audit
from corral.cli.commands.audit import read_events, seconds_of
from corral.cli.options import add_repeatable, add_tools
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import Screen, counted, printable, screen
from corral.cli.tool_loading import load_tools
from corral.errors import ConfigError, PolicyDenied
from corral.policy import Policy, PolicyCall
from corral.policy.checks import Judgment, Past, failed_tests, judge, problems, unlabelled

_MOST_EVENTS = 1_000_000
_HELP = """\
Checks policy files, and shows their decisions on calls.

examples:
  corral policy check policy.toml --tools app.tools
  corral policy test organization.toml team.toml
  corral policy try policy.toml --tool billing.refund --input '{"amount": 700}' --scope support
  corral policy dry-run policy.toml --audit audit.sqlite --since 7d

`check` finds rules for unknown tools and fields, rules that never decide, and tests in the files that fail. `test`
only runs these tests. `try` shows which rules match one call. `dry-run` decides on the calls in an audit log; for
rules with conditions it needs AuditLog(arguments="redacted"), and for rules with scopes it needs --scope.

exit codes: 0 nothing is wrong, 1 a problem, a failed test or a call that is not allowed, 2 wrong usage or a broken file
"""


def add_policy(commands: Commands) -> None:
    parser = add_command(commands, "policy", _policy, _HELP, takes="check|test|try|dry-run")
    parser.add_argument("action", choices=tuple(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument("files", nargs="+", metavar="FILE", help="policy files, which add up")
    parser.add_argument("--tool", metavar="NAME", help="for try: the tool, as name or namespace.name")
    parser.add_argument("--input", metavar="JSON", default="{}", help="for try: the input; default: {}")
    text = "for dry-run: a .jsonl or .sqlite file, or a postgresql:// URL"
    parser.add_argument("--audit", metavar="SOURCE", help=text)
    parser.add_argument("--since", metavar="TIME", default="7d", help="for dry-run: as in corral audit; default: 7d")
    parser.add_argument("--user", dest="user_id", metavar="ID", default="anonymous", help="for try: the caller")
    text = "for try: the caller's; for dry-run: only calls of this organization"
    parser.add_argument("--organization", dest="organization_id", metavar="ID", help=text)
    text = "for try and dry-run: a scope of the caller"
    add_repeatable(parser, "--scope", "SCOPE", text, dest="scopes", default=None)
    add_tools(parser)


def _policy(arguments: argparse.Namespace) -> int:
    policy = Policy(*arguments.files)
    with screen() as view:
        return _ACTIONS[arguments.action](arguments, policy, view)


def _check(arguments: argparse.Namespace, policy: Policy, view: Screen) -> int:
    found, notes = asyncio.run(_problems(arguments, policy, view))
    problems = [*found, *failed_tests(policy)]
    for each in (*problems, *notes):
        view.out(printable(each))
    rules = sum(len(each.document.rule) for each in policy.rule_sets)
    view.out(f"{counted(rules, 'rule')}, {counted(_tests(policy), 'test')}, {counted(len(problems), 'problem')}")
    return 1 if problems else 0


async def _problems(arguments: argparse.Namespace, policy: Policy, view: Screen) -> tuple[list[str], list[str]]:
    """Returns problems of the rules, and notes on tools without labels."""
    if not (arguments.tools or arguments.mcp_configs):
        return problems(policy), []
    with moving(view, "loading tools"):
        corral = Corral(load_tools(arguments.tools, arguments.mcp_configs))
        async with corral.connected():
            return problems(policy, corral.tools), unlabelled(policy, corral.tools)


def _test(arguments: argparse.Namespace, policy: Policy, view: Screen) -> int:  # noqa: ARG001
    failed = failed_tests(policy)
    for each in failed:
        view.out(printable(each))
    view.out(f"{counted(_tests(policy), 'test')}, {len(failed)} failed")
    return 1 if failed else 0


def _tests(policy: Policy) -> int:
    return sum(len(each.document.test) for each in policy.rule_sets)


def _try(arguments: argparse.Namespace, policy: Policy, view: Screen) -> int:
    if arguments.tool is None:
        raise ConfigError("`corral policy try` needs --tool NAME")
    try:
        value = json.loads(arguments.input)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--input is not JSON: {error}") from None
    context = ExecutionContext(
        user_id=arguments.user_id, organization_id=arguments.organization_id, scopes=arguments.scopes or ()
    )
    verdict = policy.decide(PolicyCall(arguments.tool, value, context))
    view.out(f"{verdict.decision}" if verdict.would is None else f"{verdict.decision} (observed: {verdict.would})")
    known = {each.id: each for rules in policy.rule_sets for each in rules.document.rule}
    for each in verdict.rules:
        rule = known[each]
        view.out(f"  {rule.do:5}  {rule.id}{': ' if rule.reason else ''}{printable(rule.reason)}")
    if not verdict.rules:
        view.out("  no rule matches")
    return 0 if verdict.decision in ("allow", "limit") else 1


def _dry_run(arguments: argparse.Namespace, policy: Policy, view: Screen) -> int:
    if arguments.audit is None:
        raise ConfigError("`corral policy dry-run` needs --audit SOURCE")
    scopes = None if arguments.scopes is None else frozenset[str](arguments.scopes)
    criteria = AuditFilter(
        kind="call", organization_id=arguments.organization_id, since=seconds_of(arguments.since, "--since")
    )
    events = asyncio.run(_events(arguments.audit, criteria, view))
    counts: Counter[Judgment] = Counter()
    unjudged = 0
    for event in events:
        judgment = _judge(policy, event, scopes)
        unjudged += judgment is None
        if judgment is not None:
            counts[judgment] += 1
    for judgment, number in counts.most_common():
        if judgment.past != judgment.now:
            by = "no rule allows it" if judgment.rule is None else f"rule {judgment.rule}"
            view.out(f"{number:>7,}  {printable(judgment.tool)}: was {judgment.past}, would be {judgment.now} ({by})")
    changed = sum(number for each, number in counts.items() if each.past != each.now)
    view.out(f"{counted(len(events), 'call')}, {changed:,} decided differently, {unjudged:,} not judged")
    return 1 if changed else 0


def _judge(policy: Policy, event: AuditEvent, scopes: frozenset[str] | None) -> Judgment | None:
    if event.tool is None or event.code == "tool_not_found":
        return None
    past: Past = "asked" if event.decision is not None or event.outcome == "pending" else "allowed"
    if event.outcome == "denied" and event.decision is None:
        if event.code not in (PolicyDenied.code, "approval_denied"):
            return None  # a scope or a rate, on which no policy decides
        past = "denied"
    context = ExecutionContext(user_id=event.user_id or "anonymous", organization_id=event.organization_id)
    return judge(policy, event.tool, event.arguments, context, past, scopes)


async def _events(source: str, criteria: AuditFilter, view: Screen) -> list[AuditEvent]:
    reader = open_audit(source)
    try:
        return await read_events(reader, criteria, _MOST_EVENTS)
    finally:
        if reader.torn:
            view.err(f"{counted(reader.torn, 'torn line')} left out")
        await reader.aclose()


_ACTIONS = {"check": _check, "test": _test, "try": _try, "dry-run": _dry_run}
