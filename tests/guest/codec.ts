// The guest's half of the golden vectors: prints one line of JSON with everything that differs.
import { FrameReader, FrameWriter } from "../../src/corral/guest/typescript/frames.ts";
import { decodeValue, encodeValue } from "../../src/corral/guest/typescript/values.ts";

const vectors = JSON.parse(new TextDecoder().decode(await new Response(Deno.stdin.readable).arrayBuffer()));
const wrong: unknown[] = [];
const expect = (what: string, found: unknown, wanted: unknown) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) wrong.push({ what, found, wanted });
};
const hex = (bytes: Uint8Array) => bytes.toHex();

let checks = 0;
const everything: number[] = [];
for (const { kind, tagged, payload, hex: wanted } of vectors.frames) {
  const writer = new FrameWriter();
  writer.append(kind, tagged, payload, Uint8Array.fromHex(vectors.nonce));
  let written = "";
  writer.drain((bytes) => {
    // However little is taken at a time, all of it is written.
    const taken = Math.min(bytes.length, 10);
    written += hex(bytes.slice(0, taken));
    return taken;
  });
  expect(`frame ${payload}`, written, wanted);
  everything.push(...Uint8Array.fromHex(wanted));
  checks++;
}
for (const size of [1, 7, 1000]) {
  // However the bytes are cut, the same frames come out.
  const reader = new FrameReader();
  const found: unknown[] = [];
  for (let at = 0; at < everything.length; at += size) {
    const part = Uint8Array.from(everything.slice(at, at + size));
    reader.room().set(part);
    reader.filled(part.length);
    for (let frame = reader.next(); frame; frame = reader.next()) found.push([frame.kind, frame.tagged, frame.payload]);
  }
  expect(`frames in parts of ${size}`, found, vectors.frames.map((f: Record<string, unknown>) => [f.kind, f.tagged, f.payload]));
  checks++;
}
for (const { javascript, wire, tagged } of vectors.from_guest) {
  const { text, tagged: was } = encodeValue((0, eval)(javascript), "value", 1e6);
  expect(javascript, [text, was], [wire, tagged]);
  checks++;
}
for (const { wire, tagged, check, python } of vectors.from_host) {
  const holds = new Function("value", `return ${check}`)(decodeValue(wire, tagged));
  expect(python, holds, true);
  checks++;
}
console.log(JSON.stringify({ checks, wrong }));
