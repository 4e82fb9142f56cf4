// Before the guest says that it is ready, it runs programs that nobody sees: what every program needs is compiled and run
// by then, the codec and the calls often enough for the engine to have compiled them well.

import { nextTurn } from "../engine.ts";
import { execute, type Streams } from "./execution.ts";
import { FrameReader, FrameWriter, NONCE_BYTES } from "../frames.ts";
import { Kind } from "../kinds.ts";
import { decodeValue } from "../values.ts";

const CODE = `(async (load, enter) => enter(await (async () => {
  const found = [];
  for (let index = 0; index < 8; index++) found.push(await tools.warm_up({ index, name: "x", flags: [true, null] }));
  await Promise.all(Array.from({ length: 64 }, (_, index) => tools.warm_up({ index })));
  try { await tools.warm_up(); } catch (error) { console.log("%s", error.message, { found: [1.5, "x"] }); }
  return { found, total: found.length };
})(), false))`;
const CALLS = 100;
const BYTES = 1_000_000;
const LIMITS = { calls: CALLS, calls_in_flight: CALLS, value_bytes: BYTES, tool_input_bytes: BYTES, log_bytes: BYTES };
const START = JSON.stringify([{ run: 0, code: CODE, tools: ["warm_up"], env: null, limits: LIMITS }]);
const VALUE = `{"id":1,"name":"x","values":[1,2.5,null,true]}`;

/** Runs that many executions in this process. They leave no trace but the globals that the next one defines anew. */
export function warmUp(times: number, done: () => void): void {
  const reader = new FrameReader();
  const answers = new FrameWriter();
  const nonce = new Uint8Array(NONCE_BYTES);
  const streams: Streams = {
    readBlocking(into) {
      let count = 0;
      answers.drain((bytes) => {
        into.set(bytes, count);
        count += bytes.length;
        return bytes.length;
      });
      return count;
    },
    readAsynchronously: () => new Promise(() => {}),
    /** What the host would do with the guest's frames: every call is answered at once, the last with an error. */
    write(bytes) {
      reader.room().set(bytes);
      reader.filled(bytes.length);
      for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
        if (frame.kind !== Kind.call) continue;
        const [sequence] = decodeValue(frame.payload, frame.tagged) as [number];
        const outcome = sequence === 73 ? `false,["tool_failed","ToolFailed","no"]` : `true,${VALUE}`;
        answers.append(Kind.reply, false, `[${sequence},${outcome}]`, nonce);
      }
      return bytes.length;
    },
    exit: () => nextTurn(--times > 0 ? begin : done),
  };
  const begin = (): void => {
    answers.append(Kind.start, false, START, nonce);
    execute(streams);
  };
  nextTurn(begin);
}
