//// hedge-list-or-page
const page = await tools.crm.find_contacts();
const list = Array.isArray(page) ? page : page.data ?? page.items ?? [];
return list.length;
//// hedge-page-or-list
const issues = await tools.github.list_issues({ repo: "acme/house" });
const list = Array.isArray(issues) ? issues : issues.items || issues.data;
return list.length;
//// hedge-member-or-other
const issue = await tools.github.get_issue({ repo: "acme/house", number: 1 });
return issue.body_html ?? issue.body;
//// hedge-member-in
const issue = await tools.github.get_issue({ repo: "acme/house", number: 1 });
return "html_url" in issue ? issue.html_url : `#${issue.number}`;
//// hedge-optional-chain
const reading = await tools.weather.current({ city: "Oslo" });
return reading.main?.temp ?? reading.temperature;
//// hedge-string-result
const raw = await tools.weather.forecast({ city: "Oslo" });
const data = typeof raw === "string" ? JSON.parse(raw) : raw;
return data.days.length;
//// hedge-result-error
const order = await tools.shop.get_order({ id: 11 });
if (order.error) throw new Error(order.error);
if (!order || !order.lines) return "empty";
return order.lines.length;
//// hedge-number-or-string
const total = await tools.add({ a: 1, b: 2 });
const n = typeof total === "number" ? total : Number(total.value);
return n;
//// hedge-fallback-tool
let found;
try {
  found = await tools.github.listIssues({ repo: "acme/house" });
} catch {
  found = await tools.github.list_issues({ repo: "acme/house" });
}
return found.length;
//// hedge-require-in-try
let fs = null;
try {
  fs = require("fs");
} catch (e) {
  console.log("no fs");
}
return fs ? "node" : "sandbox";
//// hedge-typeof-library
const clone = typeof _ !== "undefined" ? _.cloneDeep : structuredClone;
return clone({ a: 1 }).a;
//// hedge-global-this
const home = globalThis.process?.env?.HOME ?? "none";
const hasDeno = "Deno" in globalThis && globalThis.Deno !== undefined;
return [home, hasDeno];
//// hedge-never-called
function browserTitle() {
  return document.title;
}
return typeof document === "undefined" ? "no page" : browserTitle();
//// hedge-extended-by-assign
const issues = await tools.github.list_issues({ repo: "acme/house" });
issues.forEach((issue) => Object.assign(issue, { score: issue.comments * 2 }));
return Math.max(...issues.map((issue) => issue.score));
//// hedge-extended-by-key
const orders = await tools.shop.list_orders();
for (const order of orders) order["total"] = order.lines.reduce((sum, line) => sum + line.price.amount, 0);
return orders[0].total;
//// hedge-extended-by-helper
const addAge = (list) => list.forEach((issue) => { issue.age = 1; });
const issues = await tools.github.list_issues({ repo: "acme/house" });
addAge(issues);
return issues[0].age;
//// hedge-list-with-property
const issues = await tools.github.list_issues({ repo: "acme/house" });
issues.total = issues.length;
return issues.total;
//// hedge-undefined-argument
const issues = await tools.github.list_issues({ repo: "acme/house", labels: null, assignee: undefined, state: undefined });
return issues.length;
//// hedge-tuple-as-list
const [slot] = await tools.calendar.free_slots({ day: "2026-03-02" });
return [slot[2] ?? "none", slot.length];
