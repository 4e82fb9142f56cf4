//// refund-audit
/**
 * For every order of a user: what was paid, what was refunded, and what may still be cancelled or returned.
 */
type Line = { order: string; status: string; paid: number; refunded: number; action: "cancel" | "return" | "none" };

const EMAILS = ["mia.lund@example.com", "omar@example.com", "ghost@example.com"];

function sum(values: number[]): number {
  return Math.round(values.reduce((a, b) => a + b, 0) * 100) / 100;
}

function actionFor(status: string): Line["action"] {
  if (status === "pending") return "cancel";
  if (status === "delivered") return "return";
  return "none";
}

async function audit(userId: string): Promise<Line[]> {
  const user = await tools.retail.get_user({ user_id: userId });
  const lines: Line[] = [];
  for (const orderId of user.orders) {
    const order = await tools.retail.get_order({ order_id: orderId });
    const paid = sum(order.payments.filter((p) => p.type === "payment").map((p) => p.amount));
    const refunded = sum(order.payments.filter((p) => p.type === "refund").map((p) => p.amount));
    lines.push({ order: orderId, status: order.status, paid, refunded, action: actionFor(order.status) });
  }
  return lines;
}

const report: Record<string, Line[] | { error: string }> = {};
for (const email of EMAILS) {
  try {
    const userId = await tools.retail.look_up_user({ email });
    report[email] = await audit(userId);
  } catch (err) {
    report[email] = { error: err instanceof Error ? err.message : String(err) };
  }
}

const open = Object.values(report)
  .filter((r): r is Line[] => Array.isArray(r))
  .flat()
  .filter((l) => l.action !== "none");

console.log(`${open.length} orders can be changed`);
return { report, open: open.map((l) => `${l.action} ${l.order} ($${l.paid.toFixed(2)})`) };
//// trip-planner
interface Leg { flight: string; from: string; to: string; depart: string; arrive: string }
interface Plan { legs: Leg[]; total: number; minutes: number; layover: number | null }

const DATE = "2026-05-20";
const CABIN = "economy";
const BUDGET = 400;

const toLeg = (f): Leg => ({
  flight: f.flight_number,
  from: f.origin,
  to: f.destination,
  depart: f.departure,
  arrive: f.arrival,
});
const minutes = (t: string) => {
  const [h, m] = t.split(":").map((x) => parseInt(x, 10));
  return h * 60 + m;
};

async function plans(from: string, to: string): Promise<Plan[]> {
  const [direct, onestop] = await Promise.all([
    tools.airline.direct_flights({ origin: from, destination: to, date: DATE }),
    tools.airline.connecting_flights({ origin: from, destination: to, date: DATE }),
  ]);
  const result: Plan[] = [];
  direct
    .filter((f) => f.available_seats[CABIN] >= 2)
    .forEach((f) => result.push({ legs: [toLeg(f)], total: f.prices[CABIN] * 2, minutes: f.duration_minutes, layover: null }));
  for (const [a, b] of onestop) {
    if (Math.min(a.available_seats[CABIN], b.available_seats[CABIN]) < 2) continue;
    const layover = minutes(b.departure) - minutes(a.arrival);
    if (layover < 45) continue;
    result.push({
      legs: [a, b].map(toLeg),
      total: (a.prices[CABIN] + b.prices[CABIN]) * 2,
      minutes: a.duration_minutes + b.duration_minutes + layover,
      layover,
    });
  }
  return result.sort((x, y) => x.total - y.total || x.minutes - y.minutes);
}

const out = await plans("OSL", "TOS");
const back = await plans("TOS", "OSL");
if (!out.length || !back.length) return { error: "no way there or back" };

const best = { out: out[0], back: back[0], total: out[0].total + back[0].total };
if (best.total > BUDGET) {
  const basic = out.map((p) => p.legs.map((l) => l.flight).join("+"));
  return { overBudget: true, total: best.total, alternatives: basic };
}

