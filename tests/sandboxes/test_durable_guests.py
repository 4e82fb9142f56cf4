"""A durable program runs the same way each time that it gets the same replies, whatever it uses."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral.guest.runtime import guest_source
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.types import Language, Reply
from tests.sandboxes.recording import Recording, differences, record, replay, run
from tests.sandboxes.uses import NODE, PYTHON, PYTHON_HEAD, TYPESCRIPT
from tests.until import until

pytestmark = pytest.mark.anyio

LISTED = Path(__file__).parents[2] / "docs" / "durable-guests.md"
PROGRAMS = 4
CHANCE = random.Random(11)  # noqa: S311
"""Random programs of each language; the soak has more."""


def listed(heading: str) -> set[str]:
    """The names in the table of a section of the documentation."""
    section = LISTED.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `?([^`|]+?)`? \|", section, re.MULTILINE)) - {"use", "---"}


async def answer(tool: str, input: Any) -> Reply:
    if CHANCE.random() < 0.7:
        await anyio.sleep(CHANCE.random() * 0.003)
    if tool == "put" and CHANCE.random() < 0.1:
        raise ValueError("no")
    return Reply(value=f"{input.get('key')}:{CHANCE.randrange(1000)}")


def names(file: str, table: str) -> set[str]:
    """The names in a table of the guest's source."""
    source = guest_source("typescript", file)
    text = source.partition(f"const {table} = ")[2].partition(";")[0]
    return {name for part in re.findall(r'"([^"]*)"', text) for name in part.split()}


def typescript_program() -> str:
    uses = {
        **TYPESCRIPT,
        **{f"node:{name}": f"await (async (m) => ({use}))(await import('node:{name}'))" for name, use in NODE.items()},
    }
    parts = [
        f"out[{json.dumps(name)}] = await (async () => {{ try {{ return {use}; }} catch (e) {{ return `${{e.name}}: ${{e.message}}`; }} }})();"
        for name, use in uses.items()
    ]
    return "\n".join(["const out = {};", *parts, "return JSON.stringify(out);"])


def python_program() -> str:
    parts = [
        f"try: out[{name!r}] = repr({use})\nexcept BaseException as e: out[{name!r}] = f'{{type(e).__name__}}: {{e}}'"
        for name, use in PYTHON.items()
    ]
    return "\n".join([PYTHON_HEAD, *parts, "json.dumps(out)"])


def results(recording: Recording) -> dict[str, Any]:
    assert recording.exit is not None
    assert recording.exit.error is None
    return json.loads(str(recording.exit.value))


def test_every_global_and_part_of_node_has_a_use() -> None:
    globals_ = names("globals.ts", "SYNCHRONOUS") | names("globals.ts", "ASYNCHRONOUS")
    assert globals_ - TYPESCRIPT.keys() == set()
    assert TYPESCRIPT.keys() - globals_ == listed("TypeScript")
    assert names("process/modules.ts", "PURE") - NODE.keys() == set()


def test_every_preloaded_module_of_python_has_a_use() -> None:
    source = guest_source("python", "zygote.py")
    preloaded = source.partition('_PRELOADED = """')[2].partition('"""')[0].split()
    assert {*preloaded} - PYTHON.keys() == {"ctypes"} - PYTHON.keys()
    assert listed("Python") <= PYTHON.keys()


async def test_whatever_a_program_in_typescript_uses_gives_the_same_twice(warm_deno: DenoSandbox) -> None:
    first = await record(warm_deno, "typescript", typescript_program(), answer)
    second = await replay(warm_deno, "typescript", typescript_program(), first)
    one, other = results(first), results(second)
    assert {name for name in one if one[name] != other[name]} <= listed("TypeScript")
    assert first.state == second.state


async def test_whatever_a_program_in_python_uses_gives_the_same_twice(warm_cpython: CPythonSandbox) -> None:
    first = await record(warm_cpython, "python", python_program(), answer)
    async with CPythonSandbox() as elsewhere:  # with other addresses
        second = await replay(elsewhere, "python", python_program(), first)
    one, other = results(first), results(second)
    assert {name for name in one if one[name] != other[name]} <= listed("Python")
    assert first.state == second.state


