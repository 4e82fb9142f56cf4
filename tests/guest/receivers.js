// The body of a program that calls every function and accessor that it reaches with receivers and arguments that they were
// not made for, and returns what of another context than its own came out: [whether it came to its end, functions called, names, powers].
const own = Object.prototype;
const AsIs = class extends EventTarget {};
const attempt = (action) => { try { return action(); } catch (error) { return error; } };
const samples = [
  () => new URL("http://a/b?c=d"), () => new URLSearchParams("a=1"), () => new URLSearchParams("a=1").keys(),
  () => new URLPattern({ pathname: "/:id" }), () => new TextEncoder(), () => new TextDecoder(), () => new EventTarget(),
  () => new AsIs(), () => new Event("x"), () => new CustomEvent("x"), () => new MessageEvent("x"),
  () => new AbortController(), () => new AbortController().signal, () => new Blob(["x"]), () => new File(["x"], "n"),
  () => new FormData(), () => new Headers({ a: "b" }), () => new Request("http://x"), () => new Response("x"),
  () => crypto, () => crypto.subtle, () => Buffer.from("x"), () => new DOMException("x"), () => performance,
  () => structuredClone({ a: [new Date()] }),
].map((make) => attempt(make));
const receivers = [
  undefined, null, globalThis, {}, 1, "x", Symbol.iterator, () => 1, Object.create(null), new Proxy({}, {}),
  new Proxy(samples[6], {}), Object.create(EventTarget.prototype), ...samples,
];
const lists = [[], ["zzz", function () { found.push(this, arguments); }], [new Event("zzz")], [{ handleEvent() { found.push(this, arguments); } }]];
const skipped = new Set([eval, Function, console.clear, Array.prototype.fill, String.prototype.repeat, String.prototype.padEnd, String.prototype.padStart]);
const found = [...receivers];
const foreign = new Map();
const powers = [];
const seen = new Set();
const called = new Set();
const texts = new Set();
const POWERS = ["process", "Deno", "Worker", "fetch", "stdin", "addEventListener", "setTimeout", "eval", "Function", "mainModule", "binding", "core", "postMessage"];
const origin = (value) => { let end = value, next; while ((next = Object.getPrototypeOf(end)) !== null) end = next; return end; };
const isForeign = (value) => {
  const end = attempt(() => origin(value));
  return end !== own && (end !== value || (Object.hasOwn(value, "hasOwnProperty") && Object.hasOwn(value, "isPrototypeOf")));
};
const now = performance.now;
const stop = now() + 10000;
const walk = (deep) => {
  while (found.length > 0 && now() < stop) {
    const value = found.pop();
    if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
    seen.add(value);
    const alien = isForeign(value);
    if (!alien && value instanceof Error) continue;
    const keys = attempt(() => Reflect.ownKeys(value));
    if (!Array.isArray(keys)) continue;
    if (alien) {
      foreign.set(value, attempt(() => `${typeof value} ${value.name ?? Object.prototype.toString.call(value)}`));
      for (const name of POWERS) if (value !== globalThis && attempt(() => Reflect.has(value, name)) === true && attempt(() => value[name] !== undefined) === true) powers.push(`${foreign.get(value)}.${name}`);
      if (attempt(() => Object.isFrozen(value)) !== true && typeof value === "function") powers.push(`${foreign.get(value)} can be changed`);
    }
    found.push(attempt(() => Object.getPrototypeOf(value)));
    for (const key of keys) {
      const descriptor = attempt(() => Reflect.getOwnPropertyDescriptor(value, key));
      if (!descriptor) continue;
      found.push(descriptor.value, descriptor.get, descriptor.set);
      if (descriptor.get) found.push(attempt(() => value[key]));
    }
    if (!deep || typeof value !== "function" || called.has(value) || skipped.has(value) || value === walk || value === attempt) continue;
    called.add(value);
    const text = attempt(() => Function.prototype.toString.call(value) + value.name);
    if (texts.has(text) && !/native code/.test(text)) continue;
    texts.add(text);
    if (/^(?:walk|attempt|isForeign|origin|fill|repeat|padEnd|padStart|clear|fuzz)$/.test(value.name)) continue;
    for (const receiver of receivers) {
      for (const args of lists) {
        const result = attempt(() => Reflect.apply(value, receiver, args));
        if (typeof result === "object" && result !== null && typeof result.then === "function") attempt(() => Promise.prototype.then.call(result, (each) => found.push(each), (each) => found.push(each)));
        found.push(result);
      }
    }
    for (const args of lists) found.push(attempt(() => Reflect.construct(value, args)));
  }
};
const PLATFORM = ["URL", "URLSearchParams", "URLPattern", "TextEncoder", "TextDecoder", "EventTarget", "Event", "CustomEvent", "MessageEvent", "AbortController", "AbortSignal", "Blob", "File", "FormData", "Headers", "Request", "Response", "Crypto", "SubtleCrypto", "CryptoKey", "Buffer", "DOMException", "atob", "btoa", "structuredClone", "performance", "fetch", "crypto"];
seen.add(globalThis);
for (const type of [Object, Function, Array, Promise, Reflect, Symbol, Proxy, String, Number, RegExp, Date, Map, Set, WeakMap, JSON, Math, Iterator, Error]) { called.add(type); }
for (const each of [Object.prototype, Function.prototype, Array.prototype, Error, TypeError, RangeError, Promise.prototype, Iterator.prototype, Uint8Array.prototype, Object.getPrototypeOf(Uint8Array)]) seen.add(each);
for (const name of PLATFORM) found.push(globalThis[name], globalThis[name]?.prototype);
walk(true);
await new Promise((resolve) => setTimeout(resolve, 100));
walk(false);
return [now() < stop, texts.size, [...new Set(foreign.values())].sort(), [...new Set(powers)]];
