// What a program finds in its global scope. An allow-list: a global that a new engine release adds is absent until it
// is named here. All this is hygiene; the boundary is the jail around the process.

import { writeBigInts } from "./bigints.ts";

/** The language itself, and platform functions that answer without the engine's event loop. */
const SYNCHRONOUS = [
  "Object", "Function", "Array", "Number", "parseFloat", "parseInt", "Infinity", "NaN", "undefined", "Boolean", "String",
  "Symbol", "Date", "Promise", "RegExp", "Error", "AggregateError", "EvalError", "RangeError", "ReferenceError",
  "SyntaxError", "TypeError", "URIError", "SuppressedError", "DisposableStack", "AsyncDisposableStack", "globalThis",
  "JSON", "Math", "Intl", "ArrayBuffer", "Uint8Array", "Int8Array", "Uint16Array", "Int16Array", "Uint32Array",
  "Int32Array", "BigUint64Array", "BigInt64Array", "Uint8ClampedArray", "Float16Array", "Float32Array", "Float64Array",
  "DataView", "Map", "BigInt", "Set", "Iterator", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "Proxy",
  "Reflect", "Temporal", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "unescape",
  "eval", "isFinite", "isNaN", "console", "queueMicrotask", "structuredClone", "atob", "btoa", "TextEncoder",
  "TextDecoder", "URL", "URLSearchParams", "URLPattern", "performance", "DOMException", "Event", "EventTarget",
  "CustomEvent", "Headers", "FormData",
];

/** Platform functions that complete through the engine's event loop: touching one ends the synchronous pump. */
const ASYNCHRONOUS = [
  "setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate",
  "AbortController", "AbortSignal", "crypto", "Crypto", "CryptoKey", "SubtleCrypto", "Blob", "File", "FileReader",
  "Request", "Response", "ReadableStream", "ReadableStreamDefaultReader", "ReadableStreamBYOBReader", "WritableStream", "WritableStreamDefaultWriter",
  "TransformStream", "ByteLengthQueuingStrategy", "CountQueuingStrategy", "TextDecoderStream", "TextEncoderStream",
  "CompressionStream", "DecompressionStream", "MessageChannel", "MessagePort", "MessageEvent", "Buffer",
];

/** Programs do not have it, but the engine needs it while it loads what is touched for the first time. */
const atomics = Atomics;
const { apply, deleteProperty, getPrototypeOf } = Reflect;
const { defineProperty } = Object;

const noNetwork = (name: string) =>
  new TypeError(`${name} is off: programs have no network. Call a tool for what you need; Object.keys(tools) lists them.`);

/** A timer of the engine. */
export interface Timer {
  /** It will not run any more. */
  _destroyed: boolean;
  /** It runs again and again. */
  _repeat?: unknown;
}

/** Hears of all timers that the program has. */
export interface TimerWatch {
  started(timer: Timer, callback?: unknown): void;
  /** The callback of one has run, or one was cleared; the microtasks of that have not. */
  ended(): void;
}

export interface GlobalOptions {
  allowWasm: boolean;
  /** Called when the program first touches something asynchronous, but for timers. */
  onAsynchronous: () => void;
  timers: TimerWatch;
  /** What is left of the engine's namespace; nothing if absent. */
  namespace?: object;
}

/** Leaves of globalThis only what is listed, with the engine's asynchronous parts behind a tripwire. */
export function restrictGlobals(options: GlobalOptions): void {
  const keep = new Set(options.allowWasm ? [...SYNCHRONOUS, "WebAssembly"] : SYNCHRONOUS);
  const watched = new Set(options.allowWasm ? [...ASYNCHRONOUS, "WebAssembly"] : ASYNCHRONOUS);
  // Symbol keys stay: they are the brands by which the engine knows its own global object.
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (!keep.has(name) && !watched.has(name) && !Reflect.deleteProperty(globalThis, name)) hide(name);
  }
  const { onAsynchronous, timers } = options;
  for (const name of watched) {
    if (TIMERS[name] === undefined) watch(name, onAsynchronous);
    else watch(name, () => {}, (found) => TIMERS[name]!(found as StartTimer, timers));
  }
  defineGlobal("fetch", () => Promise.reject(noNetwork("fetch")));
  for (const name of ["EventSource", "WebSocket"]) {
    defineGlobal(name, function () {
      throw noNetwork(name);
    });
  }
  defineGlobal("self", globalThis);
  defineGlobal("global", globalThis);
  // Not just absent: with a `Deno` of the program's making, parts of the engine would find what they look for.
  defineProperty(globalThis, "Deno", { value: options.namespace, writable: false, configurable: false, enumerable: false });
  keepCall();
  writeBigInts();
}

