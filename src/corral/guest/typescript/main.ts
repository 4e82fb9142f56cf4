// The guest of one program: it reads START, runs the program in the engine's own context, sends EXIT and ends.
//
// Two ways to wait for replies. While the program has touched nothing but the language and its tools, the only event
// that can ever happen is a reply, so a blocking read is the event loop: half the latency of an asynchronous one, and a
// program that waits for nothing is known to be stuck. The first touch of a timer, of crypto or of a stream switches to
// asynchronous reads for the rest of the run.

import { compile, evaluate, exit, nextTurn, now, readAsynchronously, readBlocking, runMicrotasks, write } from "./engine.ts";
import { FrameReader, FrameWriter, NONCE_BYTES, PROTOCOL } from "./frames.ts";
import { restrictGlobals } from "./globals.ts";
import { Kind } from "./kinds.ts";
import { warmUp } from "./warm_up.ts";
import { type Host, type Program, PROGRAM_NAME, Run, type Start } from "./run.ts";
import { decodeValue } from "./values.ts";

const { apply } = Reflect;
const { preventDefault } = Event.prototype;

const reader = new FrameReader();
const writer = new FrameWriter();
const nonce = new Uint8Array(NONCE_BYTES);

const flush = (): void => writer.drain(write);

function readStart(): Start {
  for (;;) {
    const frame = reader.next();
    if (frame !== undefined) {
      nonce.set(reader.nonce);
      return (decodeValue(frame.payload, false) as [Start])[0];
    }
    const count = readBlocking(reader.room());
    if (count === 0) exit(0);
    reader.filled(count);
  }
}

class Execution {
  #start: Start;
  #run: Run;
  #reading = false;

  constructor(start: Start) {
    this.#start = start;
    const host: Host = {
      send: (kind, tagged, payload) => writer.append(kind, tagged, payload, nonce),
      flush,
      concluded: () => {
        if (this.#run.asynchronous) this.#finishWhenOver();
      },
      now,
    };
    this.#run = new Run(start, host);
  }

  execute(): void {
    const run = this.#run;
    globalThis.addEventListener("unhandledrejection", (event) => {
      apply(preventDefault, event, []);
      run.rejected(event.reason);
    });
    globalThis.addEventListener("error", (event) => {
      apply(preventDefault, event, []);
      run.uncaught(event.error);
    });
    onAsynchronous = () => (run.asynchronous = true);
    run.defineGlobals();
    const { code } = this.#start;
    const compiled = compile(() => evaluate(code, PROGRAM_NAME) as Program);
    if ("program" in compiled) run.enter(compiled.program);
    else run.reject(compiled.refusal);
    this.#pump();
  }

  /** Waits for replies until the program has its outcome and no call is pending. */
  #pump(): void {
    const run = this.#run;
    try {
      while (!run.asynchronous) {
        runMicrotasks();
        run.checkForDeadlock();
        if (run.asynchronous || run.over) break;
        flush();
        this.#receive(readBlocking(reader.room()));
      }
    } catch (error) {
      run.breakDown(error);
    }
    run.asynchronous = true;
    flush();
    if (run.over) this.#finishWhenOver();
    else void this.#receiveAsynchronously();
  }

  async #receiveAsynchronously(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    try {
      for (;;) {
        this.#receive(await readAsynchronously(reader.room()));
        if (this.#run.over) this.#finishWhenOver();
      }
    } catch (error) {
      this.#run.breakDown(error);
    }
  }

  #receive(count: number): void {
    if (count === 0) exit(0);
    reader.filled(count);
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
      if (frame.kind === Kind.reply) this.#run.settle(frame.payload, frame.tagged);
      else if (frame.kind === Kind.chunk) this.#run.deliver(frame.payload, frame.tagged);
      else if (frame.kind === Kind.finish) this.#run.finish();
    }
  }

  /**
   * Sends EXIT unless the program makes another call until the next turn of the event loop. In that turn the engine
   * also reports the rejections that nobody handled.
   */
  #finishWhenOver(): void {
    nextTurn(() => {
      if (this.#run.over) this.#exit();
      else void this.#receiveAsynchronously();
    });
  }

  #exit(): void {
    try {
      this.#run.exit();
    } finally {
      exit(0); // even if the program broke what the line above needs
    }
  }
}

let onAsynchronous = (): void => {};
const warmsUp = Deno.args.includes("--warm-up"); // for one that is started before it is needed
restrictGlobals({ allowWasm: Deno.args.includes("--allow-wasm"), onAsynchronous: () => onAsynchronous() });
if (warmsUp) warmUp();
nextTurn(() => { // a turn of the event loop takes the engine 1 ms the first time
  writer.append(Kind.ready, false, `[${PROTOCOL}]`, nonce);
  flush();
  new Execution(readStart()).execute();
});
