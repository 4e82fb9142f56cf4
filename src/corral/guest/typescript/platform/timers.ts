// Timers like Node's: objects with a callback that are also numbers.

import type { Host } from "./base.ts";

type Callback = (...args: unknown[]) => unknown;
type TimerHost = Pick<Host, "setTimer" | "setImmediate" | "clearTimer" | "started" | "uncaught">;

/** Maximum delay. Longer ones become 1 ms, as in Node. */
const LONGEST_DELAY = 2 ** 31 - 1;

/** Globals for timers. They import nothing from the platform, because durable guests use them without it. */
export function makeTimers(host: TimerHost): Record<string, unknown> {
  const running = { __proto__: null } as unknown as Record<number, Timeout | Immediate>;
  const guarded = (action: () => void): void => {
    try {
      action();
    } catch (error) {
      host.uncaught(error);
    }
  };

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
  const error = new TypeError(`The "callback" argument must be of type function. Received ${received}`);
  throw Object.assign(error, { code: "ERR_INVALID_ARG_TYPE" });
}
