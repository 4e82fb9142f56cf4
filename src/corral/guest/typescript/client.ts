// `tools` for a program that runs elsewhere, in plain Deno or Node. The calls of one turn of microtasks leave together, in
// requests over HTTP whose form a transport knows; the token is renewed as long as the program runs.

import { Calls, makeTools } from "./tools.ts";
import { byteLength, decodeValue, type Encoded, revive } from "./values.ts";

export interface Options {
  /** Where the bridge is, without `/calls`. */
  url: string;
  token: string;
  /** `name` or `namespace.name`. What is not in it can be called too: the host knows which tools there are. */
  tools?: readonly string[];
  /** The largest input of a call, as UTF-8. */
  maxInputBytes?: number;
  /** The longest line of a reply. */
  maxOutputBytes?: number;
}

export interface Connection {
  tools: object;
  /** Ends what is under way. Calls that have no reply yet, and later ones, fail. */
  close(): void;
}

/** What a call fails with: `[code, name, message, retryAfterSeconds?]`. */
export type Failure = [code: string, name: string, message: string, retryAfterSeconds?: number];

/** Reply to a call, as `Calls.settle` takes it. */
export type Reply =
  | [sequence: number, ok: true, value: unknown]
  | [sequence: number, ok: false, failure: Failure]
  /** Items of a stream, which another reply to the same call ends. The first reply with items opens it. */
  | [sequence: number, ok: "items", items: unknown[]]
  /** The call was not made, and is to be sent in a request of its own. */
  | [sequence: number, ok: "alone"];

/** Form of the messages of a protocol. */
export interface Transport {
  /** Maximum calls of a request. */
  batchCalls: number;
  /** Path that gives `{token}` for the token it is sent with. */
  renewalPath: string;
  /** One call as text; `path` is the tool's as JSON. */
  encode(sequence: number, path: string, input: Encoded): string;
  /** A request with calls that `encode` gave; `path` is below the bridge's URL. */
  request(calls: string[]): { path: string; type: string; body: string | Uint8Array<ArrayBuffer> };
  /** Reader of the reply to a request with these calls. */
  reader(sequences: number[], maxBytes: number): Reader;
  /** Failure of all calls, from the body of a reply with another status than 200. Throws for a body of another form. */
  refusal(body: string): Failure;
  /** Makes what sends the requests of a client, until `closing`; by default that is `fetch`. */
  open?(closing: AbortSignal): Post;
}

/** Sends a request as `fetch` does. */
export type Post = (url: string, init: RequestInit & { headers: Record<string, string>; signal: AbortSignal }) => Promise<Response>;

export interface Reader {
  /** Takes the next part of a reply; returns the replies to calls that are complete. Throws for what is no reply. */
  feed(part: Uint8Array): Iterable<Reply>;
  /** Returns the replies that were complete only with the end. */
  end(): Iterable<Reply>;
}

const MAX_BATCH_BYTES = 1_000_000;
const CALLS_IN_FLIGHT = 128;
/** More of the text of a refusal, or of a reply to a renewal, is not read. */
const MAX_SMALL_REPLY = 65_536;
const RENEWAL_TIMEOUT_MS = 10_000;
/** Timers cannot wait longer than 24 days. */
const MAX_RENEWAL_SECONDS = 86_400;
/** With these, the host says that it will not renew the token. */
const REFUSALS = [401, 403, 404];

const { fetch, setTimeout, clearTimeout, queueMicrotask } = globalThis;

/** The functions by which a program connects over a transport. */
export function bridgeTransport(transport: Transport): {
  connect(options: Options): Connection;
  connectFromEnvironment(options?: Partial<Options>): Connection;
} {
  return {
    connect: (options) => connect(transport, options),
    connectFromEnvironment: (options = {}) =>
      connect(transport, { url: environment("CORRAL_URL"), token: environment("CORRAL_TOKEN"), ...options }),
  };
}

/** Makes `tools` out of a bridge's address and a token. Nothing is sent before the first call. */
function connect(transport: Transport, options: Options): Connection {
  const { protocol } = new URL(options.url);
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`url: ${protocol} is neither http: nor https:`);
  if (typeof options.token !== "string" || options.token === "") throw new TypeError("token: there is none");
  const client = new Client(transport, options);
  const { tools } = makeTools(options.tools ?? [], client.calls);
  return { tools, close: () => client.close() };
}

function environment(name: string): string {
  const { Deno: deno, process } = globalThis as unknown as {
    Deno?: { env: { get(name: string): string | undefined } };
    process?: { env: Record<string, string | undefined> };
  };
  const value = deno === undefined ? process?.env[name] : deno.env.get(name);
  if (value === undefined || value === "") throw new TypeError(`the environment variable ${name} is not set`);
  return value;
}

class Client {
  readonly calls: Calls;
  #transport: Transport;
  #url: string;
  #token: string;
  #maxOutputBytes: number;
  /** The calls that leave together at the end of this turn, by sequence. */
  #batch = new Map<number, string>();
  #batchBytes = 0;
  #closing = new AbortController();
  #send: Post;
  #readings = new Map<number, Reading>();
  #renewal: unknown;

