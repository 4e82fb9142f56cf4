//// issues-group-nullish
const issues = await tools.github.list_issues({ repo: "acme/house" });
const byAssignee: Record<string, number[]> = {};
for (const { number, assignee } of issues) {
  const key = assignee?.login ?? "nobody";
  byAssignee[key] ??= [];
  byAssignee[key].push(number);
}
byAssignee;
//// issues-pages-do-while
let page = 0, batch;
const titles = [];
do {
  batch = await tools.github.list_issues({ repo: "acme/house", page: ++page, per_page: 2 });
  titles.push(...batch.map(b => b.title));
} while (batch.length === 2);
titles.join(", ");
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
//// issues-create-with-maybe
const issues = await tools.github.list_issues({ repo: "acme/house" });
const target = issues.find((i) => i.title.includes("Roof"));
const comment = await tools.github.add_comment({ repo: "acme/house", number: target.number, body: `Assigned to ${target.assignee.login}` });
return comment.body;
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
//// issues-unknown-types
const issues: GitHubIssue[] = await tools.github.list_issues({ repo: "acme/house" });
const format = (i: GitHubIssue): string => `#${i.number} ${i.title}`;
return issues.map(format);
//// issues-wrong-own-annotation
interface Issue { id: number; title: string; labels: string[] }
const issues: Issue[] = await tools.github.list_issues({ repo: "acme/house" });
return issues.map((i) => i.title);
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
