// The program's global scope. It is an allow-list: a global that a new engine release adds is absent until it is listed
// here. All this is hygiene; the boundary is the jail around the process.

import { writeBigInts } from "./bigints.ts";

/** The language itself, and platform functions that do not use the engine's event loop. */
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

/** Platform functions that complete through the engine's event loop. Using one ends the synchronous pump. */
const ASYNCHRONOUS = [
  "setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate",
  "AbortController", "AbortSignal", "crypto", "Crypto", "CryptoKey", "SubtleCrypto", "Blob", "File", "FileReader",
  "Request", "Response", "ReadableStream", "ReadableStreamDefaultReader", "ReadableStreamBYOBReader", "WritableStream", "WritableStreamDefaultWriter",
  "TransformStream", "ByteLengthQueuingStrategy", "CountQueuingStrategy", "TextDecoderStream", "TextEncoderStream",
  "CompressionStream", "DecompressionStream", "MessageChannel", "MessagePort", "MessageEvent", "Buffer",
];

/** Not for programs, but V8 needs it for lazy loading. */
const atomics = (globalThis as { Atomics?: typeof Atomics }).Atomics;
const { apply, deleteProperty, getPrototypeOf } = Reflect;
const { defineProperty } = Object;

const noNetwork = (name: string) =>
  new TypeError(`${name} is off: programs have no network. Call a tool for what you need; Object.keys(tools) lists them.`);

/** A timer of the engine. */
export interface Timer {
  /** True if it will not run any more. */
  _destroyed: boolean;
  /** True if it repeats. */
  _repeat?: unknown;
}

/** Observes all timers of the program. */
export interface TimerWatch {
  started(timer: Timer, callback?: unknown): void;
  /** Called when a timer's callback has run, or the timer was cleared, before the microtasks that follow. */
  ended(): void;
}

interface GlobalOptions {
  allowWasm: boolean;
  /** Called when the program first uses something asynchronous other than timers. */
  onAsynchronous: () => void;
  timers: TimerWatch;
  /** The remaining parts of the engine's namespace; undefined if it is absent. */
  namespace?: object;
}

/** Reduces globalThis to the allow-list, with the engine's asynchronous parts behind a tripwire. */
export function restrictGlobals(options: GlobalOptions): void {
  const keep = new Set(options.allowWasm ? [...SYNCHRONOUS, "WebAssembly"] : SYNCHRONOUS);
  const watched = new Set(options.allowWasm ? [...ASYNCHRONOUS, "WebAssembly"] : ASYNCHRONOUS);
  // Symbol keys stay: they are the brands by which the engine identifies its own global object.
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
  // Not just absent: parts of the engine would use a `Deno` that the program defines.
  defineProperty(globalThis, "Deno", { value: options.namespace, writable: false, configurable: false, enumerable: false });
  keepCall();
  writeBigInts();
}

export function defineGlobal(name: string, value: unknown): void {
  defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

/**
 * Makes `Function.prototype.call` permanent, because the engine uses it to pass the runtime's buffers to its
 * operations. Functions can still have a `call` of their own.
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
  /** Returns the engine's own value. */
  load(): unknown;
  /** Value behind the tripwire; undefined before the first access. */
  value: unknown;
}

const tripwires = new Map<string, Tripwire>();

/** Puts an existing global behind a tripwire. The program gets the result of `adapt`. */
export function watch(name: string, onTouch: () => void, adapt = (value: unknown) => value): void {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, name);
  if (descriptor === undefined) return;
  const load = (): unknown => (descriptor.get ? loaded(descriptor.get) : descriptor.value);
  const tripwire: Tripwire = {
    load,
    arm: () =>
      defineLazily(name, () => {
        tripwire.value ??= adapt(load());
        onTouch();
        return tripwire.value;
      }),
    value: undefined,
  };
  tripwires.set(name, tripwire);
  tripwire.arm();
}

/** Resets all tripwires, for the next access. */
export function rearm(): void {
  for (const tripwire of tripwires.values()) tripwire.arm();
}

/** Returns the engine's own value of a global behind a tripwire. */
export function unwatched(name: string): unknown {
  return tripwires.get(name)!.load();
}

/** Stops a timer of any kind. */
export function stopTimer(timer: object): void {
  const kind = "_onImmediate" in timer ? "clearImmediate" : "clearTimeout";
  apply(unwatched(kind) as (timer: object) => void, globalThis, [timer]);
}

/** True if a global still has the value behind its tripwire. */
export function isUnchanged(name: string, value: unknown): boolean {
  return value !== undefined && tripwires.get(name)?.value === value;
}

type StartTimer = (callback: unknown, ...args: unknown[]) => Timer;
type Adapt = (engine: StartTimer, timers: TimerWatch) => unknown;

const LONGEST_DELAY = 2 ** 31 - 1;

/** The engine warns about a delay out of range, and for that uses globals that have been removed. */
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

/** Globals for timers. Accessing one does not start a timer yet. */
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

/** Observes `refresh`, which restarts a timer that has already run. */
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

/** Defines a global that is created when it is first read. */
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

/** Returns the value of an engine's getter, which may load the feature only now. */
function loaded(getter: () => unknown): unknown {
  defineGlobal("Atomics", atomics);
  try {
    return apply(getter, globalThis, []);
  } finally {
    deleteProperty(globalThis, "Atomics");
  }
}
