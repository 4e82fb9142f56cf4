// A program of a durable execution runs the same way whenever it gets the same replies: random numbers come from a
// seed, both clocks advance only with replies, timers are calls to the host, and results that arrive through the
// engine's event loop are delivered only when nothing else can run.

import { defineGlobal, unwatched } from "./globals.ts";
import { makeTimers } from "./platform/timers.ts";

export interface Seed {
  /** Seed: 64 hexadecimal digits. */
  seed: string;
  /** Wall clock, in milliseconds since the epoch. */
  now: number;
}

type Callback = () => void;
type Function = (...args: unknown[]) => unknown;
type Members = Record<string, unknown>;

/** Timers of the host, by the number of their call. */
interface Timers {
  readonly sent: number;
  readonly timersRunning: number;
  startTimer(milliseconds: number, fire: Callback): number;
  stopTimer(sequence: number): void;
}

/** Part of the run that timers need. */
interface Running {
  startTimer(timer: { _destroyed: boolean }, callback?: unknown): void;
  uncaught(error: unknown): void;
}

interface Timer {
  callback: Callback;
  milliseconds: number;
  repeats: boolean;
  /** Number of its call; 0 until it is sent. */
  sequence: number;
}

const { apply, construct } = Reflect;
const { create, defineProperty, getOwnPropertyDescriptor } = Object;
const { trunc, imul } = Math;
const { MAX_SAFE_INTEGER } = Number;
/** Digest of no output. */
const EMPTY = 0x811c9dc5;
/** Maximum number of timers at the same time. */
const MAX_TIMERS = 10_000;
const { charCodeAt, slice } = String.prototype;
const { then } = Promise.prototype;
const Bytes = Uint8Array;
const Words = Uint32Array;
const EngineDate = Date;
const Settling = Promise;

/** Queue whose methods the program cannot replace. */
class Queue {
  #entries: Record<number, Callback | undefined> = create(null);
  #first = 0;
  #last = 0;

  add(callback: Callback): number {
    this.#entries[++this.#last] = callback;
    return this.#last;
  }

  remove(entry: number): void {
    delete this.#entries[entry];
  }

  /** Runs the first entry. Returns false if there is none. */
  run(): boolean {
    while (this.#first < this.#last) {
      const callback = this.#entries[++this.#first];
      delete this.#entries[this.#first];
      if (callback === undefined) continue;
      callback();
      return true;
    }
    return false;
  }
}

export class World {
  /** Wall clock, in milliseconds since the epoch. */
  wall: number;
  /** Milliseconds during which the execution was active. */
  active = 0;
  #origin: number;
  /** Active time at the start of the program. */
  #activeBefore = 0;
  #calls: Timers;
  #run: Running;
  #chance: Chance;
  #started = 0;
  #console = EMPTY;
  #lastTimer = 0;
  #timers: Record<number, Timer | undefined> = create(null);
  #timerCount = 0;
  /** Timers that have not been sent yet. */
  #unsent = new Queue();
  #immediates = new Queue();
  /** Results of the engine that have not been delivered. */
  #results = new Queue();
  /** Number of unfinished operations of the engine. */
  #operations = 0;
  #lastOperation: Promise<unknown> = Settling.resolve();
  #onIdle: Callback | undefined;

  constructor({ seed, now }: Seed, calls: Timers, run: Running) {
    this.wall = this.#origin = now;
    this.#calls = calls;
    this.#run = run;
    this.#chance = new Chance(seed);
  }

  /** Begins a notebook's next cell: clocks continue, and nothing that an earlier one has scheduled is left. */
  begin({ seed, now }: Seed): void {
    if (now > this.wall) this.wall = now;
    this.#activeBefore = this.active;
    this.#chance = new Chance(seed);
    this.#started = 0;
    this.#console = EMPTY;
    this.#timers = create(null);
    this.#timerCount = 0;
    this.#unsent = new Queue();
    this.#immediates = new Queue();
  }

  /** Sets the clocks to those in a reply. */
  advance(wall: number, active: number): void {
    if (wall > this.wall) this.wall = wall;
    const now = this.#activeBefore + active;
    if (now > this.active) this.active = now;
  }

