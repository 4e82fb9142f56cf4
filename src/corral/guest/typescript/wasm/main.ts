// Guest of one program in WebAssembly. It has no loop: its server passes frames to `take`, runs all
// microtasks, and calls `settle`, whose result tells how to go on.

import { begin, captureText, compile, endTurn, evaluate, fireTimer, keepFormatter, now, prepareEngine, receive, send, textFrames, untilTimer } from "./engine.ts";
import type { World } from "../durable.ts";
import { captureBy } from "../failures.ts";
import { restrictGlobals, type TimerWatch } from "../globals.ts";
import { Kind } from "../kinds.ts";
import { Modules, NO_TEXTS, type Source } from "../loader.ts";
import { codeName, type Host, type Program, Run, type Start } from "../run.ts";
import { decodeValue } from "../values.ts";
import { builtIns, makeBuiltIns } from "./built_ins.ts";
import { filesOf } from "./files.ts";

/** Results of a turn, which have no frame's length: milliseconds until the next timer, or one of these. */
const ENDED = "!";
const AGAIN = "?";
const HEAD = 3;

const { apply, deleteProperty } = Reflect;
const { create } = Object;
const { indexOf, slice } = String.prototype;
/** Start of the run in the image: `start` replaces it with that of the program. */
const BLANK: Start = {
  code: "", tools: [], env: null, limits: { calls: 0, calls_in_flight: 0, value_bytes: 0, tool_input_bytes: 0, log_bytes: 0 },
};
let run: Run;
let hasStarted = false;
let unsent = "";
/** Frames that a durable program has not taken: it takes one at a time. */
const waiting = create(null) as Record<number, string>;
let firstWaiting = 0;
let lastWaiting = 0;

const flush = (): void => {
  if (unsent === "") return;
  const frames = unsent;
  unsent = "";
  send(frames);
};

const source: Source = {
  builtIns,
  files: (mounts) => filesOf((request) => run.serviceNow("$files", request), mounts, run.start.limits.tool_input_bytes),
};

const host: Host = {
  load(start) {
    const { modules, mounts = [] } = start;
    if (!modules && mounts.length === 0) return undefined;
    const loader = new Modules(source, modules ?? NO_TEXTS, mounts);
    loader.begin(start, () => {}, run.world);
    return loader;
  },
  send(kind, tagged, payload) {
    unsent += `${unsent === "" ? "" : "\n"}${kind}${tagged ? 1 : 0}${payload}`;
  },
  flush,
  receive(sequence) {
    const text = receive();
    const takes = text[0] === "1" ? take : takeLines;
    takes(apply(slice, text, [1]) as string, sequence);
  },
  concluded() {}, // `settle` follows
  now,
};

/** Makes everything that does not depend on a program, for the image. */
export function prepare(): void {
  const timers: TimerWatch = { started: (timer, callback) => run.startTimer(timer, callback), ended() {} };
  restrictGlobals({ allowWasm: false, onAsynchronous() {}, timers });
  prepareEngine((error) => run.uncaught(error));
  captureBy({ capture: captureText, frames: textFrames });
  run = new Run(BLANK, host);
  run.defineGlobals();
  makeBuiltIns();
  keepFormatter();
}

/** Takes small frames from the host, a line each. An error in the reply to the `awaited` call is thrown. */
export function takeLines(frames: string, awaited?: number): void {
  for (let at = 0; ; ) {
    const end = apply(indexOf, frames, ["\n", at]) as number;
    take(apply(slice, frames, end < 0 ? [at] : [at, end]) as string, awaited);
    if (end < 0) return;
    at = end + 1;
  }
}

/** Takes a frame from the host. This engine searches a text slowly, so a large frame comes alone. */
export function take(frame: string, awaited?: number): void {
  if (run.world === undefined) takeFrame(frame, awaited);
  else waiting[lastWaiting++] = frame;
}

/** Takes one of the frames that wait. Returns false if there is none. */
function takeWaiting(): boolean {
  if (firstWaiting === lastWaiting) return false;
  const frame = waiting[firstWaiting]!;
  deleteProperty(waiting, firstWaiting++);
  takeFrame(frame);
  return true;
}

/** Takes a frame: its kind in two digits, 1 if it is tagged, and its payload. */
function takeFrame(frame: string, awaited?: number): void {
  const kind = +(apply(slice, frame, [0, 2]) as string);
  const tagged = frame[2] === "1";
  const payload = apply(slice, frame, [HEAD]) as string;
  if (!hasStarted) return start(kind, payload);
  try {
    if (kind === Kind.reply) run.settle(payload, tagged);
    else if (kind === Kind.chunk) run.deliver(payload, tagged);
    else if (kind === Kind.finish) run.finish();
    else if (kind === Kind.ping) host.send(Kind.pong, false, run.world!.pong(payload));
  } catch (error) {
    if (awaited !== undefined && apply(indexOf, payload, [`[${awaited},`]) === 0) throw error;
    run.breakDown(error);
  }
}

function start(kind: number, payload: string): void {
  if (kind !== Kind.start) throw new Error("the first frame is not START");
  const [start] = decodeValue(payload, false) as [Start];
  hasStarted = true;
  begin(codeName(start));
  if (start.durable) {
    run = new Run(start, host);
    run.defineGlobals();
    makeBuiltIns();
  } else run.next(start);
  const { code } = start;
  const compiled = compile(() => evaluate(code, codeName(start)) as Program);
  if ("program" in compiled) run.enter(compiled.program);
  else run.reject(compiled.refusal);
}

/** Call it when no microtask is left: sends pending frames, and how to go on unless that is to wait for a frame. */
export function settle(): void {
  const current = run;
  try {
    endTurn();
    if (current.world !== undefined) return settleDurably(current, current.world);
    current.resumePump();
    const milliseconds = untilTimer();
    if (!current.over && milliseconds < 0) current.checkForDeadlock(); // an AbortSignal has timers that nothing watches
    if (!current.over) {
      flush();
      if (milliseconds >= 0) send(`${milliseconds}`);
    } else if (current.close()) {
      current.exit();
      send(ENDED);
    } else send(AGAIN);
  } catch (error) {
    current.breakDown(error);
    current.exit();
    send(ENDED);
  }
}

/** Takes the next step of a durable program: the same as `#pumpDurably` in process/execution.ts. */
function settleDurably(current: Run, world: World): void {
  if (world.runImmediate() || world.deliver()) return send(AGAIN);
  if (!current.over) world.startTimers();
  current.checkForDeadlock();
  if (!current.over) takeWaiting() ? send(AGAIN) : flush();
  else if (current.close()) {
    current.exit();
    send(ENDED);
  } else send(AGAIN);
}

/** Runs the next timer, if it is due. A program can replace parts of its timers. */
export function fire(): void {
  try {
    fireTimer();
  } catch (error) {
    run.breakDown(error);
  }
}