  constructor(transport: Transport, { url, token, maxInputBytes = 1_000_000, maxOutputBytes = 64_000_000 }: Options) {
    this.#transport = transport;
    this.#send = transport.open?.(this.#closing.signal) ?? fetch;
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#maxOutputBytes = maxOutputBytes;
    const limits = { calls: Infinity, callsInFlight: CALLS_IN_FLIGHT, inputBytes: maxInputBytes, plain: true };
    const tell = (told: "credit" | "cancel", sequence: number) => this.#readings.get(sequence)?.tell(told);
    this.calls = new Calls((_payload, input, sequence, path) => this.#add(sequence, path, input), tell, limits);
    this.#scheduleRenewal();
  }

  close(): void {
    this.#closing.abort();
    clearTimeout(this.#renewal as number);
  }

  #add(sequence: number, path: string, input: Encoded): void {
    const call = this.#transport.encode(sequence, path, input);
    const bytes = byteLength(call) + 1;
    if (this.#batch.size === this.#transport.batchCalls || this.#batchBytes + bytes > MAX_BATCH_BYTES) this.#flush();
    if (this.#batch.size === 0) queueMicrotask(() => this.#flush());
    this.#batch.set(sequence, call);
    this.#batchBytes += bytes;
  }

  #flush(): void {
    if (this.#batch.size === 0) return;
    const batch = this.#batch;
    this.#batch = new Map();
    this.#batchBytes = 0;
    void this.#exchange(batch);
  }

  /** Sends a batch, and settles its calls as their replies come in. */
  async #exchange(unanswered: Map<number, string>): Promise<void> {
    let failure = bridgeError(`the bridge at ${this.#url} ended its reply without an answer to this call`);
    const reading = new Reading();
    const settle = (replies: Iterable<Reply>): void => {
      for (const reply of replies) {
        const [sequence, ok] = reply;
        const call = unanswered.get(sequence);
        if (call === undefined) throw new Error("it answered a call that was not asked");
        if (ok === "items") {
          this.#readings.set(sequence, reading);
          if (reply[2].length > 0) reading.unread += 1;
          this.calls.deliver([sequence, reply[2], true]);
          continue;
        }
        unanswered.delete(sequence);
        this.#readings.delete(sequence);
        if (ok === "alone") void this.#exchange(new Map([[sequence, call]]));
        else this.calls.settle(reply);
      }
    };
    const { signal } = this.#closing;
    const request = this.#transport.request([...unanswered.values()]);
    try {
      const reader = this.#transport.reader([...unanswered.keys()], this.#maxOutputBytes);
      const response = await this.#post(request.path, signal, request.body, request.type);
      const { status, headers, body } = response;
      if (status !== 200) failure = await this.#refusal(response);
      else {
        if (Number(headers.get("content-length") ?? Infinity) < MAX_SMALL_REPLY) { // which is read much faster
          settle(reader.feed(new Uint8Array(await response.arrayBuffer())));
        } else {
          const source = body!.getReader();
          reading.cancel = () => void source.cancel().catch(() => {});
          for (let part = await source.read(); !part.done; part = await source.read()) {
            settle(reader.feed(part.value));
            await reading.read(); // meanwhile the connection fills up, and the tool waits
          }
        }
        settle(reader.end());
      }
    } catch (error) {
      failure = bridgeError(
        signal.aborted ? "the connection to the bridge was closed" : `the bridge at ${this.#url} failed: ${reason(error)}`,
      );
    }
    for (const sequence of unanswered.keys()) {
      this.#readings.delete(sequence);
      this.calls.settle(reading.cancelled ? [sequence, true, undefined] : [sequence, false, failure]);
    }
  }

  /** Why the host refused a whole request. */
  async #refusal(response: Response): Promise<Failure> {
    const text = await readSmall(response);
    try {
      return this.#transport.refusal(text);
    } catch {
      return bridgeError(`the bridge at ${response.url} answered with the status ${response.status}`);
    }
  }

  #post(path: string, signal: AbortSignal, body: string | Uint8Array<ArrayBuffer>, type: string): Promise<Response> {
    const headers = { authorization: `Bearer ${this.#token}`, "content-type": type };
    // A redirect would take the token to who knows where.
    return this.#send(`${this.#url}${path}`, { method: "POST", headers, body, signal, redirect: "error" });
  }

  #scheduleRenewal(): void {
    const seconds = secondsToRenewal(this.#token);
    if (seconds === undefined || this.#closing.signal.aborted) return;
    this.#renewal = setTimeout(() => void this.#renew(), seconds * 1000);
    unref(this.#renewal);
  }

  async #renew(): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(RENEWAL_TIMEOUT_MS)]);
    let refused = false;
    try {
      const response = await this.#post(this.#transport.renewalPath, signal, "{}", "application/json");
      refused = REFUSALS.includes(response.status);
      const { token } = JSON.parse(await readSmall(response)) as { token?: unknown };
      if (response.status === 200 && typeof token === "string") this.#token = token;
    } catch {
      // The token that is there may still be good, and the bridge may be back the next time.
    }
    if (!refused) this.#scheduleRenewal();
  }
}

/** A request whose reply may be a stream. */
class Reading {
  #resume = () => {};
  /** Replies with items that the program has not read. */
  unread = 0;
  /** The program reads no further. */
  cancelled = false;
  cancel = () => {};

