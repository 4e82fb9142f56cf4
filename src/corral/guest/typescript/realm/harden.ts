// The engine's own context, which programs in other contexts are kept out of. It answers questions about strings, numbers
// and bytes (`Native`), and nothing of it goes into another context but these functions, which platform.ts keeps to
// itself. What a program reaches of it nevertheless, such as frames of a stack, is frozen, and leads to the language's
// built-ins and nothing else.

import type { Native, Platform } from "./platform.ts";

const { apply, deleteProperty, ownKeys } = Reflect;
const { defineProperty, freeze, getOwnPropertyDescriptors, getPrototypeOf } = Object;
const { parse, stringify } = JSON;

/** What `main.ts` and the engine itself go on to look up in the global scope: the language. */
const LANGUAGE = [
  "Object", "Array", "Number", "parseFloat", "parseInt", "Infinity", "NaN", "undefined", "Boolean", "String", "Symbol",
  "Date", "Promise", "RegExp", "Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SyntaxError",
  "TypeError", "URIError", "globalThis", "JSON", "Math", "Intl", "ArrayBuffer", "Uint8Array", "Int8Array", "Uint16Array",
  "Int16Array", "Uint32Array", "Int32Array", "BigUint64Array", "BigInt64Array", "Uint8ClampedArray", "Float16Array",
  "Float32Array", "Float64Array", "DataView", "Map", "BigInt", "Set", "Iterator", "WeakMap", "WeakSet", "WeakRef",
  "FinalizationRegistry", "Proxy", "Reflect", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent",
  "isFinite", "isNaN", "Temporal", "SuppressedError", "DisposableStack", "AsyncDisposableStack",
];

/** The functions' own prototypes, whose `constructor` makes code from strings. */
const FUNCTIONS = [function () {}, function* () {}, async function () {}, async function* () {}]
  .map((each) => getPrototypeOf(each) as object);

const { URL, URLSearchParams, URLPattern, TextDecoder, TextEncoder, DOMException, CryptoKey, crypto, atob, btoa, Uint8Array } = globalThis;
const { subtle } = crypto;
const { getRandomValues, randomUUID } = crypto;
const { set: setBytes } = Uint8Array.prototype;
const { then } = Promise.prototype;

type Method = (...args: unknown[]) => Promise<unknown>;

/**
 * Takes what `Native` needs, empties the global scope of all but the language, and freezes what is left and all that it
 * leads to. Done once, before the first program and after every listener of the engine's events.
 */
export function hardenedPlatform(): Platform {
  loadAll();
  silence();
  for (const each of FUNCTIONS) deleteProperty(each, "constructor");
  const keep = new Set<PropertyKey>(LANGUAGE);
  for (const name of ownKeys(globalThis)) {
    if (typeof name === "symbol" || keep.has(name) || deleteProperty(globalThis, name)) continue;
    defineProperty(globalThis, name, { value: undefined, writable: false });
  }
  defineProperty(globalThis, "Deno", { value: undefined, writable: false, configurable: false, enumerable: false });
  const language = LANGUAGE.map((name) => (globalThis as Record<string, unknown>)[name]);
  const reachable = [...language, ...FUNCTIONS, TextEncoder, ...ofStacks(), openNative()];
  Error.stackTraceLimit = 0; // as `compile` needs it, which cannot set it later
  freezeAll(reachable);
  return { open: openNative };
}

/** What the engine loads when it is touched for the first time has to find its global scope as it was. */
function loadAll(): void {
  const native = openNative();
  native.parseUrl("http://a/?b=c", undefined);
  native.query(native.pairs("a=b"));
  native.pattern("{}", undefined, undefined, undefined, "exec");
  native.decoder("utf-8", false, false)!(new Uint8Array(1), false);
  native.randomize(new Uint8Array(1));
  native.uuid();
  native.crypto("digest", `["SHA-256",{"$bytes":""}]`, () => {});
  native.crypto("generateKey", `[{"name":"HMAC","hash":"SHA-256"},true,["sign"]]`, () => {});
  native.parseUrl("", undefined); // fails, which makes an error
  native.decodeBase64("%");
}

/** Nothing can be made to listen to the engine's own events, nor be reached from there. */
function silence(): void {
  const refuse = { value: undefined, writable: false, configurable: false };
  for (const name of ["addEventListener", "removeEventListener"]) defineProperty(EventTarget.prototype, name, refuse);
  const { process } = globalThis as unknown as { process: object };
  for (const name of ["stdin", "stdout", "stderr", "binding", "dlopen", "kill", "env"]) {
    defineProperty(process, name, { ...refuse, configurable: true });
  }
}

