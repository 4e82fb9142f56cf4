// The guest of one program in a realm: a fresh V8 context with the language and nothing else, whose platform is our own
// code (`platform.ts`). In what order the platform's operations complete is therefore ours to say.
//
// It waits as process/execution.ts does: with blocking reads until the program touches something asynchronous.

import vm from "node:vm";
import { compile, exit, nextTurn, now, readAsynchronously, readBlocking, runMicrotasks, write } from "../engine.ts";
import { FrameReader, FrameWriter, NONCE_BYTES, PROTOCOL } from "../frames.ts";
import { Kind } from "../kinds.ts";
import { type Program, PROGRAM_NAME, programFramesOnly, type Run } from "../run.ts";
import { PLATFORM, REALM } from "./bundle.ts";
import { hardenedPlatform } from "./harden.ts";
import type { Faces } from "./platform.ts";
import type { Bridge, openRealm } from "./realm.ts";
import type { Clock } from "./timers.ts";

/** What a longer delay becomes is 1 ms, as in Node. */
const LONGEST_DELAY = 2 ** 31 - 1;
const FAILED = `["error",["program_failed","RuntimeBroken","the program broke its own runtime","",null],[],0,[]]`;

const allowEval = Deno.args.includes("--allow-eval");
const allowWasm = Deno.args.includes("--allow-wasm");
const { apply } = Reflect;
const { preventDefault } = Event.prototype;
const { setTimeout, setInterval, setImmediate, clearTimeout, clearImmediate } = globalThis;
const { timeOrigin } = performance;
const { createContext, Script } = vm;
const { DONT_CONTEXTIFY } = vm.constants as unknown as { DONT_CONTEXTIFY: object };

const reader = new FrameReader();
const writer = new FrameWriter();
const nonce = new Uint8Array(NONCE_BYTES);
const flush = (): void => writer.drain(write);

/** Does something with the run, which fails if the program broke what that takes. */
function attempt(action: (run: Run) => void): void {
  try {
    action(run);
  } catch (error) {
    try {
      run.breakDown(error);
    } catch {
      exitAs(() => writer.append(Kind.exit, false, FAILED, nonce));
    }
  }
}

function exitAs(send: () => void): void {
  send();
  flush();
  exit(0);
}

/** The engine's timers; what a callback throws ends the program. */
function makeClock(): Clock {
  const cancels = new Map<number, () => void>();
  let last = 0;
  return {
    set(callback, milliseconds, repeats) {
      const timer = ++last;
      const delay = milliseconds >= 1 && milliseconds <= LONGEST_DELAY ? milliseconds : 1;
      const fire = () => {
        if (!repeats) cancels.delete(timer);
        attempt(callback);
        turn();
      };
      const handle = repeats ? setInterval(fire, delay) : setTimeout(fire, delay);
      cancels.set(timer, () => clearTimeout(handle));
      return timer;
    },
    setImmediate(callback) {
      const timer = ++last;
      const handle = setImmediate(() => {
        cancels.delete(timer);
        attempt(callback);
        turn();
      });
      cancels.set(timer, () => clearImmediate(handle));
      return timer;
    },
    clear(timer) {
      cancels.get(timer)?.();
      cancels.delete(timer);
    },
  };
}

let reading = false;
let turning = false;

/** Runs until something asynchronous has to happen; called in a turn of its own. */
function pump(): void {
  for (;;) {
    runMicrotasks();
    attempt((run) => run.checkForDeadlock());
    flush();
    if (run.over) return turn();
    if (run.asynchronous || reading) return receiveAsynchronously();
    receive(readBlocking(reader.room()));
  }
}

/** In the next turn, exits if the run is over. The engine reports unhandled rejections before it. */
function turn(): void {
  if (turning) return;
  nextTurn(() => {
    turning = false;
    let closed = false;
    if (run.over) attempt((run) => (closed = run.close()));
    if (closed) exitAs(() => attempt((run) => run.exit()));
    pump();
  });
  turning = true; // only now: a program may have left so little of the stack that the line above throws
}

function receiveAsynchronously(): void {
  if (reading) return;
  reading = true;
  readAsynchronously(reader.room()).then((count) => {
    reading = false;
    receive(count);
    turn();
  });
}

function receive(count: number): void {
  if (count === 0) exit(0);
  reader.filled(count);
  for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
    const { kind, payload, tagged } = frame;
    attempt((run) => {
      if (kind === Kind.reply) run.settle(payload, tagged);
      else if (kind === Kind.chunk) run.deliver(payload, tagged);
      else if (kind === Kind.finish) run.finish();
    });
  }
}

function readStart(): string {
  for (;;) {
    const frame = reader.next();
    if (frame !== undefined) {
      nonce.set(reader.nonce);
      return frame.payload;
    }
    const count = readBlocking(reader.room());
    if (count === 0) exit(0);
    reader.filled(count);
  }
}

function enter(): void {
  const { code } = run.start;
  const compiled = compile(() => new Script(code, { filename: PROGRAM_NAME }).runInContext(context) as Program);
  if ("program" in compiled) run.enter(compiled.program);
  else run.reject(compiled.refusal);
}

(Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
const Encoder = TextEncoder;
globalThis.addEventListener("unhandledrejection", (event) => {
  apply(preventDefault, event, []);
  attempt((run) => run.rejected(event.reason));
});
globalThis.addEventListener("error", (event) => apply(preventDefault, event, []));
const platform = hardenedPlatform();
const platformScript = new Script(PLATFORM, { filename: "corral:platform.js" });
const options = { codeGeneration: { strings: allowEval, wasm: allowWasm } };
const context = createContext(DONT_CONTEXTIFY as vm.Context, options);
const bridge: Bridge = {
  host: {
    send: (kind, tagged, payload) => writer.append(kind, tagged, payload, nonce),
    flush,
    concluded: turn,
    now,
  },
  platform,
  clock: makeClock(),
  timeOrigin,
  loadFaces: () => platformScript.runInContext(context) as typeof Faces,
};
const realmScript = new Script(REALM, { filename: "corral:runtime.js" });
const runtime = (realmScript.runInContext(context) as (encoder: unknown) => { openRealm: typeof openRealm })(Encoder);
const begin = runtime.openRealm(bridge, allowWasm);
writer.append(Kind.ready, false, `[${PROTOCOL}]`, nonce);
flush();
const run: Run = begin(readStart());
nextTurn(() => {
  attempt(enter);
  pump();
});
