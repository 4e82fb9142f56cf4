//// platform-timeout-race
function withTimeout<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("timed out")), ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
return await withTimeout(tools.add({ a: 1, b: 2 }), 5000);
//// platform-event-typed
const target = new EventTarget();
let seen = "";
target.addEventListener("ping", (event: Event) => { seen = event.type; }, { once: true });
target.dispatchEvent(new Event("ping"));
return seen;
//// platform-dom-exception
try {
  atob("*");
} catch (e) {
  return [e.name, e instanceof DOMException, typeof e.code];
}
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
