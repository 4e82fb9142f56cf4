//// issues-count-by-label
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
const counts = {};
for (const issue of issues) {
  for (const label of issue.labels) {
    counts[label.name] = (counts[label.name] || 0) + 1;
  }
}
return counts;
//// issues-group-or-assign
const issues = await tools.github.list_issues({ repo: "acme/house" });
const byUser = issues.reduce((acc, issue) => {
  (acc[issue.user.login] ||= []).push(issue.title);
  return acc;
}, {});
return byUser;
//// issues-group-nullish
const issues = await tools.github.list_issues({ repo: "acme/house" });
const byAssignee: Record<string, number[]> = {};
for (const { number, assignee } of issues) {
  const key = assignee?.login ?? "nobody";
  byAssignee[key] ??= [];
  byAssignee[key].push(number);
}
byAssignee;
//// issues-object-group-by
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
const grouped = Object.groupBy(issues, (issue) => issue.state);
return { open: grouped.open.length, closed: grouped.closed.length };
//// issues-map-group-by
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
const grouped = Map.groupBy(issues, ({ user }) => user.login);
const out = [];
for (const [login, theirs] of grouped) out.push({ login, n: theirs.length, newest: theirs.at(-1).title });
return out;
//// issues-pages-while-true
const all = [];
let page = 1;
while (true) {
  const batch = await tools.github.list_issues({ repo: "acme/house", state: "all", page, per_page: 2 });
  if (batch.length === 0) break;
  all.push(...batch);
  page++;
}
return all.map((i) => i.number);
//// issues-pages-do-while
let page = 0, batch;
const titles = [];
do {
  batch = await tools.github.list_issues({ repo: "acme/house", page: ++page, per_page: 2 });
  titles.push(...batch.map(b => b.title));
} while (batch.length === 2);
titles.join(", ");
//// issues-cursor-let
let cursor;
const items = [];
do {
  const res = await tools.github.search_issues({ query: "e", cursor });
  items.push(...res.items);
  cursor = res.next_cursor;
} while (cursor);
return { total: items.length, first: items[0].title };
//// issues-cursor-null
let cursor = null;
let seen = 0;
while (true) {
  const { items, next_cursor } = await tools.github.search_issues({ query: "s", cursor });
  seen += items.length;
  if (!next_cursor) break;
  cursor = next_cursor;
}
return seen;
//// issues-cursor-generator
async function* allIssues(query) {
  let cursor = undefined;
  for (;;) {
    const page = await tools.github.search_issues({ query, cursor });
    yield* page.items;
    if (page.next_cursor == null) return;
    cursor = page.next_cursor;
  }
}
const numbers = [];
for await (const issue of allIssues("e")) numbers.push(issue.number);
return numbers;
//// issues-array-from-async
async function* pages(): AsyncGenerator<any> {
  let page = 1;
  while (true) {
    const rows = await tools.github.list_issues({ repo: "acme/house", page: page++, per_page: 3 });
    if (!rows.length) return;
    yield rows;
  }
}
const all = (await Array.fromAsync(pages())).flat();
return all.length;
//// issues-params-stepwise
const params = { repo: "acme/house" };
const onlyBugs = true;
if (onlyBugs) params.labels = ["bug"];
params.state = "open";
const bugs = await tools.github.list_issues(params);
return bugs.length;
//// issues-params-any
const q: any = {};
q.repo = "acme/house";
q.per_page = 1;
const [first] = await tools.github.list_issues(q);
return first.title;
//// issues-params-record
const params: Record<string, unknown> = { repo: "acme/house" };
params.state = "all";
const issues = await tools.github.list_issues(params as any);
return issues.length;
//// issues-params-assign
const defaults = { repo: "acme/house", per_page: 2 };
const issues = await tools.github.list_issues(Object.assign({}, defaults, { state: "all" }));
return issues.map(({ number }) => number);
//// issues-params-spread-conditional
const label = "docs";
const base = { repo: "acme/house", state: "open" };
const result = await tools.github.list_issues({ ...base, ...(label ? { labels: [label] } : {}), ...(false && { assignee: "x" }) });
return result.length;
//// issues-widened-state
let state = "closed";
const closed = await tools.github.list_issues({ repo: "acme/house", state });
return closed.map((c) => c.closed_at);
//// issues-loop-states
const out = {};
for (const state of ["open", "closed"]) {
  out[state] = (await tools.github.list_issues({ repo: "acme/house", state })).length;
}
return out;
//// issues-loop-states-const
const totals: { [state: string]: number } = {};
for (const state of ["open", "closed", "all"] as const) {
  totals[state] = (await tools.github.list_issues({ repo: "acme/house", state })).length;
}
return totals;
//// issues-search-sorts
const sorts = ["created", "comments"];
const results = await Promise.all(sorts.map((sort) => tools.github.search_issues({ query: "a", sort, order: "asc" })));
return results.map((r, i) => `${sorts[i]}: ${r.items[0]?.number}`);
//// issues-entries-tuple
for (const [number, body] of [[1, "First"], [3, "Third"]]) {
  await tools.github.add_comment({ repo: "acme/house", number, body });
}
return "commented";
//// issues-create-with-maybe
const issues = await tools.github.list_issues({ repo: "acme/house" });
const target = issues.find((i) => i.title.includes("Roof"));
const comment = await tools.github.add_comment({ repo: "acme/house", number: target.number, body: `Assigned to ${target.assignee.login}` });
return comment.body;
//// issues-optional-assignee
const issue = await tools.github.get_issue({ repo: "acme/house", number: 1 });
const again = await tools.github.list_issues({ repo: "acme/house", assignee: issue.assignee?.login });
return again.map((x) => x.number);
//// issues-null-body
const { body } = await tools.github.get_issue({ repo: "acme/house", number: 5 });
const lines = body.split("\n");
return { lines: lines.length, words: body.match(/\w+/g).length };
//// issues-extend-results
const issues = await tools.github.list_issues({ repo: "acme/house" });
for (const issue of issues) {
  issue.ageDays = Math.round((new Date("2026-03-02") - new Date(issue.created_at)) / 86400000);
}
issues.sort((a, b) => b.ageDays - a.ageDays);
return issues.slice(0, 2).map((i) => ({ n: i.number, age: i.ageDays }));
//// issues-milestones
const issues = await tools.github.list_issues({ repo: "acme/house" });
const due = issues
  .filter((i) => i.milestone && i.milestone.due_on)
  .map((i) => ({ title: i.title, due: new Date(i.milestone.due_on).getTime() }));
