// `fs` for a program in a session: the engine's own, with its synchronous operations. Promises and callbacks use the
// same functions, because files are local and reading one needs no turn of the engine's event loop.

import { type Action, addOperation, type Exports, fileError, homeOf, named, outside, wholePath, within } from "../file_api.ts";
import type { Mounts } from "../run.ts";

/** Functions that are inherently asynchronous, for which the engine's own are used. */
const WAITING = ["createReadStream", "createWriteStream", "ReadStream", "WriteStream", "openAsBlob"];
/** Functions whose promises give objects. */
const HANDLES = ["open", "opendir"];
const GIVES_PATH = /^(mkdtemp|realpath)Sync$/;
const OF_TWO = /^(rename|copyFile|cp|link|symlink)(Sync)?$/;
const KEPT = ["constants", "Stats", "Dirent", "F_OK", "R_OK", "W_OK", "X_OK"];
/** Operations confined to the directories with which the engine was started. */
const OF_FILES = [
  "chmodSync", "copyFileSync", "lstatSync", "mkdirSync", "readDirSync", "realPathSync", "removeSync", "renameSync", "statSync", "utimeSync",
];
const W_OK = 2;
const { defineProperty, freeze } = Object;

/**
 * Parts of the engine's namespace that its `fs` and `os` use when they are called: file functions, which can do no more
 * than `fs`, the classes of errors, and the temporary directory.
 */
export function fileNamespace(home: string): object {
  const { build: { os }, errors } = Deno;
  const files = Object.fromEntries(OF_FILES.map((name) => [name, (Deno as unknown as Exports)[name]]));
  const get = (name: string): string | undefined => (name === "TMPDIR" ? home : undefined);
  return freeze({ ...files, errors: freeze({ ...errors }), build: freeze({ os }), uid: () => null, env: freeze({ get }) });
}

/** Makes `fs`, with `fs.promises`. */
export function filesOf(engine: Exports, mounts: Mounts, onAsynchronous: () => void): Exports {
  const fs: Exports = {};
  const promises: Exports = {};
  const own = engine.promises as Exports;
  const { real, shown } = placesOf(mounts);
  const accessSync = (path: unknown, mode = 0): void => {
    (engine.statSync as Action)(path);
    const mount = mounts.find(([place, , where]) => within(`${path}`, where ?? place));
    if (mode & W_OK && mount?.[1] === false) throw fileError("EROFS", "read-only file system, access", path);
  };
  const home = homeOf(mounts);
  // The engine's version needs absolute paths.
  const cpSync: Action = (from, to, options) => (engine.cpSync as Action)(real(whole(from, home)), real(whole(to, home)), options);
  const better: Record<string, Action> = { accessSync: accessSync as Action, cpSync };
  const attempt = (action: Action, args: unknown[]): unknown => {
    try {
      const result = action(...args);
      return typeof result === "string" && GIVES_PATH.test(action.name) ? shown(result) : result;
    } catch (error) {
      throw explained(shown(error), args[0], mounts);
    }
  };
  const placed = (name: string, args: unknown[]): unknown[] =>
    args.map((each, index) => (index === 0 || (index === 1 && OF_TWO.test(name)) ? real(each) : each));
  for (const [name, value] of Object.entries(engine)) {
    if (KEPT.includes(name)) fs[name] = value;
    if (typeof value !== "function" || !name.endsWith("Sync")) continue;
    const perform = better[name] ?? value as Action;
    const short = name.slice(0, -4);
    const isPromised = typeof own[short] === "function" && !HANDLES.includes(short);
    addOperation(fs, isPromised ? promises : undefined, name, (...args) => attempt(perform, placed(name, args)));
  }
  for (const [name, value] of Object.entries(own)) {
    if (name in promises || name === "watch") continue;
    promises[name] = typeof value !== "function" ? value : named(name, async (...args: unknown[]) => {
      onAsynchronous();
      try {
        return await (value as Action)(...placed(name, args));
      } catch (error) {
        throw explained(shown(error), args[0], mounts);
      }
    });
  }
  for (const name of WAITING) {
    const value = engine[name];
    if (typeof value !== "function") continue;
    // Also works with `new`.
    fs[name] = new Proxy(value, {
      apply: (target, receiver, args: unknown[]) => (onAsynchronous(), Reflect.apply(target, receiver, placed(name, args)) as unknown),
      construct: (target, args: unknown[]) => (onAsynchronous(), Reflect.construct(target, placed(name, args)) as object),
    });
  }
  fs.promises = promises;
  return fs;
}

/**
 * Maps the program's paths to real ones, and back in the engine's messages. Both are the same if directories are
 * mounted.
 */
function placesOf(mounts: Mounts): { real(path: unknown): unknown; shown(value: unknown): unknown } {
  const moved = mounts.filter(([, , where]) => where !== null);
  if (moved.length === 0) return { real: (path) => path, shown: (value) => value };
  const home = homeOf(moved);
  const real = (path: unknown): unknown => {
    const text = path instanceof URL ? decodeURIComponent(path.pathname) : path;
    if (typeof text !== "string") return path;
    const plain = wholePath(text, home);
    const mount = moved.find(([place]) => within(plain, place));
    return mount === undefined ? path : mount[2]! + plain.slice(mount[0].length);
  };
  const asShown = (text: string): string => moved.reduce((all, [place, , where]) => all.replaceAll(where!, place), text);
  const shown = (error: unknown): unknown => {
    if (typeof error === "string") return asShown(error);
    if (error instanceof Error) {
      const failure = error as Error & { path?: unknown; dest?: unknown };
      for (const key of ["message", "stack", "path", "dest"] as const) {
        const text = failure[key];
        if (typeof text === "string") defineProperty(error, key, { value: asShown(text), configurable: true, writable: true });
      }
    }
    return error;
  };
  return { real, shown };
}

function whole(path: unknown, home: string): unknown {
  return typeof path === "string" && !path.startsWith("/") ? `${home}/${path}` : path;
}

/** Replaces the engine's own error for a path outside the mounts, where node would not find it. */
function explained(error: unknown, path: unknown, mounts: Mounts): unknown {
  if (!(error instanceof Error)) return error;
  const { name, code } = error as Error & { code?: string };
  if (name !== "NotCapable" && code !== "ERR_ACCESS_DENIED") return error;
  return outside("open", path, mounts);
}
