// Globals of programs besides `lib.esnext`: those of `guest/typescript/globals.ts`, and no others. Inputs are `any` where
// the runtime converts or ignores them: checks report mistakes, not code that works. Type names contain `$`, so that tool
// declarations can define types such as `Event`.

type $Made<T> = { prototype: T; new (...args: any[]): T };
type $Clear = (timer?: any) => void;
type $Timed = (handler: (...args: any[]) => any, milliseconds?: any, ...args: any[]) => any;

// --- console, timers, small functions

declare var console: Record<
  | "log" | "debug" | "info" | "warn" | "error" | "trace" | "dir" | "dirxml" | "table" | "assert" | "count"
  | "countReset" | "time" | "timeLog" | "timeEnd" | "group" | "groupCollapsed" | "groupEnd" | "clear",
  (...values: any[]) => void
>;
declare var setTimeout: $Timed, setInterval: $Timed;
declare function setImmediate(handler: (...args: any[]) => any, ...args: any[]): any;
declare var clearTimeout: $Clear, clearInterval: $Clear, clearImmediate: $Clear;
declare function queueMicrotask(task: () => any): void;
declare function structuredClone<T = any>(value: T, options?: any): T;
declare function atob(text: any): string;
declare function btoa(text: any): string;
/** Fails if programs have no network, as do `EventSource` and `WebSocket`. Call a tool instead. */
declare function fetch(input?: any, init?: any): Promise<$Response>;
declare var self: typeof globalThis, global: typeof globalThis;

declare var performance: any;

// --- text and addresses

interface $TextEncoder {
  readonly encoding: string;
  encode(text?: any): Uint8Array<ArrayBuffer>;
  encodeInto(text: any, into: Uint8Array): { read: number; written: number };
}
declare var TextEncoder: $Made<$TextEncoder>;
interface $TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(bytes?: any, options?: any): string;
}
declare var TextDecoder: $Made<$TextDecoder>;

/** List of name and value pairs. Names can repeat. */
interface $Pairs<V = string> extends Iterable<[string, V]> {
  append(name: any, value: any, filename?: any): void;
  delete(name: any, value?: any): void;
  get(name: any): V | null;
  has(name: any, value?: any): boolean;
  set(name: any, value: any, filename?: any): void;
  forEach(visit: (value: V, name: string, pairs: this) => any, thisArg?: any): void;
  entries(): IteratorObject<[string, V], undefined, unknown>;
  keys(): IteratorObject<string, undefined, unknown>;
  values(): IteratorObject<V, undefined, unknown>;
  [Symbol.iterator](): IteratorObject<[string, V], undefined, unknown>;
}
interface $URLSearchParams extends $Pairs {
  readonly size: number;
  getAll(name: any): string[];
  sort(): void;
  toString(): string;
}
declare var URLSearchParams: $Made<$URLSearchParams>;
interface $Headers extends $Pairs { getSetCookie(): string[] }
declare var Headers: $Made<$Headers>;
interface $FormData extends $Pairs<any> { getAll(name: any): any[] }
declare var FormData: $Made<$FormData>;
type $UrlPart = "protocol" | "username" | "password" | "hostname" | "port" | "pathname" | "search" | "hash";
interface $URL extends Record<$UrlPart | "host" | "href", string> {
  readonly origin: string;
  readonly searchParams: $URLSearchParams;
  toString(): string;
  toJSON(): string;
}
declare var URL: $Made<$URL> & {
  parse(url: any, base?: any): $URL | null;
  canParse(url: any, base?: any): boolean;
  createObjectURL(blob: any): string;
  revokeObjectURL(url: any): void;
};

// --- errors of calls

