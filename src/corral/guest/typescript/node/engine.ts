// Node's version of engine.ts, for Node 20 or later. The guest is evaluated with its own `require` and `process`, which
// programs cannot reach.

import type { Refusal } from "../run.ts";

interface Files {
  readSync(file: number, into: Uint8Array): number;
  read(file: number, into: Uint8Array, at: number, length: number, position: null, done: (error: Error | null, count: number) => void): void;
  writeSync(file: number, bytes: Uint8Array): number;
}

interface Script {
  runInThisContext(): unknown;
}

interface Process {
  argv: string[];
  on(event: string, listener: (...args: never[]) => void): void;
  exit(code: number): never;
  /** Runs the tasks that are queued for the end of this turn. */
  _tickCallback(): void;
}

declare const require: (name: string) => unknown;
declare const process: Process;

const { readSync, read, writeSync } = require("node:fs") as Files;
const { Script } = require("node:vm") as { Script: new (code: string, options: { filename: string }) => Script };
const turn = setImmediate as unknown as (callback: () => void) => void;
/** Rejections that are not handled yet. A program can still handle them until it ends. */
const rejections = new Map<unknown, unknown>();
let onRejection: (reason: unknown) => void = () => {};

export const args: string[] = process.argv.slice(1);
export const runMicrotasks: () => void = process._tickCallback.bind(process);
/** Always false, because the queue is empty after `runMicrotasks`. */
export const hasTicks = (): boolean => false;
export const readBlocking = (into: Uint8Array): number => readSync(0, into);
export const readAsynchronously = (into: Uint8Array): Promise<number> =>
  new Promise((done, fail) => read(0, into, 0, into.length, null, (error, count) => (error === null ? done(count) : fail(error))));
export const write = (bytes: Uint8Array): number => writeSync(1, bytes);
export const exit: (code: number) => void = process.exit.bind(process);
export const now = performance.now.bind(performance);

/** Guests in Node have no cells. */
export const enterCell = (_number: number): void => {};
export const runningCell = (): number | undefined => undefined;

/** Calls back after this turn of the event loop, which also reports unhandled rejections. */
export function nextTurn(callback: () => void): void {
  turn(() => {
    for (const reason of rejections.values()) onRejection(reason);
    rejections.clear();
    callback();
  });
}

/** Registers handlers for unhandled failures. */
export function onFailures(rejected: (reason: unknown) => void, uncaught: (error: unknown) => void): void {
  onRejection = rejected;
  process.on("unhandledRejection", (reason: unknown, promise: unknown) => void rejections.set(promise, reason));
  process.on("rejectionHandled", (promise: unknown) => void rejections.delete(promise));
  process.on("uncaughtException", uncaught);
}

const PLACE = /^(.*:\d+)\n.*\n([ \t]*)\^/;
const { apply } = Reflect;
const { exec } = RegExp.prototype;

/**
 * Returns the result of `make`, or the reason why it does not compile. The engine puts a syntax error's position above
 * its stack.
 */
export function compile<T>(make: () => T): { program: T } | { refusal: Refusal } {
  try {
    return { program: make() };
  } catch (error) {
    const { message, stack } = error as Error;
    const place = apply(exec, PLACE, [`${stack}`]) as RegExpExecArray | null;
    return { refusal: { message: `${message}`, stack: place === null ? "" : `    at ${place[1]}:${place[2]!.length + 1}` } };
  }
}

/** Evaluates a script in the engine's own context. */
export function evaluate(code: string, name: string): unknown {
  return new Script(code, { filename: name }).runInThisContext();
}

/** True for the engine's error when there is no memory for a buffer. */
export const isOutOfMemory = (error: unknown): boolean =>
  error instanceof RangeError && error.message === "Array buffer allocation failed";