RANDOM: dict[Language, str] = {
    "typescript": """
const trace = [];
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const steps = [
  async (key) => trace.push(await tools.get({ key })),
  async (key) => trace.push(await tools.put({ key })),
  async (key) => trace.push(await Promise.race([tools.get({ key }), sleep(Math.random() * 4).then(() => "late")])),
  async (key) => trace.push(await Promise.allSettled([tools.get({ key }), tools.put({ key }), sleep(1)])),
  async (key) => { await sleep(Math.random() * 3); trace.push(performance.now(), Date.now()); },
  async () => { await new Promise((r) => setImmediate(r)); trace.push("immediate"); },
  async (key) => trace.push(await Promise.all(["SHA-256", "SHA-1"].map((a) => crypto.subtle.digest(a, new TextEncoder().encode(key)).then((b) => new Uint8Array(b)[0])))),
  async (key) => trace.push((await new Response(new Blob([key]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer()).byteLength),
  async () => { const s = AbortSignal.timeout(2); await new Promise((r) => s.addEventListener("abort", r)); trace.push(s.reason.name); },
  async (key) => { const t = setTimeout(() => trace.push("wrong"), 3); trace.push(await tools.get({ key })); clearTimeout(t); },
  async (key) => trace.push(await Promise.any([tools.get({ key }), tools.get({ key })]) + crypto.randomUUID()),
];
const chain = async () => {
  for (let i = 0; i < 8; i++) {
    try { await steps[Math.floor(Math.random() * steps.length)](`${trace.length}`); } catch (e) { trace.push(`${e}`); }
  }
};
await Promise.all([1, 2, 3, 4, 5].map(chain));
console.log(trace.length);
return trace;
""",
    "python": """
import asyncio, os, random, time, uuid
trace = []
async def limited(key):
    try: return await asyncio.wait_for(tools.get(key=key), random.random() * 0.004)
    except TimeoutError: return "late"
async def first(key):
    done, left = await asyncio.wait([asyncio.ensure_future(tools.get(key=key)) for _ in range(3)], return_when="FIRST_COMPLETED")
    return [t.result() for t in done] + [await t for t in left]
async def grouped(key):
    async with asyncio.TaskGroup() as g: tasks = {g.create_task(tools.get(key=f"{key}{i}")) for i in range(4)}
    return [t.result() for t in tasks]
async def slept(key): await asyncio.sleep(random.random() * 0.003); return [time.time(), time.monotonic()]
async def blocked(key): time.sleep(0.001); return time.time()
async def completed(key): return [await each for each in asyncio.as_completed([tools.get(key=key), tools.put(key=key)])]
async def threaded(key): return await asyncio.to_thread(lambda: os.urandom(3))
async def chance(key): return [str(uuid.uuid4()), random.random(), list({key, "a", "b"})]
async def called(key): return await tools.get(key=key)
steps = [limited, first, grouped, slept, blocked, completed, threaded, chance, called]
async def chain():
    for _ in range(8):
        try: trace.append(await random.choice(steps)(str(len(trace))))
        except Exception as error: trace.append(str(error))
await asyncio.gather(*(chain() for _ in range(5)))
print(len(trace))
trace
""",
}


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_random_programs_run_the_same_way_again(language: Language, warm: dict[Language, Any]) -> None:
    for _ in range(PROGRAMS):
        seed = CHANCE.randbytes(32).hex()
        first = await record(warm[language], language, RANDOM[language], answer, seed)
        second = await replay(warm[language], language, RANDOM[language], first)
        assert differences(first, second) == []
        assert first.exit is not None
        assert first.exit.error is None


async def test_calls_and_timers_have_numbers_in_the_order_in_which_they_leave(warm_deno: DenoSandbox) -> None:
    source = """
        const calls = Array.from({ length: 200 }, (_, i) => tools.get({ key: i }));
        await new Promise((r) => setTimeout(r, 1));
        await Promise.all(calls);
    """
    first = await record(warm_deno, "typescript", source, answer)
    tools = [tool for tool, _ in first.calls.values()]
    assert list(first.calls) == list(range(1, 202))  # or the session would have ended the run
    assert tools.index("$timer") == 128  # ahead of those that wait for their turn
    assert differences(first, await replay(warm_deno, "typescript", source, first)) == []


@pytest.mark.parametrize(
    ("language", "source"),
    [
        (
            "typescript",
            "console.log('x'); await Promise.all([tools.get({}), new Promise(() => setTimeout(() => {}, 60_000))])",
        ),
        ("python", "import asyncio\nprint('x')\nawait asyncio.gather(tools.get(), asyncio.sleep(60))"),
    ],
)
async def test_a_guest_says_when_nothing_is_left_to_run(
    language: Language, source: str, warm: dict[Language, Any]
) -> None:
    called = anyio.Event()

    async def never(tool: str, input: Any) -> Reply:
        called.set()
        await anyio.sleep_forever()
        raise AssertionError

    journal = Recording(never, "5a" * 32)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, warm[language], language, source, journal)
        await called.wait()
        journal.ask()
        await until(lambda: journal.idle_states)
        assert [state.calls for state in journal.idle_states] == [2]
        assert journal.logs[0].text == "x"
        tasks.cancel_scope.cancel()


