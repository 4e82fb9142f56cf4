//// sql-total
const rows = await tools.sql.query({ sql: "SELECT * FROM orders" });
const total = rows.reduce((sum, row) => sum + row.total, 0);
return total.toFixed(2);
//// sql-count-row
const [{ count }] = await tools.sql.query({ sql: "SELECT count(*) AS count FROM orders" });
return count;
//// sql-first-field
const result = await tools.sql.query({ sql: "select count(*) from orders" });
return result[0].count > 3 ? "many" : "few";
//// sql-params-mixed
const rows = await tools.sql.query({ sql: "SELECT * FROM orders WHERE customer = ? AND total > ?", params: ["Ada", 10] });
return rows.map((r) => r.id);
//// sql-rows-typed
interface OrderRow { id: number; customer: string; total: number; status: string }
const rows: OrderRow[] = await tools.sql.query({ sql: "SELECT * FROM orders" });
const paid = rows.filter((r) => r.status === "paid");
return paid.map((r) => r.total).sort((a, b) => a - b);
//// sql-rows-as
const rows = (await tools.sql.query({ sql: "SELECT * FROM orders" })) as Array<{ customer: string; total: number }>;
const totals = new Map<string, number>();
rows.forEach((r) => totals.set(r.customer, (totals.get(r.customer) ?? 0) + r.total));
return [...totals].toSorted((a, b) => b[1] - a[1])[0][0];
//// sql-extend-rows
const rows = await tools.sql.query({ sql: "SELECT * FROM orders" });
for (const row of rows) {
  row.tax = row.total * 0.25;
  row.gross = row.total + row.tax;
}
return rows[0].gross;
//// sql-reduce-nested
const rows = await tools.sql.query({ sql: "SELECT * FROM orders" });
const pivot = rows.reduce((acc, { customer, status, total }) => {
  acc[customer] = acc[customer] || {};
  acc[customer][status] = (acc[customer][status] ?? 0) + total;
  return acc;
}, {});
return pivot.Ada.paid;
//// sql-reduce-array
const rows = await tools.sql.query({ sql: "SELECT * FROM orders" });
const running = rows.reduce((acc, row) => {
  acc.push((acc.at(-1) ?? 0) + row.total);
  return acc;
}, []);
return running[running.length - 1];
//// sql-by-month
const rows = await tools.sql.query({ sql: "SELECT * FROM orders" });
const months = {};
for (const row of rows) {
  const key = row.placed.substring(0, 7);
  if (!(key in months)) months[key] = { orders: 0, total: 0 };
  months[key].orders += 1;
  months[key].total += Number(row.total);
}
return Object.keys(months).sort().map((month) => ({ month, ...months[month] }));
//// sql-tables-record
const schema = await tools.sql.tables();
const out = [];
for (const [table, columns] of Object.entries(schema)) {
  out.push(`${table}(${columns.map((c) => `${c.name} ${c.type}${c.nullable ? "" : " NOT NULL"}`).join(", ")})`);
}
return out.sort();
//// sql-tables-member
const schema = await tools.sql.tables();
return schema.orders.length + schema["customers"].length;
//// sql-tables-keys-loop
const schema = await tools.sql.tables();
let columns = 0;
for (const table in schema) {
  if (Object.hasOwn(schema, table)) columns += schema[table].length;
}
return columns;
//// sql-join-shop
const [rows, orders] = await Promise.all([tools.sql.query({ sql: "SELECT * FROM orders" }), tools.shop.list_orders()]);
const byId = new Map(orders.map((o) => [o.id, o]));
return rows.filter((r) => byId.has(r.id + 10)).map((r) => ({ ...r, lines: byId.get(r.id + 10).lines.length }));
//// sql-alias-query
const query = tools.sql.query;
const run = async (sql: string, ...params: any[]) => await query({ sql, params });
const ada = await run("SELECT * FROM orders WHERE customer = ?", "Ada");
return ada.length;
//// metrics-tuples
const points = await tools.metrics.series({ name: "cpu" });
const values = points.map(([, value]) => value);
const { mean, high } = await tools.metrics.summary({ values });
return { mean, high, when: points.find((p) => p[1] === high)[0] };
//// metrics-loop-steps
const out: any = {};
for (const step of ["hour", "day"]) {
  const series = await tools.metrics.series({ name: "cpu", step, last: 2 });
  out[step] = series.length;
}
return out;
//// metrics-diffs
const series = await tools.metrics.series({ name: "mem", step: "hour", last: 5 });
const diffs = series.slice(1).map(([t, v], i) => ({ t, change: v - series[i][1] }));
return Math.max(...diffs.map((d) => d.change));
//// metrics-gaps
const series = await tools.metrics.series({ name: "mem", last: 4 });
const gaps = [];
for (let i = 1; i < series.length; i++) gaps.push((new Date(series[i][0]) - new Date(series[i - 1][0])) / 1000 / 60 / 60);
return gaps;
//// metrics-summary-set
const values = new Set([1, 2, 2, 3]);
return (await tools.metrics.summary({ values })).count;
//// metrics-summary-typed-array
const values = new Float64Array([1.5, 2.5]);
return (await tools.metrics.summary({ values: Array.from(values) })).mean;
//// metrics-summary-strings
const values = "1 2 3".split(" ");
return (await tools.metrics.summary({ values })).mean;
//// metrics-regions
const regions = await tools.metrics.by_region();
const rates = {};
for (const region of ["north", "south"]) {
  rates[region] = regions.sales[region] / regions.visits[region];
}
return rates;
//// metrics-regions-entries
const { sales, visits } = await tools.metrics.by_region();
const total = sales.north + sales.south;
return Object.entries(visits).map(([region, n]) => `${region}: ${n} (${Math.round((sales[region] / total) * 100)}%)`);
//// metrics-summary-own
const series = await tools.metrics.series({ name: "x", last: 9 });
const sorted = series.map((p) => p[1]).sort((a, b) => a - b);
const mid = Math.floor(sorted.length / 2);
const median = sorted.length % 2 ? sorted[mid] : (sorted[mid - 1] + sorted[mid]) / 2;
const mean = sorted.reduce((a, b) => a + b) / sorted.length;
const sd = Math.sqrt(sorted.map((v) => (v - mean) ** 2).reduce((a, b) => a + b, 0) / sorted.length);
return { median, mean, sd: +sd.toFixed(3) };
//// http-untyped-body
const res = await tools.http.fetch({ url: "https://api.example.com/users" });
if (!res.ok) throw new Error(`HTTP ${res.status}`);
return res.body.map((u) => u.name);
//// http-user-roles
const { body: user } = await tools.http.fetch({ url: "https://api.example.com/users/1" });
return user.roles.includes("admin") && user.active ? user.name.toUpperCase() : null;
//// http-parse-text
const res = await tools.http.fetch({ url: "https://api.example.com/text" });
const data = typeof res.body === "string" ? JSON.parse(res.body) : res.body;
return data.n * 2;
//// http-post-body
const res = await tools.http.fetch({
  url: "https://api.example.com/users",
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: `Bearer ${"x".repeat(3)}` },
  body: { name: "Cy", tags: new Set(["a"]), when: new Date(0) },
});
return [res.status, res.body.name, res.body.when];
//// http-post-json-string
const payload = { name: "Cy", age: undefined };
const res = await tools.http.fetch({ url: "https://api.example.com/users", method: "POST", body: JSON.stringify(payload) });
return JSON.parse(res.body).name;
//// http-headers-map
const headers = new Map([["accept", "application/json"]]);
headers.set("x-trace", crypto.randomUUID());
const res = await tools.http.fetch({ url: "https://api.example.com/users", headers });
return res.headers["content-type"];
//// http-query-mixed
const query = { page: 1, q: "ada", exact: true };
const res = await tools.http.fetch({ url: "https://api.example.com/users", query });
return res.status;
//// http-url-object
const url = new URL("/users/2", "https://api.example.com");
url.searchParams.set("verbose", 1);
const res = await tools.http.fetch({ url });
return [url.hostname, res.body.id];
//// http-url-params
const params = new URLSearchParams({ a: 1, b: "two" });
params.append("c", "3");
const res = await tools.http.fetch({ url: `https://api.example.com/users?${params}` });
return [res.ok, [...params.keys()], params.get("b").length];
//// http-methods-loop
const statuses = [];
for (const method of ["GET", "POST"]) {
  const r = await tools.http.fetch({ url: "https://api.example.com/users", method });
  statuses.push(r.status);
}
return statuses;
//// http-method-options-object
const options = { method: "PUT", body: { a: 1 }, timeout_seconds: 5 };
const res = await tools.http.fetch({ url: "https://api.example.com/users/1", ...options });
return res.body;
//// http-api-class
class Api {
  constructor(private base, readonly timeout = 10) {}
  async get(path) {
    const res = await tools.http.fetch({ url: `${this.base}${path}`, timeout_seconds: this.timeout });
    if (res.status === 404) return null;
    return res.body;
  }
}
const api = new Api("https://api.example.com");
const [user, nobody] = await Promise.all([api.get("/users/1"), api.get("/users/99")]);
return { user: user.name, nobody };
//// http-api-class-js
class Client {
  constructor(base) {
    this.base = base;
    this.calls = 0;
  }
  async get(path) {
    this.calls++;
    return (await tools.http.fetch({ url: this.base + path })).body;
  }
}
const client = new Client("https://api.example.com");
const users = await client.get("/users");
return [users.length, client.calls];
//// http-generic-get
async function get<T>(path: string): Promise<T> {
  const res = await tools.http.fetch({ url: "https://api.example.com" + path });
  return res.body as T;
}
type ApiUser = { id: number; name: string; roles: string[] };
const users = await get<ApiUser[]>("/users");
return users.map((u) => u.id);
//// http-error-cause
class HttpError extends Error {
  constructor(status, options) {
    super(`HTTP ${status}`, options);
    this.name = "HttpError";
    this.status = status;
  }
}
try {
  const res = await tools.http.fetch({ url: "https://api.example.com/nope" });
  if (!res.ok) throw new HttpError(res.status, { cause: res.body });
} catch (e) {
  return { name: e.name, status: e.status, cause: e.cause.error };
}
//// http-response-object
const res = await tools.http.fetch({ url: "https://api.example.com/users" });
const wrapped = new Response(JSON.stringify(res.body), { status: res.status, headers: res.headers });
const users = await wrapped.json();
return users[1].name;
//// http-backoff
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let delay = 1;
let attempt = 0;
let result;
while (!result && attempt < 5) {
  try {
    result = await tools.flaky({ attempt: ++attempt });
  } catch {
    await sleep(delay);
    delay *= 2;
  }
}
return { result, attempt };
//// http-echo-anything
const echoed = await tools.echo({ a: [1, { b: 2 }], when: new Date(0), none: undefined });
return echoed.a[1].b + Object.keys(echoed).length;
//// http-echo-no-argument
const nothing = await tools.echo();
return JSON.stringify(nothing);
//// http-echo-string
const s = await tools.echo("text");
return s.toUpperCase();
