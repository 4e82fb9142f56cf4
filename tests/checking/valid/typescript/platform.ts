//// platform-sleep
await new Promise((r) => setTimeout(r, 2));
return "slept";
//// platform-sleep-value
const value = await new Promise((resolve) => setTimeout(() => resolve({ n: 5 }), 1));
return value.n;
//// platform-sleep-typed
const sleep = (ms: number): Promise<void> => new Promise<void>((resolve) => setTimeout(resolve, ms));
await sleep(1);
return await tools.add({ a: 1, b: 0 });
//// platform-timeout-race
function withTimeout<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("timed out")), ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
return await withTimeout(tools.add({ a: 1, b: 2 }), 5000);
//// platform-interval
let ticks = 0;
await new Promise((resolve) => {
  const id = setInterval(() => {
    if (++ticks === 3) {
      clearInterval(id);
      resolve();
    }
  }, 1);
});
return ticks;
//// platform-with-resolvers
const { promise, resolve } = Promise.withResolvers();
setTimeout(() => resolve("ready"), 1);
return await promise;
//// platform-with-resolvers-typed
const gate = Promise.withResolvers<number>();
tools.add({ a: 1, b: 2 }).then(gate.resolve, gate.reject);
return (await gate.promise) + 1;
//// platform-promise-constructor-value
const result = await new Promise(async (resolve, reject) => {
  try {
    resolve(await tools.list_cities());
  } catch (e) {
    reject(e);
  }
});
return result.length;
//// platform-abort
const controller = new AbortController();
controller.signal.addEventListener("abort", () => console.log("aborted", controller.signal.reason.message));
controller.abort(new Error("enough"));
return controller.signal.aborted;
//// platform-abort-timeout
const signal = AbortSignal.timeout(1);
await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
return signal.reason.name;
//// platform-immediate
const order = [];
setImmediate(() => order.push("immediate"));
queueMicrotask(() => order.push("microtask"));
await new Promise((r) => setTimeout(r, 2));
return order;
//// platform-random
const id = crypto.randomUUID();
const bytes = crypto.getRandomValues(new Uint8Array(4));
return [id.length, bytes.length, id.split("-").length];
//// platform-hash
const data = new TextEncoder().encode("abc");
const hash = await crypto.subtle.digest("SHA-256", data);
return [...new Uint8Array(hash)].map((b) => b.toString(16).padStart(2, "0")).join("").slice(0, 8);
//// platform-hmac
const key = await crypto.subtle.importKey("raw", new TextEncoder().encode("k"), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
const signature = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode("m"));
return new Uint8Array(signature).length;
//// platform-structured-clone
const original = { a: [1, 2], when: new Date(0) };
const copy = structuredClone(original);
copy.a.push(3);
copy.extra = true;
return [original.a.length, copy.when.getTime()];
//// platform-base64
const encoded = btoa("hello");
return [encoded, atob(encoded), Buffer.from(encoded, "base64").toString("utf8"), Buffer.from("hi").toString("hex")];
//// platform-url
const url = new URL("https://example.com:8080/a/b?x=1&y=2#top");
const { hostname, pathname, searchParams } = url;
url.searchParams.delete("x");
for (const [key, value] of searchParams) console.log(key, value);
return [hostname, pathname, url.search, Object.fromEntries(url.searchParams).y];
//// platform-url-parse
const bad = URL.canParse("not a url");
const parsed = URL.parse("https://a.example/x");
return [bad, parsed.host];
//// platform-search-params
const params = new URLSearchParams("a=1&a=2&b=");
params.sort();
return [params.getAll("a"), params.get("zz"), params.size, params.toString(), [...params.entries()].length];
//// platform-url-pattern
const pattern = new URLPattern({ pathname: "/users/:id" });
return pattern.exec("https://x.example/users/7").pathname.groups.id;
//// platform-headers
const headers = new Headers({ "Content-Type": "text/plain" });
headers.append("X-A", "1");
for (const [name, value] of headers) console.log(`${name}: ${value}`);
return [headers.get("content-type"), headers.has("x-b"), [...headers.keys()].length];
//// platform-form-data
const form = new FormData();
form.append("name", "Ada");
form.set("age", 36);
return Object.fromEntries(form.entries());
//// platform-performance
const start = performance.now();
await tools.add({ a: 1, b: 1 });
const ms = performance.now() - start;
performance.mark("end");
return ms.toFixed(3).length > 0;
//// platform-console
console.log("a", 1, { b: [2] });
console.error(new Error("shown"));
console.time("t");
console.timeEnd("t");
console.count();
console.assert(1 === 1, "fine");
console.dir({ a: { b: {} } }, { depth: 0 });
console.info("%d items", 3);
return "logged";
//// platform-events
class Bus extends EventTarget {}
const bus = new Bus();
const got = [];
bus.addEventListener("tick", (e) => got.push(e.detail.n));
bus.dispatchEvent(new CustomEvent("tick", { detail: { n: 4 } }));
return got;
//// platform-event-typed
const target = new EventTarget();
let seen = "";
target.addEventListener("ping", (event: Event) => { seen = event.type; }, { once: true });
target.dispatchEvent(new Event("ping"));
return seen;
//// platform-blob
const blob = new Blob(["abc", new Uint8Array([100])], { type: "text/plain" });
const file = new File([blob], "a.txt");
return [await blob.text(), blob.size, file.name, (await file.arrayBuffer()).byteLength];
//// platform-request
const request = new Request("https://example.com/a", { method: "POST", body: JSON.stringify({ a: 1 }) });
const body = await request.json();
return [request.method, body.a, new URL(request.url).pathname];
//// platform-response
const response = Response.json({ items: [1, 2] }, { status: 201 });
const { items } = await response.clone().json();
return [response.status, response.ok, items.length, response.headers.get("content-type")];
//// platform-streams
const stream = new ReadableStream({
  start(controller) {
    for (const word of ["a", "b"]) controller.enqueue(word);
    controller.close();
  },
});
let text = "";
for await (const chunk of stream) text += chunk;
return text;
//// platform-reader
const reader = new Blob(["xyz"]).stream().getReader();
const chunks = [];
while (true) {
  const { done, value } = await reader.read();
  if (done) break;
  chunks.push(...value);
}
return new TextDecoder().decode(new Uint8Array(chunks));
//// platform-gzip
const input = "hello ".repeat(50);
const packed = new Blob([input]).stream().pipeThrough(new CompressionStream("gzip"));
const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
const unpacked = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
return [bytes.length < input.length, unpacked === input];
//// platform-transform
const upper = new TransformStream({
  transform(chunk, controller) {
    controller.enqueue(chunk.toUpperCase());
  },
});
const out = [];
for await (const c of ReadableStream.from(["a", "b"]).pipeThrough(upper)) out.push(c);
return out;
//// platform-writable
const seen = [];
const writer = new WritableStream({ write: (chunk) => { seen.push(chunk); } }).getWriter();
await writer.write("one");
await writer.close();
return seen;
//// platform-text-decoder
const decoder = new TextDecoder("utf-8", { fatal: true });
const bytes = new TextEncoder().encode("æ");
return [decoder.decode(bytes), decoder.decode(bytes.buffer), new TextDecoder().decode()];
//// platform-message-channel
const { port1, port2 } = new MessageChannel();
const received = await new Promise((resolve) => {
  port2.onmessage = (event) => resolve(event.data);
  port1.postMessage({ n: 1 });
});
port1.close();
return received.n;
//// platform-dom-exception
try {
  atob("*");
} catch (e) {
  return [e.name, e instanceof DOMException, typeof e.code];
}
//// platform-fetch-refuses
try {
  const res = await fetch("https://example.com");
  const data = await res.json();
  return data.items;
} catch (e) {
  return e.message.includes("no network");
}
//// platform-buffer
const b = Buffer.alloc(8);
b.writeUInt32BE(258, 0);
return [b.readUInt16BE(2), b.toString("hex", 2, 4), Buffer.byteLength("æ"), Buffer.isBuffer(b), b.slice(0, 2).length];
//// platform-temporal
const a = Temporal.PlainDate.from("2026-03-02");
const b = a.add({ days: 30 });
return [b.toString(), a.until(b).days, Temporal.PlainDate.compare(a, b)];
//// platform-temporal-now
const now = Temporal.Now.instant();
const then = Temporal.Instant.from(await tools.now());
return Temporal.Instant.compare(now, then) !== 0 && now.epochMilliseconds > 0;
//// platform-typed-arrays
const f = new Float16Array([1.5, 2.5]);
const u = Uint8Array.from([1, 2, 3]);
return [f[1], u.reduce((a, b) => a + b), u.toHex(), Uint8Array.fromBase64("AQI=").length];
//// platform-date-values
const d = new Date(undefined);
const e = new Date("2026-03-02T00:00:00Z");
e.setUTCDate(e.getUTCDate() + 7);
return [isNaN(d), e.toISOString().slice(0, 10), e.toLocaleDateString("en-US", { month: "long", timeZone: "UTC" }), new Date(null).getTime()];
//// platform-date-math
const d1 = new Date("2026-01-01"), d2 = new Date("2026-03-01");
const days = (d2 - d1) / 864e5;
const midpoint = new Date((+d1 + +d2) / 2);
return { days, mid: midpoint.toJSON(), later: d1 < d2, max: new Date(Math.max(d1, d2)).toISOString() };
//// platform-date-sort-unique
const dates = ["2026-03-02", "2026-01-01", "2026-03-02"].map((d) => new Date(d));
const unique = [...new Set(dates.map(Number))].sort().map((n) => new Date(n));
return unique.map((d) => d.toISOString().substr(0, 10));
//// platform-self-global
return [self === globalThis, global.Math === Math, typeof self.setTimeout, "console" in globalThis];
//// platform-web-socket
let socket: WebSocket | undefined;
try {
  socket = new WebSocket("wss://stream.example.com/feed", ["v1"]);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => socket!.send(JSON.stringify({ subscribe: "prices" }));
  socket.onmessage = (event: MessageEvent) => console.log(JSON.parse(event.data).price);
  socket.addEventListener("close", (event: CloseEvent) => console.log(event.code, event.reason));
} catch (error) {
  console.log((error as Error).message);
}
return socket?.readyState === WebSocket.OPEN;
//// platform-event-source
try {
  const source = new EventSource("https://stream.example.com/events");
  source.onmessage = (event) => console.log(event.data, event.lastEventId);
  source.onerror = () => source.close();
} catch (error) {
  console.log(String(error));
}
return await tools.add({ a: 1, b: 2 });