  /** Adds console output to the digest. */
  note(text: string): void {
    for (let index = 0; index < text.length; index++) this.#console = imul(this.#console ^ (apply(charCodeAt, text, [index]) as number), 0x01000193);
  }

  /** Number of calls and timers, and the digest of the random numbers and output, as members of a frame. */
  get state(): string {
    return `${this.#calls.sent},"${this.#chance.drawn}/${this.#started}/${(this.#console >>> 0).toString(16)}"`;
  }

  /** Returns the answer to a PING. */
  pong(ping: string): string {
    return `${apply(slice, ping, [0, -1])},${this.state}]`;
  }

  /** True while a timer runs. */
  get waits(): boolean {
    return this.#calls.timersRunning > 0;
  }

  /** True while the engine is working. It then calls back in a turn of its event loop. */
  isBusy(onIdle: Callback): boolean {
    if (this.#operations > 0) this.#onIdle = onIdle;
    return this.#operations > 0;
  }

  /** Runs one callback that was deferred to the next turn. Returns false if there is none. */
  runImmediate(): boolean {
    return this.#immediates.run();
  }

  /** Delivers one result of the engine. Returns false if there is none. */
  deliver(): boolean {
    return this.#results.run();
  }

  later(callback: Callback): number {
    return -this.#immediates.add(callback);
  }

  /** Sets a timer, which is sent only when nothing else is left to run, because many timers are cleared before that. */
  set(callback: Callback, milliseconds: number, repeats: boolean): number {
    if (this.#timerCount === MAX_TIMERS) throw new RangeError(`more than ${MAX_TIMERS} timers run at the same time`);
    this.#timerCount += 1;
    const number = ++this.#lastTimer;
    this.#timers[number] = { callback, milliseconds: trunc(milliseconds), repeats, sequence: 0 };
    this.#unsent.add(() => this.#start(number));
    return number;
  }

  /** Sends the timers that were set. */
  startTimers(): void {
    while (this.#unsent.run());
  }

  #start(number: number): void {
    const timer = this.#timers[number];
    if (timer === undefined) return;
    this.#started += 1;
    timer.sequence = this.#calls.startTimer(timer.milliseconds, () => {
      timer.sequence = 0;
      if (timer.repeats) this.#unsent.add(() => this.#start(number));
      else this.#forget(number);
      timer.callback();
    });
  }

  clear(number: number): void {
    if (number < 0) return this.#immediates.remove(-number);
    const timer = this.#timers[number];
    if (timer === undefined) return;
    this.#forget(number);
    this.#calls.stopTimer(timer.sequence);
  }

