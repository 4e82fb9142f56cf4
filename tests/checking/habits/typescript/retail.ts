//// cancel-and-refund
// Cancel the pending orders of Mia that contain a backpack and report the refunds
const userId = await tools.retail.look_up_user({ email: "mia.lund@example.com" });
const user = await tools.retail.get_user({ user_id: userId });

const orders = await Promise.all(user.orders.map((id) => tools.retail.get_order({ order_id: id })));
const toCancel = orders.filter((o) => o.status === "pending" && o.items.some((i) => i.name === "Backpack"));

const results = [];
for (const order of toCancel) {
  const cancelled = await tools.retail.cancel_order({ order_id: order.order_id, reason: "changed my mind" });
  const refund = cancelled.payments
    .filter((p) => p.type === "refund")
    .reduce((sum, p) => sum + p.amount, 0);
  results.push({ order_id: cancelled.order_id, status: cancelled.status, refund });
}
return { user: `${user.name.first_name} ${user.name.last_name}`, results };
//// spend-per-order
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const spend = {};
for (const id of user.orders) {
  const order = await tools.retail.get_order({ order_id: id });
  spend[id] = order.items.reduce((s, i) => s + i.price * i.quantity, 0);
}
return spend;
//// orders-enriched
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const orders = await Promise.all(user.orders.map(id => tools.retail.get_order({ order_id: id })));
orders.forEach(o => {
  o.total = o.items.reduce((acc, it) => acc + it.price * (it.quantity ?? 1), 0);
  o.itemCount = o.items.length;
});
orders.sort((a, b) => b.total - a.total);
return orders.map(o => ({ id: o.order_id, total: o.total, items: o.itemCount }));
//// orders-replace-status
const order = await tools.retail.get_order({ order_id: "#W1001" });
order.items = order.items.map(i => i.name);
order.status = order.status.toUpperCase();
order.placed_at = new Date(order.placed_at);
return { items: order.items.join(", "), status: order.status, year: order.placed_at.getFullYear() };
//// cheapest-available-variant
interface Option {
  itemId: string;
  price: number;
}

const types = JSON.parse(await tools.retail.product_index());
const productId: string = types["Desk Lamp"];
const product = await tools.retail.get_product({ product_id: productId });

