// The platform's globals, for an engine that has only the language: the classes of other modules, and `crypto` with random
// numbers that the host draws.

import { ask, dictionary, DOMException, enumerable, guarded, type Host, illegal, need, openHost, OURS, tag } from "./base.ts";
import { Blob, Headers, Request, Response } from "./blobs.ts";
import { Buffer } from "./buffer.ts";
import { AbortController, AbortSignal, CustomEvent, Event, EventTarget } from "./events.ts";
import { arrayName, bytesOf, clone } from "./intrinsics.ts";
import { atob, btoa, TextDecoder, TextEncoder } from "./text.ts";
import { defineLocale } from "./locale.ts";
import { makeTimers } from "./timers.ts";
import { URL, URLSearchParams } from "./url.ts";

const { isView } = ArrayBuffer;
const { defineProperty } = Object;
const INTEGERS = /^(Big)?(Int|Uint)\d+(Clamped)?Array$/;

const random = (count: number): Uint8Array => Uint8Array.fromBase64(ask("random", count));

const DIGESTS: Record<string, string> = { __proto__: null as never, "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512" };

/** The part of `crypto.subtle` that needs no keys. */
class SubtleCrypto {
  #ours = true;

  constructor(ours?: unknown) {
    if (ours !== OURS) throw illegal();
  }

  async digest(algorithm: unknown, data: unknown): Promise<ArrayBuffer> {
    void this.#ours;
    need("Failed to execute 'digest' on 'SubtleCrypto'", arguments, 2);
    const name = `${dictionary(algorithm).name ?? algorithm}`.toUpperCase();
    const digest = DIGESTS[name];
    if (digest === undefined) throw new DOMException(`Algorithm '${dictionary(algorithm).name ?? algorithm}' is not supported`, "NotSupportedError");
    const bytes = bytesOf(data);
    if (bytes === undefined) throw new TypeError("Failed to execute 'digest' on 'SubtleCrypto': Argument 2 is not an ArrayBuffer or a view on one");
    return Uint8Array.fromBase64(ask("digest", digest, bytes.toBase64())).buffer as ArrayBuffer;
  }

  static {
    for (const name of ["encrypt", "decrypt", "sign", "verify", "generateKey", "deriveKey", "deriveBits", "importKey", "exportKey", "wrapKey", "unwrapKey"]) {
      defineProperty(SubtleCrypto.prototype, name, {
        async value() {
          throw new DOMException(`crypto.subtle.${name} is absent in this engine, which has digests only: use a tool, or run the program with sandbox="deno"`, "NotSupportedError");
        },
        writable: true, configurable: true, enumerable: true,
      });
    }
  }
}

class Crypto {
  #ours = true;
  #subtle = new SubtleCrypto(OURS);

  get subtle(): SubtleCrypto {
    return this.#subtle;
  }

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
tag(Crypto, SubtleCrypto);
enumerable(Crypto, SubtleCrypto);

const queue = queueMicrotask;

function structuredClone(value: unknown, options?: unknown): unknown {
  need("Failed to execute 'structuredClone'", arguments, 1);
  const { transfer } = dictionary(options) as { transfer?: Iterable<unknown> };
  const known = (object: object): object | undefined => {
    if (object instanceof DOMException) return new DOMException(object.message, object.name);
    return object instanceof Blob ? object.slice() : undefined;
  };
  return clone(value, transfer === undefined ? [] : [...transfer], known, (text) => new DOMException(text, "DataCloneError"));
}

/** Works like the language's own, but reports errors of callbacks to the host. */
function guardedQueue(callback: () => void): void {
  if (typeof callback !== "function") throw new TypeError("queueMicrotask takes a function");
  queue(() => guarded(callback));
}

/** Defines the platform in the global scope. */
export function definePlatform(host: Host): void {
  openHost(host);
  if (typeof Intl === "undefined") defineLocale();
  const parts = {
    AbortController, AbortSignal, Blob, Buffer, Crypto, SubtleCrypto, CustomEvent, DOMException, Event, EventTarget, Headers, Request, Response,
    TextDecoder, TextEncoder, URL, URLSearchParams, atob, btoa, structuredClone,
    queueMicrotask: guardedQueue,
    crypto: new Crypto(OURS),
    performance: { now: () => host.now(), timeOrigin: host.timeOrigin },
    ...makeTimers(host),
  };
  for (const [name, value] of Object.entries(parts)) {
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
}
