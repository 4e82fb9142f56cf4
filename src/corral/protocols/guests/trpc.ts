// Calls in the format of corral's tRPC bridge: the calls of a batch are a subscription by POST, whose events contain
// lines as in the HTTP bridge. POST {url}/corral/token returns a fresh token.

import { bridgeTransport, encodeCall, Lines, readFailure, readReply, type Transport } from "../../guest/typescript/client.ts";

interface Shape {
  message: string;
  data: { corral: object };
}

const transport: Transport = {
  batchCalls: 64,
  renewalPath: "/corral/token",
  encode: encodeCall,
  request: (calls) => ({
    path: "/corral/calls",
    type: "application/json",
    body: `{"calls":[${calls.join()}],"stream":true}`,
  }),
  reader: (_sequences, maxBytes) =>
    new Lines(maxBytes, (line) => line.startsWith(`data: {"`) ? [readReply(line.slice(6))] : []),
  refusal: (text) => {
    const { error } = JSON.parse(text) as { error: Shape & { json?: Shape } };
    const { message, data } = error.json ?? error; // the first form is from a bridge with the transformer superjson
    return readFailure({ ...data.corral, message });
  },
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);