/** The engine's answers for one context: functions of strings, numbers, booleans and bytes, and of nothing else. */
function openNative(): Native {
  let failure = "";
  const keys = new Map<number, CryptoKey>();
  const fail = (error: unknown): undefined => void (failure = described(error));
  const attempt = <T>(action: () => T): T | undefined => {
    try {
      return action();
    } catch (error) {
      return fail(error);
    }
  };
  const parts = (url: URL) =>
    [
      url.href, url.origin, url.protocol, url.username, url.password, url.host, url.hostname, url.port, url.pathname,
      url.hash, url.search,
    ].join("\n");

  const result = (value: unknown): string => {
    if (value instanceof ArrayBuffer) return stringify({ bytes: new Uint8Array(value).toBase64() });
    if (value instanceof CryptoKey) {
      const { type, extractable, algorithm, usages } = value;
      const id = keys.size + 1;
      keys.set(id, value);
      const plain = (_: string, each: unknown) => (each instanceof Uint8Array ? { $bytes: each.toBase64() } : each);
      return stringify({ key: id, type, extractable, algorithm: stringify(algorithm, plain), usages });
    }
    if (typeof value === "object" && value !== null && "publicKey" in value && "privateKey" in value) {
      return stringify({ pair: [result(value.publicKey), result(value.privateKey)] });
    }
    return stringify({ data: value });
  };

  const revived = (_: string, value: unknown): unknown => {
    if (typeof value !== "object" || value === null) return value;
    const { $bytes, $key } = value as { $bytes?: unknown; $key?: unknown };
    if (typeof $bytes === "string") return Uint8Array.fromBase64($bytes);
    if (typeof $key === "number") return keys.get($key);
    return value;
  };

  const native: Native = {
    __proto__: null,
    failure: () => failure,
    parseUrl: (url, base) => attempt(() => parts(new URL(`${url}`, base === undefined ? undefined : `${base}`))),
    changeUrl: (href, member, value) =>
      attempt(() => {
        const url = new URL(`${href}`);
        (url as unknown as Record<string, string>)[`${member}`] = `${value}`;
        return parts(url);
      }),
    pairs: (query) => stringify([...new URLSearchParams(`${query}`)]),
    query: (pairs) => `${new URLSearchParams(parse(`${pairs}`) as string[][])}`,
    pattern: (init, base, input, inputBase, method) =>
      attempt(() => {
        const first = parse(`${init}`) as URLPatternInit;
        const pattern = base === undefined ? new URLPattern(first) : new URLPattern(first, `${base}`);
        if (method === "new") {
          const { protocol, username, password, hostname, port, pathname, search, hash, hasRegExpGroups } = pattern;
          return stringify({ protocol, username, password, hostname, port, pathname, search, hash, hasRegExpGroups });
        }
        const second = input === undefined ? {} : (parse(`${input}`) as URLPatternInit);
        const found = inputBase === undefined ? pattern.exec(second) : pattern.exec(second, `${inputBase}`);
        return stringify(found, (_, value: unknown) => (value === undefined ? 0 : value));
      }),
    encoding: (label) => attempt(() => new TextDecoder(`${label}`).encoding),
    decoder: (label, fatal, ignoreBOM) =>
      attempt(() => {
        const decoder = new TextDecoder(`${label}`, { fatal: !!fatal, ignoreBOM: !!ignoreBOM });
        return (bytes: Uint8Array, stream: boolean) => attempt(() => decoder.decode(copied(bytes), { stream: !!stream }));
      }),
    randomize: (bytes) => {
      const random = new Uint8Array(apply(lengthOf, bytes, []));
      apply(getRandomValues, crypto, [random]);
      apply(setBytes, bytes, [random]);
    },
    uuid: () => apply(randomUUID, crypto, []),
    decodeBase64: (text) => attempt(() => atob(`${text}`)),
    encodeBase64: (text) => attempt(() => btoa(`${text}`)),
    crypto: (method, args, done) => {
      const answer = (kind: string, text: string) => {
        try {
          done(kind, text);
        } catch {
          // The program's stack is full, or its runtime broken.
        }
      };
      const refused = (error: unknown) => answer("error", described(error));
      const settled = [
        (value: unknown) => {
          try {
            answer("value", result(value));
          } catch (error) {
            refused(error);
          }
        },
        refused,
      ];
      try {
        if (!CRYPTO.has(`${method}`)) return;
        const given = parse(`${args}`, revived) as unknown[];
        apply(then, apply((subtle as unknown as Record<string, Method>)[`${method}`]!, subtle, given), settled);
      } catch (error) {
        refused(error);
      }
    },
  } as Native;
  return freeze(native);
}

const CRYPTO = new Set([
  "digest", "generateKey", "importKey", "exportKey", "sign", "verify", "encrypt", "decrypt", "deriveBits", "deriveKey",
  "wrapKey", "unwrapKey",
]);
const lengthOf = Object.getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), "length")!.get! as () => number;

/** The same bytes in an array of this context: nothing that the engine asks it leads to a program. */
function copied(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(apply(lengthOf, bytes, []));
  apply(setBytes, copy, [bytes]);
  return copy;
}

/** An error of the engine's, as three lines. */
function described(error: unknown): string {
  if (!(error instanceof Error)) return `Error\n\n${error}`;
  const { code } = error as { code?: unknown };
  const kind = error instanceof DOMException ? "DOMException" : typeof code === "string" ? code : "";
  return `${error.name}\n${kind}\n${error.message}`;
}

/** What an error of this context has, and what `Error.prepareStackTrace` of any context is shown of frames in this one. */
function ofStacks(): unknown[] {
  let found: unknown[] = [];
  const holder = Error as { prepareStackTrace?: (error: Error, sites: object[]) => unknown };
  const { prepareStackTrace } = holder;
  holder.prepareStackTrace = (_, sites) => (found = [getPrototypeOf(sites[0]!)]);
  const error = new Error();
  void error.stack;
  holder.prepareStackTrace = prepareStackTrace;
  return [...found, error];
}

/** Freezes these and everything that they lead to. */
function freezeAll(roots: readonly unknown[]): void {
  const seen = new Set<unknown>([globalThis]);
  const waiting = [...roots];
  while (waiting.length > 0) {
    const each = waiting.pop();
    if ((typeof each !== "object" && typeof each !== "function") || each === null || seen.has(each)) continue;
    seen.add(each);
    waiting.push(getPrototypeOf(each));
    const descriptors = getOwnPropertyDescriptors(each) as Record<PropertyKey, PropertyDescriptor>;
    for (const key of ownKeys(descriptors)) {
      const { get, set, value } = descriptors[key]!;
      waiting.push(get, set, value);
    }
    if (!ArrayBuffer.isView(each)) freeze(each);
  }
}
