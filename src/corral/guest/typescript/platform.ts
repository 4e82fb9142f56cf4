// The platform's classes and functions (URL, streams, crypto and so on) in a context that has only the language.
//
// The engine has them once, in its own context. Here each class gets a face: a class of this context whose objects stand
// for objects of the engine's. What goes to the engine is lent: a face becomes what it stands for, a callback is wrapped.
// What comes back is adopted: an object of one of the engine's classes gets its face, and data gets the prototypes of
// this context. So a program finds one world, in which `instanceof` holds; and what it changes in that world is gone
// with it. Whatever of the engine slips through nevertheless is frozen (harden.ts).

import { ADOPTABLE } from "./intrinsics.ts";

type Callable = (...args: unknown[]) => unknown;
type Constructor = new (...args: unknown[]) => object;

/** What the engine's context gives. */
export interface Platform {
  /** The engine's own global of that name. */
  part(name: string): unknown;
  /** The name of the engine's class whose objects have this prototype. */
  className(prototype: object): string | undefined;
  adoptable: readonly object[];
  function: object;
  promise: object;
  iterator: object;
  asyncIterator: object;
}

/** The run on whose behalf the engine calls back. */
export interface Scope {
  /** Until EXIT. What happens later must not wake the program again. */
  live: boolean;
  uncaught(error: unknown): void;
}

const { apply, construct, ownKeys } = Reflect;
const {
  create, defineProperty, freeze, getOwnPropertyDescriptor, getOwnPropertyNames, getPrototypeOf, isFrozen, keys, setPrototypeOf,
} = Object;
const { isArray } = Array;
const { isView } = ArrayBuffer;
const { isPrototypeOf } = Object.prototype;
const { startsWith } = String.prototype;
const { get: mapGet, set: mapSet, entries: mapEntries, clear: mapClear } = Map.prototype;
const { add: setAdd, values: setValues, clear: setClear } = Set.prototype;
const { get: weakGet, set: weakSet } = WeakMap.prototype;
const RealPromise = Promise;
const Bytes = Uint8Array;
const Mapping = Map;
const Weak = WeakMap;

/** Symbols by which the language and `inspect` call methods of an object. Others lead into the engine. */
const LANGUAGE_SYMBOLS = new Set<unknown>([
  Symbol.iterator, Symbol.asyncIterator, Symbol.toStringTag, Symbol.toPrimitive, Symbol.dispose, Symbol.asyncDispose,
]);
const isOfLanguage = LANGUAGE_SYMBOLS.has.bind(LANGUAGE_SYMBOLS);
const isShared = (key: symbol) => isOfLanguage(key) || /inspect/i.test(key.description ?? "");

const isObject = (value: unknown): value is object =>
  (typeof value === "object" && value !== null) || typeof value === "function";

const isOfFunctions = (key: PropertyKey) => key === "prototype" || key === "name" || key === "length";
const isClassName = (name: string) => /^[A-Z]/.test(name);

/** A weak table that works whatever the program does to WeakMap. */
class Table {
  #map = new Weak<object, object>();

