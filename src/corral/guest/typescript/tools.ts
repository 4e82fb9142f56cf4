// The program's `tools`: each call becomes a CALL frame, and each REPLY settles one promise.

import { callFailure, type CorralError, framesOf, type Site, siteOf } from "./failures.ts";
import { asyncIteratorPrototype, clip, type Encoded, encodeValue, ValueError } from "./values.ts";

/** Maximum length of a tool's path as JSON, which has to fit in a CALL. */
const MAX_PATH = 200;
/** Service of durable executions that replies after a number of milliseconds. */
const TIMER = "$timer";

export interface CallLimits {
  calls: number;
  callsInFlight: number;
  inputBytes: number;
  /** True if inputs are written as JSON without extensions. */
  plain?: boolean;
  /** Granted services of the host: names that begin with `$`. Calling them does not count as a tool call. */
  services?: readonly string[];
  /** True for a caller that an earlier cell of the notebook has left behind. */
  isLeftBehind?: () => boolean;
}

/** `[sequence, tool, error, stack of the call, whether something other than the program awaited it]` */
type UnawaitedCall = [number, string, string | null, string, boolean];

/** Sends the payload of a CALL, in parts; `path` is the tool's path as JSON. */
type Send = (payload: string, input: Encoded, sequence: number, path: string) => void;
/** Sends a message about an open stream: the requested part was read, or the program stopped reading. */
type Tell = (message: "credit" | "cancel", sequence: number) => void;
type ToolFunction = (input?: unknown, ...rest: unknown[]) => Promise<unknown>;

const { stringify } = JSON;
const { apply } = Reflect;
const { create, defineProperty, freeze, getOwnPropertyNames, hasOwn, setPrototypeOf } = Object;
const Settling = Promise;
const { then } = Promise.prototype;

/** Promise that records whether the program has used it: `await` and all combinators call `then`. */
class CallPromise extends Promise<unknown> {
  #call: Call | undefined;

  constructor(executor: Executor, call?: Call) {
    super(executor);
    this.#call = call;
  }

  // Derived promises are plain ones, which are not tracked.
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  override then<A, B>(
    onFulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#call !== undefined) this.#call.observed = true;
    return apply(then, this, [onFulfilled, onRejected]);
  }

  // A forgotten `await` must not end as "[object Promise]", {} or "not iterable".
  [Symbol.toPrimitive](): never {
    throw this.#forgotten();
  }

  toJSON(): never {
    throw this.#forgotten();
  }

  [Symbol.iterator](): never {
    throw this.#forgotten();
  }

  // Like an await, iterates over the stream to which the promise resolves.
  [Symbol.asyncIterator](): AsyncIterator<unknown> {
    return new OpeningStream(this, () => this.#forgotten());
  }

  #forgotten(): TypeError {
    const tool = this.#call === undefined ? "the tool" : `tools.${this.#call.tool}`;
    return new TypeError(`${tool} returns a promise, which was used without await: write \`await ${tool}(...)\``);
  }

  /** Keeps an unawaited rejection from counting as unhandled, without counting as a use. */
  static quiet(promise: CallPromise): void {
    apply(then, promise, [undefined, () => {}]);
  }
}

const look = CallPromise.prototype.then;

/** Awaits a promise, even if the program has changed `then`. */
export function observe(promise: Promise<unknown>, fulfilled: (value: unknown) => void, rejected: (reason: unknown) => void): void {
  apply(promise instanceof CallPromise ? look : then, promise, [fulfilled, rejected]);
}

type Result = IteratorResult<unknown>;

interface Reader {
  resolve: (result: Result) => void;
  reject: (reason: unknown) => void;
}

interface Chunk {
  items: readonly unknown[];
  /** True if the host waits for a CREDIT. */
  credit: boolean;
}

/** Items that a tool yields. Kept in plain tables, like the calls. */
class ToolStream {
  #calls: Calls;
  #call: Call;
  #chunks: Record<number, Chunk> = create(null);
  #firstChunk = 0;
  #lastChunk = 0;
  #taken = 0;
  #readers: Record<number, Reader> = create(null);
  #firstReader = 0;
  #lastReader = 0;
  #ended = false;
  #failure: CorralError | undefined;

