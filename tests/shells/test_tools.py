"""Tools over a shell: by programs of both languages, and in a small repository of git."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral import Corral
from corral.errors import ToolError
from corral.sandboxes import DenoSandbox, SandboxProvider
from corral.shells import JailedShell, LocalShell, current_shell, shell_tools, use_shell
from corral.types import Language

pytestmark = pytest.mark.anyio

_FIX = """
const before = await tools.bash({ command: "python3 -Bm unittest -q test_add 2>&1" });
const [place] = await tools.grep({ pattern: "return a - b", glob: "*.py" });
const replaced = await tools.edit_file({ path: place.split(":")[0], old: "a - b", new: "a + b" });
const after = await tools.bash({ command: "python3 -Bm unittest -q test_add 2>&1" });
await tools.write_file({ path: "docs/CHANGES.md", text: "Fixed add.\\n" });
const commit = await tools.bash({ command: "git add -A && git commit -qm fix && git log --oneline | wc -l" });
const second = await tools.read_file({ path: "add.py", first_line: 2, last_line: 2 });
return [before.exit_code, place, replaced, after.exit_code, commit.stdout.trim(), second, await tools.glob({ pattern: "**/*.md" }),
        await tools.list_files({ path: "docs" })];
"""
_SETUP = """
git init -q . && git config user.email ann@example.com && git config user.name Ann
printf 'def add(a, b):\\n    return a - b\\n' > add.py
printf 'import unittest, add\\nclass T(unittest.TestCase):\\n    def test(self): self.assertEqual(add.add(2, 3), 5)\\n' > test_add.py
printf '__pycache__\\n' > .gitignore
git add -A && git commit -qm start
"""


async def test_a_program_greps_edits_tests_and_commits(warm: dict[Language, str | SandboxProvider]) -> None:
    async with JailedShell() as shell, Corral(shell_tools(shell), sandbox=warm, check=True) as corral:
        await shell.run(_SETUP, check=True)
        result = await corral.execute(_FIX)
        assert result.error is None, result.error
        assert result.value == [
            1,
            "./add.py:2:    return a - b",
            1,
            0,
            "2",
            "    return a + b\n",
            ["docs/CHANGES.md"],
            ["CHANGES.md"],
        ]
        result = await corral.execute(
            "try:\n    await tools.edit_file(path='add.py', old='a', new='b')\nexcept Exception as e:\n    said = str(e)\nsaid",
            language="python",
        )
        assert "times" in str(result.value)


async def test_the_shell_of_a_call_changes_from_step_to_step(tmp_path: Path, warm_deno: DenoSandbox) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    program = "return (await tools.bash({ command: 'basename $PWD' })).stdout.trim()"
    async with Corral(shell_tools(), sandbox=warm_deno, check=False) as corral:
        for name in ("one", "two"):
            async with LocalShell(tmp_path / name) as shell:
                with use_shell(shell):
                    assert current_shell().description == shell.description
                    result = await corral.execute(program)
                assert result.value == name, result
        result = await corral.execute(program)
        assert result.error is not None
        assert "use_shell(shell)" in result.error.message
    with pytest.raises(ToolError, match="shell_tools"):
        current_shell()


async def test_an_agent_works_in_a_shell_by_one_tool(warm_deno: DenoSandbox) -> None:
    """The model tool of a Corral whose tools are a shell's, called as an agent's framework calls it."""
    async with JailedShell() as shell, Corral(shell_tools(shell), sandbox=warm_deno, check=False) as corral:
        model_tool = corral.model.tools()[0]
        assert "bash" in model_tool.description
        result = await model_tool.run({"code": "return (await tools.bash({command: 'echo $((6 * 7))'})).stdout"})
        assert "42" in str(result)
