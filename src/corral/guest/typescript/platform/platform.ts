// The platform's globals, for an engine that has only the language: the classes of other modules, `crypto` with random numbers
// that the host draws, and timers like Node's, which are objects with a callback and also numbers.

import { ask, coded, dictionary, DOMException, enumerable, guarded, type Host, illegal, need, openHost, OURS, tag } from "./base.ts";
import { Blob, Headers, Response } from "./blobs.ts";
import { Buffer } from "./buffer.ts";
import { AbortController, AbortSignal, CustomEvent, Event, EventTarget } from "./events.ts";
import { arrayName, bytesOf, clone } from "./intrinsics.ts";
import { atob, btoa, TextDecoder, TextEncoder } from "./text.ts";
import { URL, URLSearchParams } from "./url.ts";

type Callback = (...args: unknown[]) => unknown;

/** A longer delay becomes 1 ms, as in Node. */
const LONGEST_DELAY = 2 ** 31 - 1;

/** The globals for timers. */
function makeTimers(host: Host): Record<string, unknown> {
  const running = { __proto__: null } as unknown as Record<number, Timeout | Immediate>;

  class Timeout {
    _onTimeout: Callback;
    #args: unknown[];
    #milliseconds: number;
    #repeats: boolean;
    #timer = 0;
    #referenced = true;
    _destroyed = false;

    constructor(callback: Callback, milliseconds: unknown, args: unknown[], repeats: boolean) {
      this._onTimeout = callback;
      this.#args = args;
      const delay = Number(milliseconds);
      this.#milliseconds = delay >= 1 && delay <= LONGEST_DELAY ? delay : 1;
      this.#repeats = repeats;
      this.#start();
    }

    #start(): void {
      const fire = () => {
        if (!this.#repeats) this.close();
        guarded(() => this._onTimeout(...this.#args));
      };
      this.#timer = host.setTimer(fire, this.#milliseconds, this.#repeats);
      running[this.#timer] = this;
      this._destroyed = false;
      host.started(this, this.#repeats ? undefined : this._onTimeout);
    }

    close(): this {
      this._destroyed = true;
      host.clearTimer(this.#timer);
      delete running[this.#timer];
      return this;
    }

    refresh(): this {
      this.close();
      this.#start();
      return this;
    }

    ref(): this {
      this.#referenced = true;
      return this;
    }

    unref(): this {
      this.#referenced = false;
      return this;
    }

    hasRef(): boolean {
      return this.#referenced;
    }

    [Symbol.toPrimitive](): number {
      return this.#timer;
    }

    [Symbol.dispose](): void {
      this.close();
    }
  }

  class Immediate {
    _onImmediate: Callback;
    _destroyed = false;
    #timer: number;

    constructor(callback: Callback, args: unknown[]) {
      this._onImmediate = callback;
      this.#timer = host.setImmediate(() => {
        delete running[this.#timer];
        this._destroyed = true;
        guarded(() => this._onImmediate(...args));
      });
      running[this.#timer] = this;
      host.started(this, callback);
    }

    close(): void {
      this._destroyed = true;
      host.clearTimer(this.#timer);
      delete running[this.#timer];
    }

    [Symbol.dispose](): void {
      this.close();
    }
  }

  const clear = (timer: unknown): void => {
    const active = timer instanceof Timeout || timer instanceof Immediate ? timer : running[Number(timer)];
    active?.close();
  };
  return {
    setTimeout: (callback: Callback, milliseconds?: unknown, ...args: unknown[]) =>
      new Timeout(checked(callback), milliseconds, args, false),
    setInterval: (callback: Callback, milliseconds?: unknown, ...args: unknown[]) =>
      new Timeout(checked(callback), milliseconds, args, true),
    setImmediate: (callback: Callback, ...args: unknown[]) => new Immediate(checked(callback), args),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  };
}

function checked(callback: Callback): Callback {
  if (typeof callback === "function") return callback;
  const shown = typeof callback === "string" ? `'${callback}'` : `${callback}`;
  const received = callback === null || callback === undefined ? shown : `type ${typeof callback} (${shown})`;
  throw coded(new TypeError(`The "callback" argument must be of type function. Received ${received}`), "ERR_INVALID_ARG_TYPE");
}

const { isView } = ArrayBuffer;
const INTEGERS = /^(Big)?(Int|Uint)\d+(Clamped)?Array$/;

const random = (count: number): Uint8Array => Uint8Array.fromBase64(ask("random", count));

class Crypto {
  #ours = true;

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  getRandomValues<T>(array: T): T {
    void this.#ours;
    need("Failed to execute 'getRandomValues' on 'Crypto'", arguments, 1);
    const bytes = isView(array) ? bytesOf(array) : undefined;
    if (bytes === undefined || !INTEGERS.test(arrayName(array as object) ?? "")) {
      throw new DOMException("The provided value is not an integer-type TypedArray", "TypeMismatchError");
    }
    if (bytes.length > 65536) {
      const text = `The ArrayBufferView's byte length (${bytes.length}) exceeds the number of bytes of entropy available via this API (65536)`;
      throw new DOMException(text, "QuotaExceededError");
    }
    bytes.set(random(bytes.length));
    return array;
  }

  randomUUID(): string {
    void this.#ours;
    const bytes = random(16);
    bytes[6] = (bytes[6]! & 0x0f) | 0x40;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
tag(Crypto);
enumerable(Crypto);

const { defineProperty } = Object;
const queue = queueMicrotask;

function structuredClone(value: unknown, options?: unknown): unknown {
  need("Failed to execute 'structuredClone'", arguments, 1);
  const { transfer } = dictionary(options) as { transfer?: Iterable<unknown> };
  const known = (object: object): object | undefined => {
    if (object instanceof DOMException) return new DOMException(object.message, object.name);
    return object instanceof Blob ? object.slice() : undefined;
  };
  return clone(value, transfer === undefined ? [] : [...transfer], known, (text) => new DOMException(text, "DataCloneError"));
}

/** Like the language's own, but reports errors of callbacks to the host. */
function guardedQueue(callback: () => void): void {
  if (typeof callback !== "function") throw new TypeError("queueMicrotask takes a function");
  queue(() => guarded(callback));
}

/** Defines the platform in the global scope. */
export function definePlatform(host: Host): void {
  openHost(host);
  const parts = {
    AbortController, AbortSignal, Blob, Buffer, Crypto, CustomEvent, DOMException, Event, EventTarget, Headers, Response,
    TextDecoder, TextEncoder, URL, URLSearchParams, atob, btoa, structuredClone,
    queueMicrotask: guardedQueue,
    crypto: new Crypto(OURS),
    performance: { now: () => host.now(), timeOrigin: host.timeOrigin },
    ...makeTimers(host),
  };
  for (const [name, value] of Object.entries(parts)) {
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
}
