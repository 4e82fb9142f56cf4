// Modules of node that need only the language and the platform. Packages and programs use these parts of them.

import { wholePath } from "../file_api.ts";
import { inspect } from "../inspect.ts";
import { ask, coded } from "../platform/base.ts";
import { Buffer } from "../platform/buffer.ts";
import { bytesOf } from "../platform/intrinsics.ts";
import { TextDecoder, TextEncoder } from "../platform/text.ts";
import { URL, URLSearchParams } from "../platform/url.ts";

type Members = Record<PropertyKey, unknown>;
type Action = (this: unknown, ...args: any[]) => unknown;

export const builtIns = new Map<string, unknown>();
const tagOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

// --- path

const normalize = (path: string): string => {
  if (path === "") return ".";
  const parts: string[] = [];
  const isWhole = path[0] === "/";
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.length > 0 && parts.at(-1) !== "..") parts.pop();
    else if (!isWhole) parts.push("..");
  }
  const end = path.endsWith("/") && parts.length > 0 ? "/" : "";
  return (isWhole ? "/" : "") + parts.join("/") + end || ".";
};
const resolve = (...paths: string[]): string => {
  let whole = (globalThis as unknown as { process?: { cwd?(): string } }).process?.cwd?.() ?? "/";
  for (const path of paths) whole = wholePath(path, whole);
  return whole;
};
const withoutEnd = (path: string): string => path.replace(/(?<=[^/])\/+$/, "");
const basename = (path: string, end = ""): string => {
  const name = withoutEnd(path).replace(/^.*\//, "");
  return name !== end && name.endsWith(end) ? name.slice(0, name.length - end.length) : name;
};
const dirname = (path: string): string => {
  const plain = withoutEnd(path);
  const slash = plain.lastIndexOf("/");
  return slash < 0 ? "." : slash === 0 ? "/" : withoutEnd(plain.slice(0, slash));
};
const extname = (path: string): string => /^.+?(\.[^.]*)$/.exec(basename(path))?.[1] ?? "";
const path: Members = {
  sep: "/", delimiter: ":", normalize, resolve, basename, dirname, extname,
  isAbsolute: (path: string) => path[0] === "/",
  join: (...paths: string[]) => normalize(paths.filter((each) => each !== "").join("/")),
  relative(from: string, to: string) {
    const [here, there] = [resolve(from), resolve(to)].map((each) => each.split("/").filter((part) => part !== ""));
    let shared = 0;
    while (shared < here!.length && here![shared] === there![shared]) shared++;
    return [...here!.slice(shared).map(() => ".."), ...there!.slice(shared)].join("/");
  },
  parse(path: string) {
    const [base, ext] = [basename(path), extname(path)];
    const dir = path.includes("/") ? dirname(path) : "";
    return { root: path[0] === "/" ? "/" : "", dir, base, ext, name: ext === "" ? base : base.slice(0, -ext.length) };
  },
  format: ({ dir, root = "", base, name = "", ext = "" }: Record<string, string>) => `${dir === undefined ? root : dir === root ? dir : `${dir}/`}${base ?? name + ext}`,
  toNamespacedPath: (path: string) => path,
};
path.posix = path;

// --- events

interface Emitter {
  _events?: Map<unknown, Action[]>;
}

/** A function and not a class, because older packages call it on their own objects. */
const EventEmitter = function (this: unknown): void {} as unknown as { prototype: Members } & Members;
const listenersOf = (emitter: Emitter, name: unknown): Action[] => (emitter._events ??= new Map<unknown, Action[]>()).get(name) ?? [];
const add = (emitter: Emitter & Members, name: unknown, listener: Action, first = false): Emitter => {
  if (typeof listener !== "function") throw coded(new TypeError('The "listener" argument must be of type function'), "ERR_INVALID_ARG_TYPE");
  const others = listenersOf(emitter, name);
  if (listenersOf(emitter, "newListener").length > 0) (emitter.emit as Action)("newListener", name, original(listener));
  emitter._events!.set(name, first ? [listener, ...others] : [...others, listener]);
  return emitter;
};
const original = (listener: Action): Action => (listener as unknown as { listener?: Action }).listener ?? listener;
const once = (emitter: Emitter & Members, name: unknown, listener: Action): Action => Object.assign(
  (...args: unknown[]) => {
    (emitter.off as Action)(name, listener);
    return listener.apply(emitter, args);
  },
  { listener },
);
const methods: Record<string, (this: Emitter & Members, ...args: any[]) => unknown> = {
  on(name, listener) {
    return add(this, name, listener);
  },
  prependListener(name, listener) {
    return add(this, name, listener, true);
  },
  once(name, listener) {
    return add(this, name, once(this, name, listener));
  },
  prependOnceListener(name, listener) {
    return add(this, name, once(this, name, listener), true);
  },
  off(name, listener) {
    const left = [...listenersOf(this, name)];
    const index = left.findLastIndex((each) => original(each) === listener);
    if (index < 0) return this;
    left.splice(index, 1);
    if (left.length > 0) this._events!.set(name, left);
    else this._events!.delete(name);
    return this;
  },
  removeAllListeners(name) {
    if (name === undefined) this._events = new Map();
    else this._events?.delete(name);
    return this;
  },
  emit(name, ...args) {
    const listeners = listenersOf(this, name);
    if (listeners.length === 0 && name === "error") throw args[0] instanceof Error ? args[0] : coded(new Error(`Unhandled error. (${inspect(args[0])})`), "ERR_UNHANDLED_ERROR");
    for (const listener of listeners) listener.apply(this, args);
    return listeners.length > 0;
  },
  listeners(name) {
    return listenersOf(this, name).map(original);
  },
  rawListeners(name) {
    return [...listenersOf(this, name)];
  },
  listenerCount(name) {
    return listenersOf(this, name).length;
  },
  eventNames() {
    return [...(this._events?.keys() ?? [])];
  },
  setMaxListeners() {
    return this;
  },
  getMaxListeners: () => 10,
};
Object.assign(EventEmitter.prototype, methods, { addListener: methods.on, removeListener: methods.off });
Object.assign(EventEmitter, {
  EventEmitter, defaultMaxListeners: 10,
  once: (emitter: Members, name: unknown) => new Promise((done, fail) => {
    (emitter.once as Action)(name, (...args: unknown[]) => done(args));
    if (name !== "error") (emitter.once as Action)("error", fail);
  }),
});

// --- util and assert

const typesOf: Members = {};
for (const each of ["Date", "RegExp", "Map", "Set", "WeakMap", "WeakSet", "Promise", "ArrayBuffer", "DataView", "Uint8Array", "Float64Array"]) {
  typesOf[`is${each}`] = (value: unknown) => tagOf(value) === each;
}
Object.assign(typesOf, {
  isNativeError: (value: unknown) => value instanceof Error,
  isTypedArray: (value: unknown) => ArrayBuffer.isView(value) && !(value instanceof DataView),
  isArrayBufferView: ArrayBuffer.isView,
  isAnyArrayBuffer: (value: unknown) => tagOf(value) === "ArrayBuffer",
  isAsyncFunction: (value: unknown) => tagOf(value) === "AsyncFunction",
  isGeneratorFunction: (value: unknown) => tagOf(value) === "GeneratorFunction",
  isBoxedPrimitive: (value: unknown) => typeof value === "object" && /^(Number|String|Boolean|Symbol|BigInt)$/.test(tagOf(value)),
});
const custom = Symbol.for("nodejs.util.promisify.custom");
const format = (...args: unknown[]): string => {
  const shown = (value: unknown): string => (typeof value === "string" ? value : inspect(value));
  if (typeof args[0] !== "string") return args.map(shown).join(" ");
  let next = 1;
  const text = args[0].replace(/%[sdifjoOc%]/g, (mark) => {
    if (mark === "%%") return "%";
    if (next >= args.length) return mark;
    const value = args[next++];
    if (mark === "%c") return "";
    if (mark === "%j") return JSON.stringify(value);
    if (mark === "%d" || mark === "%f") return `${Number(value)}`;
    if (mark === "%i") return `${Math.trunc(Number(value))}`;
    return mark === "%s" ? shown(value) : inspect(value);
  });
  return [text, ...args.slice(next).map(shown)].join(" ");
};
const isEqual = (a: unknown, b: unknown, strict = true): boolean => {
  if (Object.is(a, b) || (!strict && a == b)) return true; // as in node's legacy mode
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || tagOf(a) !== tagOf(b)) return false;
  if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (a instanceof Date || tagOf(a) === "Number" || tagOf(a) === "String" || tagOf(a) === "Boolean") return Object.is(a.valueOf(), b.valueOf());
  if (a instanceof RegExp) return `${a}` === `${b as RegExp}`;
  if (a instanceof Error && (a.name !== (b as Error).name || a.message !== (b as Error).message)) return false;
  if (a instanceof Set) return a.size === (b as Set<unknown>).size && [...a].every((each) => (b as Set<unknown>).has(each) || [...b as Set<unknown>].some((other) => isEqual(each, other, strict)));
  if (a instanceof Map) return a.size === (b as Map<unknown, unknown>).size && [...a].every(([key, value]) => (b as Map<unknown, unknown>).has(key) && isEqual(value, (b as Map<unknown, unknown>).get(key), strict));
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && isEqual((a as Members)[key], (b as Members)[key], strict));
};
const util: Members = {
  inspect: Object.assign((value: unknown) => inspect(value), { custom: Symbol.for("nodejs.util.inspect.custom") }),
  format, types: typesOf, TextDecoder, TextEncoder,
  promisify: Object.assign(
    (action: Action & Members) => action[custom] ?? function (this: unknown, ...args: unknown[]) {
      return new Promise((done, fail) => action.call(this, ...args, (error: unknown, value: unknown) => (error ? fail(error) : done(value))));
    },
    { custom },
  ),
  callbackify: (action: Action) => (...args: unknown[]) => {
    const done = args.pop() as Action;
    (action(...args) as Promise<unknown>).then((value) => done(null, value), (error: unknown) => done(error));
  },
  inherits(constructor: Members, above: Members) {
    Object.defineProperty(constructor, "super_", { value: above, writable: true, configurable: true });
    Object.setPrototypeOf(constructor.prototype, above.prototype as object);
  },
  deprecate: (action: unknown) => action,
  debuglog: () => Object.assign(() => {}, { enabled: false }),
  isDeepStrictEqual: (a: unknown, b: unknown) => isEqual(a, b),
  stripVTControlCharacters: (text: string) => text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, ""),
  isArray: Array.isArray,
};

