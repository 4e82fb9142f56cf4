"""`corral snippets`: a recorded program becomes the folder of a skill."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import anyio
import pytest

from corral import Corral, ExecutionContext, Skill, tool
from corral.errors import ConfigError
from corral.ledger import SqliteLedger
from corral.policy import Policy
from corral.testing import replays
from corral.types import Language
from tests.cli.terminal import Here

TOOLS = '''
from corral import tool

@tool(untrusted=False)
def add(left: int, right: int{more}) -> int:
    """Adds two numbers."""
    return left + right
'''
POLICY = '[[label]]\ntools = ["add"]\nuntrusted = {}\n[end]'
PROGRAM = "return await tools.add({left: 1, right: 2})"
FUNCTION = """\
export async function sum({ start }: { start: number }) {
    return await tools.add({left: start, right: 2})
}
"""


@tool(read_only=True)
def add(left: int, right: int) -> int:
    """Adds two numbers."""
    return left + right


async def _recorded(*, untrusted: bool | None, source: str = PROGRAM, language: Language = "typescript") -> str:
    policy = None if untrusted is None else Policy(texts=[POLICY.format(str(untrusted).lower())])
    context = ExecutionContext(user_id="ann", session_id="session")
    ledger = SqliteLedger("runs.db", keys={"one": b"k" * 32})
    async with Corral([add], policy=policy, ledger=ledger, check=False) as corral:
        if untrusted:
            await corral.execute(
                "console.log('x'); return 'word' + await tools.add({left: 3, right: 4})", context=context
            )
        result = await corral.execute(source, language=language, context=context, durable=True)
        assert result.value == 3
        return result.execution_id


@pytest.fixture
def project(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    (tmp_path / "shop.py").write_text(TOOLS.format(more=""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_LEDGER_KEYS", "one=a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=")
    return Here(tmp_path, capfd)


def test_a_program_that_worked_becomes_a_skill_that_is_tested(project: Here, tmp_path: Path) -> None:
    name = anyio.run(lambda: _recorded(untrusted=False))
    options = ("--ledger", "runs.db", "--tools", "shop.py")
    done = project.main(
        "snippets", "export", name, "--name", "sum", "--description", "Adds.", "--input", "start=1", *options
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "draft" not in done.stdout
    folder = tmp_path / "skills" / "sum"
    assert Skill(folder).description == "Adds."
    assert (folder / "program.ts").read_text() == FUNCTION
    assert 'import { sum } from "skills/sum/program.ts";\nawait sum({"start": 1});' in (folder / "SKILL.md").read_text()
    (run,) = replays(folder / "recorded.db", keys={})
    exported = runpy.run_path(str(folder / "test_sum.py"))
    anyio.run(exported["test_the_program_does_what_it_did"], run)
    again = project.main("snippets", "export", name, "--name", "sum", *options)
    assert again.returncode == 2
    assert "skills/sum exists" in again.stderr
    assert project.main("snippets", "check", "skills/sum", "--tools", "shop.py").returncode == 0
    (folder / "program.ts").write_text(FUNCTION.replace("right: 2", "right: 3"))
    with pytest.raises(AssertionError, match="status differs from the recorded one"):
        anyio.run(exported["test_the_program_does_what_it_did"], run)
    (tmp_path / "other.py").write_text(TOOLS.format(more=", unit: str = ''"))
    changed = project.main("snippets", "check", "skills/sum", "--tools", "other.py")
    assert changed.returncode == 1
    assert "tools.add has changed its schemas\nprogram.ts was changed" in changed.stdout


@pytest.mark.matrix("the other form of the same export: the source as it ran")
def test_a_program_that_cannot_be_a_function_keeps_its_line_ends(project: Here) -> None:
    source = "from __future__ import annotations\r\nawait tools.add(left=1, right=2)\r\n"
    name = anyio.run(partial(_recorded, untrusted=False, source=source, language="python"))
    options = ("--ledger", "runs.db", "--tools", "shop.py")
    done = project.main("snippets", "export", name, "--name", "sum-up", *options)
    reason = "error: --name sum-up: programs in Python cannot import it; use a-z, 0-9 and _\n"
    assert (done.returncode, done.stderr) == (2, reason)
    done = project.main("snippets", "export", name, "--name", "sum", *options)
    assert (done.returncode, "is the source as it ran" in done.stdout) == (0, True)
    checked = project.main("snippets", "check", "skills/sum", "--tools", "shop.py")
    assert (checked.returncode, checked.stdout) == (0, "1 tool, 0 problems\n")


def test_an_input_that_the_program_does_not_have_is_a_clear_error(project: Here, tmp_path: Path) -> None:
    name = anyio.run(lambda: _recorded(untrusted=False))
    options = ("--ledger", "runs.db", "--tools", "shop.py")
    for text in ("start=9", "start", "1=1", "new=1", "tools=1"):
        done = project.main("snippets", "export", name, "--name", "sum", "--input", text, *options)
        assert (done.returncode, done.stderr.count("\n"), "--input" in done.stderr) == (2, 1, True), done.stderr
    twice = ("--input", "start=1", "--input", "start=2")
    done = project.main("snippets", "export", name, "--name", "sum", *twice, *options)
    assert (done.returncode, "once for each" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "skills").exists()


@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", '{"file": "program.ts", "tools": {}}', '{"program": "", "file": "program.ts", "tools": [1]}'],
)
def test_a_manifest_that_is_broken_is_a_clear_error(project: Here, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "program.ts").touch()
    (tmp_path / "snippet.json").write_text(manifest)
    done = project.main("snippets", "check", str(tmp_path), "--tools", "shop.py")
    assert done.returncode == 2
    assert "is not a folder of `corral snippets export`" in done.stderr


@pytest.mark.parametrize(
    ("untrusted", "reason"),
    [
        (True, "its session has read text that others wrote"),
        pytest.param(
            None,
            "what its session has read is unknown",
            marks=pytest.mark.matrix("the other case of the same test; here no policy follows data"),
        ),
    ],
)
def test_a_program_of_an_exposed_session_is_a_draft(
    project: Here, tmp_path: Path, *, untrusted: bool | None, reason: str
) -> None:
    name = anyio.run(lambda: _recorded(untrusted=untrusted))
    done = project.main("snippets", "export", name, "--name", "sum", "--ledger", "runs.db", "--tools", "shop.py")
    assert f"as a draft: {reason}" in done.stdout
    with pytest.raises(ConfigError, match=r"SKILL.md"):
        Skill(tmp_path / "skills" / "sum")
