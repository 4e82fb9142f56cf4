"""The shell that an integration gives to the programs of each call."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from openai.types.responses import ResponseFunctionToolCall
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral import Corral, ToolCall, tool
from corral.errors import ConfigError
from corral.integrations.kit import CodeModeBase
from corral.integrations.openai import CodeMode as OpenAICodeMode
from corral.integrations.pydantic_ai import CodeMode
from corral.sandboxes import DenoSandbox
from corral.shells import LocalShell, Shell, shell_tools, use_shell

pytestmark = pytest.mark.anyio

WRITE = 'await tools.write_file({path: "a.txt", text: "1"}); return (await tools.bash({command: "cat a.txt"})).stdout;'


async def test_programs_of_a_call_have_the_shell_of_the_integration(tmp_path: Path, warm_deno: DenoSandbox) -> None:
    shell = LocalShell(tmp_path)
    async with Corral(shell_tools(), sandbox=warm_deno, check=False) as corral:
        mode = OpenAICodeMode(corral, shell=shell, describe_shell=lambda given: f"Files are at {type(given).__name__}.")
        arguments = json.dumps({"code": WRITE})
        item = ResponseFunctionToolCall(type="function_call", name="execute_code", arguments=arguments, call_id="1")
        answer = await mode.call(item)
    assert answer is not None
    assert '"1"' in str(answer["output"])
    assert (tmp_path / "a.txt").read_text() == "1"
    assert "Files are at" in mode.kwargs()["instructions"]


async def test_a_tool_of_ones_own_has_the_shell_of_the_call(tmp_path: Path, warm_deno: DenoSandbox) -> None:
    @tool
    async def count_files(*, call: ToolCall) -> int:
        """Counts files."""
        assert await call.shell.aclose() is None  # a restricted view ends nothing
        return int((await call.shell.run("ls | wc -l", check=True)).stdout)

    (tmp_path / "a.txt").touch()
    async with Corral([count_files], sandbox=warm_deno, check=False) as corral:
        with use_shell(LocalShell(tmp_path)):
            counted = await corral.execute("return await tools.count_files()")
        without = await corral.execute("return await tools.count_files()")
    assert (counted.value, counted.error) == (1, None)
    assert without.error is not None
    assert "needs a shell, and there is none" in without.error.message


async def test_a_shell_that_a_function_opens_is_closed_after_success_error_and_abort(
    tmp_path: Path, warm_deno: DenoSandbox
) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Shell]:
        events.append("open")
        try:
            yield LocalShell(tmp_path)
        finally:
            events.append("closed")

    started = anyio.Event()

    @tool
    async def wait() -> None:
        """Waits without end."""
        started.set()
        await anyio.sleep_forever()

    async with Corral([*shell_tools(), wait], sandbox=warm_deno, check=False) as corral:
        [execute] = [each for each in CodeModeBase(corral, shell=opened).kit().tools if each.name == "execute_code"]
        assert (await execute.run({"code": WRITE})).value == "1"
        assert events == ["open", "closed"]
        assert not (await execute.run({"code": "throw new Error('no')"})).success
        assert events == ["open", "closed"] * 2
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute.run, {"code": "await tools.wait()"})
            await started.wait()
            assert events[-1] == "open"
            tasks.cancel_scope.cancel()
        assert events == ["open", "closed"] * 3


async def test_an_agent_of_pydantic_ai_has_a_shell(tmp_path: Path, warm_deno: DenoSandbox) -> None:
    said: list[str] = []

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("execute_code", {"code": WRITE})])
        said.append(str(messages[-1].parts))
        return ModelResponse(parts=[TextPart("Done.")])

    async with Corral(shell_tools(), sandbox=warm_deno, check=False) as corral:
        agent = Agent(FunctionModel(respond), capabilities=[CodeMode(corral, shell=LocalShell(tmp_path))])
        await agent.run("Write a file.")
    assert (tmp_path / "a.txt").read_text() == "1", said


async def test_a_tool_without_a_shell_fails_with_the_name_of_the_option(warm_deno: DenoSandbox) -> None:
    async with Corral(shell_tools(), sandbox=warm_deno, check=False) as corral:
        [execute] = [each for each in CodeModeBase(corral).kit().tools if each.name == "execute_code"]
        result = await execute.run({"code": WRITE})
    assert "shell=" in result.model_text()


def test_a_shell_that_is_not_open_cannot_be_described(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="describe_shell needs an open shell"):
        CodeModeBase(Corral([], check=False), shell=lambda: LocalShell(tmp_path), describe_shell=lambda _: "").kit()  # noqa: S604