const reservation = await tools.airline.get_reservation({ reservation_id: "R8X2LQ" });
const booking = await tools.airline.book({
  user_id: reservation.user_id,
  flight_numbers: best.out.legs.map((l) => l.flight),
  date: DATE,
  cabin: CABIN,
  passengers: reservation.passengers,
});
return booking.ok ? { id: booking.reservation.reservation_id, ...best } : booking;
//// triage
// Triage open tickets: assign by label, set priority by age, comment, and report.
const OWNERS = {
  billing: { accountId: "u2", displayName: "Ben Vik" },
  api: { accountId: "u1", displayName: "Ada Moe" },
};
const now = new Date(await tools.get_current_time());

const tickets = [];
let startAt = 0;
let isLast = false;
while (!isLast) {
  const page = await tools.tickets.search_issues({ status: "Open", startAt });
  tickets.push(...page.issues);
  startAt += page.issues.length;
  isLast = page.isLast ?? startAt >= page.total;
}

const changes = [];
for (const t of tickets) {
  const ageDays = Math.round((now.getTime() - new Date(t.fields.created).getTime()) / (1000 * 60 * 60 * 24));
  const update: any = {};

  if (!t.fields.assignee) {
    const label = t.fields.labels.find((l) => l in OWNERS);
    if (label) update.assignee = OWNERS[label];
  }
  if (ageDays > 20 && t.fields.priority !== "urgent") update.priority = "urgent";
  else if (!t.fields.priority) update.priority = "medium";

  if (Object.keys(update).length === 0) continue;

  try {
    const res: any = await tools.tickets.update_issue({ key: t.key, fields: update });
    await tools.tickets.add_comment({
      key: t.key,
      body: `Triaged after ${ageDays} days: ${Object.entries(update)
        .map(([k, v]) => `${k} = ${typeof v === "object" ? (v as any).displayName : v}`)
        .join(", ")}`,
    });
    changes.push({ key: t.key, ageDays, changed: res.updated });
  } catch (e) {
    changes.push({ key: t.key, ageDays, error: e.message });
  }
}

const stats = await tools.tickets.stats({});
console.log(`Open: ${stats.byStatus.Open} of ${stats.total}`);
return { seen: tickets.length, changes };
//// weekly-digest
class Digest {
  private sections: { title: string; lines: string[] }[] = [];

  add(title: string, lines: string[]): this {
    this.sections.push({ title, lines: lines.length ? lines : ["(nothing)"] });
    return this;
  }

  toString(): string {
    return this.sections.map(({ title, lines }) => `## ${title}\n${lines.map((l) => `- ${l}`).join("\n")}`).join("\n\n");
  }
}

const [events, inbox, tickets, account] = await Promise.all([
  tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-06" }),
  tools.messages.inbox({ limit: 10 }),
  tools.tickets.search_issues({ maxResults: 50 }),
  tools.trading.get_account(),
]);

const fmt = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const digest = new Digest();

digest.add(
  "Calendar",
  events.map((e) => {
    const start = new Date(e.start);
    const going = e.attendees.filter((a) => a.response === "yes").length;
    return `${fmt.format(start)} ${e.title} (${going}/${e.attendees.length})${e.recurrence ? ` [${e.recurrence}]` : ""}`;
  }),
);

const unread = inbox.messages.filter((m) => !m.read);
digest.add("Unread", unread.map((m) => `${m.sender.split("@")[0]}: ${m.subject ?? m.body.slice(0, 20) + "..."}`));

const byPriority = tickets.issues.reduce((acc, t) => {
  const p = t.fields.priority ?? "none";
  acc[p] = (acc[p] ?? 0) + 1;
  return acc;
}, {} as Record<string, number>);
digest.add("Tickets", Object.entries(byPriority).sort().map(([p, n]) => `${p}: ${n}`));

let value = 0;
for (const h of account.holdings) {
  const s = await tools.trading.get_quote({ symbol: h.symbol });
  value += h.quantity * s.price;
}
digest.add("Portfolio", [`cash ${account.balance}`, `stocks ${value.toFixed(2)}`]);