class AssertionError extends Error {
  code = "ERR_ASSERTION";
  override name = "AssertionError";
}
const expect = (holds: unknown, message: unknown, usual: () => string): void => {
  if (!holds) throw message instanceof Error ? message : new AssertionError(message === undefined ? usual() : `${message}`);
};
const compare = (test: (a: unknown, b: unknown) => boolean, sign: string) => (a: unknown, b: unknown, message?: unknown): void =>
  expect(test(a, b), message, () => `Expected ${inspect(a)} ${sign} ${inspect(b)}`);
const throws = (action: Action, second?: unknown, message?: unknown): void => {
  let error: unknown;
  try {
    action();
  } catch (thrown) {
    error = thrown ?? "nothing";
  }
  expect(error !== undefined, typeof second === "string" ? second : message, () => "Missing expected exception.");
  if (second instanceof RegExp) expect(second.test(`${error}`), message, () => `The error does not match ${second}: ${error}`);
};
const assert = Object.assign(
  (value: unknown, message?: unknown) => expect(value, message, () => `Expected a true value, got ${inspect(value)}`),
  {
    AssertionError, throws,
    equal: compare((a, b) => a == b, "=="), notEqual: compare((a, b) => a != b, "!="),
    strictEqual: compare(Object.is, "==="), notStrictEqual: compare((a, b) => !Object.is(a, b), "!=="),
    deepEqual: compare((a, b) => isEqual(a, b, false), "to equal"), deepStrictEqual: compare(isEqual, "to equal"),
    notDeepEqual: compare((a, b) => !isEqual(a, b, false), "not to equal"), notDeepStrictEqual: compare((a, b) => !isEqual(a, b), "not to equal"),
    match: (text: string, pattern: RegExp, message?: unknown) => expect(pattern.test(text), message, () => `${inspect(text)} does not match ${pattern}`),
    fail: (message?: unknown) => expect(false, message, () => "Failed"),
    ifError: (error: unknown) => expect(error === null || error === undefined, error, () => ""),
  },
);
Object.assign(assert, { ok: assert, strict: assert });

