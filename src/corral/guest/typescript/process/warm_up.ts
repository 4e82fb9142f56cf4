// Before the guest reports READY, it runs hidden programs, so that everything that programs need is already compiled
// and has run, and the codec and the calls have run often enough for the engine to optimize them.

import { nextTurn } from "../engine.ts";
import { execute, type Streams } from "./execution.ts";
import { copy, FrameReader, FrameWriter, NONCE_BYTES } from "../frames.ts";
import { Kind } from "../kinds.ts";
import { decodeValue, sizeOf } from "../values.ts";

/** Makes calls one after the other, `parallel` ones at the same time, and one that fails. */
const codeOf = (parallel: number) => `(async (load, enter) => enter(await (async () => {
  const values = [];
  for (let index = 0; index < ${SEQUENTIAL}; index++) values.push(await tools.warm_up({ index, name: "x", flags: [true, null] }));
  await Promise.all(Array.from({ length: ${parallel} }, (_, index) => tools.warm_up({ index })));
  try { await tools.warm_up(); } catch (error) { console.log("%s", error.message, { values: [1.5, "x"] }); }
  return { values, total: values.length };
})(), false))`;
const SEQUENTIAL = 8;
const CALLS = 100;
const BYTES = 1_000_000;
const LIMITS = { calls: CALLS, calls_in_flight: CALLS, value_bytes: BYTES, tool_input_bytes: BYTES, log_bytes: BYTES };
const VALUE = `{"id":1,"name":"x","values":[1,2.5,null,true]}`;

/**
 * Uses the parts of the platform that the engine loads lazily. Runs before globals are restricted, so that a program's
 * first use is still noticed. Draws no random numbers, because forked processes would have copies of them.
 */
export async function warmUpPlatform(): Promise<void> {
  await new Promise((done) => setTimeout(done, 0));
  await new Promise<void>((done) => setImmediate(done));
  await crypto.subtle.digest("SHA-256", new Uint8Array(1));
  new AbortController().abort();
  const stream = new Blob(["x"]).stream().pipeThrough(new CompressionStream("gzip"));
  await new Response(stream).arrayBuffer();
  await new Request("data:,", { method: "POST", body: new URLSearchParams({ x: "1" }) }).text();
  structuredClone(new Map([[1, [new Date()]]]));
  new URLPattern({ pathname: "/:x" }).test("https://x/y");
}

/** Parts of the language that the engine loads lazily, in steps. */
export const LANGUAGE: readonly (() => void)[] = [
  () => void new Date(0).toLocaleString("en-US", { timeZone: "UTC" }),
  () => void (0.5).toLocaleString("en-US", { style: "currency", currency: "USD" }),
  () => void "a".localeCompare("b"),
  () => void new Intl.PluralRules("en-US").select(1),
];

const nonce = new Uint8Array(NONCE_BYTES);

/** Created once, because a forked process would have to write to new ones. */
let made: { reader: FrameReader; answers: FrameWriter } | undefined;

/**
 * Runs a number of executions in this process. They leave no trace except the globals, which the next one redefines.
 */
export function warmUp(times: number, parallel: number, done: () => void): void {
  const { reader, answers } = made ??= { reader: new FrameReader(), answers: new FrameWriter() };
  const start = JSON.stringify([{ run: 0, code: codeOf(parallel), tools: ["warm_up"], env: null, limits: LIMITS }]);
  const last = SEQUENTIAL + parallel + 1;
  const streams: Streams = {
    readBlocking(into) {
      let count = 0;
      answers.drain((bytes) => {
        const size = sizeOf(bytes);
        copy(into, bytes, count);
        count += size;
        return size;
      });
      return count;
    },
    readAsynchronously: () => new Promise(() => {}),
    /** Plays the host for the guest's frames. Every call is answered at once, the last one with an error. */
    write(bytes) {
      const size = sizeOf(bytes);
      copy(reader.room(), bytes, 0);
      reader.filled(size);
      for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
        if (frame.kind !== Kind.call) continue;
        const [sequence] = decodeValue(frame.payload, frame.tagged) as [number];
        const outcome = sequence === last ? `false,["tool_failed","ToolFailed","no"]` : `true,${VALUE}`;
        answers.append(Kind.reply, false, `[${sequence},${outcome}]`, nonce);
      }
      return size;
    },
    exit: () => nextTurn(--times > 0 ? begin : done),
  };
  const begin = (): void => {
    answers.append(Kind.start, false, start, nonce);
    execute(streams);
  };
  nextTurn(begin);
}
