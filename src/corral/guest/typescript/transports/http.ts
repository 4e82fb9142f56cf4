// Calls for corral's HTTP bridge. POST {url}/calls sends a batch of calls as JSON. The reply is a stream of lines, one
// for each call, in the order in which the calls end. A call that streams is alone in its request, and its items come
// in earlier lines. POST {url}/token returns a fresh token.

import { bridgeTransport, encodeCall, Lines, readFailure, readReply, type Transport } from "../client.ts";

const transport: Transport = {
  batchCalls: 64,
  renewalPath: "/token",
  encode: encodeCall,
  request: (calls) => ({ path: "/calls", type: "application/json", body: `{"calls":[${calls.join()}],"stream":true}` }),
  reader: (_sequences, maxBytes) => new Lines(maxBytes, (line) => [readReply(line)]),
  refusal: (text) => readFailure((JSON.parse(text) as { error: unknown }).error),
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);
