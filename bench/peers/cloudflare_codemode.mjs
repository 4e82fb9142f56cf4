// @cloudflare/codemode: a dynamic worker for each program, in workerd on this machine. The host of the tools is the
// worker of cloudflare_worker.mjs, as it would be in production; what it takes to reach that from node is taken off.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { drive, load, versionOf } from "./harness.mjs";

const { Miniflare } = await load("miniflare");

const PACKAGES = join(process.cwd(), "node_modules");
const URL_OF_WORKER = "http://worker.invalid/";
// For programs to reach their call of `hold`, which lasts longer than two of these: a request cannot wake another.
const HELD_MS = 700;
const REACHES = 100;

/** The package's modules: its entry, and all that it imports with relative names. */
async function packageModules() {
  const modules = [];
  const waiting = ["index.js"];
  for (const path of waiting) {
    const contents = await readFile(join(PACKAGES, "@cloudflare/codemode/dist", path), "utf8");
    modules.push({ type: "ESModule", path, contents });
    for (const [, imported] of contents.matchAll(/from "\.\/([^"]+)"/g)) {
      if (!waiting.includes(imported)) waiting.push(imported);
    }
  }
  const acorn = await readFile(join(PACKAGES, "acorn/dist/acorn.mjs"), "utf8");
  return [...modules, { type: "ESModule", path: "acorn", contents: acorn }];
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

await drive({
  timers: true,
  versions: {
    "@cloudflare/codemode": versionOf("@cloudflare/codemode"),
    miniflare: versionOf("miniflare"),
    workerd: versionOf("workerd"),
  },
  start: async (_host, plan) => {
    const worker = await readFile(new URL("cloudflare_worker.mjs", import.meta.url), "utf8");
    const miniflare = new Miniflare({
      modules: [{ type: "ESModule", path: "worker.mjs", contents: worker }, ...(await packageModules())],
      bindings: { TEXT_LENGTH: plan.text_length },
      compatibilityDate: "2026-06-01",
      compatibilityFlags: ["nodejs_compat"],
      workerLoaders: { LOADER: {} },
    });
    const ask = async (question, body = "") => {
      const url = `${URL_OF_WORKER}${question}`;
      const response = await miniflare.dispatchFetch(url, { method: "POST", body });
      const answer = await response.json();
      if (answer.error !== undefined) throw new Error(answer.error);
      return answer.result;
    };
    const run = (program) => ask("run", program);
    return {
      run,
      stamps: () => ask("stamps"),
      reach: async () => {
        const times = [];
        for (let index = 0; index < REACHES; index++) {
          const started = performance.now();
          await ask("nothing");
          times.push(performance.now() - started);
        }
        return median(times.slice(REACHES / 2));
      },
      allHeld: () => new Promise((resolve) => setTimeout(resolve, HELD_MS)),
      close: () => miniflare.dispose(),
    };
  },
});
