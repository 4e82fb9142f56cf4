//// files-csv-parse
const text = await tools.files.read({ path: "/data/people.csv" });
const [header, ...rows] = text.trim().split("\n").map((line) => line.split(","));
const people = rows.map((row) => Object.fromEntries(header.map((h, i) => [h, row[i]])));
const ages = people.map((p) => Number(p.age));
return { count: people.length, mean: ages.reduce((a, b) => a + b, 0) / ages.length };
//// files-csv-objects-grown
const text = await tools.files.read({ path: "/data/people.csv" });
const lines = text.trim().split(/\r?\n/);
const headers = lines[0].split(",");
const records = [];
for (let i = 1; i < lines.length; i++) {
  const record = {};
  const cells = lines[i].split(",");
  headers.forEach((h, j) => {
    record[h] = isNaN(cells[j]) ? cells[j] : +cells[j];
  });
  record.adult = record.age >= 18;
  records.push(record);
}
return records.filter((r) => r.city === "Oslo").map((r) => r.name);
//// files-sales-by-region
const csv = await tools.files.read({ path: "/data/sales.csv" });
const totals = csv
  .split("\n")
  .slice(1)
  .filter(Boolean)
  .reduce((acc, line) => {
    const [date, region, amount] = line.split(",");
    acc[region] = (acc[region] || 0) + parseFloat(amount);
    return acc;
  }, {});