export function defineGlobal(name: string, value: unknown): void {
  defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

/**
 * Makes `Function.prototype.call` permanent: the engine hands the runtime's buffers to its operations through it. Functions
 * can still have a `call` of their own.
 */
function keepCall(): void {
  const { call } = Function.prototype;
  defineProperty(Function.prototype, "call", {
    configurable: false,
    enumerable: false,
    get: () => call,
    set(this: object, value: unknown) {
      if (this === Function.prototype) throw new TypeError("Function.prototype.call cannot be replaced here");
      defineProperty(this, "call", { value, writable: true, configurable: true, enumerable: true });
    },
  });
}

function hide(name: string): void {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, name);
  if (descriptor?.writable) (globalThis as Record<string, unknown>)[name] = undefined;
}

interface Tripwire {
  arm(): void;
  /** What was found behind it; undefined before anybody looked. */
  value: unknown;
}

const tripwires = new Map<string, Tripwire>();

/** Puts a global that is there behind a tripwire; the program gets what `adapt` makes of it. */
export function watch(name: string, onTouch: () => void, adapt = (value: unknown) => value): void {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, name);
  if (descriptor === undefined) return;
  const tripwire: Tripwire = {
    arm: () =>
      defineLazily(name, () => {
        tripwire.value ??= adapt(descriptor.get ? loaded(descriptor.get) : descriptor.value);
        onTouch();
        return tripwire.value;
      }),
    value: undefined,
  };
  tripwires.set(name, tripwire);
  tripwire.arm();
}

/** Puts all of them behind their tripwires again, for the next who touches one. */
export function rearm(): void {
  for (const tripwire of tripwires.values()) tripwire.arm();
}

/** True if a global is what was behind its tripwire. */
export function isUnchanged(name: string, value: unknown): boolean {
  return value !== undefined && tripwires.get(name)?.value === value;
}

type StartTimer = (callback: unknown, ...args: unknown[]) => Timer;
type Adapt = (engine: StartTimer, timers: TimerWatch) => unknown;

const LONGEST_DELAY = 2 ** 31 - 1;

/** The engine warns of a delay that it does not take, and to do so looks for what is not here any more. */
const withinRange: Adapt = (engine, timers) => {
  const start = watchedTimer(engine, timers);
  return (callback: unknown, delay: unknown = 0, ...args: unknown[]) => {
    const milliseconds = +(delay as number);
    return start(callback, milliseconds >= 0 && milliseconds <= LONGEST_DELAY ? milliseconds : 1, ...args);
  };
};

const clearing: Adapt = (engine, timers) => (timer: unknown) => {
  engine(timer);
  timers.ended();
};

/** Globals for timers: to touch one starts none yet. */
const TIMERS: Record<string, Adapt | undefined> = {
  setTimeout: withinRange,
  setInterval: withinRange,
  setImmediate: watchedTimer,
  clearTimeout: clearing,
  clearInterval: clearing,
  clearImmediate: clearing,
};

function watchedTimer(engine: StartTimer, timers: TimerWatch): StartTimer {
  const watchedCallback = (callback: unknown): unknown =>
    typeof callback !== "function" ? callback : function (this: unknown, ...args: unknown[]) {
      try {
        apply(callback, this, args);
      } finally {
        timers.ended();
      }
    };
  return (callback, ...args) => {
    const timer = engine(watchedCallback(callback), ...args);
    watchRefresh(getPrototypeOf(timer) as Refreshing, timers);
    timers.started(timer, timer._repeat ? undefined : callback);
    return timer;
  };
}

interface Refreshing {
  refresh?: (this: Timer) => Timer;
}

let watchesRefresh = false;

/** A timer that has run starts again by `refresh`. */
function watchRefresh(kind: Refreshing, { started }: TimerWatch): void {
  const { refresh } = kind;
  if (refresh === undefined || watchesRefresh) return;
  watchesRefresh = true;
  const { refresh: value } = {
    refresh(this: Timer): Timer {
      const timer = apply(refresh, this, []) as Timer;
      started(timer);
      return timer;
    },
  };
  defineProperty(kind, "refresh", { value, writable: true, configurable: true, enumerable: false });
}

/** A global that is made when it is first read. */
export function defineLazily(name: string, make: () => unknown): void {
  defineProperty(globalThis, name, {
    configurable: true,
    enumerable: false,
    get() {
      const value = make();
      defineGlobal(name, value);
      return value;
    },
    set(value: unknown) {
      defineGlobal(name, value);
    },
  });
}

/** What a getter of the engine gives, which may load the feature only now. */
function loaded(getter: () => unknown): unknown {
  defineGlobal("Atomics", atomics);
  try {
    return apply(getter, globalThis, []);
  } finally {
    deleteProperty(globalThis, "Atomics");
  }
}
