// Calls in the format of corral's gRPC bridge, over the engine's own HTTP/2: the calls of a batch are one request to
// corral.v1.Bridge/Calls, and corral.v1.Bridge/Renew returns a fresh token. The status of a request, which HTTP/2 sends
// in trailers, becomes the last envelope of its reply.

import { bridgeTransport, encodeCall, type Post, readFailure, type Transport } from "../../guest/typescript/client.ts";
import { callsMessage, endMessage, Envelopes, readToken, SERVICE } from "./messages.ts";

type Headers = Record<string, string | undefined>;

interface Stream extends AsyncIterable<Uint8Array> {
  on(event: string, listener: (value: never) => void): void;
  end(body: Uint8Array): void;
  close(code: number): void;
}

interface Session {
  closed: boolean;
  destroyed: boolean;
  request(headers: Headers): Stream;
  on(event: string, listener: (value: never) => void): void;
  destroy(): void;
  ref(): void;
  unref(): void;
}

const CANCEL = 8;
/** HTTP statuses with which the client gives up the renewal, by gRPC status. */
const STATUSES: Record<string, number> = { 7: 403, 12: 404, 16: 401 };

/** Connection of one client. After it was lost, the next request opens another one. */
function open(closing: AbortSignal): Post {
  let session: Session | undefined;
  let requests = 0;
  closing.addEventListener("abort", () => session?.destroy());

  async function connected(origin: string): Promise<Session> {
    const { connect } = await import("node:http2") as unknown as { connect(origin: string): Session };
    if (session === undefined || session.closed || session.destroyed) {
      session = connect(origin);
      session.on("error", () => {}); // its requests fail too
    }
    return session;
  }

  return async (url, { headers, body, signal }) => {
    const { origin, pathname } = new URL(url);
    const renews = pathname.endsWith(transport.renewalPath);
    const line = await connected(origin);
    signal.throwIfAborted();
    const { authorization } = headers;
    const stream = line.request({
      ":method": "POST",
      ":path": pathname,
      "content-type": "application/grpc",
      te: "trailers",
      authorization,
    });
    if (requests++ === 0) line.ref();
    stream.on("close", () => --requests === 0 && line.unref()); // an open connection must not keep the program from ending
    stream.end(renews ? new Uint8Array(5) : body as Uint8Array);
    if (!renews) return new Response(replyOf(stream)); // which ends with the connection
    const cancel = () => stream.close(CANCEL);
    signal.addEventListener("abort", cancel);
    stream.on("close", () => signal.removeEventListener("abort", cancel)); // else its timer keeps the process alive
    return renewal(stream);
  };
}

/** Body of a reply, with its status as the last envelope. It is read only as fast as the program reads. */
function replyOf(stream: Stream): ReadableStream<Uint8Array> {
  const parts = partsOf(stream);
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => stream.close(CANCEL),
  }, { highWaterMark: 0 });
}

async function* partsOf(stream: Stream): AsyncGenerator<Uint8Array> {
  const status = statusOf(stream);
  yield* stream;
  const { "grpc-status": code, "corral-error-code": own, "grpc-message": text = "" } = status;
  if (own !== undefined) yield endMessage(failureIn(status));
  else if (code !== "0") throw new Error(decodeURIComponent(text) || `it ended with the status ${code}`);
}

/** Headers and trailers of a reply, once they have arrived. */
function statusOf(stream: Stream): Headers {
  const status: Headers = {};
  const add = (found: Headers) => void Object.assign(status, found);
  stream.on("response", add);
  stream.on("trailers", add);
  return status;
}

function failureIn(status: Headers): object {
  const seconds = status["corral-retry-after-seconds"];
  return {
    code: status["corral-error-code"],
    name: status["corral-error-name"],
    message: decodeURIComponent(status["grpc-message"] ?? ""),
    retryAfterSeconds: seconds && Number(seconds),
  };
}

/** Makes the reply to a renewal in the form of HTTP. */
async function renewal(stream: Stream): Promise<Response> {
  const status = statusOf(stream);
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  const code = status["grpc-status"] ?? "";
  if (code !== "0") return new Response("{}", { status: STATUSES[code] ?? 502 });
  return Response.json({ token: readToken(new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer())) });
}

const transport: Transport = {
  batchCalls: 64,
  renewalPath: `${SERVICE}/Renew`,
  encode: encodeCall,
  request: (calls) => ({ path: `${SERVICE}/Calls`, type: "application/grpc", body: callsMessage(calls) }),
  reader: (sequences, maxBytes) => new Envelopes(sequences, maxBytes, readFailure),
  refusal: () => {
    throw new Error("a status has it");
  },
  open,
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);
