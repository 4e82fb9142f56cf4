//// reduce-results-without-initial
const ids = ["#W1001", "#W1002", "#W1003"];
const orders = await Promise.all(ids.map((order_id) => tools.retail.get_order({ order_id })));
const biggest = orders.reduce((a, b) => (a.items.length >= b.items.length ? a : b));
return biggest.order_id;
//// reduce-async
const ids = ["#W1001", "#W1002"];
const total = await ids.reduce(async (accP, order_id) => {
  const acc = await accP;
  const o = await tools.retail.get_order({ order_id });
  return acc + o.items.length;
}, Promise.resolve(0));
return total;
//// foreach-async-awaited-later
const jobs = [];
["#W1001", "#W1002"].forEach((order_id) => {
  jobs.push(tools.retail.get_order({ order_id }).then((o) => o.status));
});
return await Promise.all(jobs);
//// result-member-becomes-object
const order = await tools.retail.get_order({ order_id: "#W1001" });
order.address = `${order.address.street}, ${order.address.city}`;
order.user_id = { id: order.user_id, vip: true };
order.items = Object.fromEntries(order.items.map((i) => [i.item_id, i]));
return { where: order.address.toUpperCase(), vip: order.user_id.vip, lamp: order.items.i101.name };
//// result-member-becomes-map
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
user.payment_methods = new Map(Object.entries(user.payment_methods));
user.orders = new Set(user.orders);
return [user.payment_methods.size, user.orders.has("#W1001"), user.payment_methods.get("gift_card_12").balance];
//// result-member-becomes-number
const { messages } = await tools.messages.inbox({ limit: 8 });
for (let i = 0; i < messages.length; i++) {
  messages[i].sent_at = Date.parse(messages[i].sent_at);
  messages[i].sender = { address: messages[i].sender, domain: messages[i].sender.split("@")[1] };
}
const latest = messages.reduce((a, b) => (a.sent_at > b.sent_at ? a : b));
return { at: latest.sent_at % 1000, domain: latest.sender.domain };
//// result-array-element-replaced
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
for (const i in flights) flights[i] = { id: flights[i].flight_number, cost: flights[i].prices.basic };
flights.sort((a, b) => a.cost - b.cost);
return flights[0].id;
//// result-variable-reused
let data = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const name = data.name.first_name;
data = await tools.retail.get_order({ order_id: data.orders[0] });
const status = data.status;
data = data.items.map((i) => i.name);
return `${name} ${status} ${data.join("+")}`;
//// result-variable-filtered-in-place
let events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
events = events.filter((e) => e.location).map((e) => ({ title: e.title, place: e.location, minutes: (new Date(e.end) - new Date(e.start)) / 6e4 }));
return events.filter((e) => e.minutes > 60).map((e) => e.place);
//// result-object-assign
const orders = await Promise.all(["#W1001", "#W1002"].map((order_id) => tools.retail.get_order({ order_id })));
orders.forEach((o) => Object.assign(o, { total: o.payments[0].amount, tags: [] }));
orders[0].tags.push("first");
return orders.map((o) => [o.total, o.tags.length]);
//// result-delete-and-rename
const order = await tools.retail.get_order({ order_id: "#W1001" });
order.lines = order.items;
delete order.items;
for (const line of order.lines) {
  line.sku = line.item_id;
  delete line.item_id;
}
return order.lines.map((l) => l.sku);
//// result-defineproperty-getter
const order = await tools.retail.get_order({ order_id: "#W1001" });
Object.defineProperty(order, "total", { get() { return this.items.reduce((s, i) => s + i.price * i.quantity, 0); } });
return order.total;
//// result-helper-mutates
function decorate(order) {
  order.label = `${order.order_id} (${order.status})`;
  order.count = order.items.length;
  return order;
}
const order = await tools.retail.get_order({ order_id: "#W1001" });
decorate(order);
return [order.label, order.count];
//// result-helper-mutates-nested
const enrich = async (user) => {
  user.orders = await Promise.all(user.orders.map((order_id) => tools.retail.get_order({ order_id })));
  return user;
};
const user = await enrich(await tools.retail.get_user({ user_id: "mia_lund_4001" }));
return user.orders.map((o) => o.status);
//// result-orders-replaced-directly
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
user.orders = await Promise.all(user.orders.map((order_id) => tools.retail.get_order({ order_id })));
const pending = user.orders.filter((o) => o.status === "pending");
return pending.flatMap((o) => o.items.map((i) => i.name));
//// results-in-class-fields
class Report {
  rows: any[] = [];
  user;
  async load(id: string) {
    this.user = await tools.retail.get_user({ user_id: id });
    for (const order_id of this.user.orders) {
      const order = await tools.retail.get_order({ order_id });
      this.rows.push({ ...order, total: order.items.reduce((s, i) => s + i.price, 0) });
    }
    return this;
  }
  print() {
    return this.rows.map((r) => `${r.order_id}\t${r.total.toFixed(2)}\t${r.status}`).join("\n");
  }
}
const report = await new Report().load("mia_lund_4001");
return report.print();
//// private-fields-and-static
class Shop {
  static #cache = new Map();
  #hits = 0;
  async order(id) {
    if (Shop.#cache.has(id)) { this.#hits++; return Shop.#cache.get(id); }
    const o = await tools.retail.get_order({ order_id: id });
    Shop.#cache.set(id, o);
    return o;
  }
  get hits() { return this.#hits; }
}
const shop = new Shop();
await shop.order("#W1001");
const o = await shop.order("#W1001");
return [o.status, shop.hits];
//// abstract-and-implements
interface Rule { name: string; test(order: any): boolean }
abstract class Base implements Rule {
  abstract name: string;
  abstract test(order: any): boolean;
  describe() { return `rule ${this.name}`; }
}
class Expensive extends Base {
  name = "expensive";
  constructor(private limit = 100) { super(); }
  test(order) { return order.payments[0].amount > this.limit; }
}
const rules: Base[] = [new Expensive(), new Expensive(70)];
const order = await tools.retail.get_order({ order_id: "#W1001" });
return rules.map((r) => [r.describe(), r.test(order)]);
//// generic-group-by
function groupBy<T, K extends string | number>(xs: T[], key: (x: T) => K): Record<K, T[]> {
  return xs.reduce((acc, x) => {
    (acc[key(x)] ||= []).push(x);
    return acc;
  }, {} as Record<K, T[]>);
}
const { messages } = await tools.messages.inbox({ limit: 8 });
const bySender = groupBy(messages, (m) => m.sender);
return Object.entries(bySender).map(([s, ms]) => `${s}: ${ms.length}`);
//// generic-keyof-pluck
const pluck = <T, K extends keyof T>(xs: T[], k: K): T[K][] => xs.map((x) => x[k]);
const { messages } = await tools.messages.inbox({ limit: 3 });
return [pluck(messages, "id"), pluck(messages, "subject")];
//// return-type-of-tool
type Order = Awaited<ReturnType<typeof tools.retail.get_order>>;
const orders: Order[] = [];
for (const id of ["#W1001", "#W1002"]) orders.push(await tools.retail.get_order({ order_id: id }));
const summarize = ({ order_id, status }: Order) => `${order_id}:${status}`;
return orders.map(summarize);
//// return-type-extended
type Event_ = Awaited<ReturnType<typeof tools.calendar.list_events>>[number];
interface Rich extends Event_ { minutes: number; startDate: Date }
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const rich: Rich[] = events.map((e) => ({ ...e, startDate: new Date(e.start), minutes: (+new Date(e.end) - +new Date(e.start)) / 60000 }));
return rich.map((r) => r.minutes);
//// own-type-shadows-declared
interface Flight { flight_number: string; price: number }
interface Order { id: string; total: number }
const flights: Flight[] = (await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" }))
  .map((f) => ({ flight_number: f.flight_number, price: f.prices.economy }));
const orders: Order[] = [];
const o = await tools.retail.get_order({ order_id: "#W1001" });
orders.push({ id: o.order_id, total: o.items[0].price });
return { flights: flights.length, orders };
//// own-type-names-like-declared-models
type Message = { from: string; text: string };
type Person = { name: string; mail: string };
class Event { constructor(public title: string, public at: Date) {} }
const { messages } = await tools.messages.inbox({ limit: 2 });
const mine: Message[] = messages.map((m) => ({ from: m.sender, text: m.body }));
const people: Person[] = mine.map((m) => ({ name: m.from.split("@")[0], mail: m.from }));
const events = (await tools.calendar.list_events({ start: "2026-03-02" })).map((e) => new Event(e.title, new Date(e.start)));
return { people, hours: events.map((e) => e.at.getUTCHours()) };
//// variable-named-like-declared
const Page = await tools.messages.inbox({ limit: 1 });
const name = Page.messages[0].sender;
const status = await tools.airline.get_flight_status({ flight_number: "COR101", date: "2026-05-20" });
const event = (await tools.calendar.list_events({ start: "2026-03-02" }))[0];
const location = event.location ?? "nowhere";
const length = name.length, top = 1, parent = null, self = "me", history = [], origin = "OSL";
return { name, status, location, length, top, parent, self, history, origin };
//// variable-named-tools-part
const retail = tools.retail;
const { get_order: getOrder, get_user: getUser } = retail;
const order = await getOrder({ order_id: "#W1001" });
const user = await getUser({ user_id: order.user_id });
return user.email;
//// wrapper-functions-typed-any
const call = async (ns: string, name: string, args: any = {}): Promise<any> => {
  try {
    return await (tools as any)[ns][name](args);
  } catch (e) {
    return { error: (e as Error).message };
  }
};
const a = await call("retail", "get_order", { order_id: "#W1001" });
const b = await call("retail", "get_order", { order_id: "#nope" });
return [a.status, b.error];
//// wrapper-safe-tuple
const safe = async <T>(p: Promise<T>): Promise<[T | null, Error | null]> => {
  try { return [await p, null]; } catch (e) { return [null, e as Error]; }
};
const [order, err] = await safe(tools.retail.get_order({ order_id: "#W1001" }));
const [none, err2] = await safe(tools.retail.get_order({ order_id: "#W0" }));
return [order.status, err, none, err2.message];
//// wrapper-result-object
const attempt = async (fn) => {
  try { return { ok: true, value: await fn() }; }
  catch (error) { return { ok: false, error: error.message }; }
};
const r = await attempt(() => tools.retail.cancel_order({ order_id: "#W1004", reason: "changed my mind" }));
if (!r.ok) return r.error;
return r.value.status;
//// switch-on-union-result
const booked = await tools.airline.book({ user_id: "mia_lund_4001", flight_numbers: ["COR301"], date: "2026-05-20", cabin: "basic", passengers: [{ first_name: "A", last_name: "B", dob: "2000-01-01" }] });
switch (booked.ok) {
  case true:
    console.log("total", booked.total);
    break;
  case false:
    console.log("error", booked.error);
}
const { reservation = null, error = null } = booked;
return { id: reservation?.reservation_id, error };
//// comma-and-void-and-labels
const ids = ["#W1001", "#W1002", "#W1003"];
let found;
outer: for (const order_id of ids) {
  const order = await tools.retail.get_order({ order_id });
  for (const item of order.items) {
    if (item.name === "Backpack") { found = order; break outer; }
  }
}
return found && found.order_id;
//// var-and-hoisting
var results = [];
for (var i = 0; i < 2; i++) {
  var order = await tools.retail.get_order({ order_id: "#W100" + (i + 1) });
  results.push(summary(order));
}
function summary(o) { return o.order_id + ":" + o.items.length; }
return results;
//// number-formats
const { balance } = await tools.trading.get_account();
const pct = new Intl.NumberFormat("en-US", { style: "percent", maximumFractionDigits: 1 }).format(0.1234);
return [balance.toLocaleString("en-US", { style: "currency", currency: "USD" }), pct, Number.parseFloat("1.5") + parseInt("2px")];
//// date-formats
const t = new Date(await tools.get_current_time());
const tomorrow = new Date(t);
tomorrow.setUTCDate(t.getUTCDate() + 1);
return {
  iso: tomorrow.toISOString().split("T")[0],
  long: t.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" }),
  time: new Intl.DateTimeFormat("en-US", { hour: "2-digit", minute: "2-digit", timeZone: "America/New_York" }).format(t),
  diff: Math.round((tomorrow.valueOf() - t.valueOf()) / 864e5),
  json: JSON.parse(JSON.stringify({ t })).t.length,
};
//// date-arithmetic-untyped
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
events.sort((a, b) => new Date(b.start) - new Date(a.start));
const gaps = events.slice(1).map((e, i) => (new Date(events[i].start) - new Date(e.end)) / 3600000);
return Math.max(...gaps);
//// regex-matchall
const { content } = await tools.fs.cat({ path: "logs/app.log" });
const hits = [...content.matchAll(/\[(\w+)\] (.*)/g)].map((m) => ({ source: m[1], text: m[2] }));
const replaced = content.replace(/\d{2}:\d{2}:\d{2}/g, (t) => t.slice(0, 5));
return { hits: hits.length, first: hits[0].source, len: replaced.length < content.length };
//// string-building
let out = "";
const { watchlist } = await tools.trading.list_watched();
for (const [i, symbol] of watchlist.entries()) {
  const { price, change_percent: change } = await tools.trading.get_quote({ symbol });
  out += (i + 1) + ". " + symbol + " $" + price.toFixed(2) + " (" + (change >= 0 ? "▲" : "▼") + Math.abs(change) + "%)" + "\n";
}
return out.trim();
//// structured-clone-and-json
const order = await tools.retail.get_order({ order_id: "#W1001" });
const copy = structuredClone(order);
copy.items[0].price = 0;
const again = JSON.parse(JSON.stringify(order));
again.items[0].gift = true;
return [order.items[0].price, copy.items[0].price, again.items[0].gift];
//// nested-destructuring-defaults
const {
  name: { first_name: first, middle_name: middle = "" },
  address: { city = "?", region = "unknown" } = {},
  orders: [firstOrder, , third = "none"],
  ...rest
} = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return { first, middle, city, region, firstOrder, third, rest: Object.keys(rest).length };
//// parameter-destructuring
const line = ({ name, price, quantity = 1, discount = 0 }) => `${name}: ${(price * quantity * (1 - discount)).toFixed(2)}`;
const { items } = await tools.retail.get_order({ order_id: "#W1001" });
return items.map(line);
//// promise-then-chain
return tools.retail
  .look_up_user({ email: "omar@example.com" })
  .then((user_id) => tools.retail.get_user({ user_id }))
  .then((user) => Promise.all(user.orders.map((order_id) => tools.retail.get_order({ order_id }))))
  .then((orders) => orders.map((o) => o.status))
  .finally(() => console.log("done"));
//// promise-all-object-entries
const queries = { open: { status: "Open" }, done: { status: "Done" } };
const out = Object.fromEntries(
  await Promise.all(Object.entries(queries).map(async ([k, q]) => [k, (await tools.tickets.search_issues(q)).total]))
);
return out.open + out.done;
//// promise-all-mixed-tuple-index
const results = await Promise.all([tools.get_current_time(), tools.messages.inbox({ limit: 1 }), tools.trading.get_account()]);
return { time: results[0].slice(0, 10), first: results[1].messages[0].id, balance: results[2].balance };
//// promise-all-settled-values-only
const ids = ["#W1001", "bad"];
const settled = await Promise.allSettled(ids.map((order_id) => tools.retail.get_order({ order_id })));
const values = settled.filter((s) => s.status === "fulfilled").map((s) => s.value);
const errors = settled.flatMap((s) => (s.status === "rejected" ? [String(s.reason)] : []));
const loose = settled.map((s) => s.value?.status ?? s.reason.message);
return { values: values.length, errors, loose };
//// timer-promises
const wait = (ms) => new Promise((res) => setTimeout(res, ms));
const start = Date.now();
await wait(5);
const elapsed = performance.now() > 0 && Date.now() - start >= 4;
const t = await tools.get_current_time();
return [elapsed, t.length > 0];
//// abort-controller
const ctl = new AbortController();
const timer = setTimeout(() => ctl.abort(), 1000);
const order = await tools.retail.get_order({ order_id: "#W1001" });
clearTimeout(timer);
return [ctl.signal.aborted, order.status];
//// iterator-helpers
const { messages } = await tools.messages.inbox({ limit: 8 });
const firstUnread = messages.values().filter((m) => !m.read).map((m) => m.id).take(2).toArray();
const idx = messages.findLastIndex((m) => m.read);
return { firstUnread, idx, withAt: messages.with(0, { ...messages[0], body: "x" })[0].body };
//// weird-but-valid-json-answer
const out = { generated: await tools.get_current_time(), rows: [] };
for await (const r of ["ACME", "NORD"].map((symbol) => tools.trading.get_quote({ symbol }))) out.rows.push(r);
console.log(JSON.stringify(out));
out;
//// console-error-warn-group
console.group("orders");
for (const id of ["#W1001", "#none"]) {
  try {
    const o = await tools.retail.get_order({ order_id: id });
    console.info("%s -> %s", id, o.status);
  } catch (e) {
    console.error("failed", id, e.message);
  }
}
console.groupEnd();
return "see log";
//// ts-expect-error-comments
// @ts-ignore
const order = await tools.retail.get_order({ order_id: "#W1001" });
// @ts-expect-error the shape is not declared
const extra = order.not_declared?.deep;
return [order.status, extra ?? "none"];
//// jsdoc-types
/**
 * @param {{ price: number, quantity: number }} item
 * @returns {number}
 */
const subtotal = (item) => item.price * item.quantity;
/** @type {Record<string, number>} */
const totals = {};
const order = await tools.retail.get_order({ order_id: "#W1001" });
for (const item of order.items) totals[item.name] = subtotal(item);
return totals;
//// overloads-and-assertions
function toList(x: string): string[];
function toList(x: string[]): string[];
function toList(x: any) { return Array.isArray(x) ? x : [x]; }
function assertIsString(v: unknown): asserts v is string {
  if (typeof v !== "string") throw new TypeError("not a string");
}
const c: unknown = await tools.messages.find_contact({ name: "ada" });
assertIsString(c);
return toList(c).concat(toList(["x"])).length;
//// non-null-assertions
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const gift = Object.values(user.payment_methods).find((p) => p.source === "gift_card")!;
const event = (await tools.calendar.list_events({ start: "2026-03-02" })).find((e) => e.recurrence)!;
return [gift.id, gift.balance, event!.recurrence!.length];
//// type-guards-own
const isGift = (p: any): p is { source: "gift_card"; balance: number } => p.source === "gift_card";
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const gifts = Object.values(user.payment_methods).filter(isGift);
return gifts.reduce((s, g) => s + g.balance, 0);
//// record-of-functions
const handlers: Record<string, (p: any) => string> = {
  credit_card: (p) => `card ${p.last_four}`,
  gift_card: (p) => `gift ${p.balance}`,
  default: () => "other",
};
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return Object.values(user.payment_methods).map((p) => (handlers[p.source] ?? handlers.default)(p));
//// sets-and-set-methods
const a = new Set((await tools.messages.inbox({ limit: 4 })).messages.map((m) => m.sender));
const b = new Set((await tools.messages.inbox({ cursor: "4" })).messages.map((m) => m.sender));
const both = [...a].filter((x) => b.has(x));
return { both: both.length, union: new Set([...a, ...b]).size, method: a.intersection ? a.intersection(b).size : -1 };
//// empty-input-variants
const a = await tools.get_current_time({});
const b = await tools.get_current_time();
const c = await tools.messages.inbox({});
const d = await tools.tickets.search_issues();
const e = await codemode.trading.list_watched();
return [a === b, c.messages.length, d.total, e.watchlist.length];
//// optional-undefined-arguments
const cursor = undefined, limit = null;
const page = await tools.messages.inbox({ cursor, limit: limit ?? 2 });
const issues = await tools.tickets.search_issues({ status: undefined, text: "", maxResults: 2 });
return [page.messages.length, issues.issues.length];
//// string-ids-from-numbers
const keys = [1, 2].map((n) => `OPS-${n}`);
const results = [];
for (const key of keys) results.push(await tools.tickets.get_issue({ key }));
return results.map((r) => parseInt(r.key.split("-")[1]));
//// early-throw-at-top
const order = await tools.retail.get_order({ order_id: "#W1001" });
if (!order) throw new Error("order not found");
if (!order.items?.length) return { error: "no items" };
const [{ name, price }] = order.items;
return { name, price };
//// unreachable-fallbacks
async function getOrder(id) {
  const res = await tools.retail.get_order({ order_id: id });
  if (typeof res === "string") {
    try {
      return JSON.parse(res);
    } catch {
      return { raw: res };
    }
  }
  return res.data ?? res.order ?? res.result ?? res;
}
const o = await getOrder("#W1001");
return o.order_id;
//// content-block-guess
const res = await tools.tickets.add_comment({ key: "OPS-1", body: "hi" });
const text = res?.content?.[0]?.text ?? JSON.stringify(res);
return text.includes("OPS-1");
//// response-data-guess
const res = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const user = res?.user ?? res?.data ?? res;
const email = user.email || user.emailAddress || user.contact?.email;
return email;
//// success-flag-guess
const res = await tools.retail.cancel_order({ order_id: "#W1002", reason: "changed my mind" });
if (res.success === false || res.error) {
  return { ok: false, message: res.message || res.error || "unknown" };
}
return { ok: true, status: res.status };
//// is-array-guess
const res = await tools.retail.look_up_user({ email: "omar@example.com" });
const id = typeof res === "object" ? res.user_id : res;
const list = Array.isArray(res) ? res : [res];
return [id, list.length];
//// node-epilogue
const main = async () => {
  const time = await tools.get_current_time();
  console.log(time);
};
if (typeof require !== "undefined" && require.main === module) {
  main();
} else {
  await main();
}
//// node-exit-code
async function run() {
  const o = await tools.retail.get_order({ order_id: "#W1001" });
  if (!o) {
    console.error("missing");
    process.exit(1);
  }
  return o.status;
}
return run();
//// debug-env-check
const DEBUG = typeof process !== "undefined" && process.env?.DEBUG === "1";
if (DEBUG) console.log("debug");
const t = await tools.get_current_time();
return DEBUG ? t : t.slice(0, 4);
//// decorators-free-mixin
const Timestamped = (Base) => class extends Base {
  stamp = Date.now();
};
class Box { constructor(value) { this.value = value; } }
const B = Timestamped(Box);
const b = new B(await tools.get_current_time());
return b.value.slice(0, 4) + (b.stamp > 0 ? "+" : "-");
//// symbol-iterator-class
class Orders {
  constructor(list) { this.list = list; }
  *[Symbol.iterator]() { for (const o of this.list) yield o; }
}
const list = [await tools.retail.get_order({ order_id: "#W1001" }), await tools.retail.get_order({ order_id: "#W1002" })];
return [...new Orders(list)].map((o) => o.status);
//// bigints-and-bits
const { messages } = await tools.messages.inbox({ limit: 8 });
const mask = messages.reduce((m, x) => m | (x.read ? 1 << x.id : 0), 0);
const big = messages.reduce((p, x) => p * BigInt(x.id), 1n);
return { mask: mask.toString(2), big: big.toString() };
