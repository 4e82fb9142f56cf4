//// crm-names
const { data } = await tools.crm.find_contacts();
return data.map((c) => c.name);
//// crm-no-argument-object
const page = await tools.crm.find_contacts({});
return page.has_more;
//// crm-filter-literal
const { data } = await tools.crm.find_contacts({ filter: { status: ["active", "lead"], has_email: true }, sort: "revenue" });
return data[0]?.email;
//// crm-filter-built
const filter = {};
filter.status = "active";
filter.min_revenue = 100;
const res = await tools.crm.find_contacts({ filter, limit: 5 });
return res.data.length;
//// crm-filter-widened
const filter = { status: ["active", "churned"], tag: "north" };
const res = await tools.crm.find_contacts({ filter });
return res.data.map((c) => c.id);
//// crm-filter-from-loop
const counts = {};
for (const status of ["lead", "active", "churned"]) {
  const { data } = await tools.crm.find_contacts({ filter: { status } });
  counts[status] = data.length;
}
return counts;
//// crm-filter-object-keys
const labels = { lead: "Leads", active: "Customers", churned: "Lost" };
const out = {};
for (const status of Object.keys(labels)) {
  out[labels[status]] = (await tools.crm.find_contacts({ filter: { status } })).data.length;
}
return out;
//// crm-filter-entries
const wanted = { lead: 0, active: 100 };
const found = [];
for (const [status, min_revenue] of Object.entries(wanted)) {
  const { data } = await tools.crm.find_contacts({ filter: { status, min_revenue } });
  found.push(...data);
}
return found.map((f) => f.id);
//// crm-pages
let contacts = [];
let cursor = undefined;
let hasMore = true;
while (hasMore) {
  const page = await tools.crm.find_contacts({ limit: 1, cursor });
  contacts = contacts.concat(page.data);
  hasMore = page.has_more;
  cursor = page.next_cursor;
}
return contacts.length;
//// crm-pages-typed
const all: Contact[] = [];
let cursor: string | null = null;
do {
  const page = await tools.crm.find_contacts({ limit: 2, cursor });
  all.push(...page.data);
  cursor = page.next_cursor;
} while (cursor !== null);
return all.length;
//// crm-pages-undefined-or
const all = [];
let cursor: string | undefined;
for (;;) {
  const page = await tools.crm.find_contacts({ limit: 2, ...(cursor && { cursor }) });
  all.push(...page.data);
  if (!page.has_more) break;
  cursor = page.next_cursor;
}
return all.map((c) => c.id).join();
//// crm-nested-optional
const contact = await tools.crm.get_contact({ id: "c1" });
return contact?.company?.address?.city ?? "unknown";
//// crm-nested-unchecked
const contact = await tools.crm.get_contact({ id: "c1" });
return `${contact.company.name}, ${contact.company.address.city.toUpperCase()}`;
//// crm-null-contact
const contact = await tools.crm.get_contact({ id: "zz" });
if (contact === null) return "no such contact";
return contact.name;
//// crm-null-guard-throw
function must<T>(value: T | null | undefined, what: string): T {
  if (value == null) throw new Error(`no ${what}`);
  return value;
}
const contact = must(await tools.crm.get_contact({ id: "c3" }), "contact");
return contact.tags.length;
//// crm-non-null
const contact = (await tools.crm.get_contact({ id: "c1" }))!;
return contact.phone!.replace(/\s/g, "");
//// crm-email-domain
const { data } = await tools.crm.find_contacts();
const domains = data.filter((c) => c.email).map((c) => c.email.split("@")[1]);
return domains;
//// crm-email-domain-optional
const { data } = await tools.crm.find_contacts();
return data.map((c) => c.email?.split("@")[1] || null);
//// crm-custom-record
const contact = await tools.crm.get_contact({ id: "c1" });
const { tier, seats } = contact.custom;
return { tier: tier.toUpperCase(), perSeat: contact.revenue / seats };
//// crm-custom-entries
const { data } = await tools.crm.find_contacts();
return data.flatMap((c) => Object.entries(c.custom).map(([key, value]) => `${c.id}.${key}=${value}`));
//// crm-update-open
const updated = await tools.crm.update_contact({ id: "c2", changes: { status: "active", source: "fair", score: 7 } });
return [updated.status, updated.custom.score];
//// crm-update-built
const changes: any = {};
changes.email = "bo@dal.example";
changes["last seen"] = new Date(0);
const updated = await tools.crm.update_contact({ id: "c2", changes });
return updated.email;
//// crm-update-widened
const changes = { status: "churned", email: null };
const updated = await tools.crm.update_contact({ id: "c1", changes });
return updated.status;
//// crm-update-map
const updated = await tools.crm.update_contact({ id: "c1", changes: new Map([["tier", "platinum"]]) });
return updated.custom.tier;
//// crm-activities-union
const activities = await tools.crm.activities({ contact_id: "c1" });
return activities.map((a) => {
  switch (a.kind) {
    case "call": return `call of ${a.minutes} minutes`;
    case "email": return `email: ${a.subject}`;
    case "meeting": return `meeting with ${a.people.join(" and ")}`;
  }
});
//// crm-activities-unnarrowed
const activities = await tools.crm.activities({ contact_id: "c1" });
return activities.map((a) => a.subject || a.place || a.minutes);
//// crm-activities-filtered
const calls = (await tools.crm.activities({ contact_id: "c1" })).filter((a) => a.kind === "call");
return calls.reduce((sum, c) => sum + c.minutes, 0);
//// crm-activities-find
const activities = await tools.crm.activities({ contact_id: "c1", kind: "meeting" });
const meeting = activities.find((a) => a.kind === "meeting");
return meeting.people.length;
//// crm-activities-in
const out = [];
for (const a of await tools.crm.activities({ contact_id: "c1" })) {
  if ("minutes" in a) out.push(a.minutes);
  else if ("subject" in a) out.push(a.subject);
  else out.push(a.people[0]);
}
return out;
//// crm-activities-sorted
const activities = await tools.crm.activities({ contact_id: "c1" });
activities.sort((a, b) => new Date(b.at) - new Date(a.at));
const daysAgo = (new Date(await tools.now()) - new Date(activities[0].at)) / 86_400_000;
return daysAgo;
//// crm-activities-kinds
const perKind = {};
for (const kind of ["call", "email", "meeting"]) perKind[kind] = (await tools.crm.activities({ contact_id: "c1", kind })).length;
return perKind;
//// crm-log-call-mutated-params
function withDefaults(params) {
  params.minutes = params.minutes || 5;
  params.note ??= "no note";
  return params;
}
const call = await tools.crm.log_call(withDefaults({ contact_id: "c1" }));
return call.minutes;
//// crm-log-call-mutated-in-place
function addTime(input) {
  input.at = new Date(0).toISOString();
}
const input = { contact_id: "c1", minutes: 3 };
addTime(input);
return (await tools.crm.log_call(input)).at;
//// crm-log-call-date
const call = await tools.crm.log_call({ contact_id: "c1", minutes: 12, at: new Date("2026-01-01") });
return call.at;
//// crm-log-call-rounded
const seconds = "754";
const call = await tools.crm.log_call({ contact_id: "c1", minutes: Math.round(seconds / 60) });
return call.minutes;
//// crm-log-call-tuples
const calls = [["c1", 5], ["c3", 8]];
const logged = [];
for (const [contact_id, minutes] of calls) logged.push(await tools.crm.log_call({ contact_id, minutes }));
return logged.length;
//// crm-log-call-map-tuples
const calls = { c1: 5, c2: 6 };
const done = await Promise.all(Object.entries(calls).map(([contact_id, minutes]) => tools.crm.log_call({ contact_id, minutes })));
return done.map((d) => d.minutes);
//// crm-index-by-id
const { data } = await tools.crm.find_contacts();
const byId = Object.fromEntries(data.map((c) => [c.id, c]));
const lookup = data.reduce((m, c) => ({ ...m, [c.id]: c }), {});
return byId.c1.name === lookup["c1"].name;
//// crm-index-map
const { data } = await tools.crm.find_contacts();
const byId = new Map(data.map((c) => [c.id, c]));
return byId.get("c3").company.name;
//// crm-extend-contacts
const { data: contacts } = await tools.crm.find_contacts();
const enriched = await Promise.all(contacts.map(async (contact) => {
  contact.activities = await tools.crm.activities({ contact_id: contact.id });
  return contact;
}));
return enriched.map((c) => `${c.name}: ${c.activities.length}`);
//// crm-sort-null-last
const { data } = await tools.crm.find_contacts();
data.sort((a, b) => (a.email === null) - (b.email === null) || a.name.localeCompare(b.name));
return data.map((c) => c.id);
//// crm-company-groups
const { data } = await tools.crm.find_contacts();
const groups = Object.groupBy(data, (c) => c.company?.name ?? "none");
return Object.entries(groups).map(([name, members]) => ({ name, revenue: members.reduce((s, m) => s + m.revenue, 0) }));
//// crm-class-repository
class ContactRepository {
  #cache = new Map();
  static defaultLimit = 50;
  async get(id) {
    if (!this.#cache.has(id)) this.#cache.set(id, await tools.crm.get_contact({ id }));
    return this.#cache.get(id);
  }
  get size() { return this.#cache.size; }
}
const repo = new ContactRepository();
await repo.get("c1");
await repo.get("c1");
return [repo.size, (await repo.get("c1")).name];
//// crm-memo-closure
const memo = {};
const load = async (id) => memo[id] ?? (memo[id] = await tools.crm.get_contact({ id }));
await load("c1");
return Object.keys(memo).length + (await load("c1")).tags.length;
//// crm-stats-object
const stats = { total: 0, withEmail: 0, byStatus: {}, tags: [] };
const { data } = await tools.crm.find_contacts();
for (const c of data) {
  stats.total++;
  if (c.email) stats.withEmail++;
  stats.byStatus[c.status] = (stats.byStatus[c.status] || 0) + 1;
  stats.tags.push(...c.tags);
}
stats.tags = [...new Set(stats.tags)];
stats.average = data.reduce((s, c) => s + c.revenue, 0) / stats.total;
return stats;
//// crm-result-null-fields
const result = { best: null, worst: null, errors: [] };
const { data } = await tools.crm.find_contacts();
for (const c of data) {
  if (!result.best || c.revenue > result.best.revenue) result.best = c;
  if (!result.worst || c.revenue < result.worst.revenue) result.worst = c;
}
if (!data.length) result.errors.push("empty");
return [result.best.name, result.worst.name];
//// crm-let-null
let richest = null;
for (const c of (await tools.crm.find_contacts()).data) {
  if (richest === null || c.revenue > richest.revenue) richest = c;
}
return richest.name;
//// crm-let-null-callback
let found = null;
(await tools.crm.find_contacts()).data.forEach((c) => {
  if (c.tags.includes("vip")) found = c;
});
return found ? found.name : "none";
//// shop-total-nested
const orders = await tools.shop.list_orders();
const total = orders.flatMap((o) => o.lines).reduce((sum, l) => sum + l.quantity * l.price.amount, 0);
return new Intl.NumberFormat("en-US", { style: "currency", currency: "EUR" }).format(total);
//// shop-order-totals
const orders = await tools.shop.list_orders({ status: ["paid", "shipped"] });
orders.forEach((o) => (o.total = o.lines.reduce((s, l) => s + l.price.amount * l.quantity, 0)));
const best = orders.sort((a, b) => b.total - a.total)[0];
return { id: best.id, total: best.total };
//// shop-status-widened
const status = ["paid", "shipped"];
if (status.length > 1) status.push("open");
const orders = await tools.shop.list_orders({ status });
return orders.length;
//// shop-status-set
const orders = await tools.shop.list_orders({ status: new Set(["open"]) });
return orders[0].id;
//// shop-options-extra
const orders = await tools.shop.list_orders({ customer_id: 1, options: { page: 1, newest_first: false, verbose: true } });
return orders.length;
//// shop-stock-record
const orders = await tools.shop.list_orders();
const skus = [...new Set(orders.flatMap((o) => o.lines.map((l) => l.sku)))];
const stock = await tools.shop.stock({ skus });
return skus.filter((sku) => stock[sku] < 4);
//// shop-stock-set
const skus = new Set(["lamp", "rug"]);
const stock = await tools.shop.stock({ skus });
return Object.values(stock).reduce((a, b) => a + b, 0);
//// shop-stock-map-iterator
const orders = await tools.shop.list_orders();
const lines = new Map(orders.flatMap((o) => o.lines).map((l) => [l.sku, l]));
const stock = await tools.shop.stock({ skus: [...lines.keys()] });
const low = Object.entries(stock).filter(([sku, n]) => n < lines.get(sku).quantity);
return low.length;
//// shop-refund-record
const refund = await tools.shop.refund({ order_id: 11, reason: "late", amount: { amount: 10, currency: "EUR" } });
return refund.status.toUpperCase() + refund.amount.currency;
//// shop-refund-price
const order = await tools.shop.get_order({ id: 11 });
const refund = await tools.shop.refund({ order_id: order.id, reason: "damaged", amount: order.lines[0].price });
return refund.id;
//// shop-refund-copied-price
const order = await tools.shop.get_order({ id: 11 });
const price = { ...order.lines[0].price };
price.amount = +(price.amount / 2).toFixed(2);
return (await tools.shop.refund({ order_id: order.id, reason: "other", amount: price })).amount.amount;
//// shop-refund-widened
const amount = { amount: 5, currency: "EUR" };
const reason = Math.random() > 2 ? "late" : "damaged";
const { status } = await tools.shop.refund({ order_id: 12, reason, amount });
return status;
//// shop-refund-reasons
const reasons = { 11: "late", 12: "damaged" };
const ids = [];
for (const id in reasons) {
  const r = await tools.shop.refund({ order_id: id, reason: reasons[id] });
  ids.push(r.id);
}
return ids;
//// shop-shipped-days
const orders = await tools.shop.list_orders({ status: ["shipped"] });
return orders.map((o) => Math.round((new Date(o.shipped_at) - new Date(o.placed_at)) / 864e5));
//// shop-note-optional
const order = await tools.shop.get_order({ id: 12 });
const note = order.note || "(none)";
return note.length;
//// shop-get-missing
const order = await tools.shop.get_order({ id: 999 }).catch((err) => ({ error: err.message }));
return order.error;
//// shop-get-missing-typed
let order;
try {
  order = await tools.shop.get_order({ id: 999 });
} catch (err) {
  order = { id: 0, lines: [], status: "unknown" };
}
return [order.status, order.lines.length];
//// shop-currency-loop
const totals = {};
for (const [source, amount] of [["USD", 10], ["NOK", 80]]) {
  totals[source] = await tools.convert_currency({ amount, source });
}
return totals;
//// shop-currency-sum
const order = await tools.shop.get_order({ id: 11 });
let sum = 0;
for (const { price, quantity } of order.lines) {
  sum += (await tools.convert_currency({ amount: price.amount, source: price.currency, target: "USD" })) * quantity;
}
return sum;
//// shop-currency-enum
enum Currency {
  Euro = "EUR",
  Dollar = "USD",
}
const dollars = await tools.convert_currency({ amount: 5, source: Currency.Euro, target: Currency.Dollar });
return dollars;
//// shop-currency-const-object
const Currency = Object.freeze({ EURO: "EUR", DOLLAR: "USD" });
return await tools.convert_currency({ amount: 5, source: Currency.EURO, target: Currency.DOLLAR });
//// shop-currency-upper
const typed = "usd";
return await tools.convert_currency({ amount: 8, source: typed.toUpperCase() });
//// shop-currency-find
const currency = ["EUR", "USD"].find((c) => c.startsWith("U"));
return await tools.convert_currency({ amount: 8, source: currency });
//// chat-send
const sent = await tools.chat.send({ channel: "#general", text: "Hello", priority: 2 });
return sent.ok && sent.channel;
//// chat-send-built
const message = { channel: "#ops" };
message.text = ["a", "b"].join("\n");
message.thread = null;
const { ts } = await tools.chat.send(message);
return Number(ts);
//// chat-send-blocks
const issues = await tools.github.list_issues({ repo: "acme/house", labels: ["bug"] });
const blocks = [{ type: "header", text: "Bugs" }];
for (const i of issues) blocks.push({ type: "section", text: i.title, fields: [i.number] });
const res = await tools.chat.send({ channel: "#ops", text: `${issues.length} bugs`, blocks });
return res.ts;
//// chat-channels
const channels = await tools.chat.channels();
const ops = channels.find((c) => c.name === "#ops");
return ops.topic ?? `${ops.members} members`;
//// chat-channels-empty-object
const [first] = await tools.chat.channels({});
return first.topic.length;
//// chat-track-open
const tracked = await tools.chat.track({ event: "deploy", user: "ada", version: "1.2", tags: ["x"] });
return tracked.tracked.length;
//// chat-track-spread
const details = { version: 3, ok: true };
const { tracked } = await tools.chat.track({ event: "deploy", ...details });
return tracked;
//// chat-broadcast
const channels = await tools.chat.channels();
const sent = await Promise.all(channels.filter(({ members }) => members > 2).map(({ name: channel }) => tools.chat.send({ channel, text: `Hi ${channel}` })));
return sent.every((s) => s.ok);
//// chat-unawaited-fire-and-forget
tools.chat.send({ channel: "#ops", text: "started" });
const p = tools.chat.send({ channel: "#ops", text: "done" });
await p;
return "ok";
//// chat-promises-kept
const first = tools.add({ a: 1, b: 2 });
const second = tools.add({ a: 3, b: 4 });
const sum = (await first) + (await second);
return sum;
//// chat-promise-array
const jobs = [];
for (const n of [1, 2, 3]) jobs.push(tools.add({ a: n, b: n }));
const sums = await Promise.all(jobs);
return sums.reduce((a, b) => a + b);
//// chat-promise-object
const jobs = { a: tools.add({ a: 1, b: 1 }), b: tools.list_cities() };
const out = {};
for (const [key, job] of Object.entries(jobs)) out[key] = await job;
return out;
//// chat-for-await-promises
let total = 0;
for await (const n of [tools.add({ a: 1, b: 1 }), tools.add({ a: 2, b: 2 })]) total += n;
return total;
//// chat-conditional-promise
const wantsWeather = false;
const weather = wantsWeather ? tools.weather.current({ city: "Oslo" }) : null;
const city = weather ? (await weather).city : "none";
return city;
