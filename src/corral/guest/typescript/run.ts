// One execution of a program: its calls, its console, its outcome. How frames travel and when it is over for good is the
// business of who made it: of the process (main.ts) or of a context among others (contexts.ts).

import { type Level, makeConsole } from "./console.ts";
import { defineGlobal } from "./globals.ts";
import { Kind } from "./kinds.ts";
import { CallFailure, Calls, makeTools, type Toolbox } from "./tools.ts";
import { byteLength, clip, decodeValue, encodeValue, ValueError } from "./values.ts";

interface Limits {
  calls: number;
  calls_in_flight: number;
  value_bytes: number;
  tool_input_bytes: number;
  log_bytes: number;
}

export interface Start {
  /** Names the run among those of its process; absent where it is the only one. */
  run?: number;
  code: string;
  form: "script" | "module";
  tools: string[];
  env: Record<string, string> | null;
  limits: Limits;
}

/** What a run needs of the process around it. */
export interface Host {
  /** Appends a frame of this run to what leaves with the next `flush`. */
  send(kind: number, tagged: boolean, payload: string): void;
  flush(): void;
  /** The program has its outcome, and the run may be over. */
  concluded(): void;
  inspect(value: unknown, depth?: number): string;
  now(): number;
}

type Load = ((specifier: unknown) => Promise<unknown>) & { meta: object };
type Enter = (value: unknown, destructures: boolean) => Promise<unknown>;
export type Program = (load: Load, enter: Enter) => Promise<unknown>;

/** What EXIT begins with: the value, or `[code, name, message, stack, cause]`, as JSON text. */
interface Outcome {
  kind: "value" | "error";
  text: string;
  tagged: boolean;
}

/** The name by which stack traces show the program's frames. */
export const PROGRAM_NAME = "corral:program.ts";
/** What the name of a program begins with that the engine compiled as a module. */
export const MODULE_URL = "data:application/typescript;";
/** How much an EXIT lists, so that its size stays bounded. */
const MAX_UNAWAITED = 100;
const MAX_REMARKS = 20;
const BURST = 16;

const { stringify } = JSON;
const { apply } = Reflect;
const { then } = Promise.prototype;
const { includes, slice } = String.prototype;
const Bytes = Uint8Array;
const textEncoder = new TextEncoder();
const encodeInto = textEncoder.encodeInto.bind(textEncoder);
const queueTask = queueMicrotask;

/** Leaves in a stack only the program's own frames: the rest is ours, and names files of the host. */
export function programFramesOnly(error: Error, sites: object[]): string {
  let stack = `${error.name}: ${error.message}`;
  for (let index = 0; index < sites.length; index++) {
    const frame = `${sites[index]}`;
    if (isPlaceOfProgram(frame)) stack += `\n    at ${frame}`;
  }
  return stack;
}

const isPlaceOfProgram = (frame: string) =>
  apply(includes, frame, [PROGRAM_NAME]) || apply(includes, frame, [MODULE_URL]);

export class Run {
  readonly start: Start;
  /** The program has touched something that completes through the engine's event loop. */
  asynchronous = false;
  #host: Host;
  #calls: Calls;
  #toolbox: Toolbox;
  #logBytes = 0;
  #droppedLogBytes = 0;
  #unsent = 0;
  #flushing = false;
  #outcome: Outcome | undefined;
  #stopped = false;
  #remarks: string[] = [];

  constructor(start: Start, host: Host) {
    this.start = start;
    this.#host = host;
    const { calls, calls_in_flight, tool_input_bytes } = start.limits;
    const send = (payload: string, { tagged }: { tagged: boolean }) => {
      host.send(Kind.call, tagged, payload);
      // The first call starts at once, whatever the program does next; those that follow it in this turn leave together,
      // but not so many that the host has nothing to do meanwhile.
      if (this.#calls.inFlight === 1 || ++this.#unsent === BURST) {
        this.#unsent = 0;
        host.flush();
      } else if (this.asynchronous) this.#flushSoon();
    };
    this.#calls = new Calls(send, { calls, callsInFlight: calls_in_flight, inputBytes: tool_input_bytes });
    this.#toolbox = makeTools(start.tools, this.#calls);
  }

