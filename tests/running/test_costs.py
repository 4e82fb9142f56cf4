"""Costs of durable executions, by tenant, tool and day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from corral import Corral, ExecutionContext, ToolError, tool
from corral.ledger import SqliteLedger
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann", organization_id="acme")
BOB = ExecutionContext(user_id="bob")


@tool
async def double(n: int) -> int:
    if n == 0:
        raise ToolError("nothing to double")
    return 2 * n


@tool(read_only=True)
async def look() -> str:
    return "x" * 100


async def test_calls_are_added_up_by_tenant_tool_and_day(warm_deno: DenoSandbox, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ledger = SqliteLedger(path, keys={"one": b"k" * 32})
    async with Corral([double, look], sandbox=warm_deno, ledger=ledger, check=False) as corral:
        source = "await tools.double({ n: 0 }).catch(() => 0); await tools.look(); return await tools.double({ n: 21 })"
        first = await corral.execute(source, durable=True, context=ANN)
        assert (await corral.execute(source, durable=True, context=ANN)).value == first.value == 42
        await corral.execute(
            "await new Promise((go) => setTimeout(go, 1)); await tools.look()", durable=True, context=BOB
        )
        costs = {(each.organization_id, each.user_id, each.tool): each for each in await corral.executions.costs()}
        assert {key: (each.calls, each.failed) for key, each in costs.items()} == {
            ("acme", "ann", "double"): (4, 2),
            ("acme", "ann", "look"): (2, 0),
            (None, "bob", "look"): (1, 0),
        }
        assert costs["acme", "ann", "look"].output_bytes == 2 * 102
        assert costs["acme", "ann", "double"].input_bytes == 2 * len('{"n":0}') + 2 * len('{"n":21}')
        assert all(each.duration_ms > 0 for each in costs.values())
        moment = datetime.fromtimestamp((await corral.executions.get(first.execution_id)).updated, UTC)
        assert costs["acme", "ann", "double"].day == moment.date().isoformat()
        assert [each.user_id for each in await corral.executions.costs(user_id="bob")] == ["bob"]
        assert await corral.executions.costs(since=datetime.now(UTC).timestamp() + 60) == ()
    assert b"double" not in path.read_bytes(), "tools are not in clear"
