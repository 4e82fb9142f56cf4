// Frames between host and guest over standard input and output. The written format is docs/frames.md.
//
//   u32 length | u8 kind | u8 flags | nonce, 16 bytes | payload: a JSON array as UTF-8
//
// `length` counts all that follows it. Big endian.

export const PROTOCOL = 1;
export const HEADER_BYTES = 22;
export const NONCE_BYTES = 16;
export const TAGGED = 1;

export const Kind = {
  start: 1,
  reply: 2,
  ready: 16,
  call: 17,
  log: 18,
  exit: 19,
} as const;

export interface Frame {
  kind: number;
  tagged: boolean;
  payload: string;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encodeInto = encoder.encodeInto.bind(encoder);
const decode = decoder.decode.bind(decoder);

// Methods of typed arrays as they were before the program ran.
const { apply, getPrototypeOf } = Reflect;
const typedArray = getPrototypeOf(Uint8Array.prototype) as Uint8Array;
const { getUint32, setUint32 } = DataView.prototype;
const { subarray, set } = typedArray;
const part = (bytes: Uint8Array, start: number, end: number): Uint8Array => apply(subarray, bytes, [start, end]);
const copy = (target: Uint8Array, source: Uint8Array, at: number): void => apply(set, target, [source, at]);

/** A buffer that frames are appended to and that leaves in one write. */
export class FrameWriter {
  #bytes = new Uint8Array(65536);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;
  readonly nonce = new Uint8Array(NONCE_BYTES);

  get length(): number {
    return this.#length;
  }

  append(kind: number, tagged: boolean, payload: string): void {
    this.#reserve(HEADER_BYTES + payload.length * 3);
    const start = this.#length;
    const { written } = encodeInto(payload, part(this.#bytes, start + HEADER_BYTES, this.#bytes.length));
    apply(setUint32, this.#view, [start, HEADER_BYTES - 4 + written]);
    this.#bytes[start + 4] = kind;
    this.#bytes[start + 5] = tagged ? TAGGED : 0;
    copy(this.#bytes, this.nonce, start + 6);
    this.#length = start + HEADER_BYTES + written;
  }

  /** Hands over everything appended so far. The bytes are valid until the next append. */
  take(): Uint8Array {
    const taken = part(this.#bytes, 0, this.#length);
    this.#length = 0;
    return taken;
  }

  #reserve(extra: number): void {
    if (this.#length + extra <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + extra));
    copy(grown, part(this.#bytes, 0, this.#length), 0);
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}

/** Splits what was read into frames. Fill `room()`, report it with `filled(n)`, then take frames until undefined. */
export class FrameReader {
  #bytes = new Uint8Array(65536);
  #view = new DataView(this.#bytes.buffer);
  #start = 0;
  #end = 0;
  /** Of the frame taken last; valid until the next `room`. */
  nonce: Uint8Array = new Uint8Array(NONCE_BYTES);

  room(): Uint8Array {
    if (this.#start === this.#end) {
      this.#start = this.#end = 0;
    } else if (this.#end - this.#start >= 4) {
      const needed = 4 + (apply(getUint32, this.#view, [this.#start]) as number);
      if (this.#start + needed > this.#bytes.length) this.#moveTo(Math.max(needed, this.#bytes.length));
    } else if (this.#bytes.length - this.#start < HEADER_BYTES) {
      this.#moveTo(this.#bytes.length);
    }
    return part(this.#bytes, this.#end, this.#bytes.length);
  }

  filled(count: number): void {
    this.#end += count;
  }

  next(): Frame | undefined {
    const available = this.#end - this.#start;
    if (available < 4) return undefined;
    const total = 4 + (apply(getUint32, this.#view, [this.#start]) as number);
    if (available < total) return undefined;
    const at = this.#start;
    this.#start += total;
    this.nonce = part(this.#bytes, at + 6, at + HEADER_BYTES);
    return {
      kind: this.#bytes[at + 4]!,
      tagged: (this.#bytes[at + 5]! & TAGGED) !== 0,
      payload: decode(part(this.#bytes, at + HEADER_BYTES, at + total)),
    };
  }

  #moveTo(size: number): void {
    const target = size === this.#bytes.length ? this.#bytes : new Uint8Array(size);
    copy(target, part(this.#bytes, this.#start, this.#end), 0);
    this.#end -= this.#start;
    this.#start = 0;
    if (target !== this.#bytes) {
      this.#bytes = target;
      this.#view = new DataView(target.buffer);
    }
  }
}
