// Guest of one program: reads START, runs the program in the engine's own context, sends EXIT and ends.

import { args, exit, nextTurn, readAsynchronously, readBlocking, write } from "../engine.ts";
import { execute, prepareGlobals, sendReady, type Streams } from "./execution.ts";
import { asLines } from "./lines.ts";
import { warmUp } from "./warm_up.ts";

const pipes: Streams = { readBlocking, readAsynchronously, write, exit: () => exit(0) };
const streams = args.includes("--lines") ? asLines(pipes) : pipes;
const MANY_CALLS = 64;
const warmsUp = args.includes("--warm-up"); // for a guest that is started in advance
const begin = (): void => {
  sendReady(streams);
  execute(streams);
};
void prepareGlobals().then(() => {
  if (warmsUp) warmUp(1, MANY_CALLS, begin);
  else nextTurn(begin); // the engine's first turn of the event loop takes 1 ms
});
