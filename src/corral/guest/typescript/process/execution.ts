// One program in the engine's own context: reads START, runs the program, sends EXIT.
//
// It waits for replies in two ways. While the program has used nothing but the language and its tools, only a reply can
// ever happen, so a blocking read is the event loop: it has half the latency of an asynchronous read, and a program
// that waits for nothing is known to be stuck. While a timer runs, reads are asynchronous. After the first use of
// crypto or of a stream, they stay asynchronous for the rest of the run.

import { args, compile, evaluate, hasTicks, nextTurn, now, onFailures, runMicrotasks } from "../engine.ts";
import { type Frame, FrameReader, FrameWriter, NONCE_BYTES, PROTOCOL } from "../frames.ts";
import { restrictGlobals, type TimerWatch } from "../globals.ts";
import { Kind } from "../kinds.ts";
import { codeName, type Host, type Program, Run, type Start } from "../run.ts";
import { decodeValue } from "../values.ts";
import { fileNamespace } from "./files.ts";
import { loadBuiltIns, loaderOf } from "./modules.ts";

/** Transport of frames, and the way to end the process. */
export interface Streams {
  /** Reads, blocking. Returns the number of bytes read; 0 at the end. */
  readBlocking(into: Uint8Array): number;
  readAsynchronously(into: Uint8Array): Promise<number>;
  write(bytes: Uint8Array): number;
  /** Ends the process. Returns only in a rehearsal. */
  exit(): void;
}

const reader = new FrameReader();
const writer = new FrameWriter();
const nonce = new Uint8Array(NONCE_BYTES);
let current: Execution | undefined;

/** Reduces the global scope for programs. Call it once, before any program. */
export async function prepareGlobals(): Promise<void> {
  if (args.includes("--modules")) await loadBuiltIns();
  const allowWasm = args.includes("--allow-wasm");
  const onAsynchronous = (): void => current?.run.leavePump();
  const timers: TimerWatch = { started: (timer, callback) => current?.run.startTimer(timer, callback), ended: () => current?.afterTimer() };
  const home = args.find((each) => each.startsWith("--files="))?.slice(8);
  const namespace = home === undefined ? undefined : fileNamespace(home);
  restrictGlobals({ allowWasm, onAsynchronous, timers, namespace });
  onFailures((reason) => current?.run.rejected(reason), (error) => current?.run.uncaught(error));
}

export function sendReady(streams: Streams): void {
  writer.append(Kind.ready, false, `[${PROTOCOL}]`, nonce);
  writer.drain(streams.write);
}

/** Reads START and runs its program. */
export function execute(streams: Streams): void {
  new Execution(readStart(streams), streams).execute();
}

function readStart(streams: Streams): Start {
  let { kind, payload } = nextFrame(streams);
  while (kind !== Kind.start) ({ kind, payload } = nextFrame(streams)); // replies that the cell before did not wait for
  const source = reader.nonce;
  for (let index = 0; index < NONCE_BYTES; index++) nonce[index] = source[index]!; // preloaded code may have changed the method
  return (decodeValue(payload, false) as [Start])[0];
}

/** Blocks until there is a frame. */
function nextFrame({ readBlocking, exit }: Streams): Frame {
  for (;;) {
    const frame = reader.next();
    if (frame !== undefined) return frame;
    const count = readBlocking(reader.room());
    if (count === 0) exit();
    reader.filled(count);
  }
}

class Execution {
  #start: Start;
  #streams: Streams;
  #flush: () => void;
  readonly run: Run;
  #reading = false;
  /** True after `exit`, which does not always end the process. */
  #exited = false;
  /** True between the cells of a notebook: nothing may be sent. */
  #isSilent = false;

