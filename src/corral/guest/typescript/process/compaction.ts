// A server's heap, before it forks: each page of it is mapped and unmapped anew for every process.

import type { Libc } from "./libc.ts";

interface BuiltIns {
  (name: "node:v8"): { setFlagsFromString(flag: string): void };
  (name: "node:vm"): { runInNewContext(code: string): Collect };
}

type Collect = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;

/**
 * Makes what gives back the memory of all garbage, and moves what is left together.
 *
 * The engine's collector is global only in contexts that are made while a flag is set: no program finds it.
 */
export async function openCompaction({ call }: Libc): Promise<() => void> {
  const name = "node:process"; // a name that no checker follows: its types are none of the guest's
  const { default: { getBuiltinModule } } = (await import(name)) as { default: { getBuiltinModule: BuiltIns } };
  const { setFlagsFromString } = getBuiltinModule("node:v8");
  setFlagsFromString("--expose-gc");
  const collect = getBuiltinModule("node:vm").runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  return () => {
    collect({ type: "major", execution: "sync", flavor: "last-resort" });
    call.malloc_trim(0);
  };
}