async def test_a_timer_that_is_not_needed_any_more_is_cancelled(warm: dict[Language, Any]) -> None:
    sources: dict[Language, str] = {
        "typescript": "const t = setTimeout(() => {}, 60_000); await tools.get({}); clearTimeout(t); await tools.get({})",
        "python": "import asyncio\nawait asyncio.wait_for(tools.get(), 60)\nawait tools.get()",
    }
    for language, source in sources.items():
        first = await record(warm[language], language, source, answer)
        assert first.cancelled == {n for n, (tool, _) in first.calls.items() if tool == "$timer"} != set()
        assert differences(first, await replay(warm[language], language, source, first)) == []


async def test_a_wait_without_an_end_sets_no_timer(warm: dict[Language, Any]) -> None:
    sources: dict[Language, str] = {
        "typescript": "try { AbortSignal.timeout(Infinity); } catch (e) { await tools.get({}); return e.name; }",
        "python": """
import asyncio, math, time
forever = asyncio.create_task(asyncio.sleep(math.inf))
async with asyncio.timeout(math.inf):
    await tools.get()
forever.cancel()
try: time.sleep(math.inf)
except OverflowError as error: name = type(error).__name__
name
""",
    }
    for language, source in sources.items():
        first = await record(warm[language], language, source, answer)
        assert first.exit is not None
        assert first.exit.value == {"typescript": "TypeError", "python": "OverflowError"}[language]
        assert [tool for tool, _ in first.calls.values()] == ["get"]


async def test_timers_that_are_cleared_at_once_are_no_work_for_the_host(warm_deno: DenoSandbox) -> None:
    source = """
        for (let i = 0; i < 30_000; i++) clearTimeout(setTimeout(() => {}, 1000));
        let error = "";
        const timers = [];
        try { for (;;) timers.push(setTimeout(() => {}, 60_000)); } catch (e) { error = e.message; }
        timers.forEach(clearTimeout);
        await tools.get({});
        return error;
    """
    first = await record(warm_deno, "typescript", source, answer)
    assert first.exit is not None
    assert first.exit.value == "more than 10000 timers run at the same time"
    assert len(first.calls) == 1


async def test_requests_of_libraries_are_repeated(warm: dict[Language, Any]) -> None:
    sources: dict[Language, str] = {
        "typescript": "const [a, b] = await Promise.all([fetch('http://a/1'), fetch('http://a/2', { method: 'POST', body: new FormData() })]); return [await a.text(), await b.text(), Date.now()];",
        "python": "import urllib.request, time, asyncio\n"
        "task = asyncio.ensure_future(tools.get(key='x'))\n"
        "await asyncio.sleep(0)\n"
        "texts = [urllib.request.urlopen(f'http://a/{i}').read().decode() for i in range(3)]\n"
        "[texts, await task, time.time()]",
    }

    async def respond(tool: str, input: Any) -> Reply:
        if not tool.startswith("$"):
            return await answer(tool, input)
        journals[-1].ask()  # also while the program blocks
        await anyio.sleep(CHANCE.random() * 0.003)
        if tool == "$fetch":
            head: dict[str, object] = {
                "status": 200,
                "statusText": "OK",
                "headers": [],
                "url": input["url"],
                "redirected": False,
            }
            return Reply(value={**head, "data": f"{CHANCE.random()}".encode(), "done": True})
        text = f"{CHANCE.random()}"
        return Reply(
            value={"data": f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode(), "done": True}
        )

    journals: list[Recording] = []
    for language, source in sources.items():
        journals.append(Recording(respond, "5a" * 32))
        first = await run(warm[language], language, source, journals[-1])
        assert first.exit is not None
        assert first.exit.error is None
        assert differences(first, await replay(warm[language], language, source, first)) == []


async def test_calls_that_a_program_leaves_behind_end_the_same_way(warm: dict[Language, Any]) -> None:
    async def slow(tool: str, input: Any) -> Reply:
        await (anyio.sleep_forever() if tool == "put" else anyio.lowlevel.checkpoint())
        return Reply(value=1)

    sources: dict[Language, str] = {
        "typescript": "const r = await Promise.race([tools.put({}), tools.get({})]); tools.put({}); console.log(r); return r;",
        "python": "import asyncio\ndone, _ = await asyncio.wait([*map(asyncio.ensure_future, (tools.put(), tools.get()))], return_when='FIRST_COMPLETED')\nprint(done)\n1",
    }
    for language, source in sources.items():
        first = await record(warm[language], language, source, slow)
        second = await replay(warm[language], language, source, first)
        assert differences(first, second) == []
        assert 0 in [sequence for sequence, _ in first.replies]
