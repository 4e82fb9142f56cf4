"""The guest in a realm: a fresh context whose platform is our own code, and leads to nothing of the engine's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.guest import RuntimeDirectory, realm_guest
from tests.guest.driver import FLAGS, Guest

pytestmark = pytest.mark.matrix("a guest that nothing starts; the one that programs run in, the gate tests everywhere")

HERE = Path(__file__).parent
PROGRAMS: list[str] = json.loads((HERE / "programs.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runtime() -> Iterator[RuntimeDirectory]:
    directory = RuntimeDirectory(lambda: {"realm.js": realm_guest()})
    yield directory
    directory.close()


@pytest.fixture(scope="module")
def usual() -> Iterator[RuntimeDirectory]:
    directory = RuntimeDirectory()
    yield directory
    directory.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def guest(runtime: RuntimeDirectory, cache: Path) -> Iterator[Guest]:
    process = Guest(runtime, "realm.js", cache)
    yield process
    process.close()


@pytest.fixture
def alone(usual: RuntimeDirectory, cache: Path) -> Iterator[Guest]:
    """The guest in the engine's own context."""
    process = Guest(usual, "main.js", cache)
    yield process
    process.close()


ONLY_ALONE = [
    "FileReader", "ReadableStream", "ReadableStreamDefaultReader", "ReadableStreamBYOBReader", "WritableStream",
    "WritableStreamDefaultWriter", "TransformStream", "ByteLengthQueuingStrategy", "CountQueuingStrategy",
    "TextDecoderStream", "TextEncoderStream", "CompressionStream", "DecompressionStream", "MessageChannel",
    "MessagePort",
]  # fmt: skip
NAMES = "return Object.getOwnPropertyNames(globalThis).sort()"


def test_parts_that_call_back_on_their_own_are_absent(guest: Guest, alone: Guest) -> None:
    names, *kinds = guest.value(
        f"const names = Object.getOwnPropertyNames(globalThis).sort(); return [names, {ONLY_ALONE}.map((name) => typeof"
        " globalThis[name]), typeof new Blob([]).stream, typeof new Response('').body]"
    )
    assert set(alone.value(NAMES)) - set(names) == set(ONLY_ALONE)
    assert kinds == [["undefined"] * 15, "undefined", "undefined"]


COMPARED = [each for each in PROGRAMS if each != NAMES and not any(name in each for name in [*ONLY_ALONE, ".stream()"])]
APART = re.compile(r"prototype|prepareStackTrace|throw|reject|inner|nope|repeat|[({]tools|return tools\.echo$|{b: new")
"""Finds programs that fail, or change what others would see."""


def test_programs_end_as_in_the_engines_own_context(guest: Guest, alone: Guest) -> None:
    bodies = "".join(f"async () => {{ {each} }},\n" for each in COMPARED if not APART.search(each))
    program = f"const found = []; for (const each of [{bodies}]) found.push(await each()); return found"
    (kind, values, *rest), entries = guest.run(program)
    (other_kind, other_values, *other_rest), other_entries = alone.run(program)
    assert (kind, other_kind) == ("value", "value"), (values, other_values)
    for each, value, other in zip(bodies.splitlines(), values, other_values, strict=True):
        assert repr(value) == repr(other), each
    assert repr((rest, entries)) == repr((other_rest, other_entries))


@pytest.mark.parametrize("program", [each for each in COMPARED if APART.search(each)][::3])
def test_a_program_that_fails_ends_as_in_the_engines_own_context(guest: Guest, alone: Guest, program: str) -> None:
    assert repr(guest.run(program)) == repr(alone.run(program))


def test_a_program_that_breaks_its_own_runtime_fails(guest: Guest) -> None:
    content, _ = guest.run("Promise.prototype.constructor = null; return 1")
    assert content[1][1] == "RuntimeBroken"


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
def test_a_program_cannot_break_the_guest_by_what_a_reply_meets(guest: Guest, breaking: str) -> None:
    guest.start(
        f"const {{echo}} = tools; const call = echo({{}}); try {{ {breaking} }} catch {{}} await call; return 1"
    )
    while guest.next()[0] != "CALL":
        pass
    guest.reply([1, False, ["tool_error", "ToolError", "no"]])
    while (frame := guest.next())[0] != "EXIT":
        pass
    assert frame[1][0] == "error"


@pytest.mark.parametrize("arguments", [(), ("--allow-eval",)], ids=["", "eval"])
def test_nothing_of_the_engines_own_context_that_a_program_reaches_can_be_changed(
    runtime: RuntimeDirectory, cache: Path, arguments: tuple[str, ...]
) -> None:
    guest = Guest(runtime, "realm.js", cache, arguments, FLAGS if not arguments else "--max-lazy")
    content, _ = guest.run((HERE / "reach.js").read_text(encoding="utf-8"))
    guest.close()
    assert content[0] == "value", content
    reached, foreign, changeable, count, evaluated = content[1]
    assert reached > 1000
    assert foreign > 10
    assert (changeable, count, evaluated) == ([], 0, [])


def test_no_receiver_gets_anything_but_the_language_out_of_the_engines_context(guest: Guest) -> None:
    complete, called, foreign, powers = guest.value((HERE / "receivers.js").read_text(encoding="utf-8"), log_bytes=10)
    assert complete
    assert called > 200
    assert powers == []
    assert foreign == []


