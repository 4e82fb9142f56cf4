// What a program sees of its calls, whatever way they travel. The body of an async function of `tools`.
const show = (value) => {
  if (typeof value === "bigint") return `${value}n`;
  if (value === undefined || Object.is(value, -0) || (typeof value === "number" && !Number.isFinite(value))) {
    return Object.is(value, -0) ? "-0" : `${value}`;
  }
  if (value instanceof Uint8Array) return `bytes ${value.join()}`;
  if (value instanceof ArrayBuffer) return `buffer ${new Uint8Array(value).join()}`;
  if (Array.isArray(value)) return value.map(show);
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).map(([name, each]) => [name, show(each)]);
  }
  return value;
};
const failure = (error) => [
  error instanceof Error,
  error.name,
  error.code,
  error.message.replace(/id [0-9a-f]{12}\)/, "id …)").replace(/[\d.]+ (s|minutes?|hours?)$/, "…"),
  error.retryAfterSeconds > 3000,
];
const seen = {};
const check = async (name, calls) => {
  try {
    seen[name] = show(await calls());
  } catch (error) {
    seen[name] = failure(error);
  }
};

await check("a value", () => tools.add({ a: 1, b: 2 }));
await check("undefined", async () => [await tools.nothing()]);
await check("a scope that is held", () => tools.inbox());
await check("a text", () => tools.echo("größer \u2028 \u0000 \ud83d\ude00 \ud800"));
await check("numbers", () => tools.echo([NaN, -Infinity, -0, 1e21, 2n ** 64n, -1n, 9007199254740993n]));
await check("bytes", () => tools.echo([new Uint8Array([1, 2]), new Uint8Array([3]).buffer]));
await check("lookalikes", () => tools.echo([{ $bytes: "x" }, { $number: "NaN", a: 1 }, { $object: {} }]));
await check("collections", () => tools.echo([new Set([1]), new Map([["a", 1]]), new Date(0), [undefined]]));
await check("a name", () => tools.echo(JSON.parse('{"__proto__": 1, "constructor": 2}')));
await check("approved", () => tools.pay({ euros: 7 }));
const hidden = "send"; // the scopes of tools that are named are compared before a program starts
await check("scope_denied", () => tools[hidden]({ text: "x" }));
await check("tool_not_found", () => tools.ad({ a: 1 }));
await check("invalid_arguments", () => tools.add({ a: "x", c: 1 }));
await check("tool_error", () => tools.refuse());
await check("tool_failed", () => tools.break_down());
await check("approval_denied", () => tools.pay({ euros: 70 }));
await check("output too large", () => tools.much({ bytes: 20_000 }));
await check("input too large", () => tools.echo("x".repeat(20_000)));
await check("not a value", () => tools.echo([() => 1]));
await check("the first of an hour", () => tools.quote());
await check("rate_limited", () => tools.quote());
await check("many at once", async () => {
  const found = await Promise.all(Array.from({ length: 100 }, () => tools.gather({ count: 100 })));
  return found.length;
});
await check("a slow and a fast call of one turn", async () => {
  const order = [];
  const slow = tools.hold().then(() => order.push("slow"));
  await tools.add({ a: 1, b: 2 }).then(() => order.push("fast"));
  await tools.let_go();
  await slow;
  return order;
});
await check("call_budget_exceeded", async () => {
  for (;;) await tools.nothing();
});
return seen;