  get(key: object): object | undefined {
    return apply(weakGet, this.#map, [key]);
  }

  set(key: object, value: object): void {
    apply(weakSet, this.#map, [key, value]);
  }
}

export class Faces {
  #platform: Platform;
  #scope: Scope;
  /** Objects of this context to the engine's, and back. */
  #originals = new Table();
  #faces = new Table();
  #callbacks = new Table();
  #listeners = new Table();
  #homes = new Mapping<object, object>();
  #classes = create(null) as Record<string, Constructor>;

  constructor(platform: Platform, scope: Scope) {
    this.#platform = platform;
    this.#scope = scope;
    for (let index = 0; index < ADOPTABLE.length; index++) this.#setHome(platform.adoptable[index]!, ADOPTABLE[index]!);
  }

  /** This context's version of a global of the engine's. */
  global(name: string): unknown {
    const part = this.#platform.part(name);
    if (name === "Buffer") return this.#bufferClass(part as Constructor);
    if (typeof part !== "function") return this.#adopt(part);
    return isClassName(name) ? this.#class(name) : this.#wrapped(name, part as Callable);
  }

  #setHome(foreign: object, home: object): void {
    apply(mapSet, this.#homes, [foreign, home]);
  }

  #class(name: string): Constructor {
    return (this.#classes[name] ??= name === "DOMException" ? domException() : this.#makeClass(name));
  }

  #makeClass(name: string): Constructor {
    const original = this.#platform.part(name) as Constructor;
    const parent = this.#platform.className(getPrototypeOf(original.prototype) as object);
    const faces = this;
    const Face = {
      [name]: class {
        constructor(...args: unknown[]) {
          try {
            faces.#stand(this, construct(original, faces.#lendAll(args)));
          } catch (error) {
            throw faces.#adopt(error);
          }
        }
      },
    }[name]!;
    this.#classes[name] = Face;
    if (parent !== undefined) {
      const Parent = this.#class(parent);
      setPrototypeOf(Face, Parent);
      setPrototypeOf(Face.prototype, Parent.prototype as object);
    }
    this.#copyMembers(original, Face);
    this.#copyMembers(original.prototype as object, Face.prototype);
    return Face;
  }

  /** Buffers are arrays of bytes themselves: they are given prototypes of this context, and stand for nothing. */
  #bufferClass(original: Constructor): Constructor {
    const known = this.#classes.Buffer;
    if (known !== undefined) return known;
    const faces = this;
    const Buffer = function Buffer(...args: unknown[]) {
      try {
        return faces.#adopt(construct(original, faces.#lendAll(args)));
      } catch (error) {
        throw faces.#adopt(error);
      }
    } as unknown as Constructor;
    this.#classes.Buffer = Buffer;
    setPrototypeOf(Buffer, Uint8Array);
    setPrototypeOf(Buffer.prototype, Uint8Array.prototype);
    this.#setHome(original.prototype as object, Buffer.prototype as object);
    this.#copyMembers(original, Buffer);
    this.#copyMembers(original.prototype as object, Buffer.prototype as object);
    // What `map` and the like of the language make of a buffer.
    const Species = function (...args: unknown[]) {
      return construct(Bytes, args, Buffer) as object;
    };
    defineProperty(Buffer, Symbol.species, { get: () => Species, configurable: true });
    const isBuffer = (value: unknown) => isObject(value) && apply(isPrototypeOf, Buffer.prototype as object, [value]);
    defineProperty(Buffer, "isBuffer", { value: isBuffer, writable: true, configurable: true, enumerable: true });
    return Buffer;
  }

