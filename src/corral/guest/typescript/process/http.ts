// Client of node's `http` and `https`, for packages that send requests with it. Each request uses `fetch`, with the
// same rules, budgets and records. There are no sockets, so options for sockets are rejected by name.

type Emit = (event: string, ...args: unknown[]) => boolean;
type Callback = (error?: Error | null) => void;

interface Emitter {
  on(event: string, listener: (...args: never[]) => void): this;
  once(event: string, listener: (...args: never[]) => void): this;
  emit: Emit;
  listenerCount(event: string): number;
  destroyed: boolean;
  destroy(error?: Error): this;
}
interface Readable extends Emitter {
  push(data: Uint8Array | null): boolean;
  resume(): this;
}
interface Writable extends Emitter {
  end(...args: unknown[]): this;
}
type Class<T> = new (options?: object) => T;

/** Parts of the engine's own modules that are used. */
export interface HttpParts {
  stream: { Readable: Class<Readable>; Writable: Class<Writable> };
  buffer: { Buffer: { from(data: unknown): Uint8Array<ArrayBuffer>; concat(parts: Uint8Array[]): Uint8Array<ArrayBuffer> } };
  timers: { setTimeout: (task: () => void, ms: number) => unknown; clearTimeout: (timer: unknown) => void };
}

type Options = Record<string, unknown>;

/** Options for sockets and TLS. The host opens the connections, and `Network` says which servers it trusts. */
const OF_SOCKETS = (
  "createConnection socketPath localAddress localPort lookup ca cert key pfx passphrase crl ciphers servername " +
  "checkServerIdentity secureContext secureProtocol minVersion maxVersion"
).split(" ");
const NO_SOCKETS = "programs have no sockets: the host connects, to the origins of Network(allow=[...])";
const METHODS = "DELETE GET HEAD OPTIONS PATCH POST PUT".split(" ");
const BODILESS = ["GET", "HEAD"];

const { assign, entries, fromEntries } = Object;

const refusal = (name: string, what: string): TypeError => new TypeError(`${name}: ${what} is not available: ${NO_SOCKETS}`);

function refuseSockets(name: string, options: Options): void {
  for (const option of OF_SOCKETS) if (options[option] != null) throw refusal(name, `the option "${option}"`);
  if (options.rejectUnauthorized === false) throw refusal(name, `"rejectUnauthorized: false"`);
}

/**
 * Makes `http` and `https`, without servers. `begin` is called for each request, and returns the function that sends
 * it.
 */