  constructor(calls: Calls, call: Call) {
    this.#calls = calls;
    this.#call = call;
    calls.unread += 1;
  }

  static is(value: unknown): value is ToolStream {
    return typeof value === "object" && value !== null && #chunks in value;
  }

  static deliver(stream: ToolStream, items: readonly unknown[], credit: boolean): void {
    if (stream.#ended || items.length === 0) return;
    stream.#chunks[stream.#lastChunk++] = { items, credit };
    while (stream.#firstReader < stream.#lastReader && stream.#firstChunk < stream.#lastChunk) {
      const reader = stream.#nextReader();
      reader.resolve(stream.#take());
    }
  }

  static end(stream: ToolStream, failure?: CorralError): void {
    if (!stream.#ended) stream.#failure = failure;
    stream.#ended = true;
    while (stream.#firstReader < stream.#lastReader) {
      const reader = stream.#nextReader();
      if (stream.#failure === undefined) reader.resolve({ value: undefined, done: true });
      else reader.reject(stream.#failed());
    }
    stream.#calls.unread -= 1;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result> {
    return new Settling((resolve, reject) => {
      if (this.#firstChunk < this.#lastChunk) resolve(this.#take());
      else if (this.#failure !== undefined) reject(this.#failed());
      else if (this.#ended) resolve({ value: undefined, done: true });
      else {
        if (this.#firstReader === this.#lastReader) this.#calls.unread -= 1;
        this.#readers[this.#lastReader++] = { resolve, reject };
      }
    });
  }

  /** Called by `break`: the host closes the tool's iterator. */
  return(value?: unknown): Promise<Result> {
    if (!this.#ended) {
      this.#ended = true;
      this.#calls.tell("cancel", this.#call.sequence);
      while (this.#firstReader < this.#lastReader) this.#nextReader().resolve({ value: undefined, done: true });
    }
    this.#chunks = create(null);
    this.#firstChunk = this.#lastChunk;
    this.#failure = undefined;
    return new Settling((resolve) => resolve({ value, done: true }));
  }

  toJSON(): never {
    throw this.#misused();
  }

  [Symbol.iterator](): never {
    throw this.#misused();
  }

  static {
    setPrototypeOf(ToolStream.prototype, asyncIteratorPrototype); // values.ts rejects these
    const misused = (stream: ToolStream) => stream.#misused();
    const names = getOwnPropertyNames(Array.prototype);
    names[names.length] = "0";
    for (let index = 0; index < names.length; index++) {
      if (names[index] === "constructor") continue;
      defineProperty(ToolStream.prototype, names[index]!, {
        get(this: ToolStream): never {
          throw misused(this);
        },
        configurable: true,
      });
    }
  }

  #take(): Result {
    const { items, credit } = this.#chunks[this.#firstChunk]!;
    const value = items[this.#taken++];
    if (this.#taken === items.length) {
      delete this.#chunks[this.#firstChunk++];
      this.#taken = 0;
      if (credit && !this.#ended) this.#calls.tell("credit", this.#call.sequence);
    }
    return { value, done: false };
  }

  #nextReader(): Reader {
    const reader = this.#readers[this.#firstReader]!;
    delete this.#readers[this.#firstReader++];
    if (this.#firstReader === this.#lastReader) this.#calls.unread += 1;
    return reader;
  }

  /** Returns the tool's error, which is thrown once. */
  #failed(): CorralError | undefined {
    const failure = this.#failure;
    this.#failure = undefined;
    return failure;
  }

  #misused(): TypeError {
    const tool = `tools.${this.#call.tool}(...)`;
    return new TypeError(
      `${tool} is a stream, not an array: read it with \`for await (const item of ${tool})\`, or collect it with \`await Array.fromAsync(${tool})\``,
    );
  }
}

/** Reads the stream of a call that has no reply yet. */
class OpeningStream {
  #promise: CallPromise;
  #forgotten: () => TypeError;
  #stream: ToolStream | undefined;

  constructor(promise: CallPromise, forgotten: () => TypeError) {
    this.#promise = promise;
    this.#forgotten = forgotten;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result> {
    return this.#stream?.next() ?? this.#opened((stream) => stream.next());
  }

  return(value?: unknown): Promise<Result> {
    return this.#stream?.return(value) ?? this.#opened((stream) => stream.return(value));
  }

  #opened(use: (stream: ToolStream) => Promise<Result>): Promise<Result> {
    const opened = (value: unknown) => {
      if (!ToolStream.is(value)) throw this.#forgotten();
      this.#stream = value;
      return use(value);
    };
    return apply(look, this.#promise, [opened]) as Promise<Result>;
  }
}

type Executor = (resolve: (value: unknown) => void, reject: (reason: unknown) => void) => void;

/** State of a call. It does not refer to the call's output, which lives as long as the program holds it. */
interface Call {
  /** Number among the calls that were sent; 0 before it is sent. */
  sequence: number;
  tool: string;
  site: Site;
  observed: boolean;
  /** True if it had no reply, or was not even made, when the program returned its value. */
  left: boolean;
  service: boolean;
  error: string | null;
  /** Set until the reply arrives. */
  pending: PendingCall | undefined;
  /** Set from the first CHUNK to the reply. */
  stream: ToolStream | undefined;
}

interface PendingCall {
  promise: CallPromise;
  resolve: (value: unknown) => void;
  reject: (reason: unknown) => void;
}

/**
 * All calls of one execution. Kept in plain tables, without methods of Array or Map, because calls have to work even if
 * the program replaces these.
 */
export class Calls {
  #send: Send;
  #limits: CallLimits;
  #made = 0;
  #sequence = 0;
  #calls: Record<number, Call> = create(null);
  /** Calls that were sent and have no reply yet. */
  inFlight = 0;
  /** Calls that were not sent yet. */
  #waiting: Record<number, { call: Call; path: string; input: Encoded }> = create(null);
  #firstWaiting = 0;
  #lastWaiting = 0;
  /** True if a lone surrogate in an input was replaced. */
  replaced = false;
  #left = false;
  #servicesPending = 0;
  #closed = false;
  #abandoned = false;
  /** Number of open streams whose next item the program is not waiting for. */
  unread = 0;
  readonly tell: Tell;
  #timers: Record<number, () => void> = create(null);
  /** Number of the host's timers that have not ended. */
  timersRunning = 0;

  constructor(send: Send, tell: Tell, limits: CallLimits) {
    this.#send = send;
    this.tell = tell;
    this.#limits = limits;
  }

  /** Begins the calls of a notebook's next cell, after `end`. */
  begin(limits: CallLimits): void {
    this.#limits = limits;
    this.#made = this.#sequence = this.#firstWaiting = this.#lastWaiting = 0;
    this.#calls = create(null);
    this.#waiting = create(null);
    this.#timers = create(null);
    this.inFlight = this.#servicesPending = this.unread = this.timersRunning = 0;
    this.replaced = this.#left = this.#closed = this.#abandoned = false;
  }

  /** Fails the calls that a cell has left behind, and ends their streams: no reply will come. */
  end(): void {
    this.abandon();
    this.#each((call) => {
      const { pending, stream } = call;
      if (pending === undefined) return;
      const failure = callFailure("cancelled", "ExecutionCancelled", `tools.${clip(call.tool, 50)}: the cell that called it has ended`, call.site);
      call.pending = undefined;
      if (stream !== undefined) return ToolStream.end(stream, failure);
      CallPromise.quiet(pending.promise);
      pending.reject(failure);
    });
  }

  /** True if the program has ended, or its cell has. */
  get #isOver(): boolean {
    return this.#closed || this.#limits.isLeftBehind?.() === true;
  }

  /**
   * Number of calls whose replies still matter: sent or waiting calls without a reply, except streams that are not
   * being read.
   */
  get pending(): number {
    const ofServices = this.#left ? this.#servicesPending : 0; // such as the next message of a WebSocket
    const waiting = this.#closed ? 0 : this.#lastWaiting - this.#firstWaiting;
    return this.#abandoned ? 0 : this.inFlight + waiting - this.unread - ofServices;
  }

  /** Called when the program has returned its value, and waits neither for pending calls nor for later ones. */
  leave(): void {
    this.#left = true;
    this.#each((call) => {
      if (call.pending !== undefined) call.left = call.stream === undefined && !call.service;
    });
  }

  /** Calls back for each call that is kept, in the order in which they were made. */
  #each(use: (call: Call) => void): void {
    for (let sequence = 1; sequence <= this.#sequence; sequence++) {
      const call = this.#calls[sequence];
      if (call !== undefined) use(call);
    }
    for (let index = this.#firstWaiting; index < this.#lastWaiting; index++) use(this.#waiting[index]!.call);
  }

  /** Number of calls and timers that were sent. */
  get sent(): number {
    return this.#sequence;
  }

  /** Asks the host for a timer of a durable execution, and returns its number. */
  startTimer(milliseconds: number, fire: () => void): number {
    if (this.#closed) return 0;
    const sequence = ++this.#sequence;
    this.#timers[sequence] = fire;
    this.timersRunning += 1;
    const text = `${milliseconds}`;
    this.#send(`[${sequence},"${TIMER}",${text}]`, { text, tagged: false, replaced: false }, sequence, `"${TIMER}"`);
    return sequence;
  }

  stopTimer(sequence: number): void {
    if (this.#takeTimer(sequence) !== undefined) this.tell("cancel", sequence);
  }

  #takeTimer(sequence: number): (() => void) | undefined {
    const fire = this.#timers[sequence];
    if (fire === undefined) return undefined;
    delete this.#timers[sequence];
    this.timersRunning -= 1;
    return fire;
  }

  /** Stops sending calls, because the program has ended. Only calls already sent are awaited. */
  close(): void {
    this.#closed = true;
  }

  /** Stops waiting for pending calls. */
  abandon(): void {
    this.close();
    this.#abandoned = true;
  }

  call(tool: string, args: readonly unknown[], boundary: ToolFunction): Promise<unknown> {
    const site = siteOf(boundary);
    if (this.#isOver) {
      return refused("cancelled", "ExecutionCancelled", `tools.${clip(tool, 50)} was not called: the program had ended`, site);
    }
    if (this.grants(tool)) return this.service(tool, args[0], boundary);
    this.#made += 1;
    const path = stringify(clip(tool, Infinity));
    if (path.length - 2 > MAX_PATH) {
      return refused("tool_not_found", "ToolNotFound", `no tool ${stringify(clip(tool, 50))}`, site);
    }
    if (this.#made > this.#limits.calls) {
      const { calls } = this.#limits;
      const message = `the budget of ${calls} tool call${calls === 1 ? "" : "s"} is used up, so tools.${tool} was not called`;
      return refused("call_budget_exceeded", "CallBudgetExceeded", message, site);
    }
    const first = tool === "search" ? "query" : tool === "describe" ? "name" : undefined;
    const options = args.length === 2 && first !== undefined ? args[1] : undefined;
    if (args.length > 1 && (options === null || typeof options !== "object")) {
      const message = `tools.${tool} takes one object with named members, not ${args.length} arguments`;
      return refused("invalid_arguments", "InvalidArguments", message, site);
    }
    let input: Encoded;
    try {
      const whole = first === undefined || options === undefined ? args[0] : { ...options, [first]: args[0] };
      input = encodeValue(whole === undefined ? {} : whole, "input", this.#limits.inputBytes, this.#limits.plain);
    } catch (error) {
      const message = `tools.${tool}: ${error instanceof Error ? error.message : "the input cannot be read"}`;
      return error instanceof ValueError && error.tooLarge
        ? refused("message_too_large", "MessageTooLarge", message, site)
        : refused("invalid_arguments", "InvalidArguments", message, site);
    }
    this.replaced ||= input.replaced;
    return this.#submit(tool, path, input, site);
  }

  /** True if the host has granted this service. */
  grants(name: string): boolean {
    const { services } = this.#limits;
    if (services === undefined) return false;
    for (let index = 0; index < services.length; index++) if (services[index] === name) return true;
    return false;
  }

  /** Calls a service of the host. This does not count as a tool call. */
  service(name: string, content: unknown, boundary: (...args: never[]) => unknown): Promise<unknown> {
    const site = siteOf(boundary);
    if (this.#isOver) return refused("cancelled", "ExecutionCancelled", `${name} was not called: the program had ended`, site);
    try {
      const input = encodeValue(content === undefined ? {} : content, "input", this.#limits.inputBytes, this.#limits.plain);
      return this.#submit(name, stringify(name), input, site, true);
    } catch (error) {
      const message = `${name}: ${error instanceof Error ? error.message : "the input cannot be read"}`;
      return refused("invalid_arguments", "InvalidArguments", message, site);
    }
  }

  /**
   * Calls a service of the host and blocks until its reply, where the engine can. `receive` blocks until frames were
   * handled; it returns false once no reply will come, and throws if that to `sequence` cannot be read. Throws the
   * errors of a call.
   */
  serviceNow(name: string, content: unknown, receive: (sequence: number) => boolean): unknown {
    const goesOn = (sequence = 0): boolean => !this.#abandoned && receive(sequence);
    const input = encodeValue(content, "input", this.#limits.inputBytes, this.#limits.plain);
    let settled: { value?: unknown; error?: unknown } | undefined;
    const pending: PendingCall = {
      promise: new CallPromise(() => {}),
      resolve: (value) => void (settled = { value }),
      reject: (error) => void (settled = { error }),
    };
    const call: Call = { sequence: 0, tool: name, site: { stack: "" }, observed: true, left: false, service: true, error: null, pending, stream: undefined };
    while (this.inFlight >= this.#limits.callsInFlight && !this.#isOver && goesOn());
    if (!this.#isOver) {
      this.#servicesPending += 1;
      this.#leave(call, stringify(name), input);
      try {
        while (settled === undefined && goesOn(call.sequence));
      } catch (error) {
        this.settle([call.sequence, true]);
        throw error;
      }
    }
    if (settled === undefined) throw callFailure("cancelled", "ExecutionCancelled", `${name}: the program had ended`, call.site);
    if ("error" in settled) throw settled.error;
    return settled.value;
  }

  /** Makes a call; `path` is the tool's path as JSON. */
  #submit(tool: string, path: string, input: Encoded, site: Site, service = false): Promise<unknown> {
    const call: Call = { sequence: 0, tool, site, observed: service, left: this.#left && !service, service, error: null, pending: undefined, stream: undefined };
    let settle!: Pick<PendingCall, "resolve" | "reject">;
    const promise = new CallPromise((resolve, reject) => (settle = { resolve, reject }), call);
    call.pending = { promise, resolve: settle.resolve, reject: settle.reject };
    if (service) this.#servicesPending += 1;
    if (this.inFlight < this.#limits.callsInFlight) this.#leave(call, path, input);
    else this.#waiting[this.#lastWaiting++] = { call, path, input };
    return promise;
  }

  /** Sends a call, which only now gets its number, because numbers must arrive in order. */
  #leave(call: Call, path: string, input: Encoded): void {
    const sequence = call.sequence = ++this.#sequence;
    this.#calls[sequence] = call;
    this.inFlight += 1;
    this.#send(`[${sequence},${path},${input.text}]`, input, sequence, path);
  }

  /** Handles a REPLY: `[sequence, true, value?]` or `[sequence, false, [code, name, message, retryAfterSeconds?]]`. */
  settle(reply: readonly unknown[]): void {
    const sequence = reply[0] as number;
    const call = this.#calls[sequence];
    const pending = call?.pending;
    if (call === undefined || pending === undefined) return this.#takeTimer(sequence)?.();
    const { stream } = call;
    call.pending = call.stream = undefined;
    if (call.observed && !call.left) delete this.#calls[sequence];
    this.inFlight -= 1;
    if (call.service) this.#servicesPending -= 1;
    this.#sendNext(); // before resolving, which may run code in Object.prototype that makes calls
    if (reply[1] === true) {
      if (stream === undefined) pending.resolve(reply[2]);
      else ToolStream.end(stream);
    } else {
      // Read by index: destructuring would ask Array.prototype for an iterator.
      const parts = reply[2] as [code: string, name: string, message: string, retryAfterSeconds?: number];
      const failure = callFailure(parts[0], parts[1], parts[2], call.site, parts[3]);
      call.error = `${parts[1]}: ${parts[2]}`;
      if (stream !== undefined) return ToolStream.end(stream, failure);
      CallPromise.quiet(pending.promise);
      pending.reject(failure);
    }
  }

  /** Handles a CHUNK: `[sequence, items, credit?]`. The first one resolves the call's promise to a stream. */
  deliver(chunk: readonly unknown[]): void {
    const call = this.#calls[chunk[0] as number];
    if (call?.pending === undefined) return;
    if (call.stream === undefined) {
      call.stream = new ToolStream(this, call);
      call.pending.resolve(call.stream);
    }
    ToolStream.deliver(call.stream, chunk[1] as unknown[], chunk[2] === true);
  }

  #sendNext(): void {
    if (this.#closed || this.#firstWaiting === this.#lastWaiting) return;
    const { call, path, input } = this.#waiting[this.#firstWaiting]!;
    delete this.#waiting[this.#firstWaiting++];
    this.#leave(call, path, input);
  }

  /** Returns up to `count` calls that the program did not wait for, in the order in which they were made. */
  unawaited(count: number): UnawaitedCall[] {
    const calls: UnawaitedCall[] = [];
    this.#each((call) => {
      if (calls.length === count || (call.observed && !call.left)) return;
      const { sequence, tool, error, site, observed } = call;
      calls[calls.length] = [sequence, tool, error === null ? null : clip(error, 500), clip(framesOf(site), 500), observed];
    });
    return calls;
  }
}

function refused(code: string, name: string, message: string, site: Site): Promise<unknown> {
  const promise = Promise.reject(callFailure(code, name, message, site));
  apply(then, promise, [undefined, () => {}]);
  return promise;
}

export interface Toolbox {
  /**
   * The global `tools`. An unknown name is a function whose call the host answers with ToolNotFound and similar names.
   */
  tools: object;
  /** The same as a plain object, for an entry function that destructures its parameter. */
  plain: object;
}

/** Builds `tools` from the paths (`name` or `namespace.name`) that the host announced. */
export function makeTools(paths: readonly string[], calls: Calls): Toolbox {
  const plain = create(null) as Record<string, unknown>;
  for (const path of paths) {
    const dot = path.indexOf(".");
    if (dot < 0) plain[path] = toolFunction(path, calls);
    else {
      const namespace = (plain[path.slice(0, dot)] ??= create(null)) as Record<string, unknown>;
      namespace[path.slice(dot + 1)] = toolFunction(path, calls);
    }
  }
  const members = create(null) as Record<string, unknown>;
  for (const name of Object.keys(plain)) {
    const member = plain[name];
    members[name] = typeof member === "object" && member !== null ? answering(member, `${name}.`, calls) : member;
  }
  const tools = answering(members, "", calls);
  plain.tools ??= tools;
  plain.codemode ??= tools;
  return { tools, plain };
}

function toolFunction(path: string, calls: Calls): ToolFunction {
  const tool: ToolFunction = (...args) => calls.call(path, args, tool);
  defineProperty(tool, "name", { value: path });
  return freeze(tool);
}

/** Returns a frozen view of `members` in which unknown names are callable, so that the host can suggest similar ones. */
function answering(members: object, prefix: string, calls: Calls): object {
  return new Proxy(freeze(members), {
    get(target, key) {
      if (typeof key === "symbol" || hasOwn(target, key)) return (target as Record<PropertyKey, unknown>)[key];
      if (key === "then" || key === "toJSON") return undefined;
      const unknown = toolFunction(prefix + key, calls);
      return prefix === "" ? new Proxy(unknown, { get: unknownMember(key, calls) }) : unknown;
    },
  });
}

/** Handles `tools.nope.method`, so that the host answers for a wrong namespace too. */
function unknownMember(namespace: string, calls: Calls) {
  return (target: ToolFunction, key: PropertyKey): unknown => {
    if (typeof key === "symbol" || key === "then" || key === "toJSON" || key in target) {
      return Reflect.get(target, key);
    }
    return toolFunction(`${namespace}.${key}`, calls);
  };
}
