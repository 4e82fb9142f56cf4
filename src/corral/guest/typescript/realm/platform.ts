// The platform's classes and functions (URL, events, blobs, crypto and so on) for a context that has only the language.
//
// They are made here, of this context's own language: no object of the engine's context comes in, and none of the
// program's goes out. What only the engine can do is asked of `Native`, in strings, numbers and bytes; the engine never
// calls what a program wrote. `Native` and the functions it gives stay in this module: they are called, and never passed
// to anything that a program could have replaced. Apart from that, a program that changes its own language harms itself.

import { arrayName, bytesOf, clone, errorClass, isBuffer, isObject, type Json } from "./intrinsics.ts";
import type { Clock } from "./timers.ts";

/** What the engine's context answers. Undefined for what it refuses: then `failure` has the error's name, kind and message. */
export interface Native {
  failure(): string;
  /** The parts of a URL, one a line. */
  parseUrl(url: string, base: string | undefined): string | undefined;
  changeUrl(href: string, member: string, value: string): string | undefined;
  /** The pairs of a query, and the query of pairs, which are JSON. */
  pairs(query: string): string;
  query(pairs: string): string;
  /** A pattern is made anew for each question: `new` tells its parts, `exec` what it finds, as JSON. */
  pattern(init: string, base: string | undefined, input: string | undefined, inputBase: string | undefined, method: "new" | "exec"): string | undefined;
  encoding(label: string): string | undefined;
  decoder(label: string, fatal: boolean, ignoreBOM: boolean): ((bytes: Uint8Array, stream: boolean) => string | undefined) | undefined;
  /** Fills these bytes. */
  randomize(bytes: Uint8Array): void;
  uuid(): string;
  decodeBase64(text: string): string | undefined;
  encodeBase64(text: string): string | undefined;
  /** Calls a method of SubtleCrypto, whose arguments are JSON, and then `done` with "value" and JSON, or "error" and a failure. */
  crypto(method: string, args: string, done: (kind: string, text: string) => void): void;
}

export interface Platform {
  /** The engine's answers for one context. */
  open(): Native;
}

/** The run on whose behalf the engine calls back. */
export interface Scope {
  uncaught(error: unknown): void;
  started(timer: { _destroyed: boolean }, callback: unknown): void;
}

type Callable = (...args: unknown[]) => unknown;
type Pair = [string, string];
type Pairs = Pair[];

const { apply } = Reflect;
const { create, defineProperty, freeze } = Object;
const { parse, stringify } = JSON;
const { isView } = ArrayBuffer;
const Bytes = Uint8Array;
const RealPromise = Promise;
/** Given to constructors that programs must not call. */
const OURS = Symbol("ours");

let native: Native;
let scope: Scope;
let clock: Clock;
let encodeText: (text: string) => Uint8Array<ArrayBuffer>;

/** This context's platform. */
export class Faces {
  constructor(platform: Platform, ofRun: Scope, ofTime: Clock, encode: (text: string) => Uint8Array<ArrayBuffer>) {
    native = platform.open();
    scope = ofRun;
    clock = ofTime;
    encodeText = encode;
  }

  /** This context's version of a global. */
  global(name: string): unknown {
    return GLOBALS[name]?.();
  }
}

// --- helpers

/** What the engine answers. It may have had no stack left, and its error is not the program's. */
function ask<T>(question: () => T | undefined): T {
  let answer: T | undefined;
  try {
    answer = question();
  } catch {
    throw new RangeError("Maximum call stack size exceeded");
  }
  if (answer === undefined) throw failed(native.failure());
  return answer;
}

/** An error of this context like the engine's that these three lines are of. */
function failed(text: string): Error {
  const [name = "Error", kind = "", ...message] = text.split("\n");
  if (kind === "DOMException") return new DOMException(message.join("\n"), name);
  const error = new (errorClass(name) ?? Error)(message.join("\n"));
  return kind === "" ? error : coded(error, kind);
}

const coded = (error: Error, code: string): Error => Object.assign(error, { code });
const usv = (value: unknown): string => `${value}`.toWellFormed();
const illegal = (): Error => coded(new TypeError("Illegal constructor"), "ERR_ILLEGAL_CONSTRUCTOR");

function need(name: string, args: ArrayLike<unknown>, count: number): void {
  if (args.length >= count) return;
  const required = `${count} argument${count === 1 ? "" : "s"} required, but only ${args.length} present`;
  throw coded(new TypeError(`${name}: ${required}`), "ERR_MISSING_ARGS");
}

const dictionary = (value: unknown): Record<string, unknown> => (isObject(value) ? (value as Record<string, unknown>) : {});

function tag(...types: { prototype: object; name: string }[]): void {
  for (const type of types) {
    defineProperty(type.prototype, Symbol.toStringTag, { value: type.name, configurable: true });
  }
}

/** Members of a platform's class are enumerable. */
function enumerable(...types: { prototype: object }[]): void {
  for (const { prototype } of types) {
    for (const key of Object.getOwnPropertyNames(prototype)) {
      if (key !== "constructor") defineProperty(prototype, key, { enumerable: true });
    }
  }
}

/** Pairs as an iterator that has its class's name. */
function iterator<T>(name: string, values: Iterable<T>): IterableIterator<T> {
  const source = [...values];
  let index = 0;
  const prototype = create(Iterator.prototype as object, {
    [Symbol.toStringTag]: { value: `${name} Iterator`, configurable: true },
    next: {
      value: () => (index < source.length ? { value: source[index++], done: false } : { value: undefined, done: true }),
      writable: true, enumerable: true, configurable: true,
    },
  });
  return create(prototype as object) as IterableIterator<T>;
}

/** Pairs out of what a constructor of them takes. */
function pairsOf(init: unknown, what: string): Pairs {
  const pairs: Pairs = [];
  const { [Symbol.iterator]: iterate } = init as Partial<Iterable<Iterable<unknown>>>;
  if (iterate !== undefined && iterate !== null) {
    for (const each of init as Iterable<Iterable<unknown>>) {
      const [key, value, ...more] = [...each];
      if (value === undefined || more.length > 0) throw new TypeError(`${what}: each of a list of pairs has two members`);
      pairs.push([usv(key), usv(value)]);
    }
    return pairs;
  }
  for (const key of Reflect.ownKeys(init as object)) {
    if (typeof key === "symbol" || !Object.getOwnPropertyDescriptor(init, key)?.enumerable) continue;
    pairs.push([usv(key), usv((init as Record<string, unknown>)[key])]);
  }
  return pairs;
}