let best: Option | null = null;
for (const [id, variant] of Object.entries(product.variants)) {
  if (!variant.available) continue;
  if (best === null || variant.price < best.price) {
    best = { itemId: id, price: variant.price };
  }
}
if (!best) {
  return "nothing available";
}
return `Cheapest: ${best.itemId} at $${best.price.toFixed(2)}`;
//// variants-by-option
const names = JSON.parse(await tools.retail.product_index()) as Record<string, string>;
const byColor: Record<string, string[]> = {};
await Promise.all(
  Object.values(names).map(async (product_id) => {
    const { variants } = await tools.retail.get_product({ product_id });
    for (const v of Object.values(variants)) {
      const color = v.options.color ?? "none";
      (byColor[color] ||= []).push(v.item_id);
    }
  })
);
return byColor;
//// payment-method-names
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const describe = (m) => {
  switch (m.source) {
    case "credit_card":
      return `${m.brand} ending in ${m.last_four}`;
    case "gift_card":
      return `gift card with $${m.balance}`;
    case "paypal":
      return "PayPal";
    default:
      return "unknown";
  }
};
return Object.values(user.payment_methods).map(describe);
//// payment-method-narrow-ternary
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
return Object.entries(user.payment_methods).map(([id, pm]) => ({
  id,
  type: pm.source,
  detail: pm.source === "gift_card" ? pm.balance : pm.source === "credit_card" ? pm.last_four : null,
}));
//// gift-card-find
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const giftCard = Object.values(user.payment_methods).find((p) => p.source === "gift_card");
const balance = giftCard ? giftCard.balance : 0;
const order = await tools.retail.get_order({ order_id: "#W1002" });
const total = order.items.reduce((sum, item) => sum + item.price, 0);
return { balance, total, enough: balance >= total };
//// gift-card-optional-chain
const user = await tools.retail.get_user({ user_id: "omar_haddad_4002" });
const methods = Object.values(user.payment_methods);
const gift = methods.find((m) => m.source === "gift_card");
const card = methods.filter((m) => m.source === "credit_card")[0];
console.log("gift balance:", gift?.balance ?? 0);
console.log("card:", card?.last_four ?? "no card");
return { gift: gift?.balance ?? 0, card: card?.last_four ?? null };
//// method-by-id
const order = await tools.retail.get_order({ order_id: "#W1003" });
const user = await tools.retail.get_user({ user_id: order.user_id });
const paidWith = user.payment_methods[order.payments[0].payment_method_id];
return {
  order: order.order_id,
  paid: order.payments[0].amount,
  with: paidWith.source,
  last4: paidWith.last_four,
};
//// return-then-verify
async function main() {
  const orderId = "#W1001";
  const order = await tools.retail.get_order({ order_id: orderId });
  if (order.status !== "delivered") {
    console.log(`Order ${orderId} cannot be returned: ${order.status}`);
    return;
  }
  const lamp = order.items.find((item) => item.name.toLowerCase().includes("lamp"));
  if (!lamp) {
    throw new Error("No lamp in order");
  }
  const updated = await tools.retail.return_items({
    order_id: orderId,
    item_ids: [lamp.item_id],
    payment_method_id: order.payments[0].payment_method_id,
  });
  console.log("New status:", updated.status, "returned:", updated.return_items.length);
  return updated.return_items;
}
main();
//// exchange-for-cheaper
const ORDER_ID = "#W1003";
const order = await tools.retail.get_order({ order_id: ORDER_ID });
const swaps: { from: string; to: string; saves: number }[] = [];

for (const item of order.items) {
  const product = await tools.retail.get_product({ product_id: item.product_id });
  const cheaper = Object.values(product.variants)
    .filter((v) => v.available && v.price < item.price)
    .sort((a, b) => a.price - b.price);
  if (cheaper.length > 0) {
    swaps.push({ from: item.item_id, to: cheaper[0].item_id, saves: +(item.price - cheaper[0].price).toFixed(2) });
  }
}

if (swaps.length) {
  await tools.retail.modify_items({
    order_id: ORDER_ID,
    item_ids: swaps.map((s) => s.from),
    new_item_ids: swaps.map((s) => s.to),
    payment_method_id: order.payments[0].payment_method_id,
  });
}
return { swaps, saved: swaps.reduce((t, s) => t + s.saves, 0) };
//// cancel-all-settled
const ids = ["#W1002", "#W1003", "#W1004", "#W9999"];
const settled = await Promise.allSettled(
  ids.map((order_id) => tools.retail.cancel_order({ order_id, reason: "wrong item" }))
);
const summary = settled.map((r, i) =>
  r.status === "fulfilled"
    ? { id: ids[i], ok: true, status: r.value.status }
    : { id: ids[i], ok: false, error: r.reason.message }
);
console.log(JSON.stringify(summary, null, 2));
return summary;
//// try-each-email
const emails = ["nobody@example.com", "mia@example.com", "mia.lund@example.com"];
let userId;
for (const email of emails) {
  try {
    userId = await tools.retail.look_up_user({ email });
    break;
  } catch (e) {
    console.log(`${email}: ${e.message}`);
  }
}
if (!userId) return { error: "user not found" };
const { name, orders, address: { city, unit = "-" } } = await tools.retail.get_user({ user_id: userId });
return { name: name.first_name, orders: orders.length, city, unit };
//// order-cache-map
const cache = new Map();
async function getOrder(id) {
  if (!cache.has(id)) {
    cache.set(id, await tools.retail.get_order({ order_id: id }));
  }
  return cache.get(id);
}
const a = await getOrder("#W1001");
const b = await getOrder("#W1001");
return { same: a === b, status: a.status, size: cache.size };
//// order-cache-object
const orderCache: { [id: string]: any } = {};
const fetchOrder = async (id: string) => (orderCache[id] ??= await tools.retail.get_order({ order_id: id }));
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
for (const id of user.orders) await fetchOrder(id);
const delivered = Object.values(orderCache).filter((o) => o.status === "delivered");
return delivered.map((o) => o.order_id);
//// class-service
class OrderService {
  private cache: Record<string, any> = {};
  constructor(private readonly userId: string) {}

