// The guest of many programs: each runs in a context of its own, with its own globals and intrinsics, and any number of
// them overlap. It never ends by itself but with its input.
//
// It waits as main.ts does: with blocking reads as long as no program that is running has touched anything asynchronous,
// and with asynchronous ones otherwise. Frames to the guest name their run by a number; frames to the host carry the
// nonce of theirs, which only this module knows.

import vm from "node:vm";
import { PLATFORM, REALM } from "./bundle.ts";
import { compile, exit, nextTurn, now, readAsynchronously, readBlocking, runMicrotasks, write } from "./engine.ts";
import { type Frame, FrameReader, FrameWriter, NONCE_BYTES, PROTOCOL } from "./frames.ts";
import { hardenedPlatform } from "./harden.ts";
import { Kind } from "./kinds.ts";
import type { Faces } from "./platform.ts";
import type { Bridge, openRealm, Realm } from "./realm.ts";
import { type Program, PROGRAM_NAME, programFramesOnly, type Run } from "./run.ts";

/** Contexts that are made while nothing runs, so that the next programs need not wait for theirs. */
const SPARES = 2;
/** What a longer delay becomes is 1 ms, as in Node. */
const LONGEST_DELAY = 2 ** 31 - 1;
const FAILED = `["error",["program_failed","RuntimeBroken","the program broke its own runtime","",null],[],0,[]]`;

const allowEval = Deno.args.includes("--allow-eval");
const allowWasm = Deno.args.includes("--allow-wasm");
const { apply } = Reflect;
const { getPrototypeOf } = Object;
const { preventDefault } = Event.prototype;
const { setTimeout, setInterval, setImmediate, clearTimeout, clearImmediate } = globalThis;
const { timeOrigin } = performance;
const Encoder = TextEncoder;
const { createContext, Script } = vm;
const { DONT_CONTEXTIFY } = vm.constants as unknown as { DONT_CONTEXTIFY: object };

const reader = new FrameReader();
const writer = new FrameWriter();
const flush = (): void => writer.drain(write);

/** One context, and the run in it. */
class Context {
  readonly #context: vm.Context;
  readonly #realm: Realm;
  readonly #nonce = new Uint8Array(NONCE_BYTES);
  readonly #timers = new Map<number, () => void>();
  #lastTimer = 0;
  #live = true;
  #broken = false;
  /** `Promise.prototype` in it. */
  readonly promise: object;
  run: Run | undefined;
  number = 0;

