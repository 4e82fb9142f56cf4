"""What a program finds around it: a list of all it reaches by names, to be compared with what an earlier one found.

An attack that left anything behind for the next execution (a property, a replaced function, a timer) changes the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from corral import Corral, ExecutionContext, ExecutionResult

__all__ = ["look", "strange"]

# Nothing in here goes through what it looks at: the list would otherwise show what a changed function wants it to.
_START = r"""
const found = [];
const add = (line) => { found[found.length] = line };
"""
_LIST = r"""
const seen = new Set();
const queue = [];
const name = (key) => typeof key === "symbol" ? String(key) : key;
const text = (value) => {
  switch (typeof value) {
    case "function": return Function.prototype.toString.call(value);
    case "object": return value === null ? "null" : Object.prototype.toString.call(value);
    case "number": return Number.isInteger(value) && value < 1e9 ? String(value) : "a number";
    case "string": return value;
    default: return String(value);
  }
};
const visit = (path, value) => {
  if (value === null || (typeof value !== "object" && typeof value !== "function") || seen.has(value)) return;
  seen.add(value);
  queue[queue.length] = [path, value];
};
for (const key of Reflect.ownKeys(globalThis)) try { globalThis[key] } catch {}
visit("", globalThis);
for (const [path, value] of [
  ["async", async () => {}], ["generator", function* () {}], ["asyncGenerator", async function* () {}],
  ["iterator", [].values()], ["map", new Map().keys()], ["error", new Error()], ["tools", tools], ["echo", tools.echo],
  ["timer", setTimeout], ["regexp", "".matchAll(/x/g)], ["bytes", new Uint8Array(1)],
]) { visit(path, value); visit(path + ".__proto__", Object.getPrototypeOf(value)) }
for (let at = 0; at < queue.length; at++) {
  const [path, value] = queue[at];
  add(`${path}: ${Object.isExtensible(value)}`);
  visit(path + ".__proto__", Object.getPrototypeOf(value));
  for (const key of Reflect.ownKeys(value)) {
    if (path === "error" && key === "stack") continue;
    const it = Reflect.getOwnPropertyDescriptor(value, key);
    if (it === undefined) continue;
    const here = `${path}.${name(key)}`;
    add(`${here} ${it.writable}${it.enumerable}${it.configurable} ${("value" in it ? text(it.value) : text(it.get) + text(it.set)).slice(0, 80)}`);
    visit(here, it.value); visit(here + "<get>", it.get); visit(here + "<set>", it.set);
  }
}
"""
_WORKS = r"""
const expect = (what, holds) => { if (!holds) add("broken: " + what) };
const list = []; list.push(1, 2); list.push(3);
expect("push", list.length === 3 && [...list].map((each) => each + 1).join() === "2,3,4");
expect("then", await Promise.resolve(5).then((value) => value + 1) === 6);
expect("all", (await Promise.all([1, tools.echo(2)]))[1] === 2);
expect("json", JSON.stringify(JSON.parse('{"a":[1]}')) === '{"a":[1]}');
expect("echo", (await tools.echo({ a: [1, "x"] })).a[1] === "x");
expect("timers", await new Promise((done) => setTimeout(done, 1, "late")) === "late");
expect("microtasks", await new Promise((done) => queueMicrotask(() => done(1))) === 1);
expect("url", new URL("/b?c=1", "http://a").searchParams.get("c") === "1");
expect("bytes", new TextDecoder().decode(new TextEncoder().encode("é")) === "é");
expect("stream", (await new Response("x").text()) === "x");
expect("stack", new Error("x").stack.startsWith("Error: x\n"));
console.log("said");
return found.join("\n");
"""

PYTHON_LOOK = r"""
import asyncio, builtins, gc, os, sys, threading, types
found = [f"module {name} {sorted(vars(module))[:500]}" for name, module in sys.modules.items() if isinstance(module, types.ModuleType)]
found += [f"builtin {name} {value.__class__.__name__}" for name, value in vars(builtins).items()]
found += [f"environment {each}" for each in os.environ.items()]
found += [f"path {each}" for each in (*sys.path, *sys.argv)]
found += [f"thread {each.name}" for each in threading.enumerate()]
for number in range(200):
    try: found.append(f"descriptor {number} {os.fstat(number).st_mode}")
    except OSError: pass
objects = gc.get_objects()  # those since the server was ready, before which nobody attacks
found += [f"text {each[:80]}" for each in gc.get_referents(*objects) if isinstance(each, str) and "CANARY" in each]
found.append(f"limits {sys.getrecursionlimit()} {sys.getswitchinterval()} {sys.getprofile()} {sys.gettrace()}")
found.append(f"objects of classes called Poison: {sum(type(each).__name__ == 'Poison' for each in objects)}")
def expect(what, holds):
    if not holds: found.append(f"broken: {what}")
expect("numbers", [0 + 1, 6 + 1, 41 + 1, 254 + 1] == [int("1"), int("7"), int("42"), int("255")])
expect("echo", (await tools.echo(a=[1, "x"]))["a"][1] == "x")
expect("gather", await asyncio.gather(tools.echo(a=1), asyncio.sleep(0, 5)) == [{"a": 1}, 5])
expect("import", __import__("json").loads('{"a": [1]}') == {"a": [1]})
print("said")
"\n".join(found)
"""


async def look(
    corral: Corral, context: ExecutionContext, *, python: bool = False, whole: bool = True
) -> ExecutionResult:
    """What a program of `context` finds now; in TypeScript, unless `whole`, only what it finds broken."""
    if python:
        return await corral.execute(PYTHON_LOOK, context=context, language="python")
    return await corral.execute(f"{_START}{_LIST if whole else ''}{_WORKS}", context=context)


def strange(baseline: ExecutionResult, now: ExecutionResult) -> Sequence[str]:
    """How `now` differs from what an execution found before any attack; empty if it does not."""
    if now.error is not None or now.console != baseline.console:
        return [f"{now.error} {now.console!r}"]
    before, after = [dict.fromkeys(str(each.value).splitlines()) for each in (baseline, now)]
    return [f"+ {line}" for line in after if line not in before] + [f"- {line}" for line in before if line not in after]
