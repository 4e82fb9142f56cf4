// `crypto` without `subtle`: random numbers, which the host draws.

import { ask, DOMException, enumerable, illegal, need, OURS, tag } from "./base.ts";
import { arrayName, bytesOf } from "./intrinsics.ts";

const { isView } = ArrayBuffer;
const INTEGERS = /^(Big)?(Int|Uint)\d+(Clamped)?Array$/;

const random = (count: number): Uint8Array => Uint8Array.fromBase64(ask("random", count));

export class Crypto {
  #ours = true;

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  getRandomValues<T>(array: T): T {
    void this.#ours;
    need("Failed to execute 'getRandomValues' on 'Crypto'", arguments, 1);
    const bytes = isView(array) ? bytesOf(array) : undefined;
    if (bytes === undefined || !INTEGERS.test(arrayName(array as object) ?? "")) {
      throw new DOMException("The provided value is not an integer-type TypedArray", "TypeMismatchError");
    }
    if (bytes.length > 65536) {
      const text = `The ArrayBufferView's byte length (${bytes.length}) exceeds the number of bytes of entropy available via this API (65536)`;
      throw new DOMException(text, "QuotaExceededError");
    }
    bytes.set(random(bytes.length));
    return array;
  }

  randomUUID(): string {
    void this.#ours;
    const bytes = random(16);
    bytes[6] = (bytes[6]! & 0x0f) | 0x40;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
tag(Crypto);
enumerable(Crypto);