return due.length;
//// issues-comments-parallel
const issues = await tools.github.list_issues({ repo: "acme/house" });
const withComments = await Promise.all(
  issues.map(async (issue) => ({ ...issue, comments: await tools.github.list_comments({ repo: "acme/house", number: issue.number }) })),
);
const commenters = new Set(withComments.flatMap((i) => i.comments.map((c) => c.user.login)));
return [...commenters].sort();
//// issues-top-commenter
const gh = tools.github;
const tally = new Map();
for (const { number } of await gh.list_issues({ repo: "acme/house", state: "all" })) {
  for (const { user } of await gh.list_comments({ repo: "acme/house", number })) {
    tally.set(user.login, (tally.get(user.login) ?? 0) + 1);
  }
}
const [[login, count]] = [...tally.entries()].sort((a, b) => b[1] - a[1]);
return { login, count };
//// issues-destructured-namespace
const { list_issues, get_issue } = tools.github;
const issues = await list_issues({ repo: "acme/house" });
const detail = await get_issue({ repo: "acme/house", number: issues[0].number });
return detail.user.name?.toUpperCase();
//// issues-computed-method
const method = "list_issues";
const issues = await tools.github[method]({ repo: "acme/house" });
return issues.length;
//// issues-computed-dynamic
const results = {};
for (const name of ["list_issues", "search_issues"]) {
  const fn = tools["github"][name];
  results[name] = await fn(name === "search_issues" ? { query: "a" } : { repo: "acme/house" });
}
return [results.list_issues.length, results.search_issues.total_count];
//// issues-typed-interface
interface IssueSummary {
  id: number;
  title: string;
  labels: string[];
  assignee?: string;
}
const issues = await tools.github.list_issues({ repo: "acme/house", labels: ["bug"] });
const summaries: IssueSummary[] = issues.map((issue) => ({
  id: issue.number,
  title: issue.title,
  labels: issue.labels.map((l) => l.name),
  assignee: issue.assignee?.login,
}));
return summaries;
//// issues-unknown-types
const issues: GitHubIssue[] = await tools.github.list_issues({ repo: "acme/house" });
const format = (i: GitHubIssue): string => `#${i.number} ${i.title}`;
return issues.map(format);
//// issues-wrong-own-annotation
interface Issue { id: number; title: string; labels: string[] }
const issues: Issue[] = await tools.github.list_issues({ repo: "acme/house" });
return issues.map((i) => i.title);
//// issues-markdown-report
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
let report = "# Issues\n\n";
report += "| # | Title | State |\n|---|---|---|\n";
for (const i of issues) report += `| ${i.number} | ${i.title} | ${i.state === "open" ? "🟢" : "🔴"} |\n`;
return report;
//// issues-create-result
const created = await tools.github.create_issue({
  repo: "acme/house",
  title: "Gutter is full",
  body: ["Seen on", new Date(0).toISOString()].join(" "),
  labels: ["bug", "outside"],
  assignees: ["bo"],
});
console.log(`Created #${created.number}`);
return { number: created.number, assignee: created.assignee.login, labels: created.labels.map(l => l.name) };
//// issues-set-for-labels
const wanted = new Set(["bug"]);
wanted.add("docs");
const issues = await tools.github.list_issues({ repo: "acme/house", labels: wanted });
return issues.map((i) => i.number);
//// issues-includes-const-array
const BAD = ["bug", "security"] as const;
const issues = await tools.github.list_issues({ repo: "acme/house" });
return issues.filter((i) => i.labels.some((l) => BAD.includes(l.name))).length;
//// issues-retry-helper
async function retry(fn, attempts = 3) {
  let lastError;
  for (let i = 1; i <= attempts; i++) {
    try {
      return await fn(i);
    } catch (e) {
      lastError = e;
      console.warn(`attempt ${i} failed: ${e.message}`);
    }
  }
  throw lastError;
}
return await retry((attempt) => tools.flaky({ attempt }), 5);
//// issues-number-from-string
const text = "Fixes #3 and #5";
const numbers = [...text.matchAll(/#(\d+)/g)].map((m) => parseInt(m[1]));
const issues = await Promise.all(numbers.map((number) => tools.github.get_issue({ repo: "acme/house", number })));
return issues.map((i) => i.title);
//// issues-sort-comparator-boolean
const issues = await tools.github.list_issues({ repo: "acme/house" });
issues.sort((a, b) => a.title > b.title);
issues.sort((a, b) => (a.comments < b.comments ? 1 : -1));
return issues[0].number;
//// issues-sort-dates
const issues = await tools.github.list_issues({ repo: "acme/house" });
const sorted = [...issues].sort((a, b) => new Date(b.created_at) - new Date(a.created_at));
return sorted[0].title;
//// issues-oldest-reduce
const issues = await tools.github.list_issues({ repo: "acme/house" });
const oldest = issues.reduce((min, i) => (new Date(i.created_at) < new Date(min.created_at) ? i : min));
return oldest.number;
//// issues-reduce-null-start
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
const newest = issues.reduce((best, i) => (!best || i.created_at > best.created_at ? i : best), null);
return newest.title;
