// The guest: one process, one program. It reads START, runs the program, sends EXIT.
//
// Two ways to wait for replies. While the program has touched nothing but the language and its tools, the only event
// that can ever happen is a reply, so a blocking read is the event loop: half the latency of an asynchronous one, and a
// program that waits for nothing is known to be stuck. The first touch of a timer, of crypto or of a stream switches to
// asynchronous reads for the rest of the run.

import { makeConsole } from "./console.ts";
import { FrameReader, FrameWriter, Kind, PROTOCOL } from "./frames.ts";
import { restrictGlobals } from "./globals.ts";
import { CallFailure, Calls, makeTools, type Toolbox } from "./tools.ts";
import { byteLength, clip, decodeValue, encodeValue, ValueError } from "./values.ts";

interface Core {
  evalContext(code: string, name: string): [unknown, { thrown: unknown } | null];
  runMicrotasks(): void;
  read(file: number, into: Uint8Array): Promise<number>;
  readSync(file: number, into: Uint8Array): number;
  writeSync(file: number, bytes: Uint8Array): number;
  queueImmediate(immediate: object): void;
  immediateRefCount(increase: boolean): void;
}

interface Limits {
  calls: number;
  calls_in_flight: number;
  value_bytes: number;
  tool_input_bytes: number;
  log_bytes: number;
}

interface Start {
  code: string;
  form: "script" | "module";
  tools: string[];
  env: Record<string, string> | null;
  limits: Limits;
  allow_wasm: boolean;
}

type Load = ((specifier: unknown) => Promise<unknown>) & { meta: object };
type Enter = (value: unknown, destructures: boolean) => Promise<unknown>;
type Program = (load: Load, enter: Enter) => Promise<unknown>;

/** What EXIT begins with: the value, or `[code, name, message, stack, cause]`, as JSON text. */
interface Outcome {
  kind: "value" | "error";
  text: string;
  tagged: boolean;
}

/** The name by which stack traces show the program's frames. */
const PROGRAM_NAME = "corral:program.ts";
/** How much an EXIT lists, so that its size stays bounded. */
const MAX_UNAWAITED = 100;
const MAX_REMARKS = 20;
const MODULE_URL = "data:application/typescript;";

const core = (Deno as unknown as Record<symbol, { core: Core }>)[(Deno as unknown as { internal: symbol }).internal]!.core;
const { evalContext, runMicrotasks } = core;
// The engine's operations themselves: what Deno.stdin and Deno.stdout wrap around them asks the buffer for its length,
// which a program can listen to.
const readBlocking = (into: Uint8Array) => core.readSync(0, into);
const readAsynchronously = (into: Uint8Array) => core.read(0, into);
const write = (bytes: Uint8Array) => core.writeSync(1, bytes);
const inspectValue = Deno.inspect;
const now = performance.now.bind(performance);
const exit = Deno.exit;
const { stringify } = JSON;
const { apply } = Reflect;
const { then } = Promise.prototype;
const { preventDefault } = Event.prototype;
const { includes, slice } = String.prototype;
const Bytes = Uint8Array;
const textEncoder = new TextEncoder();
const encodeText = textEncoder.encode.bind(textEncoder);
const encodeInto = textEncoder.encodeInto.bind(textEncoder);
const toBase64 = Uint8Array.prototype.toBase64;

const reader = new FrameReader();
const writer = new FrameWriter();

function flush(): void {
  writer.drain(write);
}

function inspect(value: unknown, depth = 2): string {
  return inspectValue(value, { depth, quotes: ["'", '"', "`"], colors: false } as Deno.InspectOptions);
}

/**
 * Calls back after this turn of the event loop, as setImmediate does. A timer would cost two milliseconds, and the global
 * setImmediate five at start-up, because it loads all of the engine's Node.js.
 */
function nextTurn(callback: () => void): void {
  const _onImmediate = () => {
    core.immediateRefCount(false);
    callback();
  };
  core.queueImmediate({ _onImmediate, _argv: null, _destroyed: false, _idleNext: null, _idlePrev: null });
  core.immediateRefCount(true); // keeps the event loop going until then
}

const queueTask = queueMicrotask;

/** Leaves in a stack only the program's own frames: the rest is ours, and names files of the host. */
function programFramesOnly(error: Error, sites: object[]): string {
  let stack = `${error.name}: ${error.message}`;
  for (let index = 0; index < sites.length; index++) {
    const frame = `${sites[index]}`;
    if (isPlaceOfProgram(frame)) stack += `\n    at ${frame}`;
  }
  return stack;
}

const isPlaceOfProgram = (frame: string) =>
  apply(includes, frame, [PROGRAM_NAME]) || apply(includes, frame, [MODULE_URL]);

