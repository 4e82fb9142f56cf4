//// watchlist-movers
const { watchlist } = await tools.trading.list_watched();
const stocks = await Promise.all(watchlist.map((symbol) => tools.trading.get_quote({ symbol })));
const movers = stocks.filter((s) => Math.abs(s.change_percent) > 2);
movers.sort((a, b) => b.change_percent - a.change_percent);
return movers.map((s) => `${s.symbol} ${s.change_percent > 0 ? "+" : ""}${s.change_percent}%`);
//// watchlist-numbers
const list = (await tools.trading.list_watched()).watchlist;
let total = 0;
for (const symbol of list) {
  const info = await tools.trading.get_quote({ symbol });
  total += info.price;
}
return (total / list.length).toFixed(2);
//// watchlist-number-cast
const { watchlist } = await tools.trading.list_watched();
const prices: Record<string, number> = {};
for (const s of watchlist) prices[s] = Number((await tools.trading.get_quote({ symbol: s })).price);
const max = Object.entries(prices).reduce((a, b) => (b[1] > a[1] ? b : a));
return { symbol: max[0], price: max[1] };
//// stock-as-number
const info = await tools.trading.get_quote({ symbol: "ACME" });
const price = info.price as number;
const name: string = info.symbol as string;
return `${name.toLowerCase()}: ${price.toFixed(1)}`;
//// stock-own-interface
interface Stock {
  symbol: string;
  price: number;
  change_percent: number;
  sector: string;
}
const symbols = ["ACME", "PIXL"];
const stocks: Stock[] = [];
for (const symbol of symbols) {
  const s = await tools.trading.get_quote({ symbol });
  stocks.push(s as Stock);
}
return stocks.map((s) => s.price * 2);
//// stock-own-interface-annotated
interface StockInfo {
  symbol: string;
  price: number;
  sector: string;
}
const acme: StockInfo = await tools.trading.get_quote({ symbol: "ACME" });
return acme.price > 100 ? acme.sector : acme.symbol;
//// stock-error
const res = await tools.trading.get_quote({ symbol: "NOPE" });
if (res.error) {
  console.warn(res.error);
} else {
  console.log(res.price.toFixed(2));
}
return !!res.error;
//// sector-grouping
const symbols = ["ACME", "NORD", "PIXL", "ZETA"];
const infos = await Promise.all(symbols.map((symbol) => tools.trading.get_quote({ symbol })));
const sectors = {};
for (const { symbol, sector, price } of infos) {
  if (!sectors[sector]) sectors[sector] = [];
  sectors[sector].push({ symbol, price });
}
return sectors;
//// sector-average
const symbols = ["ACME", "NORD", "PIXL", "ZETA"];
const bySector = new Map<string, number[]>();
for (const symbol of symbols) {
  const { sector, price } = await tools.trading.get_quote({ symbol });
  if (!bySector.has(sector)) bySector.set(sector, []);
  bySector.get(sector).push(price);
}
return [...bySector].map(([sector, ps]) => ({ sector, avg: ps.reduce((a, b) => a + b) / ps.length }));
//// portfolio-value
const account = await tools.trading.get_account();
let value = account.balance;
for (const h of account.holdings) {
  const { price } = await tools.trading.get_quote({ symbol: h.symbol });
  h.price = price;
  h.value = h.quantity * price;
  h.gain = h.value - h.quantity * h.average_cost;
  value += h.value;
}
return { value, holdings: account.holdings.map((h) => ({ symbol: h.symbol, gain: h.gain })) };
//// portfolio-typed
interface Holding { symbol: string; quantity: number; average_cost: number }
interface Account { account_id: number; balance: number; holdings: Holding[] }
const account = (await tools.trading.get_account()) as Account;
const positions = await Promise.all(
  account.holdings.map(async (h: Holding) => {
    const info = await tools.trading.get_quote({ symbol: h.symbol });
    const price = typeof info.price === "number" ? info.price : parseFloat(info.price);
    return { ...h, price, pnl: (price - h.average_cost) * h.quantity };
  })
);
const worst = positions.reduce((a, b) => (a.pnl < b.pnl ? a : b));
return { worst: worst.symbol, pnl: worst.pnl };
//// portfolio-destructured
const { balance, currency = "USD", holdings: [first, ...others] } = await tools.trading.get_account();
return { balance: `${balance} ${currency}`, first: first.symbol, others: others.length };
//// rebalance-orders
const target = 1200;
const { holdings } = await tools.trading.get_account();
const orders = [];
for (const { symbol, quantity } of holdings) {
  const info = await tools.trading.get_quote({ symbol });
  const current = quantity * info.price;
  const diff = Math.trunc((target - current) / info.price);
  if (diff === 0) continue;
  const side = diff > 0 ? "buy" : "sell";
  const order = await tools.trading.place_order({ symbol, side, quantity: Math.abs(diff), limit_price: info.price });
  orders.push({ id: order.order_id, symbol, side, quantity: order.quantity, cost: order.price * order.quantity });
}
return orders;
//// stop-loss-sell
const { holdings } = await tools.trading.get_account();
for (const h of holdings) {
  const s = await tools.trading.get_quote({ symbol: h.symbol });
  if (s.price < h.average_cost * 0.9) {
    const o = await tools.trading.place_order({ symbol: h.symbol, side: "sell", quantity: h.quantity });
    console.log(`Sold ${o.quantity} ${o.symbol} at ${o.price}: ${o.status}`);
  }
}
//// order-side-from-array
const trades = [
  { symbol: "ACME", side: "buy", qty: 1 },
  { symbol: "NORD", side: "sell", qty: 2 },
];
const placed = await Promise.all(
  trades.map((t) => tools.trading.place_order({ symbol: t.symbol, side: t.side, quantity: t.qty }))
);
return placed.map((p) => p.status);
//// order-result-grown
const order = await tools.trading.place_order({ symbol: "ACME", side: "buy", quantity: 3 });
order.fee = 1.5;
order.total = order.price * order.quantity + order.fee;
order.tags = ["auto"];
return order;
//// order-null-price
const order = await tools.trading.place_order({ symbol: "UNKNOWN", side: "buy", quantity: 3 });
const cost = order.price !== null ? order.price * order.quantity : 0;
return { cost, note: order.price ? "priced" : "no price" };
//// reconcile-balance
const { transactions } = await tools.trading.list_transactions({ days: 60 });
const balance = transactions.reduce((sum, t) => {
  switch (t.type) {
    case "deposit":
    case "sell":
      return sum + t.amount;
    case "withdrawal":
    case "buy":
      return sum - t.amount;
    default:
      return sum;
  }
}, 0);
const account = await tools.trading.get_account();
const diff = account.balance - balance;
return Math.abs(diff) < 0.01 ? "reconciled" : `off by ${diff.toFixed(2)}`;
//// transactions-by-type
const { transactions } = await tools.trading.list_transactions();
const totals: Record<string, number> = {};
for (const tx of transactions) {
  totals[tx.type] = (totals[tx.type] ?? 0) + tx.amount;
}
const symbols = transactions.filter((t) => t.symbol).map((t) => t.symbol);
return { totals, symbols };
//// transactions-running
const tx = (await tools.trading.list_transactions()).transactions;
tx.sort((a, b) => new Date(a.timestamp) - new Date(b.timestamp));
let balance = 0;
const sign = { deposit: 1, sell: 1, buy: -1, withdrawal: -1 };
return tx.map((t) => {
  balance += sign[t.type] * t.amount;
  return `${t.timestamp.slice(0, 10)} ${t.type.padEnd(10)} ${balance.toFixed(2)}`;
});
//// transactions-typed
type Tx = { type: "deposit" | "withdrawal" | "buy" | "sell"; amount: number; timestamp: string; symbol?: string };
const { transactions } = (await tools.trading.list_transactions({})) as { transactions: Tx[] };
const isTrade = (t: Tx): t is Tx & { symbol: string } => t.symbol !== undefined;
return transactions.filter(isTrade).map((t) => t.symbol.toLowerCase());
//// transactions-annotated-callback
type Transaction = { type: string; amount: number; timestamp: string };
const { transactions } = await tools.trading.list_transactions({ days: 30 });
const big = transactions.filter((t: Transaction) => t.amount >= 500).map((t: Transaction) => t.type);
return big;
//// monthly-buckets
const { transactions } = await tools.trading.list_transactions();
const weeks = transactions.reduce((acc, t) => {
  const d = new Date(t.timestamp);
  const week = `W${Math.ceil(d.getUTCDate() / 7)}`;
  (acc[week] = acc[week] || []).push(t);
  return acc;
}, {} as Record<string, any[]>);
return Object.keys(weeks).map((w) => ({ week: w, sum: weeks[w].reduce((s, t) => s + t.amount, 0) }));
//// currency-conversion
const { balance, currency } = await tools.trading.get_account();
const rate = await tools.get_exchange_rate({ base: currency, target: "EUR" });
const euros = new Intl.NumberFormat("de-DE", { style: "currency", currency: "EUR" }).format(balance * rate);
return euros.replace(/\u00a0/g, " ");
//// currency-loop
const targets = ["EUR", "NOK"];
const rates = {};
for (const target of targets) {
  rates[target] = await tools.get_exchange_rate({ base: "USD", target });
}
return rates;
//// currency-typed-loop
type Currency = "USD" | "EUR" | "NOK";
const targets: Currency[] = ["EUR", "NOK"];
const table: Partial<Record<Currency, number>> = {};
for (const t of targets) table[t] = Math.round((await tools.get_exchange_rate({ base: "USD", target: t })) * 1000) / 1000;
return table;
//// namespace-block
namespace Money {
  export const round = (n: number) => Math.round(n * 100) / 100;
  export function fmt(n: number): string {
    return `$${round(n).toFixed(2)}`;
  }
}
const { balance } = await tools.trading.get_account();
return Money.fmt(balance / 7);
//// closure-counter
function makeTracker() {
  let calls = 0;
  const seen = new Set();
  return {
    async info(symbol) {
      calls++;
      seen.add(symbol);
      return tools.trading.get_quote({ symbol });
    },
    stats: () => ({ calls, distinct: seen.size }),
  };
}
const tracker = makeTracker();
for (const s of ["ACME", "NORD", "ACME"]) await tracker.info(s);
return tracker.stats();
//// memoize-generic
function memoize<A extends string, R>(fn: (a: A) => Promise<R>): (a: A) => Promise<R> {
  const cache = new Map<A, Promise<R>>();
  return (a) => {
    if (!cache.has(a)) cache.set(a, fn(a));
    return cache.get(a)!;
  };
}
const price = memoize(async (symbol: string) => {
  const info = await tools.trading.get_quote({ symbol });
  return info.price as number;
});
const [a, b] = await Promise.all([price("ACME"), price("ACME")]);
return a + b;
//// numeric-sort-keys
const infos = {};
for (const symbol of ["ZETA", "ACME", "PIXL"]) infos[symbol] = await tools.trading.get_quote({ symbol });
const ranked = Object.keys(infos).sort((x, y) => infos[y].volume - infos[x].volume);
return ranked.map((s, i) => `${i + 1}. ${s} (${infos[s].volume}M)`).join("\n");
