// Calls as corral's HTTP bridge takes them: POST {url}/calls has the calls of a batch as JSON; its reply is a stream of
// lines, one for each call in the order in which they end; one that streams is alone in its request, and has lines with
// its items before. POST {url}/token gives a fresh token.

import { bridgeTransport, type Failure, type Reply, type Transport } from "./client.ts";
import { decodeValue, revive } from "./values.ts";

interface Line {
  sequence: number;
  value?: unknown;
  items?: unknown[];
  alone?: boolean;
  tagged?: boolean;
  error?: unknown;
}

const transport: Transport = {
  batchCalls: 64,
  renewalPath: "/token",
  encode: (sequence, path, { text, tagged }) =>
    `{"sequence":${sequence},"tool":${path},"input":${text}${tagged ? `,"tagged":true` : ""}}`,
  request: (calls) => ({ path: "/calls", type: "application/json", body: `{"calls":[${calls.join()}],"stream":true}` }),
  reader: (_sequences, maxBytes) => new Lines(maxBytes),
  refusal: (text) => readFailure((JSON.parse(text) as { error: unknown }).error),
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);

/** Splits a reply into lines. What comes after the last end of a line is no line. */
class Lines {
  #parts: string[] = [];
  #length = 0;
  #maxLength: number;

  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  *feed(text: string): Iterable<Reply> {
    const texts = text.split("\n");
    this.#parts.push(texts[0]!);
    this.#length += texts[0]!.length;
    if (this.#length > this.#maxLength) throw new Error(`a line of its reply is longer than ${this.#maxLength} bytes`);
    if (texts.length === 1) return;
    texts[0] = this.#parts.join("");
    this.#parts = [texts.pop()!];
    this.#length = this.#parts[0]!.length;
    for (const line of texts) if (line !== "") yield readReply(line); // an empty one keeps a slow connection alive
  }

  end(): Reply[] {
    return [];
  }
}

function readReply(line: string): Reply {
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

function readFailure(error: unknown): Failure {
  const { code, name, message, retryAfterSeconds } = error as Record<string, unknown>;
  if (typeof code !== "string" || typeof name !== "string" || typeof message !== "string") throw new TypeError();
  return [code, name, message, typeof retryAfterSeconds === "number" ? retryAfterSeconds : undefined];
}
