//// compared-with-other-literals
const order = await tools.retail.get_order({ order_id: "#W1001" });
if (order.status === "shipped" || order.status === "completed") return "on its way";
const final = ["delivered", "cancelled", "refunded"].includes(order.status);
switch (order.status) {
  case "returned": return "gone";
  case "delivered": return { final, tier: (await tools.retail.get_user({ user_id: order.user_id })).loyalty === "platinum" };
}
//// compared-after-narrowing
const order = await tools.retail.get_order({ order_id: "#W1002" });
if (order.status !== "pending") return "no";
await tools.retail.cancel_order({ order_id: order.order_id, reason: "changed my mind" });
const after = await tools.retail.get_order({ order_id: order.order_id });
if (order.status === "cancelled" || after.status === "cancelled") return "cancelled";
return order.status;
//// const-array-includes
const DONE = ["delivered", "cancelled"] as const;
const order = await tools.retail.get_order({ order_id: "#W1001" });
const kinds = ["gift_card", "paypal"] as const;
const user = await tools.retail.get_user({ user_id: order.user_id });
const allowed = Object.values(user.payment_methods).filter((p) => kinds.includes(p.source));
return [DONE.includes(order.status), DONE.indexOf(order.status), allowed.length];
//// sort-with-boolean
const { messages } = await tools.messages.inbox({ limit: 8 });
messages.sort((a, b) => a.id < b.id);
const byRead = [...messages].sort((a, b) => a.read - b.read);
return byRead.map((m) => m.id).slice(0, 2);
//// parse-functions-on-numbers
const info = await tools.trading.get_quote({ symbol: "ACME" });
const order = await tools.retail.get_order({ order_id: "#W1001" });
return [parseInt(order.items[0].price), parseFloat(info.price), isNaN(info.symbol), Number.isInteger(info.price), isFinite(order.placed_at)];
//// first-cabin-undefined
const [f] = await tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
const first = f.prices["first"] ?? f.prices.premium ?? f.prices.business;
const cabin: string = "economy";
return [first, f.prices[cabin], f.available_seats[cabin] > 0];
//// let-without-initial
let cheapest: Flight;
let count: number;
for (const f of await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" })) {
  if (!cheapest || f.prices.basic < cheapest.prices.basic) cheapest = f;
  count = (count || 0) + 1;
}
return [cheapest.flight_number, count];
//// own-interface-with-more-members
interface RichOrder {
  order_id: string;
  status: string;
  total: number;
  tags: string[];
}
const order = (await tools.retail.get_order({ order_id: "#W1001" })) as RichOrder;
order.total = 75.5;
order.tags = ["x"];
const orders: RichOrder[] = [order];
const other: RichOrder = { ...(await tools.retail.get_order({ order_id: "#W1002" })), total: 120, tags: [], extra: true };
orders.push(other);
return orders.map((o) => o.total);
//// own-interface-direct-annotation-with-more
interface Rich { order_id: string; total?: number; note: string }
const order: Rich = await tools.retail.get_order({ order_id: "#W1001" });
order.note = "n";
order.total = 3;
return [order.note, order.total];
//// own-function-parameter-types
function price(item: { price: string }): number {
  return Number(item.price);
}
function names(users: { name: string }[]): string {
  return users.map((u) => JSON.stringify(u.name)).join();
}
const order = await tools.retail.get_order({ order_id: "#W1001" });
const user = await tools.retail.get_user({ user_id: order.user_id });
return [price(order.items[0]), names([user])];
//// own-return-type-wrong
async function load(id: string): Promise<string[]> {
  const order = await tools.retail.get_order({ order_id: id });
  return order.items;
}
const items = await load("#W1001");
return items[0].name;
//// keys-as-keyof
const s = await tools.club.get_stats();
for (const key of Object.keys(s) as (keyof typeof s)[]) console.log(key, typeof s[key]);
const order = await tools.retail.get_order({ order_id: "#W1001" });
const picked = (["order_id", "status"] as const).map((k) => order[k]);
const dynamic = ["status", "nothing"].map((k) => order[k] ?? "none");
return { picked, dynamic };
//// for-in-over-results
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const out = [];
for (const id in user.payment_methods) {
  const pm = user.payment_methods[id];
  out.push(pm.source === "gift_card" ? pm.balance : id);
}
for (const i in user.orders) out.push(user.orders[i].length + Number(i));
return out;
//// this-in-functions
function Counter() {
  this.n = 0;
}
Counter.prototype.add = function (x) { this.n += x; return this; };
const c = new Counter();
const { items } = await tools.retail.get_order({ order_id: "#W1001" });
items.forEach(function (i) { this.add(i.quantity); }, c);
return c.n;
//// arguments-and-apply
function maxOf() { return Math.max.apply(null, arguments); }
const { items } = await tools.retail.get_order({ order_id: "#W1001" });
return maxOf(...items.map((i) => i.price));
//// sets-as-arguments
const ids = new Set(["i101"]);
const r = await tools.retail.return_items({ order_id: "#W1001", item_ids: ids });
const [a] = await tools.calendar.list_events({ start: new Date("2026-03-02T00:00:00Z").toISOString().slice(0, 10) });
return [r.return_items, a.id];
//// literal-from-function
const pickReason = (mistake) => (mistake ? "wrong item" : "changed my mind");
function cabinFor(n: number): string { return n > 2 ? "economy" : "basic"; }
const done = await tools.retail.cancel_order({ order_id: "#W1002", reason: pickReason(true) });
const b = await tools.airline.book({ user_id: "mia_lund_4001", flight_numbers: ["COR101"], date: "2026-05-20", cabin: cabinFor(1), passengers: [{ first_name: "A", last_name: "B", dob: "1990-01-01" }] });
return [done.cancel_reason, b.ok];
//// literal-from-object
const CONFIG = { status: "Open", reason: "changed my mind", side: "buy", level: "senior" };
const a = await tools.tickets.search_issues({ status: CONFIG.status });
const b = await tools.trading.place_order({ symbol: "ACME", side: CONFIG.side, quantity: 1 });
const c = await tools.club.list_people({ level: CONFIG.level });
const d = await tools.retail.cancel_order({ order_id: "#W1002", reason: CONFIG.reason });
return [a.total, b.status, c.total, d.status];
//// literal-from-split
const [base, target] = "USD/EUR".split("/");
const rate = await tools.get_exchange_rate({ base, target });
const pairs = [["EUR", "NOK"], ["NOK", "USD"]];
const rates = await Promise.all(pairs.map(([base, target]) => tools.get_exchange_rate({ base, target })));
return [rate, ...rates];
//// arguments-from-json
const plan = JSON.parse('[{"tool": "get_order", "args": {"order_id": "#W1001"}}, {"tool": "get_user", "args": {"user_id": "mia_lund_4001"}}]');
const out = [];
for (const { tool, args } of plan) out.push(Object.keys(await tools.retail[tool](args)).length > 3);
return out;
//// arguments-object-shared
const base = { user_id: "mia_lund_4001", date: "2026-05-20", cabin: "economy" };
const passengers = ["Mia Lund", "Jon Lund"].map((n) => {
  const [first_name, last_name] = n.split(" ");
  return { first_name, last_name, dob: "1990-01-01" };
});
const results = [];
for (const n of ["COR101", "COR105"]) results.push(await tools.airline.book({ ...base, flight_numbers: [n], passengers }));
return results.map((r) => r.ok ? r.total : r.error);
//// arguments-in-array-of-objects
const requests = [
  { order_id: "#W1002", reason: "changed my mind" },
  { order_id: "#W1003", reason: "wrong item" },
];
const done = await Promise.all(requests.map((r) => tools.retail.cancel_order(r)));
const again = await Promise.allSettled(requests.map(tools.retail.cancel_order));
return [done.map((d) => d.status), again.map((a) => a.status)];
//// tool-as-callback
const ids = ["#W1001", "#W1002"].map((order_id) => ({ order_id }));
const orders = await Promise.all(ids.map((id) => tools.retail.get_order(id)));
const fns = { order: tools.retail.get_order, user: tools.retail.get_user };
const user = await fns.user({ user_id: orders[0].user_id });
return [orders.length, user.email];
//// tool-bound-and-curried
const get = tools.retail.get_order.bind(null);
const by = (fn) => (key) => (value) => fn({ [key]: value });
const order = await by(get)("order_id")("#W1001");
const cond = order.status === "pending" ? tools.retail.cancel_order : tools.retail.get_order;
const again = await cond({ order_id: "#W1001", reason: "changed my mind" }).catch((e) => e.code);
return [order.status, typeof again];
//// narrowing-to-never
const r = await tools.retail.look_up_user({ email: "omar@example.com" });
if (typeof r !== "string") {
  return r.user_id ?? r.id;
}
const order = await tools.retail.get_order({ order_id: "#W1001" });
if (Array.isArray(order)) return order[0].status;
if (!order) return order.status;
return [r, order.status];
//// narrowing-by-in-and-truthiness
const m = await tools.fs.mv({ source: "notes/todo.txt", destination: "x.txt" });
const ok = "result" in m && m.result.includes("moved");
const c = await tools.fs.cat({ path: "x.txt" });
if (!c.content) throw new Error(c.error);
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const pm = user.payment_methods["gift_card_12"];
const balance = "balance" in pm ? pm.balance : pm.last_four ? 0 : -1;
return [ok, c.content.length > 3, balance];
//// optional-call-and-index
const order = await tools.retail.get_order({ order_id: "#W1001" });
const x = order.items?.find?.((i) => i.name === "None")?.price?.toFixed?.(2) ?? "n/a";
const y = order?.shipments?.[0]?.tracking_numbers?.[3]?.toUpperCase() || "no tracking";
const z = order.refund?.amount ?? order.payments?.find((p) => p.type === "refund")?.amount ?? 0;
return [x, y, z];
//// undeclared-with-fallbacks
const order = await tools.retail.get_order({ order_id: "#W1001" });
const total = order.total || order.total_price || order.items.reduce((s, i) => s + i.price * (i.quantity ?? i.qty ?? 1), 0);
const when = order.created_at ?? order.placed_at;
const currency = order.currency ? order.currency.toUpperCase() : "USD";
const notes = (order.notes || []).map((n) => n.text);
const isGift = !!order.gift;
const { tax = 0, shipping = { cost: 0 } } = order;
return [total, when.slice(0, 4), currency, notes.length, isGift, tax + shipping.cost];
//// undeclared-in-conditions
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
let tier = "standard";
if (user.membership && user.membership.level) tier = user.membership.level;
else if (user.loyalty) tier = user.loyalty;
while (user.locked) break;
const label = user.nickname ? `"${user.nickname}"` : user.name.first_name;
const phones = user.phones && user.phones.length ? user.phones[0] : undefined;
const verified = user.verified === true || typeof user.verified === "string";
return [tier, label, phones ?? null, verified];
//// catch-unknown
try {
  await tools.retail.get_order({ order_id: "#nope" });
} catch (error) {
  const msg = error.response?.data?.message ?? error.message ?? String(error);
  if (error.status === 404 || /not found/i.test(msg)) return { found: false, code: error.code, stack: typeof error.stack };
  throw error;
}
//// catch-returns-other-type
const order = await tools.retail.get_order({ order_id: "#nope" }).catch(() => null);
const list = await tools.calendar.list_events({ start: "2026-03-02" }).catch(() => []);
const stock = await tools.trading.get_quote({ symbol: "ACME" }).catch((e) => ({ error: e.message }));
const user = await tools.retail.get_user({ user_id: "x" }).catch((e) => ({ failed: true, reason: e.message }));
if (user.failed) return [order?.status ?? "no order", list.length, stock.price, user.reason];
return user.email;
//// redeclared-and-shadowed
var result = await tools.retail.get_order({ order_id: "#W1001" });
var result = result.items.map((i) => i.name);
{
  const result = 5;
  console.log(result);
}
const items = result;
for (const items of [[1], [2]]) console.log(items.length);
return items.join();
//// unused-and-unreachable
const unused = await tools.get_current_time();
const { order_id, ...others } = await tools.retail.get_order({ order_id: "#W1001" });
function never(): never { throw new Error("no"); }
if (false) { never(); }
return order_id;
console.log("unreachable");
//// deep-generic-recursion
type DeepPartial<T> = { [K in keyof T]?: T[K] extends object ? DeepPartial<T[K]> : T[K] };
type Order = Awaited<ReturnType<typeof tools.retail.get_order>>;
const patch: DeepPartial<Order> = { address: { city: "Oslo" } };
const merge = <T extends object>(a: T, b: DeepPartial<T>): T => Object.assign({}, a, b as T);
const merged = merge(await tools.retail.get_order({ order_id: "#W1001" }), patch);
return [merged.address.city, merged.status];
//// builder-pattern
class Query {
  #p: Record<string, any> = {};
  where(k: string, v: any) { this.#p[k] = v; return this; }
  limit(n: number) { this.#p.maxResults = n; return this; }
  run() { return tools.tickets.search_issues(this.#p); }
}
const { issues } = await new Query().where("status", "Open").limit(5).run();
return issues.map((i) => i.key);
//// event-emitter
class Emitter {
  handlers = {};
  on(e, f) { (this.handlers[e] ??= []).push(f); return this; }
  emit(e, ...a) { this.handlers[e]?.forEach((f) => f(...a)); }
}
const em = new Emitter();
const log = [];
em.on("order", (o) => log.push(o.status)).on("done", () => log.push("done"));
for (const order_id of ["#W1001", "#W1002"]) em.emit("order", await tools.retail.get_order({ order_id }));
em.emit("done");
return log;
//// state-machine
const next = { pending: "processed", processed: "delivered", delivered: null };
const order = await tools.retail.get_order({ order_id: "#W1002" });
const path = [];
for (let s = order.status; s; s = next[s]) path.push(s);
return path;
//// matrix-and-tuples
const symbols = ["ACME", "NORD", "PIXL"];
const rows: [string, number, number][] = [];
for (const symbol of symbols) {
  const { price, volume } = await tools.trading.get_quote({ symbol });
  rows.push([symbol, price, volume]);
}
const matrix = rows.map(([, p, v]) => [p, v]);
const transposed = matrix[0].map((_, i) => matrix.map((r) => r[i]));
return [rows.length, transposed[1].length, Math.max(...transposed[0])];
//// numbers-as-texts
const total = await tools.retail.calculate({ expression: "10 + 2.5" });
const half = total / 2;
const cmp = total > 12;
return [half, cmp, total * 1, total - 0.5, Math.round(total), total == 12.5];
//// numbers-plus-texts-meant
const { watchlist } = await tools.trading.list_watched();
const n = watchlist.length;
const total = await tools.retail.calculate({ expression: "1 + 1" });
const text = n + " symbols, " + total + " total, " + true;
return text;
//// wrong-result-silently
const { items } = await tools.club.list_people({ per_page: 10 });
const joined = items.map((p) => p.fee).reduce((a, b) => a + b);
return typeof joined;
//// date-members-of-results-compared
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
const now = new Date("2026-03-03T00:00:00Z");
const upcoming = events.filter((e) => new Date(e.start) > now && e.end > now.toISOString());
const soon = events.filter((e) => Date.parse(e.start) - now < 864e5);
return [upcoming.length, soon.length];
//// temporal
const t = await tools.get_current_time();
const z = Temporal.Instant.from(t).toZonedDateTimeISO("Europe/Oslo");
return `${z.hour}:${String(z.minute).padStart(2, "0")} ${z.add({ days: 1 }).toPlainDate()}`;
//// global-this-cache
globalThis.cache = globalThis.cache || {};
globalThis.cache.order = await tools.retail.get_order({ order_id: "#W1001" });
const page = typeof window === "undefined" ? null : window;
return [cache.order.status, page];
