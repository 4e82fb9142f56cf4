// Runs prepared programs in the real engine: a JSON array of {code} on standard input, of outcomes on output. A case
// {strip} is stripped of its types by the engine, and {module} compiled by the engine, as a module.
import { stripTypeScriptTypes } from "node:module";
import { compile, evaluate } from "../../src/corral/guest/typescript/engine.ts";

const tools = { answer: 42 };
const modules = { m: { default: "default of m", b: "b of m" }, n: { default: "default of n", c: "c of n" } };
const load = Object.assign(
  async (specifier, unused) => {
    if (unused === true) return;
    if (!(specifier in modules)) throw new TypeError(`module ${specifier} is not available`);
    return modules[specifier];
  },
  { meta: { main: true } },
);
const enter = async (value, plain) => (typeof value === "function" ? await value(plain ? { ...tools, plain } : tools) : value);

const place = (text) => /program\.ts:(\d+):(\d+)/.exec(text)?.slice(1).map(Number) ?? null;
const plain = (value) => (typeof value === "function" ? "[function]" : value === undefined ? null : value);

async function run({ code, strip, module }) {
  globalThis.ran = [];
  try {
    if (strip !== undefined) return { value: stripTypeScriptTypes(strip) };
    if (module !== undefined) {
      const bytes = new TextEncoder().encode(module);
      const { default: value } = await import(`data:application/typescript;charset=utf-8;base64,${bytes.toBase64()}`);
      return { value: plain(await value) };
    }
    const compiled = compile(() => evaluate(code, "file:///program.ts"));
    if (!("program" in compiled)) {
      const { message, stack } = compiled.refusal;
      return { error: `SyntaxError: ${message}`, place: place(stack), ran: globalThis.ran };
    }
    const { program } = compiled;
    return { value: plain(await program(load, enter)), ran: globalThis.ran };
  } catch (error) {
    if (!(error instanceof Error)) return { error: String(error), place: null, ran: globalThis.ran };
    const text = `${error.message}\n${error.stack}`;
    return { error: `${error.name}: ${error.message.slice(0, 2000)}`, place: place(text), ran: globalThis.ran };
  }
}

const source = await new Response(Deno.stdin.readable).text();
const outcomes = [];
globalThis.addEventListener("unhandledrejection", (event) => event.preventDefault());
globalThis.console = { log() {}, error() {}, warn() {}, info() {} };
for (const each of JSON.parse(source)) outcomes.push(await run(each));
await new Response(JSON.stringify(outcomes)).body.pipeTo(Deno.stdout.writable);
