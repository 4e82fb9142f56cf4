"""`corral executions`: what waits in a ledger is shown, decided and continued."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.chromium import chromium, watched
from tests.cli.terminal import Here

KEY = "one=bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
TOOLS = """
from corral import tool

@tool(needs_approval=True)
async def pay(euros: float) -> str:
    with open("paid", "a") as file:
        file.write(f"{euros:g} ")
    return f"paid {euros:g}"
"""
LACKING = "its program would fail for good without pay: pass them with --tools or --mcp-config"
PROGRAM = "console.log('begun'); return await Promise.all([tools.pay({ euros: 7 }), tools.pay({ euros: 8 })]);"


@pytest.fixture
def project(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    (tmp_path / "shop.py").write_text(TOOLS)
    (tmp_path / "program.ts").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_LEDGER_KEYS", KEY)
    return Here(tmp_path, capfd)


CHANGED = "not decided, because they have changed, or do not wait for a decision"


def test_a_program_pauses_and_is_continued_by_commands(project: Here, tmp_path: Path) -> None:
    ledger = ("--ledger", "runs.db")
    run = project.main("run", "program.ts", "--tools", "shop.py", "--approve", "none", "--no-check", *ledger)
    assert (run.returncode, run.stdout) == (3, "begun\n")
    assert "paused, 2 decisions missing: corral executions show execution-" in run.stderr
    assert run.stderr.endswith(
        '  … tools.pay({"euros":7}) waits for a decision\n  … tools.pay({"euros":8}) waits for a decision\n'
    )
    listed = project.main("executions", "list", *ledger)
    name, status, *_ = listed.stdout.split()
    assert (listed.returncode, status) == (0, "paused")
    shown = project.main("executions", "show", name, *ledger)
    assert PROGRAM in shown.stdout
    assert 'waits for approve or deny: pay({"euros": 7.0})' in shown.stdout
    waiting = project.main("executions", "pending", *ledger)
    first, second = re.findall(r"call (\d:[0-9a-f]{16}) waits", waiting.stdout)
    altered = project.main("executions", "approve", name, "1:0000000000000000", *ledger)
    assert (altered.returncode, altered.stderr) == (2, f"error: {CHANGED}: 1\n")
    approved = project.main("executions", "approve", name, first, "--by", "ann", *ledger)
    assert (approved.returncode, approved.stdout) == (0, "call 1: approve\n")
    shown = project.main("executions", "show", name, *ledger)
    assert f'call {first} is decided, resume it: pay({{"euros": 7.0}})\n\ncall {second} waits for' in shown.stdout
    again = project.main("executions", "approve", name, "1", *ledger)
    assert (again.returncode, again.stderr) == (2, f"error: {CHANGED}: 1\n")
    wrong = project.main("executions", "retry", name, "2", *ledger)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "error: call 2, pay, is pending: decide by one of Approved, Denied\n",
    )
    denied = project.main("executions", "deny", name, "2", "--reason", "too much", *ledger)
    assert (denied.returncode, denied.stdout) == (0, "call 2: deny\n")
    bare = project.main("executions", "resume", name, *ledger)
    assert (bare.returncode, bare.stderr) == (
        2,
        f"error: {LACKING}\n",
    )
    resumed = project.main("executions", "resume", name, "--tools", "shop.py", *ledger)
    assert resumed.returncode == 1
    assert "pay was not approved: too much" in resumed.stderr
    assert (tmp_path / "paid").read_text() == "7 "
    replayed = project.main("executions", "replay", name, "--json", *ledger)
    assert json.loads(replayed.stdout)["error"]["code"] == "approval_denied"
    assert (tmp_path / "paid").read_text() == "7 "
    (tmp_path / "corrected.ts").write_text(PROGRAM.replace("euros: 8", "euros: 9"))
    dry = project.main("executions", "replay", name, "--source", "corrected.ts", *ledger)
    assert (dry.returncode, dry.stdout) == (3, 'begun\nit would call pay({"euros": 9})\n'), dry.stderr
    costs = project.main("executions", "costs", "--days", "1", "--json", *ledger)
    assert [(cost["tool"], cost["calls"]) for cost in map(json.loads, costs.stdout.splitlines())] == [("pay", 2)]
    undone = project.main("executions", "rollback", name, "--tools", "shop.py", *ledger)
    assert (undone.returncode, undone.stdout) == (1, "   1 pay not undoable: the tool has no undo\n")
    with sqlite3.connect("runs.db") as database:
        database.execute("UPDATE executions SET status = 'running', lease = 0")  # as if its host were lost
    bare = project.main("executions", "resume", name, *ledger)
    assert (bare.returncode, bare.stderr) == (2, f"error: {LACKING}\n")
    assert project.main("executions", "prune", "--days", "1", *ledger).stdout == "0 executions deleted\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show",), "`corral executions show` takes the ID of an execution; `corral executions list` shows them"),
        (("list", "execution-1"), "`corral executions list` takes no ID"),
        (("show", "execution-1"), "SqliteLedger('runs.db') has no execution 'execution-1'"),
        (("prune", "--days", "-1"), "prune(): older_than_seconds must not be negative, but is -86400.0"),
        (("show", "execution-1", "--source", "a.ts"), "--source applies only to replay, which runs that program dry"),
        (
            ("settle", "execution-1"),
            "settle needs --value with the result of the call, as JSON; other actions do not take it",
        ),
    ],
)
def test_wrong_usage_is_one_line(project: Here, arguments: tuple[str, ...], message: str) -> None:
    Path("runs.db").touch()
    ended = project.main("executions", *arguments, "--ledger", "runs.db")
    assert (ended.returncode, ended.stderr) == (2, f"error: {message}\n")


@pytest.mark.parametrize("ledger", ["runz.db", "."])
def test_a_ledger_that_does_not_exist_is_not_made(project: Here, ledger: str) -> None:
    ended = project.main("executions", "list", "--ledger", ledger)
    message = f"error: the ledger {ledger} does not exist; pass the file of `corral run --ledger`\n"
    assert (ended.returncode, ended.stderr) == (2, message)
    assert not Path("runz.db").exists()


@pytest.mark.matrix("tests/running undoes changes in the gate; here the command calls that")
def test_changes_are_undone_by_a_command(project: Here, tmp_path: Path) -> None:
    undoing = "\n\ndef undo(input, output, context):\n    with open('paid', 'a') as file:\n        file.write(f'-{input[\"euros\"]:g} ')\n"
    (tmp_path / "shop.py").write_text(TOOLS.replace("needs_approval=True", "undo=lambda *all: undo(*all)") + undoing)
    ledger = ("--ledger", "runs.db")
    project.main("run", "program.ts", "--tools", "shop.py", "--no-check", *ledger)
    name = project.main("executions", "list", *ledger).stdout.split()[0]
    costs = project.main("executions", "costs", "--days", "1", "--json", *ledger)
    assert [(cost["tool"], cost["calls"]) for cost in map(json.loads, costs.stdout.splitlines())] == [("pay", 2)]
    assert project.main("executions", "costs", *ledger).stdout.splitlines()[1].split()[1:3] == ["2", "0"]
    bare = project.main("executions", "rollback", name, "--until", "2", *ledger)
    assert (bare.returncode, bare.stdout) == (1, "   2 pay not undoable: the tool is gone\n")
    undone = project.main("executions", "rollback", name, "--tools", "shop.py", *ledger)
    assert (undone.returncode, undone.stdout) == (0, "   2 pay undone\n   1 pay undone\n")
    assert sorted((tmp_path / "paid").read_text().split()) == ["-7", "-8", "7", "8"]


HOSTILE = "</script><script>document.title = 1</script><img src=x onerror='document.title = 2'><b id=hostile>"
HOSTILE_PROGRAM = f"""
console.log({json.dumps(HOSTILE)});
const first = await tools.echo({{ text: {json.dumps(HOSTILE)} }});
console.log("between \\u202e");
await Promise.all([tools.echo({{ text: "a" }}), tools.echo({{ text: "b" }})]);
console.log("after");
throw new Error(first);
"""


def timeline(project: Here, folder: Path) -> Path:
    (folder / "echo.py").write_text(
        "from corral import tool\n\n@tool\nasync def echo(text: str) -> str:\n    return text\n"
    )
    (folder / "hostile.ts").write_text(HOSTILE_PROGRAM)
    project.main("run", "hostile.ts", "--tools", "echo.py", "--no-check", "--ledger", "runs.db")
    name = project.main("executions", "list", "--ledger", "runs.db").stdout.split()[0]
    done = project.main("executions", "replay", name, "--html", "line.html", "--ledger", "runs.db")
    assert done.returncode == 1, done.stderr
    return folder / "line.html"


def test_a_time_line_is_one_file_in_which_all_texts_are_data(project: Here, tmp_path: Path) -> None:
    page = timeline(project, tmp_path).read_text()
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert "<b id" not in page
    assert "\\\\u{202e}" in page
    policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; base-uri 'none'")
    assert "unsafe" not in policy
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [(step["n"], step["logs"], step["waiting"]) for step in data["steps"]] == [
        (1, 1, [1]),
        (2, 2, [2, 3]),
        (3, 2, [3]),
        (0, 3, []),
    ]


@pytest.mark.matrix("the test before this one reads the file; here a browser does")
def test_a_time_line_in_a_browser_shows_the_state_at_each_call(project: Here, tmp_path: Path) -> None:
    address = timeline(project, tmp_path).as_uri()
    with chromium() as browser:
        page = browser.new_page()
        problems = watched(page)
        page.goto(address)
        expect(page.locator("#console")).to_contain_text("after")
        slider = page.get_by_label("State at a call")
        slider.focus()
        page.keyboard.press("Home")
        expect(page.locator("#where")).to_contain_text("Before the reply to call 1, echo")
        expect(page.locator("#console")).to_have_text(HOSTILE)
        page.keyboard.press("ArrowRight")
        expect(page.locator("#where")).to_contain_text("2 calls wait")
        expect(page.locator("#hostile, img")).to_have_count(0)
        expect(page).to_have_title(re.compile("^execution-"))
        assert problems == []
