"""Random programs that are cut off at random calls, and resumed until they end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from corral import Approved, Corral, Denied, ExecutionResult, Limits, Tool, ToolError, tool
from corral.errors import LedgerFailed
from corral.ledger import Ledger
from corral.types import Language, Retry

PROGRAMS: Mapping[Language, str] = {
    "typescript": """
const trace = [];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const bytes = (text) => new TextEncoder().encode(text);
const gzip = (text) => new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
async function ticks() {
  let n = 0;
  await new Promise((resolve) => {
    const interval = setInterval(() => { if (++n === 3) { clearInterval(interval); resolve(); } }, 1);
  });
  return n;
}
async function encrypted(text) {
  const key = await crypto.subtle.importKey("raw", crypto.getRandomValues(new Uint8Array(16)), "AES-GCM", true, ["encrypt"]);
  const iv = crypto.getRandomValues(new Uint8Array(12));
  return new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, bytes(text))).toHex();
}
async function aborted() {
  const signal = AbortSignal.timeout(2);
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  return signal.reason.name;
}
async function* streamed(key) { yield await tools.get({ key }); yield key; }
const steps = [
  [8, (key) => tools.get({ key })],
  [4, (key) => tools.put({ key })],
  [2, (key) => tools.ask({ key })],
  [4, (key) => Promise.race([tools.get({ key }), sleep(Math.random() * 5).then(() => "late")])],
  [3, async (key) => (await Promise.allSettled([tools.get({ key: key + "a" }), tools.put({ key: key + "b" }), sleep(1)])).map((each) => each.status)],
  [1, async () => { await sleep(Math.random() * 3); return [performance.now(), Date.now()]; }],
  [1, async (key) => { for (let n = 0; n < 3; n++) await null; return key; }],
  [1, () => new Promise((resolve) => setImmediate(() => resolve("immediate")))],
  [2, async (key) => (await Promise.all(["SHA-256", "SHA-512", "SHA-1"].map((name) => crypto.subtle.digest(name, bytes(key))))).map((each) => new Uint8Array(each)[0])],
  [1, encrypted],
  [1, async (key) => (await gzip(key.repeat(50))).byteLength],
  [1, aborted],
  [1, ticks],
  [1, (key) => Array.fromAsync(streamed(key))],
  [1, async (key) => [await Promise.any([tools.get({ key }), tools.get({ key: key + "x" })]), crypto.randomUUID(), Date.now()]],
];
const all = steps.flatMap(([weight, step]) => Array(weight).fill(step));
async function chain(c) {
  for (let s = 0; s < 8; s++) {
    const key = `${c}.${s}.${trace.length}`;
    try { trace.push([key, await all[Math.floor(Math.random() * all.length)](key)]); }
    catch (error) { trace.push([key, error.name, error.message]); }
  }
}
await Promise.all([0, 1, 2, 3, 4, 5].map(chain));
return trace;
""",
    "python": """
import asyncio, datetime, os, random, secrets, time, uuid
from concurrent.futures import ThreadPoolExecutor
trace = []
queue, lock = asyncio.Queue(), asyncio.Lock()
def task(key):
    return asyncio.create_task(tools.get(key=key))
async def waited(key):
    try:
        return await asyncio.wait_for(tools.get(key=key), random.random() * 0.005)
    except asyncio.TimeoutError:
        return "late"
async def gathered(key):
    several = tools.get(key=key + "a"), tools.put(key=key + "b"), asyncio.sleep(0.001)
    return [str(each) for each in await asyncio.gather(*several, return_exceptions=True)]
async def slept(key):
    await asyncio.sleep(random.random() * 0.003)
    return [time.monotonic(), time.time()]
async def first(key):
    done, pending = await asyncio.wait([task(key), task(key + "w")], return_when=asyncio.FIRST_COMPLETED)
    return [each.result() for each in done] + [await each for each in pending]
async def completed(key):
    return [await each for each in asyncio.as_completed([tools.get(key=key + end) for end in "xyz"])]
async def grouped(key):
    async with asyncio.TaskGroup() as group:
        one, two = group.create_task(tools.get(key=key)), group.create_task(tools.get(key=key + "t"))
    return [one.result(), two.result()]
async def locked(key):
    async with lock:
        await queue.put(key)
        return [await tools.get(key=key), await queue.get()]
async def timed(key):
    async with asyncio.timeout(0.004):
        return await tools.get(key=key)
async def pooled(key):
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda n: n + random.randrange(9), [1, 2, 3])) + [await asyncio.to_thread(os.urandom, 3)]
async def blocked(key):
    time.sleep(0.001)
    return time.time()
