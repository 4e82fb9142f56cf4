// Modules that a program imports: packages, as CommonJS texts from START, and built-ins.

import type { World } from "./durable.ts";
import { compile, evaluate, runMicrotasks } from "./engine.ts";
import { unavailable } from "./failures.ts";
import { homeOf } from "./file_api.ts";
import type { Loader, ModuleTexts, Mounts, Start, Text } from "./run.ts";

type Exports = Record<PropertyKey, unknown>;

/** Parts of a loader that depend on the engine. */
export interface Source {
  /** Built-ins of the engine, by name without "node:". */
  builtIns: ReadonlyMap<string, unknown>;
  /** Makes `fs` for a program with files. */
  files(mounts: Mounts, onAsynchronous: () => void): Record<string, unknown>;
  /** Makes the clients of `http` and `https`, over the function that `fetch` returns. Without it, there are none. */
  http?(fetch: () => unknown): Record<"http" | "https", object>;
}

/** Built-ins without access to anything outside the process. */
export const PURE = (
  "assert assert/strict async_hooks buffer console constants crypto diagnostics_channel events os path path/posix path/win32 " +
  "perf_hooks punycode querystring stream stream/consumers stream/promises stream/web string_decoder timers timers/promises " +
  "url util util/types zlib"
).split(" ");
/** Built-ins that exist because packages require them when they load, but whose use is refused. */
const REFUSED = new Set((
  "child_process cluster dgram dns dns/promises domain fs fs/promises http http2 https inspector module net readline " +
  "readline/promises repl sqlite sys test tls trace_events tty v8 vm wasi worker_threads"
).split(" "));
/** Built-ins that have a replacement for programs with network access. */
const SOCKETS = new Set(["dgram", "dns", "dns/promises", "http", "http2", "https", "net", "tls"]);
const FETCH_INSTEAD = "; programs have no sockets: use fetch, for the origins of Network(allow=[...])";
const INSTEAD = "; programs have no sockets: use fetch, http.request, EventSource or WebSocket, for the origins of Network(allow=[...])";
/** Built-ins that never wait for the engine's event loop. */
const SYNCHRONOUS = new Set(["assert", "assert/strict", "buffer", "constants", "events", "path", "path/posix", "path/win32", "punycode", "querystring", "string_decoder", "url", "util", "util/types"]);

const { deleteProperty } = Reflect;
const { assign, getPrototypeOf, setPrototypeOf, defineProperty, hasOwn, freeze } = Object;

export const NO_TEXTS: ModuleTexts = { allowed: [], texts: {}, failures: {} };

/** Modules of one run. */
export class Modules implements Loader {
  process: object;
  #source: Source;
  /** Called when a module is used that not every program has. */
  onUse: (name: string) => void = () => {};
  #texts: ModuleTexts;
  #env: Record<string, string> = {};
  #onAsynchronous: () => void = () => {};
  #networked = false;
  #world: World | undefined;
  #loaded = new Map<string, unknown>();
  /** Texts that were evaluated before the run, each with whether it used something asynchronous. */
  #before = new Map<string, boolean>();
  /** The program's own function, captured before it can be replaced. */
  #fetch = globalThis.fetch;
  #http: Record<"http" | "https", object> | undefined;

