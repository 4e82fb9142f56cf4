// Modules that a program imports: packages, as CommonJS texts that came with START, and built-ins of the engine.

import { compile, evaluate, runMicrotasks } from "../engine.ts";
import { defineGlobal, rearm } from "../globals.ts";
import type { Loader, ModuleTexts, Mounts, Start, Text } from "../run.ts";
import { filesOf } from "./files.ts";
import { type HttpParts, makeHttp } from "./http.ts";
import { rehearse } from "./rehearsal.ts";

type Exports = Record<PropertyKey, unknown>;
type BuiltIn = (name: string) => unknown;

/** Built-ins that reach nothing outside of the process. */
const PURE = (
  "assert assert/strict async_hooks buffer console constants crypto diagnostics_channel events os path path/posix path/win32 " +
  "perf_hooks punycode querystring stream stream/consumers stream/promises stream/web string_decoder timers timers/promises " +
  "url util util/types zlib"
).split(" ");
/** Those that are there because packages ask for them as they load, and that refuse to be used. */
const REFUSED = new Set((
  "child_process cluster dgram dns dns/promises domain fs fs/promises http http2 https inspector module net readline " +
  "readline/promises repl sqlite sys test tls trace_events tty v8 vm wasi worker_threads"
).split(" "));
/** Of those, the ones for which programs with a network have something else. */
const SOCKETS = new Set(["dgram", "dns", "dns/promises", "http", "http2", "https", "net", "tls"]);
const INSTEAD = "; programs have no sockets: use fetch, http.request, EventSource or WebSocket, for the origins of Network(allow=[...])";
/** Those that never wait for the engine's event loop. */
const SYNCHRONOUS = new Set(["assert", "assert/strict", "buffer", "constants", "events", "path", "path/posix", "path/win32", "punycode", "querystring", "string_decoder", "url", "util", "util/types"]);

const { assign, getPrototypeOf, setPrototypeOf, defineProperty, hasOwn, freeze } = Object;
const { deleteProperty } = Reflect;
const builtIns = new Map<string, unknown>();

/** What gives the engine's built-ins. */
export async function openBuiltIns(): Promise<BuiltIn> {
  const name = "node:process"; // a name that no checker follows: its types are none of the guest's
  const { default: { getBuiltinModule } } = (await import(name)) as { default: { getBuiltinModule: BuiltIn } };
  return getBuiltinModule;
}

/** Loads the engine's built-ins, which need globals that programs do not have. Once, before these are taken away. */
export async function loadBuiltIns(): Promise<void> {
  const getBuiltinModule = await openBuiltIns();
  for (const each of [...PURE, "fs"]) builtIns.set(each, getBuiltinModule(each));
}

const NO_TEXTS: ModuleTexts = { allowed: [], texts: {}, failures: {} };

/** What the loader needs of a run. */
interface Running {
  asynchronous: boolean;
  leavePump(): void;
}

/** What the server evaluates before it forks. */
export interface Preloading {
  modules: ModuleTexts;
  mounts: Mounts;
  /** Packages, in order, and which of them touch something asynchronous as they load. */
  packages: [name: string, asynchronous: boolean][];
}

/** The modules of all runs in processes that are forked from this one. */
let preloaded: Modules | undefined;

/** The loader of one run; none where there is nothing to load. */
export function loaderOf(start: Start, run: Running): Loader | undefined {
  const { modules, mounts = [], rehearses = false } = start;
  if (!modules && mounts.length === 0) return undefined;
  const loader = preloaded ?? new Modules(modules ?? NO_TEXTS, mounts);
  loader.begin(start, () => run.leavePump());
  if (!rehearses) return loader;
  restoreProto();
  const require = (name: string) => rehearse(() => loader.require(name), loader, builtIns, () => run.asynchronous);
  return { process: loader.process, require, namespace: require };
}

/**
 * Evaluates packages in a server, before any run: processes that are forked from it find them made. Gives the texts that
 * were evaluated.
 */
export function preload({ modules, mounts, packages }: Preloading): string[] {
  const loader = preloaded = new Modules(modules, mounts);
  defineGlobal("process", loader.process);
  defineGlobal("require", (specifier: unknown) => loader.require(`${specifier}`));
  for (const [name, asynchronous] of packages) {
    loader.preload(name, asynchronous);
    rearm();
  }
  deleteProperty(Object.prototype, "__proto__");
  restored = false;
  return loader.preloaded;
}

/** The modules of one run. */
export class Modules implements Loader {
  process: object;
  /** Called when a module is used that not every program has. */
  onUse: (name: string) => void = () => {};
  #texts: ModuleTexts;
  #env: Record<string, string> = {};
  #onAsynchronous: () => void = () => {};
  #networked = false;
  #loaded = new Map<string, unknown>();
  /** Texts that were evaluated before the run, and if they touched something asynchronous. */
  #before = new Map<string, boolean>();
  /** The program's own, before it can replace it. */
  #fetch = globalThis.fetch;
  #http: Record<"http" | "https", object> | undefined;

