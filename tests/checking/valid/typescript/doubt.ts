//// doubt-foreach-async-before-await
const seen = [];
["o1", "o2"].forEach(async (id) => { seen.push(id); await tools.now(); });
return seen;
//// doubt-foreach-async-waited
const out = [];
["o1", "o2"].forEach(async (id) => { out.push((await tools.retail.order_details({ order_id: id })).status); });
while (out.length < 2) await new Promise((r) => setTimeout(r, 1));
return out.sort();
//// doubt-foreach-async-returned
const out = [];
["o1", "o2"].forEach(async (id) => { out.push((await tools.retail.order_details({ order_id: id })).status); });
return { statuses: out };
//// doubt-foreach-sync
const out = [];
(await tools.list_cities()).forEach((c) => { out.push(c); });
return out;
//// doubt-own-filter-async
const list = { filter: async (f) => { const out = []; for (const x of [1, 2]) if (await f(x)) out.push(x); return out; } };
return await list.filter(async (x) => x > 1);
//// doubt-own-class-find-async
class Repo { rows = [1, 2, 3]; async find(f) { for (const r of this.rows) if (await f(r)) return r; } }
return await new Repo().find(async (r) => r === 2);
//// doubt-dictionary-own-methods
const account = await tools.broker.account();
account.positions.map = () => "own";
return account.positions.map();
//// doubt-dictionary-to-array
let users = await tools.retail.all_customers();
users = Object.values(users);
return users.map((u) => u.email).length + users.length;
//// doubt-dictionary-replaced-by-array
const account = await tools.broker.account();
account.positions = Object.values(account.positions);
return account.positions.length + account.positions.filter((p) => p.shares > 5).length;
//// doubt-dictionary-array-otherwise
const users = await tools.retail.all_customers();
const list = users.length ? users : Object.values(users);
return list.length;
//// doubt-dictionary-typeof-method
const users = await tools.retail.all_customers();
const list = typeof users.map === "function" ? users : Object.values(users);
return list.map((u) => u.email);
//// doubt-dictionary-if-array
const users = await tools.retail.all_customers();
if (Array.isArray(users)) return users.map((u) => u.email);
return Object.values(users).map((u) => u.email);
//// doubt-dictionary-not-array
let users = await tools.retail.all_customers();
if (!Array.isArray(users)) users = Object.values(users);
let n = 0;
for (const u of users) n += u.orders.length;
return n + users.map((u) => u.email).length;
//// doubt-dictionary-iterator-asked
const users = await tools.retail.all_customers();
const list = Symbol.iterator in users ? [...users] : Object.values(users);
return list.length;
//// doubt-dictionary-try
const users = await tools.retail.all_customers();
let list;
try { list = users.map((u) => u.email); } catch { list = Object.values(users).map((u) => u.email); }
return list;
//// doubt-dictionary-key-named-length
const sizes = await tools.shop.stock({ skus: ["length", "map"] });
return sizes.length + sizes["map"];
//// doubt-dictionary-shadowed
const users = await tools.retail.all_customers();
const mails = Object.values(users).map((users) => users.email.length);
const count = (users) => users.length;
return count(mails);
//// doubt-dictionary-same-name-elsewhere
const positions = [1, 2];
const a = await tools.broker.account();
return positions.map((p) => p * 2).length + positions.length + Object.keys(a.positions).length;
//// doubt-json-parse-own-object
const text = { toString: () => "[1, 2]" };
return JSON.parse(text).length;
//// doubt-json-parse-numbers
return JSON.parse([5]) + JSON.parse(7) + JSON.parse(true);
//// doubt-json-parse-date
return JSON.parse(`"${new Date(0).toISOString()}"`);
//// doubt-json-parse-replaced
let r = await tools.search_tickets({ query: "" });
r = JSON.stringify(r);
return JSON.parse(r).count;
//// doubt-iterate-own-iterable
const o = await tools.retail.order_details({ order_id: "o1" });
o[Symbol.iterator] = function* () { yield* o.items; };
return [...o].length;
//// doubt-iterate-replaced
const r = await tools.search_tickets({ query: "" });
r.results = new Map(r.results.map((t) => [t.id, t]));
let n = 0;
for (const [id, t] of r.results) n += id + t.tags.length;
return n;
//// doubt-called-assigned
const t = await tools.get_ticket({ ticket_id: 1 });
Object.assign(t, { status: () => "open" });
return t.status();
//// doubt-tool-awaited-of-own-name
const list_cities = tools.list_cities();
const cities = await list_cities;
return cities.length;
//// doubt-tool-awaited-promise-of-own
const get_ticket = Promise.resolve(5);
return await get_ticket;
//// doubt-tool-passed
const run = async (tool, input) => await tool(input);
return (await run(tools.get_ticket, { ticket_id: 2 })).subject;
//// doubt-literal-input-default-members
return (await tools.weather.current({ city: "Oslo", units: undefined })).city;
//// doubt-literal-input-spread-last
const more = { ticket_id: 1 };
return (await tools.get_ticket({ ...more })).subject + (await tools.get_ticket({ extra: 1, ...more })).subject;
//// doubt-literal-input-computed
const key = "ticket_id";
return (await tools.get_ticket({ [key]: 1 })).subject;
//// doubt-literal-input-quoted
return (await tools.get_ticket({ "ticket_id": 1, 'note': "x" })).subject;
//// doubt-literal-input-method-shadow
const ticket_id = 2;
return (await tools.get_ticket({ ticket_id, /* the second */ verbose: true })).subject;
//// doubt-literal-input-nested-open
return (await tools.update_ticket({ ticket_id: 1, changes: { status: "open", }, dry_run: true })).ok;
//// doubt-literal-input-shadowed-tools
const tools2 = { get_ticket: async (x) => x };
const f = async (tools) => (await tools.get_ticket({ id: 5 })).id;
return await f(tools2);
//// doubt-literal-input-own-tools
const api = { get_ticket: ({ id }) => tools.get_ticket({ ticket_id: id }) };
return (await api.get_ticket({ id: 1 })).subject;
//// doubt-literal-union-input
return (await tools.crm.find_contacts({ filter: { status: ["lead"], tag: null } })).data.length;
//// doubt-process-in-never
if (false) process.exit(0);
return 1;
//// doubt-process-finally-try
try { process.stdout.write("x"); } catch { console.log("x"); }
return 1;
//// doubt-unbound-in-callback-of-catch
const r = await tools.list_cities().catch(() => fallback());
return r.length;
//// doubt-renamed-default-deep
const { results: [{ subject: title = "none", channel: { name: channel = "web" } = {} } = {}] = [] } = await tools.search_tickets({ query: "" });
return [title, channel];
//// doubt-param-default
const label = ({ subject, channel = "web", tags: [first = "-"] = [] }) => `${subject} ${channel} ${first}`;
return (await tools.search_tickets({ query: "" })).results.map(label);
//// doubt-assign-default
let phone;
({ phone = "none" } = await tools.get_ticket({ ticket_id: 1 }));
return phone;
//// doubt-rest-param
const { id, ...rest } = await tools.get_ticket({ ticket_id: 1 });
rest.extra = 1;
rest.tags = rest.tags.map((name) => ({ name }));
return [id, rest.extra, rest.tags[0].name];
//// doubt-map-callback-mutates
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => { t.assignee = t.assignee?.name ?? "nobody"; t.n = t.tags.length; return t; });
return rows.map((r) => r.assignee.toUpperCase() + r.n);
//// doubt-map-callback-assigns
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => Object.assign(t, { words: t.subject.split(" ") }));
return rows.map((r) => r.words[0]) .concat(results.map((t) => t.words.at(-1)));
//// doubt-typed-rows
type Row = Awaited<ReturnType<typeof tools.get_ticket>> & { score?: number };
const { results } = await tools.search_tickets({ query: "" });
const rows: Row[] = results;
rows.forEach((r) => { r.score = r.tags.length; });
return rows.map((r) => r.score!).reduce((a, b) => a + b, 0) + results.map((r) => r.score).length;
//// doubt-proxy
const o = await tools.retail.order_details({ order_id: "o1" });
const p = new Proxy(o, { get: (t, k) => (k === "total" ? 5 : t[k]) });
return p.total + p.items.length;
//// doubt-prototype
const o = await tools.retail.order_details({ order_id: "o1" });
Object.setPrototypeOf(o, { total() { return this.items.length; } });
return o.total();
//// doubt-mixed-list
const mixed = [...(await tools.search_tickets({ query: "" })).results, ...(await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" }))];
return mixed.map((x) => x.subject ?? x.flight_number);
//// doubt-conditional-shape
const r = await (true ? tools.retail.order_details({ order_id: "o1" }) : tools.get_ticket({ ticket_id: 1 }));
return r.items.length;
//// doubt-result-or-error
const r = await tools.get_ticket({ ticket_id: 1 }).catch((e) => ({ error: e.message }));
if (r.error) return r.error;
return r.subject;
//// doubt-switch-tool
const kind: string = "ticket";
let r;
switch (kind) {
  case "ticket": r = await tools.get_ticket({ ticket_id: 1 }); break;
  default: r = await tools.retail.order_details({ order_id: "o1" });
}
return r.subject;
//// doubt-reused-variable
let result = await tools.search_tickets({ query: "" });
console.log(result.count);
result = await tools.retail.order_details({ order_id: "o1" });
return result.items.length;
//// doubt-recursion
const sum = (n) => (n.size ?? 0) + n.children.reduce((s, c) => s + sum(c), 0);
const find = (n, name) => (n.name === name ? n : n.children.map((c) => find(c, name)).find(Boolean));
const root = await tools.disk.tree();
const b = find(root, "b.txt");
b.parent = root;
return sum(root) + b.parent.children.length;
//// doubt-foreach-async-sometimes
const known = { o1: "delivered" };
const out = [];
["o1"].forEach(async (id) => {
  if (!known[id]) known[id] = (await tools.retail.order_details({ order_id: id })).status;
  out.push(known[id]);
});
return out;
//// doubt-undeclared-and-asked-for
const order = await tools.retail.order_details({ order_id: "o1" });
const currency = order.currency ? order.currency.toUpperCase() : "USD";
let tier = "standard";
if (order.membership && order.membership.level) tier = order.membership.level;
else if (order.loyalty) tier = order.loyalty;
while (order.locked) break;
const verified = order.verified === true || typeof order.verified === "string";
const { tax = 0, shipping = { cost: 0 } } = order;
return [currency, tier, !!order.gift, verified, tax + shipping.cost];
//// doubt-success-is-not-declared
const res = await tools.retail.cancel_order({ order_id: "o2", reason: "no longer needed" });
if (res.success === false || res.error) {
  return { ok: false, message: res.message || res.error || "unknown" };
}
return { ok: true, status: res.status };
//// doubt-members-that-a-schema-does-not-list
const found = await tools.chat.channels({});
return found.filter((each) => !each.archived && each.unread !== 0).map((each) => each.name);
//// doubt-keys-of-prices
const [f] = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "2026-05-20" });
const first = f.prices["first"] ?? f.prices.premium ?? f.prices.business;
const cabin: string = "economy";
return [first, f.prices[cabin], f.seats[cabin] > 0];
//// doubt-redeclared-and-shadowed
var result = await tools.retail.order_details({ order_id: "o1" });
var result = result.items.map((i) => i.name);
{
  const result = 5;
  console.log(result);
}
const items = result;
for (const items of [[1], [2]]) console.log(items.length);
return items.join();
