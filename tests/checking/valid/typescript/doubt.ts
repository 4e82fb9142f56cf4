//// doubt-foreach-async-later
const out = [];
const jobs = [];
["o1", "o2"].forEach((id) => jobs.push((async () => { out.push((await tools.retail.order_details({ order_id: id })).status); })()));
await Promise.all(jobs);
return out;
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
//// doubt-dictionary-to-array-const
const account = await tools.broker.account();
const positions = Object.values(account.positions);
return positions.length + positions.map((p) => p.symbol).length;
//// doubt-dictionary-replaced-by-array
const account = await tools.broker.account();
account.positions = Object.values(account.positions);
return account.positions.length + account.positions.filter((p) => p.shares > 5).length;
//// doubt-dictionary-array-otherwise
const users = await tools.retail.all_customers();
const list = users.length ? users : Object.values(users);
return list.length;
//// doubt-dictionary-length-undefined
const users = await tools.retail.all_customers();
const n = users.length ?? Object.keys(users).length;
return n;
//// doubt-dictionary-optional-call
const users = await tools.retail.all_customers();
const mails = users.map?.((u) => u.email) ?? Object.values(users).map((u) => u.email);
return mails;
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
//// doubt-dictionary-instanceof
const users = await tools.retail.all_customers();
const list = users instanceof Array ? users.map((u) => u.email) : Object.keys(users);
return list;
//// doubt-dictionary-iterator-asked
const users = await tools.retail.all_customers();
const list = Symbol.iterator in users ? [...users] : Object.values(users);
return list.length;
//// doubt-dictionary-try
const users = await tools.retail.all_customers();
let list;
try { list = users.map((u) => u.email); } catch { list = Object.values(users).map((u) => u.email); }
return list;
//// doubt-dictionary-helper
const toList = (x) => (Array.isArray(x) ? x : Object.values(x));
return toList(await tools.retail.all_customers()).map((u) => u.email);
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
//// doubt-dictionary-same-name-own-object
const report = { positions: [] };
for (const [symbol, p] of Object.entries((await tools.broker.account()).positions)) report.positions.push({ symbol, n: p.shares });
return report.positions.map((p) => p.n).length + report.positions.length;
//// doubt-json-parse-string-member
const config = { body: JSON.stringify({ a: 1 }) };
return JSON.parse(config.body).a;
//// doubt-json-parse-any-body
const r = await tools.http.fetch({ url: "/text" });
return JSON.parse(r.body).n;
//// doubt-json-parse-body-typeof
const r = await tools.http.fetch({ url: "/users" });
const body = typeof r.body === "string" ? JSON.parse(r.body) : r.body;
return body.length;
//// doubt-json-parse-own-object
const text = { toString: () => "[1, 2]" };
return JSON.parse(text).length;
//// doubt-json-parse-numbers
return JSON.parse([5]) + JSON.parse(7) + JSON.parse(true);
//// doubt-json-parse-bytes
const bytes = await tools.files.read_bytes({ path: "/config.json" });
return JSON.parse(new TextDecoder().decode(bytes)).port;
//// doubt-json-parse-helper
const parse = (x) => { try { return JSON.parse(x); } catch { return x; } };
return parse(await tools.search_tickets({ query: "" })).count;
//// doubt-json-parse-stringified
const order = await tools.retail.order_details({ order_id: "o1" });
return JSON.parse(JSON.stringify(order)).items.length;
//// doubt-json-parse-date
return JSON.parse(`"${new Date(0).toISOString()}"`);
//// doubt-json-parse-string-of
const list = await tools.list_cities();
return JSON.parse(`[${list.map((c) => JSON.stringify(c)).join()}]`).length;
//// doubt-json-parse-concatenated
const r = await tools.retail.product_types();
return Object.keys(JSON.parse(r + "")).length;
//// doubt-json-parse-replaced
let r = await tools.search_tickets({ query: "" });
r = JSON.stringify(r);
return JSON.parse(r).count;
//// doubt-json-parse-set-in-callback
let data = await tools.search_tickets({ query: "" });
[1].forEach(() => { data = JSON.stringify(data); });
return JSON.parse(data).count;
//// doubt-iterate-entries
const r = await tools.search_tickets({ query: "" });
let n = 0;
for (const [key, value] of Object.entries(r)) n += key.length + (Array.isArray(value) ? value.length : 0);
return n > 0;
//// doubt-iterate-text
const o = await tools.retail.order_details({ order_id: "o1" });
return [...o.order_id].length + [...new Set(o.items)].length;
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
//// doubt-iterate-nullable
const r = await tools.air.get_reservation({ reservation_id: "R1" });
let n = 0;
for (const f of r?.flights ?? []) n += f.prices.economy;
for (const p of r.passengers) n += p.dob.length;
return n;
//// doubt-called-optional
const t = await tools.get_ticket({ ticket_id: 1 });
return t.subject?.toUpperCase?.() ?? "none";
//// doubt-called-replaced
const t = await tools.get_ticket({ ticket_id: 1 });
t.subject = () => "called";
return t.subject();
//// doubt-called-assigned
const t = await tools.get_ticket({ ticket_id: 1 });
Object.assign(t, { status: () => "open" });
return t.status();
//// doubt-tool-kept
const get = tools.get_ticket;
const t = await get({ ticket_id: 1 });
return [t.subject, typeof get, get.length >= 0];
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
//// doubt-literal-input-never-run
const f = () => tools.search_tickets({ query: "x" });
return (await f()).count;
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
//// doubt-entries-mutated
const account = await tools.broker.account();
for (const [symbol, p] of Object.entries(account.positions)) { p.quote = await tools.broker.quote({ symbol }); p.change = p.quote.price - p.price; }
return Object.values(account.positions).map((p) => p.change + p.quote.price);
//// doubt-map-callback-mutates
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => { t.assignee = t.assignee?.name ?? "nobody"; t.n = t.tags.length; return t; });
return rows.map((r) => r.assignee.toUpperCase() + r.n);
//// doubt-map-callback-assigns
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => Object.assign(t, { words: t.subject.split(" ") }));
return rows.map((r) => r.words[0]) .concat(results.map((t) => t.words.at(-1)));
//// doubt-map-callback-assigns-new
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => Object.assign({}, t, { assignee: t.assignee?.name }));
return rows.map((r) => r.assignee?.length ?? 0);
//// doubt-spread-override
const { results } = await tools.search_tickets({ query: "" });
const rows = results.map((t) => ({ ...t, assignee: t.assignee?.name ?? "-", tags: t.tags.join() }));
return rows.filter((r) => r.assignee.startsWith("A")).map((r) => r.tags.toUpperCase());
//// doubt-typed-rows
type Row = Awaited<ReturnType<typeof tools.get_ticket>> & { score?: number };
const { results } = await tools.search_tickets({ query: "" });
const rows: Row[] = results;
rows.forEach((r) => { r.score = r.tags.length; });
return rows.map((r) => r.score!).reduce((a, b) => a + b, 0) + results.map((r) => r.score).length;
//// doubt-structured-parse
const order = structuredClone(await tools.retail.order_details({ order_id: "o1" }));
order.items.sort((a, b) => b.price - a.price).forEach((i, n) => { i.rank = n; i.options = Object.entries(i.options); });
return order.items.map((i) => i.rank + i.options[0][1]);
//// doubt-weak-map
const notes = new WeakMap();
const o = await tools.retail.order_details({ order_id: "o1" });
notes.set(o, { seen: true });
notes.get(o).seen = 1;
return notes.get(o).seen;
//// doubt-proxy
const o = await tools.retail.order_details({ order_id: "o1" });
const p = new Proxy(o, { get: (t, k) => (k === "total" ? 5 : t[k]) });
return p.total + p.items.length;
//// doubt-object-create
const o = await tools.retail.order_details({ order_id: "o1" });
const derived = Object.create(o, { total: { value: 5 } });
return derived.total + derived.items.length;
//// doubt-prototype
const o = await tools.retail.order_details({ order_id: "o1" });
Object.setPrototypeOf(o, { total() { return this.items.length; } });
return o.total();
//// doubt-array-prototype
Array.prototype.last = function () { return this[this.length - 1]; };
return (await tools.list_cities()).last();
//// doubt-string-prototype
String.prototype.shout = function () { return this.toUpperCase(); };
const o = await tools.retail.order_details({ order_id: "o1" });
return o.order_id.shout();
//// doubt-array-properties
const { results } = await tools.search_tickets({ query: "" });
results.total = results.length;
return results.total;
//// doubt-zip
const [a, b] = await Promise.all([tools.search_tickets({ query: "" }), tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" })]);
const zipped = a.results.map((t, i) => [t, b[i]]);
return zipped.map(([t, f]) => `${t.subject} ${f?.flight_number}`);
//// doubt-mixed-list
const mixed = [...(await tools.search_tickets({ query: "" })).results, ...(await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" }))];
return mixed.map((x) => x.subject ?? x.flight_number);
//// doubt-mixed-list-guarded
const mixed = [...(await tools.search_tickets({ query: "" })).results, ...(await tools.retail.order_details({ order_id: "o1" })).items];
return mixed.map((x) => ("subject" in x ? x.subject : x.name));
//// doubt-conditional-tool
const byStatus = Math.random() > 2;
const r = byStatus ? await tools.get_ticket({ ticket_id: 1 }) : await tools.retail.order_details({ order_id: "o1" });
return r.subject ?? r.order_id;
//// doubt-conditional-shape
const r = await (true ? tools.retail.order_details({ order_id: "o1" }) : tools.get_ticket({ ticket_id: 1 }));
return r.items.length;
//// doubt-error-shape
const safe = async (p) => { try { return { ok: true, value: await p }; } catch (error) { return { ok: false, error }; } };
const [a, b] = await Promise.all([safe(tools.get_ticket({ ticket_id: 1 })), safe(tools.retail.order_details({ order_id: "x" }))]);
return [a.value.subject, b.ok, b.error.message.length > 0];
//// doubt-result-or-error
const r = await tools.get_ticket({ ticket_id: 1 }).catch((e) => ({ error: e.message }));
if (r.error) return r.error;
return r.subject;
//// doubt-result-or-null
const r = await tools.get_ticket({ ticket_id: 1 }).catch(() => null);
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
//// doubt-reused-variable-typed-loop
let data: any = null;
for (const id of ["o1"]) data = await tools.retail.order_details({ order_id: id });
return data.whatever ?? data.items.length;
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
//// doubt-members-set-and-asked
const order = await tools.retail.order_details({ order_id: "o1" });
order.total = 5;
order.customer = await tools.retail.get_customer({ user_id: order.user_id });
const { total, customer } = order;
return [total, customer.email, order.customer.name.first_name, order["total"]];
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
//// doubt-tool-as-callback-that-is-settled
const requests = [{ order_id: "o1" }, { order_id: "o3" }];
const again = await Promise.allSettled(requests.map(tools.retail.order_details));
return again.map((each) => each.status);
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
//// doubt-streams
const texts = [];
for await (const line of tools.log.tail({ lines: 3 })) texts.push(`${line.severity}: ${line.text}`);
return [texts, (await Array.fromAsync(tools.log.tail({}))).length];
