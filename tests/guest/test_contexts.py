"""Many programs in one process, each in a context of its own: what they share, which is nothing that shows."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.guest import RuntimeDirectory
from tests.guest.driver import FLAGS, Guest

HERE = Path(__file__).parent
PROGRAMS: list[str] = json.loads((HERE / "programs.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runtime() -> Iterator[RuntimeDirectory]:
    directory = RuntimeDirectory()
    yield directory
    directory.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def contexts(runtime: RuntimeDirectory, cache: Path) -> Iterator[Guest]:
    """One process for all tests that leave it alive: whatever one of them did must not show in the next."""
    guest = Guest(runtime, "contexts.js", cache)
    yield guest
    guest.close()


@pytest.fixture
def fresh(runtime: RuntimeDirectory, cache: Path) -> Iterator[Guest]:
    guest = Guest(runtime, "contexts.js", cache)
    yield guest
    guest.close()


ONLY_ALONE = [
    "FileReader", "ReadableStream", "ReadableStreamDefaultReader", "ReadableStreamBYOBReader", "WritableStream",
    "WritableStreamDefaultWriter", "TransformStream", "ByteLengthQueuingStrategy", "CountQueuingStrategy",
    "TextDecoderStream", "TextEncoderStream", "CompressionStream", "DecompressionStream", "MessageChannel",
    "MessagePort",
]  # fmt: skip
NAMES = "return Object.getOwnPropertyNames(globalThis).sort()"


def test_parts_that_call_back_on_their_own_are_absent(contexts: Guest, runtime: RuntimeDirectory, cache: Path) -> None:
    alone = Guest(runtime, "main.js", cache)
    assert set(alone.value(NAMES)) - set(contexts.value(NAMES)) == set(ONLY_ALONE)
    alone.close()
    assert contexts.value(f"return {ONLY_ALONE}.map((name) => typeof globalThis[name])") == ["undefined"] * 15
    assert contexts.value("return [typeof new Blob([]).stream, typeof new Response('').body]") == ["undefined"] * 2


@pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS if each != NAMES and not any(name in each for name in [*ONLY_ALONE, ".stream()"])],
)
def test_a_program_ends_as_in_a_process_of_its_own(
    contexts: Guest, runtime: RuntimeDirectory, cache: Path, program: str
) -> None:
    alone = Guest(runtime, "main.js", cache)
    expected = alone.run(program)
    alone.close()
    assert repr(contexts.run(program)) == repr(expected)


POLLUTIONS = [
    "Object.prototype.polluted = 1",
    "Array.prototype.push = () => 'no'",
    "Array.prototype[Symbol.iterator] = function* () {}",
    "Promise.prototype.then = () => 'no'",
    "Object.prototype.toJSON = () => 'no'",
    "Object.defineProperty(Object.prototype, 'get', { value: () => 'no', configurable: true })",
    "String.prototype.includes = () => true",
    "Function.prototype.polluted = 1",
    "Error.prepareStackTrace = () => 'no'",
    "Error.stackTraceLimit = 0",
    "Symbol.prototype.polluted = 1",
    "JSON.stringify = JSON.parse = () => 'no'",
    "Reflect.apply = () => 'no'",
    "Math.max = () => 'no'",
    "Date.now = () => 0",
    "URL.prototype.polluted = 1; delete URL.prototype.href; URL.polluted = 1",
    "Object.getPrototypeOf(URL.prototype).polluted = 1",
    "TextEncoder.prototype.encode = () => 'no'",
    "TextDecoder.prototype.decode = () => 'no'",
    "Object.getPrototypeOf(new TextEncoder().encode('x')).polluted = 1",
    "Object.getPrototypeOf(Object.getPrototypeOf(Uint8Array.prototype)).polluted = 1",
    "EventTarget.prototype.addEventListener = () => 'no'",
    "Response.prototype.json = Blob.prototype.text = () => 'no'",
    "Buffer.from = () => 'no'; Buffer.prototype.polluted = 1; Buffer.poolSize = 1000000",
    "crypto.polluted = 1; Crypto.prototype.randomUUID = () => 'no'",
    "console.log = () => 'no'; console.polluted = 1",
    "performance.mark('left'); performance.polluted = 1",
    "globalThis.left = 1; globalThis.tools = globalThis.Object = undefined",
    "Object.freeze(Object.prototype); Object.freeze(Array.prototype); Object.freeze(globalThis)",
    "Object.setPrototypeOf(globalThis, { left: 1 })",
    "(await new Response('{}').json()).__proto__.polluted = 1",
    "try { new URL('') } catch (error) { Object.getPrototypeOf(error).message = 'no'; error.constructor.polluted = 1 }",
    "structuredClone({}).__proto__.polluted = 1; structuredClone([]).__proto__.polluted = 1",
    "setTimeout.polluted = 1; Object.getPrototypeOf(setTimeout(() => {}, 1)).polluted = 1",
    "(function () {}).constructor.prototype.polluted = 1; (async () => {}).constructor.prototype.polluted = 1",
    "[].values().__proto__.__proto__.map = () => 'no'; new URLSearchParams('a=1').keys().__proto__.polluted = 1",
    "new AbortController().signal.constructor.prototype.polluted = 1; Event.prototype.polluted = 1",
]
LOOK = """
  const found = [];
  const expect = (what, holds) => { if (!holds) found.push(what); };
  for (const each of [
    {}, [], () => {}, async () => {}, 1, '', Symbol(), new Error(), new Map(), Promise.resolve(), [].values(),
    new URL('http://a/b'), URL, new TextEncoder(), new TextEncoder().encode('x'), new EventTarget(), new Event('x'),
    Buffer, Buffer.from('x'), crypto, console, performance, setTimeout, setTimeout(() => {}, 0), new Response(),
    new URLSearchParams('a=1').keys(), structuredClone({}), structuredClone([]), new AbortController().signal, globalThis,
    Object.getPrototypeOf(URL.prototype), tools.echo,
  ]) expect('polluted ' + typeof each, each.polluted === undefined && each.left === undefined);
  const list = []; list.push(1, 2);
  expect('push', list.length === 2 && [...list].length === 2);
  expect('json', JSON.stringify({ a: [JSON.parse('1')] }) === '{"a":[1]}');
  expect('url', new URL('http://a/b').href === 'http://a/b' && [...new URLSearchParams('a=1')][0][1] === '1');
  expect('text', new TextDecoder().decode(new TextEncoder().encode('x')) === 'x');
  expect('response', (await new Response('{"a":1}').json()).a === 1);
  expect('blob', (await new Blob(['x']).text()) === 'x');
  expect('uuid', crypto.randomUUID().length === 36);
  expect('buffer', Buffer.from('abc').toString('hex') === '616263' && Buffer.from('abc').buffer.byteLength === 3);
  expect('marks', performance.getEntries().length === 0);
  expect('then', (await Promise.resolve(5).then((value) => value + 1)) === 6);
  expect('stack', new Error('x').stack.includes('corral:program.ts'));
  expect('limit', Error.stackTraceLimit === 10);
  expect('date', Date.now() > 1 && Math.max(1, 2) === 2);
  expect('frozen', !Object.isFrozen(Object.prototype) && !Object.isFrozen(Array.prototype) && !Object.isFrozen(globalThis));
  expect('message', new TypeError().message === '');
  expect('error', (() => { try { new URL('') } catch (error) { return error.message !== 'no' && error instanceof TypeError } })());
  expect('apply', Reflect.apply((value) => value, null, [3]) === 3);
  expect('iterators', [1].values().map((value) => value + 1).next().value === 2);
  const heard = [];
  const target = new EventTarget();
  target.addEventListener('x', () => heard.push(1));
  target.dispatchEvent(new Event('x'));
  expect('events', heard.length === 1);
  expect('tools', (await tools.echo({ a: 1 })).a === 1);
  console.log('seen');
  return found;
