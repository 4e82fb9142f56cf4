// Base of the platform: access to the host, and shared parts of its classes.
//
// The platform's classes and functions (URL, events, blobs, crypto and so on) are for an engine that has only the
// language. They are written in that language. Operations that only the host can perform are requested from it in JSON.

import { errorClass, isObject, type Json } from "./intrinsics.ts";

/** Host of a platform. It never calls anything that a program could have replaced. */
export interface Host {
  /**
   * Answers `[name, ...arguments]` with `{"value": ...}` or `{"error": [name, code, message]}`, where the code is the
   * error's own or "DOMException".
   */
  answer(question: string): string;
  /** Calls back after this time, once or repeatedly. Returns the timer's number. */
  setTimer(callback: () => void, milliseconds: number, repeats: boolean): number;
  /** Calls back in the next turn. */
  setImmediate(callback: () => void): number;
  clearTimer(timer: number): void;
  /** Called for each timer that starts, without the callback if it repeats. */
  started(timer: { _destroyed: boolean }, callback?: unknown): void;
  /** Called with errors thrown by callbacks. */
  uncaught(error: unknown): void;
  /** Milliseconds since `timeOrigin`. */
  now(): number;
  timeOrigin: number;
}

export type Callable = (...args: unknown[]) => unknown;
export type Pair = [string, string];
export type Pairs = Pair[];

const { create, defineProperty } = Object;
const { parse, stringify } = JSON;
/** Token for constructors that programs must not call. */
export const OURS = Symbol("ours");

let current: Host;

/** Sets the platform's host. */
export function openHost(host: Host): void {
  current = host;
}

export const host = (): Host => current;

/** Returns the host's answer. */
export function ask<T>(name: string, ...args: Json[]): T {
  const { value, error } = parse(current.answer(stringify([name, ...args]))) as { value?: unknown; error?: [string, string, string] };
  if (error !== undefined) throw failed(...error);
  return value as T;
}

function failed(name: string, code: string, message: string): Error {
  if (code === "DOMException") return new DOMException(message, name);
  const error = new (errorClass(name) ?? Error)(message);
  return code === "" ? error : coded(error, code);
}

export const coded = (error: Error, code: string): Error => Object.assign(error, { code });
export const usv = (value: unknown): string => `${value}`.toWellFormed();
export const illegal = (): Error => coded(new TypeError("Illegal constructor"), "ERR_ILLEGAL_CONSTRUCTOR");

export function need(name: string, args: ArrayLike<unknown>, count: number): void {
  if (args.length >= count) return;
  const required = `${count} argument${count === 1 ? "" : "s"} required, but only ${args.length} present`;
  throw coded(new TypeError(`${name}: ${required}`), "ERR_MISSING_ARGS");
}

export const dictionary = (value: unknown): Record<string, unknown> => (isObject(value) ? (value as Record<string, unknown>) : {});

export function tag(...types: { prototype: object; name: string }[]): void {
  for (const type of types) {
    defineProperty(type.prototype, Symbol.toStringTag, { value: type.name, configurable: true });
  }
}

/** Makes members of platform classes enumerable. */
export function enumerable(...types: { prototype: object }[]): void {
  for (const { prototype } of types) {
    for (const key of Object.getOwnPropertyNames(prototype)) {
      if (key !== "constructor") defineProperty(prototype, key, { enumerable: true });
    }
  }
}

/** Returns pairs as an iterator named after its class. */
export function iterator<T>(name: string, values: Iterable<T>): IterableIterator<T> {
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

/** Reads pairs from a constructor's argument. */
export function pairsOf(init: unknown, what: string): Pairs {
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

const EXCEPTION_CODES: Record<string, number> = Object.assign(create(null) as object, {
  IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5,
  NoModificationAllowedError: 7, NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11,
  SyntaxError: 12, InvalidModificationError: 13, NamespaceError: 14, InvalidAccessError: 15, TypeMismatchError: 17,
  SecurityError: 18, NetworkError: 19, AbortError: 20, URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23,
  InvalidNodeTypeError: 24, DataCloneError: 25,
});

export class DOMException extends Error {
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

/** Runs an action, and reports its error to the host. */
export function guarded(action: () => void): void {
  try {
    action();
  } catch (error) {
    current.uncaught(error);
  }
}
