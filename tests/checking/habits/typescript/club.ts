//// invoice-union
const res = await tools.club.get_invoice({ number: 7 });
if (res.error) return res.error;
const { amount, currency } = res.invoice;
return `${amount.toFixed(2)} ${currency}`;
//// invoice-direct
const inv = await tools.club.get_invoice({ number: 3 });
const due = new Date(inv.invoice.due);
return { amount: inv.invoice.amount * 1.25, month: due.getUTCMonth() + 1 };
//// invoice-loop-totals
let total = 0;
const missing: number[] = [];
for (const number of [1, 50, 101]) {
  const r = await tools.club.get_invoice({ number });
  if ("error" in r) { missing.push(number); continue; }
  total += r.invoice["amount"];
}
return { total, missing };
//// invoice-typed
interface Invoice { amount: number; currency: string; due: string }
const r = await tools.club.get_invoice({ number: 2 });
const invoice = r.invoice as Invoice;
return invoice.amount + 1;
//// invoice-typed-annotation
interface Invoice { amount: number; currency: string; due: string }
const r = await tools.club.get_invoice({ number: 2 });
const invoice: Invoice = r.invoice;
const invoices: Invoice[] = [invoice, (await tools.club.get_invoice({ number: 4 })).invoice];
return invoices.reduce((s, i) => s + i.amount, 0);
//// posts-union
const { results, message } = await tools.club.search_posts({ word: "tennis" });
if (message) return message;
return results.map((r) => `${r.author}: ${r.tags.join("/")}`);
//// posts-nothing
const found = await tools.club.search_posts({ word: "nothing" });
const posts = found.results ?? [];
return posts.length ? posts[0].author : found.message.toUpperCase();
//// posts-many-words
const words = ["tennis", "nothing", "sail"];
const all = (await Promise.all(words.map((word) => tools.club.search_posts({ word }))))
  .filter((r) => Array.isArray(r.results))
  .flatMap((r) => r.results);
