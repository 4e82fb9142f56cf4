// One execution of a program: its calls, its console, its outcome. The process (process/) transports frames, and
// decides when the execution is finally over.

import { type Level, makeConsole } from "./console.ts";
import { CorralError, failureClasses, unavailable } from "./failures.ts";
import { giveBackParsed } from "./bigints.ts";
import { type Seed, World } from "./durable.ts";
import { enterCell, isOutOfMemory, runMicrotasks, runningCell } from "./engine.ts";
import { defineGlobal, stopTimer, type Timer } from "./globals.ts";
import { inspect } from "./inspect.ts";
import { Kind } from "./kinds.ts";
import { defineNetwork } from "./network.ts";
import { type CallLimits, Calls, makeTools, observe, type Toolbox } from "./tools.ts";
import { byteLength, clip, decodeValue, type Encoded, encodeSettled, encodeValue, lostInAllRows, type Settled, ValueError } from "./values.ts";

interface Limits {
  calls: number;
  calls_in_flight: number;
  value_bytes: number;
  tool_input_bytes: number;
  log_bytes: number;
}

/** Package as the body of a CommonJS function. */
export interface Text {
  code: string;
}

/** Packages that a program may import: texts of those that it could require, and reasons why others are missing. */
export interface ModuleTexts {
  allowed: string[];
  texts: Record<string, Text>;
  failures: Record<string, string>;
}

/** Directories of the session, each with whether the program may change it, and its real path if that differs. */
export type Mounts = [path: string, writable: boolean, real: string | null][];

export interface Start {
  code: string;
  tools: string[];
  env: Record<string, string> | null;
  limits: Limits;
  modules?: ModuleTexts | null;
  services?: string[];
  mounts?: Mounts;
  /** True if its run must be repeatable. */
  durable?: Seed;
  /** Number of a notebook's cell: another one can follow. */
  cell?: number;
  /** True if the program is the trial of a package: `require` returns what the package does while it loads. */
  rehearses?: boolean;
}

/** Loads modules, each once. */
export interface Loader {
  /** Object that packages use as node's `process`. */
  process: object;
  namespace(specifier: string): unknown;
  require(specifier: string): unknown;
  /** Takes the texts of a notebook's next cell. */
  next?(start: Start): void;
}

/** Services of the process for a run. */
export interface Host {
  /** Returns the loader of this run; undefined if it has no modules. */
  load?(start: Start): Loader | undefined;
  /** Appends a frame of this run, to be sent by the next `flush`. */
  send(kind: number, tagged: boolean, payload: string): void;
  flush(): void;
  /** Blocks until frames have arrived, and handles them. Throws if the reply to the call `sequence` cannot be read. */
  receive?(sequence: number): void;
  /** Called when the program has its outcome, and the run may be over. */
  concluded(): void;
  now(): number;
}

/** Reason why a program does not compile, with the position as a frame of a stack. */
export interface Refusal {
  message: string;
  stack: string;
}

/** Loads a module. An `unused` one is not evaluated, and may be missing. */
type Load = ((specifier: unknown, unused?: unknown) => Promise<unknown>) & { meta: object };
type Enter = (value: unknown, destructures: boolean) => Promise<unknown>;
export type Program = (load: Load, enter: Enter) => Promise<unknown>;

/** First part of an EXIT: the value, or `[code, name, message, stack, cause]`, as JSON text. */
interface Outcome {
  kind: "value" | "error" | "rejected";
  text: string;
  tagged: boolean;
}

/** Return value of a program whose other work continues. */
interface Held {
  value: unknown;
  /** Results of promises and iterators in it. */
  settled: Settled;
  /** Encoding of the value when the program returned it. */
  encoded: Encoded;
  /** True if the value may have changed since. */
  stale: boolean;
  /** True while the value is encoded for the last time. */
  closing: boolean;
}

interface Started {
  timer: Pick<Timer, "_destroyed">;
  /** True if its work is part of the program, which does not end before it. */
  awaited: boolean;
}

