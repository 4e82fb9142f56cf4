// Calls procedures by the links of @trpc/client, and prints what comes back as lines of JSON.
import { createTRPCClient, httpBatchLink, httpBatchStreamLink, httpLink, httpSubscriptionLink } from "@trpc/client";
import superjson from "superjson";

const { plain, rich, token, other } = JSON.parse(Deno.args[0]);
const headers = { authorization: `Bearer ${token}` };

function print(name: string, value: unknown): void {
  console.log(JSON.stringify([name, value]));
}

// deno-lint-ignore no-explicit-any
function said(error: any): unknown {
  return [error.data?.corral?.code, error.data?.code, error.data?.httpStatus, error.data?.path];
}

// deno-lint-ignore no-explicit-any
async function talk(name: string, link: any): Promise<void> {
  // deno-lint-ignore no-explicit-any
  const client: any = createTRPCClient<any>({ links: [link] });
  const [moved, sum, refused, unknown, nothing] = await Promise.all([
    client.move.query({ point: { x: 3, tags: ["t"] }, by: 2 }),
    client.add.mutate({ a: 1, b: 2 }),
    client.refuse.mutate().catch(said),
    client.no.such.query().catch(said),
    client.tree.query(),
  ]);
  print(name, [moved, sum, refused, unknown, nothing]);
}

await talk("httpLink", httpLink({ url: plain, headers }));
await talk("httpBatchLink", httpBatchLink({ url: plain, headers }));
await talk("httpBatchStreamLink", httpBatchStreamLink({ url: plain, headers }));
await talk("superjson httpLink", httpLink({ url: rich, headers, transformer: superjson }));
await talk("superjson httpBatchLink", httpBatchLink({ url: rich, headers, transformer: superjson }));
await talk("superjson httpBatchStreamLink", httpBatchStreamLink({ url: rich, headers, transformer: superjson }));
await talk("POST only", httpBatchLink({ url: plain, headers, methodOverride: "POST" }));

// deno-lint-ignore no-explicit-any
const typed: any = createTRPCClient<any>({ links: [httpLink({ url: rich, headers, transformer: superjson })] });
const values = await typed.odd_things.values.query();
print("values", [typeof values.big, String(values.big), Number.isNaN(values.nan), values.bytes instanceof Uint8Array, [...values.bytes]]);
print("echo", await typed.large.query({ digits: 20n }).then((value: unknown) => [typeof value, String(value)]));

// deno-lint-ignore no-explicit-any
const outsider: any = createTRPCClient<any>({ links: [httpLink({ url: plain, headers: { authorization: `Bearer ${other}` } })] });
print("refused", await outsider.tree.query().catch(said));
print("get of a change", (await fetch(`${plain}/add?input=${encodeURIComponent('{"a":1,"b":2}')}`, { headers })).status);

for (const [name, url, transformer] of [["items", plain, undefined], ["superjson items", rich, superjson]] as const) {
  // deno-lint-ignore no-explicit-any
  const link: any = httpSubscriptionLink({
    url,
    transformer: transformer as never,
    // deno-lint-ignore no-explicit-any
    EventSource: source(headers) as any,
  });
  // deno-lint-ignore no-explicit-any
  const client: any = createTRPCClient<any>({ links: [link] });
  const items: unknown[] = [];
  const end = await new Promise((resolve) =>
    client.numbers.subscribe({ n: 3 }, {
      onData: (item: unknown) => items.push(item),
      onComplete: () => resolve("complete"),
      onError: (error: unknown) => resolve(String(error)),
    })
  );
  print(name, [items, end]);
}
Deno.exit(0);

// An EventSource with headers, as the packages that people use for that have it.
function source(headers: Record<string, string>) {
  return class extends EventTarget {
    static CONNECTING = 0;
    static OPEN = 1;
    static CLOSED = 2;
    readyState = 0;
    #abort = new AbortController();
    constructor(url: string) {
      super();
      this.#read(url).catch(() => this.readyState === 2 || this.dispatchEvent(new Event("error")));
    }
    async #read(url: string): Promise<void> {
      const response = await fetch(url, {
        headers: { ...headers, accept: "text/event-stream" },
        signal: this.#abort.signal,
      });
      this.readyState = 1;
      this.dispatchEvent(new Event("open"));
      let text = "";
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
        text += piece;
        for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
          const lines = text.slice(0, end).split("\n");
          text = text.slice(end + 2);
          const field = (name: string) =>
            lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trimStart()).join("\n");
          if (this.readyState === 2) return;
          this.dispatchEvent(new MessageEvent(field("event") || "message", { data: field("data") }));
        }
      }
    }
    close(): void {
      this.readyState = 2;
      this.#abort.abort();
    }
  };
}
