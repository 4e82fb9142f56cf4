// `crypto`: random bytes, and SubtleCrypto's methods, which the host performs. Its keys are numbers here.

import { ask, DOMException, enumerable, illegal, need, OURS, tag } from "./base.ts";
import { arrayName, bytesOf, isObject, type Json } from "./intrinsics.ts";

const { defineProperty, freeze } = Object;
const { isView } = ArrayBuffer;
const { parse } = JSON;
const Bytes = Uint8Array;

/** A key that the host holds. */
interface Key {
  id: number;
  type: string;
  extractable: boolean;
  /** JSON. */
  algorithm: string;
  usages: string[];
}

let idOf: (key: CryptoKey) => number;

export class CryptoKey {
  #id: number;
  #type: string;
  #extractable: boolean;
  #algorithm: unknown;
  #usages: readonly string[];

  static {
    idOf = (key) => key.#id;
  }

  constructor(ours?: unknown, key?: unknown) {
    if (ours !== OURS) throw illegal();
    const { id, type, extractable, algorithm, usages } = key as Key;
    this.#id = id;
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

/** Converts arguments of crypto: data, with bytes and keys marked. */
function plain(value: unknown, depth = 0): Json {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean" || value === null) return value;
  if (!isObject(value)) return value === undefined ? null : `${String(value)}`;
  if (value instanceof CryptoKey) return { $key: idOf(value) };
  const bytes = bytesOf(value);
  if (bytes !== undefined) return { $bytes: bytes.toBase64() };
  if (depth > 8) throw new TypeError("arguments of crypto are nested too deeply");
  if (Array.isArray(value)) return value.map((each) => plain(each, depth + 1));
  const members: { [name: string]: Json } = {};
  for (const name in value) {
    const member = (value as Record<string, unknown>)[name];
    if (member !== undefined && name !== "$key" && name !== "$bytes") members[name] = plain(member, depth + 1);
  }
  return members;
}

/** The host's answer: one of these. An algorithm is JSON, with bytes as above. */
interface Answer {
  bytes?: string;
  key?: Key;
  pair?: [Key, Key];
  data?: unknown;
}

function revived({ bytes, key, pair, data }: Answer): unknown {
  if (bytes !== undefined) return Bytes.fromBase64(bytes).buffer;
  if (key !== undefined) return new CryptoKey(OURS, key);
  if (pair !== undefined) return { publicKey: new CryptoKey(OURS, pair[0]), privateKey: new CryptoKey(OURS, pair[1]) };
  return data;
}

export class SubtleCrypto {
  #ours = true;

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  static {
    for (const method of SUBTLE) {
      const { [method]: call } = {
        async [method](this: SubtleCrypto, ...args: unknown[]): Promise<unknown> {
          void this.#ours;
          return revived(ask<Answer>("crypto", method, args.map((each) => plain(each))));
        },
      };
      defineProperty(SubtleCrypto.prototype, method, { value: call, writable: true, configurable: true, enumerable: true });
    }
  }
}
tag(SubtleCrypto);

const random = (count: number): Uint8Array => Bytes.fromBase64(ask("random", count));
const INTEGERS = /^(Big)?(Int|Uint)\d+(Clamped)?Array$/;

export class Crypto {
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
    bytes.set(random(bytes.length));
    return array;
  }

  randomUUID(): string {
    void this.#subtle;
    const bytes = random(16);
    bytes[6] = (bytes[6]! & 0x0f) | 0x40;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
tag(Crypto);
enumerable(Crypto);

/** The global `crypto`. */
export const makeCrypto = (): Crypto => new Crypto(OURS);