  #copyMembers(from: object, to: object): void {
    const names = ownKeys(from);
    const ofClass = typeof from === "function";
    for (let index = 0; index < names.length; index++) {
      const key = names[index]!;
      const known = getOwnPropertyDescriptor(to, key);
      if (key === "constructor" || (typeof key === "symbol" && !isShared(key)) || known?.configurable === false || (ofClass && isOfFunctions(key))) continue;
      const { get, set, value, enumerable } = getOwnPropertyDescriptor(from, key)!;
      if (get !== undefined || set !== undefined) {
        defineProperty(to, key, {
          get: get && this.#getter(key, get),
          set: set && this.#setter(key, set),
          configurable: true,
          enumerable,
        });
      } else {
        const member = typeof value === "function" ? this.#member(key, value as Callable) : value;
        defineProperty(to, key, { value: member, writable: true, configurable: true, enumerable });
      }
    }
  }

  #member(key: PropertyKey, original: Callable): Callable {
    if (typeof key === "symbol" && !isOfLanguage(key)) {
      const faces = this;
      return function (this: unknown, ...args) {
        return apply(original, faces.#lend(this), args);
      };
    }
    return this.#wrapped(key, original);
  }

  #wrapped(key: PropertyKey, original: Callable): Callable {
    const faces = this;
    const listens = key === "addEventListener" || key === "removeEventListener";
    const clones = key === "structuredClone" || key === "postMessage";
    return {
      [key](this: unknown, ...args: unknown[]): unknown {
        if (listens && args.length > 1) args[1] = faces.#listener(args[1]);
        if (clones && typeof args[0] === "function") throw faces.#notCloned(args[0] as Callable);
        return faces.#call(original, this, args);
      },
    }[key as string]!;
  }

  #getter(key: PropertyKey, get: () => unknown): () => unknown {
    const faces = this;
    const { get: getter } = getOwnPropertyDescriptor({
      get [key](): unknown {
        return faces.#call(get, this, []);
      },
    }, key)!;
    return getter!;
  }

  #setter(key: PropertyKey, set: (value: unknown) => void): (value: unknown) => void {
    const faces = this;
    const listens = typeof key === "string" && (apply(startsWith, key, ["on"]) as boolean);
    return function (this: unknown, value: unknown) {
      faces.#call(set as Callable, this, [listens ? faces.#listener(value) : value]);
    };
  }

  /** Calls a function of the engine's; what it throws is thrown as an error of this context. */
  #call(original: Callable, self: unknown, args: unknown[]): unknown {
    try {
      return this.#adopt(apply(original, this.#lend(self), this.#lendAll(args)));
    } catch (error) {
      throw this.#adopt(error);
    }
  }

  /** Makes `face` stand for `original`, with what the latter has beside the members of its class. */
  #stand(face: object, original: object): void {
    this.#link(face, original);
    for (const key of getOwnPropertyNames(original)) {
      const get = () => this.#adopt((original as Record<string, unknown>)[key]);
      defineProperty(face, key, { get, configurable: true, enumerable: true });
    }
  }

  /** The error of the engine's for a function, which would name our wrapper of it. */
  #notCloned(callback: Callable): object {
    return new (this.#class("DOMException"))(`${callback} could not be cloned.`, "DataCloneError");
  }

  #link(face: object, original: object): void {
    this.#originals.set(face, original);
    this.#faces.set(original, face);
  }

  #lendAll(args: unknown[]): unknown[] {
    for (let index = 0; index < args.length; index++) args[index] = this.#lendArgument(args[index]);
    return args;
  }

  /** As `lend`; members of a plain object or an array are lent too, for options and lists. */
  #lendArgument(value: unknown): unknown {
    const lent = this.#lend(value);
    if (lent !== value || typeof value !== "object" || value === null || isView(value)) return lent;
    const prototype = getPrototypeOf(value);
    const list = isArray(value);
    if (!list && prototype !== null && prototype !== Object.prototype) return value;
    let copy: Record<string, unknown> | undefined;
    for (const key of keys(value)) {
      const member = (value as Record<string, unknown>)[key];
      const lentMember = this.#lend(member);
      if (lentMember === member) continue;
      copy ??= (list ? [...(value as unknown[])] : { ...value }) as Record<string, unknown>;
      copy[key] = lentMember;
    }
    if (copy !== undefined) this.#faces.set(copy, value); // it comes back as what it was
    return copy ?? value;
  }

  #lend(value: unknown): unknown {
    if (typeof value === "function") return this.#callback(value as Callable);
    return isObject(value) ? (this.#originals.get(value) ?? value) : value;
  }

  /** A function of the program's as the engine calls it. What it throws is for the engine. */
  #callback(callback: Callable): Callable {
    const known = this.#callbacks.get(callback);
    if (known !== undefined) return known as Callable;
    const faces = this;
    const lent = function (this: unknown, ...args: unknown[]): unknown {
      if (!faces.#scope.live) return undefined;
      for (let index = 0; index < args.length; index++) args[index] = faces.#adopt(args[index]);
      return faces.#lend(apply(callback, faces.#adopt(this), args));
    };
    this.#callbacks.set(callback, lent);
    this.#faces.set(lent, callback);
    return lent;
  }

  /** A listener of events. What it throws nobody catches. */
  #listener(listener: unknown): unknown {
    if (!isObject(listener)) return listener;
    const known = this.#listeners.get(listener);
    if (known !== undefined) return known;
    const faces = this;
    const lent = function (this: unknown, event: unknown): unknown {
      if (!faces.#scope.live) return undefined;
      try {
        const call = typeof listener === "function" ? listener : (listener as { handleEvent: Callable }).handleEvent;
        return apply(call, typeof listener === "function" ? faces.#adopt(this) : listener, [faces.#adopt(event)]);
      } catch (error) {
        faces.#scope.uncaught(error);
        return undefined;
      }
    };
    this.#listeners.set(listener, lent);
    this.#faces.set(lent, listener);
    return lent;
  }

  #adopt(value: unknown): unknown {
    if (!isObject(value)) return value;
    const known = this.#faces.get(value);
    if (known !== undefined) return known;
    const prototype = getPrototypeOf(value) as object | null;
    if (prototype === null) return value;
    if (typeof value === "function") {
      if (prototype !== this.#platform.function) return value;
      const face = this.#wrapped(value.name, value as Callable);
      this.#link(face, value);
      return face;
    }
    const home = apply(mapGet, this.#homes, [prototype]) as object | undefined;
    if (home !== undefined) return isFrozen(value) ? this.#copied(value) : this.#moved(value, home);
    if (prototype === this.#platform.promise) return this.#promise(value as Promise<unknown>);
    const name = this.#platform.className(prototype);
    if (name === "DOMException") return this.#exception(value as DOMException);
    if (name !== undefined) {
      const face = create(this.#class(name).prototype as object) as object;
      this.#stand(face, value);
      return face;
    }
    if (apply(isPrototypeOf, this.#platform.iterator, [value])) return this.#iterator(value as Iterator<unknown>);
    if (apply(isPrototypeOf, this.#platform.asyncIterator, [value])) return this.#asyncIterator(value as AsyncIterator<unknown>);
    return value;
  }

  /** A list that the engine keeps, and has frozen. */
  #copied(value: object): object {
    if (!isArray(value)) return value;
    const copy: unknown[] = [];
    for (let index = 0; index < value.length; index++) copy[index] = this.#adopt(value[index]);
    this.#link(freeze(copy), value);
    return copy;
  }

  /** Data is the caller's own: it is moved here, with all that it holds. */
  #moved(value: object, home: object): object {
    setPrototypeOf(value, home);
    if (isView(value)) {
      this.#adopt(value.buffer);
      return value;
    }
    if (home === Mapping.prototype) {
      const entries = [...(apply(mapEntries, value, []) as Iterable<[unknown, unknown]>)];
      apply(mapClear, value, []);
      for (const [key, member] of entries) apply(mapSet, value, [this.#adopt(key), this.#adopt(member)]);
    } else if (home === Set.prototype) {
      const members = [...(apply(setValues, value, []) as Iterable<unknown>)];
      apply(setClear, value, []);
      for (const member of members) apply(setAdd, value, [this.#adopt(member)]);
    }
    const names = ownKeys(value);
    for (let index = 0; index < names.length; index++) {
      const descriptor = getOwnPropertyDescriptor(value, names[index]!)!;
      if (!descriptor.writable || !isObject(descriptor.value)) continue;
      const adopted = this.#adopt(descriptor.value);
      if (adopted !== descriptor.value) defineProperty(value, names[index]!, { value: adopted });
    }
    return value;
  }

  #promise(promise: Promise<unknown>): Promise<unknown> {
    const scope = this.#scope;
    const adopted = new RealPromise((resolve, reject) => {
      const settled = [
        (value: unknown) => scope.live && resolve(this.#adopt(value)),
        (error: unknown) => scope.live && reject(this.#adopt(error)),
      ];
      apply((this.#platform.promise as Promise<unknown>).then, promise, settled);
    });
    this.#link(adopted, promise);
    return adopted;
  }

  #exception(original: DOMException): object {
    const Exception = this.#class("DOMException");
    const face = new Exception(original.message, original.name);
    const { stack } = original;
    defineProperty(face, "stack", { value: stack, writable: true, configurable: true, enumerable: false });
    this.#link(face, original);
    return face;
  }

  *#iterator(iterator: Iterator<unknown>): Generator<unknown> {
    for (let step = iterator.next(); !step.done; step = iterator.next()) yield this.#adopt(step.value);
  }

  async *#asyncIterator(iterator: AsyncIterator<unknown>): AsyncGenerator<unknown> {
    let ended = false;
    try {
      for (;;) {
        const step = (await this.#adopt(iterator.next())) as IteratorResult<unknown>;
        ended = step.done === true;
        if (ended) return;
        yield step.value;
      }
    } finally {
      if (!ended) await this.#adopt(iterator.return?.());
    }
  }
}

const EXCEPTION_CODES: Record<string, number> = Object.assign(Object.create(null) as object, {
  IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5,
  NoModificationAllowedError: 7, NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11,
  SyntaxError: 12, InvalidModificationError: 13, NamespaceError: 14, InvalidAccessError: 15, TypeMismatchError: 17,
  SecurityError: 18, NetworkError: 19, AbortError: 20, URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23,
  InvalidNodeTypeError: 24, DataCloneError: 25,
});

/** Made anew, because its objects are errors of the context they are in. */
function domException(): Constructor {
  return class DOMException extends Error {
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

    get [Symbol.toStringTag](): string {
      return "DOMException";
    }
  } as unknown as Constructor;
}