  constructor(start: Start, streams: Streams) {
    const { write } = streams;
    const flush = (): void => writer.drain(write);
    this.#start = start;
    this.#streams = streams;
    this.#flush = flush;
    const host: Host = {
      send: (kind, tagged, payload) => {
        if (!this.#isSilent) writer.append(kind, tagged, payload, nonce);
      },
      flush,
      concluded: () => {
        if (this.run.asynchronous) this.#finishWhenOver();
      },
      now,
      load: (start) => loaderOf(start, this.run),
    };
    this.run = new Run(start, host);
  }

  execute(): void {
    current = this;
    this.run.defineGlobals();
    this.#begin();
  }

  #begin(): void {
    const { run } = this;
    const { code } = this.#start;
    const compiled = compile(() => evaluate(code, codeName(this.#start)) as Program);
    if ("program" in compiled) run.enter(compiled.program);
    else run.reject(compiled.refusal);
    this.#pump();
  }

  /** Waits for replies until the program has its outcome and no call is pending. */
  #pump(): void {
    const { run } = this;
    if (run.world !== undefined) return this.#pumpDurably();
    try {
      while (run.resumePump()) {
        runMicrotasks();
        if (!run.resumePump()) break;
        run.checkForDeadlock();
        if (run.over) break;
        this.#flush();
        this.#receive(this.#streams.readBlocking(reader.room()));
      }
    } catch (error) {
      run.breakDown(error);
    }
    run.asynchronous = true;
    this.#flush();
    if (run.over) this.#finishWhenOver();
    else void this.#receiveAsynchronously();
  }

  /**
   * Takes one frame at a time, whenever nothing else is left to run. The event loop turns only for work of the engine.
   */
  #pumpDurably(): void {
    const { run } = this;
    const world = run.world!;
    const resume = (): void => nextTurn(() => this.#pumpDurably());
    try {
      for (;;) {
        do runMicrotasks();
        while (world.runImmediate());
        if (hasTicks()) return resume();
        if (world.isBusy(resume)) return;
        if (world.deliver()) continue;
        if (!run.over) world.startTimers();
        run.checkForDeadlock();
        if (run.over) return nextTurn(() => (run.over && run.close() ? this.#exit() : this.#pumpDurably()));
        this.#flush();
        const frame = nextFrame(this.#streams);
        if (frame.kind === Kind.ping) writer.append(Kind.pong, false, world.pong(frame.payload), nonce);
        else this.#take(frame);
      }
    } catch (error) {
      run.breakDown(error);
      this.#exit();
    }
  }

  /** Ends a program that waits for nothing, after a timer has run or was cleared. */
  afterTimer(): void {
    nextTurn(() => {
      const { run } = this;
      if (run.resumePump()) {
        run.checkForDeadlock();
        run.asynchronous = this.#reading;
      }
      if (run.over) this.#finishWhenOver();
    });
  }

  async #receiveAsynchronously(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    try {
      for (;;) {
        const count = await this.#streams.readAsynchronously(reader.room());
        if (this.#isSilent) {
          this.#reading = false;
          if (count === 0) this.#streams.exit();
          reader.filled(count);
          return nextTurn(() => this.#next());
        }
        this.#receive(count);
        if (this.run.over) this.#finishWhenOver();
        else if (this.run.resumePump()) {
          this.#reading = false;
          return nextTurn(() => this.#pump());
        }
      }
    } catch (error) {
      this.run.breakDown(error);
    }
  }

  #receive(count: number): void {
    if (count === 0) this.#streams.exit();
    reader.filled(count);
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) this.#take(frame);
  }

  #take({ kind, payload, tagged }: Frame): void {
    if (kind === Kind.reply) this.run.settle(payload, tagged);
    else if (kind === Kind.chunk) this.run.deliver(payload, tagged);
    else if (kind === Kind.finish) this.run.finish();
  }

  /**
   * Sends EXIT unless the program makes another call before the next turn of the event loop. In that turn the engine
   * also reports unhandled rejections.
   */
  #finishWhenOver(): void {
    nextTurn(() => {
      if (this.#exited) return;
      if (this.run.over && this.run.close()) this.#exit();
      else if (this.run.asynchronous) void this.#receiveAsynchronously(); // otherwise the pump would continue in this turn
    });
  }

  #exit(): void {
    this.#exited = true;
    const isCell = this.#start.cell !== undefined;
    try {
      if (isCell) this.run.end();
      this.run.exit();
      this.#isSilent = isCell;
    } finally {
      if (!this.#isSilent) this.#streams.exit(); // even if the program has broken something that the lines above need
    }
    if (this.#isSilent && !this.#reading) nextTurn(() => this.#next());
  }

  /** Runs a notebook's next cell. */
  #next(): void {
    const start = this.#start = readStart(this.#streams);
    this.#exited = this.#isSilent = false;
    this.run.next(start);
    this.#begin();
  }
}
