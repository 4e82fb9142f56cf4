// `fetch`, `EventSource` and `WebSocket` for a program with network access. Each request is a call to the host's
// service `$fetch`, which checks and sends it. Bodies are transferred in pieces, as they are read.

import { defineGlobal, defineLazily } from "./globals.ts";

type Service = (name: string, input: unknown, boundary: (...args: never[]) => unknown) => Promise<unknown>;

interface Piece {
  data: Uint8Array<ArrayBuffer>;
  done: boolean;
}

interface Head extends Piece {
  status: number;
  statusText: string;
  headers: [string, string][];
  url: string;
  redirected: boolean;
}

const SERVICE = "$fetch";
/** Maximum bytes of a body in one call. Larger bodies are sent in several calls. */
const PIECE_BYTES = 262_144;
const RECONNECT_MS = 3000;
/** Maximum delay of timers. */
const LONGEST_MS = 2 ** 31 - 1;
const WITHOUT_BODY = [101, 204, 205, 304];

const { captureStackTrace } = Error;
const { apply } = Reflect;
const { defineProperty } = Object;
const race = Promise.race.bind(Promise);
const { min } = Math;
const Bytes = Uint8Array;

/** Enables the program's network access. */
export function defineNetwork(service: Service): void {
  const network = new Network(service);
  const fetch = function fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const site = { stack: "" };
    captureStackTrace(site, fetch);
    return network.fetch(input, init).catch((error: unknown) => {
      throw placed(error, site.stack);
    });
  };
  defineGlobal("fetch", fetch);
  defineLazily("EventSource", () => eventSource(fetch));
  const ask = (input: object): Promise<unknown> => service("$socket", input, ask);
  defineLazily("WebSocket", () => webSocket(ask));
}

/** Returns the error as if thrown by the program's call. */
function placed(error: unknown, stack: string): unknown {
  const frames = stack.indexOf("\n");
  if (error instanceof Error && !(error instanceof DOMException) && frames >= 0) {
    const value = `${error.name}: ${error.message}${stack.slice(frames)}`;
    defineProperty(error, "stack", { value, configurable: true, writable: true, enumerable: false });
  }
  return error;
}

class Network {
  #service: Service;
  #last = 0;

  constructor(service: Service) {
    this.#service = service;
  }

  async fetch(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
    const request = new Request(input, init);
    const signal = init.signal ?? (input instanceof Request ? input.signal : undefined);
    if (signal?.aborted) throw signal.reason;
    const id = ++this.#last;
    const close = () => void this.#call({ do: "close", id }).catch(() => {});
    let onAbort = (_: unknown): void => {};
    const aborted = signal && new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => {
        reject(signal.reason);
        onAbort(signal.reason);
        close();
      }, { once: true });
    });
    aborted?.catch(() => {});
    const sent = this.#send(id, request, aborted);
    const head = await (aborted === undefined ? sent : race([sent, aborted]));
    if (head.done || WITHOUT_BODY.includes(head.status)) {
      return dressed(new Response(WITHOUT_BODY.includes(head.status) ? null : head.data, head), head);
    }
    if (typeof ReadableStream === "undefined") return dressed(new Response(await this.#rest(id), head), head);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        onAbort = (reason) => controller.error(reason);
      },
      pull: async (controller) => {
        for (;;) {
          const { data, done } = await this.#call({ do: "read", id });
          if (data.length > 0) controller.enqueue(data);
          if (done) controller.close();
          if (done || data.length > 0) return;
        }
      },
      cancel: close,
    }, { highWaterMark: 0 });
    return dressed(new Response(body, head), head);
  }

  async #send(id: number, request: Request, aborted: Promise<never> | undefined): Promise<Head> {
    const { method, url, redirect } = request;
    const headers: [string, string][] = [];
    request.headers.forEach((value, name) => void headers.push([name, value]));
    let body: Uint8Array | undefined;
    if (request.body !== null && request.body !== undefined || !("body" in request)) {
      const read = request.arrayBuffer();
      body = new Bytes(await (aborted === undefined ? read : race([read, aborted])));
      while (body.length > PIECE_BYTES) {
        await this.#call({ do: "write", id, data: body.slice(0, PIECE_BYTES) });
        body = body.subarray(PIECE_BYTES);
      }
      body = body.slice();
    }
    return await this.#call({ do: "open", id, method, url, headers, redirect, ...(body?.length ? { body } : {}) }) as Head;
  }

  async #rest(id: number): Promise<Uint8Array<ArrayBuffer>> {
    let whole = new Bytes(0);
    for (;;) {
      const { data, done } = await this.#call({ do: "read", id });
      const longer = new Bytes(whole.length + data.length);
      longer.set(whole);
      longer.set(data, whole.length);
      whole = longer;
      if (done) return whole;
    }
  }

  #call(input: object): Promise<Piece> {
    return this.#service(SERVICE, input, this.#call) as Promise<Piece>;
  }
}

