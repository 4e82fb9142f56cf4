// Blobs, headers, and responses created by a program.

import { type Callable, dictionary, enumerable, iterator, need, type Pair, type Pairs, pairsOf, tag, usv } from "./base.ts";
import { bytesOf, isObject } from "./intrinsics.ts";
import { decodeUtf8, encodeText } from "./text.ts";
import { AbortController, type AbortSignal } from "./events.ts";
import { URL, URLSearchParams } from "./url.ts";

const { apply } = Reflect;
const { parse, stringify } = JSON;
const Bytes = Uint8Array;

export function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  let size = 0;
  for (const part of parts) size += part.length;
  const all = new Bytes(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

let contentOf: (blob: Blob) => Uint8Array<ArrayBuffer>;

export class Blob {
  #bytes: Uint8Array<ArrayBuffer>;
  #type: string;

  static {
    contentOf = (blob) => blob.#bytes;
  }

  constructor(parts: unknown = [], options?: unknown) {
    if (!isObject(parts) || typeof (parts as Partial<Iterable<unknown>>)[Symbol.iterator] !== "function") {
      throw new TypeError(`Failed to construct '${new.target.name}': Argument 1 can not be converted to sequence.`);
    }
    const { type = "" } = dictionary(options);
    this.#bytes = joined(
      [...(parts as Iterable<unknown>)].map((part) => {
        if (isObject(part) && #bytes in part) return part.#bytes;
        return bytesOf(part) ?? encodeText(usv(part));
      }),
    );
    this.#type = /^[\x20-\x7e]*$/.test(`${type}`) ? `${type}`.toLowerCase() : "";
  }

  get size(): number {
    return this.#bytes.length;
  }

  get type(): string {
    return this.#type;
  }

  slice(start: unknown = 0, end?: unknown, type: unknown = ""): Blob {
    return new Blob([this.#bytes.slice(Number(start), end === undefined ? undefined : Number(end))], { type });
  }

  async text(): Promise<string> {
    return decodeUtf8(this.#bytes);
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#bytes.slice().buffer;
  }

  async bytes(): Promise<Uint8Array> {
    return this.#bytes.slice();
  }
}
tag(Blob);
enumerable(Blob);

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export class Headers {
  #pairs: Pairs = [];

  constructor(init?: unknown) {
    if (init === undefined) return;
    if (!isObject(init)) throw new TypeError("Failed to construct 'Headers': Argument 1 is not an object");
    for (const [name, value] of pairsOf(init, "Failed to construct 'Headers'")) this.append(name, value);
  }

  static #name(name: unknown): string {
    if (!HEADER_NAME.test(`${name}`)) throw new TypeError(`Invalid header name: "${name}"`);
    return `${name}`.toLowerCase();
  }

  static #value(value: unknown): string {
    const text = `${value}`.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
    if (/[\0\n\r]|[^\0-\xff]/.test(text)) throw new TypeError(`Invalid header value: "${text}"`);
    return text;
  }

  append(name: unknown, value: unknown): void {
    need("Failed to execute 'append' on 'Headers'", arguments, 2);
    this.#pairs.push([Headers.#name(name), Headers.#value(value)]);
  }

  set(name: unknown, value: unknown): void {
    need("Failed to execute 'set' on 'Headers'", arguments, 2);
    const [key, text] = [Headers.#name(name), Headers.#value(value)];
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key);
    this.#pairs.push([key, text]);
  }

  delete(name: unknown): void {
    const key = Headers.#name(name);
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key);
  }

  get(name: unknown): string | null {
    const key = Headers.#name(name);
    const values = this.#pairs.filter((pair) => pair[0] === key).map((pair) => pair[1]);
    return values.length > 0 ? values.join(", ") : null;
  }

  getSetCookie(): string[] {
    return this.#pairs.filter((pair) => pair[0] === "set-cookie").map((pair) => pair[1]);
  }

  has(name: unknown): boolean {
    const key = Headers.#name(name);
    return this.#pairs.some((pair) => pair[0] === key);
  }

  #sorted(): Pairs {
    const names = [...new Set(this.#pairs.map((pair) => pair[0]))].sort();
    return names.flatMap((name): Pairs => {
      if (name === "set-cookie") return this.getSetCookie().map((value): Pair => [name, value]);
      return [[name, this.get(name)!]];
    });
  }

  forEach(callback: Callable, self?: unknown): void {
    for (const [key, value] of this.#sorted()) apply(callback, self, [value, key, this]);
  }

  entries(): IterableIterator<Pair> {
    return iterator("Headers", this.#sorted());
  }

  keys(): IterableIterator<string> {
    return iterator("Headers", this.#sorted().map((pair) => pair[0]));
  }

  values(): IterableIterator<string> {
    return iterator("Headers", this.#sorted().map((pair) => pair[1]));
  }

  [Symbol.iterator](): IterableIterator<Pair> {
    return this.entries();
  }
}
tag(Headers);
enumerable(Headers);

/** Returns the bytes of a body, and their type. */
function bodyOf(init: unknown): [Uint8Array<ArrayBuffer>, string | null] {
  if (init instanceof Blob) return [contentOf(init), init.type === "" ? null : init.type];
  if (init instanceof URLSearchParams) return [encodeText(`${init}`), "application/x-www-form-urlencoded;charset=UTF-8"];
  const bytes = bytesOf(init);
  return bytes === undefined ? [encodeText(usv(init)), "text/plain;charset=UTF-8"] : [bytes.slice(), null];
}

/** Response created by a program: complete, and not read from anywhere. */
export class Response {
  #status: number;
  #statusText: string;
  #headers: Headers;
  #body: Uint8Array<ArrayBuffer> | null = null;
  #used = false;

  constructor(body: unknown = null, init?: unknown) {
    const { status = 200, statusText = "", headers } = dictionary(init);
    this.#headers = new Headers(headers);
    this.#status = Number(status);
    this.#statusText = `${statusText}`;
    if (this.#status !== 101 && !(this.#status >= 200 && this.#status <= 599)) {
      throw new RangeError(`The status provided (${this.#status}) is not equal to 101 and outside the range [200, 599]`);
    }
    if (body === null || body === undefined) return;
    const [bytes, type] = bodyOf(body);
    this.#body = bytes;
    if (type !== null && !this.#headers.has("content-type")) this.#headers.append("content-type", type);
  }

  static json(data: unknown, init?: unknown): Response {
    const text = stringify(data) as string | undefined;
    if (text === undefined) throw new TypeError("The data is not JSON serializable");
    const response = new Response(encodeText(text), init);
    if (!response.headers.has("content-type")) response.headers.set("content-type", "application/json");
    return response;
  }

  get status(): number {
    return this.#status;
  }

  get statusText(): string {
    return this.#statusText;
  }

  get ok(): boolean {
    return this.#status >= 200 && this.#status <= 299;
  }

  get headers(): Headers {
    return this.#headers;
  }

  get bodyUsed(): boolean {
    return this.#used;
  }

  #take(): Uint8Array<ArrayBuffer> {
    if (this.#used) throw new TypeError("Body already consumed");
    this.#used = this.#body !== null;
    return this.#body ?? new Bytes(0);
  }

  async text(): Promise<string> {
    return decodeUtf8(this.#take());
  }

  async json(): Promise<unknown> {
    return parse(decodeUtf8(this.#take()));
  }

  async bytes(): Promise<Uint8Array> {
    return this.#take().slice();
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#take().slice().buffer;
  }

  async blob(): Promise<Blob> {
    return new Blob([this.#take()], { type: this.#headers.get("content-type") ?? "" });
  }

  clone(): Response {
    if (this.#used) throw new TypeError("Body is unusable");
    const copy = new Response(null, { status: this.#status, statusText: this.#statusText, headers: this.#headers });
    copy.#body = this.#body;
    return copy;
  }
}
tag(Response);
enumerable(Response);

const METHODS = /^(?:delete|get|head|options|post|put)$/i;

/** Request created by a program. Its body is kept as that of a response. */
export class Request {
  #url: string;
  #method: string;
  #headers: Headers;
  #redirect: string;
  #signal: AbortSignal;
  #content: Response;

  constructor(input: unknown, init?: unknown) {
    need("Failed to construct 'Request'", arguments, 1);
    const options = dictionary(init);
    const from = isObject(input) && #content in input ? input : undefined;
    this.#url = from === undefined ? `${new URL(input)}` : from.#url;
    const method = `${options.method ?? from?.method ?? "GET"}`;
    this.#method = METHODS.test(method) ? method.toUpperCase() : method;
    this.#headers = new Headers(options.headers ?? from?.headers);
    this.#redirect = `${options.redirect ?? from?.redirect ?? "follow"}`;
    this.#signal = (options.signal ?? from?.signal ?? new AbortController().signal) as AbortSignal;
    const { body } = options;
    const hasBody = body !== undefined && body !== null;
    if (hasBody && (this.#method === "GET" || this.#method === "HEAD")) throw new TypeError("Request with GET/HEAD method cannot have body.");
    this.#content = from !== undefined && !hasBody ? from.#content.clone() : new Response(body, { headers: this.#headers });
    const type = this.#content.headers.get("content-type");
    if (hasBody && type !== null && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
  }

  get url(): string {
    return this.#url;
  }

  get method(): string {
    return this.#method;
  }

  get headers(): Headers {
    return this.#headers;
  }

  get redirect(): string {
    return this.#redirect;
  }

  get signal(): AbortSignal {
    return this.#signal;
  }

  get bodyUsed(): boolean {
    return this.#content.bodyUsed;
  }

  text(): Promise<string> {
    return this.#content.text();
  }

  json(): Promise<unknown> {
    return this.#content.json();
  }

  bytes(): Promise<Uint8Array> {
    return this.#content.bytes();
  }

  arrayBuffer(): Promise<ArrayBuffer> {
    return this.#content.arrayBuffer();
  }

  blob(): Promise<Blob> {
    return this.#content.blob();
  }

  clone(): Request {
    return new Request(this);
  }
}
tag(Request);
enumerable(Request);
