// Guest of one program that calls tools over HTTP, on a machine that only runs a command and returns its output. The
// program's output goes to standard output and standard error unchanged. The last line of standard output is a mark,
// followed by the outcome.

import { writeBigInts } from "../bigints.ts";
import { compile, evaluate, exit, write } from "../engine.ts";
import { failureClasses } from "../failures.ts";
import { connectFromEnvironment } from "./http.ts";
import { type Encoded, encodeValue, ValueError } from "../values.ts";

interface Job {
  code: string;
  tools: string[];
  env: Record<string, string> | null;
  limits: { tool_input_bytes: number; value_bytes: number };
  mark: string;
}

type Enter = (value: unknown) => unknown;
type Program = (load: (specifier: string, unused?: boolean) => Promise<unknown>, enter: Enter) => Promise<unknown>;

const PROGRAM_NAME = "corral:program.ts";
const MAX_TEXT = 8000;
const { stringify } = JSON;

/** Runs a program and writes its outcome: the mark, its kind, 1 if it is tagged, and JSON. */
export async function run(job: Job): Promise<void> {
  const [kind, { text, tagged }] = await outcome(job);
  let data = new TextEncoder().encode(`\n${job.mark} ${kind} ${tagged ? 1 : 0} ${text}\n`);
  while (data.length > 0) data = data.subarray(write(data));
  exit(0);
}

/** Parts of the global `process` that the engine's own HTTP/2 needs. */
const platform = Object.freeze({ nextTick: (globalThis as unknown as { process: { nextTick: unknown } }).process.nextTick });

async function outcome(job: Job): Promise<[kind: string, content: Encoded]> {
  const { tools } = connectFromEnvironment({ tools: job.tools, maxInputBytes: job.limits.tool_input_bytes });
  const own = job.env === null ? {} : { env: Object.freeze({ ...job.env }) };
  const process = Object.freeze(Object.assign(Object.create(platform), own));
  Object.assign(globalThis, failureClasses, { tools, codemode: tools });
  Object.defineProperty(globalThis, "process", { value: process, configurable: true, writable: true });
  writeBigInts();
  (Error as { prepareStackTrace?: unknown }).prepareStackTrace = programFramesOnly;
  const compiled = compile(() => evaluate(job.code, PROGRAM_NAME) as Program);
  if ("refusal" in compiled) {
    const { message, stack } = compiled.refusal;
    return ["rejected", parts("program_rejected", "SyntaxError", message, stack)];
  }
  try {
    const load = async (_: string, unused = false) => {
      if (!unused) throw new TypeError("programs that call tools over HTTP have no modules");
    };
    const enter: Enter = async (value) => (typeof value === "function" ? (value as (tools: object) => unknown)(tools) : value);
    const value = await compiled.program(load, enter);
    return ["value", encodeValue(value, "result", job.limits.value_bytes)];
  } catch (error) {
    if (error instanceof ValueError && error.tooLarge) return ["error", parts("output_exceeded", "OutputExceeded", error.message)];
    if (!(error instanceof Error)) return ["error", parts("program_failed", "Error", `the program threw ${String(error)}`)];
    const { code } = error as { code?: unknown };
    return ["error", parts(typeof code === "string" ? code : "program_failed", error.name, error.message, error.stack)];
  }
}

function programFramesOnly(error: Error, sites: object[]): string {
  const frames = sites.map(String).filter((frame) => frame.includes(PROGRAM_NAME));
  return [`${error.name}: ${error.message}`, ...frames.map((frame) => `    at ${frame}`)].join("\n");
}

function parts(code: string, name: string, message: string, stack = ""): Encoded {
  const shown = [code, name, message, stack].map((text) => `${text}`.slice(0, MAX_TEXT));
  return { text: stringify([...shown, null]), tagged: false, replaced: false };
}
