"""The policies in the documentation, and `corral policy`."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from corral import Tool, define_tool
from corral.audit import SqliteSink
from corral.policy import Policy
from corral.policy.checks import failed_tests, problems, unlabelled
from corral.tools import ToolRegistry
from tests.audit.events import event
from tests.cli.terminal import Ended, Here
from tests.policy.test_calls import TOOLS, rules

DOCS = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
SHOWN = [text for text in re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL) if "[end]" in text]


def test_the_policies_in_the_documentation_pass_their_tests() -> None:
    assert len(SHOWN) >= 11
    for text in SHOWN:
        policy = Policy(texts=[text])
        document = policy.rule_sets[0].document
        assert document.test or not document.rule  # a file may have labels only
        assert failed_tests(policy) == []


@pytest.fixture
def here(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(tmp_path, capfd)


def run(here: Here, text: str, action: str, *arguments: str) -> Ended:
    (here.directory / "policy.toml").write_text(text)
    return here.main("policy", action, "policy.toml", *arguments)


def test_problems_of_a_policy_are_found() -> None:
    text = rules(
        'id = "misspelt"\ntools = ["pay.refnd"]\ndo = "deny"',
        'id = "field"\ntools = ["pay.refund"]\ndo = "deny"\nunless = { amout = { maximum = 5 } }',
        'id = "wide"\ntools = ["pay.*"]\ndo = "deny"',
        'id = "narrow"\ntools = ["pay.export"]\ndo = "ask"',
        'id = "needless"\ntools = ["rows"]\ndo = "allow"',
        first='default = "allow"',
    )
    found = problems(Policy(texts=[text]), ToolRegistry(*TOOLS))
    assert found == [
        "text 1: rule 'misspelt': no tool matches 'pay.refnd'; did you mean 'pay.refund'?",
        "text 1: rule 'field': no input of pay.refund has a field 'amout'; did you mean 'amount'?",
        "text 1: rule 'field' never decides: rule 'wide' denies all its calls",
        "text 1: rule 'narrow' never decides: rule 'wide' denies all its calls",
        "text 1: rule 'needless' never decides: the default is \"allow\"",
    ]
    assert problems(Policy(texts=[SHOWN[0]])) == []
    label = '[[label]]\ntools = ["pay.refund"]\nsends = ["too", "amount.x"]\n[end]'
    assert problems(Policy(texts=[label]), ToolRegistry(*TOOLS)) == [
        "text 1: label of pay.refund: no input of pay.refund has a field 'too'"
    ]


def test_tools_without_labels_are_listed_with_what_they_count_as() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}}

    def made(name: str, **settings: Any) -> Tool:
        return define_tool(name=name, input_schema=schema, execute=str, **settings)

    registry = ToolRegistry(
        made("labelled"),
        made("own", untrusted=False),
        made("send"),
        made("claims", read_only=True, trusted_hints=False),
    )
    policy = Policy(texts=['[[label]]\ntools = ["labelled"]\nuntrusted = false\n[end]'])
    assert unlabelled(policy, registry) == [
        "claims has no label: results are untrusted; sends by to; changes something",
        "send has no label: results are untrusted; sends by to",
    ]
    assert unlabelled(Policy(texts=["[end]"]), registry) == []


def test_a_policy_is_checked_and_tried_on_the_command_line(here: Here) -> None:
    ended = run(here, SHOWN[0], "check")
    assert (ended.returncode, ended.stdout) == (0, "3 rules, 1 test, 0 problems\n")
    ended = run(here, SHOWN[0].replace("501", "499"), "test")
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [
        "policy.toml: test 1 of billing.refund: allow by rule refund, not deny",
        "1 test, 1 failed",
    ]
    ended = run(here, SHOWN[0], "try", "--tool", "billing.refund", "--input", '{"amount": 700}', "--scope", "support")
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [
        "deny",
        "  deny   refund-cap: refunds are at most 500",
        "  allow  refund",
    ]
    ended = run(here, SHOWN[0].replace("[end]", ""), "check")
    assert (ended.returncode, "the last line must be [end]" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the last line must be [end]"),
        ("[end]\n[[rule]] # [end]", "the last line must be [end]"),
        ("\ufeff[end]", None),
        ("\ufeff\ufeff[end]", "not TOML"),
        (SHOWN[0].replace("\n", "\r\n"), None),
        ("rule = 3\n[end]", "rule: Input should be a valid list"),
        ("rules = 3\n[end]", "rules: there is no such key"),
        (rules('id = "a"\ntools = ["x"]\ndo = "deny"\nwhere = 1'), "rule 'a'.where: there is no such key"),
        (rules('id = "a"\ntools = "x"\ndo = "deny"'), "rule 'a'.tools: Input should be a valid list"),
        (rules('id = "a"\ntools = ["x y"]\ndo = "deny"'), "rule 'a'.tools.0: String should match"),
        (
            rules('id = "a"\ntools = ["x"]\ndo = "deny"', 'id = "a"\ntools = ["y"]\ndo = "ask"'),
            "two rules have the id 'a'",
        ),
        (rules('id = "a"\ntools = ["x"]\ndo = "allow"\nwho = { organizations = [] }'), "rule 'a'.who.organizations"),
        (rules('id = "a"\ntools = ["x"]\ndo = "deny"\nwhen = { a = { pattern = "(" } }'), "rule 'a': \"(\" is not a"),
        (
            rules('id = "a"\ntools = ["x"]\ndo = "deny"\nwhen = { a = { maximum = nan } }'),
            "rule 'a': null is not of type",
        ),
        ("#" * 1_000_001 + "\n[end]", "more than 1,000,000 characters"),
    ],
)
def test_an_odd_file_is_read_or_refused_in_one_line(here: Here, text: str, problem: str | None) -> None:
    (here.directory / "policy.toml").write_text(text, newline="")
    ended = here.main("policy", "test", "policy.toml")
    assert (ended.returncode, ended.stderr.count("\n")) == ((0, 0) if problem is None else (2, 1)), ended.stderr
    assert (problem or "") in ended.stderr


def test_odd_arguments_are_refused_in_one_line(here: Here) -> None:
    (here.directory / "policy.toml").write_text("[end]")
    (here.directory / "audit.sqlite").write_text("x")
    (here.directory / "folder.toml").mkdir()
    for arguments, problem in (
        (["check", "none.toml"], "none.toml cannot be read"),
        (["check", "folder.toml"], "folder.toml cannot be read"),
        (["check", "policy.toml", "--tools", "none"], "none"),
        (["try", "policy.toml"], "needs --tool NAME"),
        (["try", "policy.toml", "--tool", "x", "--input", "{"], "--input is not JSON"),
        (["try", "policy.toml", "--tool", "x", "--input", "[" * 9_999], "--input is not JSON"),
        (["dry-run", "policy.toml"], "needs --audit SOURCE"),
        (["dry-run", "policy.toml", "--audit", "none.sqlite"], "does not exist"),
        (["dry-run", "policy.toml", "--audit", "audit.sqlite"], "the audit log cannot be read: OperationalError"),
        (["dry-run", "policy.toml", "--audit", "audit.sqlite", "--since", "7x"], "--since '7x'"),
    ):
        ended = here.main("policy", *arguments)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
        assert problem in ended.stderr


def test_a_dry_run_compares_with_the_calls_of_an_audit_log(here: Here) -> None:
    now = time.time()
    calls: list[dict[str, Any]] = [
        {"tool": "crm.get_user", "arguments": {"id": 1}},
        {"tool": "billing.refund", "arguments": {"amount": 50}},
        {"tool": "billing.refund", "arguments": {"amount": 600}},
        {"tool": "billing.refund", "arguments": {"amount": 600}, "outcome": "denied", "code": "policy_denied"},
        {"tool": "billing.refund", "arguments": {"amount": "[redacted]"}},
        {"tool": "billing.refund", "arguments": "sha256:00"},
        {"tool": "billing.close", "arguments": {}, "outcome": "denied", "code": "scope_denied"},
        {"tool": "billing.close", "arguments": {}},
        {"tool": "search", "arguments": {}},
    ]
    sink = SqliteSink(here.directory / "audit.sqlite")
    sink.write([event(time=now - 60, **each) for each in calls])
    sink.aclose()
    ended = run(here, SHOWN[0], "dry-run", "--audit", "audit.sqlite", "--scope", "support")
    assert ended.returncode == 1
    assert [" ".join(line.split()) for line in ended.stdout.splitlines()] == [
        "1 billing.refund: was allowed, would be denied (rule refund-cap)",
        "1 billing.close: was allowed, would be denied (no rule allows it)",
        "9 calls, 2 decided differently, 3 not judged",
    ]
    ended = run(here, SHOWN[0], "dry-run", "--audit", "audit.sqlite")
    assert "6 not judged" in ended.stdout


def test_a_program_on_the_command_line_is_held_to_a_policy(here: Here) -> None:
    (here.directory / "policy.toml").write_text(
        rules('id = "no"\ntools = ["pay"]\ndo = "deny"\nunless = { n = { maximum = 5 } }')
    )
    (here.directory / "shop.py").write_text("def pay(n: int) -> int:\n    return n\ntools = [pay]\n")
    (here.directory / "p.ts").write_text("try { return await tools.pay({ n: 6 }) } catch (e) { return e.message }")
    ended = here.main("run", "p.ts", "--tools", "shop.py", "--policy", "policy.toml", "--check", "off", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["value"] == "tools.pay: rule no denies this call"
