// The worker that is the host of the tools. Runs in workerd.
import { DynamicWorkerExecutor } from "./index.js";

const HOLD_MS = 3000;
let stamps = [];

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const functions = (env) => ({
  add: async ({ a, b }) => {
    stamps.push(performance.now());
    return a + b;
  },
  text: async () => "x".repeat(env.TEXT_LENGTH),
  slow: async ({ n }) => {
    await wait(10);
    return n;
  },
  hold: async () => {
    await wait(HOLD_MS);
    return 1;
  },
});

async function answer(request, env) {
  switch (new URL(request.url).pathname) {
    case "/run": {
      const executor = new DynamicWorkerExecutor({ loader: env.LOADER });
      const code = `async () => {${await request.text()}\n}`;
      return executor.execute(code, [{ name: "tools", fns: functions(env) }]);
    }
    case "/stamps":
      return { result: stamps.splice(0) };
    default:
      return { result: null };
  }
}

export default {
  fetch: async (request, env) => Response.json(await answer(request, env)),
};
