// Value codec. docs/values.md specifies the conversions, docs/frames.md the tags.
//
// The writer builds JSON text itself instead of calling JSON.stringify on the program's objects, because the program
// may have put a `toJSON` or a setter on Object.prototype. Every intrinsic used here is captured before the program
// runs.

const { stringify, parse } = JSON;
const { isArray, from: arrayFrom } = Array;
const { keys, getPrototypeOf, getOwnPropertyDescriptor, is, hasOwn, defineProperty } = Object;
const { isFinite } = Number;
const { isView } = ArrayBuffer;
const Bytes = Uint8Array;
const objectPrototype = Object.prototype;
const { isPrototypeOf } = objectPrototype;
const apply = Reflect.apply;
const mapEntries = Map.prototype.entries;
const mapKeys = Map.prototype.keys;
const setValues = Set.prototype.values;
const isoString = Date.prototype.toISOString;
const getTime = Date.prototype.getTime;
const nodeBuffer = "fromBase64" in Bytes ? undefined : (globalThis as unknown as { Buffer: NodeBuffer }).Buffer;
export const bytesToBase64 = Uint8Array.prototype.toBase64 ?? nodeToBase64;
export const bytesFromBase64 = Uint8Array.fromBase64 ?? nodeFromBase64;
const isWellFormed = String.prototype.isWellFormed;
const toWellFormed = String.prototype.toWellFormed;
const bigintToString = BigInt.prototype.toString;
const tagSymbol = Symbol.toStringTag;
const iteratorPrototype = getPrototypeOf(getPrototypeOf([].values())); // Node 20 has no global Iterator
const { get: lengthOfBytes } = getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), "length")!;
export const asyncIteratorPrototype = getPrototypeOf(getPrototypeOf(async function* () {}.prototype));

/** Maximum nesting. Deeper values are mistakes or attacks. */
export const MAX_DEPTH = 100;
/** CPython's default limit for parsing decimal digits (sys.int_info.default_max_str_digits). */
const MAX_INTEGER_DIGITS = 4300;
/** Maximum number of a result's lists that are searched for lost members, and of members that are reported. */
const MAX_LISTS = 20;
const MAX_LOST = 5;

/** Keys of tags, which are single-key objects. A program's own object with such a key is wrapped in a `$object`. */
const TAGS = new Set(["$bytes", "$buffer", "$bigint", "$number", "$object"]);
const isTag = TAGS.has.bind(TAGS);

/** A value cannot cross the boundary. The message starts with the path to it. */
export class ValueError extends TypeError {
  override name = "ValueError";
  readonly tooLarge: boolean;

  constructor(message: string, tooLarge = false) {
    super(message);
    this.tooLarge = tooLarge;
  }
}

export interface Encoded {
  text: string;
  tagged: boolean;
  /** True if lone surrogates were replaced by U+FFFD. */
  replaced: boolean;
}

const quotedKeys = new Map<string, string>();
const quotedKey = quotedKeys.get.bind(quotedKeys);
const keepQuotedKey = quotedKeys.set.bind(quotedKeys);

/** Results of promises in a value, and of iterators collected meanwhile. */
export type Settled = Map<object, unknown>;

const SettledMap = Map;
const settledBy = Map.prototype.get as (this: Settled, key: object) => unknown;
const isSettled = Map.prototype.has as (this: Settled, key: object) => boolean;
const keep = Map.prototype.set as (this: Settled, key: object, value: unknown) => Settled;

class Writer {
  text = "";
  /** Promises missing from `settled`. */
  pending: Promise<unknown>[] = [];
  tagged = false;
  replaced = false;
  #path: (string | number)[] = [];
  #ancestors: object[] = [];
  #depth = 0;
  /** Number of enclosing containers that are wrapped in `$object`, which the reader sees as one more level. */
  #wrapped = 0;
  #root: string;
  #maxBytes: number;
  #plain: boolean;
  #settled: Settled | undefined;

  constructor(root: string, maxBytes: number, plain: boolean, settled?: Settled) {
    this.#root = root;
    this.#maxBytes = maxBytes;
    this.#plain = plain;
    this.#settled = settled;
  }