// --- errors

const EXCEPTION_CODES: Record<string, number> = Object.assign(create(null) as object, {
  IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5,
  NoModificationAllowedError: 7, NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11,
  SyntaxError: 12, InvalidModificationError: 13, NamespaceError: 14, InvalidAccessError: 15, TypeMismatchError: 17,
  SecurityError: 18, NetworkError: 19, AbortError: 20, URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23,
  InvalidNodeTypeError: 24, DataCloneError: 25,
});

class DOMException extends Error {
  #name: string;

  constructor(message: unknown = "", options: unknown = "Error") {
    super(`${message}`, isObject(options) && "cause" in options ? { cause: options.cause } : undefined);
    this.#name = isObject(options) ? `${(options as { name?: unknown }).name ?? "Error"}` : `${options}`;
  }

  override get name(): string {
    return this.#name;
  }

  get code(): number {
    return EXCEPTION_CODES[this.#name] ?? 0;
  }
}
tag(DOMException);

// --- URL

const HREF = 0;
const PARTS = [
  "href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "hash", "search",
] as const;
let followQuery: (params: URLSearchParams, url: URL, query: string) => void;
let readQuery: (url: URL, query: string) => void;

class URLSearchParams {
  #pairs: Pairs = [];
  #url: URL | undefined;

  static {
    followQuery = (params, url, query) => {
      params.#url = url;
      params.#pairs = URLSearchParams.#parsed(query);
    };
  }

  constructor(init: unknown = "") {
    if (init instanceof URLSearchParams && #pairs in init) this.#pairs = init.#pairs.map(([key, value]) => [key, value]);
    else if (isObject(init)) this.#pairs = pairsOf(init, "Failed to construct 'URLSearchParams'");
    else this.#pairs = URLSearchParams.#parsed(usv(init));
  }

  static #parsed(query: string): Pairs {
    const text = query.startsWith("?") ? query.slice(1) : query;
    return parse(ask(() => native.pairs(text))) as Pairs;
  }

  #changed(): void {
    if (this.#url !== undefined) readQuery(this.#url, this.toString());
  }

  get size(): number {
    return this.#pairs.length;
  }

  append(name: unknown, value: unknown): void {
    need("Failed to execute 'append' on 'URLSearchParams'", arguments, 2);
    this.#pairs.push([usv(name), usv(value)]);
    this.#changed();
  }

