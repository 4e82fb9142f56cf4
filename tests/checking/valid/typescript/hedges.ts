//// hedge-result-error
const order = await tools.shop.get_order({ id: 11 });
if (order.error) throw new Error(order.error);
if (!order || !order.lines) return "empty";
return order.lines.length;
//// hedge-fallback-tool
let found;
try {
  found = await tools.github.listIssues({ repo: "acme/house" });
} catch {
  found = await tools.github.list_issues({ repo: "acme/house" });
}
return found.length;
//// hedge-global-this
const home = globalThis.process?.env?.HOME ?? "none";
const hasDeno = "Deno" in globalThis && globalThis.Deno !== undefined;
return [home, hasDeno];
//// hedge-never-called
function browserTitle() {
  return document.title;
}
return typeof document === "undefined" ? "no page" : browserTitle();
//// hedge-undefined-argument
const issues = await tools.github.list_issues({ repo: "acme/house", labels: null, assignee: undefined, state: undefined });
return issues.length;
//// hedge-tuple-as-list
const [slot] = await tools.calendar.free_slots({ day: "2026-03-02" });
return [slot[2] ?? "none", slot.length];