SOURCES = [
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
]


def test_no_code_is_made_from_strings(guest: Guest) -> None:
    tries = "".join(
        f"try {{ {each}; ends.push('made') }} catch (error) {{ ends.push(error.name) }}\n" for each in SOURCES
    )
    ends = guest.value(f"const ends = []; {tries} return ends")
    assert len(ends) == len(SOURCES)
    assert set(ends) <= {"EvalError", "TypeError"}


def test_eval_works_where_it_is_allowed_and_stays_in_its_realm(runtime: RuntimeDirectory, cache: Path) -> None:
    guest = Guest(runtime, "realm.js", cache, ["--allow-eval"], "--max-lazy")
    sources = ["eval('1 + 1')", "new Function('return typeof Deno')()", "URL.constructor('return typeof Deno')()"]
    assert guest.value(f"return [{', '.join(sources)}]") == [2, "undefined", "undefined"]
    guest.close()


def test_an_import_reaches_no_loader(guest: Guest) -> None:
    specifiers = ["node:fs", "data:text/javascript,1", "file:///etc/hostname"]
    body = "import(each).then(() => 'loaded', (error) => error.name)"
    assert guest.value(f"return await Promise.all({json.dumps(specifiers)}.map((each) => {body}))") == ["TypeError"] * 3


@pytest.mark.parametrize(
    "body",
    [
        "setInterval(() => console.log('left'), 1); return 1",
        "AbortSignal.timeout(5).addEventListener('abort', () => console.log('left')); return 1",
        "crypto.subtle.digest('SHA-256', new Uint8Array(1000000)).then(() => console.log('left')); return 1",
        "setTimeout(() => { throw new Error('left') }, 2); return 1",
    ],
)
def test_nothing_of_a_program_goes_on_after_its_end(guest: Guest, body: str) -> None:
    guest.start(body)
    while (frame := guest.next())[0] == "LOG":  # until then it may
        pass
    kind, [*outcome, _] = frame  # its remarks: what failed until then
    assert (kind, outcome) == ("EXIT", ["value", 1, [], 0])
    assert guest.process.wait(30) == 0


def test_timers_and_calls_wake_a_program_in_turns(guest: Guest) -> None:
    body = "await new Promise((resolve) => setTimeout(resolve, 5)); return await tools.echo({a: await tools.echo(1)})"
    assert guest.run(body)[0] == ["value", {"a": 1}, [], 0, []]


def test_a_program_that_nothing_can_wake_is_found(guest: Guest) -> None:
    content, _ = guest.run("await tools.echo(1); await new Promise(() => {})")
    assert content[1][1] == "Deadlock"


def test_an_unhandled_rejection_is_told(guest: Guest) -> None:
    body = "class Mine extends Promise {} Mine.reject(new Error('mine')); await tools.echo({}); return 2"
    (_, value, _, _, remarks), _ = guest.run(body)
    assert value == 2
    assert "Error: mine" in remarks[0]


def test_a_program_that_does_not_compile_is_refused_with_the_place(guest: Guest) -> None:
    content, _ = guest.run("let x = 1;\n  let y = ;")
    refusal = ["program_rejected", "SyntaxError", "Unexpected token ';'", "    at corral:program.ts:2:11", None]
    assert content[:2] == ["rejected", refusal]


def test_limits_environment_and_tools_are_those_of_the_start(guest: Guest) -> None:
    body = "console.log(process.env.NAME, Object.keys(tools)); return 'x'.repeat(100)"
    content, entries = guest.run(body, env={"NAME": "one"}, value_bytes=50)
    assert content[1][0] == "output_exceeded"
    assert entries == [["log", "one [ 'echo', 'space' ]"]]


LISTENER = "const t = new EventTarget(); t.addEventListener('x', () => { throw 1 }); t.dispatchEvent(new Event('x'))"


@pytest.mark.parametrize(
    "action", ["tools.echo({})", "new URL('http://x')", "console.log()", "structuredClone([[]])", "0"]
)
def test_a_full_stack_is_survived(guest: Guest, action: str) -> None:
    dig = f"let n = 0; const dig = () => {{ n++; try {{ {action} }} catch {{}} dig() }}; try {{ dig() }} catch {{}}"
    content, _ = guest.run(f"{dig} return n > 10", calls=1, log_bytes=10)
    assert content[:2] == ["value", True]


def test_a_full_stack_in_a_listener_ends_in_an_exit(guest: Guest) -> None:
    dig = f"const dig = () => {{ try {{ {LISTENER} }} catch {{}} dig() }}; try {{ dig() }} catch {{}}"
    content, _ = guest.run(f"{dig} return 1", log_bytes=10)
    assert content[0] in {"value", "error"}


def test_webassembly_compiles_where_it_is_allowed(runtime: RuntimeDirectory, cache: Path) -> None:
    guest = Guest(runtime, "realm.js", cache, ["--allow-wasm"])
    module = "new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])"
    assert guest.value(f"return (await WebAssembly.instantiate({module})).instance instanceof WebAssembly.Instance")
    guest.close()
