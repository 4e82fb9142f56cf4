// QuickJS's version of engine.ts. This engine has only the language, so the platform is defined first, over functions of
// the server that `Server` lists. The guest is evaluated once, and its memory is the image of which each execution gets a
// copy. So nothing here may keep a random number or a time from then.

import { definePlatform } from "../platform/platform.ts";
import type { Refusal } from "../run.ts";

/** Functions of the server. */
interface Server {
  /** Sends frames: `KKT` and a payload each, with the kind, 1 for a tagged payload, and a newline between them. */
  send(frames: string): void;
  /** Answers the platform's questions. */
  answer(question: string): string;
  /** Blocks until there are frames. Returns "1" and a frame, or "+" and a line for each. */
  receive(text: ""): string;
  /** Evaluates a script, which has another file name than the program's. Returns the function, or the error. */
  evaluate(script: string): unknown;
}

interface CallSite {
  getFileName(): string | null;
  getFunctionName(): string | null;
  getLineNumber(): number;
  getColumnNumber(): number;
}

interface Timer {
  callback: (() => void) | undefined;
  at: number;
  number: number;
  /** Milliseconds between two calls; 0 for one call. */
  every: number;
}

const { apply, deleteProperty, getPrototypeOf } = Reflect;
const { create, defineProperty } = Object;
const { exec } = RegExp.prototype;
const { indexOf, slice } = String.prototype;
const { max } = Math;
const { parse } = JSON;
const scope = globalThis as unknown as Record<string, unknown>;
const server = { send: scope.send, answer: scope.answer, receive: scope.receive, evaluate: scope.evaluate } as Server;
for (const name of ["send", "answer", "receive", "evaluate"]) deleteProperty(scope, name);
/** Name that the engine gives to code that it compiles by `eval`: the program's, since nothing else is compiled so. */
const OWN_NAME = "<input>";
const PLACE = /:(\d+):(\d+)$/;
const FRAME = /^ {4}at (.*) \(<input>:(\d+:\d+)\)$/;
const engineEval = eval;
const clock = performance.now.bind(performance);
const wallClock = Date.now;
let origin = 0;
let uncaughtBy: (error: unknown) => void = () => {};
const performance_ = { now: (): number => now(), timeOrigin: 0 };
let programName = "";

/** Timers by number, without the cleared ones. */
const timers = create(null) as Record<number, Timer>;
/** Binary heap of the timers. Cleared ones are removed when they come first, or once they are half of it. */
let heap = create(null) as Record<number, Timer>;
let heapSize = 0;
let cleared = 0;
let lastTimer = 0;

/** Sends frames, or the result of a turn. */
export const send: (text: string) => void = (text) => apply(server.send, undefined, [text]);
export const receive = (): string => apply(server.receive, undefined, [""]) as string;
export const ask = (name: string): unknown => (parse(apply(server.answer, undefined, [`["${name}"]`]) as string) as { value: unknown }).value;
export const now = (): number => clock() - origin;

/** There are no notebooks, and the server runs microtasks. */
export const enterCell = (_number: number): void => {};
export const runningCell = (): number | undefined => undefined;
export const runMicrotasks = (): void => {};

function startTimer(callback: () => void, milliseconds: number, repeats: boolean): number {
  const timer = { callback, at: now() + milliseconds, number: ++lastTimer, every: repeats ? milliseconds : 0 };
  timers[lastTimer] = timer;
  rise(timer, heapSize++);
  return lastTimer;
}

function clearTimer(number: number): void {
  const timer = timers[number];
  if (timer === undefined) return;
  deleteProperty(timers, number);
  timer.callback = undefined;
  if (++cleared * 2 > heapSize) removeCleared();
}

/** True if `a` runs before `b`: of two timers at the same time, the older one does. */
const isBefore = (a: Timer, b: Timer): boolean => a.at < b.at || (a.at === b.at && a.number < b.number);

/** Puts a timer into the heap at a free index, or above it. */
function rise(timer: Timer, index: number): void {
  while (index > 0) {
    const above = (index - 1) >> 1;
    if (!isBefore(timer, heap[above]!)) break;
    heap[index] = heap[above]!;
    index = above;
  }
  heap[index] = timer;
}

/** Puts a timer into the heap in place of its first one. */
function sink(timer: Timer): void {
  let index = 0;
  for (let below = 1; below < heapSize; below = 2 * index + 1) {
    if (below + 1 < heapSize && isBefore(heap[below + 1]!, heap[below]!)) below += 1;
    if (!isBefore(heap[below]!, timer)) break;
    heap[index] = heap[below]!;
    index = below;
  }
  heap[index] = timer;
}

function removeFirst(): void {
  const last = heap[--heapSize]!;
  deleteProperty(heap, heapSize);
  if (heapSize > 0) sink(last);
}

function removeCleared(): void {
  const all = heap;
  const size = heapSize;
  heap = create(null) as Record<number, Timer>;
  heapSize = cleared = 0;
  for (let index = 0; index < size; index++) if (all[index]!.callback !== undefined) rise(all[index]!, heapSize++);
}

