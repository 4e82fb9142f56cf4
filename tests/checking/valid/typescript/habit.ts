//// habit-main-catch-exit
async function main() {
  const order = await tools.retail.order_details({ order_id: "o1" });
  console.log(order.status);
}
main().catch((err) => {
  console.error(err);
  process.exit(1);
});
//// habit-main-catch-exit-code
const main = async () => {
  console.log((await tools.list_cities()).length);
};
main().catch((e) => { console.error("failed:", e.message); process.exitCode = 1; });
//// habit-try-exit
try {
  const order = await tools.retail.order_details({ order_id: "o1" });
  console.log(order.items.length);
} catch (error) {
  console.error(error);
  process.exit(1);
}
//// habit-check-exit
const order = await tools.retail.order_details({ order_id: "o1" });
if (!order) {
  console.error("not found");
  process.exit(1);
}
return order.status;
//// habit-then-error
tools.retail.order_details({ order_id: "o1" }).then(
  (o) => console.log(o.status),
  (err) => { console.error(err); process.exit(1); },
);
//// habit-env-guarded
const key = typeof process !== "undefined" ? process.env.KEY : undefined;
return key ?? "none";
//// habit-env-optional
const region = globalThis.process?.env?.REGION ?? "eu";
return region;
//// habit-try-unbound
let out;
try {
  out = lodash.groupBy([1, 2], (n) => n % 2);
} catch {
  out = Object.groupBy([1, 2], (n) => (n % 2 ? "odd" : "even"));
}
return Object.keys(out).length;
//// habit-try-unbound-function
try {
  doesNotExist();
} catch (e) {
  return e instanceof ReferenceError;
}
//// habit-destructured-default
const { subject, phone = "n/a" } = await tools.get_ticket({ ticket_id: 1 });
return [subject, phone];
//// habit-destructured-default-nested
const { name: { first_name, middle_name = "" }, vip = false } = await tools.retail.get_customer({ user_id: "ada_1" });
return `${first_name} ${middle_name} ${vip}`;
//// habit-destructured-default-callback
const { results } = await tools.search_tickets({ query: "" });
return results.map(({ id, channel = "web", tags = [] }) => `${id} ${channel} ${tags.length}`);
//// habit-destructured-default-renamed
const { data: list = [], results: found = [] } = await tools.search_tickets({ query: "" });
return list.length + found.length;
//// habit-destructured-default-loop
const { results } = await tools.search_tickets({ query: "" });
const out = [];
for (const { id, priority = "low", owner = null } of results) out.push([id, priority, owner]);
return out;
//// habit-destructured-or
const { results, items } = await tools.search_tickets({ query: "" });
return (results || items).length;
//// habit-destructured-coalesced
const { tickets, results } = await tools.search_tickets({ query: "" });
const list = tickets ?? results ?? [];
return list.length;
//// habit-destructured-guarded
const { error, results } = await tools.search_tickets({ query: "" });
if (error) throw new Error(error);
return results.length;
//// habit-guard-error
const r = await tools.update_ticket({ ticket_id: 1, changes: { status: "solved" } });
if (!r.ok) return { failed: r.error };
return r.ticket.subject;
//// habit-guard-message
const r = await tools.update_ticket({ ticket_id: 1, changes: { status: "solved" } });
if (r.message) console.log(r.message);
return r.ok;
//// habit-optional-member
const user = await tools.retail.get_customer({ user_id: "ada_1" });
return user.phone?.trim() ?? "no phone";
//// habit-optional-member-called
const user = await tools.retail.get_customer({ user_id: "ada_1" });
return user?.address?.city || "unknown";
//// habit-or-default
const user = await tools.retail.get_customer({ user_id: "ada_1" });
const phone = user.phone || "unknown";
const tier = user.tier ?? "basic";
return [phone, tier];
//// habit-ternary-member
const user = await tools.retail.get_customer({ user_id: "ada_1" });
return user.phone ? user.phone.trim() : user.email;
//// habit-member-undefined
const user = await tools.retail.get_customer({ user_id: "ada_1" });
return user.phone !== undefined ? user.phone.length : user.email.length;
//// habit-and-member
const user = await tools.retail.get_customer({ user_id: "ada_1" });
const city = user.address && user.address.city;
return city || "none";
//// habit-typeof-member
const ticket = await tools.get_ticket({ ticket_id: 1 });
const name = typeof ticket.assignee === "string" ? ticket.assignee : ticket.assignee?.name;
return name;
//// habit-typeof-result
const r = await tools.retail.product_types();
const types = typeof r === "string" ? JSON.parse(r) : r;
return Object.keys(types);
//// habit-typeof-object
const r = await tools.search_tickets({ query: "" });
const data = typeof r === "string" ? JSON.parse(r) : r;
return data.results.map((t) => t.subject);
//// habit-array-or-object
const r = await tools.search_tickets({ query: "" });
const list = Array.isArray(r) ? r : (r.results ?? r.items ?? r.data ?? []);
return list.map((t) => t.id);
//// habit-array-or-values
const users = await tools.retail.all_customers();
const list = Array.isArray(users) ? users : Object.values(users);
return list.map((u) => u.email);
//// habit-in-union
const s = await tools.air.flight_status({ flight_number: "HAT1" });
if ("minutes" in s) return `late by ${s.minutes}`;
if ("departure" in s) return s.departure;
return s.status;
//// habit-in-other
const s = await tools.air.flight_status({ flight_number: "HAT2" });
return "reason" in s ? s.reason : s.status;
//// habit-union-switch
const statuses = await Promise.all(["HAT1", "HAT2", "HAT3"].map((flight_number) => tools.air.flight_status({ flight_number })));
return statuses.map((s) => {
  switch (s.status) {
    case "delayed": return s.minutes;
    case "cancelled": return 0;
    case "landed": return -1;
    default: return s.departure.length;
  }
});
//// habit-union-member-of-some
const s = await tools.air.flight_status({ flight_number: "HAT3" });
return s.departure ? s.departure : "none";
//// habit-union-member-of-some-plain
const s = await tools.air.flight_status({ flight_number: "HAT1" });
return s.minutes + 5;
//// habit-literal-other
const order = await tools.retail.order_details({ order_id: "o1" });
if (order.status === "shipped" || order.status === "complete") return "gone";
return order.status == "delivered" ? "home" : "here";
//// habit-literal-includes
const order = await tools.retail.order_details({ order_id: "o1" });
return ["shipped", "delivered"].includes(order.status);
//// habit-literal-lookup
const labels = { pending: "wait", delivered: "there", shipped: "on its way" };
const order = await tools.retail.order_details({ order_id: "o1" });
return labels[order.status] ?? order.status;
//// habit-literal-order
const rank = { low: 1, normal: 2, high: 3, urgent: 4 };
const { results } = await tools.search_tickets({ query: "" });
results.sort((a, b) => rank[b.priority] - rank[a.priority]);
return results[0].id;
//// habit-sort-optional
const { results } = await tools.search_tickets({ query: "" });
const sorted = [...results].sort((a, b) => (a.due ?? "9").localeCompare(b.due ?? "9"));
return sorted[0].id;
//// habit-sort-optional-dates
const { results } = await tools.search_tickets({ query: "" });
results.sort((a, b) => new Date(a.due || 0) - new Date(b.due || 0));
return results.map((t) => t.id);
//// habit-sort-nullable
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
flights.sort((a, b) => (a.gate || "").localeCompare(b.gate || "") || a.prices.economy - b.prices.economy);
return flights[0].flight_number;
//// habit-sort-minus-optional
const root = await tools.disk.tree();
root.children.sort((a, b) => b.size - a.size);
return root.children.length;
//// habit-json-parse
const config = JSON.parse(await tools.disk.read_json({ path: "/c.json" }));
config.users.forEach((u) => { u.active = true; });
return [config.version, config.users[0].active, config.flags.beta];
//// habit-json-parse-typed
interface Config { version: number; users: { id: number; name: string }[] }
const config: Config = JSON.parse(await tools.disk.read_json({ path: "/c.json" }));
return config.users.map((u) => u.name);
//// habit-json-parse-try
let config;
const text = await tools.disk.read_json({ path: "/c.json" });
try { config = JSON.parse(text); } catch { config = {}; }
return config.flags?.beta;
//// habit-json-parse-product-types
const types = JSON.parse(await tools.retail.product_types());
const ids = Object.values(types);
const products = await Promise.all(ids.map((product_id) => tools.retail.product_details({ product_id })));
return products.map((p) => p.name);
//// habit-json-round-trip
const order = JSON.parse(JSON.stringify(await tools.retail.order_details({ order_id: "o1" })));
order.items[0].extra = 1;
return order.items[0].extra;
//// habit-json-parse-in-try-of-object
const r = await tools.search_tickets({ query: "" });
let data = r;
try { data = JSON.parse(r); } catch (e) { /* an object already */ }
return data.count;
//// habit-nullable-bang
const r = await tools.air.get_reservation({ reservation_id: "R1" });
return r!.passengers[0].first_name + r!.baggage;
//// habit-nullable-unchecked
const r = await tools.air.get_reservation({ reservation_id: "R1" });
return r.flights.map((f) => f.flight_number);
//// habit-nullable-optional
const r = await tools.air.get_reservation({ reservation_id: "R9" });
return r?.passengers?.length ?? "no such reservation";
//// habit-nullable-thrown
const q = await tools.broker.quote({ symbol: "AAA" });
if (q == null) throw new Error("none");
return q.price.toFixed(2);
//// habit-nullable-filter
const quotes = await Promise.all(["AAA", "ZZZ"].map((symbol) => tools.broker.quote({ symbol })));
return quotes.filter(Boolean).map((q) => q.price);
//// habit-nullable-filter-arrow
const quotes = await Promise.all(["AAA", "ZZZ"].map((symbol) => tools.broker.quote({ symbol })));
return quotes.filter((q) => q !== null).reduce((s, q) => s + q.price, 0);
//// habit-record-index
const account = await tools.broker.account();
const symbol = "AAA";
return account.positions[symbol].shares + account.positions["BBB"]?.shares + account.positions.AAA.price;
//// habit-record-missing
const account = await tools.broker.account();
return account.positions["ZZZ"] ? account.positions["ZZZ"].shares : 0;
//// habit-record-entries
const users = await tools.retail.all_customers();
return Object.entries(users).map(([id, u]) => `${id}:${u.orders.length}`).join();
//// habit-record-for-in
const users = await tools.retail.all_customers();
const out = [];
for (const id in users) out.push(users[id].email);
return out;
//// habit-record-nested
const owners = await tools.disk.owners();
const out = [];
for (const [user, rights] of Object.entries(owners)) for (const [right, paths] of Object.entries(rights)) out.push(`${user} ${right} ${paths.join()}`);
return out;
//// habit-record-nested-member
const owners = await tools.disk.owners();
return owners.ada.write[0] + (owners.bo.write?.[0] ?? "");
//// habit-record-length-member
const account = await tools.broker.account();
return Object.keys(account.positions).length;
//// habit-payment-methods
const user = await tools.retail.get_customer({ user_id: "ada_1" });
const methods = Object.values(user.payment_methods);
const gift = methods.find((m) => m.source === "gift_card");
const card = methods.find((m) => m.source === "credit_card");
return [gift?.balance, card.last_four];
//// habit-payment-methods-plain
const user = await tools.retail.get_customer({ user_id: "ada_1" });
return Object.values(user.payment_methods).map((m) => m.balance ?? m.last_four);
//// habit-payment-by-id
const user = await tools.retail.get_customer({ user_id: "ada_1" });
const method = user.payment_methods["gc1"];
return method.balance > 10;
//// habit-variants
const product = await tools.retail.product_details({ product_id: "p1" });
const blue = Object.values(product.variants).filter((v) => v.available && v.options.color === "blue");
return blue.map((v) => v.item_id);
//// habit-variants-entries
const product = await tools.retail.product_details({ product_id: "p1" });
const [id, variant] = Object.entries(product.variants).sort(([, a], [, b]) => a.price - b.price)[0];
return [id, variant.price, variant.options["size"]];
//// habit-open-result
const r = await tools.air.book({ user_id: "u", cabin: "economy", flights: ["HAT1"], passengers: [] });
return r.reservation_id + r.anything?.deep;
//// habit-own-interface
interface Row { id: number; who: string }
const { results } = await tools.search_tickets({ query: "" });
const rows: Row[] = results.map((t) => ({ id: t.id, who: t.assignee?.name ?? "-" }));
rows.push({ id: 9, who: "x", extra: true });
return rows.length;
//// habit-own-type-of-result
type Ticket = { id: number; subject: string; custom?: { vip: boolean } };
const ticket: Ticket = await tools.get_ticket({ ticket_id: 1 });
return ticket.custom?.vip ?? ticket.subject;
//// habit-own-type-with-other-member
interface Order { order_id: string; items: { name: string; price: number; sku?: string }[]; total?: number }
const order = (await tools.retail.order_details({ order_id: "o1" })) as Order;
order.total = order.items.reduce((s, i) => s + i.price, 0);
return [order.total, order.items[0].sku ?? "none"];
//// habit-own-type-as-unknown-as
interface Page { tickets: { id: number }[] }
const page = (await tools.search_tickets({ query: "" })) as unknown as Page;
return page.tickets?.length ?? 0;
//// habit-annotated-any
const order: any = await tools.retail.order_details({ order_id: "o1" });
return order.total ?? order.items.length;
//// habit-annotated-any-array
const orders: any[] = await Promise.all(["o1"].map((order_id) => tools.retail.order_details({ order_id })));
return orders[0].customer?.name ?? "none";
//// habit-loop-any
const { results } = await tools.search_tickets({ query: "" });
for (const t of results as any[]) t.custom = 1;
return results.length;
//// habit-loop-typed-any
const { results } = await tools.search_tickets({ query: "" });
return results.map((t: any) => t.requester?.email ?? t.subject);
//// habit-find-or-default
const { results } = await tools.search_tickets({ query: "" });
const t = results.find((x) => x.id === 99) || { subject: "none", missing: true };
return [t.subject, t.missing];
//// habit-flat-map-pairs
const pairs = await tools.air.one_stop({ origin: "JFK", destination: "SFO", date: "d" });
return pairs.map(([a, b]) => a.prices.economy + b.prices.economy);
//// habit-flat-map-pairs-flat
const pairs = await tools.air.one_stop({ origin: "JFK", destination: "SFO", date: "d" });
return pairs.flat().map((f) => f.flight_number);
//// habit-pair-index
const pairs = await tools.air.one_stop({ origin: "JFK", destination: "SFO", date: "d" });
return pairs.map((p) => ({ first: p[0].flight_number, second: p[1].flight_number, third: p[2]?.flight_number }));
//// habit-lots
const account = await tools.broker.account();
return account.positions.AAA.lots.reduce((n, [, shares]) => n + shares, 0);
//// habit-lots-index
const account = await tools.broker.account();
return account.positions.AAA.lots.map((lot) => lot[0] + ":" + lot[1]);
//// habit-dates
const { results } = await tools.search_tickets({ query: "" });
const late = results.filter((t) => t.due && new Date(t.due) < new Date("2026-03-02"));
return late.map((t) => Math.round((Date.now() - new Date(t.due)) / 864e5) > 0);
//// habit-number-text
const account = await tools.broker.account();
return Number(account.balance.toFixed(1)) + parseInt(account.account_id) + +account.account_id;
//// habit-template-totals
const order = await tools.retail.order_details({ order_id: "o1" });
const total = order.items.reduce((s, { price, qty }) => s + price * qty, 0);
console.log(`Order ${order.order_id}: $${total.toFixed(2)} (${order.cancel_reason ?? "active"})`);
return { total };
//// habit-label-loop
outer: for (const id of ["o1", "o2"]) {
  const o = await tools.retail.order_details({ order_id: id });
  for (const i of o.items) if (i.price > 50) { console.log(id); break outer; }
}
return "done";
//// habit-page-loop
let page: number | null = 1;
const all = [];
do {
  const r = await tools.search_tickets({ query: "x", page });
  all.push(...r.results);
  page = r.next_page;
} while (page);
return all.length;
//// habit-page-loop-any
let cursor = undefined, count = 0;
while (true) {
  const { data, next_cursor } = await tools.crm.find_contacts({ limit: 2, cursor });
  count += data.length;
  if (!next_cursor) break;
  cursor = next_cursor;
}
return count;
//// habit-batch
const ids = ["o1", "o2", "o3"];
const out = [];
for (let i = 0; i < ids.length; i += 2) {
  out.push(...(await Promise.all(ids.slice(i, i + 2).map((order_id) => tools.retail.order_details({ order_id })))));
}
return out.map((o) => o.status);
//// habit-cancel
const o = await tools.retail.order_details({ order_id: "o2" });
if (o.status === "pending") {
  const reason = o.items.length > 5 ? "ordered by mistake" : "no longer needed";
  const c = await tools.retail.cancel_order({ order_id: o.order_id, reason });
  return c.status;
}
return "kept";
//// habit-exchange
const o = await tools.retail.order_details({ order_id: "o1" });
const shirt = o.items.find((i) => i.name.includes("Shirt"));
const p = await tools.retail.product_details({ product_id: shirt.product_id });
const other = Object.values(p.variants).find((v) => v.item_id !== shirt.item_id && v.options.size === "L");
const u = await tools.retail.get_customer({ user_id: o.user_id });
const r = await tools.retail.exchange({ order_id: o.order_id, item_ids: [shirt.item_id], new_item_ids: [other.item_id], payment_method_id: Object.keys(u.payment_methods)[0] });
return r.order_id;
//// habit-errors
const results = [];
for (const id of ["o1", "nope"]) {
  try {
    results.push({ id, ok: true, order: await tools.retail.order_details({ order_id: id }) });
  } catch (e: unknown) {
    results.push({ id, ok: false, error: e instanceof Error ? e.message : String(e) });
  }
}
return results.map((r) => (r.ok ? r.order.status : r.error.length > 0));
//// habit-errors-code
try {
  await tools.retail.order_details({ order_id: "nope" });
} catch (err: any) {
  return [err.code, err.name, err.message.length > 0, err.response?.status ?? 0];
}
//// habit-foreach-async-awaited
const out = [];
await Promise.all(["o1", "o2"].map(async (id, index) => { out[index] = (await tools.retail.order_details({ order_id: id })).status; }));
return out;
//// habit-namespace-alias
const { retail, air } = tools;
const o = await retail.order_details({ order_id: "o1" });
const f = await air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
return o.items.length + f.length;
//// habit-namespace-alias-rest
const { retail: shop, ...others } = tools;
return (await shop.order_details({ order_id: "o1" })).status + typeof others;
//// habit-tool-names
return Object.keys(tools).length > 5 && Object.keys(tools.retail).includes("order_details");
//// habit-tool-typeof
return typeof tools.retail.refund_order === "function" ? "yes" : "no";
//// habit-tool-in
return "order_details" in tools.retail && !("refund" in tools.retail);
//// habit-class-over-tools
class Shop {
  #seen = new Set<string>();
  async order(id: string) { this.#seen.add(id); return tools.retail.order_details({ order_id: id }); }
  async all(ids: string[]) { return Promise.all(ids.map((id) => this.order(id))); }
  get seen() { return [...this.#seen]; }
}
const shop = new Shop();
const orders = await shop.all(["o1", "o3"]);
return [orders.map((o) => o.items[0].name), shop.seen];
//// habit-generic-helper
async function mapAll<T, R>(list: T[], fn: (x: T) => Promise<R>): Promise<R[]> {
  const out: R[] = [];
  for (const x of list) out.push(await fn(x));
  return out;
}
const orders = await mapAll(["o1", "o2"], (order_id) => tools.retail.order_details({ order_id }));
return orders.map((o) => o.items.length);
//// habit-pick
const pick = (o, ...keys) => Object.fromEntries(keys.map((k) => [k, o[k]]));
const o = await tools.retail.order_details({ order_id: "o1" });
return pick(o, "order_id", "status");
//// habit-pick-typed
function pick<T, K extends keyof T>(o: T, keys: K[]): Pick<T, K> {
  const out = {} as Pick<T, K>;
  for (const k of keys) out[k] = o[k];
  return out;
}
const o = await tools.retail.order_details({ order_id: "o1" });
return pick(o, ["order_id", "status"]).status;
//// habit-group-by-helper
function groupBy(list, key) {
  const out = {};
  for (const x of list) (out[x[key]] ??= []).push(x);
  return out;
}
const { results } = await tools.search_tickets({ query: "" });
return groupBy(results, "status").open.map((t) => t.subject);
//// habit-index-by
const { results } = await tools.search_tickets({ query: "" });
const by = Object.fromEntries(results.map((t) => [t.id, t]));
return by[1].subject + by["2"].priority;
//// habit-tools-alias
const t = tools;
const api = codemode.retail;
return (await t.list_cities()).length + (await api.order_details({ order_id: "o1" })).items.length;
//// habit-call-bound
const get = tools.retail.order_details.bind(tools.retail);
return (await get({ order_id: "o1" })).status;
//// habit-call-wrapped
const call = async (fn, input) => { try { return await fn(input); } catch (e) { return { error: e.message }; } };
const a = await call(tools.retail.order_details, { order_id: "nope" });
const b = await call(tools.retail.order_details, { order_id: "o1" });
return [a.error.length > 0, b.status];
