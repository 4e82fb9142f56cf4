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
//// habit-destructured-guarded
const { error, results } = await tools.search_tickets({ query: "" });
if (error) throw new Error(error);
return results.length;
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
//// habit-array-or-object
const r = await tools.search_tickets({ query: "" });
const list = Array.isArray(r) ? r : (r.results ?? r.items ?? r.data ?? []);
return list.map((t) => t.id);
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
//// habit-literal-other
const order = await tools.retail.order_details({ order_id: "o1" });
if (order.status === "shipped" || order.status === "complete") return "gone";
return order.status == "delivered" ? "home" : "here";
//// habit-pair-index
const pairs = await tools.air.one_stop({ origin: "JFK", destination: "SFO", date: "d" });
return pairs.map((p) => ({ first: p[0].flight_number, second: p[1].flight_number, third: p[2]?.flight_number }));
//// habit-exchange
const o = await tools.retail.order_details({ order_id: "o1" });
const shirt = o.items.find((i) => i.name.includes("Shirt"));
const p = await tools.retail.product_details({ product_id: shirt.product_id });
const other = Object.values(p.variants).find((v) => v.item_id !== shirt.item_id && v.options.size === "L");
const u = await tools.retail.get_customer({ user_id: o.user_id });
const r = await tools.retail.exchange({ order_id: o.order_id, item_ids: [shirt.item_id], new_item_ids: [other.item_id], payment_method_id: Object.keys(u.payment_methods)[0] });
return r.order_id;
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
//// habit-pick
const pick = (o, ...keys) => Object.fromEntries(keys.map((k) => [k, o[k]]));
const o = await tools.retail.order_details({ order_id: "o1" });
return pick(o, "order_id", "status");
//// habit-tools-alias
const t = tools;
const api = codemode.retail;
return (await t.list_cities()).length + (await api.order_details({ order_id: "o1" })).items.length;