/** Returns the timer that is due first. */
function firstTimer(): Timer | undefined {
  while (heapSize > 0) {
    const timer = heap[0]!;
    if (timer.callback !== undefined) return timer;
    cleared -= 1;
    removeFirst();
  }
  return undefined;
}

const host = {
  answer: (question: string): string => apply(server.answer, undefined, [question]) as string,
  setTimer: startTimer,
  setImmediate: (callback: () => void) => startTimer(callback, 0, false),
  clearTimer,
  started() {}, // globals.ts watches timers
  uncaught: (error: unknown) => uncaughtBy(error),
  now,
  timeOrigin: 0,
};
definePlatform(host);

/** Milliseconds until the next timer is due; -1 if there is none. */
export function untilTimer(): number {
  const timer = firstTimer();
  return timer === undefined ? -1 : max(timer.at - now(), 0);
}

/** Runs the timer that is due first, if one is. */
export function fireTimer(): void {
  const timer = firstTimer();
  if (timer === undefined || timer.at > now()) return;
  const { callback } = timer;
  if (timer.every > 0) {
    timer.at += timer.every;
    sink(timer);
  } else {
    deleteProperty(timers, timer.number);
    removeFirst();
  }
  callback!();
}

/** Prepares the engine for any program, while its image is made. `uncaught` takes errors of timers. */
export function prepareEngine(uncaught: (error: unknown) => void): void {
  uncaughtBy = uncaught;
  scope.performance = performance_;
  replaceRandom();
  forbidEval();
}

/** Begins an execution: its clock is 0 now. */
export function begin(name: string): void {
  programName = name;
  origin = clock();
  performance_.timeOrigin = wallClock();
}

/**
 * Replaces `Math.random`, whose state is in the image, by xoshiro128++ (Blackman and Vigna, https://prng.di.unimi.it).
 * The server gives the seed when the first number is read.
 */
function replaceRandom(): void {
  let seeded = false;
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  const seed = (): void => {
    const state = ask("seed") as number[];
    a = state[0]!;
    b = state[1]!;
    c = state[2]!;
    d = state[3]!;
    seeded = true;
  };
  const next = (): number => {
    const sum = (a + d) | 0;
    const result = (((sum << 7) | (sum >>> 25)) + a) | 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return result >>> 0;
  };
  const random = (): number => {
    if (!seeded) seed();
    return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  };
  defineProperty(Math, "random", { value: random, writable: true, configurable: true, enumerable: false });
}

/** Has the engine's stacks look like V8's, with the program's name. */
function nameFrames(): void {
  const capture = Error as unknown as { prepareStackTrace: ((error: Error, sites: CallSite[]) => unknown) | undefined };
  capture.prepareStackTrace = (_, sites) => sites;
  const prototype = getPrototypeOf((new Error() as unknown as { stack: CallSite[] }).stack[0]!) as CallSite;
  capture.prepareStackTrace = undefined; // deleting it would take it from the engine for good
  const { getFileName, getFunctionName, getLineNumber, getColumnNumber } = prototype;
  const value = function (this: CallSite): string {
    if (apply(getFileName, this, []) !== OWN_NAME) return "native";
    const place = `${programName}:${apply(getLineNumber, this, [])}:${apply(getColumnNumber, this, [])}`;
    const name = apply(getFunctionName, this, []) as string | null;
    return name === null || name === "" || name === "<anonymous>" ? place : `${name} (${place})`;
  };
  const nothing = (): undefined => undefined;
  const never = (): boolean => false;
  const methods = {
    toString: value, getThis: nothing, getFunction: nothing, getTypeName: nothing, getMethodName: nothing, getEvalOrigin: nothing, getPromiseIndex: () => null,
    isToplevel: never, isEval: never, isConstructor: never, isAsync: never, isPromiseAll: never,
  };
  for (const [name, method] of Object.entries(methods)) {
    defineProperty(prototype, name, { value: method, writable: true, configurable: true, enumerable: false });
  }
}
nameFrames();

type Formatter = (error: object, sites: object[]) => unknown;
let formatStack: Formatter | undefined;

/** Notes that `Error.prepareStackTrace` is now the guest's own, which only needs the frames' texts. */
export function keepFormatter(): void {
  formatStack = (Error as unknown as { prepareStackTrace: Formatter }).prepareStackTrace;
}

/** Returns the program's frames in the engine's text, as a site writes them. */
function framesIn(text: string): object[] {
  const frames: string[] = [];
  for (let at = 0; at < text.length; ) {
    const end = apply(indexOf, text, ["\n", at]) as number;
    const line = apply(slice, text, [at, end < 0 ? text.length : end]) as string;
    at = end < 0 ? text.length : end + 1;
    const parts = apply(exec, FRAME, [line]) as RegExpExecArray | null;
    if (parts === null) continue;
    const place = `${programName}:${parts[2]}`;
    frames[frames.length] = parts[1] === "<anonymous>" ? place : `${parts[1]} (${place})`;
  }
  return frames as unknown[] as object[];
}

const capture = Error as unknown as {
  prepareStackTrace: Formatter | undefined;
  captureStackTrace(target: object, boundary?: unknown): void;
};
const { captureStackTrace } = capture;

