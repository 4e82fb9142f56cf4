//// files-log-named-groups
const log = await tools.files.read({ path: "/logs/app.log" });
const pattern = /^(?<time>\S+) (?<level>[A-Z]+) (?:code=(?<code>\d+) )?(?<message>.*)$/;
const entries = [];
for (const line of log.split("\n")) {
  const match = line.match(pattern);
  if (!match) continue;
  const { time, level, code, message } = match.groups;
  entries.push({ time: new Date(time), level, code: code ? Number(code) : null, message });
}
return entries.filter((e) => e.level === "ERROR").map(({ code, message }) => ({ code, message }));
//// files-log-match-index
const log = await tools.files.read({ path: "/logs/app.log" });
const firstCode = log.match(/code=(\d+)/)[1];
return Number(firstCode) + 1;
//// files-walk-recursive
async function walk(path) {
  const found = [];
  for (const entry of await tools.files.list({ path })) {
    if (entry.type === "directory") found.push(...(await walk(entry.path)));
    else found.push(entry.path);
  }
  return found;
}
return await walk("/");
//// files-by-extension
const files = (await tools.files.list({ recursive: true })).filter((f) => f.type === "file");
const byExt = {};
files.forEach((f) => {
  const ext = f.path.split(".").pop();
  if (!byExt[ext]) byExt[ext] = { count: 0, bytes: 0 };
  byExt[ext].count++;
  byExt[ext].bytes += f.size;
});
return Object.entries(byExt).map(([ext, { count }]) => `${ext}=${count}`).sort();
//// files-write-encoded
const data = new TextEncoder().encode("héllo");
return await tools.files.write({ path: "/out.bin", content: data });
//// files-write-arraybuffer
const buffer = new ArrayBuffer(4);
new DataView(buffer).setUint32(0, 7);
return await tools.files.write({ path: "/out.bin", content: buffer });
//// files-template-tag
const html = (strings, ...values) => strings.reduce((out, s, i) => out + s + (i < values.length ? String(values[i]).replace(/</g, "&lt;") : ""), "");
const text = await tools.files.read({ path: "/README.md" });
return html`<h1>${text.split("\n")[0].slice(2)}</h1>`;
//// files-yaml-emit
function toYaml(value, indent = 0) {
  const pad = "  ".repeat(indent);
  if (Array.isArray(value)) return value.map((v) => `${pad}- ${typeof v === "object" ? "\n" + toYaml(v, indent + 1) : v}`).join("\n");
  return Object.entries(value)
    .map(([k, v]) => (v && typeof v === "object" ? `${pad}${k}:\n${toYaml(v, indent + 1)}` : `${pad}${k}: ${v}`))
    .join("\n");
}
return toYaml(JSON.parse(await tools.files.read({ path: "/config.json" })));
