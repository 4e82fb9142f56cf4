// The engine features that the guest uses: its standard input and output, and its event loop. These are operations of
// Deno's core, because the wrappers Deno.stdin and Deno.stdout ask the buffer for its length, which a program
// can intercept.

import type { Refusal } from "./run.ts";

interface Core {
  evalContext(code: string, name: string): [unknown, { thrown: unknown } | null];
  destructureError(error: unknown): { message: string; frames: { fileName: string; lineNumber: number; columnNumber: number }[] };
  runMicrotasks(): void;
  hasTickScheduled(): boolean;
  read(file: number, into: Uint8Array): Promise<number>;
  readSync(file: number, into: Uint8Array): number;
  writeSync(file: number, bytes: Uint8Array): number;
  queueImmediate(immediate: object): void;
  immediateRefCount(increase: boolean): void;
  AsyncVariable: new () => AsyncVariable;
}

/** A value that promises, timers and operations of the engine keep for everything that follows from them. */
interface AsyncVariable {
  enter(value: number): unknown;
  get(): number | undefined;
}

const core = (Deno as unknown as Record<symbol, { core: Core }>)[(Deno as unknown as { internal: symbol }).internal]!.core;
const { destructureError, evalContext } = core;

export const { runMicrotasks } = core;
/** True if a task in Node's queue waits for the end of this turn. */
export const hasTicks: () => boolean = core.hasTickScheduled;
export const readBlocking = (into: Uint8Array): number => core.readSync(0, into);
export const readAsynchronously = (into: Uint8Array): Promise<number> => core.read(0, into);
export const write = (bytes: Uint8Array): number => core.writeSync(1, bytes);
export const exit: (code: number) => void = Deno.exit;
export const { args } = Deno;
export const now = performance.now.bind(performance);

const { apply } = Reflect;
const cell = new core.AsyncVariable();
const { enter: enterVariable, get: getVariable } = core.AsyncVariable.prototype as AsyncVariable;
/** Makes everything that starts from now on in this turn, and all that follows from it, belong to a cell. */
export const enterCell = (number: number): void => void apply(enterVariable, cell, [number]);
/** The cell that the running code belongs to; undefined if the engine does not say. */
export const runningCell = (): number | undefined => apply(getVariable, cell, []) as number | undefined;
const { preventDefault } = Event.prototype;
const listen = addEventListener;

/** Registers handlers for unhandled failures. */
export function onFailures(rejected: (reason: unknown) => void, uncaught: (error: unknown) => void): void {
  listen("unhandledrejection", (event) => {
    apply(preventDefault, event, []);
    rejected(event.reason);
  });
  listen("error", (event) => {
    apply(preventDefault, event, []);
    uncaught(event.error);
  });
}

/**
 * Calls back after this turn of the event loop, like setImmediate. A timer would take two milliseconds, and the global
 * setImmediate five at start-up, because it loads all of the engine's Node.js.
 */
export function nextTurn(callback: () => void): void {
  const _onImmediate = () => {
    core.immediateRefCount(false);
    callback();
  };
  core.queueImmediate({ _onImmediate, _argv: null, _destroyed: false, _idleNext: null, _idlePrev: null });
  core.immediateRefCount(true); // keeps the event loop alive until then
}

/**
 * Returns the result of `make`, or the reason why it does not compile. The engine reports the position of a syntax
 * error only if the error has no stack; otherwise it reports that of the compiler's caller.
 */
export function compile<T>(make: () => T): { program: T } | { refusal: Refusal } {
  const { stackTraceLimit } = Error;
  if (stackTraceLimit !== 0) Error.stackTraceLimit = 0;
  try {
    return { program: make() };
  } catch (error) {
    const { message, frames: [place] } = destructureError(error);
    const stack = place === undefined ? "" : `    at ${place.fileName}:${place.lineNumber}:${place.columnNumber}`;
    return { refusal: { message: `${message}`, stack } };
  } finally {
    if (stackTraceLimit !== 0) Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Evaluates a script in the engine's own context. */
export function evaluate(code: string, name: string): unknown {
  const [value, failure] = evalContext(code, name);
  if (failure !== null) throw failure.thrown;
  return value;
}

/** True for the engine's error when there is no memory for a buffer. */
export const isOutOfMemory = (error: unknown): boolean =>
  error instanceof RangeError && error.message === "Array buffer allocation failed";
