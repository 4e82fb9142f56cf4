// A server's heap, before it forks: each page of it is mapped and unmapped anew for every process.

import type { Libc } from "./libc.ts";
import { openBuiltIns } from "./modules.ts";

type Collect = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;

/**
 * Makes what gives back the memory of all garbage, and moves what is left together.
 *
 * The engine's collector is global only in contexts that are made while a flag is set: no program finds it. Of an engine
 * that has none the garbage stays.
 */
export async function openCompaction({ call }: Libc): Promise<() => void> {
  const builtIn = await openBuiltIns();
  const { setFlagsFromString } = builtIn("v8") as { setFlagsFromString(flag: string): void };
  const { runInNewContext } = builtIn("vm") as { runInNewContext(code: string): Collect | undefined };
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("globalThis.gc");
  setFlagsFromString("--no-expose-gc");
  return () => {
    collect?.({ type: "major", execution: "sync", flavor: "last-resort" });
    call.malloc_trim(0);
  };
}
