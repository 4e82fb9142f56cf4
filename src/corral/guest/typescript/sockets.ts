// `WebSocket` for a program with network access: opening it, each message and its end are calls of the host's service
// `$socket`. The next message is requested when the last one was handled, so that none queue up.

type Ask = (input: object) => Promise<unknown>;
type Data = string | ArrayBuffer | ArrayBufferView | Blob;
type Received = { data: string | Uint8Array<ArrayBuffer> } | { data?: undefined; code: number; reason: string };

interface Options {
  protocols?: string | string[];
  headers?: HeadersInit;
}

const NAMES = ["open", "message", "error", "close"] as const;
const LOST = 1006;
/** Maximum length in a closing frame. */
const MAX_REASON = 123;

const Bytes = Uint8Array;
const { assign } = Object;
const { isView } = ArrayBuffer;

/** The class `WebSocket`, over a service of the host. */
export function webSocket(ask: Ask): unknown {
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
      if (this.readyState !== this.OPEN) return; // as in other engines, which only count it
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
     * The reason is in `message` and `error` of the event, and in the `reason` of `close`. Without a listener, it becomes a remark.
     * The host has closed the connection by the time the events are dispatched, so another can be opened then.
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
