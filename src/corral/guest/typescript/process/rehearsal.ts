// The trial of a package: it is loaded in a process of its own, and what it does meanwhile says whether a server may load it
// once for all of its processes. Not what they must not share, such as random numbers, nor what belongs to one program.
//
// It finds what packages do in good faith. One that hides something from it finds no more in the server than here: see
// docs/design/sessions.md.

import { runMicrotasks } from "../engine.ts";
import { isUnchanged } from "../globals.ts";

interface Loading {
  process: object;
  onUse: (name: string) => void;
  require(specifier: string): unknown;
}

/** What a package did while it loaded. */
export interface Findings {
  asynchronous: boolean;
  /** Names of the environment that it asked for. */
  environment: string[];
  /** Why it is to be evaluated in each process. */
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

/** Loads a package by `load`, and says what it did. This process is good for nothing else afterwards. */
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

/** A function that tells when it is called, also with `new`. */
function told(action: unknown, tell: () => void): unknown {
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

/** Has members of an object tell of their use. */
function watchMembers(owner: object, names: PropertyKey[], tell: () => void): void {
  for (const name of names) {
    const found = getOwnPropertyDescriptor(owner, name);
    if (found?.configurable !== true) continue;
    if (found.get) defineProperty(owner, name, { ...found, get: told(found.get, tell) as () => unknown });
    else if (typeof found.value === "function") defineProperty(owner, name, { ...found, value: told(found.value, tell) });
  }
}

/** Random numbers and timers. Not the clock: packages are made for processes that live long. */
function watchPlatform(note: (reason: string) => void, builtIns: ReadonlyMap<string, unknown>): void {
  const draws = () => note("it draws random numbers while it loads");
  const crypto = builtIns.get("crypto") as Members;
  const web = getPrototypeOf(crypto.webcrypto as object)!;
  for (const each of [crypto, web]) watchMembers(each, ownKeys(each).filter((name) => DRAWS.test(String(name))), draws);
  watchMembers(Math, ["random"], draws);

  const waits = (name: string) => note(`it calls ${name} while it loads`);
  for (const name of WAITING) {
    const found = getOwnPropertyDescriptor(globalThis, name);
    if (!found?.get) continue;
    const { get: find, set } = found;
    const accessor = {
      configurable: true,
      get(): unknown {
        const value: unknown = apply(find, globalThis, []);
        defineProperty(globalThis, name, accessor); // which has put the value in its place
        return told(value, () => waits(name));
      },
      set,
    };
    defineProperty(globalThis, name, accessor);
    watchMembers(builtIns.get("timers") as object, [name], () => waits(name));
  }
}

/** What a program has of its own: environment, working directory, files, console, tools, network. Gives what is read of the first. */
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
  own.cwd = told(own.cwd, () => note("it calls process.cwd() while it loads"));
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

/** Globals, and what the language's own have. */
function globalsNow(): Map<string, unknown> {
  const found = new Map<string, unknown>();
  const look = (place: string, owner: object, deeper: number): void => {
    for (const key of ownKeys(owner)) {
      const { get: getter, value } = getOwnPropertyDescriptor(owner, key)!;
      const name = place === "" ? String(key) : `${place}.${String(key)}`;
      found.set(name, getter ?? value);
      const isLeaf = value === globalThis || name === "process" || isUnchanged(name, value);
      if (deeper > 0 && !isLeaf && (typeof value === "function" || (typeof value === "object" && value !== null))) look(name, value as object, deeper - 1);
    }
  };
  look("", globalThis, 2);
  look("%TypedArray%", getPrototypeOf(Uint8Array)!, 1);
  return found;
}
