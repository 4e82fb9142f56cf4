// Trial of a package. It is loaded in a separate process, which observes whether a server may load it once for all of
// its processes. It must not use anything that these must not share, such as random numbers, or that belongs to one
// program.
//
// The trial detects what packages do in good faith. A package that hides something gains no more in the server than
// here; see docs/design/sessions.md.

import { runMicrotasks } from "../engine.ts";
import { isUnchanged } from "../globals.ts";

interface Loading {
  process: object;
  onUse: (name: string) => void;
  require(specifier: string): unknown;
}

/** Observations of a package while it loaded. */
interface Findings {
  asynchronous: boolean;
  /** Names of environment variables that it read. */
  environment: string[];
  /** Reasons why it has to be evaluated in each process. */
  reasons: string[];
}

type Members = Record<PropertyKey, unknown>;
type Action = (...args: unknown[]) => unknown;

const OF_ONE_PROGRAM = ["console", "tools", "codemode", "fetch", "EventSource", "WebSocket"];
const WAITING = ["setTimeout", "setInterval", "setImmediate", "MessageChannel"];
const DRAWS = /^(random|generate|pseudoRandom|prng|rng|getRandomValues|subtle)/;
const MOST_NAMES = 20;
const NAME_CHARS = 100;
const MOST_REASONS = 5;
const REASON_CHARS = 200;

const { is } = Object;
const { apply, construct, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;

/** Loads a package with `load`, and returns what it did. This process cannot be used for anything else afterwards. */
export function rehearse(load: () => unknown, loader: Loading, builtIns: ReadonlyMap<string, unknown>, isAsynchronous: () => boolean): Findings {
  const reasons = new Set<string>();
  const note = (reason: string): undefined => {
    if (reasons.size < MOST_REASONS) reasons.add(reason.slice(0, REASON_CHARS));
  };
  watchPlatform(note, builtIns);
  const environment = watchProgram(note, loader);
  const before = globalsNow();
  try {
    load();
    runMicrotasks();
  } catch (error) {
    note(`it throws while it loads: ${error instanceof Error ? error.message : typeof error}`);
  }
  for (const [place, value] of globalsNow()) {
    if (!is(before.get(place), value) && !isUnchanged(place, value)) note(`it changes the global ${place}`);
  }
  return { asynchronous: isAsynchronous(), environment: [...environment], reasons: [...reasons] };
}

/** Wraps a function to report its calls, including those with `new`. */
function observed(action: unknown, tell: () => void): unknown {
  return new Proxy(action as Action, {
    apply(target, self, args: unknown[]) {
      tell();
      return apply(target, self, args);
    },
    construct(target, args: unknown[], made) {
      tell();
      return construct(target, args, made) as object;
    },
  });
}

/** Makes members of an object report their use. */
function watchMembers(owner: object, names: PropertyKey[], tell: () => void): void {
  for (const name of names) {
    const descriptor = getOwnPropertyDescriptor(owner, name);
    if (descriptor?.configurable !== true) continue;
    if (descriptor.get) defineProperty(owner, name, { ...descriptor, get: observed(descriptor.get, tell) as () => unknown });
    else if (typeof descriptor.value === "function") defineProperty(owner, name, { ...descriptor, value: observed(descriptor.value, tell) });
  }
}

/** Observes random numbers and timers. Not the clock, because packages are made for long-lived processes. */
function watchPlatform(note: (reason: string) => void, builtIns: ReadonlyMap<string, unknown>): void {
  const draws = () => note("it draws random numbers while it loads");
  const crypto = builtIns.get("crypto") as Members;
  const web = getPrototypeOf(crypto.webcrypto as object)!;
  for (const each of [crypto, web]) watchMembers(each, ownKeys(each).filter((name) => DRAWS.test(String(name))), draws);
  watchMembers(Math, ["random"], draws);

  const waits = (name: string) => note(`it calls ${name} while it loads`);
  for (const name of WAITING) {
    const descriptor = getOwnPropertyDescriptor(globalThis, name);
    if (!descriptor?.get) continue;
    const { get: find, set } = descriptor;
    const accessor = {
      configurable: true,
      get(): unknown {
        const value: unknown = apply(find, globalThis, []);
        defineProperty(globalThis, name, accessor); // the getter has replaced itself by the value
        return observed(value, () => waits(name));
      },
      set,
    };
    defineProperty(globalThis, name, accessor);
    watchMembers(builtIns.get("timers") as object, [name], () => waits(name));
  }
}

/**
 * Observes environment, working directory, files, console, tools and network. Returns the names of the environment
 * variables that are read.
 */
function watchProgram(note: (reason: string) => undefined, loader: Loading): Set<string> {
  const { process } = loader;
  const environment = new Set<string>();
  const listed = (): undefined => note("it lists process.env while it loads");
  const asks = (name: PropertyKey): undefined => {
    if (environment.size >= MOST_NAMES || String(name).length > NAME_CHARS) return listed();
    environment.add(String(name));
  };
  const env = new Proxy({}, {
    get: (_, name) => asks(name),
    has: (_, name) => (asks(name), false),
    getOwnPropertyDescriptor: (_, name) => asks(name),
    ownKeys: () => (listed(), []),
  });
  const own: Members = { ...process, env };
  own.cwd = observed(own.cwd, () => note("it calls process.cwd() while it loads"));
  loader.process = Object.freeze(own);
  defineProperty(globalThis, "process", { value: loader.process, writable: true, configurable: true });

  const opens = () => note("it uses files while it loads");
  loader.onUse = (name) => note(`it uses the module ${name} while it loads`);
  const fs = loader.require("fs") as Members;
  if (typeof fs === "object") for (const each of [fs, fs.promises as Members]) watchMembers(each, ownKeys(each), opens);

  for (const name of OF_ONE_PROGRAM) {
    const { value } = getOwnPropertyDescriptor(globalThis, name) ?? {};
    const tell = () => note(`it reads the global ${name} while it loads`);
    defineProperty(globalThis, name, { configurable: true, get: () => (tell(), value as unknown), set: tell });
  }
  return environment;
}

/** Returns globals, and the members of the language's own. */
function globalsNow(): Map<string, unknown> {
  const globals = new Map<string, unknown>();
  const look = (place: string, owner: object, deeper: number): void => {
    for (const key of ownKeys(owner)) {
      const { get: getter, value } = getOwnPropertyDescriptor(owner, key)!;
      const name = place === "" ? String(key) : `${place}.${String(key)}`;
      globals.set(name, getter ?? value);
      const isLeaf = value === globalThis || name === "process" || isUnchanged(name, value);
      if (deeper > 0 && !isLeaf && (typeof value === "function" || (typeof value === "object" && value !== null))) look(name, value as object, deeper - 1);
    }
  };
  look("", globalThis, 2);
  look("%TypedArray%", getPrototypeOf(Uint8Array)!, 1);
  return globals;
}
