//// all-pages
let startAt = 0;
const all = [];
while (true) {
  const page = await tools.tickets.search_issues({ startAt, maxResults: 3 });
  all.push(...page.issues);
  if (page.isLast) break;
  startAt += page.issues.length;
}
return all.map((i) => `${i.key}: ${i.fields.summary}`);
//// all-pages-do-while
const issues: any[] = [];
let page;
do {
  page = await tools.tickets.search_issues({ startAt: issues.length, maxResults: 2 });
  issues.push(...page.issues);
} while (issues.length < page.total);
return { count: issues.length, last: issues[issues.length - 1].key };
//// all-pages-generator
async function* paginate(params = {}) {
  let startAt = 0;
  for (;;) {
    const { issues, total } = await tools.tickets.search_issues({ ...params, startAt });
    yield* issues;
    startAt += issues.length;
    if (startAt >= total || issues.length === 0) return;
  }
}
const keys = [];
for await (const issue of paginate({ status: "Open" })) keys.push(issue.key);
return keys;
//// all-pages-recursive
const fetchAll = async (startAt = 0, acc = []) => {
  const res = await tools.tickets.search_issues({ startAt, maxResults: 4 });
  const next = acc.concat(res.issues);
  return next.length >= res.total ? next : fetchAll(next.length, next);
};
const everything = await fetchAll();
return everything.length;
//// summary-by-status
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const summary = {};
for (const issue of issues) {
  const status = issue.fields.status.name;
  if (!summary[status]) {
    summary[status] = { count: 0, keys: [], points: 0 };
  }
  summary[status].count++;
  summary[status].keys.push(issue.key);
  summary[status].points += issue.fields.storyPoints || 0;
}
return summary;
//// assignee-names
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const byAssignee = new Map<string, number>();
issues.forEach((i) => {
  const name = i.fields.assignee?.displayName ?? "Unassigned";
  byAssignee.set(name, (byAssignee.get(name) || 0) + 1);
});
return Object.fromEntries([...byAssignee.entries()].sort((a, b) => b[1] - a[1]));
//// assignee-email-guess
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
return issues
  .filter((i) => i.fields.assignee)
  .map((i) => ({ key: i.key, who: i.fields.assignee.displayName, mail: i.fields.assignee.emailAddress ?? null }));
//// priority-order
const order = { urgent: 0, high: 1, medium: 2, low: 3 };
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
issues.sort((a, b) => (order[a.fields.priority] ?? 9) - (order[b.fields.priority] ?? 9));
return issues.map((i) => [i.key, i.fields.priority || "none"]);
//// priority-order-typed
const PRIORITY: Record<string, number> = { urgent: 4, high: 3, medium: 2, low: 1 };
const res = await tools.tickets.search_issues({ maxResults: 50 });
const sorted = [...res.issues].sort(
  (a, b) => (PRIORITY[b.fields.priority] ?? 0) - (PRIORITY[a.fields.priority] ?? 0)
);
return sorted.slice(0, 3).map((t) => t.key);
//// escalate-unassigned
const { issues } = await tools.tickets.search_issues({ status: "Open", maxResults: 50 });
const unassigned = issues.filter((i) => !i.fields.assignee && i.fields.priority === "urgent");
const updates = [];
for (const issue of unassigned) {
  const r = await tools.tickets.update_issue({
    key: issue.key,
    fields: {
      assignee: { accountId: "u1", displayName: "Ada Moe" },
      status: "In Progress",
      labels: [...issue.fields.labels, "escalated"],
    },
  });
  updates.push(r.updated);
  await tools.tickets.add_comment({ key: issue.key, body: `Escalated: ${issue.fields.summary}` });
}
return { escalated: unassigned.map((i) => i.key), updates };
//// update-fields-grown
const issue = await tools.tickets.get_issue({ key: "OPS-3" });
const fields = {};
if (!issue.fields.assignee) fields.assignee = { accountId: "u2", displayName: "Ben Vik" };
if (issue.fields.priority === "medium") fields.priority = "high";
fields.labels = Array.from(new Set([...(issue.fields.labels ?? []), "triaged"]));
const result = await tools.tickets.update_issue({ key: issue.key, fields });
return result;
//// update-fields-typed-any
const patch: Record<string, unknown> = {};
patch.status = "Done";
patch["labels"] = ["closed"];
const result: any = await tools.tickets.update_issue({ key: "OPS-1", fields: patch });
if (!result.ok) throw new Error("update failed");
const after = await tools.tickets.get_issue({ key: "OPS-1" });
return after.fields.status.name;
//// custom-field-update
const done = await tools.tickets.update_issue({ key: "OPS-2", fields: { customfield_10010: "billing-team", status: "Done" } });
return done.updated.sort();
//// comment-result-members
const comment = await tools.tickets.add_comment({ key: "OPS-2", body: "Looking into it" });
return { id: comment.id, visible: comment.visibility ?? "public" };
//// comment-result-destructured
const { id, key, body } = await tools.tickets.add_comment({ key: "OPS-5", body: "On it." });
return `${key}#${id}: ${body.length} characters`;
//// comments-in-parallel
const keys = ["OPS-1", "OPS-2", "OPS-404"];
const results = await Promise.allSettled(keys.map((key) => tools.tickets.add_comment({ key, body: "ping" })));
const failed = results.filter((r) => r.status === "rejected").map((r) => r.reason.message);
const ok = results.filter((r) => r.status === "fulfilled").map((r) => r.value.key);
return { ok, failed };
//// stats-untyped
const stats = await tools.tickets.stats({ project: "OPS" });
const open = stats.byStatus["Open"];
const pct = Math.round((open / stats.total) * 100);
return `${open} of ${stats.total} open (${pct}%)`;
//// stats-untyped-entries
const stats = await tools.tickets.stats();
let out = "";
for (const [status, n] of Object.entries(stats.byStatus)) {
  out += `${status.padEnd(12)} ${"#".repeat(n)}\n`;
}
return out;
//// stats-cast
interface Stats {
  byStatus: Record<string, number>;
  total: number;
}
const stats = (await tools.tickets.stats({})) as Stats;
const biggest = Object.entries(stats.byStatus).sort(([, a], [, b]) => b - a)[0];
return { status: biggest[0], share: biggest[1] / stats.total };
//// age-in-days
const now = new Date(await tools.get_current_time());
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const DAY = 24 * 60 * 60 * 1000;
return issues
  .filter((i) => i.fields.status.name !== "Done")
  .map((i) => ({ key: i.key, age: Math.floor((now - new Date(i.fields.created)) / DAY) }))
  .sort((a, b) => b.age - a.age);