function readStart(): Start {
  for (;;) {
    const frame = reader.next();
    if (frame !== undefined) {
      writer.nonce.set(reader.nonce);
      return (decodeValue(frame.payload, false) as [Start])[0];
    }
    const count = readBlocking(reader.room());
    if (count === 0) exit(0);
    reader.filled(count);
  }
}

class Execution {
  #start: Start;
  #calls: Calls;
  #toolbox: Toolbox;
  #logBytes = 0;
  #droppedLogBytes = 0;
  #asynchronous = false;
  #flushing = false;
  #reading = false;
  #outcome: Outcome | undefined;
  #remarks: string[] = [];

  constructor(start: Start) {
    this.#start = start;
    const { calls, calls_in_flight, tool_input_bytes } = start.limits;
    const send = (payload: string, { tagged }: { tagged: boolean }) => {
      writer.append(Kind.call, tagged, payload);
      // The first call starts at once, whatever the program does next; those that follow it in this turn leave together.
      if (this.#calls.inFlight === 1) flush();
      else if (this.#asynchronous) this.#flushSoon();
    };
    this.#calls = new Calls(send, { calls, callsInFlight: calls_in_flight, inputBytes: tool_input_bytes });
    this.#toolbox = makeTools(start.tools, this.#calls);
  }

  run(): void {
    (Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
    globalThis.addEventListener("unhandledrejection", (event) => {
      apply(preventDefault, event, []);
      this.#remark(`a promise was rejected and nothing awaited it: ${describe(event.reason)}`);
    });
    // Thrown in a timer, a microtask or a listener.
    globalThis.addEventListener("error", (event) => {
      apply(preventDefault, event, []);
      if (this.#outcome === undefined) this.#fail(event.error);
      else this.#remark(`an error was thrown and nothing caught it: ${describe(event.error)}`);
    });
    restrictGlobals({
      env: this.#start.env,
      allowWasm: this.#start.allow_wasm,
      onAsynchronous: () => (this.#asynchronous = true),
      defined: {
        tools: this.#toolbox.tools,
        codemode: this.#toolbox.tools,
        console: makeConsole(inspect, (level, text) => this.#log(level, text), now),
      },
    });
    if (this.#start.form === "module") this.#runModule();
    else this.#runScript();
  }

  #runScript(): void {
    const [program, failure] = evalContext(this.#start.code, PROGRAM_NAME);
    if (failure !== null) {
      // The engine's message has no position; its module compiler's has one.
      this.#asynchronous = true;
      this.#compile().then(
        () => this.#reject(describe(failure.thrown)),
        (error) => this.#reject(describe(error)),
      );
    } else this.#enter(program as Program);
    this.#pump();
  }

  #runModule(): void {
    this.#asynchronous = true;
    this.#compile().then(
      (program) => this.#enter(program),
      (error) => this.#reject(describe(error)),
    );
    this.#pump();
  }

  /** Has the engine compile the program as a TypeScript module. */
  async #compile(): Promise<Program> {
    const source = this.#start.form === "module" ? this.#start.code : `export default ${this.#start.code}`;
    const base64 = apply(toBase64, encodeText(source), []) as string;
    const module = (await import(`${MODULE_URL}charset=utf-8;base64,${base64}`)) as { default: Program };
    return module.default;
  }

  #enter(program: Program): void {
    const enter: Enter = async (value, destructures) =>
      typeof value === "function"
        ? (value as (tools: object) => unknown)(destructures ? this.#toolbox.plain : this.#toolbox.tools)
        : value;
    const ended = program(load, enter);
    try {
      apply(then, ended, [(value: unknown) => this.#succeed(value), (error: unknown) => this.#fail(error)]);
    } catch (error) {
      this.#breakDown(error);
    }
  }

  #succeed(value: unknown): void {
    try {
      const encoded = encodeValue(value, "result", this.#start.limits.value_bytes);
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
        this.#settleError("program_failed", "Uncaught", typeof error === "string" ? error : inspect(error), "");
        return;
      }
      const cause = error.cause === undefined ? null : describe(error.cause);
      const memory = error instanceof RangeError && error.message === "Array buffer allocation failed";
      const code = error instanceof CallFailure ? error.code : memory ? "memory_exceeded" : "program_failed";
      this.#settleError(code, `${error.name}`, `${error.message}`, `${error.stack}`, cause);
    } catch {
      this.#settleError("program_failed", "Error", "the program threw an object that cannot be read", "");
    }
  }

  #reject(message: string): void {
    this.#conclude("error", errorText("program_rejected", "SyntaxError", message, "", null));
  }

  #settleError(code: string, name: string, message: string, stack: string, cause: string | null = null): void {
    this.#conclude("error", errorText(code, name, message, stack, cause));
  }

  /** The first outcome stands. The host hears of it at once if EXIT has to wait for calls. */
  #conclude(kind: Outcome["kind"], text: string, tagged = false): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = { kind, text, tagged };
    if (this.#calls.pending > 0) {
      writer.append(Kind.outcome, tagged, `["${kind}",${text}]`);
      flush();
    }
    if (this.#asynchronous) this.#finishWhenOver();
  }

  #remark(text: string): void {
    if (this.#remarks.length < MAX_REMARKS) this.#remarks[this.#remarks.length] = clip(text, 1000);
  }

  #log(level: string, text: string): void {
    // An entry counts with its newline, so that empty ones are bounded too.
    const wellFormed = clip(text, Infinity);
    const room = this.#start.limits.log_bytes - this.#logBytes - 1;
    const size = byteLength(wellFormed);
    const kept = size > room ? clipBytes(wellFormed, room) : wellFormed;
    if (size > room) this.#droppedLogBytes += size - (room < 0 ? -1 : room);
    if (room < 0) return;
    this.#logBytes += (size > room ? room : size) + 1;
    writer.append(Kind.log, false, `[${stringify(level)},${stringify(kept)}]`);
    flush();
  }

  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueTask(() => {
      this.#flushing = false;
      flush();
    });
  }