export function makeHttp({ stream, buffer, timers }: HttpParts, begin: () => typeof fetch): Record<"http" | "https", object> {
  const { Buffer } = buffer;

  class Agent {
    maxSockets = Infinity;
    requests = {};
    sockets = {};
    freeSockets = {};
    constructor(readonly options: Options = {}) {
      refuseSockets("Agent", options);
    }
    destroy(): void {}
  }

  class IncomingMessage extends stream.Readable {
    readonly httpVersion = "1.1";
    readonly httpVersionMajor = 1;
    readonly httpVersionMinor = 1;
    readonly statusCode: number;
    readonly statusMessage: string;
    readonly headers: Record<string, string | string[]> = {};
    readonly rawHeaders: string[] = [];
    readonly trailers = {};
    readonly rawTrailers: string[] = [];
    readonly socket = null;
    readonly connection = null;
    readonly url: string;
    complete = false;
    aborted = false;
    #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

    constructor(response: Response, readonly req: ClientRequest) {
      super();
      this.statusCode = response.status;
      this.statusMessage = response.statusText;
      this.url = response.url;
      for (const [name, value] of response.headers) {
        this.rawHeaders.push(name, value);
        if (name === "set-cookie") (this.headers[name] ??= [] as string[]) && (this.headers[name] as string[]).push(value);
        else this.headers[name] = value;
      }
      this.#reader = response.body?.getReader();
    }

    _read(): void {
      if (this.#reader === undefined) return this.#end();
      this.#reader.read().then(({ value, done }) => {
        if (done) this.#end();
        else this.push(Buffer.from(value));
      }, (error) => this.destroy(error as Error));
    }

    _destroy(error: Error | null, done: Callback): void {
      this.aborted = !this.complete;
      if (this.aborted) this.#reader?.cancel().catch(() => {});
      done(error);
    }

    setTimeout(): this {
      return this;
    }

    #end(): void {
      this.complete = true;
      this.push(null);
    }
  }

  class ClientRequest extends stream.Writable {
    readonly method: string;
    readonly protocol: string;
    readonly host: string;
    readonly path: string;
    readonly socket = null;
    readonly connection = null;
    readonly reusedSocket = false;
    res: IncomingMessage | undefined;
    headersSent = false;
    timedout = false;
    #url: string;
    #headers = new Map<string, [string, unknown]>();
    #body: Uint8Array[] = [];
    #abort = new AbortController();
    #send: typeof fetch;
    #timer: unknown;

    constructor(url: URL, options: Options, callback: ((response: IncomingMessage) => void) | undefined) {
      super({ autoDestroy: false });
      this.#send = begin();
      refuseSockets("request", options);
      this.#url = url.href;
      this.method = `${options.method ?? "GET"}`.toUpperCase();
      if (this.method === "CONNECT" || this.method === "TRACE") throw refusal("request", `the method ${this.method}`);
      this.protocol = url.protocol;
      this.host = url.hostname;
      this.path = url.pathname + url.search;
      for (const [name, value] of pairsOf(options.headers)) this.setHeader(name, value);
      const { auth, timeout, signal } = options as { auth?: string; timeout?: number; signal?: AbortSignal };
      if (auth != null && !this.hasHeader("authorization")) {
        this.setHeader("Authorization", `Basic ${(Buffer.from(auth) as { toString(encoding?: string): string }).toString("base64")}`);
      }
      if (callback) this.once("response", callback as (...args: never[]) => void);
      if (timeout) this.setTimeout(timeout);
      const abort = () => void this.destroy(signal!.reason as Error);
      if (signal?.aborted) queueMicrotask(abort);
      else signal?.addEventListener("abort", abort, { once: true });
    }

    get aborted(): boolean {
      return this.#abort.signal.aborted;
    }

    setHeader(name: string, value: unknown): this {
      const key = `${name}`.toLowerCase();
      if (key === "upgrade") throw refusal("request", "an upgrade of the connection; use WebSocket for web sockets");
      this.#headers.set(key, [name, value]);
      return this;
    }
    getHeader = (name: string): unknown => this.#headers.get(name.toLowerCase())?.[1];
    hasHeader = (name: string): boolean => this.#headers.has(name.toLowerCase());
    removeHeader = (name: string): void => void this.#headers.delete(name.toLowerCase());
    getHeaderNames = (): string[] => [...this.#headers.keys()];
    getHeaders = (): Options => fromEntries([...this.#headers].map(([key, [, value]]) => [key, value]));
    addTrailers(): never {
      throw refusal("request", "a trailer");
    }
    flushHeaders(): void {}
    setNoDelay(): void {}
    setSocketKeepAlive(): void {}

    /** Works like node's: emits an event, and continues to wait. */
    setTimeout(milliseconds: number, callback?: () => void): this {
      timers.clearTimeout(this.#timer);
      if (callback) this.once("timeout", callback);
      if (milliseconds > 0 && this.res === undefined) {
        this.#timer = timers.setTimeout(() => {
          this.timedout = true;
          this.emit("timeout");
        }, milliseconds);
      }
      return this;
    }

    abort(): void {
      this.destroy();
    }

    _write(chunk: Uint8Array, _encoding: string, done: Callback): void {
      this.#body.push(chunk);
      done();
    }

    _final(done: Callback): void {
      this.headersSent = true;
      const headers = [...this.#headers.values()].flatMap(([name, value]) =>
        (Array.isArray(value) ? value : [value]).map((each) => [name, `${each}`] as [string, string])
      );
      const body = this.#body.length > 0 && !BODILESS.includes(this.method) ? Buffer.concat(this.#body) : undefined;
      this.#send(this.#url, { method: this.method, headers, body, redirect: "manual", signal: this.#abort.signal })
        .then((response) => this.#respond(response))
        .catch((error) => void (this.destroyed || this.destroy(error as Error)));
      done();
    }

    _destroy(error: Error | null, done: Callback): void {
      timers.clearTimeout(this.#timer);
      const response = this.res;
      if (!response?.complete) this.#abort.abort();
      if (response === undefined) error ??= assign(new Error("socket hang up"), { code: "ECONNRESET" });
      else if (!response.complete) response.destroy(error ?? undefined);
      done(response === undefined ? error : null);
    }

    #respond(response: Response): void {
      if (this.destroyed) return;
      timers.clearTimeout(this.#timer);
      const message = this.res = new IncomingMessage(response, this);
      message.once("close", () => this.destroy());
      if (!this.emit("response", message)) message.resume();
    }
  }

  const globalAgent = new Agent();
  const moduleOf = (scheme: "http" | "https"): object => {
    const request = (...args: unknown[]): ClientRequest => {
      const [url, options, callback] = read(scheme, args);
      return new ClientRequest(url, options, callback as (response: IncomingMessage) => void);
    };
    const get = (...args: unknown[]): ClientRequest => request(...args).end();
    const STATUS_CODES = {};
    return { request, get, Agent, globalAgent, ClientRequest, IncomingMessage, METHODS, STATUS_CODES, maxHeaderSize: 16384 };
  };
  return { http: moduleOf("http"), https: moduleOf("https") };
}

/** Reads address, options and callback of a call in any of its forms. */
function read(scheme: string, args: unknown[]): [URL, Options, unknown] {
  const first = args[0];
  const hasUrl = typeof first === "string" || first instanceof URL;
  const rest = hasUrl ? args.slice(1) : args;
  const options: Options = { ...(typeof rest[0] === "object" ? rest[0] : undefined) };
  const callback = rest.find((each) => typeof each === "function");
  const url = hasUrl ? new URL(first) : undefined;
  const protocol = `${options.protocol ?? url?.protocol ?? `${scheme}:`}`;
  if (protocol !== `${scheme}:`) {
    const message = `Protocol "${protocol}" not supported. Expected "${scheme}:"`;
    throw assign(new TypeError(message), { code: "ERR_INVALID_PROTOCOL" });
  }
  let host = `${options.hostname ?? options.host ?? url?.hostname ?? "localhost"}`;
  if (host.includes(":") && !host.startsWith("[")) host = `[${host}]`;
  const port = options.port ?? (options.hostname == null && options.host == null ? url?.port : "") ?? "";
  let path = `${options.path ?? (url ? url.pathname + url.search : "/")}`;
  if (!path.startsWith("/")) path = `/${path}`;
  if (url && (url.username || url.password)) options.auth ??= `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return [new URL(`${protocol}//${host}${port === "" ? "" : `:${port as string}`}${path}`), options, callback];
}

/** Reads headers from an object, from pairs, or from a list of names and values. */
function pairsOf(headers: unknown): [string, unknown][] {
  if (headers == null) return [];
  if (!Array.isArray(headers)) return headers instanceof Headers ? [...headers] : entries(headers).filter(([, value]) => value != null);
  if (Array.isArray(headers[0])) return headers as [string, unknown][];
  return headers.flatMap((name, index) => (index % 2 === 0 ? [[name as string, headers[index + 1]] as [string, unknown]] : []));
}
