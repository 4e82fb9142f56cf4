//// crm-filter-literal
const { data } = await tools.crm.find_contacts({ filter: { status: ["active", "lead"], has_email: true }, sort: "revenue" });
return data[0]?.email;
//// crm-custom-record
const contact = await tools.crm.get_contact({ id: "c1" });
const { tier, seats } = contact.custom;
return { tier: tier.toUpperCase(), perSeat: contact.revenue / seats };
//// crm-update-open
const updated = await tools.crm.update_contact({ id: "c2", changes: { status: "active", source: "fair", score: 7 } });
return [updated.status, updated.custom.score];
//// crm-activities-unnarrowed
const activities = await tools.crm.activities({ contact_id: "c1" });
return activities.map((a) => a.subject || a.place || a.minutes);
//// crm-log-call-tuples
const calls = [["c1", 5], ["c3", 8]];
const logged = [];
for (const [contact_id, minutes] of calls) logged.push(await tools.crm.log_call({ contact_id, minutes }));
return logged.length;
//// crm-index-map
const { data } = await tools.crm.find_contacts();
const byId = new Map(data.map((c) => [c.id, c]));
return byId.get("c3").company.name;
//// crm-company-groups
const { data } = await tools.crm.find_contacts();
const groups = Object.groupBy(data, (c) => c.company?.name ?? "none");
return Object.entries(groups).map(([name, members]) => ({ name, revenue: members.reduce((s, m) => s + m.revenue, 0) }));
//// crm-result-null-fields
const result = { best: null, worst: null, errors: [] };
const { data } = await tools.crm.find_contacts();
for (const c of data) {
  if (!result.best || c.revenue > result.best.revenue) result.best = c;
  if (!result.worst || c.revenue < result.worst.revenue) result.worst = c;
}
if (!data.length) result.errors.push("empty");
return [result.best.name, result.worst.name];
//// crm-let-null-callback
let found = null;
(await tools.crm.find_contacts()).data.forEach((c) => {
  if (c.tags.includes("vip")) found = c;
});
return found ? found.name : "none";
//// shop-status-set
const orders = await tools.shop.list_orders({ status: new Set(["open"]) });
return orders[0].id;
//// shop-options-extra
const orders = await tools.shop.list_orders({ customer_id: 1, options: { page: 1, newest_first: false, verbose: true } });
return orders.length;
//// shop-stock-map-iterator
const orders = await tools.shop.list_orders();
const lines = new Map(orders.flatMap((o) => o.lines).map((l) => [l.sku, l]));
const stock = await tools.shop.stock({ skus: [...lines.keys()] });
const low = Object.entries(stock).filter(([sku, n]) => n < lines.get(sku).quantity);
return low.length;
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
//// shop-currency-enum
enum Currency {
  Euro = "EUR",
  Dollar = "USD",
}
const dollars = await tools.convert_currency({ amount: 5, source: Currency.Euro, target: Currency.Dollar });
return dollars;
//// shop-currency-upper
const typed = "usd";
return await tools.convert_currency({ amount: 8, source: typed.toUpperCase() });
//// shop-currency-find
const currency = ["EUR", "USD"].find((c) => c.startsWith("U"));
return await tools.convert_currency({ amount: 8, source: currency });
//// chat-send-built
const message = { channel: "#ops" };
message.text = ["a", "b"].join("\n");
message.thread = null;
const { ts } = await tools.chat.send(message);
return Number(ts);
//// chat-channels
const channels = await tools.chat.channels();
const ops = channels.find((c) => c.name === "#ops");
return ops.topic ?? `${ops.members} members`;
