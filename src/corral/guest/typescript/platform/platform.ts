// The platform's globals, for an engine that has only the language.

import { dictionary, DOMException, guarded, type Host, need, openHost, OURS } from "./base.ts";
import { Blob, Headers, Response } from "./blobs.ts";
import { Buffer } from "./buffer.ts";
import { Crypto } from "./crypto.ts";
import { AbortController, AbortSignal, CustomEvent, Event, EventTarget } from "./events.ts";
import { clone } from "./intrinsics.ts";
import { atob, btoa, TextDecoder, TextEncoder } from "./text.ts";
import { makeTimers } from "./timers.ts";
import { URL, URLSearchParams } from "./url.ts";

const { defineProperty } = Object;
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

/** Like the language's own, but reports errors of callbacks to the host. */
function guardedQueue(callback: () => void): void {
  if (typeof callback !== "function") throw new TypeError("queueMicrotask takes a function");
  queue(() => guarded(callback));
}

/** Defines the platform in the global scope. */
export function definePlatform(host: Host): void {
  openHost(host);
  const parts = {
    AbortController, AbortSignal, Blob, Buffer, Crypto, CustomEvent, DOMException, Event, EventTarget, Headers, Response,
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
