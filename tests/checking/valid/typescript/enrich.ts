//// enrich-items-mapped-destructured
const order = await tools.retail.order_details({ order_id: "o1" });
order.items = order.items.map((i) => ({ ...i, total: i.price * i.qty }));
const { items } = order;
return items.map(({ name, total }) => `${name}: ${total}`);
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
//// enrich-assign-nested
const order = await tools.retail.order_details({ order_id: "o2" });
Object.assign(order, { items: order.items.map((i) => ({ ...i, total: i.price * i.qty })) });
return order.items[0].total;
//// enrich-assign-other
const order = await tools.retail.order_details({ order_id: "o2" });
const extras = { eta: "2026-03-05", items: order.items.map((i) => ({ ...i, weight: 2 })) };
Object.assign(order, extras);
return [order.eta, order.items[0].weight];
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
//// enrich-as-any
const order = await tools.retail.order_details({ order_id: "o1" });
(order as any).total = 3;
(order as any).items = order.items.map((i) => ({ ...i, sum: i.price }));
return [(order as any).total, order.items[0].sum];
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
//// enrich-watch-quotes
const account = await tools.broker.account();
account.watch = await Promise.all(account.watch.map((symbol) => tools.broker.quote({ symbol })));
return account.watch.map((q) => q.price);
//// enrich-nullable-result
const r = await tools.air.get_reservation({ reservation_id: "R1" });
r.flights = r.flights.map((f) => ({ ...f, price: f.prices[r.cabin] }));
return r!.flights[0].price;
//// enrich-passengers
const r = (await tools.air.get_reservation({ reservation_id: "R1" }))!;
r.passengers.forEach((p) => { p.age = 2026 - Number(p.dob.slice(0, 4)); p.name = p.first_name + " " + p.last_name; });
return r.passengers.map((p) => `${p.name} ${p.age}`);
//// enrich-reflect-set
const order = await tools.retail.order_details({ order_id: "o1" });
Reflect.set(order, "seen", true);
Object.defineProperty(order, "hidden", { value: 5 });
return [order.seen, order.hidden];
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
//// enrich-destructuring-assignment
const order = await tools.retail.order_details({ order_id: "o1" });
({ items: order.lines } = order);
[order.first, order.second] = order.items;
return [order.lines.length, order.first.name, order.second.name];
//// enrich-for-of-target
const order = await tools.retail.order_details({ order_id: "o1" });
for (order.current of order.items) order.lastName = order.current.name;
return order.lastName;
