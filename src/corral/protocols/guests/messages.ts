// Messages of corral.v1.Bridge/Calls, which Connect and gRPC share. Their only field contains lines as in the HTTP
// bridge. Each message is in an envelope: a byte of flags, and four bytes of length.

import { type Failure, readReply, type Reader, type Reply } from "../../guest/typescript/client.ts";

export const SERVICE = "/corral.v1.Bridge";
const HEAD = 5;
/** Flag of the envelope that ends a reply. */
const END = 2;
/** Tag of the field in both messages. */
const FIELD = 0x0a;
/** Bytes of a message in addition to its line. */
const BESIDE_LINE = 16;

/** Splits a reply into messages. The last one may contain the error of all calls, which `readError` reads. */
export class Envelopes implements Reader {
  #decoder = new TextDecoder("utf-8", { fatal: true });
  #parts: Uint8Array[] = [];
  #length = 0;
  #needed = HEAD;
  #unanswered: Set<number>;
  #maxBytes: number;
  #readError: (error: unknown) => Failure;

  constructor(sequences: number[], maxBytes: number, readError: (error: unknown) => Failure) {
    this.#readError = readError;
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
      const { error } = JSON.parse(this.#decoder.decode(message)) as { error?: unknown };
      if (error !== undefined) {
        const failure = this.#readError(error);
        for (const sequence of this.#unanswered) yield [sequence, false, failure];
      }
    } else if (flags !== 0 || (message.length > 0 && message[0] !== FIELD)) {
      throw new Error("it sent a message that is not a reply");
    } else if (message.length > 0) { // an empty message keeps a slow connection alive
      let at = 1;
      while (message[at++]! > 0x7f); // length of the line, which is all that follows
      const reply = readReply(this.#decoder.decode(message.subarray(at)));
      if (reply[1] !== "items") this.#unanswered.delete(reply[0]);
      yield reply;
    }
  }

  end(): Reply[] {
    return [];
  }
}

/** Makes the message of a batch of calls, in its envelope. */
export function callsMessage(calls: string[]): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(`{"calls":[${calls.join()}],"stream":true}`);
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

/** Makes the envelope that ends a reply with the error of all its calls. */
export function endMessage(error: object): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(JSON.stringify({ error }));
  const whole = new Uint8Array(HEAD + data.length);
  whole[0] = END;
  new DataView(whole.buffer).setUint32(1, data.length);
  whole.set(data, HEAD);
  return whole;
}

/** Returns the token in the reply to a renewal, which is its first field. */
export function readToken(envelope: Uint8Array): string {
  if (envelope[HEAD] !== FIELD) throw new Error("it sent a message that is not a reply");
  let size = 0;
  let at = HEAD + 1;
  for (let shift = 0; ; shift += 7) {
    const byte = envelope[at++]!;
    size |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return new TextDecoder().decode(envelope.subarray(at, at + size));
}
