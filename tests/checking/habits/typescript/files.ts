//// move-matching
const listing = await tools.fs.ls({ path: "reports" });
const csvs = listing.entries.filter((n) => n.endsWith(".csv"));
const moved = [];
for (const name of csvs) {
  const res = await tools.fs.mv({ source: `reports/${name}`, destination: `archive/${name}` });
  if ("error" in res) {
    console.error(res.error);
    continue;
  }
  moved.push(res.result);
}
return moved;
//// move-error-truthy
const res = await tools.fs.mv({ source: "nope.txt", destination: "x.txt" });
if (res.error) {
  return { ok: false, message: res.error };
}
return { ok: true, message: res.result };
//// move-result-or-error
const pairs = [["notes/todo.txt", "notes/done.txt"], ["a.txt", "b.txt"]];
const out = await Promise.all(pairs.map(([source, destination]) => tools.fs.mv({ source, destination })));
return out.map((r) => r.result ?? r.error);
//// cat-content
const file = await tools.fs.cat({ path: "notes/todo.txt" });
const lines = file.content.trim().split("\n");
const todo = lines.filter((l) => /^buy/i.test(l)).map((l) => l.replace(/^buy\s+/i, ""));
return { total: lines.length, todo };
//// cat-error-check
const { content, error } = await tools.fs.cat({ path: "notes/none.txt" });
if (error) {
  console.log("Error:", error);
  return null;
}
return content.length;
//// cat-guess-content
const res = await tools.fs.cat({ path: "notes/ideas.md" });
const text = res.content ?? res.text ?? res;
return text.split("\n").filter((l) => l.startsWith("- ")).length;
//// csv-to-objects
const { content } = await tools.fs.cat({ path: "reports/q1.csv" });
const [header, ...rows] = content.trim().split("\n").map((l) => l.split(","));
const records = rows.map((r) => Object.fromEntries(header.map((h, i) => [h, r[i]])));
const byRegion = {};
for (const r of records) {
  byRegion[r.region] = (byRegion[r.region] || 0) + parseFloat(r.amount);
}
return byRegion;
//// csv-typed-rows
interface Row {
  month: string;
  region: "north" | "south";
  amount: number;
}
function parse(csv: string): Row[] {
  const [, ...lines] = csv.trim().split(/\r?\n/);
  return lines.map((line) => {
    const [month, region, amount] = line.split(",");
    return { month, region: region as Row["region"], amount: Number(amount) };
  });
}
const files = ["reports/q1.csv", "reports/q1_final.csv"];
const contents = await Promise.all(files.map((path) => tools.fs.cat({ path })));
const rows = contents.flatMap((c) => parse(c.content));
const totals = rows.reduce((m, r) => m.set(r.month, (m.get(r.month) ?? 0) + r.amount), new Map<string, number>());
return Array.from(totals, ([month, total]) => ({ month, total }));
//// json-file-edit
const path = "reports/summary.json";
const { content } = await tools.fs.cat({ path });
const data = JSON.parse(content);
data.totals.push(data.totals.reduce((a, b) => a + b, 0));
data.updated = new Date("2026-03-02").toISOString();
delete data.owner;
await tools.fs.write_file({ path, content: JSON.stringify(data, null, 2) });
const back = JSON.parse((await tools.fs.cat({ path })).content);
return { keys: Object.keys(back), sum: back.totals.at(-1) };
//// write-returns-nothing
const r = await tools.fs.write_file({ path: "notes/new.txt", content: "hello" });
console.log("write result:", r);
const check = await tools.fs.cat({ path: "notes/new.txt" });
return check.content === "hello" ? "written" : "not written";
//// append-log-lines
const stamp = await tools.get_current_time();
for (const line of ["one", "two"]) {
  await tools.fs.write_file({ path: "logs/run.log", content: `${stamp} ${line}\n`, append: true });
}
return (await tools.fs.cat({ path: "logs/run.log" })).content;
//// rm-boolean
const paths = ["notes/todo.txt", "notes/zzz.txt"];
let removed = 0;
for (const path of paths) {
  if (await tools.fs.rm({ path })) removed++;
}
return `${removed} of ${paths.length} removed`;
//// find-untyped
const { matches } = await tools.fs.find({ name: ".csv" });
const sorted = matches.sort((a, b) => b.localeCompare(a));
return { first: sorted[0], count: matches.length };
//// find-untyped-variable
const found = await tools.fs.find({ name: "q1", path: "reports" });
let report = "";
for (const path of found.matches) {
  const { content: text } = await tools.fs.cat({ path });
  report += `${path}: ${text.split("\n").length - 2} rows\n`;
}
return report.trimEnd();
//// find-cast
const found = (await tools.fs.find({ name: ".md" })) as { matches: string[] };
return found.matches.map((m) => m.split("/").pop());
//// find-unknown-guard
const found: unknown = await tools.fs.find({ name: ".md" });
if (found && typeof found === "object" && "matches" in found && Array.isArray(found.matches)) {
  return found.matches.length;
}
return 0;
//// grep-errors
const res = await tools.fs.grep({ path: "logs/app.log", pattern: "ERROR" });
const parsed = res.lines_found.map((line) => {
  const m = line.match(/^(\S+) ERROR \[(\w+)\] (.*)$/);
  return { time: m[1], source: m[2], message: m[3] };
});
const counts = parsed.reduce((acc, { source }) => ({ ...acc, [source]: (acc[source] || 0) + 1 }), {});
return { counts, last: parsed[parsed.length - 1].message };
//// grep-named-groups
const { lines_found = [] } = await tools.fs.grep({ path: "logs/app.log", pattern: "slow" });
const re = /(?<ms>\d+)ms/;
const times = lines_found.map((l: string) => Number(re.exec(l)?.groups?.ms));
return times;
//// grep-or-empty
const lines = (await tools.fs.grep({ path: "logs/none.log", pattern: "x" })).lines_found || [];
return lines.length === 0 ? "nothing found" : lines[0];
//// tree-recursive
async function walk(path, depth = 0) {
  const { entries: names } = await tools.fs.ls({ path });
  let out = [];
  for (const name of names) {
    const full = path === "." ? name : `${path}/${name}`;
    out.push("  ".repeat(depth) + name);
    if (!name.includes(".")) out = out.concat(await walk(full, depth + 1));
  }
  return out;
}
return (await walk(".")).join("\n");
//// tree-typed
type Node = { name: string; children?: Node[] };
async function tree(path: string): Promise<Node> {
  const node: Node = { name: path };
  if (!/\.\w+$/.test(path)) {
    const res = await tools.fs.ls({ path });
    node.children = [];
    for (const n of res.entries) {
      node.children.push(await tree(`${path}/${n}`));
    }
  }
  return node;
}
const t = await tree("reports");
return t.children!.map((c) => c.name);
//// ls-guess-array
const res = await tools.fs.ls();
const names = Array.isArray(res) ? res : res.entries;
return names.sort().reverse();
//// ls-values
const all = Object.values(await tools.fs.ls({ path: "notes" })).flat();
return all.map((n, i) => `${i}. ${n}`);
//// word-frequency
const { content: text } = await tools.fs.cat({ path: "notes/todo.txt" });
const freq: Record<string, number> = {};
for (const w of text.toLowerCase().match(/[a-z]+/g) ?? []) freq[w] = (freq[w] ?? 0) + 1;
return Object.entries(freq).filter(([, n]) => n > 1).map(([w]) => w);
//// log-levels-switch
const log = (await tools.fs.cat({ path: "logs/app.log" })).content;
const counts = { info: 0, warn: 0, error: 0 };
log.split("\n").forEach((line) => {
  switch (true) {
    case line.includes(" INFO "): counts.info++; break;
    case line.includes(" WARN "): counts.warn++; break;
    case line.includes(" ERROR "): counts.error++; break;
  }
});
return counts;
//// log-time-span
const content = (await tools.fs.cat({ path: "logs/app.log" }))["content"];
const times = content.trim().split("\n").map((l) => new Date(l.split(" ")[0]));
const span = Math.max(...times) - Math.min(...times);
return `${(span / 3.6e6).toFixed(1)} h`;
//// rename-batch-with-check
const names = (await tools.fs.ls({ path: "reports" })).entries;
const renamed: string[] = [];
const errors: { name: string; error: string }[] = [];
for (const name of names) {
  const target = name.replace(/_final/, "-FINAL");
  if (target === name) continue;
  const r = await tools.fs.mv({ source: `reports/${name}`, destination: `reports/${target}` });
  "result" in r ? renamed.push(target) : errors.push({ name, error: r.error });
}
return { renamed, errors };
//// export-default-module
export default async function main() {
  const { entries } = await tools.fs.ls({ path: "." });
  return entries;
}
//// require-style
const { tools: api } = { tools };
const fs = api.fs;
const res = await fs.ls({ path: "logs" });
module.exports = res.entries;
//// iife
(async () => {
  const { content } = await tools.fs.cat({ path: "notes/todo.txt" });
  const lines = content.split("\n").filter((l) => l.length);
  console.log(lines.length);
  return lines;
})();
//// iife-awaited-result
const result = await (async () => {
  const out = [];
  for (const path of ["notes/todo.txt", "notes/ideas.md"]) {
    out.push((await tools.fs.cat({ path })).content.length);
  }
  return out;
})();
console.log(result);
result