const byAuthor = all.reduce((m, p) => ({ ...m, [p.author]: [...(m[p.author] ?? []), ...p.tags] }), {});
return byAuthor;
//// stats-mixed
const s = await tools.club.get_stats();
const share = Object.entries(s.by_level).map(([k, v]) => `${k}: ${Math.round((v / s.members) * 100)}%`);
return `${s.name.toUpperCase()} ${s.average_age.toFixed(1)} ${share.join(", ")}`;
//// stats-by-level-key
const { by_level, members } = await tools.club.get_stats();
return { seniors: by_level.senior, rest: members - by_level["senior"], levels: Object.keys(by_level).length };
//// poll-winner
const answers = await tools.club.poll_results({ id: 1 });
const winner = answers.reduce((a, b) => (b.votes > a.votes ? b : a));
return { winner: winner.answer, voters: winner.voters.map((v) => v.toLowerCase()), margin: answers[0].votes - answers[1].votes };
//// poll-sorted-loop
const answers = await tools.club.poll_results({ id: 1 });
answers.sort((a, b) => b.votes - a.votes);
let text = "";
for (const { answer, votes, voters } of answers) {
  text += `${answer.padEnd(10, ".")} ${"*".repeat(votes)} (${voters.join(", ")})\n`;
}
console.log(text);
return answers.map((a) => a.answer);
//// people-all-pages
const people = [];
let page = 1;
while (page) {
  const res = await tools.club.list_people({ page });
  people.push(...res.items);
  page = res.next_page;
}
return people.map((p) => p.name);
//// people-fees
const people: Person[] = [];
for (let page = 1; ; page++) {
  const { items, next_page } = await tools.club.list_people({ page, per_page: 3 });
  people.push(...items);
  if (!next_page) break;
}
const total = people.reduce((sum, p) => sum + parseFloat(p.fee), 0);
const chess = people.filter((p) => p.tags.includes("chess")).length;
return { total: total.toFixed(2), chess };
//// people-fee-number
const { items } = await tools.club.list_people({ per_page: 10 });
items.forEach((p) => {
  p.fee = Number(p.fee);
  p.years = new Date("2026-03-02").getFullYear() - new Date(p.joined).getFullYear();
  p.tags = new Set(p.tags);
});
const avg = items.reduce((s, p) => s + p.fee, 0) / items.length;
return { avg, oldest: Math.max(...items.map((p) => p.years)), sailors: items.filter((p) => p.tags.has("sail")).length };
//// people-by-level-enum
enum Level { Junior = "junior", Senior = "senior", Honorary = "honorary" }
const counts = {};
for (const level of Object.values(Level)) {
  const res = await tools.club.list_people({ level, per_page: 10 });
  counts[level] = res.total;
}
return counts;
//// people-level-strings
const levels = ["junior", "senior", "honorary"];
const lists = await Promise.all(levels.map((level) => tools.club.list_people({ level, per_page: 50 })));
return Object.fromEntries(levels.map((l, i) => [l, lists[i].items.map((p) => p.name.split(" ")[0])]));
//// people-contacts-null
const { items } = await tools.club.list_people({ per_page: 10 });
return items.map((p) => p.contacts?.[0] ?? `${p.name.toLowerCase().replace(" ", ".")}@example.com`);
//// people-birthday
const { items } = await tools.club.list_people({ per_page: 10 });
const withBirthday = items.filter((p) => p.birthday);
const [y, m, d] = withBirthday[0].birthday.split("-").map(Number);
return new Date(Date.UTC(2026, m - 1, d)).toISOString().slice(5, 10) + ` (${2026 - y})`;
//// member-hyphens
const m = await tools.club.get_member({ number: 2 });
const { "full-name": name, "joined-on": joined, level } = m;
return `${name} (${level}) since ${joined.slice(0, 4)}, contact ${m["emergency-contact"] ?? "none"}`;
//// thread-count
const thread = await tools.club.get_thread();
const count = (post) => 1 + post.replies.reduce((n, r) => n + count(r), 0);
return count(thread);
//// thread-flatten-typed
function flatten(post: Post, depth = 0): { depth: number; author: string; likes: number }[] {
  return [{ depth, author: post.author, likes: post.likes ?? 0 }, ...(post.replies ?? []).flatMap((r) => flatten(r, depth + 1))];
}
const rows = flatten(await tools.club.get_thread({ id: 9 }));
return rows.map((r) => "  ".repeat(r.depth) + r.author).join("\n");
//// thread-stack
const stack = [await tools.club.get_thread()];
let likes = 0;
while (stack.length) {
  const post = stack.pop();
  likes += post.likes;
  stack.push(...post.replies);
}
return likes;
//// thread-own-interface
interface Node { id: number; author: string; text: string; likes: number; replies: Node[] }
const root: Node = await tools.club.get_thread();
const authors = new Set<string>();
(function visit(n: Node) { authors.add(n.author); n.replies.forEach(visit); })(root);
return [...authors];
//// facilities-switch
const all = await tools.club.list_facilities();
const describe = all.map((f) => {
  switch (f.kind) {
    case "court": return `${f.name} (${f.surface}, ${f.hourly}/h)`;
    case "room": return `${f.name} (${f.seats} seats${f.equipment.length ? ", " + f.equipment.join("+") : ""})`;
    case "boat": return `${f.name} (${f.length_m} m${f.needs_licence ? ", licence" : ""})`;
  }
});
return describe;
//// facilities-filter-by-kind
const all = await tools.club.list_facilities();
const courts = all.filter((f) => f.kind === "court");
const cheapest = courts.sort((a, b) => a.hourly - b.hourly)[0];
const seats = all.filter((f) => f.kind === "room").reduce((s, r) => s + r.seats, 0);
return { cheapest: cheapest.name, seats };
//// facilities-guess-members
const all = await tools.club.list_facilities();
return all.filter((f) => f.seats > 10 || f.hourly < 20).map((f) => f.name);
//// facilities-in-and-guess
const all = await tools.club.list_facilities();
const out = [];
for (const f of all) {
  if ("seats" in f) out.push(`${f.name}:${f.seats}`);
  else if (f.hourly) out.push(`${f.name}:${f.hourly}`);
  else out.push(`${f.name}:${f.length_m ?? "?"}`);
}
return out;
//// facilities-priced
const all = await tools.club.list_facilities();
const priced = all.map((f) => ({ ...f, price: f.hourly ?? (f.seats ? f.seats * 2 : 100) }));
priced.sort((a, b) => a.price - b.price);
return priced.map((f) => [f.name, f.price]);
//// facilities-group
const all = await tools.club.list_facilities();
const groups = all.reduce((g, f) => { (g[f.kind] = g[f.kind] || []).push(f); return g; }, {});
for (const kind in groups) groups[kind] = groups[kind].map((f) => f.name);
return groups;
//// bookings-flat
const days = await tools.club.bookings_by_day();
const rows = [];
for (const [day, list] of Object.entries(days)) {
  for (const b of list) rows.push({ day, ...b, free: b.who === null });
}
rows.sort((a, b) => a.hour - b.hour);
return rows.filter((r) => !r.free).map((r) => `${r.day} ${String(r.hour).padStart(2, "0")}:00 ${r.who.split(" ")[0]}`);
//// bookings-next-hour
const days = await tools.club.bookings_by_day();
const first = days["2026-03-02"][0];
const next = first.hour + 1;
const [ok, detail] = await tools.club.book_facility({ name: first.facility, day: "2026-03-02", hour: next });
return ok ? { ref: detail, until: `${next + 1}:00` } : detail;
//// booking-tuple
const result = await tools.club.book_facility({ name: "North", day: "2026-03-05", hour: 7 });
if (!result[0]) {
  const retry = await tools.club.book_facility({ name: "North", day: "2026-03-05", hour: 8, hours: 2 });
  return { success: retry[0], reference: retry[1].split("-").slice(1) };
}
return result;
//// booking-guess-object
const res = await tools.club.book_facility({ name: "North", day: "2026-03-05", hour: 9 });
const ok = Array.isArray(res) ? res[0] : res.success;
return ok;
//// lottery-numbers
const wins = await tools.club.lottery({ tickets: [1, 2, 4] });
let sum = 0;
for (const [ticket, amount] of Object.entries(wins)) {
  if (amount) sum += amount;
}
return { sum, two: wins[2], one: wins["1"] ?? "nothing" };
//// lottery-nulls
const wins = await tools.club.lottery({ tickets: [2, 3] });
const total = Object.values(wins).reduce((a, b) => a + (b || 0), 0);
const best = Object.keys(wins).sort((a, b) => wins[b] - wins[a])[0];
return [total, best];
//// notice-nullable
const notice = await tools.club.latest_notice();
return notice ? `${notice.title}: ${notice.text}` : "no notice";
//// notice-unchecked
const { title, text } = await tools.club.latest_notice();
return title.length + text.length;
//// notice-undefined-member
const notice = await tools.club.latest_notice();
if (!notice) return null;
return { title: notice.title, author: notice.author ?? "board", words: notice.text.split(" ").length };
//// door-error
const r = await tools.gate.open_door({ door: "back" });
if (r.error) {
  console.log("Failed:", r.error);
  return false;
}
return r.status;
//// door-extra-members
const r = await tools.gate.open_door({ door: "front" });
return `${r.status} for ${r.seconds}s by ${r.by}`;
//// door-time
const r = await tools.gate.open_door({ door: "front" });
const closes = new Date(new Date(r.opened_at).getTime() + (r.seconds ?? 5) * 1000);
return closes.toISOString();
//// sensor-battery
const s = await tools.gate.sensor({ name: "hall" });
const warning = s.battery?.low ? "low battery" : "ok";
return { value: s.value.toFixed(1) + s.unit, warning };
//// sensor-battery-direct
const names = ["hall", "attic"];
const readings = await Promise.all(names.map((name) => tools.gate.sensor({ name })));
const lowest = readings.sort((a, b) => a.battery.level - b.battery.level)[0];
return `${lowest.name}: ${lowest.battery.level}% at ${Math.round(lowest.value)}`;
//// devices-optional-members
const { devices } = await tools.gate.list_devices({});
const lamps = devices.filter((d) => d.kind === "lamp" && d.online);
const watts = lamps.reduce((s, d) => s + d.watts, 0);
return { lamps: lamps.map((d) => d.id.toUpperCase()), watts };
//// devices-count-member
const res = await tools.gate.list_devices();
if (res.count !== res.devices.length) throw new Error("count differs");
for (const d of res.devices) {
  const done = await tools.gate.set_device({ id: d.id, options: { on: d.kind !== "lock" } });
  d.applied = done.applied.on;
}
return res.devices.filter((d) => d.applied).length;
//// history-array-or-object
const h = await tools.gate.history({ day: "today" });
if (Array.isArray(h)) return h.map((e) => `${e.time} ${e.what}`);
return h.message;
//// history-assumed-array
const h = await tools.gate.history({ day: "today" });
return h.filter((e) => e.what.includes("alarm")).length;
//// history-message
const h = await tools.gate.history({ day: "yesterday" });
return h.message ? h.message : h[0].what;
//// history-length-guess
const h = await tools.gate.history({ day: "yesterday" });
if (!h.length) return "nothing";
return h.map((e) => e.time);
//// report-parsed
const report = JSON.parse(await tools.gate.report({ day: "2026-03-01" }));
const busiest = Object.entries(report.doors).sort((a, b) => b[1] - a[1])[0][0];
return { day: report.day, busiest, each: report.visits / Object.keys(report.doors).length };
//// report-reassigned
let report = await tools.gate.report({ day: "2026-03-01" });
report = JSON.parse(report);
report.average = report.visits / 2;
return report.average;
//// report-let-then-loop
let data;
try {
  data = JSON.parse(await tools.gate.report({ day: "x" }));
} catch (e) {
  data = { visits: 0, doors: {} };
}
const doors: [string, number][] = Object.entries(data.doors);
return doors.map(([d, n]) => `${d}=${n}`).join("&");
