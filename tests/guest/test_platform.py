"""The platform over the bare language: in QuickJS, which lacks it, programs end as in the engine that has one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import deno
import pytest
import quickjs

from corral.guest import platform_script

HERE = Path(__file__).parent
PROGRAMS: list[str] = json.loads((HERE / "programs.json").read_text(encoding="utf-8"))
ELSEWHERE = re.compile(
    r"tools|console|fetch|Stream|\.stream|Request|Form|FileReader|URLPattern|Message|Intl|eval|Function\(|typeof Deno|prepareStack"
    r"|subtle|File\(|performance\.mark|Function.prototype|Promise.prototype|ropertyNames|Promise\.reject|=> \{\}\)$|queueMicrotask\(|typeof queue"
)
"""Matches programs that use features the platform lacks."""
MORE = [
    "const d = new TextDecoder(); const a = new TextEncoder().encode('\\ufeff€x'); return [d.decode(a.slice(0, 4), {stream: true}), d.decode(a.slice(4)), d.decode(a.slice(3)), new TextDecoder('latin1').encoding]",
    "return [...new TextEncoder().encode('a\\ud800é€😀\\udc00')]",
    "return ['a', 'YQ', ' Y Q = = ', 'é'].map((each) => { try { return atob(each) } catch (error) { return [error.name, error.code] } })",
    "return ['\\xff', '€', '😀'].map((each) => { try { return btoa(each) } catch (error) { return [error.name, error.code] } })",
    "const u = new URL('http://a/?b=1'); const p = u.searchParams; u.search = '?c=2'; p.set('d', 'é&'); u.port = '81'; u.hash = 'x y'; return [u.href, [...p], p.size, p.has('c', '2')]",
    "const b = Buffer.alloc(16); b.writeDoubleBE(1.5, 8); b.writeInt32LE(-2, 4); b.write('añb', 1, 2); return [b.toString('hex'), b.readInt32LE(4), b.toString('utf16le'), b.lastIndexOf(0), Buffer.from('_-8', 'base64url').toString('latin1')]",
    "try { Buffer.alloc(2).readUInt16BE(1) } catch (error) { return [error.name, error.code] }",
    "const t = new EventTarget(); const seen = []; t.addEventListener('x', () => seen.push(1), {once: true}); const c = new AbortController(); t.addEventListener('x', () => seen.push(2), {signal: c.signal}); t.dispatchEvent(new Event('x')); c.abort(); t.dispatchEvent(new Event('x')); return seen",
    "const t = new EventTarget(); const e = new Event('x'); let name; t.addEventListener('x', () => { try { t.dispatchEvent(e) } catch (error) { name = error.name } }); return [t.dispatchEvent(e), name, t.dispatchEvent(e)]",
    "const t = setTimeout(() => {}, 5); const seen = [t.unref() === t, t.hasRef(), t.ref() === t, t.hasRef(), t.refresh() === t]; clearTimeout(t); return seen",
    "const r = new Response('a'); await r.text(); try { await r.text() } catch (error) { return [error.name, r.bodyUsed] }",
    "return [await new Response(new Uint8Array([104, 105])).text(), new Response(new Blob(['x'], {type: 'a/b'})).headers.get('content-type'), (await new Response(new URLSearchParams('a=b')).blob()).type]",
    "const out = []; setImmediate(() => out.push(0)); await new Promise((done) => setImmediate(done)); await new Promise((done) => { setTimeout(() => done(out.push(2)), 60); setTimeout(() => out.push(1)); }); return out",
    "const c = {a: [1]}; c.self = c; const d = structuredClone(c); return [d.self === d, d.a !== c.a, structuredClone(new DOMException('m', 'AbortError')).name]",
]
SHOWN = """(value) => JSON.stringify(value, (_, each) => each === undefined ? "undefined" : typeof each === "bigint" ? `${each}n`
  : ArrayBuffer.isView(each) ? [each.constructor.name, ...each] : each)"""
HOST = """(definePlatform) => {
  const timers = new Map();
  const uncaught = [];
  let [time, last] = [0, 0];
  const setTimer = (callback, milliseconds, repeats) => {
    timers.set(++last, { callback, at: time + milliseconds, every: repeats ? milliseconds : 0 });
    return last;
  };
  const fire = () => {
    const [timer, { callback, at, every }] = [...timers].reduce((a, b) => (b[1].at < a[1].at ? b : a));
    time = at;
    if (every > 0) timers.get(timer).at += every;
    else timers.delete(timer);
    callback();
  };
  definePlatform({
    answer, setTimer, setImmediate: (callback) => setTimer(callback, 0, false), clearTimer: (timer) => timers.delete(timer),
    started() {}, uncaught: (error) => uncaught.push(`${error}`), now: () => time, timeOrigin: 1,
  });
  Object.assign(globalThis, { fire, uncaught });
}"""


def expression(body: str) -> str:
    """A promise of a program's result, as text."""
    thrown = '(error) => ["thrown", error?.name, error?.message]'
    return f"(async () => {{ {body} }})().catch({thrown}).then({SHOWN})"


class Engine:
    """A real engine in a process, which has a platform and answers for it."""

    def __init__(self, cache: Path) -> None:
        command = [deno.find_deno_bin(), "run", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-npm"]
        self.process = subprocess.Popen(
            [*command, "--no-remote", str(HERE / "platform_host.js")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"DENO_DIR": str(cache), "NO_COLOR": "1"},
        )

    def answer(self, question: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def run(self, body: str) -> str:
        return json.loads(self.answer(json.dumps(["run", expression(body)])))["value"]


class Bare:
    """An engine with the language only, and the platform over it."""

    def __init__(self, engine: Engine) -> None:
        self.context: Any = cast("Any", quickjs).Context()
        self.context.add_callable("answer", engine.answer)
        self.context.eval(f"({HOST})({platform_script()})")

    def run(self, body: str) -> str:
        """Runs a program to its end; timers fire in order, without real delays."""
        self.context.eval(
            f"globalThis.end = undefined; {expression(body)}.then((text) => {{ end = text; }}); undefined"
        )
        while True:
            while self.context.execute_pending_job():
                pass
            if (end := self.context.eval("end")) is not None:
                return end
            self.context.eval("fire()")

    def uncaught(self) -> list[Any]:
        return json.loads(self.context.eval("JSON.stringify(uncaught)"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("cache"))
    yield engine
    engine.process.kill()
    engine.process.communicate()


@pytest.fixture(scope="module")
def bare(engine: Engine) -> Bare:
    return Bare(engine)


def test_programs_end_as_in_an_engine_that_has_a_platform(engine: Engine, bare: Bare) -> None:
    programs = [each for each in PROGRAMS if not ELSEWHERE.search(each)] + MORE
    assert len(programs) > 40
    assert {each: bare.run(each) for each in programs} == {each: engine.run(each) for each in programs}
    assert bare.uncaught() == []


@pytest.mark.parametrize(
    "body",
    [
        "setTimeout(() => { throw new RangeError('late') }, 1)",
        "queueMicrotask(() => { throw new RangeError('late') })",
        "const t = new EventTarget(); t.addEventListener('x', () => { throw new RangeError('late') }); t.dispatchEvent(new Event('x'))",
    ],
)
def test_what_a_callback_throws_the_host_hears_of(engine: Engine, body: str) -> None:
    bare = Bare(engine)
    assert bare.run(f"{body}; await new Promise((done) => setTimeout(done, 5)); return 1") == "1"
    assert bare.uncaught() == ["RangeError: late"]
