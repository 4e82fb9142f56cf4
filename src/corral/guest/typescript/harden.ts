// The engine's own context, of which programs in other contexts get functions and classes: frozen, so that whatever of
// it a program reaches is the same for every other one. Done once, before the first program.

import { inspect } from "./engine.ts";
import { ASYNCHRONOUS, SYNCHRONOUS } from "./globals.ts";
import { ADOPTABLE, ASYNC_ITERATOR, FUNCTIONS, ITERATOR, PROMISE } from "./intrinsics.ts";
import type { Platform } from "./platform.ts";

type Classes = Map<object, string>;

const { defineProperty, freeze, getOwnPropertyDescriptors, getPrototypeOf } = Object;

/**
 * Takes the platform's parts out of the global scope, empties that of what gives power, and freezes all that can be
 * reached from what was taken. What is loaded lazily is loaded now.
 */
export function hardenedPlatform(): Platform {
  const parts: Record<string, unknown> = { __proto__: null };
  for (const name of [...SYNCHRONOUS, ...ASYNCHRONOUS]) parts[name] = (globalThis as Record<string, unknown>)[name];
  const classes: Classes = new Map();
  const language = new Set(ADOPTABLE);
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (name === "Deno") continue;
    const value = (globalThis as Record<string, unknown>)[name];
    const prototype = typeof value === "function" ? (value.prototype as object | undefined) : undefined;
    if (typeof prototype !== "object" || prototype === null || language.has(prototype)) continue;
    classes.set(prototype, name);
    parts[name] ??= value;
  }
  // A pool of memory that all buffers share would show one program what another one had in them.
  (parts.Buffer as { poolSize: number }).poolSize = 0;
  // Code from strings would run in this context.
  for (const each of FUNCTIONS) Reflect.deleteProperty(each, "constructor");
  Reflect.deleteProperty(globalThis, "Deno");
  defineProperty(globalThis, "Deno", { value: undefined, writable: false, configurable: false, enumerable: false });
  freezeAll([...Object.values(parts), ...ADOPTABLE, PROMISE, ITERATOR, ASYNC_ITERATOR, ...FUNCTIONS, ...ofStacks(), ...ofInspect()]);
  return {
    part: (name) => parts[name],
    className: (prototype) => classes.get(prototype),
    adoptable: ADOPTABLE,
    function: Function.prototype,
    promise: PROMISE,
    iterator: ITERATOR,
    asyncIterator: ASYNC_ITERATOR,
  };
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

/** The functions that `inspect` hands to an object that prints itself. */
function ofInspect(): unknown[] {
  const found: unknown[] = [];
  const method = (...args: object[]) => {
    for (const each of [...args, ...args.flatMap((arg) => Object.values(arg) as unknown[])]) {
      if (typeof each === "function") found.push(each);
    }
    return "";
  };
  for (const name of ["Deno.customInspect", "nodejs.util.inspect.custom"]) inspect({ [Symbol.for(name)]: method });
  return found;
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
    for (const key of Reflect.ownKeys(descriptors)) {
      const { get, set, value } = descriptors[key]!;
      waiting.push(get, set, value);
    }
    if (!ArrayBuffer.isView(each)) freeze(each);
  }
}
