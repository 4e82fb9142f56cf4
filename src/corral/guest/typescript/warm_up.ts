// Before the guest says that it is ready, it runs a program that nobody sees: what every program needs is compiled and
// run by then, the codec and the calls often enough for the engine to have compiled them well.

import { evaluate, now, runMicrotasks } from "./engine.ts";
import { FrameReader, FrameWriter, NONCE_BYTES } from "./frames.ts";
import { Kind } from "./kinds.ts";
import { type Program, PROGRAM_NAME, Run } from "./run.ts";
import { decodeValue } from "./values.ts";

const PROGRAM = `(async (load, enter) => enter(await (async () => {
  const found = [];
  for (let index = 0; index < 8; index++) found.push(await tools.warm_up({ index, name: "x", flags: [true, null] }));
  await Promise.all(Array.from({ length: 64 }, (_, index) => tools.warm_up({ index })));
  try { await tools.warm_up(); } catch (error) { console.log("%s", error.message, { found: [1.5, "x"] }); }
  return { found, total: found.length };
})(), false))`;
const CALLS = 100;
const BYTES = 1_000_000;
const LIMITS = { calls: CALLS, calls_in_flight: CALLS, value_bytes: BYTES, tool_input_bytes: BYTES, log_bytes: BYTES };
const REPLY = `{"id":1,"name":"x","values":[1,2.5,null,true]}`;

/** Leaves no trace but the globals that the next run defines anew. */
export function warmUp(): void {
  const reader = new FrameReader();
  const writer = new FrameWriter();
  const nonce = new Uint8Array(NONCE_BYTES);
  /** What the host would do with the guest's frames: every call is answered at once, the last with an error. */
  const answer = (frame: Uint8Array): number => {
    reader.room().set(frame);
    reader.filled(frame.length);
    return frame.length;
  };
  const flush = (): void => writer.drain(answer);
  const host = {
    send: (kind: number, tagged: boolean, payload: string) => writer.append(kind, tagged, payload, nonce),
    flush,
    concluded: () => {},
    now,
  };
  const start = JSON.stringify([
    { run: 0, code: "", tools: ["warm_up"], env: null, limits: LIMITS },
  ]);
  const run = new Run((decodeValue(start, false) as [ConstructorParameters<typeof Run>[0]])[0], host);
  run.defineGlobals();
  run.enter(evaluate(PROGRAM, PROGRAM_NAME) as Program);
  while (!run.over) {
    runMicrotasks();
    run.checkForDeadlock();
    flush();
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
      if (frame.kind !== Kind.call) continue;
      const [sequence] = decodeValue(frame.payload, frame.tagged) as [number];
      const last = sequence === 73;
      const outcome = last ? `false,["tool_failed","ToolFailed","no"]` : `true,${REPLY}`;
      run.settle(`[${sequence},${outcome}]`, false);
    }
  }
  run.exit();
}
