// `tools` for a program that runs elsewhere, in plain Deno or Node. Calls made in one turn of microtasks are sent
// together, in HTTP requests whose form a transport defines. The token is renewed as long as the program runs.

import { Calls, makeTools } from "./tools.ts";
import { byteLength, decodeValue, type Encoded, revive } from "./values.ts";

export interface Options {
  /** URL of the bridge, without `/calls`. */
  url: string;
  token: string;
  /** Names to list: `name` or `namespace.name`. Other tools can be called too. */
  tools?: readonly string[];
  /** Maximum size of a call's input, as UTF-8. */
  maxInputBytes?: number;
  /** Maximum length of a line in a reply. */
  maxOutputBytes?: number;
}

export interface Connection {
  tools: object;
  /** Ends pending work. Pending and later calls fail. */
  close(): void;
}

/** Failure of a call: `[code, name, message, retryAfterSeconds?]`. */
export type Failure = [code: string, name: string, message: string, retryAfterSeconds?: number];

/** Reply to a call, as `Calls.settle` takes it. */
export type Reply =
  | [sequence: number, ok: true, value: unknown]
  | [sequence: number, ok: false, failure: Failure]
  /** Items of a stream. A later reply to the same call ends the stream. The first reply with items opens it. */
  | [sequence: number, ok: "items", items: unknown[]]
  /** Marker: the call was not made, and has to be sent in a request of its own. */
  | [sequence: number, ok: "alone"];

/** Message format of a protocol. */
export interface Transport {
  /** Maximum number of calls in a request. */
  batchCalls: number;
  /** Path that returns `{token}` for the current token. */
  renewalPath: string;
  /** Encodes one call; `path` is the tool's path as JSON. */
  encode(sequence: number, path: string, input: Encoded): string;
  /** Makes a request from encoded calls; `path` is below the bridge's URL. */
  request(calls: string[]): { path: string; type: string; body: string | Uint8Array<ArrayBuffer> };
  /** Makes the reader for the reply to a request with these calls. */
  reader(sequences: number[], maxBytes: number): Reader;
  /** Reads the failure of all calls from the body of a reply whose status is not 200. Throws if it is malformed. */
  refusal(body: string): Failure;
  /** Makes the function that sends a client's requests until `closing`; defaults to `fetch`. */
  open?(closing: AbortSignal): Post;
}

/** Sends a request like `fetch`. */
export type Post = (url: string, init: RequestInit & { headers: Record<string, string>; signal: AbortSignal }) => Promise<Response>;

export interface Reader {
  /** Reads the next part of a reply. Returns the replies to calls that it completes. Throws if it is malformed. */
  feed(part: Uint8Array): Iterable<Reply>;
  /** Ends the reply. Returns the replies to calls that only the end completes. */
  end(): Iterable<Reply>;
}

const MAX_BATCH_BYTES = 1_000_000;
const CALLS_IN_FLIGHT = 128;
/** Maximum bytes to read of a refusal, or of the reply to a renewal. */
const MAX_SMALL_REPLY = 65_536;
const RENEWAL_TIMEOUT_MS = 10_000;
/** Maximum delay of a timer, which is 24 days. */
const MAX_RENEWAL_SECONDS = 86_400;
/** HTTP statuses with which the host refuses to renew the token. */
const REFUSALS = [401, 403, 404];

const { fetch, setTimeout, clearTimeout, queueMicrotask } = globalThis;

/** Makes the functions with which a program connects over a transport. */
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

/** Makes `tools` from a bridge's address and a token. Nothing is sent before the first call. */
function connect(transport: Transport, options: Options): Connection {
  const { protocol } = new URL(options.url);
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`url: ${protocol} is neither http: nor https:`);
  if (typeof options.token !== "string" || options.token === "") throw new TypeError("token: missing or empty");
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
  /** Calls to send together at the end of this turn, by sequence. */
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
    const tell = (message: "credit" | "cancel", sequence: number) => this.#readings.get(sequence)?.tell(message);
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

  /** Sends a batch, and settles its calls as their replies arrive. */
  async #exchange(unanswered: Map<number, string>): Promise<void> {
    let failure = bridgeError(`the bridge at ${this.#url} ended its reply without an answer to this call`);
    const reading = new Reading();
    const settle = (replies: Iterable<Reply>): void => {
      for (const reply of replies) {
        const [sequence, ok] = reply;
        const call = unanswered.get(sequence);
        if (call === undefined) throw new Error("it answered a call that was not made");
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
        if (Number(headers.get("content-length") ?? Infinity) < MAX_SMALL_REPLY) { // read at once, which is much faster
          settle(reader.feed(new Uint8Array(await response.arrayBuffer())));
        } else {
          const source = body!.getReader();
          reading.cancel = () => void source.cancel().catch(() => {});
          for (let part = await source.read(); !part.done; part = await source.read()) {
            settle(reader.feed(part.value));
            await reading.read(); // meanwhile the connection fills up, so the tool waits
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

  /** Returns the host's reason for refusing a whole request. */
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
    // A redirect would send the token to an unknown server.
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
      // The current token may still be valid, and the bridge may recover.
    }
    if (!refused) this.#scheduleRenewal();
  }
}

/** Request whose reply may be a stream. */
class Reading {
  #resume = () => {};
  /** Number of replies with items that the program has not read. */
  unread = 0;
  /** True once the program has stopped reading. */
  cancelled = false;
  cancel = () => {};

  tell(message: "credit" | "cancel"): void {
    this.unread -= 1;
    if (message === "cancel") {
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

/** Reads a short reply, or the beginning of a longer one. */
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

/** Returns the message of a `fetch` error, which in Node is in the cause. */
function reason(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { message?: string; code?: string } };
  return cause?.message || cause?.code || message || `${error}`;
}

/**
 * Returns half of a token's remaining lifetime, according to the token; undefined if it does not state that. At worst,
 * a wrong clock on this machine makes the renewal too early.
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

/** Lets the process end although the timer is still waiting. */
function unref(timer: unknown): void {
  if (typeof timer === "object") (timer as { unref(): void }).unref();
  else (globalThis as unknown as { Deno?: { unrefTimer(timer: unknown): void } }).Deno?.unrefTimer(timer);
}

/** Encodes one call as JSON; `path` is the tool's path as JSON. */
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

/** Splits a reply into lines, which `read` parses. Text after the last line end is ignored. */
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
    for (const line of texts) if (line !== "") yield* this.#read(line); // empty lines keep a slow connection alive
  }

  end(): Reply[] {
    return [];
  }

  /** Most parts end with a line and need no decoder for split characters, which takes 8 us to create for each reply. */
  #decode(part: Uint8Array): string {
    if (this.#decoder === undefined && part[part.length - 1] === LINE_END) return wholeLines.decode(part);
    this.#decoder ??= new TextDecoder("utf-8", { fatal: true });
    return this.#decoder.decode(part, { stream: true });
  }
}

/** Parses the reply to a call from a line of JSON. */
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

/** Parses an error in the host's format. */
export function readFailure(error: unknown): Failure {
  const { code, name, message, retryAfterSeconds } = error as Record<string, unknown>;
  if (typeof code !== "string" || typeof name !== "string" || typeof message !== "string") throw new TypeError();
  return [code, name, message, typeof retryAfterSeconds === "number" ? retryAfterSeconds : undefined];
}