  constructor(source: Source, texts: ModuleTexts, mounts: Mounts) {
    this.#source = source;
    this.#texts = texts;
    this.process = processOf(this.#env, homeOf(mounts));
    if (mounts.length > 0) this.give(source.files(mounts, () => this.#onAsynchronous()));
  }

  /**
   * Prepares the loader for a run. Modules that were evaluated before keep the same objects, unless their text comes
   * with the run.
   */
  begin({ modules, env, services = [] }: Start, onAsynchronous: () => void, world?: World): void {
    this.#world = world;
    this.#texts = modules ?? NO_TEXTS;
    this.#onAsynchronous = onAsynchronous;
    this.#networked = services.includes("$fetch");
    this.#fetch = globalThis.fetch;
    freeze(assign(this.#env, env));
    for (const name of this.#before.keys()) {
      if (hasOwn(this.#texts.texts, name) && this.#before.delete(name)) this.#loaded.delete(name);
    }
  }

  next({ modules, services = [] }: Start): void {
    this.#texts = modules ?? NO_TEXTS;
    this.#networked = services.includes("$fetch");
  }

  /** Evaluates a package with its dependencies. A failure is left to the program that imports the package. */
  preload(name: string, asynchronous: boolean): void {
    try {
      this.require(name);
      runMicrotasks();
    } catch {
      return;
    }
    for (const each of this.#loaded.keys()) if (hasOwn(this.#texts.texts, each) && !this.#before.has(each)) this.#before.set(each, asynchronous);
  }

  get preloaded(): string[] {
    return [...this.#before.keys()];
  }

  /** Sets the files of the run. */
  give(fs: Record<string, unknown>): void {
    this.#keep("fs", fs);
    this.#keep("fs/promises", fs.promises);
  }

  /** Returns the namespace for `import * as x`. */
  namespace(specifier: string): unknown {
    return namespaceOf(this.require(specifier));
  }

  /** Returns the result of `require`. */
  require(specifier: string): unknown {
    const plain = specifier.startsWith("node:") ? specifier.slice(5) : specifier;
    const name = plain.endsWith("/") ? plain.slice(0, -1) : plain; // with a slash, packages mean npm's version of a built-in
    if (this.#before.has(name)) {
      restoreProto();
      if (this.#before.get(name)) this.#onAsynchronous();
    }
    if (this.#loaded.has(name)) return this.#loaded.get(name);
    const { texts, failures } = this.#texts;
    if (hasOwn(texts, specifier)) return this.#evaluate(specifier, texts[specifier]!);
    if (name === "process") return this.process;
    const { builtIns } = this.#source;
    if (builtIns.has(name) && name !== "fs") {
      if (!SYNCHRONOUS.has(name)) this.#onAsynchronous();
      const found = builtIns.get(name);
      return this.#world === undefined ? found : this.#keep(name, this.#world.builtIn(name, found));
    }
    if (REFUSED.has(name) || PURE.includes(name)) {
      const own = name === "http" || name === "https" ? this.#client()?.[name] : {};
      return this.#keep(name, refused(name, () => this.#instead(name), own));
    }
    throw this.#missing(specifier, hasOwn(failures, specifier) ? failures[specifier]! : undefined);
  }

  #instead(name: string): string {
    this.onUse(name);
    if (this.#networked && SOCKETS.has(name)) return this.#source.http === undefined ? FETCH_INSTEAD : INSTEAD;
    return PURE.includes(name) ? "; this engine lacks it: ask for sandbox=\"deno\"" : "";
  }

  #client(): Record<"http" | "https", object> | undefined {
    return this.#http ??= this.#source.http?.(() => {
      this.onUse("http");
      this.#onAsynchronous();
      return this.#fetch;
    });
  }

  #evaluate(name: string, { code }: Text): unknown {
    restoreProto();
    const compiled = compile(() => evaluate(`(function (require, module, exports, process, __filename, __dirname) {${code}\n})`, `corral:${name}`));
    if ("refusal" in compiled) throw new SyntaxError(`package "${name}" does not compile: ${compiled.refusal.message}`);
    const module = { exports: {} as unknown, id: name, loaded: false };
    const require = (each: string) => this.require(`${each}`);
    this.#keep(name, module.exports); // for a package that requires itself through another one
    try {
      (compiled.program as (...args: unknown[]) => void).call(module.exports, require, module, module.exports, this.process, `/${name}/index.js`, `/${name}`);
    } catch (error) {
      this.#loaded.delete(name);
      throw error;
    }
    module.loaded = true;
    return this.#keep(name, module.exports);
  }

  #keep(name: string, exports: unknown): unknown {
    this.#loaded.set(name, exports);
    return exports;
  }

  #missing(specifier: string, reason: string | undefined): Error {
    const { allowed } = this.#texts;
    const quoted = JSON.stringify(specifier);
    const owner = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
    const rest = `parts of node such as "path" and "crypto"; the host allows more with Corral(packages=NpmPackages(...))`;
    let message = unavailable(specifier, `programs may import ${rest}`);
    if (allowed.length > 0) message = `module ${quoted} is not available: programs may import ${allowed.join(", ")}, and ${rest}`;
    if (reason !== undefined) message = `module ${quoted} cannot be loaded: ${reason}`;
    else if (allowed.includes(owner)) message = `module ${quoted} was not loaded: write its name as a literal string in \`import ... from\`, \`await import(...)\` or \`require(...)\``;
    return defineProperty(new TypeError(message), "code", { value: "MODULE_NOT_FOUND", configurable: true, writable: true });
  }
}

/** Makes a refused built-in: using any of it, except its `own` part, throws. */
function refused(name: string, instead: () => string, own: object = {}): unknown {
  const say = function (): never {
    throw new TypeError(`module "${name.split(".", 1)[0]}" is not available to programs: ${name}() was not done${instead()}`);
  };
  return new Proxy(Object.assign(say, own), {
    get: (target, key) =>
      typeof key === "symbol" || key === "__esModule" || key === "default" || key === "then" || hasOwn(target, key)
        ? Reflect.get(target, key) as unknown
        : refused(`${name}.${key}`, instead),
  });
}

/** Does what bundlers do: `import * as X` of a package that exports a function is that function, and has `default`. */
function namespaceOf(exports: unknown): unknown {
  if ((typeof exports !== "object" && typeof exports !== "function") || exports === null) return { default: exports };
  const isModule = (exports as Exports).__esModule === true;
  return new Proxy(exports, {
    get: (target, key) => {
      if (key === "default" && !(isModule && key in target)) return target;
      return key === "then" ? undefined : Reflect.get(target, key) as unknown; // the namespace is awaited, but is not a promise
    },
    has: (target, key) => key === "default" || Reflect.has(target, key),
  });
}

function processOf(env: Record<string, string>, home: string): object {
  const nothing = () => {};
  const nextTick = (task: (...args: unknown[]) => void, ...args: unknown[]) => queueMicrotask(() => task(...args));
  const versions = { node: "22.0.0" };
  const streams = { stdout: { isTTY: false }, stderr: { isTTY: false } };
  const listeners = Object.fromEntries(["on", "once", "off", "emit", "removeListener", "emitWarning"].map((each) => [each, nothing]));
  const hrtime = Object.assign(() => [performance.now() / 1000 | 0, performance.now() * 1e6 % 1e9 | 0], { bigint: () => BigInt(performance.now() * 1e6 | 0) });
  return freeze({
    [Symbol.toStringTag]: "process", // packages use it to distinguish node from a browser
    ...listeners, ...streams, env, argv: [], execArgv: [], platform: "linux", arch: "x64", pid: 1,
    version: "v22.0.0", versions, browser: false, exitCode: undefined, cwd: () => home, nextTick, hrtime, umask: () => 0o22,
    uptime: () => performance.now() / 1000, memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
  });
}

let restored = false;

/** Undoes `restoreProto`. */
export function removeProto(): void {
  deleteProperty(Object.prototype, "__proto__");
  restored = false;
}

/** Restores `__proto__`, which older packages assign to, and which the engine removes. */
export function restoreProto(): void {
  if (restored) return;
  restored = true;
  defineProperty(Object.prototype, "__proto__", {
    configurable: true,
    enumerable: false,
    get(this: object) {
      return getPrototypeOf(this) as unknown;
    },
    set(this: object, value: unknown) {
      if (typeof this === "object" || typeof this === "function") {
        if (typeof value === "object" || typeof value === "function") setPrototypeOf(this, value);
      }
    },
  });
}
