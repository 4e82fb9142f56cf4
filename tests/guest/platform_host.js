// What the platform's host answers, by the engine's own classes; and programs, which see these classes as globals.

const parts = ({ href, origin, protocol, username, password, host, hostname, port, pathname, hash, search }) =>
  [href, origin, protocol, username, password, host, hostname, port, pathname, hash, search];

const ANSWERS = {
  url: (url, base) => parts(new URL(url, base ?? undefined)),
  changeUrl: (href, member, value) => parts(Object.assign(new URL(href), { [member]: value })),
  pairs: (query) => [...new URLSearchParams(query)],
  query: (pairs) => `${new URLSearchParams(pairs)}`,
  encoding: (label) => new TextDecoder(label).encoding,
  decode(label, fatal, kept, bytes, stream) {
    const all = new Uint8Array([...Uint8Array.fromBase64(kept), ...Uint8Array.fromBase64(bytes)]);
    const decode = (options) => new TextDecoder(label, { fatal, ignoreBOM: true }).decode(all.subarray(0, options.size), options);
    for (let size = all.length; stream && size > 0; size--) {
      const text = decode({ size, stream: true });
      const behind = new TextDecoder(label, { ignoreBOM: true }).decode(all.subarray(0, size));
      if (text === behind) return [text, all.slice(size).toBase64()];
    }
    return [decode({ size: all.length, stream: false }), ""];
  },
  random: (count) => crypto.getRandomValues(new Uint8Array(count)).toBase64(),
  run: async (program) => await (0, eval)(program),
};

function failure(error) {
  return [error.name, error instanceof DOMException ? "DOMException" : error.code ?? "", error.message];
}

let text = "";
for await (const piece of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (text + piece).split("\n");
  text = lines.pop();
  for (const line of lines) {
    const [name, ...args] = JSON.parse(line);
    let answer;
    try {
      answer = { value: await ANSWERS[name](...args) };
    } catch (error) {
      answer = { error: failure(error) };
    }
    Deno.stdout.writeSync(new TextEncoder().encode(`${JSON.stringify(answer)}\n`));
  }
}
