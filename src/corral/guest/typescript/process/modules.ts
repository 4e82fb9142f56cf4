// Modules of Deno's programs: the engine's own built-ins, and packages that a server evaluates before it forks.

import type { World } from "../durable.ts";
import { defineGlobal, rearm } from "../globals.ts";
import { Modules, NO_TEXTS, PURE, removeProto, restoreProto, type Source } from "../loader.ts";
import type { Loader, ModuleTexts, Mounts, Start } from "../run.ts";
import { filesOf } from "./files.ts";
import { type HttpParts, makeHttp } from "./http.ts";
import { rehearse } from "./rehearsal.ts";

type BuiltIn = (name: string) => unknown;

const builtIns = new Map<string, unknown>();
const source: Source = {
  builtIns,
  files: (mounts, onAsynchronous) => filesOf(builtIns.get("fs") as Record<string, unknown>, mounts, onAsynchronous),
  http: (fetch) => makeHttp(Object.fromEntries(builtIns) as unknown as HttpParts, fetch as () => typeof globalThis.fetch),
};

/** Returns the function that loads the engine's built-ins. */
export async function openBuiltIns(): Promise<BuiltIn> {
  const name = "node:process"; // a variable, because type checkers would follow a literal to types that the guest lacks
  const { default: { getBuiltinModule } } = (await import(name)) as { default: { getBuiltinModule: BuiltIn } };
  return getBuiltinModule;
}

/**
 * Loads the engine's built-ins, which need globals that programs do not get. Call it once, before these are removed.
 */
export async function loadBuiltIns(): Promise<void> {
  const getBuiltinModule = await openBuiltIns();
  for (const each of [...PURE, "fs"]) builtIns.set(each, getBuiltinModule(each));
}

/** Services of the run for its loader. */
interface Running {
  asynchronous: boolean;
  world: World | undefined;
  leavePump(): void;
}

/** Input for preloading in a server before it forks. */
export interface Preloading {
  modules: ModuleTexts;
  mounts: Mounts;
  /** Packages, in order, and those that use something asynchronous when they load. */
  packages: [name: string, asynchronous: boolean][];
}

/** Modules for all runs in processes that are forked from this one. */
let preloaded: Modules | undefined;

/** Returns the loader of one run; undefined if there is nothing to load. */
export function loaderOf(start: Start, run: Running): Loader | undefined {
  const { modules, mounts = [], rehearses = false } = start;
  if (!modules && mounts.length === 0) return undefined;
  const loader = preloaded ?? new Modules(source, modules ?? NO_TEXTS, mounts);
  loader.begin(start, () => run.leavePump(), run.world);
  if (!rehearses) return loader;
  restoreProto();
  const require = (name: string) => rehearse(() => loader.require(name), loader, builtIns, () => run.asynchronous);
  return { process: loader.process, require, namespace: require };
}

/**
 * Evaluates packages in a server, before any run, for the processes that are forked from it. Returns the evaluated
 * texts.
 */
export function preload({ modules, mounts, packages }: Preloading): string[] {
  const loader = preloaded = new Modules(source, modules, mounts);
  defineGlobal("process", loader.process);
  defineGlobal("require", (specifier: unknown) => loader.require(`${specifier}`));
  for (const [name, asynchronous] of packages) {
    loader.preload(name, asynchronous);
    rearm();
  }
  removeProto();
  return loader.preloaded;
}
