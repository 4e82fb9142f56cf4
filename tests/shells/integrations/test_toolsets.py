"""Agents of LangChain and pydantic-ai with tools over a shell, with scripted models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import langchain.agents
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import override

from corral import Corral
from corral.sessions import Mount, Scratch
from corral.shells import LocalShell, Shell, ShellLimits, use_shell
from corral.shells.integrations.langchain import agent_tools
from corral.shells.integrations.pydantic_ai import shell_toolset
from tests.shells.integrations.repository import make_repository

pytestmark = pytest.mark.anyio

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "python3 -B test_sums.py"}),
    ("grep", {"pattern": "return"}),
    ("edit_file", {"path": "sums.py", "old": "a * b", "new": "a + b"}),
    ("edit_file", {"path": "sums.py", "old": "a - b", "new": "a + b"}),
    ("write_file", {"path": "NOTES", "text": "mended\n"}),
    ("bash", {"command": "python3 -B test_sums.py && git status --short"}),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def check(read: Sequence[str]) -> None:
    assert "AssertionError" in read[0]
    assert "return a - b" in read[1]
    assert "the text to replace does not occur" in read[2]
    assert " M sums.py" in read[5]
    assert "?? NOTES" in read[5]


class Scripted(GenericFakeChatModel):
    @override
    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


async def with_langchain(shell: Shell | None) -> list[str]:
    turns = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(CALLS)
    ]
    model = Scripted(messages=iter([*turns, AIMessage("Done.")]))
    agent = cast("Any", langchain.agents).create_agent(model, agent_tools(shell))
    result = await agent.ainvoke({"messages": [("user", "Mend it.")]})
    return [str(message.content) for message in result["messages"] if isinstance(message, ToolMessage)]


async def with_pydantic_ai(shell: Shell | None) -> list[str]:
    read: list[str] = []

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        done = len(messages) // 2
        if done:
            read.append(str(messages[-1].parts))
        return ModelResponse(parts=[ToolCallPart(*CALLS[done]) if done < len(CALLS) else TextPart("Done.")])

    await Agent(FunctionModel(respond), toolsets=[shell_toolset(shell)]).run("Mend it.")
    return read


@pytest.mark.parametrize("run", [with_langchain, with_pydantic_ai])
async def test_an_agent_mends_a_repository(run: Any, tmp_path: Path) -> None:
    async with LocalShell(tmp_path) as shell:
        await make_repository(shell)
        check(await run(shell))


@pytest.mark.matrix("agents mend a repository in a shell in the gate; here it is that of a session")
@pytest.mark.parametrize("run", [with_langchain, with_pydantic_ai])
async def test_an_agent_mends_a_repository_in_the_shell_of_its_session(run: Any) -> None:
    files = [Mount("/workspace", Scratch())]
    async with Corral(check=False) as corral, corral.session(files=files, shell=ShellLimits()) as session:
        await make_repository(session.shell)
        with use_shell(session.shell):
            check(await run(None))


async def test_a_tool_without_a_shell_says_so() -> None:
    [bash] = [each for each in agent_tools() if each.name == "bash"]
    assert "this tool needs a shell" in str(await bash.ainvoke({"command": "true"}))
