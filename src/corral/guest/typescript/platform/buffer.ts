// Node's Buffer, with the parts that programs commonly use.

import { type Callable, coded } from "./base.ts";
import { joined } from "./blobs.ts";
import { bytesOf, isBuffer, isObject } from "./intrinsics.ts";
import { encodeText, latin1, TextDecoder, TextEncoder } from "./text.ts";

const { defineProperty } = Object;
const { isView } = ArrayBuffer;
const Bytes = Uint8Array;

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
  if (name !== "utf16le") return latin1(name === "ascii" ? bytes.map((byte) => byte & 127) : bytes);
  let text = "";
  for (let at = 0; at + 1 < bytes.length; at += 2) text += String.fromCharCode(bytes[at]! | (bytes[at + 1]! << 8));
  return text;
}

const badArgument = (name: string, value: unknown, expected: string): Error =>
  coded(new TypeError(`The ${name} argument must be ${expected}. Received ${value === null ? "null" : typeof value}`), "ERR_INVALID_ARG_TYPE");

export class Buffer extends Uint8Array<ArrayBuffer> {
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
      // never splits a character
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
