// Events, their targets, and signals for aborting.

import { type Callable, dictionary, DOMException, enumerable, guarded, host, need, OURS, tag } from "./base.ts";
import { isObject } from "./intrinsics.ts";

const { apply } = Reflect;
const { defineProperty } = Object;

interface Listener {
  type: string;
  callback: object;
  capture: boolean;
  once: boolean;
  passive: boolean;
  removed: boolean;
}

interface Dispatch {
  target: EventTarget | null;
  current: EventTarget | null;
  phase: number;
  stopped: boolean;
  prevented: boolean;
  passive: boolean;
  dispatching: boolean;
  trusted: boolean;
}

let stateOf: (event: Event) => Dispatch;
export class Event {
  #type: string;
  #bubbles: boolean;
  #cancelable: boolean;
  #composed: boolean;
  #state: Dispatch = {
    target: null, current: null, phase: 0, stopped: false, prevented: false, passive: false, dispatching: false, trusted: false,
  };

  static readonly NONE = 0;
  static readonly CAPTURING_PHASE = 1;
  static readonly AT_TARGET = 2;
  static readonly BUBBLING_PHASE = 3;

  static {
    stateOf = (event) => event.#state;
  }

  constructor(type: unknown, init?: unknown) {
    need(`Failed to construct '${new.target.name}'`, arguments, 1);
    const { bubbles, cancelable, composed } = dictionary(init);
    this.#type = `${type}`;
    this.#bubbles = !!bubbles;
    this.#cancelable = !!cancelable;
    this.#composed = !!composed;
  }

  get type(): string {
    return this.#type;
  }

  get target(): EventTarget | null {
    return this.#state.target;
  }

  get srcElement(): EventTarget | null {
    return this.#state.target;
  }

  get currentTarget(): EventTarget | null {
    return this.#state.current;
  }

  get eventPhase(): number {
    return this.#state.phase;
  }

  get bubbles(): boolean {
    return this.#bubbles;
  }

  get cancelable(): boolean {
    return this.#cancelable;
  }

  get composed(): boolean {
    return this.#composed;
  }

  get defaultPrevented(): boolean {
    return this.#state.prevented;
  }

  get returnValue(): boolean {
    return !this.#state.prevented;
  }

  get isTrusted(): boolean {
    return this.#state.trusted;
  }

  get timeStamp(): number {
    void this.#type;
    return 0;
  }

  composedPath(): EventTarget[] {
    return this.#state.current === null ? [] : [this.#state.current];
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
for (const [name, value] of [["NONE", 0], ["CAPTURING_PHASE", 1], ["AT_TARGET", 2], ["BUBBLING_PHASE", 3]] as const) {
  defineProperty(Event.prototype, name, { value, enumerable: true });
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
    const capture = isObject(options) ? !!dictionary(options).capture : !!options;
    const { once, passive, signal } = dictionary(options);
    const listeners = this.#listeners;
    if (callback === null || callback === undefined) return;
    if (!isObject(callback)) throw new TypeError("Failed to execute 'addEventListener' on 'EventTarget': a listener is a function or an object");
    if (signal instanceof AbortSignal) {
      if (signal.aborted) return;
      signal.addEventListener("abort", () => this.removeEventListener(type, callback, capture), { once: true });
    }
    const name = `${type}`;
    if (listeners.some((each) => each.type === name && each.callback === callback && each.capture === capture)) return;
    listeners.push({ type: name, callback, capture, once: !!once, passive: !!passive, removed: false });
  }

  removeEventListener(type: unknown, callback: unknown, options?: unknown): void {
    need("Failed to execute 'removeEventListener' on 'EventTarget'", arguments, 2);
    const capture = isObject(options) ? !!dictionary(options).capture : !!options;
    this.#remove((each) => each.type === `${type}` && each.callback === callback && each.capture === capture);
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
    state.target = state.current = this;
    state.phase = 2;
    state.dispatching = true;
    const { type } = event;
    for (const listener of [...this.#listeners].sort((a, b) => Number(b.capture) - Number(a.capture))) {
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
    state.current = null;
    state.phase = 0;
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
    const event = new Event("abort");
    stateOf(event).trusted = true;
    fire(this, event);
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
