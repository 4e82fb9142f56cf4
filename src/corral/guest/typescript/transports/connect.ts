// Calls as corral's Connect bridge takes them: the calls of a batch are a request of corral.v1.Bridge/Calls, whose
// messages have the lines of the HTTP bridge in their one field. Each message is in an envelope: a byte of flags, four of
// the length. corral.v1.Bridge/Renew gives a fresh token.

import { bridgeTransport, encodeCall, type Failure, readFailure, readReply, type Reader, type Reply, type Transport } from "../client.ts";

const SERVICE = "/corral.v1.Bridge";
const HEAD = 5;
const END = 2;
/** Tag of the field of both messages. */
const FIELD = 0x0a;
/** Bytes of a message beside its line. */
const BESIDE_LINE = 16;

interface WireError {
  message?: string;
  details: { type: string; debug: { metadata: { code: string; name: string }; retryDelay: string } }[];
}

class Envelopes implements Reader {
  #decoder = new TextDecoder("utf-8", { fatal: true });
  #parts: Uint8Array[] = [];
  #length = 0;
  #needed = HEAD;
  #unanswered: Set<number>;
  #maxBytes: number;

  constructor(sequences: number[], maxBytes: number) {
    this.#unanswered = new Set(sequences);
    this.#maxBytes = maxBytes + BESIDE_LINE;
  }

  *feed(part: Uint8Array): Iterable<Reply> {
    this.#parts.push(part);
    this.#length += part.length;
    while (this.#length >= this.#needed) {
      const data = joined(this.#parts, this.#length);
      const size = new DataView(data.buffer, data.byteOffset).getUint32(1);
      if (size > this.#maxBytes) throw new Error(`a message of its reply is longer than ${this.#maxBytes} bytes`);
      const end = HEAD + size;
      this.#needed = data.length < end ? end : HEAD;
      this.#parts = [data.length < end ? data : data.subarray(end)];
      this.#length = this.#parts[0]!.length;
      if (data.length >= end) yield* this.#read(data[0]!, data.subarray(HEAD, end));
    }
  }

  *#read(flags: number, message: Uint8Array): Iterable<Reply> {
    if (flags === END) {
      const { error } = JSON.parse(this.#decoder.decode(message)) as { error?: WireError };
      if (error !== undefined) {
        const failure = readError(error);
        for (const sequence of this.#unanswered) yield [sequence, false, failure];
      }
    } else if (flags !== 0 || (message.length > 0 && message[0] !== FIELD)) {
      throw new Error("it sent a message that is not a reply");
    } else if (message.length > 0) { // an empty one keeps a slow connection alive
      let at = 1;
      while (message[at++]! > 0x7f); // the length of the line, which is the rest
      const reply = readReply(this.#decoder.decode(message.subarray(at)));
      if (reply[1] !== "items") this.#unanswered.delete(reply[0]);
      yield reply;
    }
  }

  end(): Reply[] {
    return [];
  }
}

const transport: Transport = {
  batchCalls: 64,
  renewalPath: `${SERVICE}/Renew`,
  encode: encodeCall,
  request: (calls) => ({
    path: `${SERVICE}/Calls`,
    type: "application/connect+proto",
    body: envelope(`{"calls":[${calls.join()}],"stream":true}`),
  }),
  reader: (sequences, maxBytes) => new Envelopes(sequences, maxBytes),
  refusal: (text) => readError(JSON.parse(text) as WireError),
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);

function envelope(text: string): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(text);
  const head = [FIELD];
  for (let rest = data.length; ; rest >>>= 7) {
    if (rest < 0x80) {
      head.push(rest);
      break;
    }
    head.push(rest & 0x7f | 0x80);
  }
  const whole = new Uint8Array(HEAD + head.length + data.length);
  new DataView(whole.buffer).setUint32(1, head.length + data.length);
  whole.set(head, HEAD);
  whole.set(data, HEAD + head.length);
  return whole;
}

function joined(parts: Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Reads an error of the protocol, whose details have the host's. */
function readError({ message = "", details }: WireError): Failure {
  const debug = (type: string) => details.find((each) => each.type === `google.rpc.${type}`)?.debug;
  const { code, name } = debug("ErrorInfo")!.metadata;
  const delay = debug("RetryInfo")?.retryDelay; // such as 1.5s
  return readFailure({ code, name, message, retryAfterSeconds: delay && Number(delay.slice(0, -1)) });
}
