"""A shell as the backend of deepagents, with a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import deepagents
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from typing_extensions import override

from corral import Corral
from corral.errors import ConfigError
from corral.sessions import Mount, Scratch
from corral.shells import LocalShell, Shell, ShellLimits
from corral.shells.integrations.deepagents import ShellBackend
from tests.shells.integrations.repository import make_repository, timed_out


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Scripted(GenericFakeChatModel):
    @override
    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


async def agent(shell: Shell, root: str) -> list[str]:
    await make_repository(shell)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("execute", {"command": "python3 -B test_sums.py"}),
        ("grep", {"pattern": "return a", "path": root, "output_mode": "content"}),
        ("edit_file", {"file_path": f"{root}/sums.py", "old_string": "a - b", "new_string": "a + b"}),
        ("write_file", {"file_path": f"{root}/NOTES", "content": "mended\n"}),
        ("execute", {"command": "python3 -B test_sums.py && git status --short"}),
    ]
    turns = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(calls)
    ]
    model = Scripted(messages=iter([*turns, AIMessage("Done.")]))
    made: Any = cast("Any", deepagents).create_deep_agent(model=model, backend=ShellBackend(shell))
    result = await made.ainvoke({"messages": [("user", "Mend it.")]})
    return [str(message.content) for message in result["messages"] if isinstance(message, ToolMessage)]


@pytest.mark.anyio
async def test_an_agent_mends_a_repository(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        read = await agent(shell, str(tmp_path))
    assert "AssertionError" in read[0]
    assert "return a - b" in read[1]
    assert " M sums.py\n?? NOTES" in read[4]


@pytest.mark.anyio
@pytest.mark.matrix("on this machine in the gate, and in a session by the agents of test_toolsets; here by this one")
async def test_an_agent_mends_a_repository_in_a_session() -> None:
    files = [Mount("/workspace", Scratch())]
    async with Corral(check=False) as corral, corral.session(files=files, shell=ShellLimits()) as session:
        read = await agent(session.shell, "/workspace")
    assert " M sums.py\n?? NOTES" in read[4]


@pytest.mark.anyio
async def test_files_go_up_and_down_with_an_error_for_each(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        backend = ShellBackend(shell)
        up = await backend.aupload_files([("a/b", b"\x00\xff"), ("a", b""), ("", b"")])
        assert [each.error for each in up] == [None, "is_directory", "invalid_path"]
        down = await backend.adownload_files(["a/b", "a", "none", "x\0"])
        assert [each.error for each in down] == [None, "is_directory", "file_not_found", "invalid_path"]
        assert down[0].content == b"\x00\xff"


@pytest.mark.anyio
async def test_methods_that_are_not_asynchronous_work_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    async with LocalShell(tmp_path) as shell:
        backend = ShellBackend(shell)
        done = await anyio.to_thread.run_sync(lambda: backend.execute("echo a; echo b >&2; exit 3"))
        assert (done.output, done.exit_code) == ("a\nb\n", 3)
        read = await anyio.to_thread.run_sync(lambda: backend.read(str(tmp_path / "a.py"), offset=1))
        assert read.file_data is not None
        assert read.file_data["content"].strip() == "two"
        found = await anyio.to_thread.run_sync(lambda: backend.glob("*.py", str(tmp_path)))
        assert [each["path"] for each in found.matches or ()] == [str(tmp_path / "a.py")]
        monkeypatch.setattr(Shell, "run", timed_out)
        late = await backend.aexecute("sleep 60", timeout=1)
        assert (late.exit_code, late.output) == (124, "sleep 60 for 1 s\n[ended after 1 seconds]")


def test_outside_an_event_loop_the_error_says_where_to_call(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="await the agent"):
        ShellBackend(LocalShell(tmp_path)).execute("true")
