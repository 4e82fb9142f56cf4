// Calls a Connect bridge by @connectrpc/connect-node, from descriptors that protoc made of the bridge's document; prints
// what came of each call as JSON, once for each codec.
import { Buffer } from "node:buffer";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createConnectTransport } from "@connectrpc/connect-node";

const { url, token, descriptors } = JSON.parse(Deno.args[0]);
const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(descriptors, "base64")));
const authorize = (next) => (request) => {
  request.header.set("authorization", `Bearer ${token}`);
  return next(request);
};

/** A value as JSON; big integers and bytes as texts. */
const shown = (value) => {
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof Uint8Array) return `bytes ${value}`;
  if (Array.isArray(value)) return value.map(shown);
  if (typeof value !== "object" || value === null) return Number.isNaN(value) ? "NaN" : value;
  return Object.fromEntries(Object.entries(value).filter(([key]) => !key.startsWith("$")).map(([key, each]) => [key, shown(each)]));
};
const caught = async (call) => {
  try {
    return shown(await call());
  } catch (error) {
    const { code, rawMessage, details } = ConnectError.from(error);
    return [Code[code], rawMessage, details.map((each) => each.type), details[0]?.debug?.metadata?.code];
  }
};

for (const useBinaryFormat of [true, false]) {
  const transport = createConnectTransport({
    baseUrl: url,
    httpVersion: "1.1",
    useBinaryFormat,
    interceptors: [authorize],
    sendCompression: compressionGzip,
    compressMinBytes: 1_000,
  });
  const client = (name) => createClient(files.getService(name), transport);
  const tools = client("corral.tools.Tools");
  const bridge = client("corral.v1.Bridge");
  const text = new TextEncoder();
  const items = [];
  for await (const item of tools.numbers({ n: 3n })) items.push(item.result);
  console.log(JSON.stringify({
    add: await caught(() => tools.add({ a: 2n ** 53n + 1n, b: 0n })),
    grow: await caught(() => client("corral.tools.treesTools").grow({ node: { name: "root", children: [{ name: "x" }] } })),
    raw: await caught(() => tools.everything({
      text: "a", whole: 1n, share: NaN, flag: false, raw: new Uint8Array([0, 255]), when: "2026-01-02T00:00:00Z", words: ["x".repeat(3_000)], counts: {},
    })).then((found) => found.result.length > 3_000 && found.result.includes("nan, False, b'\\x00\\xff'")),
    many: (await Promise.all(Array.from({ length: 64 }, (_, a) => tools.add({ a: BigInt(a), b: 1n })))).length,
    refuse: await caught(() => tools.refuse({})),
    denied: await caught(() => createClient(files.getService("corral.tools.Tools"), createConnectTransport({ baseUrl: url, httpVersion: "1.1" })).add({ a: 1n, b: 1n })),
    rated: await caught(async () => {
      for (;;) await tools.quote({});
    }),
    late: await caught(() => tools.wait({}, { timeoutMs: 100 })),
    items: shown(items),
    failing: await caught(async () => {
      for await (const item of tools.numbers({ n: 7n })) items.push(item);
    }),
    received: items.length,
    generic: await caught(async () => {
      const reply = await bridge.call({ tool: "echo", input: text.encode(`{"$bytes":"AP8="}`), tagged: true });
      return [new TextDecoder().decode(reply.value), reply.tagged];
    }),
  }));
}
