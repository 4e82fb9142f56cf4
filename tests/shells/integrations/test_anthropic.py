"""The tools of Anthropic's models over a shell, with a scripted model on loopback where there is an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaMessageParam, BetaToolUseBlock

from corral import Corral
from corral.sessions import Mount, Scratch
from corral.shells import LocalShell, Shell, ShellLimits
from corral.shells.integrations.anthropic import ComputerTools
from tests.integrations.stubs import Call, Script, stub
from tests.shells.integrations.repository import make_repository

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncGenerator[ComputerTools]:
    async with LocalShell(tmp_path) as shell, ComputerTools(shell, tools=("bash", "text_editor", "memory")) as tools:
        yield tools


async def ask(tools: ComputerTools, name: str, **given: Any) -> tuple[bool, str]:
    """If it failed, and the text."""
    answer = await tools.call(BetaToolUseBlock(type="tool_use", id="1", name=name, input=given))
    assert answer is not None
    return bool(answer.get("is_error")), str(answer.get("content"))


def script(read: list[str]) -> Script:
    edit = "str_replace_based_edit_tool"
    for call in (
        Call("bash", {"command": "cd /tmp; cd - >/dev/null; python3 -B test_sums.py 2>&1 | tail -n 1"}),
        Call("bash", {"command": "grep -n return sums.py"}),
        Call(edit, {"command": "str_replace", "path": "sums.py", "old_str": "a - b", "new_str": "a + b"}),
        Call(edit, {"command": "create", "path": "NOTES", "file_text": "mended\n"}),
        Call("bash", {"command": "python3 -B test_sums.py && git status --short"}),
    ):
        read += yield [call]
    yield "Done."


async def agent(shell: Shell) -> list[str]:
    read: list[str] = []
    with stub(script(read)) as model:
        async with (
            AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0) as client,
            ComputerTools(shell) as tools,
        ):
            messages: list[BetaMessageParam] = [{"role": "user", "content": "Mend it."}]
            while True:
                message = await client.beta.messages.create(
                    model="scripted", max_tokens=1_000, messages=messages, tools=tools.tools
                )
                if not (results := await tools.results(message)):
                    break
                content = [block.model_dump(exclude_none=True) for block in message.content]
                messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]  # pyright: ignore[reportAssignmentType]
    assert model.requests[0]["tools"][0] == {"type": "bash_20250124", "name": "bash"}
    return read


async def test_an_agent_mends_a_repository(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        await make_repository(shell)
        read = await agent(shell)
    assert "AssertionError" in read[0]
    assert "return a - b" in read[1]
    assert read[4].splitlines() == [" M sums.py", "?? NOTES"]


@pytest.mark.matrix("on this machine in the gate, and in a session by the agents of test_toolsets; here by this one")
async def test_an_agent_mends_a_repository_in_a_session() -> None:
    files = [Mount("/workspace", Scratch())]
    async with Corral(check=False) as corral, corral.session(files=files, shell=ShellLimits()) as session:
        await make_repository(session.shell)
        read = await agent(session.shell)
    assert read[4].splitlines() == [" M sums.py", "?? NOTES"]


async def test_bash_tells_codes_and_restarts(tools: ComputerTools) -> None:
    assert await ask(tools, "bash", command="x=1; echo a; echo b >&2; false") == (False, "a\nb\n[exit code 1]")
    failed, text = await ask(tools, "bash", command="exit 1")
    assert failed
    assert "bash has ended" in text
    await ask(tools, "bash", command="x=1")
    assert await ask(tools, "bash", restart=True) == (False, "bash has been restarted")
    assert await ask(tools, "bash", command='echo "[$x]"') == (False, "[]")
    assert (await ask(tools, "bash"))[0]


async def test_files_are_viewed_by_ranges_and_changed(tools: ComputerTools) -> None:
    name = "str_replace_based_edit_tool"
    await ask(tools, name, command="create", path="a/b.txt", file_text="one\ntwo\nthree\n")
    assert await ask(tools, name, command="view", path="a/b.txt", view_range=[2, -1]) == (
        False,
        "     2\ttwo\n     3\tthree",
    )
    await ask(tools, name, command="insert", path="a/b.txt", insert_line=1, insert_text="half")
    await ask(tools, name, command="str_replace", path="a/b.txt", old_str="three", new_str="3")
    assert (await ask(tools, name, command="view", path="a/b.txt"))[1].split() == "1 one 2 half 3 two 4 3".split()
    assert await ask(tools, name, command="view", path="a") == (False, "a:\nb.txt")
    for wrong in (
        {"command": "view", "path": "none"},
        {"command": "view", "path": "a/b.txt", "view_range": [9, 10]},
        {"command": "str_replace", "path": "a/b.txt", "old_str": "o", "new_str": ""},
        {"command": "insert", "path": "a/b.txt", "insert_line": 9, "insert_text": ""},
        {"command": "undo_edit", "path": "a/b.txt"},
        {"command": "create", "path": "a", "file_text": ""},
    ):
        assert (await ask(tools, name, **wrong))[0], wrong


async def test_memories_stay_in_their_folder(tools: ComputerTools, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert await ask(tools, "memory", command="view", path="/memories") == (False, "/memories:")
    await ask(tools, "memory", command="create", path="/memories/a.md", file_text="likes tea")
    assert (tmp_path / "memories" / "a.md").read_text() == "likes tea"
    await ask(tools, "memory", command="rename", old_path="/memories/a.md", new_path="/memories/b/c.md")
    assert "likes tea" in (await ask(tools, "memory", command="view", path="/memories/b/c.md"))[1]
    (tmp_path / "memories" / "link").symlink_to(tmp_path)
    for path in (
        "/memories/../secret",
        "/secret",
        "secret",
        "/memoriesx",
        "/memories/link/secret",
        "/memories/b/../../secret",
    ):
        failed, text = await ask(tools, "memory", command="view", path=path)
        assert failed, path
        assert "secret" not in text.replace(path, ""), path
    assert (await ask(tools, "memory", command="delete", path="/memories"))[0]
    assert not (await ask(tools, "memory", command="delete", path="/memories/b"))[0]
    assert not (tmp_path / "memories" / "b").exists()


async def test_other_blocks_are_not_answered(tools: ComputerTools) -> None:
    assert await tools.call(BetaToolUseBlock(type="tool_use", id="1", name="mine", input={})) is None


async def test_bash_ends_with_the_block_that_is_cancelled(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        with anyio.CancelScope() as scope:
            async with ComputerTools(shell) as tools:
                block = BetaToolUseBlock(id="1", name="bash", type="tool_use", input={"command": "echo $$ > pid"})
                await tools.call(block)
                scope.cancel()
        pid = int((tmp_path / "pid").read_text())
        assert not Path(f"/proc/{pid}").exists()