  write(value: unknown): void {
    switch (typeof value) {
      case "string":
        this.text += this.#quote(value);
        break;
      case "number":
        // The host reads NaN and the infinities as JSON's usual extension; "-0" would be read as an integer.
        if (this.#plain && !isFinite(value)) this.#writeTag("$number", `${value}`);
        else this.text += is(value, -0) ? "-0.0" : `${value}`;
        break;
      case "boolean":
        this.text += value ? "true" : "false";
        break;
      case "undefined":
        this.text += "null";
        break;
      case "bigint": {
        const digits = apply(bigintToString, value, []) as string;
        if (digits.length > MAX_INTEGER_DIGITS) this.#refuse(`a BigInt of ${digits.length} digits is too long`);
        if (this.#plain) this.#writeTag("$bigint", digits);
        else this.text += digits;
        break;
      }
      case "object":
        if (value === null) this.text += "null";
        else this.#writeObject(value);
        break;
      case "function":
        this.#refuse("a function cannot leave the sandbox; call it, or return its result");
        break;
      default:
        this.#refuse("a symbol cannot leave the sandbox");
    }
    if (this.text.length > this.#maxBytes) this.#tooLarge();
  }

  /** Checks the whole text once it is written. Until then, its length in UTF-16 units is a cheap lower bound. */
  finish(): this {
    if (this.text.length * 3 > this.#maxBytes && byteLength(this.text) > this.#maxBytes) this.#tooLarge();
    return this;
  }

  #tooLarge(): never {
    throw new ValueError(`${this.#root} is larger than the ${this.#maxBytes} bytes allowed`, true);
  }

  /** Continues with a record: `text` has the members before `index`, and the next one is read already, perhaps by a getter. */
  resume(text: string, record: object, names: readonly string[], index: number, member: unknown): void {
    this.text = text;
    this.#ancestors[0] = record;
    this.#depth = 1;
    this.#writeMember(names[index]!, member, text === "{");
    this.#writeRest(record, names, index + 1, false);
    this.#depth = 0;
  }

  #quote(value: string): string {
    if (!apply(isWellFormed, value, [])) {
      this.replaced = true;
      value = apply(toWellFormed, value, []) as string;
    }
    return stringify(value);
  }

  #writeObject(value: object): void {
    if (this.#depth + this.#wrapped >= MAX_DEPTH) this.#tooDeep(value);
    this.#ancestors[this.#depth] = value;
    this.#depth += 1;
    if (isArray(value)) this.#writeArray(value);
    else {
      const prototype = getPrototypeOf(value);
      if (prototype === objectPrototype || prototype === null) this.#writeRecord(value);
      else this.#writeInstance(value);
    }
    this.#depth -= 1;
  }

  /** Rejects `value`, which is one level too deep. Reports a cycle as such, with the path at which it closes. */
  #tooDeep(value: object): never {
    if (value instanceof Promise && this.#settled !== undefined) {
      const settled = apply(settledBy, this.#settled, [value]);
      if (typeof settled === "object" && settled !== null) value = settled;
    }
    this.#ancestors[this.#depth] = value;
    for (let depth = 1; depth <= this.#depth; depth++) {
      for (let above = 0; above < depth; above++) {
        if (this.#ancestors[above] !== this.#ancestors[depth]) continue;
        this.#depth = depth;
        this.#refuse("a cycle: the value contains itself");
      }
    }
    this.#refuse(`nested deeper than ${MAX_DEPTH} levels`);
  }

  #writeArray(value: readonly unknown[]): void {
    this.text += "[";
    for (let index = 0; index < value.length; index++) {
      if (index > 0) this.text += ",";
      this.#path[this.#depth - 1] = index;
      this.write(value[index]);
    }
    this.text += "]";
  }

  #writeRecord(value: object): void {
    const names = keys(value);
    if (names.length === 0 && tagSymbol in value) this.#refuse(`a ${String(value)} cannot leave the sandbox`);
    if (!holdsTag(names)) return this.#writeMembers(value, names);
    if (this.#depth + this.#wrapped >= MAX_DEPTH) {
      this.#depth -= 1;
      this.#tooDeep(this.#ancestors[this.#depth]!);
    }
    this.#wrapped += 1;
    this.#openTag("$object");
    this.#writeMembers(value, names);
    this.text += "}";
    this.#wrapped -= 1;
  }

  #writeMembers(value: object, names: readonly string[]): void {
    this.text += "{";
    this.#writeRest(value, names, 0, true);
  }