  constructor(texts: ModuleTexts, mounts: Mounts) {
    const home = mounts.find(([, writable]) => writable) ?? mounts[0];
    this.#texts = texts;
    this.process = processOf(this.#env, home?.[0] ?? "/");
    if (mounts.length > 0) this.give(filesOf(builtIns.get("fs") as Record<string, unknown>, mounts, () => this.#onAsynchronous()));
  }

  /**
   * Gives it all that it has of a run; what was evaluated before keeps the same objects. A text that comes with the run
   * takes the place of what was evaluated.
   */
  begin({ modules, env, services = [] }: Start, onAsynchronous: () => void): void {
    this.#texts = modules ?? NO_TEXTS;
    this.#onAsynchronous = onAsynchronous;
    this.#networked = services.includes("$fetch");
    this.#fetch = globalThis.fetch;
    freeze(assign(this.#env, env));
    for (const name of this.#before.keys()) {
      if (hasOwn(this.#texts.texts, name) && this.#before.delete(name)) this.#loaded.delete(name);
    }
  }

  /** Evaluates a package with all that it requires. One that fails is left to the program that imports it. */
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

  /** Gives it files. */
  give(fs: Record<string, unknown>): void {
    this.#keep("fs", fs);
    this.#keep("fs/promises", fs.promises);
  }

  /** What `import * as x` gives. */
  namespace(specifier: string): unknown {
    return namespaceOf(this.require(specifier));
  }

  /** What `require` gives. */
  require(specifier: string): unknown {
    const plain = specifier.startsWith("node:") ? specifier.slice(5) : specifier;
    const name = plain.endsWith("/") ? plain.slice(0, -1) : plain; // by which packages ask for one of npm, where there is one
    if (this.#before.has(name)) {
      restoreProto();
      if (this.#before.get(name)) this.#onAsynchronous();
    }
    if (this.#loaded.has(name)) return this.#loaded.get(name);
    const { texts, failures } = this.#texts;
    if (hasOwn(texts, specifier)) return this.#evaluate(specifier, texts[specifier]!);
    if (name === "process") return this.process;
    if (builtIns.has(name) && name !== "fs") {
      if (!SYNCHRONOUS.has(name)) this.#onAsynchronous();
      return builtIns.get(name);
    }
    if (REFUSED.has(name)) {
      const own = name === "http" || name === "https" ? this.#client()[name] : {};
      return this.#keep(name, refused(name, () => this.#instead(name), own));
    }
    throw this.#missing(specifier, hasOwn(failures, specifier) ? failures[specifier]! : undefined);
  }

  #instead(name: string): string {
    this.onUse(name);
    return this.#networked && SOCKETS.has(name) ? INSTEAD : "";
  }

  #client(): Record<"http" | "https", object> {
    return this.#http ??= makeHttp(Object.fromEntries(builtIns) as unknown as HttpParts, () => {
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
    this.#keep(name, module.exports); // for a package that asks for itself, by way of another one
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
    let message = `module ${quoted} is not available: programs may import ${allowed.join(", ")}, and parts of node such as "path" and "crypto"; the host allows more with Corral(packages=NpmPackages(...))`;
    if (reason !== undefined) message = `module ${quoted} cannot be loaded: ${reason}`;
    else if (allowed.includes(owner)) message = `module ${quoted} is not at hand: write its name out as a text in \`import ... from\`, \`await import(...)\` or \`require(...)\``;
    return defineProperty(new TypeError(message), "code", { value: "MODULE_NOT_FOUND", configurable: true, writable: true });
  }
}

/** A built-in that programs do not get: whatever is taken of it, but for its `own` part, refuses to be used. */
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

/** As bundlers make it: `import * as X` of a package that exports a function is that function, and has `default`. */
function namespaceOf(exports: unknown): unknown {
  if ((typeof exports !== "object" && typeof exports !== "function") || exports === null) return { default: exports };
  const isModule = (exports as Exports).__esModule === true;
  return new Proxy(exports, {
    get: (target, key) => {
      if (key === "default" && !(isModule && key in target)) return target;
      return key === "then" ? undefined : Reflect.get(target, key) as unknown; // it is awaited, and is no promise
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
    [Symbol.toStringTag]: "process", // by which packages tell node from a browser
    ...listeners, ...streams, env, argv: [], execArgv: [], platform: "linux", arch: "x64", pid: 1,
    version: "v22.0.0", versions, browser: false, exitCode: undefined, cwd: () => home, nextTick, hrtime, umask: () => 0o22,
    uptime: () => performance.now() / 1000, memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
  });
}

let restored = false;

/** Older packages assign to `__proto__`, which the engine has taken away. */
function restoreProto(): void {
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
