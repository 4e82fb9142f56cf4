"""Requests are plain data: they can be stored, sent, and run in another process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest

from corral import Corral, ExecutionContext, ExecutionRequest, Limits, tool
from corral.errors import ConfigError

REQUEST = ExecutionRequest(
    source="return [await tools.double({n: 4}), process.env.MODE]",
    context=ExecutionContext(
        user_id="ann", session_id="s1", organization_id="acme", scopes=["read", "write"], metadata={"plan": [1, None]}
    ),
    limits=Limits(calls=3, memory_mb=32),
    env={"MODE": "test"},
    check=False,
    hide_denied=True,
)
IN_ANOTHER_PROCESS = """
import pickle, sys
from corral import Corral, tool

@tool
async def double(n: int) -> int:
    "Doubles a number."
    return 2 * n

request = pickle.loads(sys.stdin.buffer.read())
result = Corral([double]).sync.execute(request)
print(result.value, request.context.local)
"""


@tool
async def double(n: int) -> int:
    """Doubles a number."""
    return 2 * n


def test_json_and_pickle_give_the_same_request() -> None:
    assert ExecutionRequest.model_validate_json(REQUEST.model_dump_json()) == REQUEST
    assert pickle.loads(pickle.dumps(REQUEST)) == REQUEST  # noqa: S301


@pytest.mark.parametrize("source", ["return '\ud800'", "return '\ud83d\ude00'", "return '\0é'"])
def test_any_text_has_a_json_form(source: str) -> None:
    again = ExecutionRequest.model_validate_json(ExecutionRequest(source=source).model_dump_json())
    assert again.source.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == again.source
    assert len(again.source) <= len(source)


@pytest.mark.matrix("requests are pickled and read back in the gate; in another process")
def test_a_pickled_request_runs_in_another_process() -> None:
    request = REQUEST.model_copy(update={"context": REQUEST.context.model_copy(update={"local": {"run": print}})})
    ran = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], input=pickle.dumps(request), capture_output=True, check=False
    )
    assert (ran.stdout.decode().strip(), ran.stderr.decode()) == ("[8, 'test'] {}", "")
    assert request.context.local == {"run": print}


@pytest.mark.anyio
async def test_a_stored_request_runs_as_its_options_would() -> None:
    corral = Corral([double])
    stored = ExecutionRequest.model_validate_json(REQUEST.model_dump_json())
    result = await corral.execute(stored)
    assert result.value == [8, "test"]
    assert not result.checked
    fewer = stored.model_copy(update={"limits": Limits(calls=1), "source": "await tools.double(1); tools.double(2)"})
    assert (await corral.execute(fewer)).error is not None


@pytest.mark.anyio
async def test_a_request_has_its_own_options() -> None:
    with pytest.raises(ConfigError, match="language, env: an ExecutionRequest has its own"):
        await Corral([double]).execute(REQUEST, language="python", env={})
    tools_of_one = await Corral().execute(REQUEST, tools=[double])
    assert tools_of_one.value == [8, "test"]


def test_a_request_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="ExecutionRequest has no 'priority'"):
        ExecutionRequest.model_validate_json('{"source": "return 1", "priority": 2}')


@dataclass
class Connection:
    """An object that belongs to this process."""


@pytest.mark.parametrize("value", [Connection(), {"a": {1}}, b"x", [print]])
def test_metadata_is_json_and_local_is_for_the_rest(value: object) -> None:
    with pytest.raises(ConfigError, match=r"'db' is not JSON .* local=\{'db': ...\}"):
        ExecutionContext(metadata={"db": value})
    context = ExecutionContext(user_id="ann", local={"db": value})
    assert context.local["db"] is value
    assert "local" not in context.model_dump()
    assert pickle.loads(pickle.dumps(context)).local == {}  # noqa: S301


@pytest.mark.anyio
async def test_a_tool_finds_what_is_local() -> None:
    connection = Connection()

    @tool
    async def query(context: ExecutionContext) -> bool:
        """Tells whether the connection is there."""
        return context.local["db"] is connection

    context = ExecutionContext(local={"db": connection})
    assert (await Corral([query]).execute("return await tools.query()", context=context)).value is True
