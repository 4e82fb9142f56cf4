// Calls in the format of corral's Connect bridge: the calls of a batch are one request to corral.v1.Bridge/Calls, and
// corral.v1.Bridge/Renew returns a fresh token.

import { bridgeTransport, encodeCall, type Failure, readFailure, type Transport } from "../../guest/typescript/client.ts";
import { callsMessage, Envelopes, SERVICE } from "./messages.ts";

interface WireError {
  message?: string;
  details: { type: string; debug: { metadata: { code: string; name: string }; retryDelay: string } }[];
}

const transport: Transport = {
  batchCalls: 64,
  renewalPath: `${SERVICE}/Renew`,
  encode: encodeCall,
  request: (calls) => ({ path: `${SERVICE}/Calls`, type: "application/connect+proto", body: callsMessage(calls) }),
  reader: (sequences, maxBytes) => new Envelopes(sequences, maxBytes, (error) => readError(error as WireError)),
  refusal: (text) => readError(JSON.parse(text) as WireError),
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);

/** Reads an error of the protocol. Its details contain the host's error. */
function readError({ message = "", details }: WireError): Failure {
  const debug = (type: string) => details.find((each) => each.type === `google.rpc.${type}`)?.debug;
  const { code, name } = debug("ErrorInfo")!.metadata;
  const delay = debug("RetryInfo")?.retryDelay; // such as 1.5s
  return readFailure({ code, name, message, retryAfterSeconds: delay && Number(delay.slice(0, -1)) });
}