  #forget(number: number): void {
    delete this.#timers[number];
    this.#timerCount -= 1;
  }

  fill(view: ArrayBufferView): void {
    this.#chance.fill(new Bytes(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength));
  }

  /** Replaces the parts of the platform that would differ between two runs. */
  install(): void {
    const now = () => this.wall;
    const timers = makeTimers({
      setTimer: (callback, milliseconds, repeats) => this.set(callback, milliseconds, repeats),
      setImmediate: (callback) => this.later(callback),
      clearTimer: (timer) => this.clear(timer),
      started: (timer, callback) => this.#run.startTimer(timer, callback),
      uncaught: (error) => this.#run.uncaught(error),
    });
    for (const name in timers) defineGlobal(name, timers[name]);
    replace(Math, { random: () => this.#chance.double() });
    installDate(now);
    installFormats(now);
    installTemporal(now);
    defineGlobal("performance", makePerformance(() => this.active, this.#origin));
    defineGlobal("FinalizationRegistry", InertRegistry);
    defineGlobal("WeakRef", StrongRef);
    this.#installCrypto();
    this.#installSignals();
    installFiles(now);
    installForms(() => {
      const bytes = new Bytes(12);
      this.fill(bytes);
      return hex(bytes);
    });
    installAssembly();
    for (const name of ["MessageChannel", "FileReader"]) {
      if (!exists(name)) continue;
      defineGlobal(name, function () {
        throw refusal(`${name} completes at a time of its own`);
      });
    }
    if ("createObjectURL" in URL) replace(URL, {
      createObjectURL() {
        throw refusal("URL.createObjectURL gives another name each time");
      },
    });
  }

  #installCrypto(): void {
    const { subtle } = unwatched("crypto") as Crypto;
    const { prototype } = unwatched("Crypto") as typeof Crypto;
    const { getRandomValues } = prototype;
    const world = this;
    replace(prototype, {
      getRandomValues(this: Crypto, array: ArrayBufferView<ArrayBuffer>) {
        apply(getRandomValues, this, [array]); // rejects invalid arguments
        world.fill(array);
        return array;
      },
      randomUUID: () => this.uuid(),
    });
    const methods = Object.getPrototypeOf(subtle) as Record<string, Function>;
    const wrapped: Members = {};
    for (const name of SUBTLE) wrapped[name] = this.#inTurn(name, methods[name]!);
    replace(methods, wrapped);
  }

  uuid(): string {
    const bytes = new Bytes(16);
    this.fill(bytes);
    bytes[6] = (bytes[6]! & 0x0f) | 0x40;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    return hex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }

  /**
   * Wraps an operation of the engine. Operations run one after the other, because the order in which they end would be
   * a matter of chance.
   */
  #inTurn(name: string, method: Function): Function {
    const world = this;
    return function (this: unknown, ...args: unknown[]): Promise<unknown> {
      const reason = randomized(name, args);
      if (reason !== undefined) return Settling.reject(refusal(reason));
      world.#operations += 1;
      const begin = () => apply(method, this, args);
      const ended = world.#lastOperation = apply(then, world.#lastOperation, [begin, begin]) as Promise<unknown>;
      return new Settling((resolve, reject) => {
        const over = (settle: Callback) => {
          world.#results.add(settle);
          const onIdle = world.#onIdle;
          if (--world.#operations > 0 || onIdle === undefined) return;
          world.#onIdle = undefined;
          onIdle();
        };
        apply(then, ended, [(value: unknown) => over(() => resolve(value)), (error: unknown) => over(() => reject(error))]);
      });
    };
  }

  #installSignals(): void {
    const Signal = unwatched("AbortSignal") as typeof AbortSignal;
    const Controller = unwatched("AbortController") as typeof AbortController;
    const { timeout } = Signal;
    replace(Signal, {
      timeout: (milliseconds: number) => {
        if (!(milliseconds >= 0 && milliseconds <= MAX_SAFE_INTEGER)) return apply(timeout, Signal, [milliseconds]) as AbortSignal; // which rejects it
        const controller = new Controller();
        this.set(() => controller.abort(new DOMException("Signal timed out.", "TimeoutError")), milliseconds, false);
        return controller.signal;
      },
    });
  }

  /** Returns a built-in module of the engine in the form that durable programs get. */
  builtIn(name: string, found: unknown): unknown {
    switch (name) {
      case "crypto":
        return { ...(found as object), ...this.#nodeCrypto(found as Record<string, Function>) };
      case "perf_hooks":
        return { ...(found as object), performance };
      case "timers":
        return { ...(found as object), ...this.#nodeTimers(), promises: this.#timersPromises() };
      case "timers/promises":
        return this.#timersPromises();
      default:
        return found;
    }
  }

  #nodeTimers(): Members {
    const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = globalThis as unknown as Members;
    return { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
  }

  #timersPromises(): Members {
    const wait = (start: (fire: Callback) => number, value: unknown, signal?: AbortSignal) =>
      new Settling((resolve, reject) => {
        let timer = 0;
        const abort = () => {
          this.clear(timer);
          reject(Object.assign(new Error("The operation was aborted", { cause: signal!.reason }), { name: "AbortError", code: "ABORT_ERR" }));
        };
        if (signal?.aborted) return abort();
        timer = start(() => {
          signal?.removeEventListener("abort", abort);
          resolve(value);
        });
        signal?.addEventListener("abort", abort, { once: true });
      });
    const within = (milliseconds: unknown) => (Number(milliseconds) >= 1 && Number(milliseconds) < 2 ** 31 ? Number(milliseconds) : 1);
    interface Options { signal?: AbortSignal }
    const setTimeout = (milliseconds?: unknown, value?: unknown, { signal }: Options = {}) =>
      wait((fire) => this.set(fire, within(milliseconds), false), value, signal);
    const setImmediate = (value?: unknown, { signal }: Options = {}) => wait((fire) => this.later(fire), value, signal);
    return {
      setTimeout,
      setImmediate,
      setInterval: async function* (milliseconds?: unknown, value?: unknown, options?: Options) {
        for (;;) yield await setTimeout(milliseconds, value, options);
      },
      scheduler: { wait: (milliseconds: unknown, options?: Options) => setTimeout(milliseconds, undefined, options), yield: () => setImmediate() },
    };
  }

  #nodeCrypto(real: Record<string, Function>): Members {
    const { Buffer } = globalThis as unknown as { Buffer: { alloc(size: number): Uint8Array } };
    /** Answers in the next turn. */
    const answer = (callback: unknown, value: unknown): void => {
      this.later(() => {
        try {
          (callback as Function)(null, value);
        } catch (error) {
          this.#run.uncaught(error);
        }
      });
    };
    /** Answers by callback, if there is one. */
    const answered = (make: () => unknown, callback: unknown): unknown => (typeof callback === "function" ? answer(callback, make()) : make());
    const fill = (view: ArrayBufferView, offset = 0, size = view.byteLength - offset) => {
      this.fill(new Bytes(view.buffer as ArrayBuffer, view.byteOffset + offset, size));
      return view;
    };
    const randomBytes = (size: number, callback?: unknown) => answered(() => fill(Buffer.alloc(size)), callback);
    const made: Members = {
      randomBytes,
      pseudoRandomBytes: randomBytes,
      prng: randomBytes,
      rng: randomBytes,
      randomFillSync: fill,
      randomFill: (view: ArrayBufferView, ...rest: unknown[]) => {
        const callback = rest.pop();
        return answered(() => fill(view, ...(rest as number[])), callback);
      },
      randomInt: (...args: unknown[]) => {
        const callback = typeof args.at(-1) === "function" ? args.pop() : undefined;
        const [least, end] = args.length === 1 ? [0, args[0] as number] : (args as [number, number]);
        if (!Number.isSafeInteger(least) || !Number.isSafeInteger(end) || end <= least || end - least >= 2 ** 48) {
          apply(real.randomInt!, real, args); // which rejects it
        }
        return answered(() => least + Math.floor(this.#chance.double() * (end - least)), callback);
      },
      randomUUID: () => this.uuid(),
      webcrypto: crypto,
      getRandomValues: (array: Uint8Array<ArrayBuffer>) => crypto.getRandomValues(array),
      subtle: crypto.subtle,
    };
    for (const name of ["scrypt", "pbkdf2", "hkdf", "checkPrime"]) {
      const now = real[`${name}Sync`]!;
      made[name] = (...args: unknown[]) => {
        const callback = args.pop();
        answer(callback, apply(now, real, args));
      };
    }
    for (const name of RANDOMIZED_BY_NODE) {
      made[name] = () => {
        throw refusal(`crypto.${name} gives another value each time`);
      };
    }
    return made;
  }
}

const SUBTLE = ["decrypt", "deriveBits", "deriveKey", "digest", "encrypt", "exportKey", "generateKey", "importKey", "sign", "unwrapKey", "verify", "wrapKey"];
const RANDOMIZED_BY_NODE = [
  "generateKey", "generateKeySync", "generateKeyPair", "generateKeyPairSync", "generatePrime", "generatePrimeSync", "createDiffieHellman",
  "createDiffieHellmanGroup", "getDiffieHellman", "createECDH", "createSign", "sign", "publicEncrypt", "encapsulate", "DiffieHellman",
  "DiffieHellmanGroup", "ECDH", "Sign",
];
const RANDOMIZED = ["ECDSA", "RSA-PSS", "RSA-OAEP"];

/** Returns the reason why an operation gives a different value each time; undefined if it does not. */
function randomized(name: string, args: readonly unknown[]): string | undefined {
  if (name === "generateKey") return "crypto.subtle.generateKey gives another key each time";
  const algorithm = args[name === "wrapKey" ? 2 : 0] as string | { name?: unknown } | undefined;
  const called = typeof algorithm === "string" ? algorithm : `${algorithm?.name}`;
  if (!["sign", "encrypt", "wrapKey"].includes(name) || !RANDOMIZED.includes(called.toUpperCase())) return undefined;
  return `crypto.subtle.${name} with ${called} gives another value each time`;
}

const refusal = (reason: string) => new DOMException(`${reason}, which a durable execution could not repeat; call a tool for it`, "NotSupportedError");

/** True for a global that this engine has. */
const exists = (name: string): boolean => getOwnPropertyDescriptor(globalThis, name) !== undefined;

function replace(owner: object, methods: Members): void {
  for (const name in methods) {
    const enumerable = getOwnPropertyDescriptor(owner, name)?.enumerable ?? false;
    defineProperty(owner, name, { value: methods[name], writable: true, configurable: true, enumerable });
  }
}

/** Replaces a class of the engine by one whose constructor differs. */
function substitute<T extends new (...args: never[]) => object>(name: string, engine: T, handler: ProxyHandler<T>): void {
  const proxy = new Proxy(engine, handler);
  replace(engine.prototype as object, { constructor: proxy });
  defineGlobal(name, proxy);
}

class InertRegistry {
  register(): void {}
  unregister(): boolean {
    return false;
  }
}
defineProperty(InertRegistry, "name", { value: "FinalizationRegistry" });

class StrongRef<T> {
  #target: T;

  constructor(target: T) {
    this.#target = target;
  }

  deref(): T {
    return this.#target;
  }
}
defineProperty(StrongRef, "name", { value: "WeakRef" });

type Now = () => number;

function installDate(now: Now): void {
  const { prototype } = EngineDate;
  const Clock = function Date(this: unknown, ...args: unknown[]): unknown {
    if (new.target === undefined) return `${new EngineDate(now())}`;
    return construct(EngineDate, args.length === 0 ? [trunc(now())] : args, new.target === Clock ? EngineDate : new.target);
  } as unknown as DateConstructor;
  defineProperty(Clock, "prototype", { value: prototype, writable: false });
  defineProperty(Clock, "length", { value: 7 });
  const { parse, UTC } = EngineDate;
  for (const [name, value] of Object.entries({ parse, UTC, now: () => trunc(now()) })) {
    defineProperty(Clock, name, { value, writable: true, configurable: true, enumerable: false });
  }
  replace(prototype, { constructor: Clock });
  defineGlobal("Date", Clock);
}

function installFormats(now: Now): void {
  const { prototype } = Intl.DateTimeFormat;
  const format = getOwnPropertyDescriptor(prototype, "format")?.get;
  if (format === undefined) return; // QuickJS's uses `Date`
  defineProperty(prototype, "format", {
    configurable: true,
    get(this: Intl.DateTimeFormat) {
      const formatted = apply(format, this, []) as (date: unknown) => string;
      return (date?: unknown) => formatted(date === undefined ? now() : date);
    },
  });
  const { formatToParts } = prototype;
  replace(prototype, {
    formatToParts(this: Intl.DateTimeFormat, date?: unknown) {
      return apply(formatToParts, this, [date === undefined ? now() : date]) as Intl.DateTimeFormatPart[];
    },
  });
}

interface Instant {
  toZonedDateTimeISO(zone: unknown): { toPlainDateTime(): unknown; toPlainDate(): unknown; toPlainTime(): unknown };
}

function installTemporal(now: Now): void {
  const { Temporal } = globalThis as unknown as { Temporal?: { Now: Record<string, Function>; Instant: { fromEpochMilliseconds(ms: number): Instant } } };
  if (Temporal === undefined) return;
  const zoneId = Temporal.Now.timeZoneId!;
  const instant = () => Temporal.Instant.fromEpochMilliseconds(trunc(now()));
  const zoned = (zone: unknown = zoneId()) => instant().toZonedDateTimeISO(zone);
  replace(Temporal.Now, {
    instant,
    zonedDateTimeISO: zoned,
    plainDateTimeISO: (zone?: unknown) => zoned(zone).toPlainDateTime(),
    plainDateISO: (zone?: unknown) => zoned(zone).toPlainDate(),
    plainTimeISO: (zone?: unknown) => zoned(zone).toPlainTime(),
  });
}

/** Sets the time of change of a file to the program's clock, unless the program passes one. */
function installFiles(now: Now): void {
  if (!exists("File")) return;
  const Engine = unwatched("File") as typeof File;
  const lastModified = getOwnPropertyDescriptor(Engine.prototype, "lastModified")!.get!;
  const explicit = new WeakSet<object>();
  const times = new WeakMap<object, number>();
  defineProperty(Engine.prototype, "lastModified", {
    configurable: true,
    enumerable: true,
    get(this: File) {
      const time = apply(lastModified, this, []) as number;
      if (explicit.has(this)) return time;
      if (!times.has(this)) times.set(this, trunc(now()));
      return times.get(this);
    },
  });
  substitute("File", Engine, {
    construct(target, args: unknown[], self) {
      const file = construct(target, args, self) as File;
      if ((args[2] as FilePropertyBag | undefined)?.lastModified !== undefined) explicit.add(file);
      else times.set(file, trunc(now()));
      return file;
    },
  });
}

/** Encodes form bodies with a boundary of our own, because the engine would draw a random one. */
function installForms(boundary: () => string): void {
  if (!exists("FormData")) return;
  const encoded = (body: unknown): unknown => (body instanceof FormData ? multipart(body, `----corral${boundary()}`) : body);
  const forms: Record<string, (args: unknown[]) => unknown[]> = {
    Response: ([body, ...rest]) => [encoded(body), ...rest],
    Request: ([input, init, ...rest]) => {
      const { body } = (init ?? {}) as { body?: unknown };
      return body instanceof FormData ? [input, { ...(init as object), body: encoded(body) }, ...rest] : [input, init, ...rest];
    },
  };
  for (const name of ["Request", "Response"]) {
    substitute(name, unwatched(name) as typeof Response, {
      construct: (target, args: unknown[], self) => construct(target, args.length === 0 ? args : forms[name]!(args), self) as Response,
    });
  }
}

function multipart(form: FormData, boundary: string): Blob {
  const parts: BlobPart[] = [];
  const quoted = (text: string) => text.replaceAll("\r", "%0D").replaceAll("\n", "%0A").replaceAll('"', "%22");
  for (const [name, value] of form.entries()) {
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(name)}"`;
    if (typeof value === "string") parts.push(`${head}\r\n\r\n${value.replace(/\r\n?|\n/g, "\r\n")}\r\n`);
    else parts.push(`${head}; filename="${quoted(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`, value, "\r\n");
  }
  parts.push(`--${boundary}--\r\n`);
  return new Blob(parts, { type: `multipart/form-data; boundary=${boundary}` });
}

/** Compiles within the call, because the engine's threads would complete at an unknown time. */
function installAssembly(): void {
  const { WebAssembly } = globalThis as unknown as { WebAssembly?: Record<string, never> };
  if (WebAssembly === undefined) return;
  const { Module, Instance } = WebAssembly as unknown as Record<string, new (...args: unknown[]) => object>;
  replace(WebAssembly, {
    compile: async (bytes: unknown) => new Module!(bytes),
    instantiate: async (source: unknown, imports?: unknown) => {
      if (source instanceof Module!) return new Instance!(source, imports);
      const module = new Module!(source);
      return { module, instance: new Instance!(module, imports) };
    },
  });
}

interface Entry {
  name: string;
  entryType: "mark" | "measure";
  startTime: number;
  duration: number;
  detail: unknown;
}

type Place = string | number | undefined;

/** `performance` with the program's clock, and its own list of marks and measures. */
function makePerformance(now: () => number, timeOrigin: number): object {
  let entries: Entry[] = [];
  const add = (name: unknown, entryType: Entry["entryType"], startTime: number, end: number, detail: unknown = null) => {
    const entry: Entry = { name: `${name}`, entryType, startTime, duration: end - startTime, detail };
    entries.push(entry);
    return entry;
  };
  const time = (place: Place, otherwise: number): number => {
    if (place === undefined) return otherwise;
    if (typeof place === "number") return place;
    const mark = entries.findLast((entry) => entry.entryType === "mark" && entry.name === `${place}`);
    if (mark === undefined) throw new SyntaxError(`Cannot find mark: "${place}"`);
    return mark.startTime;
  };
  const clear = (entryType: Entry["entryType"], name?: string) => {
    entries = entries.filter((entry) => entry.entryType !== entryType || (name !== undefined && entry.name !== name));
  };
  return {
    now: () => now(),
    timeOrigin,
    mark: (name: string, options: { startTime?: number; detail?: unknown } = {}) => {
      const start = options.startTime ?? now();
      return add(name, "mark", start, start, options.detail);
    },
    measure: (name: string, from?: string | { start?: Place; end?: Place; duration?: number; detail?: unknown }, to?: string) => {
      const options = typeof from === "object" ? from : { start: from, end: to };
      const start = time(options.start, 0);
      const end = options.end === undefined && options.duration !== undefined ? start + options.duration : time(options.end, now());
      return add(name, "measure", start, end, options.detail);
    },
    clearMarks: (name?: string) => clear("mark", name),
    clearMeasures: (name?: string) => clear("measure", name),
    getEntries: () => [...entries],
    getEntriesByName: (name: string, type?: string) =>
      entries.filter((entry) => entry.name === name && (type === undefined || entry.entryType === type)),
    getEntriesByType: (type: string) => entries.filter((entry) => entry.entryType === type),
    toJSON: () => ({ timeOrigin }),
    get [Symbol.toStringTag]() {
      return "Performance";
    },
  };
}

const hex = (bytes: Uint8Array): string => (bytes as Uint8Array & { toHex(): string }).toHex();

/** Stream of ChaCha20: secrets that a program draws are as secret as the seed. */
class Chance {
  #state = new Words(16);
  #block = new Words(16);
  #bytes = new Bytes(this.#block.buffer);
  #at = 64;
  /** Number of bytes drawn. */
  drawn = 0;

  constructor(seed: string) {
    const state = this.#state;
    state[0] = 0x61707865;
    state[1] = 0x3320646e;
    state[2] = 0x79622d32;
    state[3] = 0x6b206574;
    for (let index = 0; index < 8; index++) state[4 + index] = parseInt(seed.slice(index * 8, index * 8 + 8), 16);
  }

  #next(): void {
    const x = this.#block;
    const state = this.#state;
    for (let index = 0; index < 16; index++) x[index] = state[index]!;
    for (let round = 0; round < 10; round++) {
      for (let column = 0; column < 4; column++) quarter(x, column, 4 + column, 8 + column, 12 + column);
      for (let column = 0; column < 4; column++) quarter(x, column, 4 + ((column + 1) & 3), 8 + ((column + 2) & 3), 12 + ((column + 3) & 3));
    }
    for (let index = 0; index < 16; index++) x[index] = (x[index]! + state[index]!) | 0;
    state[12] = (state[12]! + 1) | 0;
    if (state[12] === 0) state[13] = (state[13]! + 1) | 0;
    this.#at = 0;
  }

  fill(bytes: Uint8Array): void {
    const size = bytes.length;
    this.drawn += size;
    for (let index = 0; index < size; index++) {
      if (this.#at === 64) this.#next();
      bytes[index] = this.#bytes[this.#at++]!;
    }
  }

  double(): number {
    this.drawn += 8;
    this.#at = (this.#at + 7) & ~7;
    if (this.#at === 64) this.#next();
    const word = this.#at >> 2;
    this.#at += 8;
    return ((this.#block[word]! >>> 5) * 0x4000000 + (this.#block[word + 1]! >>> 6)) / 2 ** 53;
  }
}

function quarter(x: Uint32Array, a: number, b: number, c: number, d: number): void {
  x[a] = (x[a]! + x[b]!) | 0;
  x[d] = rotate(x[d]! ^ x[a]!, 16);
  x[c] = (x[c]! + x[d]!) | 0;
  x[b] = rotate(x[b]! ^ x[c]!, 12);
  x[a] = (x[a]! + x[b]!) | 0;
  x[d] = rotate(x[d]! ^ x[a]!, 8);
  x[c] = (x[c]! + x[d]!) | 0;
  x[b] = rotate(x[b]! ^ x[c]!, 7);
}

const rotate = (word: number, by: number): number => (word << by) | (word >>> (32 - by));
