// Frames between host and guest over standard input and output. docs/frames.md specifies the format.
//
//   u32 length | u8 kind | u8 flags | nonce, 16 bytes | payload: a JSON array as UTF-8
//
// `length` counts everything after it. Big endian.

export const PROTOCOL = 1;
const HEADER_BYTES = 22;
export const NONCE_BYTES = 16;
const TAGGED = 1;

export interface Frame {
  kind: number;
  tagged: boolean;
  payload: string;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encodeInto = encoder.encodeInto.bind(encoder);
const decode = decoder.decode.bind(decoder);

// The nonce is in these buffers, so no code of the program may ever get one. Methods and accessors of typed arrays are
// on prototypes that the program can change, and some of them use `constructor`, which it can change as well. Therefore
// every view is created from its buffer when needed, and sizes are stored next to the buffers instead of being queried.
const { apply, getPrototypeOf } = Reflect;
const Bytes = Uint8Array;
const Block = ArrayBuffer;
const { max } = Math;
const { set } = getPrototypeOf(Uint8Array.prototype) as Uint8Array;
export const copy = (target: Uint8Array, source: Uint8Array, at: number): void => apply(set, target, [source, at]);

/** Buffer to which frames are appended, and which is sent in one write. */
export class FrameWriter {
  #size = 65536;
  #buffer = new Block(this.#size);
  #bytes = new Bytes(this.#buffer);
  #length = 0;
  #drained = 0;

  append(kind: number, tagged: boolean, payload: string, nonce: Uint8Array): void {
    this.#reserve(HEADER_BYTES + payload.length * 3);
    const start = this.#length;
    const from = start + HEADER_BYTES;
    const { written } = encodeInto(payload, new Bytes(this.#buffer, from, this.#size - from));
    writeNumber(this.#bytes, start, HEADER_BYTES - 4 + written);
    this.#bytes[start + 4] = kind;
    this.#bytes[start + 5] = tagged ? TAGGED : 0;
    copy(this.#bytes, nonce, start + 6);
    this.#length = from + written;
  }

  /**
   * Passes everything appended so far to `write`, which returns the number of bytes accepted and is then called with
   * the remainder.
   */
  drain(write: (bytes: Uint8Array) => number): void {
    // The program may have left so little stack that any call here throws: the number of bytes written must not be lost.
    while (this.#drained < this.#length) {
      this.#drained += write(new Bytes(this.#buffer, this.#drained, this.#length - this.#drained));
    }
    this.#drained = this.#length = 0;
  }

  #reserve(extra: number): void {
    if (this.#length + extra <= this.#size) return;
    const size = max(this.#size * 2, this.#length + extra);
    const buffer = new Block(size);
    const bytes = new Bytes(buffer);
    copy(bytes, new Bytes(this.#buffer, 0, this.#length), 0);
    this.#size = size;
    this.#buffer = buffer;
    this.#bytes = bytes;
  }
}

/** Splits input into frames. Fill `room()`, report it with `filled(n)`, then take frames until undefined. */
export class FrameReader {
  #size = 65536;
  #buffer = new Block(this.#size);
  #bytes = new Bytes(this.#buffer);
  #start = 0;
  #end = 0;
  #taken = 0;

  /** Nonce of the frame that was taken last. Valid until the next `room`. */
  get nonce(): Uint8Array {
    return new Bytes(this.#buffer, this.#taken + 6, NONCE_BYTES);
  }

  room(): Uint8Array {
    if (this.#start === this.#end) {
      this.#start = this.#end = 0;
    } else if (this.#end - this.#start >= 4) {
      const needed = 4 + readNumber(this.#bytes, this.#start);
      // Doubled, because a buffer for each size would leave garbage that the engine hardly accounts for.
      if (this.#start + needed > this.#size) this.#moveTo(needed > this.#size ? max(needed, this.#size * 2) : this.#size);
    } else if (this.#size - this.#start < HEADER_BYTES) {
      this.#moveTo(this.#size);
    }
    return new Bytes(this.#buffer, this.#end, this.#size - this.#end);
  }

  filled(count: number): void {
    this.#end += count;
  }

  next(): Frame | undefined {
    const available = this.#end - this.#start;
    if (available < 4) return undefined;
    const total = 4 + readNumber(this.#bytes, this.#start);
    if (available < total) return undefined;
    const at = this.#taken = this.#start;
    this.#start += total;
    return {
      kind: this.#bytes[at + 4]!,
      tagged: (this.#bytes[at + 5]! & TAGGED) !== 0,
      payload: decode(new Bytes(this.#buffer, at + HEADER_BYTES, total - HEADER_BYTES)),
    };
  }

  /** Moves the remaining data to the beginning of a buffer of `size` bytes. */
  #moveTo(size: number): void {
    const rest = new Bytes(this.#buffer, this.#start, this.#end - this.#start);
    if (size !== this.#size) {
      this.#size = size;
      this.#buffer = new Block(size);
      this.#bytes = new Bytes(this.#buffer);
    }
    copy(this.#bytes, rest, 0);
    this.#end -= this.#start;
    this.#start = 0;
  }
}

function writeNumber(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

function readNumber(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}