async def drawn(key):
    chance = str(uuid.uuid4()), str(uuid.uuid1()), secrets.token_hex(4), datetime.datetime.now().isoformat()
    return [await tools.get(key=key), *chance, list({key, "a", "b", "cc"})]
steps = [lambda key: tools.get(key=key)] * 8 + [lambda key: tools.put(key=key)] * 4 + [lambda key: tools.ask(key=key)] * 2
steps += [waited] * 4 + [gathered] * 3 + [slept, first, completed, completed, grouped, locked, timed, pooled, blocked, drawn]
async def chain(c):
    for s in range(8):
        key = f"{c}.{s}.{len(trace)}"
        try:
            trace.append([key, await random.choice(steps)(key)])
        except Exception as error:
            trace.append([key, type(error).__name__, str(error)])
await asyncio.gather(*map(chain, range(6)))
trace
""",
}


class Randomly:
    """Cuts executions of one Corral off, decides on their calls, and resumes them until they end."""

    def __init__(
        self, sandbox: Any, ledger: Ledger, seed: int, expire: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable
        self._sandbox = sandbox
        self._ledger = ledger
        self._expire = expire
        """Ends all leases, after a claim that was lost on the way; None: that fails."""
        self._scope = anyio.CancelScope()
        self._calls_left = 0
        """Number of calls until the host is cut off."""
        self.effects: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Numbers of cuts, pauses, retries and ends by status; and of what must not be."""

    @property
    def tools(self) -> list[Tool]:
        chance = self._random

        def count() -> None:
            self._calls_left -= 1
            if not self._calls_left:
                self._scope.cancel()

        @tool(read_only=True)
        async def get(key: str) -> str:
            count()
            if chance.random() < 0.7:
                await anyio.sleep(chance.random() * 0.004)
            return f"{key}:{chance.randrange(1000)}"

        @tool
        async def put(key: str) -> str:
            self.effects[key] += 1  # before a cut, so that the effect of a call without a reply has been made
            count()
            if chance.random() < 0.5:
                await anyio.sleep(chance.random() * 0.003)
            if chance.random() < 0.1:
                raise ToolError("no")
            return key

        @tool(needs_approval=True)
        async def ask(key: str) -> str:
            count()
            self.effects[key] += 1
            return key

        return [get, put, ask]

    async def run(self, count: int, language: Language) -> None:
        limits = Limits(calls=1_000)
        async with Corral(self.tools, sandbox=self._sandbox, ledger=self._ledger, check=False, limits=limits) as corral:
            for _ in range(count):
                await self._run(corral, language)

    async def _run(self, corral: Corral, language: Language) -> None:
        self.effects.clear()
        retried: set[str] = set()
        name: str | None = None

        async def begin() -> ExecutionResult:
            def began(event: Any) -> None:
                nonlocal name
                name = event.execution_id

            return await corral.execute(PROGRAMS[language], language=language, durable=True, on_event=began)

        result: ExecutionResult | None = None
        for attempt in range(60):
            self._calls_left = self._random.randrange(1, 40) if attempt < 30 else 0
            with anyio.CancelScope() as self._scope:
                if name is None or not await corral.executions.list():
                    result = await begin()
                else:
                    try:
                        result = await self._resume(corral, name, retried)
                    except LedgerFailed:
                        if self._expire is None:
                            raise
                        self.counts["claims"] += 1
                        continue
                self.counts["pauses"] += result.status == "paused"
                if result.status != "paused":
                    break
                continue
            self.counts["cuts"] += 1
        assert result is not None
        assert name is not None
        self.counts[result.status] += 1
        if result.status != "succeeded":
            self.counts[f"{result.error}"] += 1
            return
        self.counts["retries"] += len(retried)
        self.counts["twice"] += sum(number > 1 for key, number in self.effects.items() if key not in retried)
        again = await corral.executions.replay(name)
        self.counts["differ"] += (again.value, again.console) != (result.value, result.console)

    async def _resume(self, corral: Corral, name: str, retried: set[str]) -> ExecutionResult:
        if self._expire is not None:
            await self._expire()
        for waiting in await corral.executions.waiting():
            for call in () if waiting.execution_id != name else waiting.calls:
                decision = Retry() if call.reason else Approved() if self._random.random() < 0.7 else Denied("no")
                if isinstance(decision, Retry):
                    retried.add(call.input["key"])
                await corral.executions.settle(name, {call.sequence: decision})
        return await corral.executions.resume(name)
