// Language intrinsics for the platform, captured before the program can change them, and the platform feature that
// needs nothing else: copying values.

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

const { apply } = Reflect;
const { getOwnPropertyDescriptor, getPrototypeOf, keys, prototype: objects } = Object;
const { isArray } = Array;
const { isView } = ArrayBuffer;
const getterOf = (prototype: object, name: PropertyKey) => getOwnPropertyDescriptor(prototype, name)!.get! as () => never;
const bufferLength = getterOf(ArrayBuffer.prototype, "byteLength");
const mapSize = getterOf(Map.prototype, "size");
const setSize = getterOf(Set.prototype, "size");
const viewName = getterOf(getPrototypeOf(Uint8Array.prototype) as object, Symbol.toStringTag);
const flagsOf = getterOf(RegExp.prototype, "flags");
const sourceOf = getterOf(RegExp.prototype, "source");
const { getTime } = Date.prototype;
const { isError } = Error as unknown as { isError(value: unknown): value is Error };
const Bytes = Uint8Array;

const VIEWS = {
  __proto__: null,
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array,
  BigInt64Array, BigUint64Array,
  ...(typeof Float16Array === "undefined" ? {} : { Float16Array }), // Node has it since 24
} as unknown as Record<string, new (buffer: ArrayBuffer, offset?: number, length?: number) => ArrayBufferView>;
const ERRORS = {
  __proto__: null, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError,
} as unknown as Record<string, ErrorConstructor>;

export const isObject = (value: unknown): value is object =>
  (typeof value === "object" && value !== null) || typeof value === "function";

/** True if `probe`, which works on instances of one class only, works on the value. */
function answers(probe: (this: never) => unknown, value: object): boolean {
  try {
    apply(probe as () => unknown, value, []);
    return true;
  } catch {
    return false;
  }
}

export const isBuffer = (value: object): value is ArrayBuffer => answers(bufferLength, value);

/**
 * Returns the bytes of a buffer or a view without copying, always as a plain array, even if the program has changed its
 * own.
 */
export function bytesOf(value: unknown): Uint8Array<ArrayBuffer> | undefined {
  if (!isObject(value)) return undefined;
  if (isView(value)) return new Bytes(value.buffer as ArrayBuffer, value.byteOffset, value.byteLength);
  return isBuffer(value) ? new Bytes(value) : undefined;
}

/** Returns the name of a typed array's class. */
export const arrayName = (value: object): string | undefined => apply(viewName, value, []);

export function errorClass(name: string): ErrorConstructor | undefined {
  return ERRORS[name];
}

/** Copies values that the platform adds to the language; returns undefined for others. */
type Known = (value: object) => object | undefined;

/** Implements `structuredClone`. `refuse` makes the error for a value that cannot be copied. */
export function clone(value: unknown, transfer: unknown[], known: Known, refuse: (text: string) => Error): unknown {
  const copies = new Map<object, unknown>();
  for (const each of transfer) {
    if (!isObject(each) || !isBuffer(each)) throw refuse("Value not transferable");
  }

  const views = (view: ArrayBufferView): object => {
    const name = arrayName(view);
    const buffer = copy(view.buffer) as ArrayBuffer;
    if (name === undefined) return new DataView(buffer, view.byteOffset, view.byteLength);
    return new VIEWS[name]!(buffer, view.byteOffset, (view as Uint8Array).length);
  };

  const errors = (error: Error): object => {
    const name = `${error.name}`;
    const message = getOwnPropertyDescriptor(error, "message");
    const copied = new (ERRORS[name] ?? Error)(message === undefined ? undefined : `${message.value}`);
    copies.set(error, copied);
    const define = (key: string, member: unknown) =>
      Object.defineProperty(copied, key, { value: member, writable: true, configurable: true, enumerable: false });
    const { stack } = error;
    define("stack", typeof stack === "string" ? stack : "");
    if (Object.hasOwn(error, "cause")) define("cause", copy(error.cause));
    return copied;
  };

  const members = (from: object, to: Record<string, unknown>): object => {
    copies.set(from, to);
    for (const key of keys(from)) {
      const member = copy((from as Record<string, unknown>)[key]);
      Object.defineProperty(to, key, { value: member, writable: true, configurable: true, enumerable: true });
    }
    return to;
  };

  const collection = (object: object): object | undefined => {
    if (answers(mapSize, object)) {
      const copied = new Map();
      copies.set(object, copied);
      for (const [key, member] of [...Map.prototype.entries.call(object)]) copied.set(copy(key), copy(member));
      return copied;
    }
    if (answers(setSize, object)) {
      const copied = new Set();
      copies.set(object, copied);
      for (const member of [...Set.prototype.values.call(object)]) copied.add(copy(member));
      return copied;
    }
    return undefined;
  };

  const fresh = (object: object): unknown => {
    if (isArray(object)) return members(object, new Array(object.length) as unknown as Record<string, unknown>);
    const prototype: unknown = getPrototypeOf(object);
    if (prototype === objects || prototype === null) return members(object, {});
    const platforms = known(object);
    if (platforms !== undefined) return platforms;
    if (isError(object)) return errors(object);
    if (isView(object)) return views(object);
    if (isBuffer(object)) return transfer.includes(object) ? object.transfer() : object.slice(0);
    if (answers(getTime, object)) return new Date(apply(getTime, object, []));
    if (prototype !== RegExp.prototype && answers(sourceOf, object)) return new RegExp(apply(sourceOf, object, []), apply(flagsOf, object, []));
    if (prototype === RegExp.prototype) return new RegExp((object as RegExp).source, (object as RegExp).flags);
    for (const type of [Number, String, Boolean, BigInt]) {
      const { valueOf } = type.prototype as { valueOf: (this: never) => unknown };
      if (answers(valueOf, object)) return Object(apply(valueOf as () => unknown, object, []));
    }
    for (const type of [WeakMap, WeakSet]) {
      const { has } = type.prototype as unknown as { has: (this: never) => unknown };
      if (answers(has, object)) throw refuse(`${Object.prototype.toString.call(object).replace("[object ", "#<").replace("]", ">")} could not be cloned.`);
    }
    if (object instanceof Promise || object instanceof WeakRef) throw refuse(`${String(object).replace("[object ", "#<").replace("]", ">")} could not be cloned.`);
    return collection(object) ?? members(object, {});
  };

  const copy = (each: unknown): unknown => {
    if (typeof each === "symbol") throw refuse(`${String(each)} could not be cloned.`);
    if (typeof each === "function") throw refuse(`${each} could not be cloned.`);
    if (!isObject(each)) return each;
    if (copies.has(each)) return copies.get(each);
    const copied = fresh(each);
    copies.set(each, copied);
    return copied;
  };

  const copied = copy(value);
  for (const each of transfer) if (!copies.has(each as object)) (each as ArrayBuffer).transfer();
  return copied;
}
