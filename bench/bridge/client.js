// What a program elsewhere does: `deno run client.mjs latency|load`, with CORRAL_URL and CORRAL_TOKEN. Prints one line of JSON.
import { connectFromEnvironment } from "./corral.mjs";

const url = Deno.env.get("CORRAL_URL");
const echoUrl = new URL("/echo", url);
const headers = { authorization: `Bearer ${Deno.env.get("CORRAL_TOKEN")}`, "content-type": "application/json" };
const { tools } = connectFromEnvironment();
const [mode, count] = [Deno.args[0], Number(Deno.args[1])];

const AT_ONCE = 64;
const body = '{"calls":[{"sequence":1,"tool":"add","input":{"a":1,"b":2}}]}';
const echo = async () => JSON.parse(await (await fetch(echoUrl, { method: "POST", headers, body })).text());
const call = () => tools.add({ a: 1, b: 2 });

const atOnce = (action) => () => Promise.all(Array.from({ length: AT_ONCE }, action));

async function median(action, times = count) {
  const spent = [];
  for (let index = 0; index < times; index++) {
    const started = performance.now();
    await action();
    spent.push((performance.now() - started) * 1000);
  }
  return spent.sort((a, b) => a - b)[times >> 1];
}

for (let index = 0; index < 200; index++) {
  await echo();
  await call();
}
if (mode === "latency") {
  const times = Math.ceil(count / AT_ONCE) * 2;
  const [echoes, calls] = [await median(atOnce(echo), times), await median(atOnce(call), times)];
  console.log(JSON.stringify({ echo: await median(echo), call: await median(call), echoes, calls }));
} else {
  console.log("ready");
  await Deno.stdin.read(new Uint8Array(1));
  for (let index = 0; index < count; index++) await call();
  console.log("done");
}