  get #over(): boolean {
    return this.#outcome !== undefined && this.#calls.pending === 0;
  }

  /** Waits for replies until the program has its outcome and no call is pending. */
  #pump(): void {
    try {
      while (!this.#asynchronous) {
        runMicrotasks();
        if (this.#asynchronous) break;
        if (this.#outcome === undefined && this.#calls.pending === 0) {
          const message = "the program waits for a promise that nothing will settle: no tool call or timer is pending";
          this.#settleError("program_failed", "Deadlock", message, "");
        }
        if (this.#over) break;
        flush();
        this.#receive(readBlocking(reader.room()));
      }
    } catch (error) {
      this.#breakDown(error);
    }
    this.#asynchronous = true;
    flush();
    if (this.#over) this.#finishWhenOver();
    else void this.#receiveAsynchronously();
  }

  async #receiveAsynchronously(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    try {
      for (;;) {
        this.#receive(await readAsynchronously(reader.room()));
        if (this.#over) this.#finishWhenOver();
      }
    } catch (error) {
      this.#breakDown(error);
    }
  }

  #receive(count: number): void {
    if (count === 0) exit(0);
    reader.filled(count);
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
      if (frame.kind === Kind.reply) this.#calls.settle(decodeValue(frame.payload, frame.tagged) as unknown[]);
    }
  }

  /**
   * Sends EXIT unless the program makes another call until the next turn of the event loop. In that turn the engine
   * also reports the rejections that nobody handled.
   */
  #finishWhenOver(): void {
    nextTurn(() => {
      if (this.#over) this.#exit();
      else void this.#receiveAsynchronously();
    });
  }

  /** Ends at once, calls or no calls: replies can no longer be delivered. */
  #breakDown(error: unknown): void {
    const message = `the program replaced a part of the language that its own runtime needs: ${describe(error)}`;
    const text = errorText("program_failed", "RuntimeBroken", message, "", null);
    if (this.#outcome === undefined) this.#outcome = { kind: "error", text, tagged: false };
    else this.#remark(message);
    this.#exit();
  }

  #exit(): void {
    try {
      if (this.#calls.replaced) this.#remark(replaced("a tool call's input"));
      const { kind, text, tagged } = this.#outcome!;
      const unawaited = encodeValue(this.#calls.unawaited(MAX_UNAWAITED), "calls", Infinity).text;
      const remarks = encodeValue(this.#remarks, "remarks", Infinity).text;
      writer.append(Kind.exit, tagged, `["${kind}",${text},${unawaited},${this.#droppedLogBytes},${remarks}]`);
      flush();
    } finally {
      exit(0); // even if the program broke what the lines above need
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

function describe(error: unknown): string {
  try {
    if (error instanceof Error) return `${error.name}: ${error.message}`;
    return typeof error === "string" ? error : inspect(error);
  } catch {
    return "an object that cannot be read";
  }
}

function replaced(where: string): string {
  return `${where} held lone surrogates, which no text encoding can carry; they were replaced by U+FFFD`;
}

function clipBytes(text: string, bytes: number): string {
  if (bytes <= 0) return "";
  const { read } = encodeInto(text, new Bytes(bytes)); // which never takes half of a character
  return apply(slice, text, [0, read]) as string;
}

writer.append(Kind.ready, false, `[${PROTOCOL}]`);
flush();
new Execution(readStart()).run();