// --- the others

const hashes = new Set(["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]);

class Hash {
  #name: string;
  #parts: Uint8Array[] = [];

  constructor(name: string) {
    this.#name = name.toLowerCase().replace("-", "");
    if (!hashes.has(this.#name)) throw new Error(`Digest method not supported: ${name}; there are ${[...hashes].join(", ")}`);
  }

  update(data: unknown, encoding?: unknown): this {
    this.#parts.push(typeof data === "string" ? Buffer.from(data, encoding) : bytesOf(data)!.slice());
    return this;
  }

  digest(encoding?: string): unknown {
    const bytes = Buffer.from(ask<string>("digest", this.#name, Buffer.concat(this.#parts).toBase64()), "base64");
    return encoding === undefined ? bytes : bytes.toString(encoding);
  }
}

class StringDecoder {
  #decoder: TextDecoder;

  constructor(encoding: string = "utf8") {
    this.#decoder = new TextDecoder(/^utf-?8$/i.test(encoding) ? "utf-8" : encoding);
  }

  write(bytes: Uint8Array): string {
    return this.#decoder.decode(bytes, { stream: true });
  }

  end(bytes: Uint8Array = new Uint8Array()): string {
    return this.#decoder.decode(bytes);
  }
}

const queryOf = (query: Record<string, unknown>): URLSearchParams =>
  new URLSearchParams(Object.entries(query).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((each) => [name, `${each ?? ""}`])));
const parseQuery = (text: string): Members => {
  const members: Members = Object.create(null) as Members;
  for (const [name, value] of new URLSearchParams(text)) members[name] = name in members ? [members[name], value].flat() : value;
  return members;
};

/** Makes the modules, over the globals of programs. Call it once, while the image is made. */
export function makeBuiltIns(): void {
  const { clearImmediate, clearInterval, clearTimeout, console, crypto, performance, setImmediate, setInterval, setTimeout } = globalThis as unknown as Record<string, any>;
  const later = (start: Action) => (milliseconds?: unknown, value?: unknown) => new Promise((done) => start(() => done(value), milliseconds));
  const timers = { clearImmediate, clearInterval, clearTimeout, setImmediate, setInterval, setTimeout };
  const randomBytes = (size: number): Buffer => {
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size; at += 65536) crypto.getRandomValues(bytes.subarray(at, at + 65536));
    return bytes;
  };
  const modules: Members = {
    assert, "assert/strict": assert, console, events: EventEmitter, path, "path/posix": path, timers, util, "util/types": typesOf,
    buffer: { Buffer, Blob, atob, btoa, constants: { MAX_LENGTH: 2 ** 31 }, kMaxLength: 2 ** 31 },
    constants: {},
    crypto: {
      randomBytes, createHash: (name: string) => new Hash(name), getHashes: () => [...hashes], webcrypto: crypto, subtle: crypto.subtle,
      randomUUID: () => crypto.randomUUID() as string, getRandomValues: (array: unknown) => crypto.getRandomValues(array) as unknown,
      randomFillSync: (into: Uint8Array) => (bytesOf(into)!.set(randomBytes(into.byteLength)), into),
      randomInt: (low: number, high?: number) => Math.floor(Math.random() * (high === undefined ? low : high - low)) + (high === undefined ? 0 : low),
    },
    os: { EOL: "\n", platform: () => "linux", type: () => "Linux", arch: () => "x64", cpus: () => [], tmpdir: () => resolve(), homedir: () => resolve(), hostname: () => "localhost", endianness: () => "LE", release: () => "" },
    perf_hooks: { performance },
    querystring: { parse: parseQuery, decode: parseQuery, stringify: (query: Record<string, unknown>) => `${queryOf(query)}`, encode: (query: Record<string, unknown>) => `${queryOf(query)}`, escape: encodeURIComponent, unescape: decodeURIComponent },
    string_decoder: { StringDecoder },
    "timers/promises": { setTimeout: later(setTimeout), setImmediate: (value?: unknown) => new Promise((done) => setImmediate(() => done(value))) },
    url: { URL, URLSearchParams, fileURLToPath: (url: unknown) => decodeURIComponent((new URL(`${url}`) as unknown as { pathname: string }).pathname), pathToFileURL: (path: string) => new URL(`file://${resolve(path)}`) },
  };
  for (const [name, module] of Object.entries(modules)) builtIns.set(name, module);
}
