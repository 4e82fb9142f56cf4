// The body of a program that collects all it can reach, and returns what of the engine's own context it could change.
const roots = [["globalThis", globalThis]];
const add = (n, v) => roots.push([n, v]);
const attempt = (n, f) => { try { add(n, f()) } catch (e) { add(n + "!", e) } };
for (const name of Object.getOwnPropertyNames(globalThis)) {
  let v; try { v = globalThis[name] } catch (e) { add(name + "!", e); continue }
  if (typeof v === "function" && /^[A-Z]/.test(name)) {
    for (const args of [[], ["http://a/b"], [{}], [new Uint8Array(2)], [() => 1]]) attempt(`new ${name}(${args.length})`, () => new v(...args));
    attempt(`${name}()`, () => v());
    for (const k of Object.getOwnPropertyNames(v)) if (!["prototype", "timeout"].includes(k)) attempt(`${name}.${k}`, () => typeof v[k] === "function" ? v[k]("x") : v[k]);
    if (v.prototype) for (const k of Reflect.ownKeys(v.prototype)) { const d = Object.getOwnPropertyDescriptor(v.prototype, k); if (d.get) attempt(`${name}#${String(k)}`, () => d.get.call(v.prototype)); else if (typeof d.value === "function" && k !== "constructor") attempt(`${name}#${String(k)}()`, () => d.value.call({}, 1)); }
  }
}
const t = new EventTarget(); t.addEventListener("x", function (...a) { add("listener", [this, ...a]) }); t.dispatchEvent(new Event("x"));
attempt("toString", () => new URL({ toString() { throw { a: 1 } } }));
attempt("toPrimitive", () => new URL({ [Symbol.toPrimitive](...a) { add("prim", a); return "http://x" } }));
attempt("proxy", () => new Headers(new Proxy({}, { get(...a) { add("proxyget", a); return undefined }, ownKeys(...a) { add("ownKeys", a); return [] } })));
attempt("iter", () => new URLSearchParams({ [Symbol.iterator]() { add("iterthis", this); return [][Symbol.iterator]() } }));
attempt("buf", () => Buffer.from("x")); attempt("buf2", () => Buffer.from({ valueOf() { add("valueOf", this); return 1 } }));
attempt("inspect", () => console.log({ [Symbol.for("nodejs.util.inspect.custom")](...a) { add("custom", a); return "x" }, [Symbol.for("Deno.customInspect")](...a) { add("dcustom", [a, this]); return "y" } }));
attempt("inspectproxy", () => console.log(new Proxy({ a: 1 }, { get(...a) { add("pg", a); try { null.x } catch (e) { add("pge", e) } return Reflect.get(...a) }, getPrototypeOf(...a) { add("pp", a); return Object.prototype } })));
const old = Error.prepareStackTrace;
const deep = () => { const s = new Error("x").stack; add("sites", s); for (const x of s) for (const m of Object.getOwnPropertyNames(Object.getPrototypeOf(x))) attempt("site." + m, () => x[m]()) };
Error.prepareStackTrace = (e, s) => s;
deep(); attempt("dl", () => console.log({ get a() { deep(); return 1 } })); t.addEventListener("y", deep); t.dispatchEvent(new Event("y")); queueMicrotask(deep); setTimeout(deep, 0); await tools.echo({}); deep(); new URLSearchParams("a=1").forEach(deep); Error.prepareStackTrace = old;
attempt("clone", () => structuredClone({ a: new Error("x"), d: new Date() }));
for (const p of [crypto.subtle.digest("x", 1), new Response("x").json(), tools.echo({}), new Blob(["x"]).arrayBuffer(), crypto.subtle.generateKey({name: "HMAC", hash: "SHA-256"}, true, ["sign"])]) { add("promise", p); try { add("resolved", await p) } catch (e) { add("rejected", e) } }
const so = () => { try { so() } catch (e) { add("overflow", e) } }; 
const over = (f) => { const r = () => { try { f(); r() } catch (e) { add("overflow", e) } }; r() };
over(() => console.log("")); over(() => new URL("http://x")); over(() => tools.echo({}).catch(() => 0));
add("caller", (function () { try { return [arguments, this] } catch (e) { return e } })());

await new Promise(r => setTimeout(r, 20));
for (const f of [function(){}, async()=>{}, function*(){}, async function*(){}]) add("fn", f);
const seen = new Map(), queue = roots.map(([n, v]) => [n, v]); const bad = new Map(); let foreign = 0; const proto = Object.prototype;
const evals = [];
while (queue.length) {
  const [path, v] = queue.pop(); if ((typeof v !== "object" && typeof v !== "function") || v === null || seen.has(v)) continue; seen.set(v, path);
  if (path.length > 300) continue;
  let end = v, p; try { while ((p = Object.getPrototypeOf(end)) !== null) end = p } catch { continue }
  const isForeign = end !== proto && end !== v || (end === v && v !== proto && Object.hasOwn(v, "hasOwnProperty"));
  if (isForeign) { foreign++; if (!Object.isFrozen(v) && (typeof v === "function" || Object.hasOwn(v, "constructor") || Object.hasOwn(v, "toString")) ) bad.set(path, typeof v + ":" + Object.prototype.toString.call(v)); }
  try { queue.push([path + ".__proto__", Object.getPrototypeOf(v)]) } catch {}
  let keys = []; try { keys = Reflect.ownKeys(v) } catch {}
  for (const k of keys) { let d; try { d = Reflect.getOwnPropertyDescriptor(v, k) } catch { continue } if (!d) continue;
    const n = path + "." + String(k);
    if (["Deno", "core", "ops", "readTextFileSync", "__bootstrap", "permissions"].includes(k) && d.value !== undefined) bad.set(n, "POWER");
    queue.push([n, d.value]); queue.push([n + "<get>", d.get]); queue.push([n + "<set>", d.set]);
    if (d.get) { try { queue.push([n + "()", d.get.call(v)]) } catch (e) { queue.push([n + "!", e]) } }
  }
  if (typeof v === "function" && isForeign && !bad.has(path)) { let c; try { c = v.constructor } catch {} if (c && c !== Function) { try { evals.push([path, String(c("return typeof Deno + typeof setTimeout")())]) } catch (e) { } } }
}
return [seen.size, foreign, [...bad].slice(0, 40), bad.size, evals.slice(0, 10)];
