// The surface of node's `fs` over synchronous operations: callbacks and promises use the same functions.

import type { Mounts } from "./run.ts";

export type Exports = Record<string, unknown>;
export type Action = (...args: unknown[]) => unknown;

const { defineProperty } = Object;

/** Adds an operation to `fs`, in all of its forms. Its name ends in "Sync". */
export function addOperation(fs: Exports, promises: Exports | undefined, name: string, action: Action): void {
  const short = name.slice(0, -4);
  fs[name] = named(name, action);
  fs[short] = named(short, short === "exists" ? existence(action) : withCallback(action));
  if (promises !== undefined) promises[short] = named(short, async (...args: unknown[]) => action(...args));
}

export function named(name: string, action: Action): Action {
  return defineProperty(action, "name", { value: name, configurable: true });
}

function withCallback(action: Action): Action {
  return (...args) => {
    const done = args.pop();
    if (typeof done !== "function") throw new TypeError("a callback is missing: use the promises of \"fs/promises\", or the functions that end in Sync");
    let outcome: [unknown, unknown?];
    try {
      outcome = [null, action(...args)];
    } catch (error) {
      outcome = [error];
    }
    queueMicrotask(() => void (done as Action)(...outcome));
  };
}

/** The only function whose callback gets no error. */
function existence(action: Action): Action {
  return (path, done) => queueMicrotask(() => void (done as Action)(action(path)));
}

/** Returns the error for a path outside the mounts, or in a read-only one. */
export function outside(operation: string, path: unknown, mounts: Mounts): Error {
  const places = mounts.map(([place, writable]) => (writable ? place : `${place} (read-only)`)).join(", ");
  return fileError("EACCES", `permission denied, ${operation}`, path, `: programs see the files in ${places}`);
}

export function fileError(code: string, text: string, path: unknown, advice = ""): Error {
  return Object.assign(new Error(`${code}: ${text} '${path}'${advice}`), { code, path: `${path}` });
}

export function within(path: string, place: string): boolean {
  return path === place || path.startsWith(`${place}/`);
}

/** Returns the working directory of programs: the first mount that they may change. */
export function homeOf(mounts: Mounts): string {
  return (mounts.find(([, writable]) => writable) ?? mounts[0])?.[0] ?? "/";
}

/** Returns a path without "." and "..", as an absolute one. */
export function wholePath(path: string, home: string): string {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `${home}/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}
