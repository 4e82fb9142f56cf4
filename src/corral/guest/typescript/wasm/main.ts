// Guest of one program in WebAssembly. It has no loop: its server passes frames to `take`, runs all
// microtasks, and calls `settle`, whose result tells how to go on.

import { begin, compile, endTurn, evaluate, fireTimer, forbidEval, now, send, untilTimer } from "./engine.ts";
import { restrictGlobals, type TimerWatch } from "../globals.ts";
import { Kind } from "../kinds.ts";
import { codeName, type Host, type Program, Run, type Start } from "../run.ts";
import { decodeValue } from "../values.ts";

/** Results of a turn, which have no frame's length: milliseconds until the next timer, or one of these. */
const ENDED = "!";
const AGAIN = "?";
const HEAD = 3;

const { apply } = Reflect;
const { slice } = String.prototype;
let run: Run | undefined;
let unsent = "";

const flush = (): void => {
  if (unsent === "") return;
  const frames = unsent;
  unsent = "";
  send(frames);
};

const host: Host = {
  send(kind, tagged, payload) {
    unsent += `${unsent === "" ? "" : "\n"}${kind}${tagged ? 1 : 0}${payload}`;
  },
  flush,
  concluded() {}, // `settle` follows
  now,
};

/** Reduces the global scope for programs. */
export function prepare(): void {
  const timers: TimerWatch = { started: (timer, callback) => run?.startTimer(timer, callback), ended() {} };
  restrictGlobals({ allowWasm: false, onAsynchronous() {}, timers });
  forbidEval();
}

/** Takes a frame from the host: its kind in two digits, 1 if it is tagged, and its payload. */
export function take(frame: string): void {
  const kind = +(apply(slice, frame, [0, 2]) as string);
  const tagged = frame[2] === "1";
  const payload = apply(slice, frame, [HEAD]) as string;
  if (run === undefined) return start(kind, payload);
  try {
    if (kind === Kind.reply) run.settle(payload, tagged);
    else if (kind === Kind.chunk) run.deliver(payload, tagged);
    else if (kind === Kind.finish) run.finish();
  } catch (error) {
    run.breakDown(error);
  }
}

function start(kind: number, payload: string): void {
  if (kind !== Kind.start) throw new Error("the first frame is not START");
  const [start] = decodeValue(payload, false) as [Start];
  const current = run = new Run(start, host);
  begin(codeName(start), (error) => current.uncaught(error));
  run.defineGlobals();
  const { code } = start;
  const compiled = compile(() => evaluate(code, codeName(start)) as Program);
  if ("program" in compiled) run.enter(compiled.program);
  else run.reject(compiled.refusal);
}

/** Call it when no microtask is left: sends pending frames, and how to go on unless that is to wait for a frame. */
export function settle(): void {
  const current = run!;
  try {
    endTurn();
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

/** Runs the next timer, if it is due. */
export function fire(): void {
  fireTimer();
}
