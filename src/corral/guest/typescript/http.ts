// `tools` for a program that runs elsewhere, in plain Deno or Node: calls travel over HTTP to corral's bridge.
//
// POST {url}/calls takes the calls of one turn of microtasks as JSON; its reply is a stream of lines, one for each call
// in the order in which they end. POST {url}/token gives a fresh token for the one it is sent with.

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
type Failure = [code: string, name: string, message: string, retryAfterSeconds?: number];

interface Line {
  sequence: number;
  value?: unknown;
  tagged?: boolean;
  error?: unknown;
}

const MAX_BATCH_CALLS = 64;
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

/** Makes `tools` out of a bridge's address and a token. Nothing is sent before the first call. */
export function connect(options: Options): Connection {
  const { protocol } = new URL(options.url);
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`url: ${protocol} is neither http: nor https:`);
  if (typeof options.token !== "string" || options.token === "") throw new TypeError("token: there is none");
  const client = new Client(options);
  const { tools } = makeTools(options.tools ?? [], client.calls);
  return { tools, close: () => client.close() };
}

/** The same with the address and the token that CORRAL_URL and CORRAL_TOKEN hold. */
export function connectFromEnvironment(options: Partial<Options> = {}): Connection {
  return connect({ url: environment("CORRAL_URL"), token: environment("CORRAL_TOKEN"), ...options });
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
  #url: string;
  #token: string;
  #maxOutputBytes: number;
  /** The calls that leave together at the end of this turn, by sequence. */
  #batch = new Map<number, string>();
  #batchBytes = 0;
  #closing = new AbortController();
  #renewal: unknown;

  constructor({ url, token, maxInputBytes = 1_000_000, maxOutputBytes = 64_000_000 }: Options) {
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#maxOutputBytes = maxOutputBytes;
    const limits = { calls: Infinity, callsInFlight: CALLS_IN_FLIGHT, inputBytes: maxInputBytes, plain: true };
    this.calls = new Calls((_payload, input, sequence, path) => this.#add(sequence, path, input), () => {}, limits);
    this.#scheduleRenewal();
  }

  close(): void {
    this.#closing.abort();
    clearTimeout(this.#renewal as number);
  }

  #add(sequence: number, path: string, input: Encoded): void {
    const call = `{"sequence":${sequence},"tool":${path},"input":${input.text}${input.tagged ? `,"tagged":true` : ""}}`;
    const bytes = byteLength(call) + 1;
    if (this.#batch.size === MAX_BATCH_CALLS || this.#batchBytes + bytes > MAX_BATCH_BYTES) this.#flush();
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

  /** Sends a batch, and settles its calls as the lines of the reply come in. */
  async #exchange(unanswered: Map<number, string>): Promise<void> {
    let failure = bridgeError(`the bridge at ${this.#url} ended its reply without an answer to this call`);
    const settle = (line: string): void => {
      if (line === "") return; // keeps a slow connection from being taken for a dead one
      const reply = readReply(line);
      if (!unanswered.delete(reply[0] as number)) throw new Error("it answered a call that was not asked");
      this.calls.settle(reply);
    };
    const { signal } = this.#closing;
    try {
      const response = await this.#post("/calls", signal, `{"calls":[${[...unanswered.values()].join()}]}`);
      const { status, headers, body } = response;
      if (status !== 200) failure = await refusal(response);
      else if (Number(headers.get("content-length") ?? Infinity) < MAX_SMALL_REPLY) { // which is read much faster
        (await response.text()).split("\n").forEach(settle);
      } else {
        const lines = new Lines(this.#maxOutputBytes);
        for await (const chunk of body!) lines.feed(chunk).forEach(settle);
      }
    } catch (error) {
      failure = bridgeError(
        signal.aborted ? "the connection to the bridge was closed" : `the bridge at ${this.#url} failed: ${reason(error)}`,
      );
    }
    for (const sequence of unanswered.keys()) this.calls.settle([sequence, false, failure]);
  }

  #post(path: string, signal: AbortSignal, body: string): Promise<Response> {
    const headers = { authorization: `Bearer ${this.#token}`, "content-type": "application/json" };
    // A redirect would take the token to who knows where.
    return fetch(`${this.#url}${path}`, { method: "POST", headers, body, signal, redirect: "error" });
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
      const response = await this.#post("/token", signal, "{}");
      refused = REFUSALS.includes(response.status);
      const { token } = JSON.parse(await readSmall(response)) as { token?: unknown };
      if (response.status === 200 && typeof token === "string") this.#token = token;
    } catch {
      // The token that is there may still be good, and the bridge may be back the next time.
    }
    if (!refused) this.#scheduleRenewal();
  }
}

/** Splits a stream into lines. What comes after the last end of a line is no line. */
class Lines {
  #decoder = new TextDecoder("utf-8", { fatal: true });
  #parts: string[] = [];
  #length = 0;
  #maxLength: number;

  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  feed(chunk: Uint8Array): string[] {
    const texts = this.#decoder.decode(chunk, { stream: true }).split("\n");
    this.#parts.push(texts[0]!);
    this.#length += texts[0]!.length;
    if (this.#length > this.#maxLength) throw new Error(`a line of its reply is longer than ${this.#maxLength} bytes`);
    if (texts.length === 1) return [];
    texts[0] = this.#parts.join("");
    this.#parts = [texts.pop()!];
    this.#length = this.#parts[0]!.length;
    return texts;
  }
}

/** A line as `Calls.settle` takes it. */
function readReply(line: string): unknown[] {
  try {
    const { sequence, value, tagged, error } = decodeValue(line, false) as Line;
    if (error !== undefined) return [sequence, false, readFailure(error)];
    return [sequence, true, tagged === true ? revive(value) : value];
  } catch {
    throw new Error("it sent a line that is not a reply");
  }
}

function readFailure(error: unknown): Failure {
  const { code, name, message, retryAfterSeconds } = error as Record<string, unknown>;
  if (typeof code !== "string" || typeof name !== "string" || typeof message !== "string") throw new TypeError();
  return [code, name, message, typeof retryAfterSeconds === "number" ? retryAfterSeconds : undefined];
}

/** Why the host refused a whole request. */
async function refusal(response: Response): Promise<Failure> {
  const text = await readSmall(response);
  try {
    return readFailure((JSON.parse(text) as { error: unknown }).error);
  } catch {
    return bridgeError(`the bridge at ${response.url} answered with the status ${response.status}`);
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
