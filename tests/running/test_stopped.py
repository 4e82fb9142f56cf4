"""Durable programs in WebAssembly that wait for a decision and go on with another host."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral import Approved, Corral, Tool, tool
from corral.ledger import SqliteLedger
from corral.sandboxes.wasm import WasmSandbox

pytestmark = pytest.mark.anyio

KEYS = {"one": b"k" * 32}
SOURCE = """
class Box { #v; constructor(v) { this.#v = v; } get v() { return this.#v; } }
function* counting() { for (let n = 0; ; n++) yield n; }
const box = new Box(41), numbers = counting(), seen = new Map([["a", [1, 2]]]), id = crypto.randomUUID();
numbers.next();
console.log("before", id);
await new Promise((resolve) => setTimeout(resolve, 1));
try {
  const [a, b] = await Promise.all([tools.put({ n: 1 }), (async () => (await tools.ask({ n: 2 })) + box.v)()]);
  console.log("after", id);
  return { a, b, n: numbers.next().value, seen: [...seen], id, c: await tools.put({ n: 3 }) };
} finally { seen.clear(); }
"""


class Tools:
    def __init__(self) -> None:
        self.done: list[int] = []

    @property
    def all(self) -> list[Tool]:
        @tool
        async def put(n: int) -> int:
            self.done.append(n)
            return n * 10

        @tool(needs_approval=True)
        async def ask(n: int) -> int:
            self.done.append(n)
            return n * 10

        return [put, ask]


async def test_a_program_that_waits_goes_on_with_another_host(warm_wasm: WasmSandbox, tmp_path: Path) -> None:
    tools = Tools()
    ledger = SqliteLedger(tmp_path / "runs.db", keys=KEYS)
    async with Corral(tools.all, sandbox=warm_wasm, ledger=ledger, check=False) as corral:
        paused = await corral.execute(SOURCE, durable=True)
    assert paused.status == "paused", paused.error
    assert tools.done == [1]
    async with Corral(tools.all, sandbox=warm_wasm, ledger=ledger, check=False) as corral:
        await corral.executions.settle(paused.execution_id, {call.sequence: Approved() for call in paused.pending})
        result = await corral.executions.resume(paused.execution_id)
    assert result.status == "succeeded", result.error
    assert tools.done == [1, 2, 3]
    value = result.value
    assert result.console == f"before {value['id']}\nafter {value['id']}\n"
    assert value == {"a": 10, "b": 61, "n": 1, "seen": [["a", [1, 2]]], "id": value["id"], "c": 30}