interface $CallError<N extends string = string> extends Error { name: N; code: string; retryAfterSeconds?: number }
declare var CorralError: $Made<$CallError>, ToolError: $Made<$CallError>, AccessDenied: $Made<$CallError>;
declare var BridgeError: $Made<$CallError>, CallBudgetExceeded: $Made<$CallError<"CallBudgetExceeded">>;
declare var ExecutionCancelled: $Made<$CallError<"ExecutionCancelled">>, ToolNotFound: $Made<$CallError<"ToolNotFound">>;
declare var InvalidArguments: $Made<$CallError<"InvalidArguments">>, ToolFailed: $Made<$CallError<"ToolFailed">>;
declare var UncertainCall: $Made<$CallError<"UncertainCall">>;
declare var InvalidToolOutput: $Made<$CallError<"InvalidToolOutput">>, InvalidToken: $Made<$CallError<"InvalidToken">>;
declare var ExecutionEnded: $Made<$CallError<"ExecutionEnded">>, ScopeDenied: $Made<$CallError<"ScopeDenied">>;
declare var RateLimited: $Made<$CallError<"RateLimited">>, ApprovalDenied: $Made<$CallError<"ApprovalDenied">>;
declare var PolicyDenied: $Made<$CallError<"PolicyDenied">>;
declare var EgressBlocked: $Made<$CallError<"EgressBlocked">>, MessageTooLarge: $Made<$CallError<"MessageTooLarge">>;
declare var MalformedMessage: $Made<$CallError<"MalformedMessage">>, HostLost: $Made<$CallError<"HostLost">>;

// --- bytes

interface $Body {
  readonly body: any;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  blob(): Promise<$Blob>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  formData(): Promise<$FormData>;
  json(): Promise<any>;
  text(): Promise<string>;
  textStream(): any;
}
interface $Request extends $Body, Readonly<Record<"method" | "url", string>> {
  readonly headers: $Headers;
  clone(): $Request;
  [member: string]: any;
}
declare var Request: $Made<$Request>;
interface $Response extends $Body, Readonly<Record<"statusText" | "type" | "url", string>> {
  readonly headers: $Headers;
  readonly ok: boolean;
  readonly redirected: boolean;
  readonly status: number;
  clone(): $Response;
}
declare var Response: $Made<$Response> & Record<"error" | "json" | "redirect", (...args: any[]) => $Response>;
interface $Blob extends Pick<$Body, "arrayBuffer" | "bytes" | "text" | "textStream"> {
  readonly size: number;
  readonly type: string;
  slice(start?: any, end?: any, type?: any): $Blob;
  stream(): any;
}
declare var Blob: $Made<$Blob>;
interface $File extends $Blob { readonly name: string; readonly lastModified: number }
declare var File: $Made<$File>;
interface $Buffer extends Uint8Array<ArrayBuffer> {
  toString(encoding?: any, start?: any, end?: any): string;
  slice(start?: any, end?: any): $Buffer;
  subarray(start?: any, end?: any): $Buffer;
  write(text: any, ...place: any[]): number;
  /** `readUInt8` and similar methods. */
  [member: string]: any;
}
type $BufferMaker = "from" | "of" | "alloc" | "allocUnsafe" | "allocUnsafeSlow" | "concat" | "copyBytesFrom";
declare var Buffer: $Made<$Buffer> & Record<$BufferMaker, (...args: any[]) => $Buffer> & {
  (value: any, ...more: any[]): $Buffer;
  byteLength(value: any, encoding?: any): number;
  compare(one: any, other: any): number;
  isBuffer(value: any): value is $Buffer;
  isEncoding(encoding: any): boolean;
  poolSize: number;
};
declare var crypto: {
  readonly subtle: Record<string, (...args: any[]) => Promise<any>>;
  getRandomValues<T>(array: T): T;
  randomUUID(): string;
};

// --- classes whose misuse is not a mistake about tools, so names are enough

declare var URLPattern: any, DOMException: any, CryptoKey: any, SubtleCrypto: any, Crypto: any, FileReader: any;
declare var Event: any, CustomEvent: any, MessageEvent: any, EventTarget: any, EventSource: any, WebSocket: any;
declare var AbortSignal: any, AbortController: any, MessagePort: any, MessageChannel: any;
declare var ReadableStream: any, ReadableStreamDefaultReader: any, ReadableStreamBYOBReader: any;
declare var WritableStream: any, WritableStreamDefaultWriter: any, TransformStream: any;
declare var TextDecoderStream: any, TextEncoderStream: any, CompressionStream: any, DecompressionStream: any;
declare var ByteLengthQueuingStrategy: any, CountQueuingStrategy: any;

// --- where `lib.esnext` is stricter than the language

declare function parseInt(text: any, radix?: any): number;
declare function parseFloat(text: any): number;
declare function isNaN(value: any): boolean;
declare function isFinite(value: any): boolean;
declare function encodeURI(text: any): string;
declare function encodeURIComponent(text: any): string;
declare function decodeURI(text: any): string;
declare function decodeURIComponent(text: any): string;

