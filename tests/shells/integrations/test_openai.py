"""`shell` and `apply_patch` of OpenAI over a shell: calls of the SDK, and an agent of openai-agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseApplyPatchToolCall,
    ResponseFunctionShellToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
)
from pydantic import TypeAdapter
from typing_extensions import override

from corral import Corral
from corral.sessions import Mount, Scratch
from corral.shells import LocalShell, Shell, ShellLimits
from corral.shells.integrations.openai import ShellAndPatches
from corral.shells.integrations.openai_agents import shell_and_patches
from tests.shells.integrations.repository import make_repository, timed_out

pytestmark = pytest.mark.anyio

MENDED = "@@ def add(a: int, b: int) -> int:\n-    return a - b\n+    return a + b\n"


def commands(*given: str, **action: Any) -> ResponseFunctionShellToolCall:
    return ResponseFunctionShellToolCall.model_validate(
        {
            "type": "shell_call",
            "id": "i",
            "call_id": "c",
            "status": "completed",
            "action": {"commands": given, "timeout_ms": None, "max_output_length": None, **action},
        }
    )


def patch(kind: str, path: str, diff: str = "") -> ResponseApplyPatchToolCall:
    operation = {"type": kind, "path": path} | ({} if kind == "delete_file" else {"diff": diff})
    return ResponseApplyPatchToolCall.model_validate(
        {"type": "apply_patch_call", "id": "i", "call_id": "c", "status": "completed", "operation": operation}
    )


async def test_each_command_has_its_outputs_and_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalShell(tmp_path) as shell:
        tools = ShellAndPatches(shell)
        answer: Any = await tools.call(
            commands("echo a; echo b >&2; exit 3", "cat a\0", "seq 9999", max_output_length=100)
        )
        monkeypatch.setattr(Shell, "run", timed_out)
        late: Any = await tools.call(commands("sleep 60", "echo never", timeout_ms=300))
    first, refused, long = answer["output"]
    assert first == {"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 3}}
    assert refused["outcome"] == {"type": "exit", "exit_code": 126}
    assert len(long["stdout"]) < 200
    assert late["output"] == [{"stdout": "sleep 60 for 0.3 s", "stderr": "", "outcome": {"type": "timeout"}}]


async def test_patches_create_update_and_delete_or_fail_with_a_reason(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        tools = ShellAndPatches(shell)

        async def apply(kind: str, path: str, diff: str = "") -> tuple[str, str]:
            answer: Any = await tools.call(patch(kind, path, diff))
            return answer["status"], answer["output"]

        assert await apply("create_file", "a.txt", "+one\n+two\n") == ("completed", "a.txt: done")
        assert await apply("update_file", "a.txt", "@@\n-one\n+1\n") == ("completed", "a.txt: done")
        assert (tmp_path / "a.txt").read_text() == "1\ntwo\n"
        for kind, path, diff in (
            ("create_file", "a.txt", "+x"),
            ("update_file", "a.txt", "@@\n-none\n"),
            ("update_file", "none", "@@\n-none\n"),
            ("delete_file", "none", ""),
        ):
            status, output = await apply(kind, path, diff)
            assert status == "failed"
            assert len(output) > len(path) + 5
        assert (tmp_path / "a.txt").read_text() == "1\ntwo\n"
        assert (await apply("delete_file", "a.txt"))[0] == "completed"
        assert not (tmp_path / "a.txt").exists()


class Scripted(Model):
    """Mends a repository; keeps what it reads."""

    def __init__(self) -> None:
        self.turns: list[Any] = [
            commands("python3 -B test_sums.py", "grep -n return sums.py"),
            patch("update_file", "sums.py", MENDED),
            patch("create_file", "NOTES", "+mended\n"),
            commands("python3 -B test_sums.py && git status --short"),
        ]
        self.read: list[str] = []

    @override
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.read.append(str(input[-1]))
        if self.turns:
            number = len(self.turns)
            item = self.turns.pop(0).model_copy(update={"call_id": f"c{number}"})
        else:
            item = TypeAdapter(ResponseOutputMessage).validate_python(
                {
                    "type": "message",
                    "id": "m",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
                }
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    @override
    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def agent(shell: Shell) -> list[str]:
    set_tracing_disabled(True)
    await make_repository(shell)
    model = Scripted()
    result = await Runner.run(Agent("mender", model=model, tools=shell_and_patches(shell)), "Mend it.")
    assert result.final_output == "Done."
    return model.read


async def test_an_agent_of_openai_agents_mends_a_repository(tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        read = await agent(shell)
    assert "AssertionError" in read[1]
    assert "return a - b" in read[1]
    assert "sums.py: done" in read[2]
    assert " M sums.py" in read[4]
    assert "?? NOTES" in read[4]


@pytest.mark.matrix("on this machine in the gate, and in a session by the agents of test_toolsets; here by this one")
async def test_an_agent_of_openai_agents_mends_a_repository_in_a_session() -> None:
    files = [Mount("/workspace", Scratch())]
    async with Corral(check=False) as corral, corral.session(files=files, shell=ShellLimits()) as session:
        read = await agent(session.shell)
    assert "?? NOTES" in read[4]


async def test_all_calls_of_a_response_are_answered(tmp_path: Path) -> None:
    items: list[ResponseOutputItem] = [patch("create_file", "a", "+x\n"), commands("cat a")]
    response = Response.model_construct(output=items)
    async with LocalShell(tmp_path) as shell:
        tools = ShellAndPatches(shell)
        answers: Any = await tools.outputs(response)
    assert [answer["type"] for answer in answers] == ["apply_patch_call_output", "shell_call_output"]
    assert answers[1]["output"][0]["stdout"] == "x\n"
    assert [tool["type"] for tool in tools.tools] == ["shell", "apply_patch"]