/** Name of the program's frames in stack traces, and the beginning of the names of cells. */
export const PROGRAM_NAME = "corral:program.ts";
const CELL_NAME = "corral:cell_";
/** Maximum number of entries in the lists of an EXIT. */
const MAX_UNAWAITED = 100;
const MAX_REMARKS = 20;
/**
 * Minimum characters of a value that is always encoded again at the end, because microtasks alone may have changed it.
 */
const MAX_REWRITTEN = 50_000;
const BURST = 16;
/** Callbacks whose timers guard something else, or do nothing, and are irrelevant once that is done. */
const GUARDS = ["rej", "res", "abort", "throw", "Error", "= true", "= false", "{}"];
const NO_EXIT = ["process is not defined", "process.exit is not a function"];
/** Maximum characters of a thrown value that is not an Error. */
const MAX_DESCRIBED = 2000;
/** Maximum number of an AggregateError's errors that are shown, and characters of each. */
const MAX_ERRORS = 5;
const MAX_WITHIN = 500;

const { stringify } = JSON;
const { isArray } = Array;
const { apply } = Reflect;
const { assign, create, defineProperty, freeze } = Object;
const Settling = Promise;
const SettledMap = Map;
const { then } = Promise.prototype;
const { all, any, race } = Promise;
const combinators = { all, any, race } as Record<string, (values: unknown) => Promise<unknown>>;
const { includes, slice } = String.prototype;
const { toString: sourceOf } = Function.prototype;
const Bytes = Uint8Array;
const textEncoder = new TextEncoder();
const encodeInto = textEncoder.encodeInto.bind(textEncoder);
const queueTask = queueMicrotask;

/** Returns the name of a program's code. */
export function codeName({ cell }: Start): string {
  return cell === undefined ? PROGRAM_NAME : `${CELL_NAME}${cell}.ts`;
}

function isOwn(text: string): boolean {
  return (apply(includes, text, [PROGRAM_NAME]) as boolean) || (apply(includes, text, [CELL_NAME]) as boolean);
}

/** Keeps only the program's own frames in a stack. All others are ours, and name files of the host. */
function programFramesOnly(error: Error, sites: object[]): string {
  let stack = `${error.name}: ${error.message}`;
  for (let index = 0; index < sites.length; index++) {
    const frame = `${sites[index]}`;
    if (isOwn(frame)) stack += `\n    at ${frame}`;
  }
  return stack;
}

export class Run {
  start: Start;
  /**
   * True while the engine's event loop serves the program: a timer runs, or the program has used something that
   * completes there.
   */
  asynchronous = false;
  /** World of a durable execution. */
  readonly world: World | undefined;
  #staysAsynchronous = false;
  #timers = create(null) as Started[];
  #timerCount = 0;
  #timerRoom = 64;
  #host: Host;
  #calls: Calls;
  #toolbox: Toolbox;
  #load = load;
  #loader: Loader | undefined;
  #hasNetwork = false;
  /** Work of earlier cells, which the engine does not attribute to them, can still complete. */
  #hasOldWork = false;
  #logBytes = 0;
  #droppedLogBytes = 0;
  #unsent = 0;
  #flushing = false;
  #outcome: Outcome | undefined;
  #held: Held | undefined;
  /** True while the caller of `close` learns of the end through its return value. */
  #closing = false;
  #stopped = false;
  /** True if the program raced promises, or some of several have failed, so that the remaining calls may have lost. */
  #raced = false;
  #remarks: string[] = [];
  /** Last output of `console.error`, as the error itself if there was one. */
  #printed: Error | string | undefined;

