//// state-cache-object
const cache = {};
async function product(id) {
  if (!cache[id]) cache[id] = await tools.retail.product_details({ product_id: id });
  return cache[id];
}
const lamp = await product("p2");
await product("p2");
return [lamp.name, cache["p2"].variants.i3.price, Object.keys(cache)];
//// state-cache-map
const cache = new Map();
const product = async (id: string) => {
  if (!cache.has(id)) cache.set(id, await tools.retail.product_details({ product_id: id }));
  return cache.get(id);
};
return (await product("p1")).name + (await product("p1")).variants.i1.price;
//// state-cache-promise
const cache = {};
const get = (id) => (cache[id] ??= tools.retail.product_details({ product_id: id }));
const [a, b] = await Promise.all([get("p1"), get("p1")]);
return a.name === b.name;
//// state-cache-typed-record
const cache: Record<string, any> = {};
for (const id of ["o1", "o2"]) cache[id] = await tools.retail.order_details({ order_id: id });
cache.o1.total = 5;
return cache.o1.total + cache["o2"].items.length;
//// state-class
class Basket {
  items = [];
  order = null;
  constructor(id) { this.id = id; }
  async load() {
    this.order = await tools.retail.order_details({ order_id: this.id });
    this.items = this.order.items.map((i) => ({ ...i, total: i.price * i.qty }));
    return this;
  }
  get total() { return this.items.reduce((s, i) => s + i.total, 0); }
}
const basket = await new Basket("o1").load();
return [basket.total, basket.order.status];
//// state-class-typed
class Repo {
  private cache: Map<string, Awaited<ReturnType<typeof tools.retail.order_details>>> = new Map();
  async get(id: string) {
    let found = this.cache.get(id);
    if (!found) { found = await tools.retail.order_details({ order_id: id }); this.cache.set(id, found); }
    return found;
  }
}
const repo = new Repo();
return (await repo.get("o1")).items.length;
//// state-class-static
class Api {
  static calls = 0;
  static async order(id) { Api.calls++; return await tools.retail.order_details({ order_id: id }); }
}
const o = await Api.order("o1");
return [o.status, Api.calls];
//// state-class-field-null
class Loader {
  data = null;
  errors = [];
  async run() {
    try { this.data = await tools.get_ticket({ ticket_id: 1 }); } catch (e) { this.errors.push(e.message); }
  }
}
const l = new Loader();
await l.run();
return l.data.subject + l.errors.length;
//// state-best-null
let best = null;
for (const f of await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" })) {
  if (best === null || f.prices.economy < best.prices.economy) best = f;
}
return best.flight_number;
//// state-best-null-callback
let best = null;
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
flights.forEach((f) => { if (!best || f.prices.economy < best.prices.economy) best = f; });
return best ? best.flight_number : "none";
//// state-argument-set-in-callback
let cheapest = null;
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
flights.forEach((f) => { cheapest = f.flight_number; });
return await tools.air.flight_status({ flight_number: cheapest });
//// state-argument-undefined-set-in-callback
let id;
Object.entries(await tools.retail.all_customers()).forEach(([key, u]) => { if (u.name.first_name === "Ada") id = key; });
return (await tools.retail.get_customer({ user_id: id })).email;
//// state-argument-typed-null-set-in-callback
let id: string | null = null;
Object.entries(await tools.retail.all_customers()).forEach(([key, u]) => { if (u.name.first_name === "Ada") id = key; });
return (await tools.retail.get_customer({ user_id: id })).email;
//// state-argument-literal-set-in-callback
let cabin: "economy" | "business" | "none" = "none";
["economy"].forEach((c) => { cabin = c; });
return await tools.air.book({ user_id: "u", cabin, flights: ["HAT1"], passengers: [] });
//// state-argument-false-set-in-callback
let status = false;
await Promise.all([1].map(async () => { status = "open"; }));
return (await tools.search_tickets({ query: "x", status })).count;
//// state-flag-in-callback
let done = false;
await Promise.all(["o1"].map(async (id) => { const o = await tools.retail.order_details({ order_id: id }); if (o.status === "delivered") done = true; }));
if (done === true) return "done";
return "not done";
//// state-reduce-object
const { results } = await tools.search_tickets({ query: "" });
const byStatus = results.reduce((acc, t) => {
  (acc[t.status] ??= []).push(t);
  return acc;
}, {});
return Object.entries(byStatus).map(([status, list]) => [status, list.length, list[0].subject]);
//// state-reduce-counts
const { results } = await tools.search_tickets({ query: "" });
const counts = results.reduce((acc, t) => { acc[t.priority] = (acc[t.priority] || 0) + 1; return acc; }, {});
return counts.high + (counts.low ?? 0);
//// state-reduce-array
const { results } = await tools.search_tickets({ query: "" });
const rows = results.reduce((acc, t) => { if (t.assignee) acc.push({ id: t.id, who: t.assignee.name }); return acc; }, []);
return rows.map((r) => r.who);
//// state-reduce-typed
const { results } = await tools.search_tickets({ query: "" });
const by = results.reduce((acc, t) => { acc[t.id] = t; return acc; }, {} as Record<number, any>);
by[1].extra = 1;
return by[1].extra + by[2].subject;
//// state-reduce-spread
const { results } = await tools.search_tickets({ query: "" });
const by = results.reduce((acc, t) => ({ ...acc, [t.id]: t }), {});
return by[1].subject;
//// state-reduce-max
const { results } = await tools.search_tickets({ query: "" });
const longest = results.reduce((a, b) => (a.subject.length > b.subject.length ? a : b));
return longest.subject;
//// state-reduce-stats
const { results } = await tools.search_tickets({ query: "" });
const stats = results.reduce((s, t) => { s.total += 1; if (t.assignee) s.assigned.push(t.assignee.name); return s; }, { total: 0, assigned: [] });
return [stats.total, stats.assigned[0].toUpperCase()];
//// state-object-group-by
const { results } = await tools.search_tickets({ query: "" });
const groups = Object.groupBy(results, (t) => t.status);
return Object.keys(groups).map((k) => [k, groups[k].length]);
//// state-object-group-by-member
const { results } = await tools.search_tickets({ query: "" });
const groups = Object.groupBy(results, (t) => (t.assignee ? "mine" : "free"));
return [groups.mine.length, groups.free?.length, groups.other?.length];
//// state-map-group-by
const { results } = await tools.search_tickets({ query: "" });
const groups = Map.groupBy(results, ({ priority }) => priority);
return [...groups].map(([p, list]) => p + list.length);
//// state-map-enriched
const orders = new Map();
for (const id of ["o1", "o2"]) orders.set(id, await tools.retail.order_details({ order_id: id }));
for (const [id, o] of orders) o.label = id + o.status;
return [...orders.values()].map((o) => o.label);
//// state-map-typed-enriched
const { results } = await tools.search_tickets({ query: "" });
const byId = new Map(results.map((t) => [t.id, t]));
for (const t of byId.values()) t.seen = true;
return byId.get(1)?.seen;
//// state-map-replaced
const { results } = await tools.search_tickets({ query: "" });
const byId = new Map(results.map((t) => [t.id, t]));
for (const [id, t] of byId) byId.set(id, { ...t, words: t.subject.split(" ") });
return byId.get(1).words.length;
//// state-set
const { results } = await tools.search_tickets({ query: "" });
const names = new Set();
results.forEach((t) => t.assignee && names.add(t.assignee.name));
return [...names].sort().join();
//// state-generator
async function* pages() {
  let page = 1;
  while (page) {
    const r = await tools.search_tickets({ query: "", page });
    yield* r.results;
    page = r.next_page;
  }
}
const all = [];
for await (const t of pages()) { t.n = all.length; all.push(t); }
return all.map((t) => t.n);
//// state-generator-sync
function* walk(node) { yield node; for (const c of node.children) yield* walk(c); }
const root = await tools.disk.tree();
return [...walk(root)].filter((n) => n.kind === "file").map((n) => n.name);
//// state-generator-typed
const root = await tools.disk.tree();
function* walk(node: typeof root): Generator<typeof root> { yield node; for (const c of node.children) yield* walk(c); }
let total = 0;
for (const n of walk(root)) total += n.size ?? 0;
return total;
//// state-stack
const stack = [await tools.disk.tree()];
const files = [];
while (stack.length) {
  const node = stack.pop();
  if (node.kind === "file") files.push(node);
  else stack.push(...node.children);
}
return files.map((f) => f.size);
//// state-stack-with-path
const stack = [{ node: await tools.disk.tree(), path: "" }];
const found = [];
while (stack.length > 0) {
  const { node, path } = stack.pop();
  for (const child of node.children) stack.push({ node: child, path: `${path}/${node.name}` });
  if (node.size) found.push({ path: path + "/" + node.name, size: node.size });
}
return found.sort((a, b) => b.size - a.size)[0].path;
//// state-queue-levels
let level = [await tools.disk.tree()];
const names = [];
while (level.length) {
  names.push(level.map((n) => n.name));
  level = level.flatMap((n) => n.children);
}
return names;
//// state-closure-counter
const makeCounter = () => { let n = 0; return { inc: () => ++n, get value() { return n; } }; };
const c = makeCounter();
for (const city of await tools.list_cities()) c.inc();
return c.value;
//// state-memo
const memo = (fn) => { const seen = {}; return async (key) => (key in seen ? seen[key] : (seen[key] = await fn(key))); };
const order = memo((order_id) => tools.retail.order_details({ order_id }));
return (await order("o1")).items[0].name + (await order("o1")).status;
//// state-retry
async function retry(fn, times = 3) {
  let last;
  for (let i = 1; i <= times; i++) {
    try { return await fn(i); } catch (e) { last = e; }
  }
  throw last;
}
return await retry((attempt) => tools.flaky({ attempt }));
//// state-result-object
const result = {};
const order = await tools.retail.order_details({ order_id: "o1" });
result.status = order.status;
result.items = [];
for (const i of order.items) result.items.push({ name: i.name });
result.items[0].first = true;
return result;
//// state-result-typed-object
const summary: { total: number; names: string[] } = { total: 0, names: [] };
const order = await tools.retail.order_details({ order_id: "o1" });
summary.total = order.items.length;
summary.extra = "more";
return summary.extra + summary.total;
//// state-input-built
const input = { query: "heat" };
input.status = "open";
if (Math.random() < 2) input["page"] = 1;
return (await tools.search_tickets(input)).count;
//// state-input-built-in-parts
const passengers = [];
passengers.push({ first_name: "Ada", last_name: "Berg", dob: "1990-01-01" });
const trip = {};
trip.flights = ["HAT1"];
Object.assign(trip, { user_id: "u1", cabin: "economy" });
trip.passengers = passengers;
return (await tools.air.book(trip)).total;
//// state-input-spread
const base = { user_id: "u1", cabin: "economy" };
const r = await tools.air.book({ ...base, flights: ["HAT1"], passengers: [] });
return r.total;
//// state-input-spread-changed
const base = {};
base.user_id = "u1";
base["cabin"] = "business";
const r = await tools.air.book({ ...base, flights: ["HAT1"], passengers: [] });
return r.cabin;
//// state-input-from-function
const build = (extra) => ({ user_id: "u1", ...extra });
const r = await tools.air.book(build({ cabin: "economy", flights: [], passengers: [] }));
return r.total;
//// state-input-from-list
const jobs = [{ symbol: "AAA", side: "buy", amount: 1 }, { symbol: "BBB", side: "sell", amount: 2 }];
const done = [];
for (const job of jobs) done.push(await tools.broker.place_order(job));
return done.map((d) => d.order_id);
//// state-input-ternary
const account = await tools.broker.account();
const side = account.balance > 500 ? "buy" : "sell";
return (await tools.broker.place_order({ symbol: "AAA", side, amount: account.balance > 500 ? 1 : 2 })).status;
//// state-input-conditional-spread
const limit = 5;
return (await tools.broker.place_order({ symbol: "AAA", side: "buy", amount: 1, ...(limit && { limit }) })).order_id;
//// state-input-shorthand-let
let symbol, side, amount;
symbol = "AAA"; side = "buy"; amount = 3;
return (await tools.broker.place_order({ symbol, side, amount })).amount;
//// state-input-undefined-member
const limit = undefined;
return (await tools.broker.place_order({ symbol: "AAA", side: "buy", amount: 1, limit })).status;
//// state-input-notes-undefined
const seat = undefined;
return (await tools.air.book({ user_id: "u", cabin: "economy", flights: ["HAT1"], passengers: [], notes: ["window", seat, undefined] })).total;
//// state-input-json-parse
const job = JSON.parse('{"symbol": "AAA", "side": "buy", "amount": 2}');
return (await tools.broker.place_order(job)).order_id;
//// state-tools-table
const actions = { order: tools.retail.order_details, customer: tools.retail.get_customer };
const o = await actions.order({ order_id: "o1" });
const u = await actions["customer"]({ user_id: o.user_id });
return u.name.first_name;
//// state-tools-dynamic
const calls = [["get_ticket", { ticket_id: 1 }], ["search_tickets", { query: "x" }]];
const out = {};
for (const [name, input] of calls) out[name] = await tools[name](input);
return out.get_ticket.subject + out.search_tickets.count;
//// state-all-settled
const got = await Promise.allSettled(["o1", "nope"].map((order_id) => tools.retail.order_details({ order_id })));
return got.map((g) => (g.status === "fulfilled" ? g.value.status : g.reason.message.length > 0));
//// state-all-settled-split
const got = await Promise.allSettled(["o1", "nope"].map((order_id) => tools.retail.order_details({ order_id })));
const ok = got.filter((g) => g.status === "fulfilled").map((g) => g.value);
const bad = got.filter((g) => g.status === "rejected").map((g) => g.reason?.message ?? String(g.reason));
return [ok[0].items.length, bad.length];
//// state-results-keyed
const results: any = {};
for (const id of ["o1", "o3"]) results[id] = await tools.retail.order_details({ order_id: id });
results.o1.customer = await tools.retail.get_customer({ user_id: results.o1.user_id });
return results.o1.customer.email;
//// state-tuple-from-all
const [order, user, tickets] = await Promise.all([
  tools.retail.order_details({ order_id: "o1" }),
  tools.retail.get_customer({ user_id: "ada_1" }),
  tools.search_tickets({ query: "x" }),
]);
order.user = user;
order.tickets = tickets.results;
return [order.user.email, order.tickets[0].subject];
//// state-object-from-all
const parts = Object.fromEntries(
  await Promise.all(["o1", "o2"].map(async (id) => [id, await tools.retail.order_details({ order_id: id })])),
);
return parts.o1.items.length + parts["o2"].items.length;
//// state-class-accessor
class Counter {
  accessor count = 0;
  accessor names: string[] = [];
  async add() { this.count += (await tools.list_cities()).length; this.names.push("x"); }
}
const counter = new Counter();
await counter.add();
return counter.count + counter.names.length;