  tell(told: "credit" | "cancel"): void {
    this.unread -= 1;
    if (told === "cancel") {
      this.unread = 0;
      this.cancelled = true;
      this.cancel();
    }
    if (this.unread === 0) this.#resume();
  }

  /** Waits until the program has read all items. */
  async read(): Promise<void> {
    if (this.unread > 0) await new Promise<void>((resolve) => (this.#resume = resolve));
  }
}

/** The text of a reply that should be short; of a longer one its beginning. */
async function readSmall(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_SMALL_REPLY) break;
  }
  return text;
}

function bridgeError(message: string): Failure {
  return ["bridge_error", "BridgeError", message];
}

/** What an error of `fetch` has to say; in Node the cause says it. */
function reason(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { message?: string; code?: string } };
  return cause?.message || cause?.code || message || `${error}`;
}

/**
 * Half of what is left of a token's life, by what it says of itself. A clock that is wrong here makes that too early at
 * worst. Nothing for a token that does not say how long it lives.
 */
function secondsToRenewal(token: string): number | undefined {
  try {
    const claims = token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/");
    const { iat, exp } = JSON.parse(atob(claims)) as { iat: number; exp: number };
    const life = exp - iat;
    const left = Math.min(exp - Date.now() / 1000, life);
    return life > 0 ? Math.min(Math.max(left / 2, life / 10), MAX_RENEWAL_SECONDS) : undefined;
  } catch {
    return undefined;
  }
}

/** Lets the process end although the timer waits. */
function unref(timer: unknown): void {
  if (typeof timer === "object") (timer as { unref(): void }).unref();
  else (globalThis as unknown as { Deno?: { unrefTimer(timer: unknown): void } }).Deno?.unrefTimer(timer);
}

/** One call as JSON; `path` is the tool's as JSON. */
export function encodeCall(sequence: number, path: string, { text, tagged }: Encoded): string {
  return `{"sequence":${sequence},"tool":${path},"input":${text}${tagged ? `,"tagged":true` : ""}}`;
}

interface Line {
  sequence: number;
  value?: unknown;
  items?: unknown[];
  alone?: boolean;
  tagged?: boolean;
  error?: unknown;
}

const LINE_END = 10;
const wholeLines = new TextDecoder("utf-8", { fatal: true });

/** Splits a reply into lines, of which `read` makes replies. What comes after the last end of a line is no line. */
export class Lines implements Reader {
  #decoder: TextDecoder | undefined;
  #parts: string[] = [];
  #length = 0;
  #maxLength: number;
  #read: (line: string) => Iterable<Reply>;

  constructor(maxLength: number, read: (line: string) => Iterable<Reply>) {
    this.#maxLength = maxLength;
    this.#read = read;
  }

  *feed(part: Uint8Array): Iterable<Reply> {
    const texts = this.#decode(part).split("\n");
    this.#parts.push(texts[0]!);
    this.#length += texts[0]!.length;
    if (this.#length > this.#maxLength) throw new Error(`a line of its reply is longer than ${this.#maxLength} bytes`);
    if (texts.length === 1) return;
    texts[0] = this.#parts.join("");
    this.#parts = [texts.pop()!];
    this.#length = this.#parts[0]!.length;
    for (const line of texts) if (line !== "") yield* this.#read(line); // an empty one keeps a slow connection alive
  }

  end(): Reply[] {
    return [];
  }

  /** Most parts end with a line, and need no decoder that keeps half a character: making one for each reply takes 8 us. */
  #decode(part: Uint8Array): string {
    if (this.#decoder === undefined && part[part.length - 1] === LINE_END) return wholeLines.decode(part);
    this.#decoder ??= new TextDecoder("utf-8", { fatal: true });
    return this.#decoder.decode(part, { stream: true });
  }
}

/** Reads the reply to a call from a line of JSON. */
export function readReply(line: string): Reply {
  try {
    const { sequence, value, items, alone, tagged, error } = decodeValue(line, false) as Line;
    if (error !== undefined) return [sequence, false, readFailure(error)];
    if (Array.isArray(items)) return [sequence, "items", tagged === true ? revive(items) as unknown[] : items];
    if (alone === true) return [sequence, "alone"];
    return [sequence, true, tagged === true ? revive(value) : value];
  } catch {
    throw new Error("it sent a line that is not a reply");
  }
}

/** Reads an error as the host writes it. */
export function readFailure(error: unknown): Failure {
  const { code, name, message, retryAfterSeconds } = error as Record<string, unknown>;
  if (typeof code !== "string" || typeof name !== "string" || typeof message !== "string") throw new TypeError();
  return [code, name, message, typeof retryAfterSeconds === "number" ? retryAfterSeconds : undefined];
}