  #writeRest(value: object, names: readonly string[], start: number, first: boolean): void {
    for (let index = start; index < names.length; index++) {
      const member = (value as Record<string, unknown>)[names[index]!];
      if (member === undefined) continue;
      this.#writeMember(names[index]!, member, first);
      first = false;
    }
    this.text += "}";
  }

  #writeMember(name: string, member: unknown, first: boolean): void {
    this.#path[this.#depth - 1] = name;
    const key = keyText(name) ?? `${this.#quote(name)}:`;
    this.text += first ? key : `,${key}`;
    this.write(member);
  }

  #openTag(tag: string): void {
    this.tagged = true;
    this.text += `{"${tag}":`;
  }

  /** Quotes `content`, which must not need escapes in JSON. */
  #writeTag(tag: string, content: string): void {
    this.#openTag(tag);
    this.text += `"${content}"}`;
  }

  #writeInstance(value: object): void {
    if (value instanceof Date) {
      // An invalid Date has no ISO form; like JSON, this writes null.
      this.text += isFinite(apply(getTime, value, [])) ? stringify(apply(isoString, value, [])) : "null";
    } else if (value instanceof Map) this.#writeMap(value);
    else if (value instanceof Set) this.#writeArray(arrayFrom(apply(setValues, value, []) as Iterable<unknown>));
    else if (isView(value)) {
      this.#writeBytes("$bytes", new Bytes(value.buffer, value.byteOffset, value.byteLength));
    } else if (value instanceof ArrayBuffer) this.#writeBytes("$buffer", new Bytes(value));
    else if (value instanceof Error) this.#writeError(value);
    else if (value instanceof Promise) this.#writePromise(value);
    else if (value instanceof String || value instanceof Number || value instanceof Boolean) this.write(value.valueOf());
    else if (value instanceof RegExp) this.text += this.#quote(`${value}`);
    else this.#writeOther(value);
  }

  /** Writes the promise's value in its place, at the same depth. */
  #writePromise(value: Promise<unknown>): void {
    if (this.#settled === undefined) this.#refuse("a promise: await it first");
    if (!apply(isSettled, this.#settled, [value])) {
      defineProperty(this.pending, this.pending.length, { __proto__: null, value } as PropertyDescriptor);
      this.text += "null";
      return;
    }
    this.#depth -= 1;
    this.write(apply(settledBy, this.#settled, [value]));
    this.#depth += 1;
  }

  #writeOther(value: object): void {
    if (apply(isPrototypeOf, iteratorPrototype, [value])) return this.#writeIterator(value as Iterator<unknown>);
    if (apply(isPrototypeOf, asyncIteratorPrototype, [value])) {
      this.#refuse("an async iterator: collect it first, for example with for await");
    }
    const tag = (value as Record<symbol, unknown>)[tagSymbol];
    if (typeof tag === "string" && keys(value).length === 0) {
      // Platform objects keep their contents in slots instead of properties. Some have an obvious text form.
      if (tag === "URL" || tag === "URLSearchParams" || tag.startsWith("Temporal.")) this.text += this.#quote(`${value}`);
      else this.#refuse(`a ${tag} cannot leave the sandbox; return its contents`);
    } else this.#writeRecord(value);
  }

  /** Writes a list. An endless iterator hits the limit of the whole value. */
  #writeIterator(value: Iterator<unknown>): void {
    const kept = this.#settled;
    if (kept !== undefined && apply(isSettled, kept, [value])) {
      return this.#writeArray(apply(settledBy, kept, [value]) as unknown[]);
    }
    const members: unknown[] = [];
    if (kept !== undefined) apply(keep, kept, [value, members]);
    this.text += "[";
    for (let index = 0; ; index++) {
      const step = value.next();
      if (step.done) break;
      defineProperty(members, index, { __proto__: null, value: step.value } as PropertyDescriptor);
      if (index > 0) this.text += ",";
      this.#path[this.#depth - 1] = index;
      this.write(step.value);
    }
    this.text += "]";
  }

  #writeMap(value: Map<unknown, unknown>): void {
    const named = arrayFrom(apply(mapKeys, value, []) as Iterable<unknown>).every((key) => typeof key === "string");
    const pairs = arrayFrom(apply(mapEntries, value, []) as Iterable<[unknown, unknown]>);
    if (!named) {
      this.#writeArray(pairs);
      return;
    }
    const record = { __proto__: null } as unknown as Record<string, unknown>;
    for (const [key, member] of pairs as [string, unknown][]) {
      defineProperty(record, key, { __proto__: null, value: member ?? null, enumerable: true } as PropertyDescriptor);
    }
    this.#writeRecord(record);
  }

  #writeBytes(tag: string, bytes: Uint8Array): void {
    // Base64 makes four characters from three bytes: refuse before encoding.
    if (sizeOf(bytes) * 4 > this.#maxBytes * 3) this.#tooLarge();
    this.#writeTag(tag, apply(bytesToBase64, bytes, []) as string);
  }

  #writeError(value: Error): void {
    const record: Record<string, unknown> = { name: value.name, message: value.message };
    if (hasOwn(value, "cause")) record.cause = value.cause;
    if (value instanceof AggregateError) record.errors = value.errors;
    this.#writeRecord(record);
  }

  #refuse(reason: string): never {
    let path = this.#root;
    for (const key of this.#path.slice(0, this.#depth)) {
      path += typeof key === "number" ? `[${key}]` : /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${stringify(key)}]`;
    }
    throw new ValueError(`${path}: ${reason}`);
  }
}

function holdsTag(names: readonly string[]): boolean {
  for (let index = 0; index < names.length; index++) if (isTag(names[index]!)) return true;
  return false;
}

export function sizeOf(bytes: Uint8Array): number {
  return apply(lengthOfBytes!, bytes, []) as number;
}

/** Returns a quoted key with its colon; undefined if it is not well-formed. Short keys are cached. */
function keyText(name: string): string | undefined {
  const known = quotedKey(name);
  if (known !== undefined || !apply(isWellFormed, name, [])) return known;
  const quoted = `${stringify(name)}:`;
  if (quotedKeys.size < 1000 && name.length < 64) keepQuotedKey(name, quoted);
  return quoted;
}

/** Returns the text of a primitive; undefined if a Writer has to write it. */
function primitiveText(value: unknown): string | undefined {
  switch (typeof value) {
    case "string":
      return apply(isWellFormed, value, []) ? stringify(value) : undefined;
    case "number":
      return is(value, -0) ? "-0.0" : `${value}`;
    case "boolean":
      return value ? "true" : "false";
    default:
      return value === null ? "null" : undefined;
  }
}

/**
 * Writes a value. Most are primitives or records of them, for which an interpreter takes several times as long with a
 * Writer. The text of a Writer is not finished.
 */
function encode(value: unknown, root: string, maxBytes: number, plain: boolean, settled?: Settled): Encoded | Writer {
  let text = plain ? undefined : isArray(value) && value.length === 0 ? "[]" : primitiveText(value);
  if (text === undefined && !plain && typeof value === "object" && value !== null && getPrototypeOf(value) === objectPrototype) {
    const names = keys(value);
    if (names.length > 0 && !holdsTag(names)) {
      text = "{";
      for (let index = 0; index < names.length; index++) {
        const member = (value as Record<string, unknown>)[names[index]!];
        if (member === undefined) continue;
        const content = primitiveText(member);
        const key = content === undefined ? undefined : keyText(names[index]!);
        if (key === undefined) {
          const writer = new Writer(root, maxBytes, plain, settled);
          writer.resume(text, value, names, index, member);
          return writer;
        }
        text += text === "{" ? key + content! : `,${key}${content!}`;
      }
      text += "}";
    }
  }
  if (text !== undefined && text.length * 3 <= maxBytes) return { text, tagged: false, replaced: false };
  const writer = new Writer(root, maxBytes, plain, settled);
  if (text === undefined) writer.write(value);
  else writer.text = text;
  return writer;
}

/**
 * Encodes `value` as JSON text with tags. `root` names it in errors. More than `maxBytes` of UTF-8 are rejected.
 * `plain` uses tags in place of JSON extensions, for any JSON parser.
 */
export function encodeValue(value: unknown, root: string, maxBytes: number, plain = false): Encoded {
  const encoded = encode(value, root, maxBytes, plain);
  return encoded instanceof Writer ? encoded.finish() : encoded;
}

/**
 * Encodes a program's value with promises replaced by their results. `write` gets its text. `wait` calls back when all
 * promises passed to it have been fulfilled. Results may contain promises in turn, up to a limit.
 */
export function encodeSettled(
  value: unknown,
  root: string,
  maxBytes: number,
  wait: (promises: Promise<unknown>[], fulfilled: (values: unknown[]) => void) => void,
  write: (encoded: Encoded) => void,
  settled: Settled = new SettledMap(),
  rounds = MAX_DEPTH,
): void {
  const writer = encode(value, root, maxBytes, false, rounds > 0 ? settled : undefined);
  if (!(writer instanceof Writer)) return write(writer);
  const { pending } = writer;
  if (pending.length === 0) return write(writer.finish());
  wait(pending, (values) => {
    for (let index = 0; index < pending.length; index++) apply(keep, settled, [pending[index]!, values[index]]);
    encodeSettled(value, root, maxBytes, wait, write, settled, rounds - 1);
  });
}

const slice = String.prototype.slice;

/** Cuts the text of an error to a length, and makes it well-formed. */
export function clip(text: string, length: number): string {
  const kept = text.length <= length
    ? text
    : `${apply(slice, text, [0, length])} … [${text.length - length} more characters]`;
  return apply(toWellFormed, kept, []) as string;
}

const { exec } = RegExp.prototype;
/** An interpreter searches for these in a tenth of the time in which it encodes a text. */
const NOT_ASCII = /[^\0-\x7f]/;
const encodeText = TextEncoder.prototype.encode.bind(new TextEncoder());

/** Returns the length of `text` as UTF-8. */
export function byteLength(text: string): number {
  return apply(exec, NOT_ASCII, [text]) === null ? text.length : sizeOf(encodeText(text));
}

/** Parses a payload. It is searched for tags only if the frame says that there are some. */
export function decodeValue(payload: string, tagged: boolean): unknown {
  const value: unknown = parse(payload);
  return tagged ? revive(value) : value;
}

/** Replaces the tags in a parsed value by the values that they represent. */
export function revive(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (isArray(value)) {
    for (let index = 0; index < value.length; index++) value[index] = revive(value[index]);
    return value;
  }
  const record = value as Record<string, unknown>;
  const names = keys(record);
  if (names.length === 1 && isTag(names[0]!)) return untag(names[0]!, record[names[0]!]);
  return reviveMembers(record, names);
}

function reviveMembers(record: Record<string, unknown>, names: string[]): Record<string, unknown> {
  for (const name of names) {
    const member = record[name];
    if (typeof member !== "object" || member === null) continue;
    const descriptor = { __proto__: null, value: revive(member), writable: true, enumerable: true, configurable: true };
    defineProperty(record, name, descriptor as PropertyDescriptor);
  }
  return record;
}

function untag(tag: string, content: unknown): unknown {
  switch (tag) {
    case "$bytes":
      return bytesFromBase64(content as string);
    case "$buffer":
      return bytesFromBase64(content as string).buffer;
    case "$bigint":
      return BigInt(content as string);
    case "$number":
      return Number(content as string);
    default:
      return reviveMembers(content as Record<string, unknown>, keys(content as object));
  }
}

// For Node, up to version 24.

interface NodeBuffer {
  from(text: string, encoding: "base64"): Uint8Array;
  from(buffer: ArrayBufferLike, offset: number, length: number): { toString(encoding: "base64"): string };
}

function nodeToBase64(this: Uint8Array): string {
  return nodeBuffer!.from(this.buffer, this.byteOffset, this.byteLength).toString("base64");
}

function nodeFromBase64(text: string): Uint8Array {
  return new Bytes(nodeBuffer!.from(text, "base64")); // copied, because Node's own shares its buffer with others
}

/**
 * Finds members that are undefined in every row of a list, so that none is written. Looks at the value, and at lists in
 * it.
 */
export function lostInAllRows(value: unknown): { name: string; rows: number }[] {
  const lost: { name: string; rows: number }[] = [];
  addLost(value, lost);
  if (!isRow(value)) return lost;
  const names = keys(value);
  for (let index = 0; index < names.length && index < MAX_LISTS; index++) {
    addLost(getOwnPropertyDescriptor(value, names[index]!)?.value, lost);
  }
  return lost;
}

function addLost(list: unknown, lost: { name: string; rows: number }[]): void {
  if (!isArray(list) || list.length < 2 || !isRow(list[0])) return;
  const names = keys(list[0]);
  for (let index = 0; index < names.length && lost.length < MAX_LOST; index++) {
    const name = names[index]!;
    if (isLost(list, name)) lost[lost.length] = { name, rows: list.length };
  }
}

function isLost(list: readonly unknown[], name: string): boolean {
  for (let index = 0; index < list.length; index++) {
    const row = list[index];
    const member = isRow(row) ? getOwnPropertyDescriptor(row, name) : undefined;
    if (member === undefined || !("value" in member) || member.value !== undefined) return false;
  }
  return true;
}

function isRow(value: unknown): value is object {
  return typeof value === "object" && value !== null && getPrototypeOf(value) === objectPrototype;
}
