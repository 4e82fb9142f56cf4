//// events-today
const now = await tools.get_current_time();
const today = now.split("T")[0];
const events = await tools.calendar.list_events({ start: today });
return events.map((e) => `${e.start.slice(11, 16)} ${e.title}${e.location ? ` @ ${e.location}` : ""}`);
//// events-week-dates
const start = new Date("2026-03-02");
const end = new Date(start);
end.setDate(start.getDate() + 4);
const events = await tools.calendar.list_events({
  start: start.toISOString().split("T")[0],
  end: end.toISOString().split("T")[0],
});
const hours = events.reduce((h, e) => h + (new Date(e.end) - new Date(e.start)) / 36e5, 0);
return `${events.length} events, ${hours} hours`;
//// events-date-mutated
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
for (const e of events) {
  e.start = new Date(e.start);
  e.end = new Date(e.end);
  e.minutes = (e.end - e.start) / 60000;
}
events.sort((a, b) => b.minutes - a.minutes);
return { longest: events[0].title, minutes: events[0].minutes, hour: events[0].start.getUTCHours() };
//// events-date-mapped
const events = (await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" })).map((e) => ({
  ...e,
  start: new Date(e.start),
  end: new Date(e.end),
}));
const byDay = {};
events.forEach((e) => {
  const day = e.start.toISOString().substring(0, 10);
  byDay[day] = byDay[day] ? byDay[day] + 1 : 1;
});
return byDay;
//// conflicts
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
const conflicts = [];
for (let i = 0; i < events.length; i++) {
  for (let j = i + 1; j < events.length; j++) {
    const [a, b] = [events[i], events[j]];
    if (a.start < b.end && b.start < a.end) conflicts.push([a.title, b.title]);
  }
}
return conflicts;
//// attendees-set
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
const people = new Set<string>();
for (const { attendees } of events) for (const a of attendees) people.add(a.email);
return Array.from(people).sort();
//// attendees-responses
const events = await tools.calendar.list_events({ start: "2026-03-04" });
const counts = { yes: 0, no: 0, maybe: 0, pending: 0 };
events.flatMap((e) => e.attendees).forEach((a) => counts[a.response ?? "pending"]++);
return counts;
//// attendees-name-guess
const [event] = await tools.calendar.list_events({ start: "2026-03-03" });
return event.attendees.map((a) => a.name ?? a.displayName ?? a.email.split("@")[0]);
//// recurrence-optional
const events = await tools.calendar.list_events({ start: "2026-03-02" });
return events.map((e) => `${e.title}: ${e.recurrence?.toUpperCase() ?? "once"}`);
//// create-at-free-slot
const day = "2026-03-04";
const emails = ["ada@example.com", "ben@example.com"];
const busy = await tools.calendar.free_busy({ emails, day });
const slots = ["09:00", "14:30", "15:00", "16:30"];
const free = slots.find((s) => !emails.some((e) => busy[e].some(([from, to]) => s >= from && s < to)));
const start = new Date(`${day}T${free}:00Z`);
const event = await tools.calendar.create_event({
  title: "Sync",
  start: start.toISOString(),
  end: new Date(+start + 30 * 60 * 1000).toISOString(),
  attendees: emails,
});
return { id: event.id, start: event.start, invited: event.attendees.length };
//// create-with-date-objects
const start = new Date("2026-03-05T10:00:00Z");
const end = new Date(start.getTime() + 3600000);
const e = await tools.calendar.create_event({ title: "Focus", start, end });
return [e.start, e.end];
//// busy-entries
const busy = await tools.calendar.free_busy({ emails: ["ada@example.com", "dee@example.com"], day: "2026-03-04" });
const minutes = ([from, to]: [string, string]) => {
  const toM = (t: string) => parseInt(t.slice(0, 2)) * 60 + parseInt(t.slice(3));
  return toM(to) - toM(from);
};
return Object.fromEntries(Object.entries(busy).map(([who, slots]) => [who, slots.reduce((s, x) => s + minutes(x), 0)]));
//// busy-string-array-helper
function overlaps(a: string[], b: string[]) {
  return a[0] < b[1] && b[0] < a[1];
}
const busy = await tools.calendar.free_busy({ emails: ["ada@example.com"], day: "2026-03-02" });
return busy["ada@example.com"].filter((slot) => overlaps(slot, ["09:30", "10:00"])).length;
//// weekday-names
const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const events = await tools.calendar.list_events({ start: "2026-03-02", end: "2026-03-04" });
return events.map((e) => `${days[new Date(e.start).getUTCDay()]}: ${e.title}`);
//// inbox-all-pages
let cursor = null;
const messages = [];
do {
  const page = await tools.messages.inbox({ cursor });
  messages.push(...page.messages);
  cursor = page.next_cursor;
} while (cursor);
return messages.length;
//// inbox-undefined-cursor
let cursor: string | undefined;
let unread = 0;
while (true) {
  const res = await tools.messages.inbox({ cursor, limit: 5 });
  unread += res.messages.filter((m) => !m.read).length;
  if (!res.next_cursor) break;
  cursor = res.next_cursor;
}
return { unread };
//// inbox-typed-null-cursor
async function fetchAll(): Promise<Message[]> {
  const all: Message[] = [];
  let cursor: string | null = null;
  do {
    const { messages, next_cursor }: { messages: Message[]; next_cursor: string | null } = await tools.messages.inbox({ cursor });
    all.push(...messages);
    cursor = next_cursor;
  } while (cursor !== null);
  return all;
}
const all = await fetchAll();
return all.filter((m) => m.subject === null).map((m) => m.id);
//// inbox-iterator-object
const pager = {
  async *[Symbol.asyncIterator]() {
    let cursor;
    while (true) {
      const page = await tools.messages.inbox(cursor ? { cursor } : {});
      for (const m of page.messages) yield m;
      if (!(cursor = page.next_cursor)) return;
    }
  },
};
const senders = {};
for await (const m of pager) senders[m.sender] = (senders[m.sender] ?? 0) + 1;
return senders;
//// inbox-page-guesses
const page = await tools.messages.inbox({ limit: 8 });
const list = page.messages || page.items || page.data || [];
const hasMore = page.has_more ?? page.next_cursor !== null;
return { n: list.length, hasMore };
//// deadlines-in-bodies
const { messages } = await tools.messages.inbox({ limit: 8 });
const deadlines = messages
  .map((m) => ({ id: m.id, due: m.body.match(/by (\d{4}-\d{2}-\d{2})/)?.[1] }))
  .filter((d) => d.due);