await tools.messages.send({ to: "ada@example.com", subject: "Weekly digest", body: digest.toString() });
return digest.toString().split("\n").length;
//// file-cleanup
const MAX_DEPTH = 3;
const stats = { files: 0, moved: 0, removed: 0, errors: [] };

async function walk(path, depth = 0) {
  if (depth > MAX_DEPTH) return [];
  const res = await tools.fs.ls({ path });
  const found = [];
  for (const name of res.entries) {
    const full = path === "." ? name : `${path}/${name}`;
    if (/\.[a-z]+$/.test(name)) {
      stats.files++;
      found.push({ path: full, name, ext: name.split(".").pop() });
    } else {
      found.push(...(await walk(full, depth + 1)));
    }
  }
  return found;
}

const files = await walk(".");
const byExt = {};
for (const f of files) (byExt[f.ext] ??= []).push(f);

for (const f of byExt.csv ?? []) {
  const { content } = await tools.fs.cat({ path: f.path });
  const rows = content.trim().split("\n").slice(1);
  f.rows = rows.length;
  f.total = rows.map((r) => parseFloat(r.split(",")[2])).reduce((a, b) => a + b, 0);
  if (f.name.includes("final")) {
    const target = `archive/${f.name.replace("_final", "")}`;
    const r = await tools.fs.mv({ source: f.path, destination: target });
    if (r.error) stats.errors.push(r.error);
    else stats.moved++;
  }
}

for (const f of byExt.log ?? []) {
  const lines = (await tools.fs.grep({ path: f.path, pattern: "ERROR" })).lines_found;
  await tools.fs.write_file({ path: `reports/errors-${f.name}.txt`, content: lines.join("\n") });
  const gone = await tools.fs.rm({ path: f.path });
  if (gone) stats.removed += 1;
}

const csv = (byExt["csv"] || []).map((f) => `${f.name},${f.rows},${f.total.toFixed(2)}`);
await tools.fs.write_file({ path: "reports/summary.csv", content: ["name,rows,total", ...csv].join("\n") });
const check = await tools.fs.cat({ path: "reports/summary.csv" });
console.log(check.content);
return stats;
//// portfolio-report
const round = (n, d = 2) => Number(n.toFixed(d));
const account = await tools.trading.get_account();
const { transactions } = await tools.trading.list_transactions({ days: 90 });
const { watchlist } = await tools.trading.list_watched();

const symbols = [...new Set([...account.holdings.map((h) => h.symbol), ...watchlist])];
const quotes = Object.fromEntries(
  await Promise.all(symbols.map(async (s) => [s, await tools.trading.get_quote({ symbol: s })])),
);

const positions = account.holdings.map((h) => {
  const q = quotes[h.symbol];
  const value = h.quantity * q.price;
  const cost = h.quantity * h.average_cost;
  return { ...h, price: q.price, value, pnl: value - cost, pnlPct: round(((value - cost) / cost) * 100), sector: q.sector };
});
const totalValue = positions.reduce((s, p) => s + p.value, 0);
positions.forEach((p) => (p.weight = round((p.value / totalValue) * 100, 1)));
positions.sort((a, b) => b.pnl - a.pnl);

const flows = { in: 0, out: 0 };
for (const t of transactions) {
  const amount = t.amount;
  if (["deposit", "sell"].includes(t.type)) flows.in += amount;
  else flows.out += amount;
}

const alerts = symbols
  .map((s) => quotes[s])
  .filter((q) => Math.abs(q.change_percent) >= 2)
  .map((q) => `${q.symbol} ${q.change_percent > 0 ? "up" : "down"} ${Math.abs(q.change_percent)}%`);

const orders = [];
for (const p of positions.filter((p) => p.pnlPct < -15)) {
  const o = await tools.trading.place_order({ symbol: p.symbol, side: "sell", quantity: Math.ceil(p.quantity / 2), limit_price: round(p.price * 1.01) });
  orders.push({ id: o.order_id, proceeds: round(o.price * o.quantity) });
}

