// Guest of one program: reads START, runs the program in the engine's own context, sends EXIT and ends.

import { args, exit, nextTurn, readAsynchronously, readBlocking, write } from "../engine.ts";
import { bytesFromBase64, bytesToBase64 } from "../values.ts";
import { execute, prepareGlobals, sendReady, type Streams } from "./execution.ts";
import { warmUp } from "./warm_up.ts";

const { apply } = Reflect;
const Bytes = Uint8Array;
const READ_BYTES = 65536;
const NEWLINE = 10;
const encoder = new TextEncoder();
const decoder = new TextDecoder("latin1");

/** Wraps streams for standard streams that carry only text: frames are lines of base64. */
function asLines({ readBlocking, readAsynchronously, write, exit }: Streams): Streams {
  const chunk = new Bytes(READ_BYTES);
  let line = "";
  let bytes = new Bytes(0);
  let at = 0;

  /** Decodes the lines that the chunk completes. */
  const decode = (count: number): void => {
    const end = chunk.lastIndexOf(NEWLINE, count - 1) + 1;
    line += decoder.decode(chunk.subarray(0, end));
    if (end > 0) {
      const lines = line.split("\n").map((each) => bytesFromBase64(each));
      bytes = new Bytes(lines.reduce((sum, each) => sum + each.length, 0));
      at = 0;
      let start = 0;
      for (const each of lines) {
        bytes.set(each, start);
        start += each.length;
      }
      line = "";
    }
    line += decoder.decode(chunk.subarray(end, count));
  };
  const take = (into: Uint8Array): number => {
    const piece = bytes.subarray(at, at + into.length);
    into.set(piece);
    at += piece.length;
    return piece.length;
  };

  return {
    exit,
    readBlocking(into) {
      while (at === bytes.length) {
        const count = readBlocking(chunk);
        if (count === 0) return 0;
        decode(count);
      }
      return take(into);
    },
    async readAsynchronously(into) {
      while (at === bytes.length) {
        const count = await readAsynchronously(chunk);
        if (count === 0) return 0;
        decode(count);
      }
      return take(into);
    },
    write(frames) {
      let rest = encoder.encode(`${apply(bytesToBase64, frames, []) as string}\n`);
      while (rest.length > 0) rest = rest.subarray(write(rest));
      return frames.length;
    },
  };
}

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
