"""Programs in WebAssembly: how their limits end them, where they differ from V8, and how little they reach."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread, current_thread
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

import corral as corral_package
from corral import Approved, Corral, ExecutionContext, ExecutionResult, Limits, Sessions, tool
from corral.checking.servers.specs import GLOBALS
from corral.checking.typescript.suspects import absent_names
from corral.concurrency.threads import run_in_own_thread
from corral.containment import Tier
from corral.egress import Network
from corral.errors import MissingExtra, StartFailed
from corral.guest.wasm import engine, server
from corral.ledger import MemoryLedger, SqliteLedger
from corral.programs.syntax.typescript import parse
from corral.sandboxes import DenoSandbox, LocalGuest, SandboxProvider, wasm, wasm_image
from corral.sandboxes.automatic import TypeScriptSandbox
from corral.sandboxes.jailed import guest_starter
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.fork_server import ForkServer
from corral.sandboxes.wasm import LACKS, WasmSandbox
from corral.sessions import Directory, Mount, Scratch
from corral.types import Owner, SandboxConfig
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs
from tests.conftest import open_corral
from tests.until import until

pytestmark = pytest.mark.anyio

ADDRESSES = [
    *(
        "http://h/../a b?x=ü#ü",
        "HTTP://EXAMPLE.com:80/%7Efoo",
        "https://u:p%20w@h:8080/x/./y/..",
        "//h/x",
        "?q",
        "../..",
    ),
    *(
        "http://0x7f.1/",
        "http://256.1/",
        "http://[2001:db8::1:0:0:1]/",
        "http://[1:2]/",
        "http://a b/",
        "http://h:99999",
    ),
    *("mailto:a b", "data:text/plain,hi there", "file:///a/../b", "foo://h/p?q#f", "blob:https://a.b/c", "x", ""),
    *("http://h/?a='\"<>`{}|^", "http://h/💩?💩#💩", "http://@h/", "http://u:@h/", "http:\\\\h\\x", "http://ex.com./"),
]
URLS = f"""
const members = ["href", "origin", "username", "password", "host", "port", "pathname", "search", "hash"];
return {json.dumps(ADDRESSES)}.flatMap((each) => ["http://a/b/c?d#e", "https://u@h:8/x/", undefined].map((base) => {{
  try {{ const url = new URL(each, base); return members.map((name) => url[name]); }} catch (error) {{ return error.name; }}
}}))
"""
LOCALES = """
const numbers = [0, -0, 1234567.891, -1234.5, 1e21, 1.005, 0.256, NaN, 1n << 70n, 999.995, 1e-7];
const forms = [undefined, { maximumFractionDigits: 2 }, { style: "percent" }, { style: "currency", currency: "EUR" }, { useGrouping: false }];
const dates = [0, 1767366245000, 1709209800000, NaN].map((each) => new Date(each));
const parts = [undefined, { month: "long", day: "numeric", year: "numeric" }, { weekday: "short", hour: "2-digit", minute: "2-digit" }, { dateStyle: "medium", timeStyle: "short" }, { hour12: false }];
const words = ["b", "B", "a", "ä", "résumé", "resume", "Resume", "a-b", "a b", "10", "9", "_", "file10", "file9", ""];
return [
  numbers.map((each) => forms.map((form) => each.toLocaleString("en-US", form))),
  dates.map((each) => [String(each), ...parts.map((part) => each.toLocaleString("en-US", part)), each.toLocaleDateString(), each.toLocaleTimeString()]),
  words.toSorted((a, b) => a.localeCompare(b)), words.toSorted(new Intl.Collator("en", { numeric: true }).compare),
]
"""


@pytest.fixture
def corral(warm_wasm: WasmSandbox) -> Corral:
    return open_corral(warm_wasm)


async def failure(corral: Corral, program: str, **limits: Any) -> tuple[str, str, str]:
    error = (await corral.execute(program, limits=Limits(**limits))).error
    assert error is not None
    return error.code, error.name, error.message


async def test_each_limit_has_its_own_status_and_the_next_program_runs(corral: Corral) -> None:
    code, _, _ = await failure(corral, "const all = []; for (;;) all.push(new Uint8Array(1 << 20))")
    assert code == "memory_exceeded"
    code, name, message = await failure(corral, "const f = () => 1 + f(); return f()")
    assert (code, name, message) == ("program_failed", "RangeError", "Maximum call stack size exceeded")
    # one call of the engine's own code, which never looks at a clock
    code, _, message = await failure(corral, "return /(a+)+b/.test('a'.repeat(100))", cpu_seconds=0.2)
    assert code == "program_timeout"
    assert "processor time" in message
    assert (await corral.execute("return 1")).value == 1


async def test_a_memory_error_can_be_caught(corral: Corral) -> None:
    program = "let all = []; try { for (;;) all.push(new Uint8Array(1 << 20)) } catch (error) { all = null; return error.message }"
    assert (await corral.execute(program)).value == "out of memory"


async def test_output_before_an_endless_loop_arrives(corral: Corral) -> None:
    result = await corral.execute("console.log('before'); for (;;) {}", limits=Limits(cpu_seconds=0.2))
    assert (result.status, result.console) == ("timed_out", "before\n")


async def test_programs_do_not_share_random_numbers_or_globals(corral: Corral) -> None:
    program = "globalThis.left = [typeof left, Math.random(), crypto.randomUUID()]; return left"
    first, second = [(await corral.execute(program)).value for _ in range(2)]
    assert first[0] == second[0] == "undefined"
    assert not {*first[1:]} & {*second[1:]}


async def test_the_clock_of_a_program_begins_with_it(corral: Corral) -> None:
    """Within the 20 s that it may take."""
    program = "return [performance.now(), performance.timeOrigin + performance.now() - Date.now()]"
    for _ in range(2):
        value = (await corral.execute(program)).raise_for_error().value
        assert all(abs(each) < 20_000 for each in value), value


@pytest.mark.matrix("the gate has timers and bounds of memory; that cleared timers fill none, which takes seconds")
async def test_timers_that_are_cleared_fill_no_memory(corral: Corral) -> None:
    program = "for (let n = 0; n < 150_000; n++) clearTimeout(setTimeout(() => {}, 1e6)); return 'done'"
    limits = Limits(memory_mb=16, wall_seconds=300, cpu_seconds=30)
    assert (await corral.execute(program, limits=limits)).raise_for_error().value == "done"


async def test_programs_of_two_users_are_in_two_processes() -> None:
    async with open_corral(sandbox := WasmSandbox(pool_size=0)) as corral:
        for user_id in ("ann", "bob", "ann"):
            assert (await corral.execute("return 1", context=ExecutionContext(user_id=user_id))).value == 1
        boxes = [box for each in sandbox._servers._boxes.values() for box in each]
        assert len({box._guest.process.pid for box in boxes if isinstance(box, ForkServer)}) == len(boxes) == 2


INTL = "const members = ['DateTimeFormat', 'NumberFormat', 'Collator', 'PluralRules', 'ListFormat', 'RelativeTimeFormat', 'Segmenter', 'DisplayNames', 'Locale', 'DurationFormat', 'getCanonicalLocales', 'supportedValuesOf'].map((each) => `Intl.${each}`);"
LANGUAGE = (
    "Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Boolean DataView Date FinalizationRegistry "
    "Float16Array Float32Array Float64Array Intl Iterator JSON Map Math Number Object Promise Proxy Reflect RegExp Set "
    "SharedArrayBuffer String Symbol Temporal Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet WebAssembly Worker "
    "AggregateError SuppressedError DisposableStack AsyncDisposableStack"
)


async def test_the_table_of_absent_globals_is_that_of_the_engine(corral: Corral) -> None:
    """It has all globals of programs that the check declares, and those of the language, which are missing here."""
    page = (Path(__file__).parents[2] / "docs" / "wasm.md").read_text(encoding="utf-8")
    rows = page.partition("| absent | remedy |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert {name: remedy for names, remedy in cells for name in re.findall(r"`(\S+)`", names)} == {
        name: remedy for name, remedy in LACKS.items() if not name.startswith("node:") or "." not in name
    }
    declared = re.findall(r"^declare (?:var|function) ([^;{(<]+)", GLOBALS.read_text(encoding="utf-8"), re.MULTILINE)
    names = {*LANGUAGE.split(), *(name for line in declared for name in re.findall(r"(?:^|,\s*)([A-Za-z]\w*)", line))}
    program = f"{INTL} const names = {json.dumps(sorted(names))}; return [...names.filter((each) => !(each in globalThis)), ...members.filter((each) => !(each.slice(5) in Intl))]"
    assert {*(await corral.execute(program)).value} - {"process"} == {
        name for name in LACKS if not name.startswith("node:")
    }


WITH_MODULES = [
    'import zlib from "zlib"; return 1',
    'import zlib from "zlib"; return typeof zlib.gzipSync',
    'import zlib from "zlib"; try { zlib.gzipSync("x") } catch { return 1 }',
    'import zlib from "zlib"; const f = () => zlib.gzipSync("x"); try { return f() } catch { return 1 }',
    'import zlib from "zlib"; const f = async () => zlib.gzipSync("x"); return await f().catch(() => 1)',
    'import type { Readable } from "node:stream"; const x: Readable | null = null; return 1',
    'import { Readable } from "node:stream"; const f = (x: any) => x instanceof Readable; return 1',
    'import { createHash } from "node:crypto"; return createHash("sha256").update("x").digest("hex").length',
    'import crypto from "crypto"; return crypto.randomUUID().length',
    'import crypto from "crypto"; if ((crypto as any).createHmac) return crypto.createHmac("a", "b"); return 1',
    'import crypto from "crypto"; if (crypto.createHmac) return crypto.createHmac("sha1", "b"); return 1',
    'import crypto from "crypto"; return (crypto as any).hash?.("sha1", "b") ?? 1',
    'import { hash } from "crypto"; return hash?.("sha1", "b") ?? 1',
    'import crypto from "crypto"; { const crypto = { hash: (n: number) => n }; return crypto.hash(1) }',
    'import { promisify } from "util"; import { gzip } from "zlib"; const z = promisify(gzip); return 1',
    "const { hash } = { hash: (x: number) => x }; return hash(1)",
    "const { file: File } = { file: 1 }; return File",
    'import fs from "fs"; fs.writeFileSync("a", "x"); return fs.readFileSync("a", "utf8").length',
    'import { promises as fs } from "fs"; await fs.writeFile("a", "x"); return (await fs.readdir(".")).length',
    'const fs = require("fs"); fs.writeFileSync("a", "x"); return 1',
    'import EventEmitter from "events"; const e = new EventEmitter(); let n = 0; e.on("x", () => n++); e.emit("x"); return n',
    'import * as path from "path"; return path.join("a", "b").length',
    'import util from "util"; return util.format("%s", 1).length',
    'import http from "http"; return typeof http',
    'let hash: any = require("crypto"); hash = { hash: () => 1 }; return hash.hash()',
]
"""Programs that end well in this engine, by modules that it lacks in part."""
WITHOUT_MODULES = [
    'import zlib from "zlib"; return zlib.gzipSync("x")',
    'import zlib from "node:zlib"; return zlib.gzipSync("x").toString("base64")',
    'import * as zlib from "node:zlib"; return zlib.gzipSync("x")',
    'import { gzipSync } from "node:zlib"; return gzipSync("x")',
    'import { gzipSync as gz } from "node:zlib"; return gz("x")',
    'const zlib = require("zlib"); return zlib.gzipSync("x")',
    'const { gzipSync } = require("node:zlib"); return gzipSync("x")',
    'const { gzipSync: gz } = require("node:zlib"); return gz("x")',
    'const zlib = await import("node:zlib"); return zlib.gzipSync("x")',
    'const { gzipSync } = await import("node:zlib"); return gzipSync("x")',
    'import { createHmac } from "crypto"; return createHmac("sha1", "k")',
    'import crypto from "crypto"; return crypto.createHmac("sha1", "k").update("x").digest("hex")',
    'import { Readable } from "stream"; const r = new Readable(); return 1',
    'import { readFileSync, createReadStream } from "fs"; const x = createReadStream("a"); return 1',
    'import * as fs from "fs"; fs.createReadStream("a"); return 1',
    'import { glob } from "fs/promises"; for await (const x of glob("*")) return x',
    'import { promises as fs } from "fs"; for await (const x of fs.glob("*")) return x',
    'import { promises } from "fs"; return promises.glob("*")',
    'import fs from "fs"; return fs.promises.opendir(".")',
    'import { exec } from "child_process"; exec("ls"); return 1',
    'import https from "https"; https.get("https://x", () => {}); return 1',
    'import { parseArgs } from "util"; return parseArgs({})',
    'const f = () => { const x = require("os"); return x.cpus().length + x.loadavg()[0] }; return f()',
]


def test_calls_of_absent_modules_are_seen_in_the_source() -> None:
    def absent(program: str) -> list[str]:
        return [name for _, name in absent_names(parse(program.encode()).root_node, LACKS)]

    assert {program: absent(program) for program in WITH_MODULES} == {program: [] for program in WITH_MODULES}
    assert [program for program in WITHOUT_MODULES if len(absent(program)) != 1] == []


MEMBERS = """
const absent = (name) => { try { require(name).any(); return false } catch (error) { return error.message.includes("is not available to programs") } };
const functions = (name) => Object.getOwnPropertyNames(require(name)).filter((each) => each[0] !== "_" && typeof require(name)[each] === "function");
return [NAMES.filter(absent), Object.fromEntries(NAMES.filter((name) => !absent(name)).map((name) => [name, functions(name)]))]
"""
REFUSED = """
import fs from "fs"; const isRefused = (name) => { try { fs[name]("none", () => {}) } catch (error) { return error.message.includes("no streams") } };
return Object.getOwnPropertyNames(fs).filter(isRefused)
"""


@pytest.mark.matrix(
    "the gate has the finding of each kind of import; here the table is that of the engines, which run all of them"
)
async def test_the_table_of_absent_modules_is_that_of_the_engines(
    warm_wasm: WasmSandbox, warm_deno: DenoSandbox
) -> None:
    loader = (Path(corral_package.__file__).parent / "guest" / "typescript" / "loader.ts").read_text(encoding="utf-8")
    lists = [
        re.findall(r'"([^"]*)"', text) for text in re.findall(r"(?:PURE = |REFUSED = new Set\()\(([^)]*)\)", loader)
    ]
    assert len(lists) == 2
    names = sorted({*" ".join(map("".join, lists)).split()})
    program = MEMBERS.replace("NAMES", json.dumps(names))
    results: list[Any] = []
    refused: list[str] = []
    for sandbox in (warm_wasm, warm_deno):
        async with Corral(sandbox=sandbox).session(languages=["typescript"]) as session:
            results.append((await session.execute(program, check=False)).raise_for_error().value)
            if sandbox is warm_wasm:
                refused = (await session.execute(REFUSED, check=False)).raise_for_error().value
                for each in WITH_MODULES:
                    assert ((await session.execute(each)).status, each) == ("succeeded", each)
                for each in WITHOUT_MODULES:
                    assert ((await session.execute(each)).status, each) == ("rejected", each)
                    assert ((await session.execute(each, check=False)).status, each) == ("failed", each)
    (absent, functions), (_, functions_of_v8) = results
    assert {*absent} == {name.removeprefix("node:") for name in LACKS if name.startswith("node:") and "." not in name}
    lacking = {f"{name}.{each}" for name in functions for each in {*functions_of_v8.get(name, ())} - {*functions[name]}}
    lacking |= {f"fs.{each}" for each in refused}
    assert {each for each in lacking if not each.startswith(("console.", "assert/", "path/", "timers."))} == {
        name.removeprefix("node:") for name in LACKS if name.startswith("node:") and "." in name
    }


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("await tools.add({ a: 1, b: 2 });\nreturn new ReadableStream()", (2, 12)),
        ("const n = 1;\nreturn new Intl.PluralRules('en').select(n)", (2, 12)),
        ("type Temporal = number; const x: Temporal = 1; return { Temporal }", (1, 57)),
        ("return typeof FormData === 'undefined' ? 1 : new FormData()", None),
        ("class FormData { n = 1 } return new FormData().n", None),
        ("return 'File' in globalThis ? new File([], 'x').name : 1", None),
        ("try { return new Temporal.Instant(0n) } catch { return 1 }", None),
        ("const { File } = { File: 1 }; return File", None),
        ("for (const File of [1]) return File", None),
        ("return (function File(n: number): number { return n ? File(n - 1) : 1 })(2)", None),
        ("const [File = 1] = []; return File", None),
        ("abstract class File { static n = 1 } return File.n", None),
        ("return ['FormData', { Worker: 1 }.Worker][1]", None),
    ],
)
async def test_a_program_that_uses_absent_globals_is_refused_before_it_calls(
    warm_wasm: WasmSandbox, program: str, place: tuple[int, int] | None
) -> None:
    called: list[float] = []

    async def add(a: float, b: float) -> float:
        called.append(a)
        return a + b

    async with Corral([add], sandbox=warm_wasm) as corral:
        result = await corral.execute(program)
    if place is None:
        assert result.value == 1
        return
    assert result.status == "rejected"
    assert result.error is not None
    assert (result.error.line, result.error.column) == place
    assert "absent in the engine" in result.error.message
    assert called == []


async def test_programs_run_in_a_plain_process_where_no_jail_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise StartFailed("no jail")

    monkeypatch.setattr(ForkProvider, "start", fails)
    monkeypatch.setattr(ForkProvider, "warm", fails)
    async with open_corral(sandbox := WasmSandbox()) as corral:
        results = [await corral.execute(f"return {each}", context=ExecutionContext(user_id="a")) for each in range(3)]
        assert [(each.value, each.containment) for each in results] == [(each, "interpreter") for each in range(3)]
        [server] = [box for boxes in sandbox._plain_servers._boxes.values() for box in boxes]
        assert isinstance(server, wasm._PlainServer)
        process = server.process._process
        assert process.stdin is not None
        with Path(f"/proc/{process.pid}/environ").open("rb") as environment:
            assert environment.read() == b""
        server.process._queue.put(None)  # closes its input, as the end of this process does
        assert process.wait(60) == 0
        assert (await corral.execute("return 4", context=ExecutionContext(user_id="a"))).value == 4
    with pytest.raises(StartFailed, match="no jail"):
        await Corral(sandbox=WasmSandbox(), containment="namespaces").execute("return 1")


async def test_an_execution_that_begins_after_the_end_of_its_process_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[tuple[object, Thread]] = []
    wait = subprocess.Popen[bytes].wait

    def recorded(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waiting.append((process, current_thread()))
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", recorded)
    async with WasmSandbox(pool_size=0) as sandbox:
        process = await run_in_own_thread(sandbox._start_process, SandboxConfig(), False)
        box = wasm._PlainServer(process, 64)
        place = box.reserve()
        assert place is not None
        box.retire()  # it ends with this execution, even if closing that is cancelled
        closing = asyncio.create_task(place.aclose())
        await anyio.lowlevel.checkpoint()
        closing.cancel()
        await asyncio.wait([closing])
        await until(lambda: not process.alive)
        popen = process._process  # a garbage collection can end those of other tests
        await until(lambda: any(each is popen for each, _ in waiting))  # but not in the event loop
        assert (popen, current_thread()) not in waiting
        channel = process.open()
        ends: list[Exception | None] = []
        channel.attach(lambda _: None, ends.append, lambda _: None)
        await until(lambda: ends)
        assert str(ends[0]) == "the server of programs in WebAssembly is lost: its process has ended"
        await channel.aclose()
        flooded = wasm._PipedChannel(process, 1)  # messages are bounded even if they are empty
        assert not all(flooded.take(server.DATA, b"") for _ in range(300_000))
        process.close()


def test_a_process_whose_threads_do_not_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    wasm_image.image_folder()
    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(Thread, "start", fail)
    with pytest.raises(StartFailed, match=r"can't start new thread\): raise the limit of processes"):
        WasmSandbox(pool_size=0)._start_process(SandboxConfig(), False)
    assert [each.returncode for each in processes] == [-signal.SIGKILL]


FETCHES = """
const reply = await fetch("URL/a?b=ü");
const sent = await fetch("URL/c", { method: "POST", body: JSON.stringify({ q: 1 }), headers: { "x-own": "1" } });
const texts = await Promise.all([1, 2, 3].map(async (each) => (await fetch(`URL/${each}`)).text()));
const refused = await fetch("http://127.0.0.1:1/").catch((error) => `${error}`);
return [reply.status, reply.ok, reply.headers.get("content-type"), await reply.json(), await sent.json(), texts, refused];
"""


async def test_requests_are_those_of_v8(warm_wasm: WasmSandbox, warm_deno: DenoSandbox) -> None:
    values: list[object] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        network = Network(allow=[url], exempt_networks=["127.0.0.0/8"])
        for sandbox in (warm_wasm, warm_deno):
            async with Corral(sandbox=sandbox, network=network, check=False) as corral:
                values.append((await corral.execute(FETCHES.replace("URL", url))).value)
        server.shutdown()
    assert values[0] == values[1]
    expected = [200, True, "application/json", {"path": "/a?b=%C3%BC", "body": ""}]
    assert cast("list[object]", values[0])[:4] == expected


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        reply = json.dumps({"path": self.path, "body": body}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_POST = do_GET  # noqa: N815

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""


BROKEN_TIMERS = """
const timer = setTimeout(() => {}, 1);
Object.getPrototypeOf(timer).close = () => { throw THROWN };
await new Promise(() => {});
"""


@pytest.mark.parametrize("thrown", ["'x'.repeat(100_000)", "{ toString() { for (;;); } }"])
async def test_a_program_that_breaks_its_timers_ends_at_once_with_the_reason(corral: Corral, thrown: str) -> None:
    code, name, message = await failure(corral, BROKEN_TIMERS.replace("THROWN", thrown))
    assert (code, name) == ("program_failed", "RuntimeBroken")
    assert message.startswith("the program replaced a part of the language that its own runtime needs: ")


async def test_the_functions_of_the_server_and_strings_as_code_are_out_of_reach(corral: Corral) -> None:
    names = [*wasm_image._FUNCTIONS, *wasm_image.WASM_FUNCTIONS]
    assert (await corral.execute(f"return {names}.map((name) => typeof globalThis[name])")).value == [
        "undefined"
    ] * len(names)
    kinds = "[() => {}, async () => {}, function* () {}, async function* () {}]"
    program = f"return [() => eval('1'), ...{kinds}.map((kind) => () => kind.constructor('return 1'))].map((make) => {{ try {{ make() }} catch (error) {{ return error.name }} }})"
    assert (await corral.execute(program)).value == ["EvalError"] * 5
    program = "Error.prepareStackTrace = (_, sites) => sites; return new Error().stack.map((each) => typeof each.getFunction())"
    assert {*(await corral.execute(program)).value} == {"undefined"}


TEXTS = """
const bytes = new Uint8Array([0xe4, 0x80, 0x41, 0]), decoder = new TextDecoder();
const attempt = (make) => { try { return make() } catch (error) { return error.name } };
const read = (label) => { const decoder = new TextDecoder(label); return [decoder.encoding, decoder.decode(bytes)] };
return [
  ...['latin1', ' UTF8 ', 'utf-16le', 'utf-16be', 'ascii'].map(read),
  attempt(() => new TextDecoder('utf-8', { fatal: true }).decode(bytes)),
  attempt(() => new TextDecoder('klingon')),
  decoder.decode(new Uint8Array([0xe2, 0x82]), { stream: true }), decoder.decode(new Uint8Array([0xac])),
  new TextDecoder('utf-8', { ignoreBOM: true }).decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x41])).length,
];
"""


@pytest.mark.parametrize("program", [URLS, LOCALES, TEXTS], ids=["urls", "locales", "texts"])
async def test_answers_are_those_of_v8(corral: Corral, warm_deno: DenoSandbox, program: str) -> None:
    expected = (await open_corral(warm_deno).execute(program)).raise_for_error().value
    assert (await corral.execute(program)).raise_for_error().value == expected


@pytest.mark.parametrize(
    "program",
    [
        "return (1234.5).toLocaleString('de-DE')",
        "return new Date(0).toLocaleString('en-US', { timeZone: 'Europe/Berlin' })",
        "return 'ä'.localeCompare('z', 'sv')",
        "return '日'.localeCompare('本')",
        "return new Intl.PluralRules('en')",
        "return new URL('http://bücher.example/')",
        "return await crypto.subtle.importKey('raw', new Uint8Array(1), 'HMAC', true, [])",
    ],
)
async def test_an_answer_that_would_be_wrong_is_refused_with_the_remedy(corral: Corral, program: str) -> None:
    _, _, message = await failure(corral, program)
    assert "this engine" in message
    assert ":" in message


async def test_weak_references_last_for_a_turn_and_signals_time_out(corral: Corral) -> None:
    program = """
    const kept = new WeakRef({ x: 1 }).deref()?.x;
    const signal = AbortSignal.timeout(5);
    await new Promise((done) => signal.addEventListener("abort", done));
    return [kept, signal.reason.name];
    """
    assert (await corral.execute(program)).value == [1, "TimeoutError"]


TIMERS = """
const order = [];
const note = (name) => () => void order.push(name);
const delays = [9, 3, 7, 3, 1, 8, 2, 3, 6, 4].map((each) => 6 * each);
const timers = delays.map((each, index) => setTimeout(note(`${each}:${index}`), each));
for (let n = 0; n < 300; n++) clearTimeout(setTimeout(note("never"), n % 50));
clearTimeout(timers[6]);
let left = 3;
const repeated = setInterval(() => { order.push("again"); if (--left === 0) clearInterval(repeated); }, 1);
await new Promise((done) => setTimeout(() => setTimeout(() => done(note("later")()), 1), 60));
return order;
"""


async def test_timers_run_in_the_order_of_their_times(corral: Corral) -> None:
    value = (await corral.execute(TIMERS)).raise_for_error().value
    others = [each for each in value if each != "again"]
    assert others == ["6:4", "18:1", "18:3", "18:7", "24:9", "36:8", "42:2", "48:5", "54:0", "later"]
    assert len(value) - len(others) == 3


# --- instead of Deno


class _LateDeno(DenoSandbox):
    """Deno that is not ready in time while `is_late`, as on a loaded machine."""

    is_late = True
    attempts = 0

    @override
    async def guest(self, config: SandboxConfig) -> LocalGuest:
        self._attempt()
        return await super().guest(config)

    @override
    async def placement(self, config: SandboxConfig) -> Tier:
        self._attempt()
        return await super().placement(config)

    def _attempt(self) -> None:
        self.attempts += 1
        if self.is_late:
            raise StartFailed("the engine did not report that it is ready within 10 s")


async def test_programs_return_to_deno_once_it_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    corral = open_corral({"typescript": TypeScriptSandbox(deno := _LateDeno(pool_size=0))})
    engine = "return typeof ReadableStream === 'undefined' ? 'wasm' : 'deno'"
    assert [(await corral.execute(engine)).value for _ in range(2)] == ["wasm", "wasm"]
    assert deno.attempts == 1  # the second program does not wait for another one
    deno.is_late = False
    assert (await corral.execute(engine)).value == "wasm"

    monkeypatch.setattr(guest_starter, "_RETRY_SECONDS", 0.0)
    corral = open_corral({"typescript": TypeScriptSandbox(deno := _LateDeno(pool_size=0))})
    assert [(await corral.execute(engine)).value for _ in range(2)] == ["wasm", "wasm"]
    assert deno.attempts == 2
    deno.is_late = False
    assert [(await corral.execute(engine)).value for _ in range(2)] == ["deno", "deno"]


async def start_together(sandbox: SandboxProvider) -> None:
    async def start(user_id: str) -> None:
        owner = Owner(organization_id=None, user_id=user_id)
        await (await sandbox.start(SandboxConfig(owner=owner, required_tier="landlock"))).aclose()

    async with anyio.create_task_group() as tasks:
        for user_id in "ab":
            tasks.start_soon(start, user_id)
    await sandbox.aclose()


async def test_programs_that_start_together_count_as_one_failure_of_deno() -> None:
    await start_together(sandbox := TypeScriptSandbox(deno := _LateDeno(pool_size=0)))
    assert deno.attempts == 2
    assert sandbox._retries._pause == 2 * guest_starter._RETRY_SECONDS


async def test_programs_that_start_together_count_as_one_failure_of_the_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []

    async def fails(*arguments: object) -> None:
        attempts.append(arguments)
        raise StartFailed("no jail")

    monkeypatch.setattr(ForkProvider, "start", fails)
    await start_together(sandbox := WasmSandbox(pool_size=0))
    assert len(attempts) == 2
    assert sandbox._retries._pause == 2 * guest_starter._RETRY_SECONDS


async def test_a_late_deno_costs_no_program_its_packages_files_or_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_starter, "_RETRY_SECONDS", 0.0)
    sandbox = TypeScriptSandbox(deno := _LateDeno(pool_size=0))
    await (await sandbox.start(SandboxConfig(modules=True, required_tier="landlock"))).aclose()
    assert sandbox.name == "wasm"
    corral = Corral(sandbox={"typescript": sandbox}, check=False, sessions=Sessions())
    engine = "return [typeof ReadableStream, require('fs').readdirSync('.')]"
    durable = Corral(sandbox={"typescript": sandbox}, ledger=MemoryLedger())
    stream = "return typeof new ReadableStream()"
    assert (await durable.execute(stream)).status == "rejected"
    with pytest.raises(StartFailed, match="did not report that it is ready"):
        await durable.execute(stream, durable=True)
    async with corral.session() as session:
        await session.files.write_text("a", "x")
        deno.is_late = False
        assert (await durable.execute(stream, durable=True)).value == "object"
        assert sandbox.name == "wasm"
        assert (await corral.execute("return typeof ReadableStream")).value == "function"
        assert (await session.execute(engine)).value == ["undefined", ["a"]]  # its directories were not made for Deno


@pytest.mark.matrix(
    "hosts in threads, whose engine comes and goes; the gate has a durable program while others run elsewhere"
)
def test_no_durable_program_changes_its_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest_starter, "_RETRY_SECONDS", 0.0)
    sandbox = TypeScriptSandbox(deno := _LateDeno(pool_size=0))
    ledger = SqliteLedger(tmp_path / "runs.db", keys={})
    paused: list[str] = []

    async def ask() -> int:
        return 1

    def host() -> Corral:
        tools = [tool(name="ask", needs_approval=True)(ask)]
        return Corral(tools, sandbox={"typescript": sandbox}, ledger=ledger, check=False)

    engine = "return typeof ReadableStream === 'undefined' ? 'wasm' : 'deno'"
    program = "const before = typeof ReadableStream; await tools.ask({}); return [before, typeof ReadableStream]"

    async def use(number: int) -> None:
        corral = host()
        for each in range(8):
            deno.is_late = (number + each) % 2 == 0
            for source in (engine, program):
                with suppress(StartFailed):
                    result = await corral.execute(source, durable=source is program)
                    if source is program:
                        paused.append(result.execution_id)

    async def resume_all() -> list[Any]:
        corral, values = host(), list[Any]()
        for waiting in await corral.executions.waiting():
            await corral.executions.settle(waiting.execution_id, {1: Approved()})
            values.append((await corral.executions.resume(waiting.execution_id)).value)
        return values

    async def where() -> Any:
        return (await host().execute(engine)).value

    assert anyio.run(where) == "wasm"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(partial(anyio.run, use), range(4)))
    deno.is_late = False
    assert anyio.run(where) == "deno"
    values = anyio.run(resume_all)
    assert len(values) == len(paused) > 0
    assert all(each == ["function", "function"] for each in values), values
    anyio.run(sandbox.aclose)
    ledger.close()


# --- files of a session

WAYS_OUT = """
import fs from "fs";
const outcomes = {}, uses = {
  read: (path) => fs.readFileSync(path), list: (path) => fs.readdirSync(path), stat: (path) => fs.statSync(path), open: (path) => fs.openSync(path, "r+"),
  write: (path) => fs.writeFileSync(path, "x"), append: (path) => fs.appendFileSync(path, "x"), make: (path) => fs.mkdirSync(path + "/d", { recursive: true }),
  new: (path) => fs.writeFileSync(path + "/new", "x"), copy: (path) => fs.cpSync(path, "copy", { recursive: true }), into: (path) => fs.copyFileSync("plain", path),
};
for (const [name, use] of Object.entries(uses)) for (const path of PATHS) {
  try { outcomes[`${name} ${path}`] = `done: ${use(path)}`; } catch (error) { outcomes[`${name} ${path}`] = error.code ?? `${error}`; }
}
return outcomes;
"""


@pytest.fixture(
    params=["warm_wasm", pytest.param("warm_plain_wasm", marks=pytest.mark.matrix("the same over plain pipes"))]
)
def sandbox(request: pytest.FixtureRequest) -> WasmSandbox:
    return request.getfixturevalue(request.param)


async def test_files_of_a_session_are_asked_of_the_host(sandbox: WasmSandbox, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("one")
    mounts = [Mount("/workspace", Scratch(bytes=1 << 16, files=20)), Mount("/in", Directory(tmp_path))]
    limits = Limits(tool_input_bytes=20_000)  # so that a file is written in parts
    corral = Corral(sandbox=sandbox, check=False, limits=limits)
    async with corral.session(files=mounts, languages=["typescript"]) as session:
        result = await session.execute("""