  constructor(start: Start, host: Host) {
    giveBackParsed(() => this.#remark("JSON.parse got a value that is already parsed, and returned it unchanged"));
    this.start = start;
    this.#host = host;
    const send = (payload: string, { tagged }: { tagged: boolean }) => {
      host.send(Kind.call, tagged, payload);
      // The first call is sent at once, whatever the program does next. Later calls of this turn are sent together, but
      // not so many that the host would have nothing to do meanwhile.
      if (this.#calls.inFlight === 1 || ++this.#unsent === BURST) {
        this.#unsent = 0;
        host.flush();
      } else if (this.asynchronous) this.#flushSoon();
    };
    const tell = (message: "credit" | "cancel", sequence: number) => {
      host.send(Kind[message], false, `[${sequence}]`);
      if (this.asynchronous) this.#flushSoon();
    };
    this.#calls = new Calls(send, tell, this.#callLimits());
    this.#toolbox = makeTools(start.tools, this.#calls);
    if (start.durable) this.world = new World(start.durable, this.#calls, this);
  }

  #callLimits(): CallLimits {
    const { cell, limits: { calls, calls_in_flight, tool_input_bytes }, services } = this.start;
    const isLeftBehind = (): boolean => {
      const running = runningCell();
      return running === undefined ? this.#hasOldWork : running !== cell;
    };
    return { calls, callsInFlight: calls_in_flight, inputBytes: tool_input_bytes, services, isLeftBehind: cell === undefined ? undefined : isLeftBehind };
  }

  /** Ends the work that a cell leaves behind, before its EXIT. */
  end(): void {
    this.#calls.end();
    for (let index = 0; index < this.#timerCount; index++) {
      const { timer } = this.#timers[index]!;
      if (!timer._destroyed) stopTimer(timer);
    }
    this.#timerCount = 0;
    runMicrotasks();
  }

  /** Begins a notebook's next cell, or the program of a run that was made before it: globals stay as they are. */
  next(start: Start): void {
    const { tools, env } = this.start;
    this.start = start;
    this.#hasOldWork ||= this.#staysAsynchronous;
    this.asynchronous = this.#staysAsynchronous;
    this.#logBytes = this.#droppedLogBytes = this.#unsent = 0;
    this.#outcome = this.#held = this.#printed = undefined;
    this.#flushing = this.#closing = this.#stopped = this.#raced = false;
    this.#remarks = [];
    this.#calls.begin(this.#callLimits());
    if (start.durable) this.world?.begin(start.durable);
    this.#addNetwork();
    if (stringify(tools) !== stringify(start.tools)) {
      this.#toolbox = makeTools(start.tools, this.#calls);
      defineGlobal("tools", this.#toolbox.tools);
      defineGlobal("codemode", this.#toolbox.tools);
    }
    if (stringify(env) !== stringify(start.env)) {
      defineGlobal("process", freeze({ ...this.#loader?.process, env: freeze(assign(create(null) as object, start.env)) }));
    }
    if (this.#loader === undefined) this.#addLoader();
    else this.#loader.next?.(start);
  }

  /** Adds the globals of this run to a scope that has only the language and the platform. */
  defineGlobals(): void {
    const { world } = this;
    const now = world === undefined ? this.#host.now : () => world.active;
    world?.install();
    (Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
    defineGlobal("tools", this.#toolbox.tools);
    defineGlobal("codemode", this.#toolbox.tools);
    for (const name in failureClasses) defineGlobal(name, failureClasses[name]);
    defineGlobal("console", makeConsole((level, text, error) => this.#log(level, text, error), now, () => this.start.limits.log_bytes / 4));
    this.#watchRaces();
    if (this.start.env !== null) {
      const env = Object.freeze(Object.assign(Object.create(null) as object, this.start.env));
      defineGlobal("process", Object.freeze({ env }));
    }
    this.#addNetwork();
    this.#addLoader();
  }

  #addLoader(): void {
    const loader = this.#loader = this.#host.load?.(this.start);
    if (loader) {
      defineGlobal("process", loader.process);
      defineGlobal("require", (specifier: unknown) => loader.require(`${specifier}`));
      // async, so that errors become rejections
      const namespace = async (specifier: unknown, unused?: unknown) => {
        try {
          return loader.namespace(`${specifier}`);
        } catch (error) {
          if (unused !== true) throw error;
        }
      };
      this.#load = Object.assign(namespace, { meta: load.meta });
    }
  }

  #addNetwork(): void {
    if (this.#hasNetwork || !this.#calls.grants("$fetch")) return;
    this.#hasNetwork = true;
    defineNetwork((name, input, boundary) => this.service(name, input, boundary));
    this.#load = loadNothing("; send requests by `fetch`");
  }

  #watchRaces(): void {
    const raced = () => {
      this.#raced = true;
    };
    const failed = (reason: unknown): never => {
      raced();
      throw reason;
    };
    const watched = {
      race(this: unknown, values: unknown) {
        raced();
        return apply(combinators.race!, this, [values]);
      },
      any(this: unknown, values: unknown) {
        raced();
        return apply(combinators.any!, this, [values]);
      },
      all(this: unknown, values: unknown) {
        const gathered = apply(combinators.all!, this, [values]) as unknown;
        return gathered instanceof Settling ? apply(then, gathered, [undefined, failed]) : gathered;
      },
    };
    for (const name of ["race", "any", "all"] as const) {
      defineProperty(Promise, name, { value: watched[name], writable: true, configurable: true, enumerable: false });
    }
  }

  /**
   * Calls a service of the host. Fails if the host has not granted it. `boundary` is the function that the program
   * called.
   */
  service(name: string, input: unknown, boundary: (...args: never[]) => unknown): Promise<unknown> {
    return this.#calls.service(name, input, boundary);
  }

  /** Calls a service of the host, and blocks until its reply. */
  serviceNow(name: string, input: unknown): unknown {
    return this.#calls.serviceNow(name, input, (sequence) => {
      this.#host.flush();
      this.#host.receive!(sequence);
      return !this.#stopped;
    });
  }

  enter(program: Program): void {
    if (this.start.cell !== undefined) enterCell(this.start.cell);
    const enter: Enter = async (value, destructures) =>
      typeof value === "function"
        ? (value as (tools: object) => unknown)(destructures ? this.#toolbox.plain : this.#toolbox.tools)
        : value;
    const ended = program(this.#load, enter);
    try {
      apply(then, ended, [(value: unknown) => this.#succeed(value), (error: unknown) => this.#fail(error)]);
    } catch (error) {
      this.breakDown(error);
    }
  }

  /** Handles the payload of a REPLY. */
  settle(payload: string, tagged: boolean): void {
    if (this.#stopped) return;
    const reply = decodeValue(payload, tagged) as unknown[];
    if (this.world !== undefined) {
      this.world.advance(reply[3] as number, reply[4] as number);
      if (reply[5] === 1) reply[2] = undefined;
    }
    this.#calls.settle(reply);
  }

  /** Handles the payload of a CHUNK. */
  deliver(payload: string, tagged: boolean): void {
    if (!this.#stopped) this.#calls.deliver(decodeValue(payload, tagged) as unknown[]);
  }

  /** True if the program and everything that it started have ended, so that EXIT can be written. */
  get over(): boolean {
    if (this.#stopped) return true;
    if (this.#calls.pending > 0) return false;
    return this.#outcome !== undefined || (this.#held !== undefined && !this.#held.closing && !this.#timersAwaited());
  }

  /** Call it once the run is over and no microtask is left. Returns false if the value still waits for something. */
  close(): boolean {
    const held = this.#held;
    if (this.#outcome === undefined && held !== undefined) {
      held.closing = this.#closing = true;
      if (held.stale) this.#write(held.value, held.settled, (encoded) => this.#concludeValue(encoded));
      else this.#concludeValue(held.encoded);
      this.#closing = false;
    }
    return this.over;
  }

  /** Called when the program uses something that completes through the event loop, at an unknown time. */
  leavePump(): void {
    if (this.world !== undefined) return;
    this.asynchronous = this.#staysAsynchronous = true;
  }

  /** Called when the program starts a timer, which completes through the event loop. */
  startTimer(timer: Pick<Timer, "_destroyed">, callback?: unknown): void {
    this.asynchronous = this.world === undefined;
    if (this.#timerCount === this.#timerRoom) {
      this.#forgetTimers();
      this.#timerRoom = 2 * this.#timerCount + 64;
    }
    this.#timers[this.#timerCount++] = { timer, awaited: typeof callback === "function" && this.start.rehearses !== true && doesSomething(callback) };
  }

  #forgetTimers(): void {
    let left = 0;
    for (let index = 0; index < this.#timerCount; index++) {
      if (!this.#timers[index]!.timer._destroyed) this.#timers[left++] = this.#timers[index]!;
    }
    this.#timerCount = left;
  }

  #timersAwaited(): boolean {
    for (let index = 0; index < this.#timerCount; index++) {
      const { timer, awaited } = this.#timers[index]!;
      if (awaited && !timer._destroyed) return true;
    }
    return false;
  }

  /**
   * Resumes the pump once no timer is left, because then only a reply can happen. Returns false if there is more to
   * wait for.
   */
  resumePump(): boolean {
    if (this.#staysAsynchronous) return false;
    while (this.#timerCount > 0 && this.#timers[this.#timerCount - 1]!.timer._destroyed) this.#timerCount--;
    if (this.#timerCount > 0) return false;
    this.asynchronous = false;
    return true;
  }

  /** Call it when no microtask is left. If the program still waits, but not for a call, it would wait forever. */
  checkForDeadlock(): void {
    if (this.asynchronous || this.#outcome !== undefined || this.#calls.pending > 0 || this.world?.waits) return;
    if (this.#held !== undefined) {
      if (this.#held.closing) this.#concludeValue(this.#held.encoded);
      return;
    }
    const message = "the program waits for a promise that nothing will settle: no tool call or timer is pending";
    this.#settleError("program_failed", "Deadlock", message, "");
  }

  /** Reports an unhandled rejection. */
  rejected(reason: unknown): void {
    this.#remark(`a promise was rejected and nothing awaited it: ${this.#describe(reason)}`);
  }

  /** Reports an error thrown in a timer, a microtask or a listener. */
  uncaught(error: unknown): void {
    if (this.#outcome === undefined && this.#held === undefined) this.#fail(error);
    else this.#remark(`an error was thrown and nothing caught it: ${this.#describe(error)}`);
  }

  /** Ends a program that does not compile, with the engine's message and position. */
  reject({ message, stack }: Refusal): void {
    this.#conclude("rejected", errorText("program_rejected", "SyntaxError", message, stack, null));
  }

  /** Called when the host has no more replies. The run is over as soon as the program has its outcome. */
  finish(): void {
    this.#calls.abandon();
  }

  /** Ends the run with this outcome, regardless of the program's own. */
  #stop(code: string, name: string, message: string): void {
    this.#stopped = true;
    this.#outcome = { kind: "error", text: errorText(code, name, message, "", null), tagged: false };
    this.#host.concluded();
  }

  /** Ends the run at once, even with pending calls, because replies can no longer be delivered. */
  breakDown(error: unknown): void {
    const message = `the program replaced a part of the language that its own runtime needs: ${this.#describe(error)}`;
    if (this.#outcome === undefined && this.#held === undefined) this.#stop("program_failed", "RuntimeBroken", message);
    else {
      if (this.#held !== undefined) this.#outcome ??= { kind: "value", ...this.#held.encoded };
      this.#remark(message);
      this.#stopped = true;
      this.#host.concluded();
    }
  }

  /** Sends EXIT. */
  exit(): void {
    if (this.#calls.replaced) this.#remark(replaced("a tool call's input"));
    const { kind, text, tagged } = this.#outcome!;
    const unawaited = encodeValue(this.#calls.unawaited(MAX_UNAWAITED), "calls", Infinity).text;
    const remarks = encodeValue(this.#remarks, "remarks", Infinity).text;
    this.#host.send(Kind.exit, tagged, `["${kind}",${text},${unawaited},${this.#droppedLogBytes},${remarks}${this.#state()}]`);
    this.#host.flush();
  }

  /** The last members of a frame in a durable execution. */
  #state(): string {
    return this.world === undefined ? "" : `,${this.world.state}`;
  }

  /**
   * Keeps a program's value until everything that it started has ended, and encodes it then, because a returned list
   * may still be filled. Not after a race, because the remaining work may then be the losers'.
   */
  #succeed(returned: unknown): void {
    const value = isTimer(returned) ? undefined : returned;
    const settled: Settled = new SettledMap();
    this.#write(value, settled, (encoded) => {
      if (this.#raced) return this.#concludeValue(encoded);
      // A program without a value is run for its effects, including those of async functions that it did not await.
      if (value !== undefined) this.#calls.leave();
      const goesOn = this.#calls.pending > 0 || this.#timersAwaited();
      this.#held = { value, settled, encoded, stale: goesOn || encoded.text.length <= MAX_REWRITTEN, closing: false };
      if (goesOn) this.#tell("value", encoded.text, encoded.tagged, true);
      this.#host.concluded();
    });
  }

  #write(value: unknown, settled: Settled, written: (encoded: Encoded) => void): void {
    this.#attempt(() =>
      encodeSettled(
        value,
        "result",
        this.start.limits.value_bytes,
        (promises, fulfilled) => this.#wait(promises, fulfilled),
        (encoded) => {
          if (encoded.replaced) this.#remark(replaced("the result"));
          const lost = lostInAllRows(value);
          for (let index = 0; index < lost.length; index++) {
            const { name, rows } = lost[index]!;
            this.#remark(`${clip(name, 60)} was undefined in all ${rows} rows of the result, and is left out`);
          }
          written(encoded);
        },
        settled,
      ),
    );
  }

  #attempt(write: () => void): void {
    try {
      write();
    } catch (error) {
      if (error instanceof ValueError && error.tooLarge) this.#settleError("output_exceeded", "OutputExceeded", error.message, "");
      else this.#fail(error);
    }
  }

  /** Works like `Promise.all`, which the program may have replaced: the first rejection ends the program. */
  #wait(promises: Promise<unknown>[], fulfilled: (values: unknown[]) => void): void {
    const values = create(null) as unknown[];
    let left = promises.length;
    for (let index = 0; index < promises.length; index++) {
      const take = (value: unknown) => {
        values[index] = value;
        if (--left === 0 && this.#outcome === undefined) this.#attempt(() => fulfilled(values));
      };
      observe(promises[index]!, take, (error) => this.#fail(error));
    }
  }

  #fail(thrown: unknown): void {
    try {
      const error = this.#hidden(thrown);
      const memory = isOutOfMemory(error);
      if (!(error instanceof Error) && memory) return this.#settleError("memory_exceeded", "MemoryExceeded", "the program ran out of memory", "");
      if (!(error instanceof Error)) {
        const text = typeof error === "string" ? error : inspect(error, MAX_DESCRIBED);
        this.#settleError("program_failed", "Uncaught", text, "");
        return;
      }
      const cause = error.cause === undefined ? null : this.#describe(error.cause);
      const code = error instanceof CorralError ? `${error.code}` : memory ? "memory_exceeded" : "program_failed";
      const within = error instanceof AggregateError && isArray(error.errors) ? error.errors : [];
      const stack = within[0] instanceof Error && !isOwn(`${error.stack}`) ? within[0].stack : error.stack;
      this.#settleError(code, `${error.name}`, `${error.message}${this.#listed(within)}`, `${stack}`, cause);
    } catch {
      this.#settleError("program_failed", "Error", "the program threw an object that cannot be read", "");
    }
  }

  /**
   * Returns the error that a handler printed before it failed itself, as in `console.error(error); process.exit(1)`,
   * because that is the real problem. There is no `process`, or it cannot exit.
   */
  #hidden(error: unknown): unknown {
    if (this.#printed === undefined || !(error instanceof Error) || !NO_EXIT.includes(error.message)) return error;
    if (typeof this.#printed !== "string") return this.#printed;
    const failure = new Error(this.#printed);
    failure.stack = `Error: ${this.#printed}${error.stack!.slice(error.stack!.indexOf("\n"))}`;
    return failure;
  }

  #settleError(code: string, name: string, message: string, stack: string, cause: string | null = null): void {
    this.#conclude("error", errorText(code, name, message, stack, cause));
  }

  /** Records the first outcome. Calls already sent are awaited for as long as the host permits; others are not made. */
  #conclude(kind: Outcome["kind"], text: string, tagged = false): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = { kind, text, tagged };
    this.#calls.close();
    if (this.#held === undefined && this.#calls.pending > 0) this.#tell(kind, text, tagged, false);
    if (!this.#closing) this.#host.concluded();
  }

  #concludeValue({ text, tagged }: Encoded): void {
    this.#conclude("value", text, tagged);
  }

  /**
   * Sends the host a preliminary outcome at once. EXIT, which may differ if the program still changes it, has to wait
   * for calls.
   */
  #tell(kind: Outcome["kind"], text: string, tagged: boolean, lasts: boolean): void {
    this.#host.send(Kind.outcome, tagged, `["${kind}",${text},${lasts}${this.#state()}]`);
    this.#host.flush();
  }

  #remark(text: string): void {
    const { length } = this.#remarks;
    const clipped = clip(text, 1000);
    for (let index = 0; index < length; index++) if (this.#remarks[index] === clipped) return;
    if (length < MAX_REMARKS) this.#remarks[length] = clipped;
  }

  #log(level: Level, text: string, error?: Error): void {
    if (level === "error") this.#printed = error ?? text;
    // An entry counts with its newline, so that empty ones are limited too.
    const wellFormed = clip(text, Infinity);
    const room = this.start.limits.log_bytes - this.#logBytes - 1;
    const size = byteLength(wellFormed);
    const kept = size > room ? clipBytes(wellFormed, room) : wellFormed;
    if (size > room) this.#droppedLogBytes += size - (room < 0 ? -1 : room);
    if (room < 0) return;
    this.#logBytes += (size > room ? room : size) + 1;
    this.world?.note(kept);
    this.#host.send(Kind.log, false, `[${stringify(level)},${stringify(kept)}]`);
    this.#host.flush();
  }

  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueTask(() => {
      this.#flushing = false;
      this.#host.flush();
    });
  }

  /** Lists the first errors of an aggregate, to follow its message. */
  #listed(errors: readonly unknown[]): string {
    let text = "";
    for (let index = 0; index < errors.length && index < MAX_ERRORS; index++) {
      text += `${index === 0 ? ": " : "; "}${clip(this.#describe(errors[index]), MAX_WITHIN)}`;
    }
    return errors.length > MAX_ERRORS ? `${text} …` : text;
  }

  #describe(error: unknown): string {
    try {
      if (error instanceof Error) return `${error.name}: ${error.message}`;
      return typeof error === "string" ? error : inspect(error, MAX_DESCRIBED);
    } catch {
      return "an object that cannot be read";
    }
  }
}


const loadNothing = (advice = ""): Load => Object.assign(
  async (specifier: unknown, unused?: unknown) => {
    if (unused === true) return;
    throw new TypeError(unavailable(`${specifier}`, `programs load no modules; they have the global \`tools\`, the language, and URL, crypto and the like${advice}`));
  },
  { meta: Object.freeze({ __proto__: null, main: true }) },
);

const load = loadNothing();

/** True if a timer's callback does work for the program. A promise's `resolve` is only the end of a pause. */
function doesSomething(callback: object): boolean {
  const source = apply(sourceOf, callback, []) as string;
  const has = (part: string): boolean => apply(includes, source, [part]) as boolean;
  if (has("[native code]") || has("await ") || (has("tools.") && !has("Error"))) return true;
  for (let index = 0; index < GUARDS.length; index++) if (has(GUARDS[index]!)) return false;
  return true;
}

/** True for a timer, which is not a value: a program that ends with `setTimeout(...)` waits for its callback. */
function isTimer(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const members = value as { _onTimeout?: unknown; _onImmediate?: unknown };
  return typeof members._onTimeout === "function" || typeof members._onImmediate === "function";
}

/** Returns the second part of an EXIT that is an error. */
function errorText(code: string, name: string, message: string, stack: string, cause: string | null): string {
  const quoted = (text: string) => stringify(clip(text, 8000));
  const last = cause === null ? "null" : quoted(cause);
  return `[${quoted(code)},${quoted(name)},${quoted(message)},${quoted(stack)},${last}]`;
}

function replaced(where: string): string {
  return `${where} contained lone surrogates, which no text encoding can represent; they were replaced by U+FFFD`;
}

function clipBytes(text: string, bytes: number): string {
  if (bytes <= 0) return "";
  const { read } = encodeInto(text, new Bytes(bytes)); // never splits a character
  return apply(slice, text, [0, read]) as string;
}
