// @ai-sdk/code-mode: QuickJS in a worker thread for each program. It refuses more executions at once than it may have
// workers, so here they wait: it has 32 by default, where memory allows.
import { drive, load, versionOf } from "./harness.mjs";

const { experimental_runCodeMode: runCodeMode, experimental_setMaxWorkers: setMaxWorkers } =
  await load("@ai-sdk/code-mode");
const { tool } = await load("ai");
const { z } = await load("zod");

const WORKERS = 32;

const INPUTS = {
  add: z.object({ a: z.number(), b: z.number() }),
  text: z.object({}),
  slow: z.object({ n: z.number() }),
  hold: z.object({}),
};

/** Lets at most `count` run at the same time. */
function gate(count) {
  const waiting = [];
  let free = count;
  return async (work) => {
    if (free === 0) await new Promise((resolve) => waiting.push(resolve));
    else free -= 1;
    try {
      return await work();
    } finally {
      if (waiting.length > 0) waiting.shift()();
      else free += 1;
    }
  };
}

await drive({
  versions: { "@ai-sdk/code-mode": versionOf("@ai-sdk/code-mode"), run: versionOf("run") },
  start: async (host) => {
    const tools = Object.fromEntries(
      Object.entries(INPUTS).map(([name, inputSchema]) => [
        name,
        tool({ description: name, inputSchema, execute: host.functions[name] }),
      ]),
    );
    setMaxWorkers(WORKERS);
    const gated = gate(WORKERS);
    const options = {
      executionPolicy: {
        timeoutMs: 60_000,
        maxBridgeRequests: 100_000,
        maxInFlightBridgeRequests: 128,
        maxResultBytes: 4_000_000,
      },
    };
    return {
      run: (program) => gated(() => runCodeMode({ js: program, tools, options })),
      close: async () => {},
    };
  },
});