import fs from "fs"; import { readFile, writeFile } from "node:fs/promises";
fs.writeFileSync("large", new Uint8Array(40_000).fill(7)); await writeFile("a/../b.txt", await readFile("/in/given", "utf8") + " two");
const refused = ["/in/new", "/in/../etc/passwd", "none"].map((path) => { try { path === "/in/new" ? fs.writeFileSync(path, "") : fs.readFileSync(path) } catch (error) { return error.message } });
const [full, late] = [() => fs.writeFileSync("more", new Uint8Array(40_000)), () => fs.readFileSync("large").at(-1)].map((act) => { try { return act() } catch (error) { return error.code } });
return [fs.readFileSync("b.txt", "utf8"), refused, full, late];
""")
        assert result.error is None
        places = "programs see the files in /workspace, /in (read-only)"
        denied = [f"EACCES: permission denied, open '{path}': {places}" for path in ("/in/new", "/in/../etc/passwd")]
        assert result.value == ["one two", [*denied, "ENOENT: no such file or directory, open 'none'"], "ENOSPC", 7]
        assert result.files is not None
        assert {"/workspace/b.txt", "/workspace/large"} <= set(result.files.created)


@pytest.mark.matrix("each operation and each way out; the gate has one of each, and tests/sessions the host's half")
async def test_no_operation_on_files_leads_out_of_the_directories(sandbox: WasmSandbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    given = tmp_path / "given"
    given.mkdir()
    (given / "plain").write_text("x")
    for name, target in {
        "l": outside,
        "f": outside / "secret",
        "up": Path(".."),
        "p": Path("/proc/self/environ"),
    }.items():
        (given / name).symlink_to(target)
    os.mkfifo(given / "fifo")
    paths = [
        "l",
        "f",
        "up/outside",
        "l/secret",
        "p",
        "fifo",
        "..",
        "../outside/secret",
        "/etc/passwd",
        "/",
        "//proc/self/mem",
    ]
    paths += ["plain/../../outside", "x\0y", "a" * 300, "b/" * 3000, "/in/../outside/secret", "file:///etc/passwd"]
    async with Corral(sandbox=sandbox, check=False, limits=Limits(wall_seconds=60)).session(
        files=[Mount("/in", Directory(given), writable=True)], languages=["typescript"]
    ) as session:
        listed = sorted(each for each in tmp_path.rglob("*") if given not in each.parents)
        harmless = {"stat fifo", *(f"{name} file:///etc/passwd" for name in ("make", "new", "copy"))}
        result = await session.execute(WAYS_OUT.replace("PATHS", json.dumps(paths)))
        assert result.error is None
        assert {
            name
            for name, outcome in result.value.items()
            if (outcome.startswith("done") and name not in harmless) or "secret" in outcome
        } == set()
        assert sorted(each for each in tmp_path.rglob("*") if given not in each.parents) == listed
        assert (outside / "secret").read_text() == "secret"


@pytest.mark.matrix("bounds of files beyond those that the gate has")
async def test_files_are_bounded_by_memory_time_and_quota(sandbox: WasmSandbox, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 34)
    limits = Limits(wall_seconds=60, memory_mb=32)
    mounts = [Mount("/workspace", Scratch(bytes=1 << 20, files=20)), Mount("/in", Directory(tmp_path))]
    async with Corral(sandbox=sandbox, check=False, limits=limits).session(
        files=mounts, languages=["typescript"]
    ) as session:

        async def error_of(source: str, **more: Any) -> Any:
            result = await session.execute(f'import fs from "fs"; {source}', **more)
            return result.error and (result.error.code, result.error.message)

        code, _ = await error_of('fs.readFileSync("/in/huge")')
        assert code == "memory_exceeded"
        assert await error_of('return fs.readSync(fs.openSync("/in/huge"), Buffer.alloc(10), 0, 10, 2 ** 33)') is None
        _, message = await error_of("for (let n = 0; ; n++) fs.writeFileSync(`${n}`, '')")
        assert message == "ENOSPC: no space left on device, open '20': this mount is full"
        forever = "for (;;) try { fs.readdirSync('.') } catch {}"
        code, message = await error_of(forever, limits=Limits(cpu_seconds=0.3, wall_seconds=60))
        assert (code, message) == ("program_timeout", "the program used up its 0.3 s of processor time")
        calls = "await Promise.all(Array.from({ length: 300 }, (_, n) => fs.promises.stat('0')))"
        assert await error_of(calls) is None


# --- the server


async def test_a_program_that_computes_does_not_delay_others_of_its_user(corral: Corral) -> None:
    limits, context = Limits(cpu_seconds=60, wall_seconds=120), ExecutionContext(user_id="a")
    programs = ["for (;;) {}", "await new Promise((done) => setTimeout(done, 1)); for (;;) {}"]
    async with anyio.create_task_group() as tasks:
        for program in programs:
            tasks.start_soon(partial(corral.execute, program, limits=limits, context=context))
        for _ in range(3):  # while they run
            program = "await new Promise((done) => setTimeout(done, 1)); return 1"
            assert (await corral.execute(program, limits=limits, context=context)).value == 1
        tasks.cancel_scope.cancel()


def test_executions_wait_for_a_long_turn_where_no_further_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", fail)
    one = object.__new__(server._Server)
    one.__dict__.update(_leader="first", _current="connection", _followers=0)  # without requests to ignore it
    one._replace_leader(cast("Any", "connection"))
    assert (one._leader, one._current, one._followers) == ("first", "connection", 0)


def test_a_timer_whose_turn_begins_is_not_due_for_a_thread_that_takes_over() -> None:
    """On a loaded machine, another thread can take over before this one has called the guest."""
    connection, due = server._PipedConnection(cast("Any", None), 1), list[object]()
    one = object.__new__(server._Server)
    one.__dict__.update(_lock=Lock(), _busy=Event(), _turns=0, _leader="first", _timers={connection: 0.0})

    def take_turn(_: object, *, is_due: bool) -> None:
        due.append((is_due, {**one._timers}))

    one.__dict__["_take_turn"] = take_turn
    assert one._run(connection, "first", is_due=True)
    assert due == [(True, {})]


def test_a_server_ends_if_the_thread_that_waits_for_all_executions_fails() -> None:
    def fail(_: object) -> None:
        raise OSError("no memory")

    one = object.__new__(server._Server)
    one.__dict__.update(_lock=Lock(), _timers={}, _over=Event(), _requests=SimpleNamespace(wait=fail))
    one._lead(object())
    assert one._over.is_set()


def test_a_server_in_a_jail_never_waits_for_room_in_its_standard_error() -> None:
    """Its pipe is read only once it has ended."""
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = [(number, os.dup(number)) for number in (0, 2)]
    with ours, theirs:
        os.dup2(theirs.fileno(), 0)
        os.dup2(writer, 2)
        try:
            requests = server._Sockets()
            is_blocking = os.get_blocking(2)
            if not is_blocking:
                for _ in range(100):  # more than the pipe takes
                    server._report("x" * 10_000)
        finally:
            for number, descriptor in own:
                os.dup2(descriptor, number)
                os.close(descriptor)
        requests._control.close()
        requests._events.close()
        os.close(requests._wakeup)
    assert not is_blocking
    os.close(writer)
    written = os.read(reader, 1 << 20)
    os.close(reader)
    assert {*written.split(b"\n")} == {b"x" * 2000, b""}


def test_a_server_ends_a_program_that_grows_once_all_together_are_too_large() -> None:
    one, guest = object.__new__(server._Server), object.__new__(server._Guest)
    guest.__dict__.update(_server=one, instance=SimpleNamespace(size=5), bytes=0, seconds_left=1.0, _started=0.0)
    guest.__dict__.update(is_out_of_cpu=False, _is_crowded=False)
    one.__dict__.update(_running={guest}, memory_bytes=server.TOTAL_MB << 20)
    for size, goes_on in ((server.TOTAL_MB << 21, True), ((server.TOTAL_MB << 21) + 1, False)):
        guest.instance.__dict__["size"] = size
        assert guest._may_go_on(0.5) is goes_on


def test_no_question_ends_the_server() -> None:
    guest = object.__new__(server._Guest)
    chance = random.Random(1)  # noqa: S311 - questions, not secrets
    names = [*server._ANSWERS, "seed", "nothing"]
    pieces: list[Any] = ["", "x", -1, 2**70, None, [], {}, True, "utf-8", "!!", "AAAA", [[[]]], 1.5, "sha256"]
    for _ in range(2_000):
        question = json.dumps([chance.choice(names), *chance.choices(pieces, k=chance.randrange(6))])
        cut = question[: chance.randrange(1, len(question) + 30)]
        answer = json.loads(server._answer(guest, cut))
        assert answer.keys() in ({"value"}, {"error"})


@pytest.mark.parametrize("text", ["", "9910[]", "010[]", "16 0", "1a0[]", "172[]", "170[1]\nx", "-1", "1e999999", "\0"])
def test_a_malformed_frame_ends_the_guest(text: str) -> None:
    guest = object.__new__(server._Guest)
    guest._nonce = bytes(16)
    with pytest.raises(engine.Trapped, match="malformed frame"):
        guest.send(text.encode())


async def test_another_build_of_the_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm_image, "MODULE_SHA256", "0")
    wasm_image.engine_parts.cache_clear()
    with pytest.raises(StartFailed, match="not the one that this version of corral was tested with"):
        WasmSandbox()
    wasm_image.engine_parts.cache_clear()


async def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == "quickjs_rs" else find_spec(name)

    monkeypatch.setattr(wasm_image, "find_spec", find)
    wasm_image.engine_parts.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install 'corral\[wasm\]'"):
        WasmSandbox()
    wasm_image.engine_parts.cache_clear()


@pytest.mark.parametrize("harm", ["none", "damaged", "writable by others"])
async def test_a_cached_image_is_used_only_if_it_is_whole_and_private(
    harm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = [(b"{}", b"first"), (b"{}", b"second\n")]  # making a real one takes seconds
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wasm_image, "_made", lambda: made.pop(0))
    monkeypatch.setattr(wasm_image, "_images", {})
    assert not wasm_image.image_is_cached()
    assert (wasm_image.image_folder() / "image.cwasm").read_bytes() == b"first"
    assert wasm_image.image_is_cached()
    [file] = tmp_path.rglob("*.image")
    if harm == "damaged":
        file.write_bytes(file.read_bytes().replace(b"first", b"worse"))
    elif harm == "writable by others":
        file.chmod(0o666)
    wasm_image._images.clear()  # as in another process
    assert (wasm_image.image_folder() / "image.cwasm").read_bytes() == (b"first" if harm == "none" else b"second\n")
    assert wasm_image.image_is_cached()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_image_that_cannot_be_written_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wasm_image, "_made", lambda: (b"{}", bytes(1 << 20)))
    monkeypatch.setattr(wasm_image, "_images", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # writing fails as on a full disk
    try:
        with pytest.raises(StartFailed, match=r"cannot prepare the image .* set the environment variable TMPDIR"):
            wasm_image.image_folder()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*(tmp_path / "temporary").iterdir()] == []
    assert not wasm_image.image_is_cached()


def test_an_image_is_made_in_a_folder_that_is_removed_even_if_this_process_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders: list[Path] = []

    def run(command: list[str], *, input: str, **_: object) -> None:
        folders.append(Path(json.loads(input)["folder"]))
        assert (folders[0].parent / ".held").exists()  # see `corral.jail.temporary`
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(StartFailed, match="was not made within"):
        wasm_image._made()
    assert not folders[0].exists()


@pytest.mark.parametrize("harm", ["a link", "writable by others"])
async def test_a_cache_that_another_user_could_have_made_is_left_alone(
    harm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(wasm_image, "_made", lambda: (b"{}", b"own"))
    monkeypatch.setattr(wasm_image, "_images", {})
    folder, target = wasm_image._cache_file().parent, tmp_path / "target"
    folder.parent.mkdir(parents=True)
    target.mkdir(0o700)
    if harm == "a link":
        folder.symlink_to(target)
    else:
        target.rename(folder)
        folder.chmod(0o777)
    old = folder / "old.image"
    old.touch()
    os.utime(old, (0, 0))
    assert (wasm_image.image_folder() / "image.cwasm").read_bytes() == b"own"
    assert [*folder.iterdir()] == [old]


def test_processors_with_different_features_have_different_images(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(wasm_image._processor().split()) > 3  # a list of features
    first = wasm_image._cache_file()
    monkeypatch.setattr(wasm_image, "_processor", lambda: "flags: sse2 avx")
    assert wasm_image._cache_file() != first


async def test_a_cache_is_cleared_of_old_images_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wasm_image, "_made", lambda: (b"{}", b"new"))
    monkeypatch.setattr(wasm_image, "_images", {})
    file = wasm_image._cache_file()
    file.parent.mkdir(mode=0o700, parents=True)
    for name in ("old.image", "old.image.lock", ".old.image.part", "notes.txt"):
        (file.parent / name).touch()
        os.utime(file.parent / name, (0, 0))
    wasm_image.image_folder()
    assert {each.name for each in file.parent.iterdir()} == {file.name, f"{file.name}.lock", "notes.txt"}


# --- many programs


def _outcome(result: ExecutionResult) -> tuple[object, ...]:
    error = result.error and (result.error.code, result.error.name)
    return result.status, repr(result.value), result.console, error, len(result.tool_calls)


@pytest.mark.matrix("the tests above compare answers one by one; here whole programs of a corpus end as in V8")
async def test_valid_programs_end_as_in_v8(warm_wasm: WasmSandbox, warm_deno: DenoSandbox) -> None:
    programs = valid_programs()
    here, there = (Corral(TOOLS, sandbox=each, check=False) for each in (warm_wasm, warm_deno))
    different = {
        name
        for name, program in programs.items()
        if _outcome(await here.execute(program)) != _outcome(await there.execute(program))
    }
    assert different == {"calendar-create-temporal"}  # the engine has no Temporal


@pytest.mark.matrix(
    "the gate ends one program at each limit; here hundreds of ended ones leave nothing in their server"
)
async def test_ended_programs_leave_nothing_in_their_server() -> None:
    def held() -> tuple[int, int, int]:
        [[box]] = [list(boxes) for boxes in sandbox._servers._boxes.values()]
        assert isinstance(box, ForkServer)
        process = box._guest.process
        sizes = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
        [private] = [int(line.split()[1]) for line in sizes.splitlines() if line.startswith("Private_Dirty:")]
        return process.threads(), len([*Path(f"/proc/{process.pid}/fd").iterdir()]), private >> 10

    programs = ["return 1", "const f = () => f(); f()", "for (;;) {}", "await tools.wait({ seconds: 60 })"]
    programs += ["return 1"] * 6

    async def run(count: int) -> None:
        for number in range(count):
            await corral.execute(programs[number % len(programs)], limits=Limits(wall_seconds=0.05))

    async def run_many(count: int) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(run, count)

    async with open_corral(sandbox := WasmSandbox(pool_size=0)) as corral:
        await run_many(20)
        before = held()
        await run_many(100)

        def is_flat() -> bool:  # a tick after the last program was ended
            threads, descriptors, megabytes = held()
            # 800 programs that were not freed would have 300 MB
            return threads <= before[0] + 8 and descriptors <= before[1] + 2 and megabytes <= before[2] + 24

        await until(is_flat)
