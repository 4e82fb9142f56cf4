// What is evaluated in the fresh context: the runtime of the program, made of that context's own intrinsics, and the
// globals that a context lacks. Only strings, numbers, bytes and the functions of `Bridge` pass between it and the engine's
// context.

import { ASYNCHRONOUS, defineGlobal, defineLazily, finishGlobals, ONLY_ALONE, SYNCHRONOUS, watch } from "../globals.ts";
import { makePerformance } from "./performance.ts";
import type { Faces, Platform, Scope } from "./platform.ts";
import { type Host, Run, type Start } from "../run.ts";
import { type Clock, makeTimers } from "./timers.ts";
import { decodeValue } from "../values.ts";

/** What the engine's context gives to a fresh one. */
export interface Bridge {
  host: Host;
  platform: Platform;
  clock: Clock;
  timeOrigin: number;
  /** Evaluates platform.ts in the context: only when it is needed, because most programs do without. */
  loadFaces(): typeof Faces;
}

const { deleteProperty } = Reflect;
const { hasOwn } = Object;
const Bytes = Uint8Array;
const queue = queueMicrotask;
const textEncoder = new TextEncoder();

function encodeText(text: string): Uint8Array<ArrayBuffer> {
  const room = new Bytes(text.length * 3);
  const { written } = textEncoder.encodeInto(text, room);
  const bytes = new Bytes(written);
  for (let index = 0; index < written; index++) bytes[index] = room[index]!;
  return bytes;
}

/** Prepares this context. The function takes the payload of START, and makes the context the program's. */
export function openRealm(bridge: Bridge, allowWasm: boolean): (start: string) => Run {
  let run: Run | undefined;
  const scope: Scope = {
    uncaught: (error) => run?.uncaught(error),
    started: (timer, callback) => run?.startTimer(timer, callback),
  };
  const touched = () => {
    if (run !== undefined) run.asynchronous = true;
  };
  defineParts(bridge, scope, touched);
  defineGlobal("queueMicrotask", guardedQueue(scope));
  defineGlobal("FinalizationRegistry", guardedRegistry(scope));
  for (const name of ["SharedArrayBuffer", "Atomics"]) deleteProperty(globalThis, name);
  if (allowWasm) {
    compileSynchronously();
    watch("WebAssembly", touched);
  } else deleteProperty(globalThis, "WebAssembly");
  finishGlobals();
  return (start) => {
    run = new Run((decodeValue(start, false) as [Start])[0], bridge.host);
    run.defineGlobals();
    return run;
  };
}

/** Every part of the platform that a context lacks, made when it is first touched. */
function defineParts({ platform, clock, host, timeOrigin, loadFaces }: Bridge, scope: Scope, touched: () => void): void {
  let faces: Faces | undefined;
  let timers: Record<string, unknown> | undefined;
  const part = (name: string): unknown => {
    if (name === "performance") return makePerformance(host.now, timeOrigin);
    if (name.endsWith("Timeout") || name.endsWith("Interval") || name.endsWith("Immediate")) {
      timers ??= makeTimers(clock, scope);
      return timers[name];
    }
    faces ??= new (loadFaces())(platform, scope, clock, encodeText);
    return faces.global(name);
  };
  for (const name of SYNCHRONOUS) {
    if (!hasOwn(globalThis, name)) defineLazily(name, () => part(name));
  }
  for (const name of ASYNCHRONOUS) {
    if (ONLY_ALONE.includes(name)) continue;
    defineLazily(name, () => {
      touched();
      return part(name);
    });
  }
}

/** The engine would call back when it has compiled: after EXIT too. */
function compileSynchronously(): void {
  const { Module, Instance } = WebAssembly;
  const replace = (name: string, value: unknown) =>
    Object.defineProperty(WebAssembly, name, { value, writable: true, configurable: true, enumerable: true });
  replace("compile", async (bytes: BufferSource) => new Module(bytes));
  replace("instantiate", async (source: BufferSource | WebAssembly.Module, imports?: WebAssembly.Imports) => {
    if (source instanceof Module) return new Instance(source, imports);
    const module = new Module(source);
    return { module, instance: new Instance(module, imports) };
  });
  for (const name of ["compileStreaming", "instantiateStreaming"]) deleteProperty(WebAssembly, name);
}

/** As the language's, but what a callback throws ends its own program instead of the process. */
function guardedQueue(scope: Scope): (callback: () => void) => void {
  return function queueMicrotask(callback) {
    if (typeof callback !== "function") throw new TypeError("queueMicrotask takes a function");
    queue(() => {
      try {
        callback();
      } catch (error) {
        scope.uncaught(error);
      }
    });
  };
}

function guardedRegistry(scope: Scope): typeof FinalizationRegistry {
  const Registry = FinalizationRegistry;
  return {
    FinalizationRegistry: class<T> extends Registry<T> {
      constructor(cleanup: (held: T) => void) {
        super((held) => {
          try {
            cleanup(held);
          } catch (error) {
            scope.uncaught(error);
          }
        });
      }
    },
  }.FinalizationRegistry;
}
