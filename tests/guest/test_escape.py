"""What a hostile program tried to get out of its context, with others beside it in the same process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.guest import RuntimeDirectory
from tests.guest.driver import Guest

HERE = Path(__file__).parent
SECRET = "the victim's secret"
VICTIM = f"""
  await tools.echo({{ text: {SECRET!r} }});
  Promise.reject(Object.assign(new Error({SECRET!r}), {{ secret: {{ text: {SECRET!r} }} }}));
  await tools.echo({{}});
  return 'safe';
"""


@pytest.fixture(scope="module")
def runtime() -> Iterator[RuntimeDirectory]:
    directory = RuntimeDirectory()
    yield directory
    directory.close()


@pytest.fixture
def guest(runtime: RuntimeDirectory, tmp_path: Path) -> Iterator[Guest]:
    process = Guest(runtime, "contexts.js", tmp_path)
    yield process
    process.close()


def overlapped(guest: Guest, attack: str) -> Any:
    """The value of an attack that starts before a victim and lasts until after its end."""
    spy = guest.start(f"setTimeout(() => {{}}, 1); {attack}; await tools.echo({{}}); return seen")
    assert guest.next() == (spy, "CALL", [1, "echo", {}])
    victim = guest.start(VICTIM)
    while True:
        run, kind, payload = guest.next()
        assert run == victim, payload
        if kind == "EXIT":
            break
        guest.reply(victim, [payload[0], True, payload[2]])
    assert payload[:2] == ["value", "safe"]
    guest.reply(spy, [1, True])
    run, kind, payload = guest.next()
    assert (run, kind, payload[0]) == (spy, "EXIT", "value"), payload
    return payload[1]


GLOBAL = """
  const seen = [];
  let G;
  const targets = [EventTarget.prototype, Object.getPrototypeOf(AbortSignal.prototype)];
  for (const each of targets) for (const self of [undefined, null, globalThis]) {
    try {
      each.addEventListener.call(self, 'zzz', function () { G = this; });
      each.dispatchEvent.call(self, new Event('zzz'));
    } catch (error) { if (!(error instanceof TypeError)) seen.push(String(error)); }
  }
  try { (0, EventTarget.prototype.addEventListener)('zzz', function () { G = this; }); } catch {}
  if (G !== undefined) seen.push(Object.getOwnPropertyNames(G).length);
"""


def test_the_engines_global_object_is_not_taken_for_a_missing_receiver(guest: Guest) -> None:
    assert overlapped(guest, GLOBAL) == []


def test_rejections_of_another_program_are_not_heard(guest: Guest) -> None:
    attack = """
      const seen = [];
      const spy = (event) => seen.push(String(event.reason));
      for (const self of [undefined, null, globalThis, new EventTarget(), {}]) for (const type of ['unhandledrejection', 'error']) {
        try { EventTarget.prototype.addEventListener.call(self, type, spy); } catch {}
      }
      globalThis.onunhandledrejection = globalThis.onerror = spy
    """
    assert overlapped(guest, attack) == []


def test_the_input_with_another_programs_start_is_not_read(guest: Guest) -> None:
    attack = f"""{GLOBAL}
      const process = G?.process ?? globalThis.process;
      process?.stdin?.on('data', (data) => seen.push(String(data)));
      process?.stdout?.write('forged');
      if (process !== undefined) seen.push('process')
    """
    assert overlapped(guest, attack) == []


def test_no_receiver_gets_anything_but_the_language_out_of_the_engines_context(guest: Guest) -> None:
    complete, called, foreign, powers = guest.value((HERE / "receivers.js").read_text(encoding="utf-8"), log_bytes=10)
    assert complete
    assert called > 200
    assert powers == []
    assert foreign == []
    assert guest.value("return 1") == 1


def processor_seconds(guest: Guest) -> float:
    fields = Path(f"/proc/{guest.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


AFTER = """
  let n = 0;
  const spin = () => { const end = performance.now() + 50; while (performance.now() < end); };
  const again = () => { n++; spin(); console.log('left'); start(); };
