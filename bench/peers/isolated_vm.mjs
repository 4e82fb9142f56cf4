// isolated-vm: an isolate for each program, with `tools` made of one host function; values travel as JSON, as in any
// code mode that is built on it.
import { drive, load, versionOf } from "./harness.mjs";

const { default: ivm } = await load("isolated-vm");

const PRELUDE = `
  const call = $0;
  const options = { arguments: { copy: true }, result: { promise: true, copy: true } };
  globalThis.tools = new Proxy({}, {
    get: (_, name) => async (input) =>
      JSON.parse(await call.apply(undefined, [name, JSON.stringify(input ?? {})], options)),
  });
`;

async function makeIsolate(call) {
  const isolate = new ivm.Isolate({ memoryLimit: 64 });
  const context = await isolate.createContext();
  await context.evalClosure(PRELUDE, [new ivm.Reference(call)]);
  return { isolate, context };
}

await drive({
  versions: { "isolated-vm": versionOf("isolated-vm") },
  start: async (host) => {
    const call = async (name, input) => JSON.stringify(await host.functions[name](JSON.parse(input)));
    return {
      run: async (program) => {
        const { isolate, context } = await makeIsolate(call);
        try {
          return await context.evalClosure(`return (async () => {${program}\n})()`, [], {
            result: { promise: true, copy: true },
          });
        } finally {
          isolate.dispose();
        }
      },
      idle: async () => {
        const { isolate } = await makeIsolate(call);
        return () => isolate.dispose();
      },
      close: async () => {},
    };
  },
});