  async all() {
    const user = await tools.retail.get_user({ user_id: this.userId });
    return Promise.all(user.orders.map((id) => this.get(id)));
  }

  async get(id: string) {
    if (!this.cache[id]) {
      this.cache[id] = await tools.retail.get_order({ order_id: id });
    }
    return this.cache[id];
  }

  static total(order: { items: { price: number; quantity?: number }[] }): number {
    return order.items.reduce((sum, i) => sum + i.price * (i.quantity || 1), 0);
  }
}

const service = new OrderService("mia_lund_4001");
const orders = await service.all();
return orders.map((o) => [o.order_id, OrderService.total(o)]);
//// class-plain-js
class Cart {
  constructor() {
    this.lines = [];
  }
  add(item, qty) {
    this.lines.push({ item, qty });
    return this;
  }
  get total() {
    return this.lines.reduce((t, l) => t + l.item.price * l.qty, 0);
  }
}
const p = await tools.retail.get_product({ product_id: "p200" });
const cart = new Cart().add(p.variants.i201, 2).add(p.variants["i202"], 1);
return cart.total;
//// group-by-status
const ids = ["#W1001", "#W1002", "#W1003", "#W1004"];
const orders = await Promise.all(ids.map((order_id) => tools.retail.get_order({ order_id })));
const grouped = orders.reduce((acc, o) => {
  acc[o.status] = acc[o.status] || [];
  acc[o.status].push(o.order_id);
  return acc;
}, {});
return grouped;
//// group-by-status-typed
type Group = Record<string, { count: number; total: number }>;
const ids = ["#W1001", "#W1002", "#W1003", "#W1004"];
const orders = await Promise.all(ids.map((order_id) => tools.retail.get_order({ order_id })));
const groups = orders.reduce<Group>((acc, order) => {
  const g = (acc[order.status] ??= { count: 0, total: 0 });
  g.count += 1;
  g.total += order.payments[0].amount;
  return acc;
}, {});
return Object.entries(groups).map(([status, { count, total }]) => `${status}: ${count} (${total.toFixed(2)})`).join("\n");
//// object-group-by
const ids = ["#W1001", "#W1002", "#W1003", "#W1004"];
const orders = await Promise.all(ids.map((order_id) => tools.retail.get_order({ order_id })));
const groups = Object.groupBy(orders, (o) => o.status);
return { pending: groups.pending?.length ?? 0, delivered: groups.delivered.map((o) => o.order_id) };
//// calculate-text
const order = await tools.retail.get_order({ order_id: "#W1001" });
const expr = order.items.map((i) => i.price).join(" + ");
const total = await tools.retail.calculate({ expression: expr });
return { expr, total: parseFloat(total), doubled: Number(total) * 2, cents: +total * 100 };
//// own-interface-order
interface Item {
  name: string;
  price: number;
  quantity: number;
}
interface Order {
  order_id: string;
  items: Item[];
  status: string;
}
const order: Order = await tools.retail.get_order({ order_id: "#W1003" });
const lines = order.items.map((item: Item) => `${item.quantity} x ${item.name}: ${(item.price * item.quantity).toFixed(2)}`);
return lines.join("\n");
//// own-interface-user-cast
interface UserProfile {
  user_id: string;
  name: { first_name: string; last_name: string };
  orders: string[];
  phone?: string;
}
const user = (await tools.retail.get_user({ user_id: "omar_haddad_4002" })) as UserProfile;
const contact = user.phone ?? "no phone";
return `${user.name.first_name} (${contact}), ${user.orders.length} order(s)`;
//// any-cast-everything
const user: any = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const order = (await tools.retail.get_order({ order_id: user.orders[0] })) as any;
const first = order.items[0] as any;
return { name: user.name.first_name, item: first.name, discount: first.discount ?? 0 };
//// result-with-extra-spread
const order = await tools.retail.get_order({ order_id: "#W1001" });
const withTotals = {
  ...order,
  items: order.items.map((i) => ({ ...i, subtotal: i.price * i.quantity })),
  total: order.payments.reduce((s, p) => s + (p.type === "payment" ? p.amount : -p.amount), 0),
};
withTotals.note = "computed";
delete withTotals.shipments;
return withTotals.items.map((i) => i.subtotal).concat(withTotals.total);
//// discounted-copy
let order = await tools.retail.get_order({ order_id: "#W1003" });
order = { ...order, items: order.items.map((i) => ({ ...i, price: i.price * 0.9 })) };
order.discounted = true;
return order.items.map((i) => i.price.toFixed(2));
//// pending-or-message
const order = await tools.retail.get_order({ order_id: "#W1004" });
let message = "";
if (order.status === "pending") {
  const res = await tools.retail.cancel_order({ order_id: order.order_id, reason: "changed my mind" });
  message = `Cancelled, refund of ${res.payments.at(-1).amount}`;
} else if (order.status === "delivered") {
  message = "Can be returned";
} else {
  message = `Cannot cancel an order that is ${order.status}`;
}
message;
//// tracking-ids-flat
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const orders = await Promise.all(user.orders.map((order_id) => tools.retail.get_order({ order_id })));
const tracking = orders.flatMap((o) => o.shipments).flatMap((f) => f.tracking_numbers);
return [...new Set(tracking)];
//// deliver-where
const order = await tools.retail.get_order({ order_id: "#W1004" });
const { street, unit, city, zip } = order.address;
const lines = [street, unit && `Unit ${unit}`, `${zip} ${city}`].filter(Boolean);
return lines.join(", ").toUpperCase();
//// options-diff
const product = await tools.retail.get_product({ product_id: "p300" });
const [a, b] = Object.values(product.variants);
const diff = {};
for (const key of Object.keys({ ...a.options, ...b.options })) {
  if (a.options[key] !== b.options[key]) {
    diff[key] = [a.options[key], b.options[key]];
  }
}
return { diff, priceDelta: Math.round((b.price - a.price) * 100) / 100 };
//// loyalty-switch
const users = await Promise.all(["mia_lund_4001", "omar_haddad_4002"].map((user_id) => tools.retail.get_user({ user_id })));
const rates = { gold: 0.1, silver: 0.05, bronze: 0.02 };
const out = users.map((u) => {
  const rate = rates[u.loyalty] ?? 0;
  return { user: u.user_id, discount: `${rate * 100}%` };
});
console.table(out);
return out;
//// enum-status
enum Status {
  Pending = "pending",
  Delivered = "delivered",
}
const order = await tools.retail.get_order({ order_id: "#W1001" });
if (order.status === Status.Delivered) {
  return "already there";
} else if (order.status === Status.Pending) {
  return "on its way";
}
return "other";
//// json-pretty-answer
const order = await tools.retail.get_order({ order_id: "#W1001" });
const user = await tools.retail.get_user({ user_id: order.user_id });
const answer = {
  customer: Object.values(user.name).join(" "),
  order: order.order_id,
  items: order.items.map(({ name, quantity, price }) => ({ name, quantity, price })),
};
console.log(JSON.stringify(answer, null, 2));
//// console-only
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
console.log(`User: ${user.name.first_name}`);
for (const id of user.orders) {
  const o = await tools.retail.get_order({ order_id: id });
  console.log(`  ${o.order_id} [${o.status}]`);
  o.items.forEach((item, idx) => console.log(`    ${idx + 1}. ${item.name} - $${item.price}`));
}
