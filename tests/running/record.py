"""Makes the kept ledger of tests/running/test_recorded.py: `python -m tests.running.record`.

Make it again when Deno or the guests of durable programs have changed on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio

from corral import Approved, Corral, Tool, ToolError, tool
from corral.ledger import SqliteLedger
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.types import Language, SandboxConfig

LEDGER = Path(__file__).parent / "recorded" / "executions.db"
KEYS = {"kept": b"k" * 32}
SOURCES: Mapping[Language, str] = {
    "typescript": """
        const timer = new Promise((resolve) => setTimeout(() => resolve(crypto.randomUUID()), 3));
        const looks = await Promise.all([3, 1, 2].map((n) => tools.look({ n })));
        console.log(new Date().toISOString(), Math.random(), looks);
        const failure = await tools.fail({}).catch((error) => error.message);
        return { looks, failure, id: await timer, paid: await tools.pay({ euros: looks[0] }), made: new Date() };
    """,
    "python": """
import asyncio, datetime, random, uuid

timer = asyncio.create_task(asyncio.sleep(0.003, str(uuid.uuid4())))
looks = await asyncio.gather(*(tools.look(n=n) for n in (3, 1, 2)))
print(datetime.datetime.now(datetime.timezone.utc), random.random(), {str(n) for n in looks})
try:
    await tools.fail()
except Exception as error:
    failure = str(error)
{"looks": looks, "failure": failure, "id": await timer, "paid": await tools.pay(euros=looks[0])}
""",
}
FAILING: Mapping[Language, str] = {
    "typescript": "const n = await tools.look({ n: 1 }); console.log(n); throw new RangeError(`it is ${n}`)",
    "python": "n = await tools.look(n=1)\nprint(n)\nraise ValueError(f'it is {n}')",
}


class OtherDeno(DenoSandbox):
    """Deno that claims to be another version."""

    def engine_version(self, config: SandboxConfig) -> str:
        return "deno 0.1.0"


def tools() -> list[Tool]:
    @tool(read_only=True)
    async def look(n: int) -> int:
        await anyio.sleep(n / 1000)
        return n * 10

    @tool
    async def fail() -> None:
        raise ToolError("not today")

    @tool(needs_approval=True)
    async def pay(euros: float) -> str:
        return f"paid {euros:g}"

    return [look, fail, pay]


async def record(ledger: SqliteLedger) -> None:
    """Records executions that have succeeded, failed and paused, and one of another engine."""
    sandboxes: dict[Language, SandboxProvider] = {"typescript": DenoSandbox(), "python": CPythonSandbox()}
    async with Corral(tools(), ledger=ledger, check=False, sandbox=sandboxes) as corral:
        for language, source in SOURCES.items():
            for name, each in (("paused", source), ("succeeded", source), ("failed", FAILING[language])):
                name = f"{language}-{name}"
                result = await corral.execute(each, language=language, durable=True, execution_id=name)
                if name.endswith("succeeded"):
                    await corral.executions.settle(name, {result.pending[0].sequence: Approved(by="ann")})
                    await corral.executions.resume(name)
    async with Corral(tools(), ledger=ledger, check=False, sandbox=OtherDeno()) as corral:
        await corral.execute(FAILING["typescript"], durable=True, execution_id="typescript-outdated")


if __name__ == "__main__":
    LEDGER.unlink(missing_ok=True)
    anyio.run(record, SqliteLedger(LEDGER, keys=KEYS))