//// age-added-to-issue
const now = Date.parse(await tools.get_current_time());
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
for (const issue of issues) {
  issue.ageDays = Math.floor((now - Date.parse(issue.fields.created)) / 86400000);
  issue.fields.stale = issue.ageDays > 14;
}
const stale = issues.filter((i) => i.fields.stale).sort((a, b) => b.ageDays - a.ageDays);
return stale.map((i) => `${i.key} (${i.ageDays}d)`);
//// flattened-issues
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const flat = issues.map(({ key, fields }) => ({ key, ...fields, status: fields.status.name, assignee: fields.assignee?.displayName }));
const open = flat.filter((f) => f.status === "Open");
return open.map((f) => `${f.key} ${f.summary} [${f.labels.join(",")}] ${f.assignee ?? "-"}`);
//// label-index
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const index: { [label: string]: string[] } = {};
for (const { key, fields: { labels } } of issues) {
  for (const label of labels) {
    index[label] = index[label] ?? [];
    index[label].push(key);
  }
}
return index;
//// description-or-placeholder
const keys = ["OPS-1", "OPS-2"];
const out = [];
for (const key of keys) {
  const { fields } = await tools.tickets.get_issue({ key });
  const text = fields.description || "(no description)";
  out.push(`${key}: ${text.substring(0, 20)}`);
}
return out.join("\n");
//// description-null-check
const issue = await tools.tickets.get_issue({ key: "OPS-2" });
if (issue.fields.description === null) {
  return "none";
}
const words = issue.fields.description.split(/\s+/).length;
return { words, hasCustomer: issue.fields.description.includes("customer") };
//// search-text-loop
const terms = ["login", "invoice", "nothing"];
const found = {};
for (const text of terms) {
  const { total, issues: [first] } = await tools.tickets.search_issues({ text });
  found[text] = total > 0 ? first.key : null;
}
return found;
//// status-from-variable
const statuses = ["Open", "In Progress", "Done"];
const counts = await Promise.all(
  statuses.map(async (status) => {
    const r = await tools.tickets.search_issues({ status, maxResults: 1 });
    return [status, r.total];
  })
);
return Object.fromEntries(counts);
//// status-object-keys
const wanted = { Open: 2, "In Progress": 2, Done: 1 };
const report = [];
for (const status of Object.keys(wanted)) {
  const { issues } = await tools.tickets.search_issues({ status, maxResults: wanted[status] });
  report.push({ status, keys: issues.map((i) => i.key) });
}
return report;
//// params-built-up
const params = { maxResults: 10 };
const onlyOpen = true;
if (onlyOpen) params.status = "Open";
params.labels = ["billing"];
const res = await tools.tickets.search_issues(params);
return res.issues.map((i) => i.key);
//// params-conditional-spread
const status = undefined;
const label = "api";
const res = await tools.tickets.search_issues({
  ...(status ? { status } : {}),
  ...(label && { labels: [label] }),
  maxResults: 10,
});
return res.total;
//// report-markdown
const { issues, total } = await tools.tickets.search_issues({ maxResults: 50 });
let md = `# Tickets (${total})\n\n| Key | Summary | Status |\n|---|---|---|\n`;
for (const { key, fields: { summary, status: { name: status } } } of issues) {
  md += `| ${key} | ${summary} | ${status} |\n`;
}
md += `\n_${issues.filter((i) => i.fields.labels.length === 0).length} without labels_`;
return md;
//// ticket-wrapper-class
class Ticket {
  constructor(public raw: any) {}
  get key() { return this.raw.key; }
  get isOpen() { return this.raw.fields.status.name !== "Done"; }
  get points(): number { return this.raw.fields.storyPoints ?? 0; }
  toString() { return `${this.key}${this.isOpen ? "" : " (done)"}`; }
}
const { issues } = await tools.tickets.search_issues({ maxResults: 50 });
const tickets = issues.map((i) => new Ticket(i));
return { open: tickets.filter((t) => t.isOpen).map(String), points: tickets.reduce((s, t) => s + t.points, 0) };
//// namespace-alias
const t = tools.tickets;
const { issues } = await t.search_issues({ labels: ["api"] });
const { get_issue, add_comment } = tools.tickets;
const first = await get_issue({ key: issues[0].key });
await add_comment({ key: first.key, body: "seen" });
return first.fields.summary;
//// jira-guess-hedges
const res = await tools.tickets.search_issues({ text: "export" });
const issue = res.issues?.[0] ?? res.results?.[0];
const status = issue.fields?.status?.name || issue.status || "unknown";
return { key: issue.key ?? issue.id, status };