for (const d of deadlines) {
  const [y, mo, day] = d.due.split("-").map(Number);
  d.date = new Date(Date.UTC(y, mo - 1, day));
}
return deadlines.map((d) => [d.id, d.date.toISOString()]);
//// deadlines-match-bang
const { messages } = await tools.messages.inbox({ limit: 8 });
const found: Array<{ id: number; due: string }> = [];
for (const m of messages) {
  const match = /(\d{4}-\d{2}-\d{2})/.exec(m.body);
  if (match) found.push({ id: m.id, due: match[1] });
}
return found;
//// subject-lengths
const { messages } = await tools.messages.inbox({ limit: 8 });
const lengths = messages.map((m) => m.subject ? m.subject.length : 0);
const longest = messages.find((m) => m.subject?.length === Math.max(...lengths));
return longest.subject;
//// send-to-all
const contacts = JSON.parse(await tools.messages.export_contacts());
const results = [];
for (const c of contacts) {
  const text = await tools.messages.send({ to: c.email, subject: "Hi", body: `Hello ${c.name.split(" ")[0]}!` });
  results.push(text.match(/id: (\d+)/)[1]);
}
return results;
//// send-to-list
const contacts: { name: string; email: string; phone?: string }[] = JSON.parse(await tools.messages.export_contacts());
const withPhone = contacts.filter((c) => c.phone);
const sent = await tools.messages.send({ to: withPhone.map((c) => c.email), body: "Call me", subject: null });
return sent;
//// contact-from-text
const line = await tools.messages.find_contact({ name: "ben" });
const [, name, email] = line.match(/^(.*) <(.*)>$/);
const ok = await tools.messages.send({ to: email, body: `Dear ${name}, hello` });
return ok.startsWith("Message sent") ? email : "failed";
//// contact-json-or-text
const raw = await tools.messages.find_contact({ name: "cy" });
let contact;
try {
  contact = typeof raw === "string" ? JSON.parse(raw) : raw;
} catch {
  const i = raw.indexOf("<");
  contact = { name: raw.slice(0, i).trim(), email: raw.slice(i + 1, -1) };
}
return contact.email;
//// contact-object-guess
const found = await tools.messages.find_contact({ name: "ada" });
const email = found.email ?? found.match(/<(.+)>/)[1];
return email;
//// export-parse-if-string
let contacts = await tools.messages.export_contacts();
if (typeof contacts === "string") contacts = JSON.parse(contacts);
const phones = contacts.filter((c) => c.phone).map((c) => c.phone);
return phones;
//// retry-with-backoff
async function retry(fn, attempts = 5) {
  let lastError;
  for (let i = 0; i < attempts; i++) {
    try {
      return await fn();
    } catch (e) {
      lastError = e;
      await new Promise((r) => setTimeout(r, 10 * 2 ** i));
    }
  }
  throw lastError;
}
const r = await retry(() => tools.charge_card({ amount: 12.5 }));
return r.status;
//// retry-typed
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
async function withRetry<T>(op: () => Promise<T>, max = 3, delay = 5): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await op();
    } catch (error) {
      if (attempt >= max) throw error;
      const message = error instanceof Error ? error.message : String(error);
      console.log(`attempt ${attempt} failed: ${message}`);
      await sleep(delay * attempt);
    }
  }
}
const charged = await withRetry(() => tools.charge_card({ amount: 10, currency: "EUR" }));
return `${charged.status} ${charged.amount} ${charged.currency}`;
//// retry-while
let attempt = 0, charged = null;
while (!charged && attempt < 5) {
  attempt += 1;
  charged = await tools.charge_card({ amount: 5 }).catch((e) => {
    console.log("retrying:", e.message);
    return null;
  });
}
return { attempt, status: charged?.status };
//// error-code-check
try {
  await tools.messages.send({ to: "x@example.com", body: "  " });
  return "sent";
} catch (err) {
  if (err.code === "tool_failed" || err.name === "ToolError") return `tool said: ${err.message}`;
  return "other";
}
//// error-instanceof
const outcome: { ok: boolean; message?: string } = { ok: true };
try {
  await tools.retail.get_order({ order_id: "#W0" });
} catch (e: unknown) {
  outcome.ok = false;
  if (e instanceof Error) outcome.message = e.message;
} finally {
  console.log("checked");
}
return outcome;
//// custom-error-class
class OrderError extends Error {
  constructor(message, orderId) {
    super(message);
    this.name = "OrderError";
    this.orderId = orderId;
  }
}
async function load(id) {
  try {
    return await tools.retail.get_order({ order_id: id });
  } catch (e) {
    throw new OrderError(e.message, id);
  }
}
try {
  await load("#W77");
} catch (e) {
  return e instanceof OrderError ? `${e.name} ${e.orderId}: ${e.message}` : "?";
}
//// worker-pool
async function mapLimit(items, limit, fn) {
  const results = new Array(items.length);
  let next = 0;
  const workers = Array.from({ length: Math.min(limit, items.length) }, async () => {
    while (next < items.length) {
      const i = next++;
      results[i] = await fn(items[i], i);
    }
  });
  await Promise.all(workers);
  return results;
}
const orders = await mapLimit(["#W1001", "#W1002", "#W1003"], 2, (id) => tools.retail.get_order({ order_id: id }));
return orders.map((o) => o.status);
//// chunked
const ids = ["OPS-1", "OPS-2", "OPS-3", "OPS-4", "OPS-5"];
const chunk = <T,>(xs: T[], n: number): T[][] => xs.length ? [xs.slice(0, n), ...chunk(xs.slice(n), n)] : [];
const titles: string[] = [];
for (const part of chunk(ids, 2)) {
  const issues = await Promise.all(part.map((key) => tools.tickets.get_issue({ key })));
  titles.push(...issues.map((i) => i.fields.summary));
}
return titles.length;
//// promise-race-timeout
const timeout = (ms) => new Promise((_, reject) => setTimeout(() => reject(new Error("timeout")), ms));
const user = await Promise.race([tools.retail.get_user({ user_id: "mia_lund_4001" }), timeout(5000)]);
return user.email;
//// promise-any
const id = await Promise.any([
  tools.retail.look_up_user({ email: "x@example.com" }),
  tools.retail.look_up_user({ email: "omar@example.com" }),
]);
const { name } = await tools.retail.get_user({ user_id: id });
return name.last_name;
//// settled-typed-guards
const ids = ["#W1001", "#W0000"];
const results = await Promise.allSettled(ids.map((order_id) => tools.retail.get_order({ order_id })));
const ok = results
  .filter((r): r is PromiseFulfilledResult<any> => r.status === "fulfilled")
  .map((r) => r.value.order_id);
