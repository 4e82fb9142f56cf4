// Calls in the format of corral's GraphQL bridge: the calls of a batch are one subscription to `_calls`, whose events
// contain lines as in the HTTP bridge. POST {url}/token returns a fresh token.

import { bridgeTransport, encodeCall, type Failure, Lines, readFailure, readReply, type Reply, type Transport } from "../../guest/typescript/client.ts";

const OPERATION = "subscription($calls:[JSON!]!){_calls(calls:$calls)}";
const EVENT = "data: ";
const LINE = `${EVENT}{"data":{"_calls":`;

const transport: Transport = {
  batchCalls: 64,
  renewalPath: "/token",
  encode: encodeCall,
  request: (calls) => ({
    path: "",
    type: "application/json",
    body: `{"query":"${OPERATION}","variables":{"calls":[${calls.join()}]}}`,
  }),
  reader: (sequences, maxBytes) => {
    const unanswered = new Set(sequences);
    return new Lines(maxBytes, (line) => readEvent(line, unanswered));
  },
  refusal: readErrors,
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);

/** Reads a line of an event. Errors outside calls apply to all unanswered calls. */
function readEvent(line: string, unanswered: Set<number>): Reply[] {
  if (line.startsWith(LINE)) {
    const reply = readReply(line.slice(LINE.length, -2));
    if (reply[1] !== "items") unanswered.delete(reply[0]);
    return [reply];
  }
  if (!line.startsWith(EVENT)) return []; // type of an event, or a comment
  try {
    const failure = readErrors(line.slice(EVENT.length));
    return [...unanswered].map((sequence) => [sequence, false, failure]);
  } catch {
    throw new Error("it sent an event that is not a reply");
  }
}

function readErrors(text: string): Failure {
  const [{ message, extensions }] = (JSON.parse(text) as { errors: [{ message: string; extensions: object }] }).errors;
  return readFailure({ ...extensions, message });
}
