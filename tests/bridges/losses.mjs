// Calls each tool by each client, and prints what the client gives its program, in words, as JSON.
import { Buffer } from "node:buffer";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import { createTRPCClient, httpLink } from "@trpc/client";
import { GraphQLClient } from "graphql-request";
import superjson from "superjson";

const { url, token, address, grpcToken, proto, descriptors, names } = JSON.parse(Deno.args[0]);
const JSON_TYPE = { "content-type": "application/json" };
const headers = { authorization: `Bearer ${token}` };

const shown = (value) => {
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof Uint8Array) return `bytes ${[...value]}`;
  if (value instanceof Date) return `Date ${value.toISOString()}`;
  if (Object.is(value, -0)) return "-0";
  if (Array.isArray(value)) return `[${value.map(shown)}]`;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return String(value);
  const members = Object.entries(value).filter(([key]) => !key.startsWith("$"));
  return `{${members.map(([key, each]) => `${key}: ${shown(each)}`).join(", ")}}`;
};

const trpc = (path, transformer) => createTRPCClient({ links: [httpLink({ url: `${url}/${path}`, headers, transformer })] });
const [plain, rich] = [trpc("trpc"), trpc("rich", superjson)];
const graphql = new GraphQLClient(`${url}/graphql/graphql`, { headers });
const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(descriptors, "base64")));
const authorize = (next) => (request) => {
  request.header.set("authorization", headers.authorization);
  return next(request);
};
const transport = createConnectTransport({ baseUrl: `${url}/connect`, httpVersion: "1.1", interceptors: [authorize] });
const connect = createClient(files.getService("corral.tools.Tools"), transport);
const loaded = grpc.loadPackageDefinition(protoLoader.loadSync(proto, { keepCase: true, longs: String }));
const tools = new loaded.corral.tools.Tools(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${grpcToken}`);

const clients = {
  "fetch": async (name) => {
    const response = await fetch(`${url}/http/tools/${name}`, { method: "POST", headers: { ...headers, ...JSON_TYPE }, body: "{}" });
    if (!response.ok) throw new Error(await response.text());
    return await response.json();
  },
  "@trpc/client": (name) => plain[name].mutate({}),
  "@trpc/client, superjson": (name) => rich[name].mutate({}),
  "graphql-request": async (name) => (await graphql.request(`mutation { ${name} }`))[name],
  "@connectrpc/connect-node": async (name) => (await connect[name]({})).result,
  "@grpc/grpc-js": (name) =>
    new Promise((resolve, reject) => tools[name]({}, metadata, (error, reply) => error ? reject(error) : resolve(reply.result))),
};

const found = {};
for (const name of names) {
  found[name] = {};
  for (const [client, call] of Object.entries(clients)) {
    found[name][client] = await call(name).then(shown, () => "an error");
  }
}
console.log(JSON.stringify(found));
tools.close();