const bad = results.filter((r): r is PromiseRejectedResult => r.status === "rejected").map((r) => r.reason.message);
return { ok, bad };
//// named-parallel
const [user, events, { messages }, { watchlist }, rate] = await Promise.all([
  tools.retail.get_user({ user_id: "mia_lund_4001" }),
  tools.calendar.list_events({ start: "2026-03-02" }),
  tools.messages.inbox(),
  tools.trading.list_watched(),
  tools.get_exchange_rate({ base: "EUR", target: "USD" }),
]);
return { user: user.user_id, events: events.length, messages: messages.length, watchlist, rate };
//// object-of-promises
const pending = {
  inbox: tools.messages.inbox({ limit: 2 }),
  events: tools.calendar.list_events({ start: "2026-03-03" }),
};
const out = {};
for (const [k, p] of Object.entries(pending)) out[k] = await p;
return { inbox: out.inbox.messages.length, events: out.events.map((e) => e.title) };
//// arrow-with-tools-parameter
async (tools) => {
  const time = await tools.get_current_time();
  const day = new Date(time).toLocaleDateString("en-US", { weekday: "long", timeZone: "UTC" });
  return day;
};
//// typed-main-called
async function main(): Promise<{ total: number; names: string[] }> {
  const { messages } = await tools.messages.inbox({ limit: 4 });
  const names = messages.map((m: { sender: string }) => m.sender.split("@")[0]);
  return { total: messages.length, names };
}