interface NumberConstructor { parseInt(text: any, radix?: any): number; parseFloat(text: any): number }
interface Object { __proto__?: any }
interface Number { toLocaleString(locales?: any, options?: any): string; toFixed(digits?: any): string }
interface JSON {
  parse(text: string | number | boolean | null | undefined, reviver?: any): any;
  stringify(value: any, replacer?: any, space?: any): string;
  rawJSON(text: any): any;
  isRawJSON(value: any): boolean;
}
interface Math {
  abs(value: any): number;
  ceil(value: any): number;
  floor(value: any): number;
  round(value: any): number;
  sign(value: any): number;
  sqrt(value: any): number;
  trunc(value: any): number;
  max(...values: any[]): number;
  min(...values: any[]): number;
  pow(base: any, exponent: any): number;
  /** Returns the sum, rounded once. */
  sumPrecise(values: Iterable<number>): number;
}
interface DateConstructor {
  new (value: any): Date;
  new (year: any, month: any, ...rest: any[]): Date;
  parse(text: any): number;
}
interface Date {
  toLocaleString(locales?: any, options?: any): string;
  toLocaleDateString(locales?: any, options?: any): string;
  toLocaleTimeString(locales?: any, options?: any): string;
  getYear(): number;
  setYear(year: any): number;
  toGMTString(): string;
}
interface IteratorConstructor { concat<T>(...items: Iterable<T>[]): IteratorObject<T, undefined, unknown> }
interface Error {
  /** Errors of tools have a `code`. */
  [member: string]: any;
}
interface ErrorConstructor {
  new (message?: any, options?: any): Error;
  (message?: any, options?: any): Error;
  captureStackTrace(target: any, above?: any): void;
  stackTraceLimit: number;
  prepareStackTrace?: any;
}
interface PromiseFulfilledResult<T> { reason?: any }
interface PromiseRejectedResult { value?: any }
interface PromiseConstructor {
  new <T = any>(executor: (resolve: (value?: any) => void, reject: (reason?: any) => void) => any): Promise<T>;
  withResolvers<T = any>(): PromiseWithResolvers<T>;
}
/** Type of an object literal without members. */
type $Empty = Record<string, never>;
interface ObjectConstructor {
  keys(object: any): string[];
  values(object: $Empty): any[];
  values<T>(object: { [key: string]: T } | ArrayLike<T>): T[];
  values(object: any): any[];
  entries(object: $Empty): [string, any][];
  entries<T>(object: { [key: string]: T } | ArrayLike<T>): [string, T][];
  entries(object: any): [string, any][];
}
interface String {
  includes(text: any, from?: any): boolean;
  startsWith(text: any, from?: any): boolean;
  endsWith(text: any, to?: any): boolean;
  indexOf(text: any, from?: any): number;
  concat(...texts: any[]): string;
  padStart(length: any, fill?: any): string;
  padEnd(length: any, fill?: any): string;
  repeat(count: any): string;
  localeCompare(other: any, locales?: any, options?: any): number;
}
interface ReadonlyArray<T> {
  includes(value: any, from?: any): boolean;
  indexOf(value: any, from?: any): number;
  join(separator?: any): string;
}
interface Array<T> {
  includes(value: any, from?: any): boolean;
  indexOf(value: any, from?: any): number;
  join(separator?: any): string;
  sort(compare?: (one: T, other: T) => any): this;
  toSorted(compare?: (one: T, other: T) => any): T[];
  filter(predicate: BooleanConstructor): NonNullable<T>[];
  fill(value?: any, start?: any, end?: any): this;
  reduce(step: (sum: any, value: T, index: number, array: T[]) => any, initial: $Empty | null | undefined): any;
  reduce(step: (sum: any[], value: T, index: number, array: T[]) => any, initial: never[]): any[];
}
interface SetConstructor { new <T = any>(): Set<T> }
interface Set<T> { has(value: any): boolean; delete(value: any): boolean }
interface Map<K, V> { get(key: any): V | undefined; has(key: any): boolean; delete(key: any): boolean }
declare namespace Intl {
  interface NumberFormatConstructor {
    new (locales?: any, options?: any): NumberFormat;
  }
  interface DateTimeFormatConstructor {
    new (locales?: any, options?: any): DateTimeFormat;
  }
}
