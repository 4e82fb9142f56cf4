//// sql-params-mixed
const rows = await tools.sql.query({ sql: "SELECT * FROM orders WHERE customer = ? AND total > ?", params: ["Ada", 10] });
return rows.map((r) => r.id);
//// sql-rows-as
const rows = (await tools.sql.query({ sql: "SELECT * FROM orders" })) as Array<{ customer: string; total: number }>;
const totals = new Map<string, number>();
rows.forEach((r) => totals.set(r.customer, (totals.get(r.customer) ?? 0) + r.total));
return [...totals].toSorted((a, b) => b[1] - a[1])[0][0];
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
//// sql-tables-keys-loop
const schema = await tools.sql.tables();
let columns = 0;
for (const table in schema) {
  if (Object.hasOwn(schema, table)) columns += schema[table].length;
}
return columns;
//// sql-alias-query
const query = tools.sql.query;
const run = async (sql: string, ...params: any[]) => await query({ sql, params });
const ada = await run("SELECT * FROM orders WHERE customer = ?", "Ada");
return ada.length;
//// metrics-summary-set
const values = new Set([1, 2, 2, 3]);
return (await tools.metrics.summary({ values })).count;
//// metrics-summary-strings
const values = "1 2 3".split(" ");
return (await tools.metrics.summary({ values })).mean;
//// http-headers-map
const headers = new Map([["accept", "application/json"]]);
headers.set("x-trace", crypto.randomUUID());
const res = await tools.http.fetch({ url: "https://api.example.com/users", headers });
return res.headers["content-type"];
//// http-url-params
const params = new URLSearchParams({ a: 1, b: "two" });
params.append("c", "3");
const res = await tools.http.fetch({ url: `https://api.example.com/users?${params}` });
return [res.ok, [...params.keys()], params.get("b").length];
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
//// http-echo-anything
const echoed = await tools.echo({ a: [1, { b: 2 }], when: new Date(0), none: undefined });
return echoed.a[1].b + Object.keys(echoed).length;