"""


@pytest.mark.parametrize("pollution", POLLUTIONS)
def test_what_a_program_changes_is_not_seen_by_the_next_one_nor_by_one_that_overlaps(
    contexts: Guest, pollution: str
) -> None:
    contexts.run(f"try {{ {pollution} }} catch {{}} return 0")
    assert contexts.run(LOOK) == (["value", [], [], 0, []], [["log", "seen"]])
    polluter = contexts.start(f"const {{echo}} = tools; try {{ {pollution} }} catch {{}} await echo({{}}); return 0")
    while (kind := contexts.next()[1]) not in {"CALL", "EXIT"}:
        pass
    assert contexts.run(LOOK) == (["value", [], [], 0, []], [["log", "seen"]])
    while kind != "EXIT":
        contexts.reply(polluter, [1, True])
        kind = contexts.next()[1]


def test_a_program_that_breaks_its_own_runtime_ends_alone(contexts: Guest) -> None:
    content, _ = contexts.run("Promise.prototype.constructor = null; return 1")
    assert content[1][1] == "RuntimeBroken"
    assert contexts.run(LOOK) == (["value", [], [], 0, []], [["log", "seen"]])


@pytest.mark.parametrize(
    "breaking",
    [
        "Object.defineProperty(Object.prototype, 'get', { value: () => 'no' })",
        "Object.defineProperty(Object.prototype, 'set', { get() { throw 1 } })",
        "Object.freeze(Error); Object.defineProperty(Error.prototype, 'message', { get() { throw 1 }, set() { throw 1 } })",
        "Object.defineProperty(Function.prototype, Symbol.hasInstance, { value() { throw 1 } })",
        "globalThis.Error = globalThis.Promise = globalThis.TypeError = { get [Symbol.hasInstance]() { throw 1 } }",
    ],
)
def test_a_program_cannot_break_the_process_by_what_a_reply_meets(contexts: Guest, breaking: str) -> None:
    run = contexts.start(
        f"const {{echo}} = tools; const call = echo({{}}); try {{ {breaking} }} catch {{}} await call; return 1"
    )
    while contexts.next()[1] != "CALL":
        pass
    contexts.reply(run, [1, False, ["tool_error", "ToolError", "no"]])
    while (frame := contexts.next())[1] != "EXIT":
        pass
    assert frame[2][0] == "error"
    assert contexts.run(LOOK) == (["value", [], [], 0, []], [["log", "seen"]])


@pytest.mark.parametrize("arguments", [(), ("--allow-eval",)], ids=["", "eval"])
def test_nothing_of_the_engines_own_context_that_a_program_reaches_can_be_changed(
    runtime: RuntimeDirectory, cache: Path, arguments: tuple[str, ...]
) -> None:
    guest = Guest(runtime, "contexts.js", cache, arguments, FLAGS if not arguments else "--max-lazy")
    content, _ = guest.run((HERE / "reach.js").read_text(encoding="utf-8"))
    guest.close()
    assert content[0] == "value", content
    reached, foreign, changeable, count, evaluated = content[1]
    assert reached > 1000
    assert foreign > 10
    assert (changeable, count, evaluated) == ([], 0, [])


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "new Function('1')",
        "(async () => {}).constructor('1')",
        "URL.constructor('1')",
        "Object.getPrototypeOf(URL).constructor('1')",
        "new URL('http://a').toString.constructor('1')",
        "Object.getPrototypeOf(TextEncoder).constructor('1')",
        "structuredClone({}).constructor.constructor('1')",
        "(await new Response('{}').json()).constructor.constructor('1')",
        "setTimeout.constructor('1')",
        "tools.echo.constructor('1')",
        "console.log.constructor('1')",
        "Reflect.construct(Function, ['1'])",
        "setTimeout('globalThis.ran = 1', 0)",
    ],
)
def test_no_code_is_made_from_strings(contexts: Guest, source: str) -> None:
    kind, *_ = contexts.value(f"try {{ {source}; return ['made'] }} catch (error) {{ return [error.name] }}")
    assert kind in {"EvalError", "TypeError"}


def test_eval_works_where_it_is_allowed_and_stays_in_its_context(runtime: RuntimeDirectory, cache: Path) -> None:
    guest = Guest(runtime, "contexts.js", cache, ["--allow-eval"], "--max-lazy")
    assert guest.value("return [eval('1 + 1'), new Function('return typeof Deno')()]") == [2, "undefined"]
    assert guest.value("globalThis.left = 1; return (0, eval)('left')") == 1
    assert guest.value("return [typeof left, URL.constructor('return typeof left + typeof Deno')()]") == [
        "undefined",
        "undefinedundefined",
    ]
    guest.close()


@pytest.mark.parametrize("specifier", ["node:fs", "data:text/javascript,1", "file:///etc/hostname"])
def test_an_import_reaches_no_loader(contexts: Guest, specifier: str) -> None:
    body = f"return await import('{specifier}').then(() => 'loaded', (error) => error.name)"
    assert contexts.value(body) == "TypeError"


def test_overlapping_programs_get_their_own_replies_logs_and_results(contexts: Guest) -> None:
    body = "console.log(n); let sum = 0; for (let i = 0; i < 3; i++) sum += await tools.echo({n, i}); return [n, sum]"
    runs = {contexts.start(f"const n = {index}; {body}"): index for index in range(20)}
    waiting: list[tuple[int, int]] = []
    ended: dict[int, Any] = {}
    while len(ended) < 20:
        run, kind, payload = contexts.next()
        if kind == "LOG":
            assert payload == ["log", str(runs[run])]
        elif kind == "CALL":
            assert payload[2]["n"] == runs[run]
            waiting.append((run, payload[0]))
            if len(waiting) == len(runs) - len(ended):  # all of them wait: answered in the other order
                while waiting:
                    number, sequence = waiting.pop()
                    contexts.reply(number, [sequence, True, runs[number] * sequence])
        else:
            ended[run] = payload
    assert ended == {run: ["value", [index, 6 * index], [], 0, []] for run, index in runs.items()}


def test_a_program_starts_while_another_one_waits_for_a_timer(contexts: Guest) -> None:
    slow = contexts.start("await new Promise((resolve) => setTimeout(resolve, 200)); return 'slow'")
    quick = contexts.start("return await tools.echo({})")
    assert contexts.next() == (quick, "CALL", [1, "echo", {}])
    contexts.reply(quick, [1, True, "quick"])
    assert contexts.next() == (quick, "EXIT", ["value", "quick", [], 0, []])
    assert contexts.next() == (slow, "EXIT", ["value", "slow", [], 0, []])


def test_a_program_that_nothing_can_wake_is_found_although_others_wait(contexts: Guest) -> None:
    waiting = contexts.start("return await tools.echo({})")
    assert contexts.next()[:2] == (waiting, "CALL")
    timed = contexts.start("await new Promise((resolve) => setTimeout(resolve, 300)); return 'timed'")
    stuck = contexts.start("await new Promise(() => {})")
    run, kind, payload = contexts.next()
    assert (run, kind, payload[1][1]) == (stuck, "EXIT", "Deadlock")
    contexts.reply(waiting, [1, True, 1])
    assert contexts.next()[:2] == (waiting, "EXIT")
    assert contexts.next()[:2] == (timed, "EXIT")


@pytest.mark.parametrize(
    "body",
    [
        "setInterval(() => console.log('left'), 1); return 1",
        "setTimeout(() => console.log('left'), 5); return 1",
        "AbortSignal.timeout(5).addEventListener('abort', () => console.log('left')); return 1",
        "crypto.subtle.digest('SHA-256', new Uint8Array(1000000)).then(() => console.log('left')); return 1",
        "new Blob(['x']).text().then(() => { setTimeout(() => console.log('left'), 1) }); return 1",
        "setTimeout(() => { throw new Error('left') }, 2); return 1",
    ],
)
def test_nothing_of_a_program_goes_on_after_its_end(contexts: Guest, body: str) -> None:
    run = contexts.start(body)
    while (frame := contexts.next())[1] == "LOG":  # until then it may
        pass
    assert frame == (run, "EXIT", ["value", 1, [], 0, []])
    # A frame of the run that is over would come before this one's end.
    assert contexts.run("await new Promise((resolve) => setTimeout(resolve, 30)); return 2")[0][1] == 2


@pytest.mark.parametrize(
    "body",
    [
        "await tools.echo({})",
        "setInterval(() => console.log('tick'), 1); await tools.echo({}); await new Promise(() => {})",
        "try { await tools.echo({}) } finally { for (;;) { await tools.echo({}) } }",
    ],
)
def test_a_run_that_is_stopped_ends_as_cancelled_and_ignores_what_comes_later(contexts: Guest, body: str) -> None:
    run = contexts.start(body)
    while contexts.next()[1] != "CALL":
        pass
    contexts.stop(run)
    while (frame := contexts.next())[1] == "LOG":
        assert frame[0] == run
    assert frame[:2] == (run, "EXIT")
    assert frame[2][:2] == ["error", ["cancelled", "Cancelled", "the host stopped the run", "", None]]
    contexts.reply(run, [1, True, 1])
    contexts.stop(run)
    contexts.stop(12345)
    assert contexts.value("return 3") == 3


def test_a_run_that_spins_in_microtasks_holds_back_its_exit(fresh: Guest) -> None:
    fresh.start("(async () => { for (;;) await null })(); return 1")
    assert fresh.process.stdout is not None
    assert select.select([fresh.process.stdout], [], [], 0.5)[0] == []


def test_unhandled_rejections_are_told_to_the_program_whose_they_are(contexts: Guest) -> None:
    first = contexts.start("await tools.echo({}); Promise.reject(new Error('first')); return 1")
    second = contexts.start(
        "class Mine extends Promise {} Mine.reject(new Error('second')); await tools.echo({}); return 2"
    )
    assert {contexts.next()[0], contexts.next()[0]} == {first, second}
    contexts.reply(first, [1, True])
    contexts.reply(second, [1, True])
    remarks = {run: payload[4] for run, kind, payload in (contexts.next(), contexts.next()) if kind == "EXIT"}
    assert [first, second] == sorted(remarks)
    assert ["Error: first" in remarks[first][0], "Error: second" in remarks[second][0]] == [True, True]


def test_a_program_that_does_not_compile_is_refused_with_the_place(contexts: Guest) -> None:
    content, _ = contexts.run("let x = 1;\n  let y = ;")
    refusal = ["program_rejected", "SyntaxError", "Unexpected token ';'", "    at corral:program.ts:2:11", None]
    assert content[:2] == ["rejected", refusal]


def test_limits_environment_and_tools_are_those_of_the_run(contexts: Guest) -> None:
    first = contexts.start("await tools.echo({}); return process.env.NAME", env={"NAME": "one"})
    assert contexts.next()[0] == first
    assert contexts.value("return [typeof process, Object.keys(tools)]") == ["undefined", ["echo", "space"]]
    second, _ = contexts.run("return 'x'.repeat(100)", value_bytes=50)
    assert second[1][0] == "output_exceeded"
    contexts.reply(first, [1, True])
    assert contexts.next() == (first, "EXIT", ["value", "one", [], 0, []])


def test_a_stack_overflow_of_one_program_leaves_the_others_alone(contexts: Guest) -> None:
    other = contexts.start("return await tools.echo({})")
    assert contexts.next()[:2] == (other, "CALL")
    listener = (
        "const t = new EventTarget(); t.addEventListener('x', () => { throw 1 }); t.dispatchEvent(new Event('x'))"
    )
    for action in ("tools.echo({})", "new URL('http://x')", "console.log()", "structuredClone([[]])", "0", listener):
        body = f"let n = 0; const dig = () => {{ n++; try {{ {action} }} catch {{}} dig() }}; try {{ dig() }} catch {{}} return n > 10"
        run = contexts.start(body, calls=1, log_bytes=10)
        while True:
            number, kind, payload = contexts.next()
            assert number == run
            if kind == "CALL":
                contexts.reply(run, [payload[0], True])
            elif kind == "EXIT":
                assert payload[:2] == ["value", True] or action == listener
                break
    contexts.reply(other, [1, True, "well"])
    assert contexts.next() == (other, "EXIT", ["value", "well", [], 0, []])


def test_memory_of_programs_that_have_ended_is_given_back(runtime: RuntimeDirectory, cache: Path) -> None:
    guest = Guest(runtime, "contexts.js", cache, flags=f"{FLAGS},--max-old-space-size=64")
    # Of 0.4 MB each: what either half keeps would be more than the heap.
    for index in range(500):
        kept = "const kept = new Array(50000).fill('x'); new EventTarget().addEventListener('x', () => kept);"
        assert guest.value(f"{kept} {'' if index % 2 else 'setTimeout(() => kept, 100000);'} return {index}") == index
    guest.close()
