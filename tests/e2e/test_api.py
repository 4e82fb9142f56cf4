"""Programs as users write them first, by the names of the API."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from corral import Approved, Corral, ExecutionContext, Later, tool
from corral.errors import ConfigError
from corral.integrations.mcp import mcp_server
from corral.sandboxes import DenoSandbox
from corral.sessions import Sessions
from corral.sources.openapi import Bearer, OpenApi


@tool
async def get_temperature(city: str) -> float:
    """Returns the temperature of a city, in degrees Celsius."""
    return {"Oslo": -3.5}[city]


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"refunded {order}"


PROGRAM = "const t = await tools.get_temperature({ city: 'Oslo' }); console.log('cold'); return t"


def test_a_script_without_an_event_loop(warm_deno: DenoSandbox) -> None:
    with Corral([get_temperature], sandbox=warm_deno).sync as corral:
        result = corral.execute(PROGRAM)
        assert (result.value, result.console) == (-3.5, "cold\n")
        assert corral.check(PROGRAM).passed
        assert "get_temperature" in corral.model.declarations()
        with corral.start(PROGRAM) as run:
            kinds = [event.type for event in run]
            assert run.result().value == -3.5
        assert (kinds[0], kinds[-1]) == ("execution_started", "execution_finished")
    with Corral([get_temperature], sandbox=warm_deno) as opened:
        assert opened.sync.execute("return 1").value == 1


def test_a_sync_session_needs_an_open_corral_and_has_files() -> None:
    corral = Corral(sessions=Sessions())
    with pytest.raises(ConfigError, match="open it first, in a `with` block"), corral.sync.session():
        pass
    with corral.sync as opened, opened.session() as session:
        session.files.write_text("/workspace/a.txt", "hello")
        assert session.execute("open('/workspace/a.txt').read()", language="python").value == "hello"
        assert [entry.path for entry in session.files.list("/workspace")] == ["a.txt"]
        assert b"".join(session.files.read_stream("/workspace/a.txt")) == b"hello"


def test_equal_contexts_have_the_same_files() -> None:
    contexts = [ExecutionContext(user_id="ann"), ExecutionContext(user_id="ann", session_id="s1")]
    with Corral(sessions=Sessions(), check=False).sync as corral:
        for context in contexts:
            copy = ExecutionContext.model_validate_json(context.model_dump_json())
            assert copy == context
            program = "import os; os.path.exists('/workspace')"
            found = [corral.execute(program, language="python", context=each).value for each in (context, copy)]
            assert found == [context.session_id is not None] * 2
            if context.session_id is not None:
                corral.execute("open('/workspace/n', 'w').write('1')", language="python", context=context)
                assert corral.execute("open('/workspace/n').read()", language="python", context=copy).value == "1"


@pytest.mark.anyio
async def test_a_corral_behind_mcp(warm_deno: DenoSandbox) -> None:
    async with Corral([get_temperature], sandbox=warm_deno) as corral, Client(mcp_server(corral)) as client:
        answer = await client.call_tool("execute_code", {"code": PROGRAM})
        assert "-3.5" in str(answer.content)


@pytest.mark.anyio
async def test_a_corral_of_an_api(tmp_path: Path) -> None:
    document = tmp_path / "shop.json"
    document.write_text(
        '{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "https://shop.example"}],'
        ' "paths": {"/orders": {"get": {"operationId": "listOrders", "responses": {"200": {"description": "ok"}}}}}}'
    )
    async with Corral([OpenApi("shop", document, credentials=Bearer("token"))]).connected() as corral:
        assert "listOrders" in corral.model.declarations() or "list_orders" in corral.model.declarations()


@pytest.mark.anyio
async def test_calls_that_wait_are_settled_by_the_id_of_their_execution(warm_deno: DenoSandbox) -> None:
    corral = Corral([refund], approve=lambda request: Later(), sandbox=warm_deno, check=False)
    async with corral, corral.start("return await tools.refund({ order: 7 })") as run:
        async for event in run:
            if event.type == "approval_requested":
                [waiting] = await corral.executions.waiting()
                decisions = {call.sequence: Approved() for call in waiting.calls}
                assert await corral.executions.settle(waiting.execution_id, decisions, by="ann") == decisions.keys()
        result = await run.result()
    assert (result.value, result.tool_calls[0].decision) == ("refunded 7", Approved(by="ann"))


@pytest.mark.anyio
async def test_an_execution_is_cancelled_by_its_id(warm_deno: DenoSandbox) -> None:
    corral = Corral([refund], approve=lambda request: Later(), sandbox=warm_deno, check=False)
    async with corral, corral.start("return await tools.refund({ order: 7 })") as run:
        async for event in run:
            if event.type == "approval_requested":
                assert corral.executions.cancel(run.execution_id)
        assert (await run.result()).status == "cancelled"
        assert not corral.executions.cancel(run.execution_id)
