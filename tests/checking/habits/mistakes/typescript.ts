//// 1 total | Property 'total' does not exist
const order = await tools.retail.get_order({ order_id: "#W1001" });
return `Total: $${order.total.toFixed(2)}`;
//// 2 products | 'products'
const order = await tools.retail.get_order({ order_id: "#W1001" });
return order.products.map((p) => p.name);
//// 3 first_name | 'first_name'
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const label = user.first_name.toUpperCase();
return label;
//// 4 camel-case-member | 'orderId'
const order = await tools.retail.get_order({ order_id: "#W1001" });
return order.orderId.slice(1);
//// 5 wrapped-list | 'events'
const { events } = await tools.calendar.list_events({ start: "2026-03-02" });
return events.map((e) => e.title);
//// 6 wrapped-data | 'data'
const res = await tools.retail.get_order({ order_id: "#W1001" });
return res.data.items.length;
//// 7 map-on-record | map
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return user.payment_methods.map((p) => p.source);
//// 8 find-on-record | find
const product = await tools.retail.get_product({ product_id: "p100" });
const white = product.variants.find((v) => v.options.color === "white");
return white.item_id;
//// 9 for-of-record | variants
const product = await tools.retail.get_product({ product_id: "p100" });
for (const v of product.variants) console.log(v.price);
//// 10 length-of-record | length
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
if (user.payment_methods.length > 1) return "several";
return "one";
//// 11 no-await | await
const order = tools.retail.get_order({ order_id: "#W1001" });
return order.items.map((i) => i.name);
//// 12 no-await-in-map | await
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const orders = user.orders.map((order_id) => tools.retail.get_order({ order_id }));
return orders.filter((o) => o.status === "pending").length;
//// 13 no-await-in-async-map | await
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const orders = user.orders.map(async (order_id) => {
  return await tools.retail.get_order({ order_id });
});
return orders.map((o) => o.items.length);
//// 14 no-await-in-condition | await
if (tools.fs.rm({ path: "notes/todo.txt" })) {
  return "removed";
}
return "not there";
//// 15 no-await-in-template | await
return `The time is ${tools.get_current_time()}`;
//// 16 await-on-wrong-part | await
const status = await tools.retail.get_order({ order_id: "#W1001" }).status;
return status;
//// 17 positional-argument | get_order
const order = await tools.retail.get_order("#W1001");
return order.status;
//// 18 two-positional-arguments | get_exchange_rate
return await tools.get_exchange_rate("USD", "EUR");
//// 19 camel-case-argument | order_id
const order = await tools.retail.get_order({ orderId: "#W1001" });
return order.status;
//// 20 missing-argument | reason
const done = await tools.retail.cancel_order({ order_id: "#W1002" });
return done.status;
//// 21 wrong-literal | changed my mind
const done = await tools.retail.cancel_order({ order_id: "#W1002", reason: "customer request" });
return done.status;
//// 22 wrong-literal-case | Open
const { issues } = await tools.tickets.search_issues({ status: "open" });
return issues.length;
//// 23 number-for-text | string
return await tools.retail.get_product({ product_id: 100 });
//// 24 text-for-list | string[]
return await tools.retail.return_items({ order_id: "#W1001", item_ids: "i101" });
//// 25 unknown-argument-closed | page
return await tools.tickets.search_issues({ page: 2 });
//// 26 nested-missing | dob
return await tools.airline.book({
  user_id: "mia_lund_4001", flight_numbers: ["COR101"], date: "2026-05-20", cabin: "economy",
  passengers: [{ first_name: "Mia", last_name: "Lund" }],
});
//// 27 no-namespace | retail.get_order
return await tools.get_order({ order_id: "#W1001" });
//// 28 camel-case-tool | get_order
return await tools.retail.getOrder({ order_id: "#W1001" });
//// 29 invented-tool | delete_event
await tools.calendar.delete_event({ id: "e1" });
return "deleted";
//// 30 invented-namespace | email
await tools.email.send({ to: "x@example.com", body: "hi" });
//// 31 text-as-object | string
const contact = await tools.messages.find_contact({ name: "ada" });
return contact.email.toLowerCase();
//// 32 unparsed-json-index | string
const types = await tools.retail.product_index();
const product = await tools.retail.get_product({ product_id: types["Desk Lamp"] });
return product.name;
//// 33 unparsed-json-map | string
const contacts = await tools.messages.export_contacts();
return contacts.map((c) => c.email);
//// 34 number-method-on-text | toFixed
const total = await tools.retail.calculate({ expression: "1 + 2" });
return total.toFixed(2);
//// 35 parsed-object | JSON
const order = JSON.parse(await tools.retail.get_order({ order_id: "#W1001" }));
return order.status;
//// 36 date-method-on-text | getTime
const [event] = await tools.calendar.list_events({ start: "2026-03-02" });
return event.start.getTime();
//// 37 union-member | expiry
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return user.payment_methods.credit_card_11.expiry.slice(0, 2);
//// 38 unbound-name | orderIds
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return Promise.all(orderIds.map((order_id) => tools.retail.get_order({ order_id })));
//// 39 unbound-library | axios
const res = await axios.get("https://example.com");
return res.data;
//// 40 misspelt-member-deep | sumary
const { issues } = await tools.tickets.search_issues({ maxResults: 5 });
return issues.map((i) => i.fields.sumary.toLowerCase());
//// 41 misplaced-member | 'placed_at'
const order = await tools.retail.get_order({ order_id: "#W1001" });
return order.items[0].placed_at.slice(0, 10);
//// 42 string-method-on-object | toUpperCase
const issue = await tools.tickets.get_issue({ key: "OPS-1" });
return issue.fields.status.toUpperCase();
//// 43 in-helper | 'price'
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
const cheapest = (fs) => fs.reduce((a, b) => (a.price < b.price ? a : b));
flights.sort((a, b) => a.price.amount - b.price.amount);
return cheapest(flights).flight_number;
//// 44 tuple-as-object | flight_number
const pairs = await tools.airline.connecting_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
return pairs.map((p) => p.flight_number.toLowerCase());
//// 45 null-result-used | null
const r = await tools.fs.write_file({ path: "a.txt", content: "x" });
return r.bytes;
//// 46 shape-of-page | 'items'
let all = [];
const page = await tools.messages.inbox();
for (const m of page.items) all.push(m.id);
return all;
//// 47 called-result | items
const order = await tools.retail.get_order({ order_id: "#W1001" });
return order.items().length;
//// 48 tool-not-called | get_current_time
const now = await tools.get_current_time;
return now.slice(0, 10);
//// 49 object-argument-in-list | string
const order = await tools.retail.get_order({ order_id: "#W1001" });
return await tools.retail.return_items({ order_id: order.order_id, item_ids: order.items });
//// 50 whole-user-for-id | string
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return await tools.airline.find_reservations({ user_id: user });
//// 51 missing-member-in-answer | customer_name
const orders = await Promise.all(["#W1001", "#W1003"].map((order_id) => tools.retail.get_order({ order_id })));
return orders.map((o) => ({ id: o.order_id, customer: o.customer_name, sku: o.items[0].sku }));
//// 52 undeclared-variable-assigned | total
total = 0;
for (const order_id of ["#W1001", "#W1002"]) total += (await tools.retail.get_order({ order_id })).items.length;
return total;
//// 53 null-for-optional | status
return await tools.tickets.search_issues({ status: null });
//// 54 missing-member-printed | discount
const order = await tools.retail.get_order({ order_id: "#W1001" });
console.log("Discount:", order.discount);
console.log(`Coupon: ${order.coupon ?? "none"}`);
return { id: order.order_id, discount: order.discount, eta: order.estimated_delivery };