const best = Object.entries(totals).sort((a, b) => b[1] - a[1])[0];
return { totals, best: best[0] };
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
//// files-log-exec-loop
const log = await tools.files.read({ path: "/logs/app.log" });
const regex = /code=(\d+)/g;
const codes = [];
let m;
while ((m = regex.exec(log)) !== null) {
  codes.push(parseInt(m[1], 10));
}
return codes;
//// files-log-match-index
const log = await tools.files.read({ path: "/logs/app.log" });
const firstCode = log.match(/code=(\d+)/)[1];
return Number(firstCode) + 1;
//// files-config-json
const config = JSON.parse(await tools.files.read({ path: "/config.json" }));
config.port += 1;
config.nested.extra = { a: [1, 2] };
const written = await tools.files.write({ path: "/config.json", content: JSON.stringify(config, null, 2) });
return { written, deep: config.nested?.deep ?? false };
//// files-config-defaults
const { name, port = 80, tags: [first, ...others] = [], missing = "none" } = JSON.parse(await tools.files.read({ path: "/config.json" }));
return { name, port, first, others, missing };
//// files-walk
const entries = await tools.files.list({ recursive: true });
let total = 0;
const biggest = { size: 0 };
for (const entry of entries) {
  if (entry.type === "directory") continue;
  total += entry.size;
  if (entry.size > biggest.size) {
    biggest.size = entry.size;
    biggest.path = entry.path;
  }
}
return { total: total > 0, biggest: biggest.path };
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
//// files-stat-union
const stat = await tools.files.stat({ path: "/README.md" });
if (!stat.exists) return "missing";
return stat.size > 5 ? "large" : "small";
//// files-stat-unnarrowed
const stats = await Promise.all(["/README.md", "/nope"].map((path) => tools.files.stat({ path })));
return stats.map((s) => s.size ?? -1);
//// files-bytes-decode
const bytes = await tools.files.read_bytes({ path: "/README.md" });
const text = new TextDecoder().decode(bytes);
return { length: bytes.length, title: text.split("\n")[0].replace(/^#\s*/, "") };
//// files-bytes-sum
const bytes = await tools.files.read_bytes({ path: "/README.md", limit: 4 });
let sum = 0;
for (const b of bytes) sum += b;
return sum.toString(16);
//// files-bytes-hex
const bytes = await tools.files.read_bytes({ path: "/README.md", limit: 4 });
const hex = [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
const base64 = Buffer.from(bytes).toString("base64");
return { hex, base64, head: bytes.subarray(0, 2).length };
//// files-bytes-digest
const bytes = await tools.files.read_bytes({ path: "/README.md" });
const digest = await crypto.subtle.digest("SHA-256", bytes);
const hex = Array.from(new Uint8Array(digest)).map((b) => b.toString(16).padStart(2, "0")).join("");
return hex.length;
//// files-write-encoded
const data = new TextEncoder().encode("héllo");
return await tools.files.write({ path: "/out.bin", content: data });
//// files-write-buffer
const buffer = Buffer.concat([Buffer.from("abc"), Buffer.alloc(2)]);
return await tools.files.write({ path: "/out.bin", content: buffer, append: true });
//// files-write-arraybuffer
const buffer = new ArrayBuffer(4);
new DataView(buffer).setUint32(0, 7);
return await tools.files.write({ path: "/out.bin", content: buffer });
//// files-try-catch-message
let content;
try {
  content = await tools.files.read({ path: "/nope.txt" });
} catch (error) {
  console.error("read failed:", error.message);
  content = `(${error.name}) ${error.message}`;
}
return content;
//// files-try-catch-any
try {
  return await tools.files.read({ path: "/nope.txt" });
} catch (e: any) {
  if (e.code === "tool_failed" || e.message.includes("no such file")) return null;
  throw e;
}
//// files-try-catch-unknown
try {
  await tools.files.read({ path: "/nope.txt" });
} catch (err: unknown) {
  const message = err instanceof Error ? err.message : String(err);
  return { ok: false, message };
}
//// files-all-settled
const paths = ["/README.md", "/nope.txt", "/config.json"];
const results = await Promise.allSettled(paths.map((path) => tools.files.read({ path })));
return results.map((r, i) => (r.status === "fulfilled" ? { path: paths[i], size: r.value.length } : { path: paths[i], error: r.reason.message }));
//// files-all-settled-filter
const results = await Promise.allSettled([tools.files.read({ path: "/README.md" }), tools.files.read({ path: "/nope" })]);
const good = results.filter((r) => r.status === "fulfilled").map((r) => r.value);
const bad = results.filter((r) => r.status === "rejected").map((r) => r.reason?.message);
return { good: good.length, bad };
//// files-any-race
const first = await Promise.any([tools.files.read({ path: "/nope" }), tools.files.read({ path: "/README.md" })]);
const raced = await Promise.race([tools.files.read({ path: "/config.json" }), new Promise((_, reject) => setTimeout(() => reject(new Error("timeout")), 5000))]);
return [first.length, raced.length];
//// files-from-entries-await
const paths = ["/README.md", "/config.json"];
const contents = Object.fromEntries(await Promise.all(paths.map(async (p) => [p, await tools.files.read({ path: p })])));
return Object.keys(contents);
//// files-word-frequency
const text = await tools.files.read({ path: "/README.md" });
const freq = new Map<string, number>();
for (const word of text.toLowerCase().match(/[a-z]+/g) || []) {
  freq.set(word, (freq.get(word) || 0) + 1);
}
return Object.fromEntries([...freq].sort(([, a], [, b]) => b - a));
//// files-map-to-tool
const m = new Map();
for (const f of await tools.files.list({ path: "/data" })) m.set(f.path, f.size);
return await tools.echo(m);
//// files-template-tag
const html = (strings, ...values) => strings.reduce((out, s, i) => out + s + (i < values.length ? String(values[i]).replace(/</g, "&lt;") : ""), "");
const text = await tools.files.read({ path: "/README.md" });
return html`<h1>${text.split("\n")[0].slice(2)}</h1>`;
//// files-concurrency-pool
async function pool(items, limit, worker) {
  const results = [];
  const running = new Set();
  for (const item of items) {
    const p = worker(item).then((r) => {
      results.push(r);
      running.delete(p);
    });
    running.add(p);
    if (running.size >= limit) await Promise.race(running);
  }
  await Promise.all(running);
  return results;
}
const files = await tools.files.list({ path: "/data" });
const sizes = await pool(files, 1, async (f) => (await tools.files.read({ path: f.path })).length);
return sizes.every((s) => s > 0);
//// files-date-modified
const files = await tools.files.list({ path: "/data" });
const cutoff = Date.now() - 7 * 24 * 3600 * 1000;
const recent = files.filter((f) => new Date(f.modified).getTime() > cutoff || new Date(f.modified) > new Date(0));
return recent.map((f) => f.modified.slice(0, 10));
//// files-yaml-emit
function toYaml(value, indent = 0) {
  const pad = "  ".repeat(indent);
  if (Array.isArray(value)) return value.map((v) => `${pad}- ${typeof v === "object" ? "\n" + toYaml(v, indent + 1) : v}`).join("\n");
  return Object.entries(value)
    .map(([k, v]) => (v && typeof v === "object" ? `${pad}${k}:\n${toYaml(v, indent + 1)}` : `${pad}${k}: ${v}`))
    .join("\n");
}
return toYaml(JSON.parse(await tools.files.read({ path: "/config.json" })));
