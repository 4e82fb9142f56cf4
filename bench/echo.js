// The floor of a tool call: the same engine answers each message it reads with one of a call's size.
const buffer = new Uint8Array(65536);
const decoder = new TextDecoder();
const message = new TextEncoder().encode(JSON.stringify([1, "add", { a: 1, b: 2 }]));
Deno.stdout.writeSync(message);
for (;;) {
  const count = Deno.stdin.readSync(buffer);
  if (count === null) break;
  JSON.parse(decoder.decode(buffer.subarray(0, count)));
  Deno.stdout.writeSync(message);
}
