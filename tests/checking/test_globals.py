"""The declarations of a guest's globals are those that a guest has: no more, and no fewer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import pytest

import corral
from corral import Corral
from corral.sandboxes import DenoSandbox
from tests.model.declarations.compiler import all_type_errors

pytestmark = pytest.mark.anyio

DECLARATIONS = Path(corral.__file__).parent / "checking" / "servers" / "globals.d.ts"

NOT_DECLARED_BY_US = {"tools", "codemode"}
"""What programs have besides: the declarations of tools say it."""
BEYOND_US = {"Atomics", "SharedArrayBuffer"}
"""What guests lack and `lib.esnext` declares: nothing takes a declaration back."""
ABSENT = [
    *("Deno", "process", "require", "module", "exports", "__dirname", "window", "document", "navigator", "location"),
    *("localStorage", "caches", "alert", "Worker", "XMLHttpRequest", "WebAssembly", "importScripts"),
]

PROGRAM = f"""
const names = Object.getOwnPropertyNames(globalThis).filter((name) => name === "undefined" || globalThis[name] !== undefined);
return [names, [{", ".join(f"typeof {name}" for name in ABSENT)}]];
"""


def type_errors(program: str) -> list[str]:
    """What a compiler that knows the language and our declarations says of a program: a line for each error."""
    return [message.partition(": ")[2].partition("\n")[0] for _, message in all_type_errors(program, DECLARATIONS)]


async def test_a_guest_has_each_declared_global_and_no_other(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral:
        result = await corral.execute(PROGRAM)
    names, absent = cast("tuple[list[str], list[str]]", result.value)
    guest = " | ".join(json.dumps(name) for name in names if name not in NOT_DECLARED_BY_US)
    missing, extra, *unbound = type_errors(
        f"type Guest = {guest};\n"
        "export const missing: Exclude<Guest, keyof typeof globalThis> = 0;\n"
        "export const extra: Exclude<keyof typeof globalThis, Guest> = 0;\n"
        f"void [{', '.join(ABSENT)}];\n"
    )
    assert missing == "Type '0' is not assignable to type 'never'."
    assert set(re.findall(r'"(\w+)"', extra)) == BEYOND_US
    assert [error.removeprefix("Cannot find name '").partition("'")[0] for error in unbound] == ABSENT
    assert absent == ["undefined"] * len(ABSENT)


def test_what_programs_do_with_globals_is_no_error() -> None:
    untyped = "implicitly has an 'any' type"  # which the check ignores
    assert [error for error in type_errors(USES) if untyped not in error] == []


USES = """
const timer = setTimeout((a: number, b: string) => a + b, "5", 1, "x");
clearTimeout(timer);
clearInterval(setInterval(() => {}, 1));
console.log("%s", 1n, undefined, [], console);
console.table([{ a: 1 }], ["a"]);
[parseInt(3), parseFloat(5), isNaN("3"), isFinite(null), Number.parseInt(3), Number.parseFloat(2)];
[encodeURIComponent({}), encodeURI(1), decodeURIComponent(1)];
[JSON.parse(null), JSON.parse(5).a.b, JSON.stringify({}, null, 2).length];
[Math.max(...["1", "2"]), Math.min(...new Set([1])), Math.round("2.5")];
[new Date(undefined), new Date(null), new Date("2026", "1"), new Date(2026, 1, 1).toLocaleString("en", { hour: "2-digit" })];
[new URL(new URL("https://a.example"), undefined).searchParams.get("a")?.length];
for (const [name, value] of new URLSearchParams({ a: 1 })) name.concat(value);
Object.fromEntries(new Headers([["a", "b"]]).entries());
Object.fromEntries(new FormData());
new TextDecoder().decode(new TextEncoder().encode("a").buffer).length;
(await crypto.subtle.digest("SHA-256", new Uint8Array())).byteLength;
[crypto.randomUUID().length, crypto.getRandomValues(new Uint8Array(4)).length];
[Buffer.from("a").toString("base64"), Buffer.concat([Buffer.alloc(1)]).readUInt8(0), structuredClone({ a: 1 }).a];
for await (const chunk of new Blob(["a"]).stream().pipeThrough(new CompressionStream("gzip"))) chunk.byteLength;
for await (const item of ReadableStream.from(["a"])) item.length;
new EventTarget().addEventListener("a", (event) => event.detail);
const socket = new WebSocket(new URL("wss://a.example"), ["v1"]);
socket.binaryType = "arraybuffer";
socket.onmessage = (event) => JSON.parse(event.data).anything;
socket.addEventListener("close", ({ code, reason, wasClean }) => [code.toFixed(), reason, wasClean]);
if (socket.readyState === WebSocket.OPEN && socket.bufferedAmount < 5) socket.send(new Uint8Array(1));
socket.close(1000, "done");
const source = new EventSource("https://a.example", { withCredentials: true });
source.onerror = () => source.readyState === EventSource.CLOSED || source.close();
source.addEventListener("tick", (event) => event.data.length + event.lastEventId.length);
new AbortController().signal.addEventListener("abort", () => {}, { once: true });
(await new Response("{}").json()).anything;
(await new Promise((resolve) => setTimeout(resolve, 5))).anything;
(await new Promise<void>((resolve) => resolve()));
new Error("a", { cause: 1 }).code?.length;
[Object.entries({}).map(([, value]) => value.anything), Object.values({ a: 1 }).map((n) => n.toFixed())];
[1, 2].reduce((sums, n) => { sums[n] = n; return sums; }, {})[1].anything;
[1, 2].reduce((all, n) => { all.push(n); return all; }, []).length;
["a", "b"].sort((a, b) => a > b);
["a", undefined].filter(Boolean).map((text) => text.length);
(["a", "b"] as const).includes("c".trim());
new Map([["a", 1]]).get(undefined);
new Set().add(1).has("a");
(await Promise.allSettled([Promise.resolve(1)])).map((result) => result.reason ?? result.value);
[performance.now().toFixed(), self === globalThis, global.Math.PI, Temporal.Now.instant().epochMilliseconds];
new Intl.NumberFormat("en", { style: "currency".trim() }).format(1);
"""