/** Adds properties to a response that only the engine's own fetch could set. */
function dressed(response: Response, { url, redirected }: Head): Response {
  const clone = response.clone;
  const own = {
    url: { value: url },
    redirected: { value: redirected },
    type: { value: "basic" },
    clone: { value: () => dressed(apply(clone, response, []), { url, redirected } as Head) },
  };
  return Object.defineProperties(response, own);
}

/** Makes the class `EventSource` from a `fetch`. */
function eventSource(fetch: (url: string, init: RequestInit) => Promise<Response>): unknown {
  class EventSource extends EventTarget {
    static readonly CONNECTING = 0;
    static readonly OPEN = 1;
    static readonly CLOSED = 2;
    readonly CONNECTING = 0;
    readonly OPEN = 1;
    readonly CLOSED = 2;
    readonly url: string;
    readonly withCredentials = false;
    readyState = 0;
    onopen: ((event: Event) => void) | null = null;
    onmessage: ((event: Event) => void) | null = null;
    onerror: ((event: Event) => void) | null = null;
    #abort = new AbortController();
    #lastId = "";
    #reconnect = RECONNECT_MS;

    constructor(url: string | URL) {
      super();
      this.url = new URL(url).href;
      for (const name of ["open", "message", "error"] as const) this.addEventListener(name, (event) => this[`on${name}`]?.(event));
      void this.#run();
    }

    close(): void {
      this.readyState = this.CLOSED;
      this.#abort.abort();
    }

    async #run(): Promise<void> {
      while (this.readyState !== this.CLOSED) {
        let fatal = false;
        try {
          const headers = { accept: "text/event-stream", "cache-control": "no-cache", ...(this.#lastId && { "last-event-id": this.#lastId }) };
          const response = await fetch(this.url, { headers, signal: this.#abort.signal });
          fatal = response.status !== 200 || !response.headers.get("content-type")?.startsWith("text/event-stream");
          if (!fatal) await this.#read(response);
        } catch (error) {
          fatal = (error as { code?: unknown }).code !== "tool_failed"; // otherwise the connection was lost
        }
        if (this.readyState === this.CLOSED) return;
        this.readyState = fatal ? this.CLOSED : this.CONNECTING;
        this.dispatchEvent(new Event("error"));
        if (!fatal) await new Promise((done) => setTimeout(done, this.#reconnect));
      }
    }

    async #read(response: Response): Promise<void> {
      this.readyState = this.OPEN;
      this.dispatchEvent(new Event("open"));
      const decoder = new TextDecoder();
      let text = "";
      let fields: Record<string, string> = {};
      for await (const piece of response.body!) {
        text += decoder.decode(piece, { stream: true });
        // A carriage return may be the first half of a line end.
        const lines = text.split(/\r\n|\n|\r(?=[^])/);
        text = lines.pop()!;
        for (const line of lines) {
          if (line === "") {
            this.#emit(fields);
            fields = {};
          } else this.#take(line, fields);
        }
      }
    }

    #take(line: string, fields: Record<string, string>): void {
      const [, name, value] = /^([^:]*):? ?([^]*)$/.exec(line)!;
      if (name === "data") fields.data = fields.data === undefined ? value! : `${fields.data}\n${value}`;
      else if (name === "event") fields.event = value!;
      else if (name === "id" && !value!.includes("\0")) this.#lastId = value!;
      else if (name === "retry" && /^\d+$/.test(value!)) this.#reconnect = min(Number(value), LONGEST_MS);
    }

    #emit({ data, event }: Record<string, string>): void {
      if (data === undefined || this.readyState === this.CLOSED) return;
      const { origin } = new URL(this.url);
      this.dispatchEvent(new MessageEvent(event || "message", { data, origin, lastEventId: this.#lastId }));
    }
  }
  return EventSource;
}

type Ask = (input: object) => Promise<unknown>;
type Data = string | ArrayBuffer | ArrayBufferView | Blob;
type Received = { data: string | Uint8Array<ArrayBuffer> } | { data?: undefined; code: number; reason: string };

interface Options {
  protocols?: string | string[];
  headers?: HeadersInit;
}

const NAMES = ["open", "message", "error", "close"] as const;
const LOST = 1006;
/** Maximum bytes of the reason in a closing frame. */
const MAX_REASON = 123;

const { assign } = Object;
const { isView } = ArrayBuffer;

/** Makes the class `WebSocket` from a service of the host. */
function webSocket(ask: Ask): unknown {
  let last = 0;

  class CloseEvent extends Event {
    readonly code: number;
    readonly reason: string;
    readonly wasClean: boolean;

    constructor(type: string, { code = 0, reason = "", wasClean = false, ...init }: EventInit & { code?: number; reason?: string; wasClean?: boolean } = {}) {
      super(type, init);
      this.code = code;
      this.reason = reason;
      this.wasClean = wasClean;
    }
  }

  class WebSocket extends EventTarget {
    static readonly CONNECTING = 0;
    static readonly OPEN = 1;
    static readonly CLOSING = 2;
    static readonly CLOSED = 3;
    readonly CONNECTING = 0;
    readonly OPEN = 1;
    readonly CLOSING = 2;
    readonly CLOSED = 3;
    readonly url: string;
    readonly extensions = "";
    protocol = "";
    binaryType: "blob" | "arraybuffer" = "blob";
    bufferedAmount = 0;
    readyState = 0;
    onopen: ((event: Event) => void) | null = null;
    onmessage: ((event: Event) => void) | null = null;
    onerror: ((event: Event) => void) | null = null;
    onclose: ((event: Event) => void) | null = null;
    #id = ++last;
    /** A failure has a listener. */
    #heard = false;
    #sending: Promise<unknown> = Promise.resolve();

    constructor(url: string | URL, parameter: string | string[] | Options = []) {
      super();
      const target = new URL(url);
      const scheme = { "http:": "ws:", "https:": "wss:" }[target.protocol];
      if (scheme !== undefined) target.protocol = scheme;
      if (!["ws:", "wss:"].includes(target.protocol)) throw new DOMException("the URL of a WebSocket begins with ws: or wss:", "SyntaxError");
      if (target.hash !== "") throw new DOMException("the URL of a WebSocket has no fragment", "SyntaxError");
      this.url = target.href;
      const { protocols = [], headers } = typeof parameter === "string" || Array.isArray(parameter) ? { protocols: parameter } : parameter;
      const names = typeof protocols === "string" ? [protocols] : [...protocols];
      if (names.some((each) => typeof each !== "string" || !/^[!#$%&'*+.^_`|~\w-]+$/.test(each)) || new Set(names).size < names.length) {
        throw new DOMException("protocols are different names, of letters, digits and marks", "SyntaxError");
      }
      for (const name of NAMES) super.addEventListener(name, (event) => this[`on${name}`]?.(event));
      void this.#run(names, [...new Headers(headers)]);
    }

    override addEventListener(...given: Parameters<EventTarget["addEventListener"]>): void {
      if (given[0] === "error" || given[0] === "close") this.#heard = true;
      super.addEventListener(...given);
    }

    send(data: Data): void {
      if (this.readyState === this.CONNECTING) throw new DOMException("the WebSocket is not open yet: wait for its event `open`", "InvalidStateError");
      const message = data instanceof ArrayBuffer || isView(data) ? copied(data) : data instanceof Blob ? data : `${data}`;
      const size = typeof message === "string" ? new TextEncoder().encode(message).length : message instanceof Blob ? message.size : message.length;
      this.bufferedAmount += size;
      if (this.readyState !== this.OPEN) return; // as in other engines, which just count it
      this.#then(async () => {
        await ask({ do: "send", id: this.#id, data: message instanceof Blob ? new Bytes(await message.arrayBuffer()) : message });
        this.bufferedAmount -= size;
      });
    }

    close(code?: number, reason = ""): void {
      if (code !== undefined && code !== 1000 && !(code >= 3000 && code <= 4999)) {
        throw new DOMException(`a WebSocket is closed with code 1000, or one from 3000 to 4999, not ${code}`, "InvalidAccessError");
      }
      if (new TextEncoder().encode(reason).length > MAX_REASON) throw new DOMException(`a reason has at most ${MAX_REASON} bytes`, "SyntaxError");
      if (this.readyState >= this.CLOSING) return;
      const opening = this.readyState === this.CONNECTING;
      this.readyState = this.CLOSING;
      const close = async () => void await ask({ do: "close", id: this.#id, code: code ?? 1000, reason });
      if (opening) void close().catch(() => {});
      else this.#then(close);
    }

    /** Queues work. A failure ends the WebSocket. */
    #then(work: () => Promise<void>): void {
      this.#sending = this.#sending.then(work).catch((error: unknown) => this.#fail(error));
    }

    async #run(protocols: string[], headers: [string, string][]): Promise<void> {
      try {
        const { protocol } = await ask({ do: "open", id: this.#id, url: this.url, protocols, headers }) as { protocol: string };
        if (this.readyState !== this.CONNECTING) return this.#fail(new Error("the WebSocket was closed before it was open"));
        this.protocol = protocol;
        this.readyState = this.OPEN;
        this.dispatchEvent(new Event("open"));
        for (;;) {
          const received = await ask({ do: "receive", id: this.#id }) as Received;
          if (received.data === undefined) return this.#end(received.code, received.reason, true);
          if (this.readyState === this.OPEN) this.dispatchEvent(new MessageEvent("message", { data: this.#shown(received.data), origin: new URL(this.url).origin }));
        }
      } catch (error) {
        await this.#fail(error);
      }
    }

    #shown(data: string | Uint8Array<ArrayBuffer>): string | ArrayBuffer | Blob {
      if (typeof data === "string") return data;
      return this.binaryType === "blob" ? new Blob([data]) : copied(data).buffer;
    }

    /**
     * The reason is in `message` and `error` of the event, and in the `reason` of `close`. Without a listener, it
     * becomes a remark. When the events are dispatched, the host has already closed the connection, so another can be
     * opened then.
     */
    async #fail(error: unknown): Promise<void> {
      if (this.readyState === this.CLOSED) return;
      const message = error instanceof Error ? error.message : `${error}`;
      if (!this.#heard && this.onerror === null && this.onclose === null) void Promise.reject(error as Error);
      this.readyState = this.CLOSED;
      await ask({ do: "drop", id: this.#id }).catch(() => {});
      this.dispatchEvent(assign(new Event("error"), { message, error }));
      this.#end(LOST, message, false);
    }

    #end(code: number, reason: string, wasClean: boolean): void {
      this.readyState = this.CLOSED;
      this.dispatchEvent(new CloseEvent("close", { code, reason, wasClean }));
    }
  }
  return WebSocket;
}

function copied(data: ArrayBuffer | ArrayBufferView): Uint8Array<ArrayBuffer> {
  return isView(data) ? new Bytes(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength).slice() : new Bytes(data).slice();
}
