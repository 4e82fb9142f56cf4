// Events, their targets, and signals for aborting.

import { type Callable, dictionary, DOMException, enumerable, guarded, host, need, OURS, tag } from "./base.ts";
import { isObject } from "./intrinsics.ts";

const { apply } = Reflect;

interface Listener {
  type: string;
  callback: object;
  once: boolean;
  passive: boolean;
  removed: boolean;
}

interface Dispatch {
  target: EventTarget | null;
  stopped: boolean;
  prevented: boolean;
  passive: boolean;
  dispatching: boolean;
}

let stateOf: (event: Event) => Dispatch;
export class Event {
  #type: string;
  #bubbles: boolean;
  #cancelable: boolean;
  #state: Dispatch = { target: null, stopped: false, prevented: false, passive: false, dispatching: false };

  static {
    stateOf = (event) => event.#state;
  }

  constructor(type: unknown, init?: unknown) {
    need(`Failed to construct '${new.target.name}'`, arguments, 1);
    const { bubbles, cancelable } = dictionary(init);
    this.#type = `${type}`;
    this.#bubbles = !!bubbles;
    this.#cancelable = !!cancelable;
  }

  get type(): string {
    return this.#type;
  }

  get target(): EventTarget | null {
    return this.#state.target;
  }

  get currentTarget(): EventTarget | null {
    return this.#state.dispatching ? this.#state.target : null;
  }

  get bubbles(): boolean {
    return this.#bubbles;
  }

  get cancelable(): boolean {
    return this.#cancelable;
  }

  get defaultPrevented(): boolean {
    return this.#state.prevented;
  }

  preventDefault(): void {
    if (this.#cancelable && !this.#state.passive) this.#state.prevented = true;
  }

  stopPropagation(): void {
    void this.#type;
  }

  stopImmediatePropagation(): void {
    this.#state.stopped = true;
  }
}
tag(Event);
enumerable(Event);

export class CustomEvent extends Event {
  #detail: unknown;

  constructor(type: unknown, init?: unknown) {
    super(type, init);
    this.#detail = dictionary(init).detail ?? null;
  }

  get detail(): unknown {
    return this.#detail;
  }
}
tag(CustomEvent);
enumerable(CustomEvent);

let fire: (target: EventTarget, event: Event) => void;

export class EventTarget {
  #listeners: Listener[] = [];

  static {
    fire = (target, event) => target.#fire(event);
  }

  addEventListener(type: unknown, callback: unknown, options?: unknown): void {
    need("Failed to execute 'addEventListener' on 'EventTarget'", arguments, 2);
    const { once, passive, signal } = dictionary(options);
    const listeners = this.#listeners;
    if (callback === null || callback === undefined) return;
    if (!isObject(callback)) throw new TypeError("Failed to execute 'addEventListener' on 'EventTarget': a listener is a function or an object");
    if (signal instanceof AbortSignal) {
      if (signal.aborted) return;
      signal.addEventListener("abort", () => this.removeEventListener(type, callback), { once: true });
    }
    const name = `${type}`;
    if (listeners.some((each) => each.type === name && each.callback === callback)) return;
    listeners.push({ type: name, callback, once: !!once, passive: !!passive, removed: false });
  }

  removeEventListener(type: unknown, callback: unknown): void {
    need("Failed to execute 'removeEventListener' on 'EventTarget'", arguments, 2);
    this.#remove((each) => each.type === `${type}` && each.callback === callback);
  }

  dispatchEvent(event: unknown): boolean {
    need("Failed to execute 'dispatchEvent' on 'EventTarget'", arguments, 1);
    void this.#listeners;
    if (!(event instanceof Event)) throw new TypeError("Failed to execute 'dispatchEvent' on 'EventTarget': Argument 1 is not an Event");
    if (stateOf(event).dispatching) throw new DOMException("Invalid event state", "InvalidStateError");
    this.#fire(event);
    return !event.defaultPrevented;
  }

  #remove(which: (listener: Listener) => boolean): void {
    this.#listeners = this.#listeners.filter((each) => {
      if (!which(each)) return true;
      each.removed = true;
      return false;
    });
  }

  #fire(event: Event): void {
    const state = stateOf(event);
    state.target = this;
    state.dispatching = true;
    const { type } = event;
    for (const listener of [...this.#listeners]) {
      if (listener.type !== type || listener.removed || state.stopped) continue;
      if (listener.once) this.#remove((each) => each === listener);
      state.passive = listener.passive;
      guarded(() => {
        const { callback } = listener;
        if (typeof callback === "function") apply(callback as Callable, this, [event]);
        else (callback as { handleEvent: Callable }).handleEvent(event);
      });
      state.passive = false;
    }
    state.dispatching = state.stopped = false;
  }
}
tag(EventTarget);
enumerable(EventTarget);

let abort: (signal: AbortSignal, reason: unknown) => void;
const aborted = () => new DOMException("The signal has been aborted", "AbortError");

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason: unknown;
  #onabort: unknown = null;
  #heard = false;
  #followers: AbortSignal[] = [];

  static {
    abort = (signal, reason) => signal.#abort(reason);
  }

  constructor(key?: unknown) {
    if (key !== OURS) throw new TypeError("Illegal constructor");
    super();
  }

  static abort(reason: unknown = aborted()): AbortSignal {
    const signal = new AbortSignal(OURS);
    signal.#aborted = true;
    signal.#reason = reason;
    return signal;
  }

  static timeout(milliseconds: unknown): AbortSignal {
    need("Failed to execute 'AbortSignal.timeout'", arguments, 1);
    const signal = new AbortSignal(OURS);
    host().setTimer(() => signal.#abort(new DOMException("Signal timed out.", "TimeoutError")), Number(milliseconds), false);
    return signal;
  }

  static any(signals: Iterable<unknown>): AbortSignal {
    const result = new AbortSignal(OURS);
    for (const each of [...signals]) {
      if (!(each instanceof AbortSignal)) throw new TypeError("Failed to execute 'AbortSignal.any': Argument 1 has a member that is not an AbortSignal");
      if (each.#aborted) return AbortSignal.abort(each.#reason);
      each.#followers.push(result);
    }
    return result;
  }

  get aborted(): boolean {
    return this.#aborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  get onabort(): unknown {
    return this.#onabort;
  }

  set onabort(callback: unknown) {
    this.#onabort = isObject(callback) ? callback : null;
    if (this.#heard) return;
    this.#heard = true;
    const signal = this;
    super.addEventListener("abort", function (event: unknown) {
      if (typeof signal.#onabort === "function") apply(signal.#onabort as Callable, signal, [event]);
    });
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  #abort(reason: unknown): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason;
    fire(this, new Event("abort"));
    for (const follower of this.#followers) follower.#abort(reason);
  }
}
tag(AbortSignal);
enumerable(AbortSignal);

export class AbortController {
  #signal = new AbortSignal(OURS);

  get signal(): AbortSignal {
    return this.#signal;
  }

  abort(reason: unknown = aborted()): void {
    abort(this.#signal, reason);
  }
}
tag(AbortController);
enumerable(AbortController);