const rate = await tools.get_exchange_rate({ base: "USD", target: "EUR" });
return {
  total: round(account.balance + totalValue),
  totalEur: round((account.balance + totalValue) * rate),
  best: positions[0].symbol,
  weights: positions.map((p) => `${p.symbol} ${p.weight}%`),
  flows,
  alerts,
  orders,
};
//// meeting-finder
const PEOPLE = ["ada", "ben", "cy"];
const DAYS = ["2026-03-02", "2026-03-03", "2026-03-04"];
const DURATION = 60;

const contacts = JSON.parse(await tools.messages.export_contacts());
const emailOf = (first) => {
  const c = contacts.find((c) => c.name.toLowerCase().startsWith(first));
  if (!c) throw new Error(`no contact ${first}`);
  return c.email;
};
const emails = PEOPLE.map(emailOf);

const toMin = (hhmm) => +hhmm.slice(0, 2) * 60 + +hhmm.slice(3, 5);
const toText = (m) => `${String(Math.floor(m / 60)).padStart(2, "0")}:${String(m % 60).padStart(2, "0")}`;

let slot = null;
search: for (const day of DAYS) {
  const busy = await tools.calendar.free_busy({ emails, day });
  const blocks = Object.values(busy)
    .flat()
    .map(([s, e]) => [toMin(s), toMin(e)])
    .sort((a, b) => a[0] - b[0]);
  for (let t = 9 * 60; t + DURATION <= 17 * 60; t += 30) {
    const clash = blocks.some(([s, e]) => t < e && s < t + DURATION);
    if (!clash) {
      slot = { day, start: toText(t), end: toText(t + DURATION) };
      break search;
    }
  }
}

if (!slot) {
  return "No common slot";
}

const event = await tools.calendar.create_event({
  title: "Planning",
  start: `${slot.day}T${slot.start}:00Z`,
  end: `${slot.day}T${slot.end}:00Z`,
  attendees: emails,
  location: slot.start < "12:00" ? "Room 4" : null,
});
for (const e of emails) {
  const name = contacts.find((c) => c.email === e).name.split(" ")[0];
  await tools.messages.send({ to: e, subject: event.title, body: `Hi ${name}, ${slot.day} at ${slot.start}${event.location ? ` in ${event.location}` : ""}.` });
}
return { ...slot, id: event.id, invited: event.attendees.map((a) => a.email) };
//// club-newsletter
const people = [];
for (let page = 1, more = true; more; page++) {
  const res = await tools.club.list_people({ page, per_page: 2 });
  people.push(...res.items);
  more = res.next_page != null;
}
const thread = await tools.club.get_thread({ id: 1 });
const walk = (p, f, d = 0) => { f(p, d); (p.replies || []).forEach((r) => walk(r, f, d + 1)); };
let posts = 0, likes = 0, top = thread;
walk(thread, (p) => {
  posts++;
  likes += p.likes;
  if (p.likes > top.likes) top = p;
});
const facilities = await tools.club.list_facilities();
const free = facilities.map((f) => {
  const base = { name: f.name, kind: f.kind };
  if (f.kind === "court") return { ...base, price: f.hourly };
  if (f.kind === "room") return { ...base, price: f.seats * 1.5 };
  return { ...base, price: f.needs_licence ? 80 : 50 };
});
const avg = free.reduce((s, f) => s + f.price, 0) / free.length;
const bookings = await tools.club.bookings_by_day();
const busiest = Object.entries(bookings).sort(([, a], [, b]) => b.length - a.length)[0];
const notice = (await tools.club.latest_notice()) ?? { title: "-", text: "" };
const inv = await tools.club.get_invoice({ number: people.length });
const lines = [
  `${people.length} members, ${people.filter((p) => p.level === "senior").length} seniors`,
  `${posts} posts, ${likes} likes, best by ${top.author}`,
  `average price ${avg.toFixed(1)}`,
  `busiest ${busiest[0]} with ${busiest[1].map((b) => b.facility).join(" and ")}`,
  `${notice.title}. ${notice.text}`,
  "error" in inv ? inv.error : `due ${inv.invoice.amount} ${inv.invoice.currency}`,
];
console.log(lines.join("\n"));
return lines;