/** Captures the stack of a call as the engine's text, which costs less than the sites of frames. */
export function captureText(target: object, boundary: unknown): void {
  const { prepareStackTrace } = capture;
  capture.prepareStackTrace = undefined;
  try {
    apply(captureStackTrace, capture, [target, boundary]);
  } finally {
    capture.prepareStackTrace = prepareStackTrace;
  }
}

/** Returns the frames of a stack that `captureText` has captured, each after a line end. */
export function textFrames({ stack }: { stack: string }): string {
  const frames = framesIn(stack);
  let text = "";
  for (let index = 0; index < frames.length; index++) text += `\n    at ${frames[index]}`;
  return text;
}

/** Has `Error.captureStackTrace` write the stack only when it is read, as V8 does. */
function captureLazily(): void {
  const collect: Formatter = (_, sites) => sites;
  const value = (target: object, boundary?: unknown): void => {
    const { prepareStackTrace } = capture;
    const isOurs = prepareStackTrace === formatStack;
    const holder = {} as { stack: object[] | string };
    capture.prepareStackTrace = isOurs ? undefined : collect; // the engine's text costs less than its sites
    try {
      apply(captureStackTrace, capture, [holder, boundary]);
    } finally {
      capture.prepareStackTrace = prepareStackTrace;
    }
    const captured = holder.stack;
    let stack: unknown;
    defineProperty(target, "stack", {
      configurable: true,
      enumerable: false,
      get() {
        if (captured === undefined || stack !== undefined) return stack;
        const sites = typeof captured === "string" ? framesIn(captured) : captured;
        return stack = typeof prepareStackTrace === "function" ? prepareStackTrace(target, sites) : sites.join("\n");
      },
      set(written: unknown) {
        stack = written;
      },
    });
  };
  defineProperty(Error, "captureStackTrace", { value, writable: true, configurable: true, enumerable: false });
}
captureLazily();

/** Objects that the running turn has looked up in a WeakRef, which the language keeps until its end. */
let kept: object[] = [];

/** Ends a turn: call it when no microtask is left. */
export const endTurn = (): void => {
  if (kept.length > 0) kept = [];
};

/** Keeps the targets of a WeakRef for the turn. This engine counts references, and would free them at once. */
function keepTargets(): void {
  const Engine = WeakRef;
  const { deref } = Engine.prototype;
  const keep = (target: object): void => void (kept[kept.length] = target);
  class Kept extends Engine<object> {
    constructor(target: object) {
      super(target);
      keep(target);
    }

    override deref(): object | undefined {
      const target = apply(deref, this, []) as object | undefined;
      if (target !== undefined) keep(target);
      return target;
    }
  }
  defineProperty(Kept, "name", { value: "WeakRef" });
  scope.WeakRef = Kept;
}
keepTargets();

/** Makes `eval` and the constructors of functions fail as in an engine that does not compile strings. */
function forbidEval(): void {
  const refuse = function (): never {
    throw new EvalError("Code generation from strings disallowed for this context");
  };
  const kinds = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (const kind of kinds) {
    const prototype = getPrototypeOf(kind) as { constructor: { name: string } };
    const constructor = function (): never {
      return refuse();
    };
    defineProperty(constructor, "name", { value: prototype.constructor.name });
    constructor.prototype = prototype as never;
    defineProperty(prototype, "constructor", { value: constructor, writable: true, configurable: true, enumerable: false });
    if (prototype.constructor.name === "Function") scope.Function = constructor;
  }
  defineProperty(globalThis, "eval", { value: refuse, writable: true, configurable: true, enumerable: false });
}

/** Returns the result of `make`, or the reason why it does not compile. */
export function compile<T>(make: () => T): { program: T } | { refusal: Refusal } {
  const capture = Error as { prepareStackTrace?: unknown };
  const { prepareStackTrace } = capture;
  capture.prepareStackTrace = undefined; // a syntax error's own position is only in the engine's text
  try {
    return { program: make() };
  } catch (error) {
    const { message, stack } = error as Error;
    const place = apply(exec, PLACE, [`${stack}`.split("\n", 1)[0]]) as RegExpExecArray | null;
    const shown = place === null ? "" : `    at ${programName}:${place[1]}:${place[2]}`;
    return { refusal: { message: titled(`${message}`), stack: shown } };
  } finally {
    capture.prepareStackTrace = prepareStackTrace;
  }
}

const titled = (text: string): string => text.charAt(0).toUpperCase() + (apply(slice, text, [1]) as string);

/** Evaluates a script: the program, or a package, whose frames are not the program's. */
export function evaluate(code: string, name: string): unknown {
  if (name === programName) return engineEval(code);
  const result: unknown = apply(server.evaluate, undefined, [code]);
  if (typeof result !== "function") throw result;
  return result;
}

/** True for the engine's error when memory runs out, for which it sometimes has no memory: then it throws null. */
export const isOutOfMemory = (error: unknown): boolean =>
  error === null ? ask("full") === true : (error as Error).name === "InternalError" && (error as Error).message === "out of memory";