  /** Puts what belongs to this run into a global scope that holds nothing but the language and the platform. */
  defineGlobals(): void {
    const { inspect, now } = this.#host;
    (Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
    defineGlobal("tools", this.#toolbox.tools);
    defineGlobal("codemode", this.#toolbox.tools);
    defineGlobal("console", makeConsole(inspect, (level, text) => this.#log(level, text), now));
    if (this.start.env !== null) {
      const env = Object.freeze(Object.assign(Object.create(null) as object, this.start.env));
      defineGlobal("process", Object.freeze({ env }));
    }
  }

  enter(program: Program): void {
    const enter: Enter = async (value, destructures) =>
      typeof value === "function"
        ? (value as (tools: object) => unknown)(destructures ? this.#toolbox.plain : this.#toolbox.tools)
        : value;
    const ended = program(load, enter);
    try {
      apply(then, ended, [(value: unknown) => this.#succeed(value), (error: unknown) => this.#fail(error)]);
    } catch (error) {
      this.breakDown(error);
    }
  }

  /** Takes the payload of a REPLY. */
  settle(payload: string, tagged: boolean): void {
    if (!this.#stopped) this.#calls.settle(decodeValue(payload, tagged) as unknown[]);
  }

  /** The program has its outcome, and no call is pending. */
  get over(): boolean {
    return this.#stopped || (this.#outcome !== undefined && this.#calls.pending === 0);
  }

  /** To be called when no microtask is left: a program that waits then, and for no call, waits for ever. */
  checkForDeadlock(): void {
    if (this.asynchronous || this.#outcome !== undefined || this.#calls.pending > 0) return;
    const message = "the program waits for a promise that nothing will settle: no tool call or timer is pending";
    this.#settleError("program_failed", "Deadlock", message, "");
  }

  /** A promise was rejected, and nothing handles that. */
  rejected(reason: unknown): void {
    this.#remark(`a promise was rejected and nothing awaited it: ${this.#describe(reason)}`);
  }

  /** Something was thrown in a timer, a microtask or a listener. */
  uncaught(error: unknown): void {
    if (this.#outcome === undefined) this.#fail(error);
    else this.#remark(`an error was thrown and nothing caught it: ${this.#describe(error)}`);
  }

  /** The program does not compile. */
  reject(error: unknown): void {
    this.#conclude("error", errorText("program_rejected", "SyntaxError", this.#describe(error), "", null));
  }

  /** Ends the run from outside, with this outcome whatever the program had or does. */
  stop(code: string, name: string, message: string): void {
    this.#stopped = true;
    this.#outcome = { kind: "error", text: errorText(code, name, message, "", null), tagged: false };
    this.#host.concluded();
  }

  /** Ends the run at once, calls or no calls: replies can no longer be delivered. */
  breakDown(error: unknown): void {
    const message = `the program replaced a part of the language that its own runtime needs: ${this.#describe(error)}`;
    if (this.#outcome === undefined) this.stop("program_failed", "RuntimeBroken", message);
    else {
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
    this.#host.send(Kind.exit, tagged, `["${kind}",${text},${unawaited},${this.#droppedLogBytes},${remarks}]`);
    this.#host.flush();
  }

  #succeed(value: unknown): void {
    try {
      const encoded = encodeValue(value, "result", this.start.limits.value_bytes);
      if (encoded.replaced) this.#remark(replaced("the result"));
      this.#conclude("value", encoded.text, encoded.tagged);
    } catch (error) {
      if (error instanceof ValueError && error.tooLarge) this.#settleError("output_exceeded", "OutputExceeded", error.message, "");
      else this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    try {
      if (!(error instanceof Error)) {
        const text = typeof error === "string" ? error : this.#host.inspect(error);
        this.#settleError("program_failed", "Uncaught", text, "");
        return;
      }
      const cause = error.cause === undefined ? null : this.#describe(error.cause);
      const memory = error instanceof RangeError && error.message === "Array buffer allocation failed";
      const code = error instanceof CallFailure ? error.code : memory ? "memory_exceeded" : "program_failed";
      this.#settleError(code, `${error.name}`, `${error.message}`, `${error.stack}`, cause);
    } catch {
      this.#settleError("program_failed", "Error", "the program threw an object that cannot be read", "");
    }
  }

  #settleError(code: string, name: string, message: string, stack: string, cause: string | null = null): void {
    this.#conclude("error", errorText(code, name, message, stack, cause));
  }

  /** The first outcome stands. The host hears of it at once if EXIT has to wait for calls. */
  #conclude(kind: Outcome["kind"], text: string, tagged = false): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = { kind, text, tagged };
    if (this.#calls.pending > 0) {
      this.#host.send(Kind.outcome, tagged, `["${kind}",${text}]`);
      this.#host.flush();
    }
    this.#host.concluded();
  }

  #remark(text: string): void {
    if (this.#remarks.length < MAX_REMARKS) this.#remarks[this.#remarks.length] = clip(text, 1000);
  }

  #log(level: Level, text: string): void {
    // An entry counts with its newline, so that empty ones are bounded too.
    const wellFormed = clip(text, Infinity);
    const room = this.start.limits.log_bytes - this.#logBytes - 1;
    const size = byteLength(wellFormed);
    const kept = size > room ? clipBytes(wellFormed, room) : wellFormed;
    if (size > room) this.#droppedLogBytes += size - (room < 0 ? -1 : room);
    if (room < 0) return;
    this.#logBytes += (size > room ? room : size) + 1;
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

  #describe(error: unknown): string {
    try {
      if (error instanceof Error) return `${error.name}: ${error.message}`;
      return typeof error === "string" ? error : this.#host.inspect(error);
    } catch {
      return "an object that cannot be read";
    }
  }
}

const load: Load = Object.assign(
  (specifier: unknown) =>
    Promise.reject(
      new TypeError(`module ${stringify(`${specifier}`)} is not available: programs may import nothing here; use the global \`tools\``),
    ),
  { meta: Object.freeze({ __proto__: null, main: true }) },
);

/** The second part of an EXIT that is an error. */
function errorText(code: string, name: string, message: string, stack: string, cause: string | null): string {
  const quoted = (text: string) => stringify(clip(text, 8000));
  const last = cause === null ? "null" : quoted(cause);
  return `[${quoted(code)},${quoted(name)},${quoted(message)},${quoted(stack)},${last}]`;
}

function replaced(where: string): string {
  return `${where} held lone surrogates, which no text encoding can carry; they were replaced by U+FFFD`;
}

function clipBytes(text: string, bytes: number): string {
  if (bytes <= 0) return "";
  const { read } = encodeInto(text, new Bytes(bytes)); // which never takes half of a character
  return apply(slice, text, [0, read]) as string;
}
