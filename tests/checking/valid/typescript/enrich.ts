//// enrich-items-mapped
const order = await tools.retail.order_details({ order_id: "o1" });
order.items = order.items.map((i) => ({ ...i, total: i.price * i.qty }));
return order.items[0].total;
//// enrich-items-mapped-loop
const order = await tools.retail.order_details({ order_id: "o1" });
order.items = order.items.map((i) => ({ ...i, total: i.price * i.qty }));
let sum = 0;
for (const item of order.items) sum += item.total;
return { sum, first: order.items.find((i) => i.total > 50)?.total };
//// enrich-items-mapped-destructured
const order = await tools.retail.order_details({ order_id: "o1" });
order.items = order.items.map((i) => ({ ...i, total: i.price * i.qty }));
const { items } = order;
return items.map(({ name, total }) => `${name}: ${total}`);
//// enrich-items-alias
const ids = ["o1", "o2"];
const orders = await Promise.all(ids.map((order_id) => tools.retail.order_details({ order_id })));
for (const o of orders) {
  o.items = o.items.map((item) => ({ ...item, subtotal: item.price * item.qty }));
}
return orders.flatMap((o) => o.items).map((item) => item.subtotal);
//// enrich-items-foreach
const orders = [await tools.retail.order_details({ order_id: "o1" })];
orders.forEach((o) => {
  o.items = o.items.map((item) => ({ label: item.name, cents: item.price * 100 }));
});
return orders[0].items[0].cents + orders[0].items[0].label.length;
//// enrich-items-replaced-by-names
const order = await tools.retail.order_details({ order_id: "o1" });
order.items = order.items.map((i) => i.name);
return order.items[0].toUpperCase();
//// enrich-texts-replaced-by-objects
const user = await tools.retail.get_customer({ user_id: "ada_1" });
user.orders = await Promise.all(user.orders.map((order_id) => tools.retail.order_details({ order_id })));
return user.orders.map((o) => o.items.length);
//// enrich-texts-replaced-loop
const user = await tools.retail.get_customer({ user_id: "ada_1" });
for (let i = 0; i < user.orders.length; i++) {
  user.orders[i] = await tools.retail.order_details({ order_id: user.orders[i] });
}
return user.orders.filter((o) => o.status === "pending").map((o) => o.order_id);
//// enrich-texts-replaced-alias
const users = Object.values(await tools.retail.all_customers());
for (const u of users) {
  u.orders = await Promise.all(u.orders.map((id) => tools.retail.order_details({ order_id: id })));
}
const totals = {};
users.forEach((u) => {
  totals[u.user_id] = u.orders.reduce((sum, o) => sum + o.payments.reduce((s, p) => s + p.amount, 0), 0);
});
return [totals, users[0].orders[0].status];
//// enrich-record-spread
const users = await tools.retail.all_customers();
for (const id of Object.keys(users)) {
  users[id] = { ...users[id], orderCount: users[id].orders.length };
}
return Object.values(users).map((u) => u.orderCount);
//// enrich-record-spread-read-one
const users = await tools.retail.all_customers();
for (const [id, user] of Object.entries(users)) {
  users[id] = { ...user, full: `${user.name.first_name} ${user.name.last_name}` };
}
return users["ada_1"].full + users.bo_2.full;
//// enrich-array-index
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "2026-03-01" });
for (let i = 0; i < flights.length; i++) {
  flights[i] = { ...flights[i], status: await tools.air.flight_status({ flight_number: flights[i].flight_number }) };
}
return flights.map((f) => f.status.status);
//// enrich-array-let
let flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "2026-03-01" });
flights = flights.map((f) => ({ ...f, cheapest: Math.min(...Object.values(f.prices)) }));
flights.sort((a, b) => a.cheapest - b.cheapest);
return flights[0].cheapest;
//// enrich-array-let-async
let flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "2026-03-01" });
flights = await Promise.all(flights.map(async (f) => ({ ...f, info: await tools.air.flight_status({ flight_number: f.flight_number }) })));
return flights.map((f) => f.info.status);
//// enrich-object-let
let order = await tools.retail.order_details({ order_id: "o2" });
order = { ...order, total: order.payments.reduce((s, p) => s + p.amount, 0) };
return `${order.order_id} ${order.total}`;
//// enrich-object-let-other-shape
let order = await tools.retail.order_details({ order_id: "o2" });
order = { id: order.order_id, lines: order.items.map((i) => ({ sku: i.item_id })) };
return order.lines[0].sku + order.id;
//// enrich-assign-literal
const order = await tools.retail.order_details({ order_id: "o2" });
Object.assign(order, { customer: await tools.retail.get_customer({ user_id: order.user_id }), total: 80 });
return [order.customer.name.first_name, order.total];
//// enrich-assign-nested
const order = await tools.retail.order_details({ order_id: "o2" });
Object.assign(order, { items: order.items.map((i) => ({ ...i, total: i.price * i.qty })) });
return order.items[0].total;
//// enrich-assign-other
const order = await tools.retail.order_details({ order_id: "o2" });
const extras = { eta: "2026-03-05", items: order.items.map((i) => ({ ...i, weight: 2 })) };
Object.assign(order, extras);
return [order.eta, order.items[0].weight];
//// enrich-assign-each
const { results } = await tools.search_tickets({ query: "" });
results.forEach((t) => Object.assign(t, { age: t.due ? 1 : 0 }));
return results.map((t) => t.age);
//// enrich-push-other-shape
const order = await tools.retail.order_details({ order_id: "o1" });
order.items.push({ name: "Shipping", price: 5, fee: true });
return order.items.filter((i) => i.fee).map((i) => i.name);
//// enrich-push-alias
const order = await tools.retail.order_details({ order_id: "o1" });
const lines = order.items;
lines.push({ ...lines[0], gift: true });
return order.items.filter((i) => i.gift).length;
//// enrich-unshift-splice
const order = await tools.retail.order_details({ order_id: "o1" });
order.items.unshift({ name: "header", header: true });
order.items.splice(1, 1, { name: "mid", header: false });
return order.items.map((i) => i.header);
//// enrich-delete
const order = await tools.retail.order_details({ order_id: "o1" });
delete order.payments;
delete order.items[0].options;
return Object.keys(order).length + Object.keys(order.items[0]).length;
//// enrich-delete-then-ask
const ticket = await tools.get_ticket({ ticket_id: 1 });
delete ticket.fields;
ticket.fields ??= {};
ticket.fields.source = "mail";
return ticket;
//// enrich-loop-new-member
const { results } = await tools.search_tickets({ query: "x" });
for (const ticket of results) ticket.overdue = ticket.due !== undefined && ticket.due < "2026-03-02";
return results.filter((t) => t.overdue).map((t) => t.id);
//// enrich-loop-new-member-nested
const { results } = await tools.search_tickets({ query: "x" });
for (const t of results) t.meta = { words: t.subject.split(" "), score: t.tags.length };
return results.map((t) => t.meta.words[0] + t.meta.score);
//// enrich-as-any
const order = await tools.retail.order_details({ order_id: "o1" });
(order as any).total = 3;
(order as any).items = order.items.map((i) => ({ ...i, sum: i.price }));
return [(order as any).total, order.items[0].sum];
//// enrich-as-any-read
const order = await tools.retail.order_details({ order_id: "o1" });
const o = order as any;
o.items.forEach((i) => { i.line = i.price * i.qty; });
return order.items.map((i) => i.line);
//// enrich-copy-spread
const order = await tools.retail.order_details({ order_id: "o1" });
const copy = { ...order };
copy.items = copy.items.map((i) => ({ ...i, total: i.price * i.qty }));
copy.grandTotal = copy.items.reduce((s, i) => s + i.total, 0);
return copy.grandTotal;
//// enrich-copy-structured-clone
const order = await tools.retail.order_details({ order_id: "o1" });
const copy = structuredClone(order);
copy.items = copy.items.map((i) => ({ id: i.item_id, total: i.price * i.qty }));
return copy.items.map((i) => i.id);
//// enrich-copy-json
const order = await tools.retail.order_details({ order_id: "o1" });
const copy: typeof order = JSON.parse(JSON.stringify(order));
copy.items.forEach((i) => { i.checked = true; });
return copy.items.every((i) => i.checked);
//// enrich-nested-spread
let user = await tools.retail.get_customer({ user_id: "ada_1" });
user = { ...user, name: { ...user.name, full: `${user.name.first_name} ${user.name.last_name}` } };
return user.name.full;
//// enrich-nested-write
const user = await tools.retail.get_customer({ user_id: "ada_1" });
user.name = { ...user.name, initials: user.name.first_name[0] + user.name.last_name[0] };
return user.name.initials;
//// enrich-name-flattened
const users = Object.values(await tools.retail.all_customers());
users.forEach((u) => { u.name = `${u.name.first_name} ${u.name.last_name}`; });
return users.map((u) => u.name.toUpperCase()).sort((a, b) => a.localeCompare(b));
//// enrich-status-object
const { results } = await tools.search_tickets({ query: "x" });
results.forEach((t) => { t.status = { name: t.status, open: t.status !== "solved" }; });
return results.filter((t) => t.status.open).map((t) => t.status.name);
//// enrich-tags-objects
const { results } = await tools.search_tickets({ query: "x" });
for (const t of results) t.tags = t.tags.map((name) => ({ name, color: "red" }));
return results.flatMap((t) => t.tags.map((tag) => tag.color));
//// enrich-tags-objects-loop
const { results } = await tools.search_tickets({ query: "x" });
for (const t of results) t.tags = t.tags.map((name) => ({ name }));
const names = [];
for (const t of results) for (const tag of t.tags) names.push(tag.name);
return names;
//// enrich-dates
const events = await tools.calendar.list_events({ start: "2026-03-02" });
for (const e of events) {
  e.start = new Date(e.start);
  e.end = new Date(e.end);
}
return events.map((e) => (e.end.getTime() - e.start.getTime()) / 60000);
//// enrich-dates-map
let events = await tools.calendar.list_events({ start: "2026-03-02" });
events = events.map((e) => ({ ...e, start: new Date(e.start), end: new Date(e.end) }));
return events.map((e) => e.end.getTime() - e.start.getTime());
//// enrich-numbers
const account = await tools.broker.account();
for (const p of Object.values(account.positions)) p.value = p.shares * p.price;
account.total = Object.values(account.positions).reduce((s, p) => s + p.value, account.balance);
return account.total;
//// enrich-positions-replaced
const account = await tools.broker.account();
account.positions = Object.values(account.positions).map((p) => ({ ...p, value: p.shares * p.price }));
account.positions.sort((a, b) => b.value - a.value);
return account.positions[0].symbol;
//// enrich-watch-quotes
const account = await tools.broker.account();
account.watch = await Promise.all(account.watch.map((symbol) => tools.broker.quote({ symbol })));
return account.watch.map((q) => q.price);
//// enrich-positions-from-entries
const account = await tools.broker.account();
account.positions = Object.fromEntries(
  Object.entries(account.positions).map(([k, p]) => [k, { ...p, gain: p.shares * 2 }]),
);
return account.positions.AAA.gain + account.positions["BBB"].gain;
//// enrich-destructured-items
const { items, ...order } = await tools.retail.order_details({ order_id: "o1" });
const withTotals = items.map((i) => ({ ...i, total: i.price * i.qty }));
return { ...order, items: withTotals, sum: withTotals.reduce((s, i) => s + i.total, 0) };
//// enrich-let-destructured
let { items, status } = await tools.retail.order_details({ order_id: "o1" });
items = items.map((i) => ({ ...i, total: i.price * i.qty }));
status = { code: status };
return [items[0].total, status.code];
//// enrich-results-wrapped
let page = await tools.search_tickets({ query: "x" });
page.results = page.results.map((t) => ({ ticket: t, rank: t.tags.length }));
return page.results.filter((r) => r.rank > 0).map((r) => r.ticket.subject);
//// enrich-tree-recursive
const root = await tools.disk.tree({});
function annotate(node, path) {
  node.path = path + node.name;
  node.total = (node.size ?? 0) + node.children.map((c) => annotate(c, node.path + "/")).reduce((a, b) => a + b, 0);
  return node.total;
}
annotate(root, "");
return [root.total, root.children[0].path, root.children[0].children.map((c) => c.total)];
//// enrich-tree-typed
const root = await tools.disk.tree();
const annotate = (node: typeof root, depth = 0): void => {
  node.children = node.children.map((c) => ({ ...c, depth: depth + 1 }));
  node.children.forEach((c) => annotate(c, depth + 1));
};
annotate(root);
return root.children[0].children[0].depth;
//// enrich-tree-children-to-object
const root = await tools.disk.tree();
root.children = Object.fromEntries(root.children.map((c) => [c.name, c]));
return root.children.docs.kind;
//// enrich-nullable-result
const r = await tools.air.get_reservation({ reservation_id: "R1" });
r.flights = r.flights.map((f) => ({ ...f, price: f.prices[r.cabin] }));
return r!.flights[0].price;
//// enrich-passengers
const r = (await tools.air.get_reservation({ reservation_id: "R1" }))!;
r.passengers.forEach((p) => { p.age = 2026 - Number(p.dob.slice(0, 4)); p.name = p.first_name + " " + p.last_name; });
return r.passengers.map((p) => `${p.name} ${p.age}`);
//// enrich-prices-cabin
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "2026-03-01" });
flights.forEach((f) => { f.prices.first = f.prices.business * 2; });
return flights.map((f) => f.prices.first);
//// enrich-reflect-set
const order = await tools.retail.order_details({ order_id: "o1" });
Reflect.set(order, "seen", true);
Object.defineProperty(order, "hidden", { value: 5 });
return [order.seen, order.hidden];
//// enrich-computed-key
const order = await tools.retail.order_details({ order_id: "o1" });
const key = "to" + "tal";
order[key] = 5;
return order.total;
//// enrich-computed-keys-nested
const order = await tools.retail.order_details({ order_id: "o1" });
for (const field of ["items", "payments"]) order[field] = order[field].map((x, index) => ({ ...x, index }));
return order.items[0].index + order.payments[0].index;
//// enrich-via-helper
function withTotal(order) {
  order.items = order.items.map((i) => ({ ...i, total: i.price * i.qty }));
  return order;
}
const order = await tools.retail.order_details({ order_id: "o1" });
withTotal(order);
return order.items[0].total;
//// enrich-via-helper-map
const addAll = (list) => list.forEach((x) => { x.flag = true; });
const { results } = await tools.search_tickets({ query: "" });
addAll(results);
return results.map((r) => r.flag);
//// enrich-via-helper-dynamic
const set = (target, key, value) => { target[key] = value; };
const order = await tools.retail.order_details({ order_id: "o1" });
set(order, "extra", { a: 1 });
set(order, "items", order.items.map((i) => ({ ...i, n: 1 })));
return [order.extra.a, order.items[0].n];
//// enrich-swap
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
[flights[0], flights[1]] = [{ ...flights[1], rank: 1 }, { ...flights[0], rank: 2 }];
return flights.map((f) => f.rank);
//// enrich-logical-assignment
const ticket = await tools.get_ticket({ ticket_id: 2 });
ticket.assignee ??= { id: 0, name: "nobody", fallback: true };
ticket.comments ||= [];
ticket.comments.push("assigned");
return [ticket.assignee.fallback, ticket.comments.length];
//// enrich-array-fill
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
flights.length = 0;
flights.push({ flight_number: "X", virtual: true });
return flights[0].virtual;
//// enrich-concat
let all = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
all = all.concat([{ flight_number: "NONE", cancelled: true }]);
return all.filter((f) => f.cancelled).length;
//// enrich-spread-append
let all = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
all = [...all, { flight_number: "NONE", note: "made up" }];
return all.at(-1).note;
//// enrich-destructuring-assignment
const order = await tools.retail.order_details({ order_id: "o1" });
({ items: order.lines } = order);
[order.first, order.second] = order.items;
return [order.lines.length, order.first.name, order.second.name];
//// enrich-for-of-target
const order = await tools.retail.order_details({ order_id: "o1" });
for (order.current of order.items) order.lastName = order.current.name;
return order.lastName;
//// enrich-increment
const { results } = await tools.search_tickets({ query: "" });
for (const t of results) { t.views = 0; t.views++; t.fields.count = String(t.views); }
return results[0].views + results[0].fields.count;
//// enrich-nested-array-of-arrays
const pairs = await tools.air.one_stop({ origin: "JFK", destination: "SFO", date: "d" });
for (const pair of pairs) pair.total = pair[0].prices.economy + pair[1].prices.economy;
pairs.sort((a, b) => a.total - b.total);
return pairs[0].total;
//// enrich-lots
const account = await tools.broker.account();
for (const p of Object.values(account.positions)) p.lots = p.lots.map(([date, n]) => ({ date, n }));
return account.positions.AAA.lots.map((lot) => lot.n);
//// enrich-member-through-map
const users = await tools.retail.all_customers();
const byEmail = new Map(Object.values(users).map((u) => [u.email, u]));
byEmail.get("ada@example.com").seen = true;
byEmail.get("ada@example.com").name = { ...byEmail.get("ada@example.com").name, nick: "A" };
return [users.ada_1.seen, users.ada_1.name.nick];
