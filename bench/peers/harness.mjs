// The driver's side of a measurement, for engines whose host is node: what bench/driver.py is for Python.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const RUN_MS = 60_000;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const installed = createRequire(join(process.cwd(), "package.json"));

const nextLine = async () => (await lines.next()).value;
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

/** A package that bench/peers/setup has installed in the working directory. */
export const load = (name) => import(pathToFileURL(installed.resolve(name)).href);

/** The version of an installed package, by its own package.json. */
export const versionOf = (name) => installed(join(process.cwd(), "node_modules", name, "package.json")).version;

/** What the programs call. `stamps` are the times, in milliseconds, at which calls of `add` arrived. */
export function hostTools(textLength) {
  const text = "x".repeat(textLength);
  const released = Promise.withResolvers();
  const host = {
    stamps: [],
    held: 0,
    release: released.resolve,
    functions: {
      add: async ({ a, b }) => {
        host.stamps.push(performance.now());
        return a + b;
      },
      text: async () => text,
      slow: async ({ n }) => {
        await new Promise((resolve) => setTimeout(resolve, 10));
        return n;
      },
      hold: async () => {
        host.held += 1;
        await released.promise;
        return 1;
      },
    },
  };
  return host;
}

/** The mean time from one call to the next, in microseconds, without those skipped. */
export function callMicroseconds(stamps, skipped) {
  const counted = stamps.slice(skipped);
  return ((counted.at(-1) - counted[0]) / (counted.length - 1)) * 1000;
}

/**
 * Measures an engine as the plan on standard input says. `timers` says whether its programs have `setTimeout`.
 *
 * `start(host, plan)` makes a fresh provider and gives `{ run, close }`: `run(program)` gives the value of a program
 * that ran in a fresh sandbox, `close()` ends all. Optional: `idle()` makes a sandbox that does nothing and gives a
 * function that ends it. `reach()` is the milliseconds it takes to reach the engine's host, where that is not here;
 * they are taken off. `stamps()` gives the stamps of such a host and forgets them, and `allHeld()` waits until all
 * programs that were started are held there.
 */
export async function drive({ versions, timers = false, start }) {
  const plan = JSON.parse(await nextLine());
  const host = hostTools(plan.text_length);
  const outcome = { samples: {}, errors: {}, versions: { ...versions, node: process.version.slice(1) } };
  const started = performance.now();
  let engine;
  try {
    engine = await start(host, plan);
    check(await bounded(engine.run(plan.trivial)), 1);
  } catch (error) {
    say({ failed: reason(error), versions: outcome.versions });
    process.exit(0);
  }
  outcome.samples.cold = [performance.now() - started];
  // First, because what an engine has freed it may keep.
  if (plan.hold !== "") {
    try {
      await showMemory(engine, host, plan);
    } catch (error) {
      outcome.errors.memory = reason(error);
    }
  }
  const reach = engine.reach === undefined ? 0 : await engine.reach();
  if (reach > 0) outcome.samples.reach = [reach];
  for (const workload of plan.workloads) {
    if (workload.key === "timer-call" && !timers) continue;
    try {
      outcome.samples[workload.key] = await measure(engine, host, workload, { reach, skipped: plan.skipped });
    } catch (error) {
      outcome.errors[workload.key] = reason(error);
    }
  }
  await engine.close();
  say(outcome);
  process.exit(0);
}

async function measure(engine, host, workload, { reach, skipped }) {
  const takeStamps = engine.stamps ?? (() => host.stamps.splice(0));
  const samples = [];
  for (let index = 0; index < workload.warmup + workload.repeats; index++) {
    await takeStamps();
    const started = performance.now();
    const runs = Array.from({ length: workload.at_once }, () => engine.run(workload.program));
    const values = await bounded(Promise.all(runs));
    const elapsed = performance.now() - started - reach;
    for (const value of values) check(value, workload.expected);
    if (index < workload.warmup) continue;
    samples.push(workload.of_calls ? callMicroseconds(await takeStamps(), skipped) : elapsed);
  }
  return samples;
}

// Keeps some sandboxes, and then more; what comes in between is theirs alone. There are more live sandboxes at first
// than there were idle ones at last: an engine may use those again.
async function showMemory(engine, host, plan) {
  const count = plan.sandboxes;
  await pause("rest", 0);
  if (engine.idle !== undefined) {
    const ends = [];
    for (const more of [1, count]) {
      for (let index = 0; index < more; index++) ends.push(await engine.idle());
      await pause("idle", more === 1 ? 0 : count);
    }
    for (const end of ends) await end();
  }
  const runs = [];
  const allHeld = engine.allHeld ?? (() => untilHeld(host, runs));
  try {
    for (const more of [1 + count, count]) {
      for (let index = 0; index < more; index++) runs.push(engine.run(plan.hold));
      await bounded(allHeld());
      await pause("live", more > count ? 0 : count);
    }
  } finally {
    host.release();
  }
  for (const value of await bounded(Promise.all(runs))) check(value, 1);
}

async function untilHeld(host, runs) {
  const ended = Promise.race(runs); // a program that ends now has failed
  while (host.held < runs.length) await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 10))]);
}

async function pause(state, sandboxes) {
  say({ pause: state, sandboxes });
  await nextLine();
}

function bounded(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${RUN_MS / 1000} s`)), RUN_MS);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

function check(value, expected) {
  const found = typeof value === "string" ? value.length : value;
  if (found !== expected) throw new Error(`the program returned ${JSON.stringify(found)}, not ${expected}`);
}

const reason = (error) => (error instanceof Error ? `${error.name}: ${error.message}` : String(error));