return await main();
//// main-then-catch
async function main() {
  const events = await tools.calendar.list_events({ start: "2026-03-04" });
  console.log(`Found ${events.length} events`);
  for (const event of events) {
    console.log(`- ${event.title}: ${event.attendees.map((a) => a.email).join(", ")}`);
  }
}
main().catch(console.error);
//// main-process-exit
async function main() {
  const t = await tools.get_current_time();
  return t.substring(0, 4);
}
main().then((r) => console.log(r)).catch((e) => { console.error(e); process.exit(1); });
//// sender-enum-const
const enum Folder { Unread = "unread", Read = "read" }
const { messages } = await tools.messages.inbox({ limit: 8 });
const folders: Record<Folder, number[]> = { [Folder.Unread]: [], [Folder.Read]: [] };
for (const m of messages) folders[m.read ? Folder.Read : Folder.Unread].push(m.id);
return folders;
//// satisfies-config
const config = { limit: 4, subjects: true } satisfies { limit: number; subjects?: boolean };
const page = await tools.messages.inbox({ limit: config.limit });
return config.subjects ? page.messages.map((m) => m.subject ?? "(none)") : [];
//// tuple-sort-multi
const { messages } = await tools.messages.inbox({ limit: 8 });
const sorted = [...messages].sort((a, b) => a.sender.localeCompare(b.sender) || b.sent_at.localeCompare(a.sent_at));
return sorted.map(({ id, sender }) => `${id}:${sender[0]}`).join(" ");
//// to-sorted-at
const { messages } = await tools.messages.inbox({ limit: 8 });
const last = messages.toSorted((a, b) => Date.parse(b.sent_at) - Date.parse(a.sent_at)).at(0);
return { id: last.id, when: last.sent_at };
//// proxy-of-tools
const calls = [];
const traced: any = new Proxy({}, {
  get(_, name) {
    return (input) => {
      calls.push(String(name));
      return tools.messages[name](input);
    };
  },
});
await traced.inbox({ limit: 1 });
await traced.find_contact({ name: "ada" });
return calls;
//// dynamic-tool-name
const name = ["get", "current", "time"].join("_");
const t = await tools[name]();
const ns = "messages";
const page = await tools[ns]["inbox"]({ limit: 2 });
return [t.length, page.messages.length];
//// table-of-tools
const steps = [
  ["time", () => tools.get_current_time()],
  ["rate", () => tools.get_exchange_rate({ base: "EUR", target: "NOK" })],
];
const out = {};
for (const [label, step] of steps) out[label] = await step();
return out;
//// fenced-answer-with-prose
I'll read the inbox and count unread messages per sender.

```typescript
const { messages } = await tools.messages.inbox({ limit: 8 });
const unread = messages.filter((m) => !m.read);
const perSender = unread.reduce<Record<string, number>>((acc, m) => {
  acc[m.sender] = (acc[m.sender] ?? 0) + 1;
  return acc;
}, {});
return perSender;
```
