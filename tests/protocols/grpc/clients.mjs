// Calls a gRPC bridge by @grpc/grpc-js, from the text of a `.proto`; prints what came of each call as JSON.
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const { address, token, proto } = JSON.parse(Deno.args[0]);
const loaded = grpc.loadPackageDefinition(protoLoader.loadSync(proto, { keepCase: true, longs: String }));
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${token}`);
const plain = grpc.credentials.createInsecure();
const tools = new loaded.corral.tools.Tools(address, plain);
const trees = new loaded.corral.tools.treesTools(address, plain);

const call = (client, method, input, options = {}) =>
  new Promise((resolve) =>
    client[method](input, metadata, options, (error, reply) =>
      resolve(error ? { code: error.code, details: error.details, own: error.metadata.get("corral-error-code") } : reply)
    )
  );

const numbers = [];
for await (const item of tools.numbers({ n: 3 }, metadata)) numbers.push(item.result);

console.log(JSON.stringify({
  methods: Object.keys(loaded.corral.tools.Tools.service),
  add: await call(tools, "add", { a: "9007199254740993", b: "0" }),
  grow: await call(trees, "grow", { node: { name: "root", children: [{ name: "x" }] } }),
  many: (await Promise.all(Array.from({ length: 64 }, (_, a) => call(tools, "add", { a, b: 1 })))).length,
  refuse: await call(tools, "refuse", {}),
  late: (await call(tools, "wait", {}, { deadline: Date.now() + 200 })).code,
  numbers,
}));
tools.close();
trees.close();
