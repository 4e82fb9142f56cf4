// URL and URLSearchParams.

import { type Callable, enumerable, iterator, need, type Pair, type Pairs, pairsOf, tag, usv } from "./base.ts";
import { isObject } from "./intrinsics.ts";
import { changeUrl, hostOf, hrefOf, originOf, parseQuery, parseUrl, pathOf, type UrlRecord, writeQuery } from "./url_parser.ts";

const { apply } = Reflect;
const { defineProperty } = Object;

/** Members of a URL, and how to read them. All but the origin can be set. */
const PARTS: Record<string, (url: UrlRecord) => string> = {
  href: hrefOf,
  origin: originOf,
  protocol: (url) => url.scheme,
  username: (url) => url.username,
  password: (url) => url.password,
  host: hostOf,
  hostname: (url) => url.host ?? "",
  port: (url) => url.port,
  pathname: pathOf,
  hash: ({ fragment }) => (fragment === null || fragment === "" ? "" : `#${fragment}`),
  search: ({ query }) => (query === null || query === "" ? "" : `?${query}`),
};
let followQuery: (params: URLSearchParams, url: URL, query: string) => void;
let readQuery: (url: URL, query: string) => void;

export class URLSearchParams {
  #pairs: Pairs = [];
  #url: URL | undefined;

  static {
    followQuery = (params, url, query) => {
      params.#url = url;
      params.#pairs = URLSearchParams.#parsed(query);
    };
  }

  constructor(init: unknown = "") {
    if (init instanceof URLSearchParams && #pairs in init) this.#pairs = init.#pairs.map(([key, value]) => [key, value]);
    else if (isObject(init)) this.#pairs = pairsOf(init, "Failed to construct 'URLSearchParams'");
    else this.#pairs = URLSearchParams.#parsed(usv(init));
  }

  static #parsed(query: string): Pairs {
    const text = query.startsWith("?") ? query.slice(1) : query;
    return parseQuery(text);
  }

  #changed(): void {
    if (this.#url !== undefined) readQuery(this.#url, this.toString());
  }

  get size(): number {
    return this.#pairs.length;
  }

  append(name: unknown, value: unknown): void {
    need("Failed to execute 'append' on 'URLSearchParams'", arguments, 2);
    this.#pairs.push([usv(name), usv(value)]);
    this.#changed();
  }

  delete(name: unknown, value?: unknown): void {
    need("Failed to execute 'delete' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== key || (value !== undefined && pair[1] !== usv(value)));
    this.#changed();
  }

  get(name: unknown): string | null {
    need("Failed to execute 'get' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.find((pair) => pair[0] === key)?.[1] ?? null;
  }

  getAll(name: unknown): string[] {
    need("Failed to execute 'getAll' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.filter((pair) => pair[0] === key).map((pair) => pair[1]);
  }

  has(name: unknown, value?: unknown): boolean {
    need("Failed to execute 'has' on 'URLSearchParams'", arguments, 1);
    const key = usv(name);
    return this.#pairs.some((pair) => pair[0] === key && (value === undefined || pair[1] === usv(value)));
  }

  set(name: unknown, value: unknown): void {
    need("Failed to execute 'set' on 'URLSearchParams'", arguments, 2);
    const key = usv(name);
    const index = this.#pairs.findIndex((pair) => pair[0] === key);
    if (index < 0) this.#pairs.push([key, usv(value)]);
    else {
      this.#pairs[index] = [key, usv(value)];
      this.#pairs = this.#pairs.filter((pair, at) => at <= index || pair[0] !== key);
    }
    this.#changed();
  }

  sort(): void {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#changed();
  }

  forEach(callback: (value: string, key: string, params: URLSearchParams) => void, self?: unknown): void {
    for (const [key, value] of [...this.#pairs]) apply(callback as Callable, self, [value, key, this]);
  }

  entries(): IterableIterator<Pair> {
    return iterator("URLSearchParams", this.#pairs.map(([key, value]): Pair => [key, value]));
  }

  keys(): IterableIterator<string> {
    return iterator("URLSearchParams", this.#pairs.map((pair) => pair[0]));
  }

  values(): IterableIterator<string> {
    return iterator("URLSearchParams", this.#pairs.map((pair) => pair[1]));
  }

  toString(): string {
    return writeQuery(this.#pairs);
  }

  [Symbol.iterator](): IterableIterator<Pair> {
    return this.entries();
  }
}
tag(URLSearchParams);
enumerable(URLSearchParams);

export class URL {
  #record: UrlRecord;
  #params: URLSearchParams | undefined;

  static {
    readQuery = (url, query) => {
      url.#record = changeUrl(url.#record, "search", query);
    };
  }

  constructor(url: unknown, base?: unknown) {
    need("Failed to construct 'URL'", arguments, 1);
    this.#record = URL.#parsed(usv(url), base === undefined ? undefined : usv(base));
  }

  static #parsed(url: string, base: string | undefined): UrlRecord {
    const from = base === undefined ? undefined : parseUrl(base);
    const record = base !== undefined && from === undefined ? undefined : parseUrl(url, from);
    if (record !== undefined) return record;
    throw new TypeError(`Invalid URL: '${url}'${base === undefined ? "" : ` with base '${base}'`}`);
  }

  static parse(url: unknown, base?: unknown): URL | null {
    return URL.canParse(url, base) ? new URL(url, base) : null;
  }

  static canParse(url: unknown, base?: unknown): boolean {
    try {
      URL.#parsed(usv(url), base === undefined ? undefined : usv(base));
      return true;
    } catch {
      return false;
    }
  }

  #set(member: string, value: string): void {
    if (member === "href") this.#record = URL.#parsed(value, undefined);
    else this.#record = changeUrl(this.#record, member, value);
    if ((member === "href" || member === "search") && this.#params !== undefined) followQuery(this.#params, this, PARTS.search!(this.#record));
  }

  static {
    for (const member of Object.keys(PARTS)) {
      const { get, set } = Object.getOwnPropertyDescriptor({
        get [member]() {
          return PARTS[member]!((this as unknown as URL).#record);
        },
        set [member](value: unknown) {
          (this as unknown as URL).#set(member, usv(value));
        },
      }, member)!;
      defineProperty(URL.prototype, member, { get: get!, set: member === "origin" ? undefined : set!, configurable: true, enumerable: true });
    }
  }

  get searchParams(): URLSearchParams {
    if (this.#params === undefined) {
      this.#params = new URLSearchParams();
      followQuery(this.#params, this, PARTS.search!(this.#record));
    }
    return this.#params;
  }

  toString(): string {
    return hrefOf(this.#record);
  }

  toJSON(): string {
    return hrefOf(this.#record);
  }
}
tag(URL);
enumerable(URL);