"""
LASTING = {
    "sink": """
      const start = () => new WritableStream(new class { start(c) { const S = c.signal.constructor; S.timeout(20).addEventListener('abort', again); } });
      start()
    """,
    "timeouts": "const start = () => AbortSignal.timeout(20).addEventListener('abort', again); start()",
    "onabort": "const start = () => { AbortSignal.timeout(20).onabort = again; }; start()",
    "handle_event": "const start = () => AbortSignal.timeout(20).addEventListener('abort', new class { get handleEvent() { again(); return again; } }); start()",
    "proxy": "const start = () => AbortSignal.timeout(20).addEventListener('abort', new Proxy({}, { get() { return again; } })); start()",
    "function_with_members": "const start = () => AbortSignal.timeout(20).addEventListener('abort', Object.assign(() => again(), { handleEvent: again, call: again, apply: again })); start()",
    "overridden": """
      const start = () => AbortSignal.timeout(20);
      EventTarget.prototype.dispatchEvent = AbortSignal.prototype.dispatchEvent = again;
      Object.defineProperty(Event.prototype, 'type', { get: again });
      Object.defineProperty(DOMException.prototype, 'name', { get: again });
      start()
    """,
    "digest": "const start = () => crypto.subtle.digest('SHA-256', new Uint8Array(100000)).then(again); start()",
    "thenable": """
      const start = () => crypto.subtle.digest('SHA-256', new Uint8Array(100000)).catch(() => {});
      Object.defineProperty(Object.prototype, 'then', { configurable: true, get() { if (n > 100000) again(); return undefined; } });
      ArrayBuffer.prototype.then = again; start()
    """,
    "species": """
      const start = () => crypto.subtle.digest('SHA-256', new (class extends Uint8Array { static get [Symbol.species]() { again(); return Uint8Array; } })(9));
      start().catch(() => {})
    """.replace("again(); return", "spin(); return"),
    "getters": "const start = () => crypto.subtle.generateKey({ name: 'HMAC', get hash() { spin(); return 'SHA-256' } }, true, ['sign']).then(again); start()",
    "timer": "const start = () => setTimeout(again, 20); start()",
    "primitive": "const start = () => setTimeout(again, { valueOf() { return 20; } }); start()",
    "immediate": "const start = () => setImmediate(again); start()",
    "microtask": "const start = () => setTimeout(() => queueMicrotask(again), 20); start()",
    "blob": "const start = () => new Blob(['x']).text().then(() => setTimeout(again, 20)); start()",
    "registry": "const start = () => { const r = new FinalizationRegistry(again); for (let i = 0; i < 1000; i++) r.register({}, 1); }; start()",
    "subclass": """
      class Mine extends EventTarget { addEventListener(...a) { spin(); super.addEventListener(...a); } }
      const start = () => { const t = new Mine(); AbortSignal.timeout(20).addEventListener('abort', () => t.dispatchEvent(new Event('x'))); t.addEventListener('x', again); };
      start()
    """,
    "signals": "const start = () => AbortSignal.any([AbortSignal.timeout(20)]).addEventListener('abort', again); start()",
    "import": "const start = () => import('node:fs').then(again, again); setTimeout(start, 20)",
    "tool": "const start = () => tools.echo({}).then(again, again); setTimeout(start, 20)",
}


@pytest.fixture(scope="module")
def lasting(runtime: RuntimeDirectory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Guest]]:
    """Guests, each of which has run one of these programs to its end."""
    guests: dict[str, Guest] = {}
    cache = tmp_path_factory.mktemp("cache")
    try:
        for name, program in LASTING.items():
            guest = guests[name] = Guest(runtime, "contexts.js", cache)
            run = guest.start(f"{AFTER} try {{ {program} }} catch {{}} return 1")
            while (frame := guest.next())[1] == "LOG":
                pass
            assert frame[:2] == (run, "EXIT")
        yield guests
    finally:
        for guest in guests.values():
            guest.close()


@pytest.fixture(scope="module")
def seconds_after(lasting: dict[str, Guest]) -> dict[str, float]:
    """How much processor time each guest takes in a second, well after its program has ended."""
    time.sleep(0.1)
    before = {name: processor_seconds(guest) for name, guest in lasting.items()}
    time.sleep(1)
    return {name: processor_seconds(guest) - before[name] for name, guest in lasting.items()}


@pytest.mark.parametrize("name", LASTING)
def test_nothing_of_a_program_takes_processor_time_after_its_end(
    lasting: dict[str, Guest], seconds_after: dict[str, float], name: str
) -> None:
    assert seconds_after[name] <= 0.03
    assert lasting[name].value("return 2") == 2


def test_compiling_webassembly_wakes_no_program_that_has_ended(runtime: RuntimeDirectory, tmp_path: Path) -> None:
    guest = Guest(runtime, "contexts.js", tmp_path, ["--allow-wasm"])
    module = "new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])"
    assert guest.value(f"return (await WebAssembly.instantiate({module})).instance instanceof WebAssembly.Instance")
    body = f"{AFTER} const start = () => WebAssembly.compile({module}).then(again); setTimeout(start, 20); return 1"
    assert guest.value(body) == 1
    before = processor_seconds(guest)
    time.sleep(0.5)
    assert processor_seconds(guest) - before <= 0.03
    guest.close()