  delete(name: unknown, value?: unknown): void {
    need("Failed to execute 'delete' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key || (value !== undefined && pair[1] !== usv(value)));
    this.#changed();
  }

  get(name: unknown): string | null {
    need("Failed to execute 'get' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.find((pair) => pair[0] === key)?.[1] ?? null;
  }

  getAll(name: unknown): string[] {
    need("Failed to execute 'getAll' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.filter((pair) => pair[0] === key).map((pair) => pair[1]);
  }

  has(name: unknown, value?: unknown): boolean {
    need("Failed to execute 'has' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.some((pair) => pair[0] === key && (value === undefined || pair[1] === usv(value)));
  }

  set(name: unknown, value: unknown): void {
    need("Failed to execute 'set' on 'URLSearchParams'", arguments, 2);
    const key = usv(name);
    const index = this.#pairs.findIndex((pair) => pair[0] === key);
    if (index < 0) this.#pairs.push([key, usv(value)]);
    else {
      this.#pairs[index] = [key, usv(value)];
      this.#pairs = this.#pairs.filter((pair, at) => at <= index || pair[0] !== key);
    }
    this.#changed();
  }

  sort(): void {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#changed();
  }

  forEach(callback: (value: string, key: string, params: URLSearchParams) => void, self?: unknown): void {
    for (const [key, value] of [...this.#pairs]) apply(callback as Callable, self, [value, key, this]);
  }

  entries(): IterableIterator<Pair> {
    return iterator("URLSearchParams", this.#pairs.map(([key, value]): Pair => [key, value]));
  }

  keys(): IterableIterator<string> {
    return iterator("URLSearchParams", this.#pairs.map((pair) => pair[0]));
  }

  values(): IterableIterator<string> {
    return iterator("URLSearchParams", this.#pairs.map((pair) => pair[1]));
  }

  toString(): string {
    const pairs = stringify(this.#pairs);
    return ask(() => native.query(pairs));
  }

  [Symbol.iterator](): IterableIterator<Pair> {
    return this.entries();
  }
}
tag(URLSearchParams);
enumerable(URLSearchParams);

class URL {
  #parts: string[];
  #params: URLSearchParams | undefined;

  static {
    readQuery = (url, query) => url.#set("search", query);
  }

  constructor(url: unknown, base?: unknown) {
    need("Failed to construct 'URL'", arguments, 1);
    this.#parts = URL.#parsed(url, base);
  }

  static #parsed(url: unknown, base: unknown): string[] {
    const first = usv(url);
    const second = base === undefined ? undefined : usv(base);
    return ask(() => native.parseUrl(first, second)).split("\n");
  }

  static parse(url: unknown, base?: unknown): URL | null {
    return URL.canParse(url, base) ? new URL(url, base) : null;
  }

  static canParse(url: unknown, base?: unknown): boolean {
    try {
      URL.#parsed(url, base);
      return true;
    } catch {
      return false;
    }
  }

  #set(member: string, value: string): void {
    const href = this.#parts[HREF]!;
    this.#parts = ask(() => native.changeUrl(href, member, value)).split("\n");
  }

  static {
    for (let index = 0; index < PARTS.length; index++) {
      const member = PARTS[index]!;
      const { get, set } = Object.getOwnPropertyDescriptor({
        get [member]() {
          return (this as unknown as URL).#parts[index];
        },
        set [member](value: unknown) {
          const url = this as unknown as URL;
          url.#set(member, usv(value));
          if ((member === "href" || member === "search") && url.#params !== undefined) {
            followQuery(url.#params, url, url.#parts[PARTS.length - 1]!);
          }
        },
      }, member)!;
      defineProperty(URL.prototype, member, { get: get!, set: member === "origin" ? undefined : set!, configurable: true, enumerable: true });
    }
  }

  get searchParams(): URLSearchParams {
    if (this.#params === undefined) {
      this.#params = new URLSearchParams();
      followQuery(this.#params, this, this.#parts[PARTS.length - 1]!);
    }
    return this.#params;
  }

  toString(): string {
    return this.#parts[HREF]!;
  }

  toJSON(): string {
    return this.#parts[HREF]!;
  }
}
tag(URL);
enumerable(URL);

const PATTERN_PARTS = ["protocol", "username", "password", "hostname", "port", "pathname", "search", "hash", "hasRegExpGroups"] as const;

class URLPattern {
  #init: string;
  #base: string | undefined;
  #parts: Record<string, unknown>;

  constructor(init: unknown = {}, base?: unknown) {
    this.#init = URLPattern.#text(init);
    this.#base = typeof base === "string" ? usv(base) : undefined;
    const [given, second] = [this.#init, this.#base];
    this.#parts = parse(ask(() => native.pattern(given, second, undefined, undefined, "new"))) as Record<string, unknown>;
  }

  static #text(value: unknown): string {
    if (!isObject(value)) return stringify(usv(value));
    const plain: Record<string, string> = {};
    for (const name of [...PATTERN_PARTS.slice(0, -1), "baseURL"]) {
      const part = (value as Record<string, unknown>)[name];
      if (part !== undefined) plain[name] = usv(part);
    }
    return stringify(plain);
  }

  exec(input: unknown = {}, base?: unknown): unknown {
    const [init, ours, text] = [this.#init, this.#base, URLPattern.#text(input)];
    const theirs = base === undefined ? undefined : usv(base);
    const found: unknown = parse(ask(() => native.pattern(init, ours, text, theirs, "exec")), (_, value) => (value === 0 ? undefined : value));
    return found;
  }

  test(input: unknown = {}, base?: unknown): boolean {
    return this.exec(input, base) !== null;
  }

  static {
    for (const name of PATTERN_PARTS) {
      const get = function (this: URLPattern): unknown {
        return this.#parts[name];
      };
      defineProperty(URLPattern.prototype, name, { get, configurable: true, enumerable: true });
    }
  }
}
tag(URLPattern);
enumerable(URLPattern);

// --- text

class TextEncoder {
  #ours = true;

  get encoding(): string {
    return this.#ours ? "utf-8" : "";
  }

  encode(text: unknown = ""): Uint8Array {
    void this.#ours;
    return encodeText(`${text}`);
  }

  encodeInto(source: unknown, target: unknown): { read: number; written: number } {
    void this.#ours;
    const bytes = bytesOf(target);
    if (bytes === undefined || !(target instanceof Uint8Array)) throw new TypeError("Failed to execute 'encodeInto' on 'TextEncoder': Argument 2 is not a Uint8Array");
    const text = `${source}`;
    let read = 0;
    let written = 0;
    while (read < text.length) {
      const point = text.codePointAt(read)!;
      const size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
      if (written + size > bytes.length) break;
      written += size;
      read += point > 0xffff ? 2 : 1;
    }
    bytes.set(encodeText(text.slice(0, read)));
    return { read, written };
  }
}
tag(TextEncoder);
enumerable(TextEncoder);

class TextDecoder {
  #label: string;
  #encoding: string;
  #fatal: boolean;
  #ignoreBOM: boolean;
  #decode: (bytes: Uint8Array, stream: boolean) => string | undefined;

  constructor(label: unknown = "utf-8", options?: unknown) {
    const { fatal, ignoreBOM } = dictionary(options);
    const name = (this.#label = `${label}`);
    this.#fatal = !!fatal;
    this.#ignoreBOM = !!ignoreBOM;
    this.#encoding = ask(() => native.encoding(name));
    this.#decode = ask(() => native.decoder(this.#label, this.#fatal, this.#ignoreBOM));
  }

  get encoding(): string {
    return this.#encoding;
  }

  get fatal(): boolean {
    return this.#fatal;
  }

  get ignoreBOM(): boolean {
    return this.#ignoreBOM;
  }

  decode(input: unknown = new Bytes(0), options?: unknown): string {
    const bytes = bytesOf(input);
    if (bytes === undefined) throw new TypeError("Failed to execute 'decode' on 'TextDecoder': Argument 1 is not an ArrayBuffer or a view on one");
    const stream = !!dictionary(options).stream;
    const decode = this.#decode;
    return ask(() => decode(bytes, stream));
  }
}
tag(TextDecoder);
enumerable(TextDecoder);

const decodeUtf8 = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

function atob(text: unknown): string {
  need("Failed to execute 'atob'", arguments, 1);
  const given = `${text}`;
  return ask(() => native.decodeBase64(given));
}

function btoa(text: unknown): string {
  need("Failed to execute 'btoa'", arguments, 1);
  const given = `${text}`;
  return ask(() => native.encodeBase64(given));
}

function structuredClone(value: unknown, options?: unknown): unknown {
  need("Failed to execute 'structuredClone'", arguments, 1);
  const { transfer } = dictionary(options) as { transfer?: Iterable<unknown> };
  const known = (object: object): object | undefined => {
    if (object instanceof DOMException) return new DOMException(object.message, object.name);
    if (object instanceof Blob) return object.slice();
    return undefined;
  };
  return clone(value, transfer === undefined ? [] : [...transfer], known, (text) => new DOMException(text, "DataCloneError"));
}

// --- events

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
class Event {
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

class CustomEvent extends Event {
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

class MessageEvent extends Event {
  #init: Record<string, unknown>;

  constructor(type: unknown, init?: unknown) {
    super(type, init);
    const { data = null, origin = "", lastEventId = "" } = dictionary(init);
    this.#init = { data, origin: `${origin}`, lastEventId: `${lastEventId}` };
  }

  get data(): unknown {
    return this.#init.data;
  }

  get origin(): unknown {
    return this.#init.origin;
  }

  get lastEventId(): unknown {
    return this.#init.lastEventId;
  }
}
tag(MessageEvent);
enumerable(MessageEvent);

let fire: (target: EventTarget, event: Event) => void;

class EventTarget {
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

/** What is thrown nobody catches. */
function guarded(action: () => void): void {
  try {
    action();
  } catch (error) {
    scope.uncaught(error);
  }
}

let abort: (signal: AbortSignal, reason: unknown) => void;
const aborted = () => new DOMException("The signal has been aborted", "AbortError");

class AbortSignal extends EventTarget {
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
    clock.set(() => {
      guarded(() => signal.#abort(new DOMException("Signal timed out.", "TimeoutError")));
    }, Number(milliseconds), false);
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

class AbortController {
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

// --- blobs, forms and messages

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  let size = 0;
  for (const part of parts) size += part.length;
  const all = new Bytes(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

let contentOf: (blob: Blob) => Uint8Array<ArrayBuffer>;

class Blob {
  #bytes: Uint8Array<ArrayBuffer>;
  #type: string;

  static {
    contentOf = (blob) => blob.#bytes;
  }

  constructor(parts: unknown = [], options?: unknown) {
    if (!isObject(parts) || typeof (parts as Partial<Iterable<unknown>>)[Symbol.iterator] !== "function") {
      throw new TypeError(`Failed to construct '${new.target.name}': Argument 1 can not be converted to sequence.`);
    }
    const { type = "" } = dictionary(options);
    this.#bytes = joined(
      [...(parts as Iterable<unknown>)].map((part) => {
        if (isObject(part) && #bytes in part) return part.#bytes;
        return bytesOf(part) ?? encodeText(usv(part));
      }),
    );
    this.#type = /^[\x20-\x7e]*$/.test(`${type}`) ? `${type}`.toLowerCase() : "";
  }

  get size(): number {
    return this.#bytes.length;
  }

  get type(): string {
    return this.#type;
  }

  slice(start: unknown = 0, end?: unknown, type: unknown = ""): Blob {
    return new Blob([this.#bytes.slice(Number(start), end === undefined ? undefined : Number(end))], { type });
  }

  async text(): Promise<string> {
    return decodeUtf8(this.#bytes);
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#bytes.slice().buffer;
  }

  async bytes(): Promise<Uint8Array> {
    return this.#bytes.slice();
  }
}
tag(Blob);
enumerable(Blob);

class File extends Blob {
  #name: string;
  #lastModified: number;

  constructor(parts: unknown, name: unknown, options?: unknown) {
    need("Failed to construct 'File'", arguments, 2);
    super(parts, options);
    const { lastModified } = dictionary(options);
    this.#name = usv(name);
    this.#lastModified = lastModified === undefined ? Date.now() : Number(lastModified);
  }

  get name(): string {
    return this.#name;
  }

  get lastModified(): number {
    return this.#lastModified;
  }

  get webkitRelativePath(): string {
    void this.#name;
    return "";
  }
}
tag(File);
enumerable(File);

type Entry = [string, string | File];

class FormData {
  #entries: Entry[] = [];

  constructor(form?: unknown) {
    if (form !== undefined) throw illegal();
  }

  static #entry(name: unknown, value: unknown, filename: unknown): Entry {
    if (!(value instanceof Blob)) return [usv(name), usv(value)];
    if (value instanceof File && filename === undefined) return [usv(name), value];
    return [usv(name), new File([value], filename ?? "blob", { type: value.type })];
  }

  append(name: unknown, value: unknown, filename?: unknown): void {
    need("Failed to execute 'append' on 'FormData'", arguments, 2);
    this.#entries.push(FormData.#entry(name, value, filename));
  }

  set(name: unknown, value: unknown, filename?: unknown): void {
    need("Failed to execute 'set' on 'FormData'", arguments, 2);
    const entry = FormData.#entry(name, value, filename);
    const index = this.#entries.findIndex((each) => each[0] === entry[0]);
    if (index < 0) this.#entries.push(entry);
    else {
      this.#entries[index] = entry;
      this.#entries = this.#entries.filter((each, at) => at <= index || each[0] !== entry[0]);
    }
  }

  delete(name: unknown): void {
    const key = usv(name);
    this.#entries = this.#entries.filter((each) => each[0] !== key);
  }

  get(name: unknown): string | File | null {
    const key = usv(name);
    return this.#entries.find((each) => each[0] === key)?.[1] ?? null;
  }

  getAll(name: unknown): (string | File)[] {
    const key = usv(name);
    return this.#entries.filter((each) => each[0] === key).map((each) => each[1]);
  }

  has(name: unknown): boolean {
    const key = usv(name);
    return this.#entries.some((each) => each[0] === key);
  }

  forEach(callback: Callable, self?: unknown): void {
    for (const [key, value] of [...this.#entries]) apply(callback, self, [value, key, this]);
  }

  entries(): IterableIterator<Entry> {
    return iterator("FormData", this.#entries.map(([key, value]): Entry => [key, value]));
  }

  keys(): IterableIterator<string> {
    return iterator("FormData", this.#entries.map((each) => each[0]));
  }

  values(): IterableIterator<string | File> {
    return iterator("FormData", this.#entries.map((each) => each[1]));
  }

  [Symbol.iterator](): IterableIterator<Entry> {
    return this.entries();
  }
}
tag(FormData);
enumerable(FormData);

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

class Headers {
  #pairs: Pairs = [];

  constructor(init?: unknown) {
    if (init === undefined) return;
    if (!isObject(init)) throw new TypeError("Failed to construct 'Headers': Argument 1 is not an object");
    for (const [name, value] of pairsOf(init, "Failed to construct 'Headers'")) this.append(name, value);
  }

  static #name(name: unknown): string {
    if (!HEADER_NAME.test(`${name}`)) throw new TypeError(`Invalid header name: "${name}"`);
    return `${name}`.toLowerCase();
  }

  static #value(value: unknown): string {
    const text = `${value}`.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
    if (/[\0\n\r]|[^\0-\xff]/.test(text)) throw new TypeError(`Invalid header value: "${text}"`);
    return text;
  }

  append(name: unknown, value: unknown): void {
    need("Failed to execute 'append' on 'Headers'", arguments, 2);
    this.#pairs.push([Headers.#name(name), Headers.#value(value)]);
  }

  set(name: unknown, value: unknown): void {
    need("Failed to execute 'set' on 'Headers'", arguments, 2);
    const [key, text] = [Headers.#name(name), Headers.#value(value)];
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key);
    this.#pairs.push([key, text]);
  }

  delete(name: unknown): void {
    const key = Headers.#name(name);
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key);
  }

  get(name: unknown): string | null {
    const key = Headers.#name(name);
    const values = this.#pairs.filter((pair) => pair[0] === key).map((pair) => pair[1]);
    return values.length > 0 ? values.join(", ") : null;
  }

  getSetCookie(): string[] {
    return this.#pairs.filter((pair) => pair[0] === "set-cookie").map((pair) => pair[1]);
  }

  has(name: unknown): boolean {
    const key = Headers.#name(name);
    return this.#pairs.some((pair) => pair[0] === key);
  }

  #sorted(): Pairs {
    const names = [...new Set(this.#pairs.map((pair) => pair[0]))].sort();
    return names.flatMap((name): Pairs => {
      if (name === "set-cookie") return this.getSetCookie().map((value): Pair => [name, value]);
      return [[name, this.get(name)!]];
    });
  }

  forEach(callback: Callable, self?: unknown): void {
    for (const [key, value] of this.#sorted()) apply(callback, self, [value, key, this]);
  }

  entries(): IterableIterator<Pair> {
    return iterator("Headers", this.#sorted());
  }

  keys(): IterableIterator<string> {
    return iterator("Headers", this.#sorted().map((pair) => pair[0]));
  }

  values(): IterableIterator<string> {
    return iterator("Headers", this.#sorted().map((pair) => pair[1]));
  }

  [Symbol.iterator](): IterableIterator<Pair> {
    return this.entries();
  }
}
tag(Headers);
enumerable(Headers);

/** The bytes of a body, and their type. */
function bodyOf(init: unknown): [Uint8Array<ArrayBuffer>, string | null] {
  if (init instanceof Blob) return [contentOf(init), init.type === "" ? null : init.type];
  if (init instanceof URLSearchParams) return [encodeText(`${init}`), "application/x-www-form-urlencoded;charset=UTF-8"];
  if (init instanceof FormData) return multipart(init);
  const bytes = bytesOf(init);
  return bytes === undefined ? [encodeText(usv(init)), "text/plain;charset=UTF-8"] : [bytes.slice(), null];
}

function multipart(form: FormData): [Uint8Array<ArrayBuffer>, string] {
  const boundary = `----corral${ask(() => native.uuid())}`;
  const quoted = (text: string) => text.replace(/\r?\n|\r/g, "%0D%0A").replaceAll('"', "%22");
  const parts: Uint8Array[] = [];
  for (const [name, value] of form) {
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(name)}"`;
    if (typeof value === "string") parts.push(encodeText(`${head}\r\n\r\n${value.replace(/\r?\n|\r/g, "\r\n")}\r\n`));
    else {
      const type = value.type === "" ? "application/octet-stream" : value.type;
      parts.push(encodeText(`${head}; filename="${quoted(value.name)}"\r\nContent-Type: ${type}\r\n\r\n`));
      parts.push(contentOf(value), encodeText("\r\n"));
    }
  }
  parts.push(encodeText(`--${boundary}--\r\n`));
  return [joined(parts), `multipart/form-data; boundary=${boundary}`];
}

let copyBody: (from: Message, to: Message) => void;

/** What a request and a response have in common. */
class Message {
  #headers: Headers;
  #body: Uint8Array<ArrayBuffer> | null = null;
  #used = false;

  static {
    copyBody = (from, to) => {
      if (from.#used) throw new TypeError("Body is unusable");
      to.#body = from.#body;
    };
  }

  constructor(headers: unknown, body: unknown) {
    this.#headers = new Headers(headers);
    if (body === null || body === undefined) return;
    const [bytes, type] = bodyOf(body);
    this.#body = bytes;
    if (type !== null && !this.#headers.has("content-type")) this.#headers.append("content-type", type);
  }

  get headers(): Headers {
    return this.#headers;
  }

  get bodyUsed(): boolean {
    return this.#used;
  }

  #take(): Uint8Array<ArrayBuffer> {
    if (this.#used) throw new TypeError("Body already consumed");
    this.#used = this.#body !== null;
    return this.#body ?? new Bytes(0);
  }

  async text(): Promise<string> {
    return decodeUtf8(this.#take());
  }

  async json(): Promise<unknown> {
    return parse(decodeUtf8(this.#take()));
  }

  async bytes(): Promise<Uint8Array> {
    return this.#take().slice();
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#take().slice().buffer;
  }

  async blob(): Promise<Blob> {
    return new Blob([this.#take()], { type: this.#headers.get("content-type") ?? "" });
  }

  async formData(): Promise<FormData> {
    const type = this.#headers.get("content-type") ?? "";
    if (!type.startsWith("application/x-www-form-urlencoded")) throw new TypeError("Body can not be decoded as form data");
    const form = new FormData();
    for (const [name, value] of new URLSearchParams(decodeUtf8(this.#take()))) form.append(name, value);
    return form;
  }
}

const BODY_METHODS = ["headers", "bodyUsed", "text", "json", "bytes", "arrayBuffer", "blob", "formData"];

/** `Message` is not a class that programs know: its members are those of the class that they do. */
function flatten(type: { prototype: object }): void {
  for (const name of BODY_METHODS) {
    const descriptor = Object.getOwnPropertyDescriptor(Message.prototype, name)!;
    defineProperty(type.prototype, name, { ...descriptor, enumerable: true });
  }
  Object.setPrototypeOf(type.prototype, Object.prototype);
}

class Response extends Message {
  #status: number;
  #statusText: string;
  #type = "default";
  #url = "";

  constructor(body: unknown = null, init?: unknown) {
    const { status = 200, statusText = "", headers } = dictionary(init);
    super(headers, body);
    this.#status = Number(status);
    this.#statusText = `${statusText}`;
    if (this.#status !== 101 && !(this.#status >= 200 && this.#status <= 599)) {
      throw new RangeError(`The status provided (${this.#status}) is not equal to 101 and outside the range [200, 599]`);
    }
  }

  static json(data: unknown, init?: unknown): Response {
    const text = stringify(data) as string | undefined;
    if (text === undefined) throw new TypeError("The data is not JSON serializable");
    const response = new Response(encodeText(text), init);
    if (!response.headers.has("content-type")) response.headers.set("content-type", "application/json");
    return response;
  }

  static error(): Response {
    const response = new Response();
    response.#status = 0;
    response.#type = "error";
    return response;
  }

  static redirect(url: unknown, status: unknown = 302): Response {
    const response = new Response(null, { status });
    response.headers.set("location", `${new URL(url)}`);
    return response;
  }

  get status(): number {
    return this.#status;
  }

  get statusText(): string {
    return this.#statusText;
  }

  get ok(): boolean {
    return this.#status >= 200 && this.#status <= 299;
  }

  get redirected(): boolean {
    return this.#status < 0;
  }

  get type(): string {
    return this.#type;
  }

  get url(): string {
    return this.#url;
  }

  clone(): Response {
    const copy = new Response(null, { status: this.#status === 0 ? 200 : this.#status, statusText: this.#statusText, headers: this.headers });
    copy.#status = this.#status;
    copy.#type = this.#type;
    copyBody(this, copy);
    return copy;
  }
}
flatten(Response);
tag(Response);
enumerable(Response);

class Request extends Message {
  #url: string;
  #method: string;
  #signal: AbortSignal;
  #redirect: string;

  constructor(input: unknown, init?: unknown) {
    need("Failed to construct 'Request'", arguments, 1);
    const other = isObject(input) && #url in input ? (input as Request) : undefined;
    const options = dictionary(init);
    const { method = other?.method ?? "GET", headers = other?.headers, body, signal = other?.signal } = options;
    super(headers, body);
    this.#url = other?.url ?? `${new URL(input)}`;
    const upper = `${method}`.toUpperCase();
    this.#method = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"].includes(upper) ? upper : `${method}`;
    if (!HEADER_NAME.test(this.#method)) throw new TypeError("Method is not valid");
    this.#redirect = `${options.redirect ?? other?.redirect ?? "follow"}`;
    this.#signal = AbortSignal.any(signal === undefined || signal === null ? [] : [signal]);
    if ((this.#method === "GET" || this.#method === "HEAD") && body !== null && body !== undefined) {
      throw new TypeError("Request with GET/HEAD method cannot have body");
    }
    if (other !== undefined && (body === undefined || body === null)) copyBody(other, this);
  }

  get url(): string {
    return this.#url;
  }

  get method(): string {
    return this.#method;
  }

  get signal(): AbortSignal {
    return this.#signal;
  }

  get redirect(): string {
    return this.#redirect;
  }

  clone(): Request {
    return new Request(this);
  }
}
flatten(Request);
tag(Request);
enumerable(Request);

// --- crypto

let keyOf: (key: CryptoKey) => number;

class CryptoKey {
  #id: number;
  #type: string;
  #extractable: boolean;
  #algorithm: unknown;
  #usages: readonly string[];

  static {
    keyOf = (key) => key.#id;
  }

  constructor(ours?: unknown, told?: unknown) {
    if (ours !== OURS) throw illegal();
    const { key, type, extractable, algorithm, usages } = told as {
      key: number; type: string; extractable: boolean; algorithm: string; usages: string[];
    };
    this.#id = key;
    this.#type = type;
    this.#extractable = extractable;
    this.#algorithm = parse(algorithm, (_, value) => (isObject(value) && "$bytes" in value ? Bytes.fromBase64(`${value.$bytes}`) : value));
    this.#usages = freeze(usages);
  }

  get type(): string {
    return this.#type;
  }

  get extractable(): boolean {
    return this.#extractable;
  }

  get algorithm(): unknown {
    return this.#algorithm;
  }

  get usages(): readonly string[] {
    return this.#usages;
  }
}
tag(CryptoKey);
enumerable(CryptoKey);

const SUBTLE = [
  "digest", "generateKey", "importKey", "exportKey", "sign", "verify", "encrypt", "decrypt", "deriveBits", "deriveKey",
  "wrapKey", "unwrapKey",
] as const;

/** What crypto is asked: data, with bytes and keys told apart from it. */
function plain(value: unknown, depth = 0): Json {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean" || value === null) return value;
  if (!isObject(value)) return value === undefined ? null : `${String(value)}`;
  if (value instanceof CryptoKey) return { $key: keyOf(value) };
  const bytes = bytesOf(value);
  if (bytes !== undefined) return { $bytes: bytes.toBase64() };
  if (depth > 8) throw new TypeError("what is given to crypto is nested too deep");
  if (Array.isArray(value)) return value.map((each) => plain(each, depth + 1));
  const members: { [name: string]: Json } = {};
  for (const name in value) {
    const member = (value as Record<string, unknown>)[name];
    if (member !== undefined && name !== "$key" && name !== "$bytes") members[name] = plain(member, depth + 1);
  }
  return members;
}

function told(text: string): unknown {
  const { bytes, key, pair, data } = parse(text) as { bytes?: string; key?: number; pair?: [string, string]; data?: unknown };
  if (bytes !== undefined) return Bytes.fromBase64(bytes).buffer;
  if (key !== undefined) return new CryptoKey(OURS, parse(text));
  if (pair !== undefined) return { publicKey: told(pair[0]), privateKey: told(pair[1]) };
  return data;
}

class SubtleCrypto {
  #ours = true;

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  static {
    for (const method of SUBTLE) {
      const { [method]: call } = {
        async [method](this: SubtleCrypto, ...args: unknown[]): Promise<unknown> {
          void this.#ours;
          const text = stringify(args.map((each) => plain(each)));
          return new RealPromise((resolve, reject) => {
            const done = (kind: string, answer: string) => {
              if (kind === "error") reject(failed(answer));
              else resolve(told(answer));
            };
            ask(() => (native.crypto(method, text, done), true));
          });
        },
      };
      defineProperty(SubtleCrypto.prototype, method, { value: call, writable: true, configurable: true, enumerable: true });
    }
  }
}
tag(SubtleCrypto);

const INTEGERS = /^(Big)?(Int|Uint)\d+(Clamped)?Array$/;

class Crypto {
  #subtle = new SubtleCrypto(OURS);

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  get subtle(): SubtleCrypto {
    return this.#subtle;
  }

  getRandomValues<T>(array: T): T {
    void this.#subtle;
    need("Failed to execute 'getRandomValues' on 'Crypto'", arguments, 1);
    const bytes = isView(array) ? bytesOf(array) : undefined;
    if (bytes === undefined || !INTEGERS.test(arrayName(array as object) ?? "")) {
      throw new DOMException("The provided value is not an integer-type TypedArray", "TypeMismatchError");
    }
    if (bytes.length > 65536) {
      const text = `The ArrayBufferView's byte length (${bytes.length}) exceeds the number of bytes of entropy available via this API (65536)`;
      throw new DOMException(text, "QuotaExceededError");
    }
    ask(() => (native.randomize(bytes), true));
    return array;
  }

  randomUUID(): string {
    void this.#subtle;
    return ask(() => native.uuid());
  }
}
tag(Crypto);
enumerable(Crypto);

// --- Buffer

type Encoding = "utf8" | "utf16le" | "latin1" | "ascii" | "base64" | "base64url" | "hex";

function encodingOf(name: unknown): Encoding {
  const lower = name === undefined || name === null ? "utf8" : `${name}`.toLowerCase();
  if (lower === "utf8" || lower === "utf-8") return "utf8";
  if (lower === "ucs2" || lower === "ucs-2" || lower === "utf16le" || lower === "utf-16le") return "utf16le";
  if (lower === "latin1" || lower === "binary") return "latin1";
  if (lower === "ascii" || lower === "base64" || lower === "base64url" || lower === "hex") return lower;
  throw coded(new TypeError(`Unknown encoding: ${name}`), "ERR_UNKNOWN_ENCODING");
}

function textToBytes(text: string, encoding: unknown): Uint8Array<ArrayBuffer> {
  switch (encodingOf(encoding)) {
    case "utf8":
      return encodeText(text);
    case "hex": {
      const digits = /^(?:[0-9a-fA-F]{2})*/.exec(text)![0];
      return Bytes.fromHex(digits);
    }
    case "base64":
    case "base64url": {
      const clean = text.replace(/=.*$/s, "").replace(/[^A-Za-z0-9+/\-_]/g, "").replaceAll("-", "+").replaceAll("_", "/");
      return Bytes.fromBase64(clean.length % 4 === 1 ? clean.slice(0, -1) : clean);
    }
    case "utf16le": {
      const bytes = new Bytes(text.length * 2);
      for (let index = 0; index < text.length; index++) {
        const unit = text.charCodeAt(index);
        bytes[2 * index] = unit;
        bytes[2 * index + 1] = unit >> 8;
      }
      return bytes;
    }
    default: {
      const bytes = new Bytes(text.length);
      for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
      return bytes;
    }
  }
}

function bytesToText(bytes: Uint8Array, encoding: unknown): string {
  const name = encodingOf(encoding);
  if (name === "utf8") return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  if (name === "hex") return bytes.toHex();
  if (name === "base64") return bytes.toBase64();
  if (name === "base64url") return bytes.toBase64({ alphabet: "base64url", omitPadding: true });
  let text = "";
  if (name === "utf16le") for (let at = 0; at + 1 < bytes.length; at += 2) text += String.fromCharCode(bytes[at]! | (bytes[at + 1]! << 8));
  else for (const byte of bytes) text += String.fromCharCode(name === "ascii" ? byte & 127 : byte);
  return text;
}

const badArgument = (name: string, value: unknown, wanted: string): Error =>
  coded(new TypeError(`The ${name} argument must be ${wanted}. Received ${value === null ? "null" : typeof value}`), "ERR_INVALID_ARG_TYPE");

class Buffer extends Uint8Array<ArrayBuffer> {
  static poolSize = 0;

  static override from(value: unknown, encoding?: unknown, length?: unknown): Buffer {
    if (typeof value === "string") return Buffer.#of(textToBytes(value, encoding));
    if (isObject(value)) {
      if (isBuffer(value)) return new Buffer(value, encoding as number | undefined, length as number | undefined);
      if (isView(value)) return Buffer.#of(Bytes.from(value as Uint8Array));
      const { type, data } = value as { type?: unknown; data?: unknown };
      if (type === "Buffer" && Array.isArray(data)) return Buffer.#of(Bytes.from(data as number[]));
      if (typeof (value as Partial<ArrayLike<number>>).length === "number") return Buffer.#of(Bytes.from(value as ArrayLike<number>));
      const primitive: unknown = value.valueOf();
      if (primitive !== value && primitive !== null && primitive !== undefined) return Buffer.from(primitive, encoding, length);
    }
    throw badArgument("first", value, "of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object");
  }

  static #of(bytes: Uint8Array<ArrayBuffer>): Buffer {
    return new Buffer(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  static alloc(size: number, fill?: unknown, encoding?: unknown): Buffer {
    if (typeof size !== "number") throw badArgument('"size"', size, "of type number");
    const buffer = Buffer.#of(new Bytes(size));
    return fill === undefined || fill === 0 ? buffer : buffer.fill(fill as never, 0, size, encoding);
  }

  static allocUnsafe(size: number): Buffer {
    return Buffer.alloc(size);
  }

  static allocUnsafeSlow(size: number): Buffer {
    return Buffer.alloc(size);
  }

  static byteLength(value: unknown, encoding?: unknown): number {
    return typeof value === "string" ? textToBytes(value, encoding).length : (value as ArrayBuffer).byteLength;
  }

  static concat(list: readonly Uint8Array[], length?: number): Buffer {
    const all = joined(list);
    if (length === undefined || length === all.length) return Buffer.#of(all);
    const buffer = Buffer.#of(new Bytes(length));
    buffer.set(all.subarray(0, length));
    return buffer;
  }

  static compare(a: Uint8Array, b: Uint8Array): number {
    const size = Math.min(a.length, b.length);
    for (let index = 0; index < size; index++) {
      if (a[index] !== b[index]) return a[index]! < b[index]! ? -1 : 1;
    }
    return Math.sign(a.length - b.length);
  }

  static isBuffer(value: unknown): boolean {
    return value instanceof Buffer;
  }

  static isEncoding(name: unknown): boolean {
    try {
      return typeof name === "string" && encodingOf(name) !== undefined;
    } catch {
      return false;
    }
  }

  override toString(encoding?: unknown, start: number = 0, end: number = this.length): string {
    return bytesToText(super.subarray(Math.max(start, 0), Math.max(end, 0)), encoding);
  }

  toJSON(): { type: string; data: number[] } {
    return { type: "Buffer", data: [...this] };
  }

  equals(other: Uint8Array): boolean {
    return Buffer.compare(this, other) === 0;
  }

  compare(other: Uint8Array): number {
    return Buffer.compare(this, other);
  }

  override slice(start?: number, end?: number): Buffer {
    return super.subarray(start, end) as Buffer;
  }

  override subarray(start?: number, end?: number): Buffer {
    return super.subarray(start, end) as Buffer;
  }

  copy(target: Uint8Array, at: number = 0, start: number = 0, end: number = this.length): number {
    const part = super.subarray(start, end).subarray(0, Math.max(target.length - at, 0));
    target.set(part, at);
    return part.length;
  }

  write(text: string, offset?: number | string, length?: number | string, encoding?: unknown): number {
    if (typeof offset === "string") [encoding, offset, length] = [offset, 0, undefined];
    else if (typeof length === "string") [encoding, length] = [length, undefined];
    const at = offset ?? 0;
    const room = Math.min(length ?? Infinity, this.length - at);
    let bytes = textToBytes(`${text}`, encoding).subarray(0, room);
    if (encodingOf(encoding) === "utf8") {
      // never half of a character
      const { written } = new TextEncoder().encodeInto(text, new Bytes(room));
      bytes = bytes.subarray(0, written);
    }
    this.set(bytes, at);
    return bytes.length;
  }

  override fill(value: never, start: unknown = 0, end: unknown = this.length, encoding?: unknown): this {
    const [from, to] = [typeof start === "number" ? start : 0, typeof end === "number" ? end : this.length];
    const named = typeof start === "string" ? start : typeof end === "string" ? end : encoding;
    const filler: unknown = value;
    if (typeof filler === "number" || typeof filler === "boolean") return super.fill(Number(filler), from, to);
    const bytes = typeof filler === "string" ? textToBytes(filler, named) : bytesOf(filler);
    if (bytes === undefined || bytes.length === 0) return super.fill(0, from, to);
    for (let at = from; at < to; at++) this[at] = bytes[(at - from) % bytes.length]!;
    return this;
  }

  #find(value: unknown, from: unknown, encoding: unknown, last: boolean): number {
    const named = typeof from === "string" ? from : encoding;
    const bytes = typeof value === "number" ? new Bytes([value]) : (bytesOf(value) ?? textToBytes(`${value}`, named));
    const first = typeof from === "number" ? (from < 0 ? Math.max(this.length + from, 0) : from) : last ? this.length : 0;
    const matches = (at: number) => bytes.every((byte, index) => this[at + index] === byte);
    const highest = this.length - bytes.length;
    if (last) {
      for (let at = Math.min(first, highest); at >= 0; at--) if (matches(at)) return at;
    } else {
      for (let at = first; at <= highest; at++) if (matches(at)) return at;
    }
    return -1;
  }

  override indexOf(value: unknown, from?: unknown, encoding?: unknown): number {
    return this.#find(value, from, encoding, false);
  }

  override lastIndexOf(value: unknown, from?: unknown, encoding?: unknown): number {
    return this.#find(value, from, encoding, true);
  }

  override includes(value: unknown, from?: unknown, encoding?: unknown): boolean {
    return this.#find(value, from, encoding, false) >= 0;
  }

  static {
    const widths = [["Int8", 1], ["Uint8", 1], ["Int16", 2], ["Uint16", 2], ["Int32", 4], ["Uint32", 4], ["Float", 4], ["Double", 8], ["BigInt64", 8], ["BigUint64", 8]] as const;
    const views = { Float: "Float32", Double: "Float64", BigInt64: "BigInt64", BigUint64: "BigUint64" } as Record<string, string>;
    const define = (name: string, value: unknown) =>
      defineProperty(Buffer.prototype, name, { value, writable: true, configurable: true, enumerable: true });
    for (const [name, size] of widths) {
      for (const order of size === 1 ? [""] : ["LE", "BE"]) {
        const method = views[name] ?? name;
        const view = (buffer: Buffer, offset: number) => {
          if (!(Number.isInteger(offset) && offset >= 0 && offset + size <= buffer.length)) {
            throw coded(new RangeError(`The value of "offset" is out of range. It must be >= 0 and <= ${buffer.length - size}. Received ${offset}`), "ERR_OUT_OF_RANGE");
          }
          return new DataView(buffer.buffer, buffer.byteOffset, buffer.length) as unknown as Record<string, Callable>;
        };
        const read = function (this: Buffer, offset = 0): unknown {
          return view(this, offset)[`get${method}`]!(offset, order === "LE");
        };
        const write = function (this: Buffer, value: unknown, offset = 0): number {
          view(this, offset)[`set${method}`]!(offset, value, order === "LE");
          return offset + size;
        };
        for (const alias of name.startsWith("Uint") ? [name, name.replace("Uint", "UInt")] : name === "BigUint64" ? [name, "BigUInt64"] : [name]) {
          define(`read${alias}${order}`, read);
          define(`write${alias}${order}`, write);
        }
      }
    }
  }
}

/** What a program calls them by. */
const GLOBALS: Record<string, (() => unknown) | undefined> = {
  __proto__: null as never,
  DOMException: () => DOMException,
  URL: () => URL,
  URLSearchParams: () => URLSearchParams,
  URLPattern: () => URLPattern,
  TextEncoder: () => TextEncoder,
  TextDecoder: () => TextDecoder,
  atob: () => atob,
  btoa: () => btoa,
  structuredClone: () => structuredClone,
  Event: () => Event,
  CustomEvent: () => CustomEvent,
  MessageEvent: () => MessageEvent,
  EventTarget: () => EventTarget,
  AbortSignal: () => AbortSignal,
  AbortController: () => AbortController,
  Blob: () => Blob,
  File: () => File,
  FormData: () => FormData,
  Headers: () => Headers,
  Request: () => Request,
  Response: () => Response,
  CryptoKey: () => CryptoKey,
  SubtleCrypto: () => SubtleCrypto,
  Crypto: () => Crypto,
  crypto: () => (ours ??= new Crypto(OURS)),
  Buffer: () => Buffer,
};
let ours: Crypto | undefined;