  constructor(concluded: (context: Context) => void) {
    const context = this.#context = createContext(DONT_CONTEXTIFY as vm.Context, { codeGeneration: { strings: allowEval, wasm: allowWasm } });
    const bridge: Bridge = {
      host: {
        send: (kind, tagged, payload) => {
          if (this.#live) writer.append(kind, tagged, payload, this.#nonce);
        },
        flush,
        concluded: () => concluded(this),
        now,
      },
      platform,
      clock: {
        set: (callback, milliseconds, repeats) => {
          const timer = ++this.#lastTimer;
          const delay = milliseconds >= 1 && milliseconds <= LONGEST_DELAY ? milliseconds : 1;
          const fire = () => {
            if (!repeats) this.#timers.delete(timer);
            this.#call(callback);
          };
          const handle = repeats ? setInterval(fire, delay) : setTimeout(fire, delay);
          this.#timers.set(timer, () => clearTimeout(handle));
          return timer;
        },
        setImmediate: (callback) => {
          const timer = ++this.#lastTimer;
          const handle = setImmediate(() => {
            this.#timers.delete(timer);
            this.#call(callback);
          });
          this.#timers.set(timer, () => clearImmediate(handle));
          return timer;
        },
        clear: (timer) => {
          this.#timers.get(timer)?.();
          this.#timers.delete(timer);
        },
      },
      timeOrigin,
      loadFaces: () => platformScript.runInContext(context) as typeof Faces,
    };
    const { openRealm, promise } = (realmScript.runInContext(context) as (encoder: unknown) => Runtime)(Encoder);
    this.promise = promise;
    this.#realm = openRealm(bridge, allowWasm);
  }

  /** What it throws has no other place to go: the stack was full, or the program broke its own runtime. */
  #call(callback: () => void): void {
    if (!this.#live) return;
    try {
      callback();
    } catch (error) {
      this.attempt((run) => run.breakDown(error));
    }
  }

  /** Takes START, and returns the run's number. */
  begin(payload: string, nonce: Uint8Array): number {
    this.#nonce.set(nonce);
    this.run = this.#realm.begin(payload);
    return this.number = this.run.start.run ?? 0;
  }

  /** Does something with the run, which fails if the program broke what that takes. */
  attempt(action: (run: Run) => void): void {
    try {
      action(this.run!);
    } catch (error) {
      try {
        this.run!.breakDown(error);
      } catch {
        this.#broken = true;
      }
    }
  }

  get over(): boolean {
    return this.#broken || this.run!.over;
  }

  /** Starts the program. */
  enter(run: Run): void {
    const { code } = run.start;
    const compiled = compile(() => new Script(code, { filename: PROGRAM_NAME }).runInContext(this.#context) as Program);
    if ("program" in compiled) run.enter(compiled.program);
    else run.reject(compiled.refusal);
  }

  /** Sends EXIT; nothing of the context wakes up again. */
  finish(): void {
    try {
      this.run!.exit();
    } catch {
      writer.append(Kind.exit, false, FAILED, this.#nonce);
    }
    this.#live = false;
    this.#realm.end();
    for (const clear of this.#timers.values()) clear();
    this.#timers.clear();
  }
}

/** What a context has evaluated. */
interface Runtime {
  openRealm: typeof openRealm;
  /** `Promise.prototype` of the context. */
  promise: object;
}

class Pump {
  readonly #running = new Map<number, Context>();
  readonly #spares: Context[] = [];
  /** Those that got a frame since their state was looked at. */
  readonly #woken = new Set<Context>();
  readonly #asynchronous = new Set<Context>();
  /** Those that may be over. */
  readonly #ending = new Set<Context>();
  #reading = false;
  #turning = false;

  /** Makes contexts for programs to come. */
  stock(): void {
    while (this.#spares.length < SPARES) this.#spares.push(this.#makeContext());
  }

  /** Runs until something asynchronous has to happen; called in a turn of its own. */
  pump(): void {
    for (;;) {
      runMicrotasks();
      for (const context of this.#woken) this.#look(context);
      this.#woken.clear();
      flush();
      if (this.#ending.size > 0) return this.#turn();
      if (this.#asynchronous.size > 0 || this.#reading) return this.#readAsynchronously();
      if (this.#running.size === 0) this.stock();
      this.#receive(readBlocking(reader.room()));
    }
  }

  /** The context that a promise belongs to. */
  contextOf(promise: object): Context | undefined {
    for (let each: object | null = promise; each !== null; each = getPrototypeOf(each) as object | null) {
      for (const context of this.#running.values()) if (context.promise === each) return context;
    }
    return undefined;
  }

  #makeContext(): Context {
    return new Context((context) => {
      this.#ending.add(context);
      this.#turn();
    });
  }

  /** Takes note of what a program has come to. */
  #look(context: Context): void {
    context.attempt((run) => {
      run.checkForDeadlock();
      if (run.asynchronous) this.#asynchronous.add(context);
    });
    if (context.over) this.#ending.add(context);
  }

  /** In the next turn, ends the runs that are over. The engine reports unhandled rejections before it. */
  #turn(): void {
    if (this.#turning) return;
    nextTurn(() => {
      this.#turning = false;
      for (const context of this.#ending) if (context.over) this.#finish(context);
      this.#ending.clear();
      this.pump();
    });
    this.#turning = true; // only now: a program may have left so little of the stack that the line above throws
  }

  #finish(context: Context): void {
    this.#running.delete(context.number);
    this.#asynchronous.delete(context);
    this.#woken.delete(context);
    context.finish();
  }

  #readAsynchronously(): void {
    if (this.#reading) return;
    this.#reading = true;
    readAsynchronously(reader.room()).then((count) => {
      this.#reading = false;
      this.#receive(count);
      this.#turn();
    });
  }

  #receive(count: number): void {
    if (count === 0) exit(0);
    reader.filled(count);
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) this.#take(frame);
  }

  #take({ kind, run, payload, tagged }: Frame): void {
    if (kind === Kind.start) {
      const context = this.#spares.pop() ?? this.#makeContext();
      this.#running.set(context.begin(payload, reader.nonce), context);
      this.#woken.add(context);
      context.attempt((run) => context.enter(run));
      return;
    }
    const context = this.#running.get(run);
    if (context === undefined) return;
    this.#woken.add(context);
    context.attempt((run) => {
      if (kind === Kind.reply) run.settle(payload, tagged);
      else if (kind === Kind.chunk) run.deliver(payload, tagged);
      else if (kind === Kind.finish) run.finish();
      else if (kind === Kind.stop) run.stop("cancelled", "Cancelled", "the host stopped the run");
    });
  }
}

(Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
globalThis.addEventListener("unhandledrejection", (event) => {
  apply(preventDefault, event, []);
  pump.contextOf(event.promise)?.attempt((run) => run.rejected(event.reason));
});
globalThis.addEventListener("error", (event) => apply(preventDefault, event, []));
const platform = hardenedPlatform();
const realmScript = new Script(REALM, { filename: "corral:runtime.js" });
const platformScript = new Script(PLATFORM, { filename: "corral:platform.js" });
const pump = new Pump();
pump.stock();
writer.append(Kind.ready, false, `[${PROTOCOL}]`, new Uint8Array(NONCE_BYTES));
flush();
nextTurn(() => pump.pump());
