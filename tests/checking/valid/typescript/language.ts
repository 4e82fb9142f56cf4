//// lang-empty-array-object
const result = { items: [], errors: [] };
for (const city of ["Oslo", "Nowhere"]) {
  try {
    result.items.push(await tools.weather.current({ city }));
  } catch (e) {
    result.errors.push({ city, message: e.message });
  }
}
return [result.items.length, result.errors[0].city];
//// lang-array-in-closure
const seen = [];
["a", "b"].forEach((x) => { seen.push(x); });
const upper = seen.map((s) => s.toUpperCase());
return upper;
//// lang-array-literal-undefined
let latest;
const log = (x) => { latest = x; };
log(await tools.add({ a: 1, b: 1 }));
return latest + 1;
//// lang-object-from-array
const cities = await tools.list_cities();
const lengths = {};
for (let i = 0; i < cities.length; i++) lengths[cities[i]] = cities[i].length;
let best = "";
for (const c in lengths) if (!best || lengths[c] > lengths[best]) best = c;
return best;
//// lang-nested-grow
const tree = {};
for (const path of ["a/b", "a/c", "d"]) {
  let node = tree;
  for (const part of path.split("/")) {
    node[part] ??= {};
    node = node[part];
  }
}
return tree;
//// lang-variable-retyped
let limit = "10";
limit = parseInt(limit);
limit += 5;
let value = null;
value = { n: limit };
return value.n;
//// lang-variable-retyped-await
let data = tools.list_cities();
data = await data;
data = data.map((c) => c.length);
return data;
//// lang-parse-int-number
const n = parseInt(7.9) + parseFloat(1.5) + Number.parseInt("3px") + Number("4") + ~~"5.5";
return isNaN("x") ? n : isFinite("3") ? n : 0;
//// lang-unary-plus
const a = "3", b = "4";
return await tools.add({ a: +a, b: Number(b) });
//// lang-string-arithmetic
const parts = "10:30".split(":");
return parts[0] * 60 + +parts[1];
//// lang-boolean-arithmetic
const flags = [true, false, true];
return flags.reduce((n, f) => n + f, 0);
//// lang-date-now-arithmetic
const started = Date.now();
await tools.add({ a: 1, b: 1 });
const took = new Date() - started;
return took >= 0;
//// lang-json-numbers
const { a, b } = JSON.parse('{"a": 1, "b": 2}');
return await tools.add({ a, b });
//// lang-json-parse-non-string
return [JSON.parse(5), JSON.parse(null), JSON.parse(true)];
//// lang-math-strings
const nums = "3 9 4".split(" ");
return [Math.max(...nums), Math.min(...nums), Math.round("2.6")];
//// lang-encode-anything
return [encodeURIComponent(5), encodeURIComponent(null), encodeURI(["a b"]), escape("é")];
//// lang-array-from-map
const counts = new Map([["a", 2], ["b", 1]]);
return Array.from(counts, ([key, n]) => ({ key, n })).sort((x, y) => x.n - y.n);
//// lang-array-from-length
const grid = Array.from({ length: 2 }, () => Array(2).fill(0));
grid[1][0] = 5;
const blank = new Array(3).fill().map((_, i) => i);
return { grid, blank };
//// lang-fill-null
const slots = Array(3).fill(null);
slots[1] = { taken: true };
return slots.findIndex((s) => s?.taken);
//// lang-set-operations
const a = new Set([1, 2, 3]), b = new Set([2, 3, 4]);
return [[...a.intersection(b)], [...a.union(b)].length, a.isSubsetOf(b)];
//// lang-iterator-helpers
const evens = [1, 2, 3, 4, 5, 6].values().filter((n) => n % 2 === 0).map((n) => n * n).take(2).toArray();
return Iterator.from(new Set(evens)).reduce((a, b) => a + b);
//// lang-generator
function* chunk(items, size) {
  for (let i = 0; i < items.length; i += size) yield items.slice(i, i + size);
}
const sums = [];
for (const [a, b = 0] of chunk([1, 2, 3], 2)) sums.push(await tools.add({ a, b }));
return sums;
//// lang-generator-typed
function* range(from: number, to: number, step = 1): Generator<number, void, unknown> {
  for (let n = from; n < to; n += step) yield n;
}
return [...range(0, 10, 3)];
//// lang-labels
const grid = [[1, 2], [3, 4]];
let found;
outer: for (const [y, row] of grid.entries()) {
  for (const [x, n] of row.entries()) {
    if (n % 2) continue;
    if (n === 4) { found = { x, y }; break outer; }
  }
}
return found;
//// lang-bigint
const big = 2n ** 64n;
const half = BigInt(10) / 3n;
return { big, half: Number(half), sum: BigInt(Number.MAX_SAFE_INTEGER) + 2n };
//// lang-loops-over-texts
const told: any[] = [];
for (let city of await tools.list_cities()) {
  city = JSON.parse(`{"name":"${city}"}`);
  told.push(city.name);
}
const cities = await tools.list_cities();
for (const city of cities) told.push(city.name ?? city);
for (const city of cities) told.push(typeof city === "string" ? city : city.name);
for (const city of cities as any) told.push(city.name);
for (const line of JSON.parse(JSON.stringify(cities))) told.push(line.name);
cities.push({ name: "Home" });
for (const city of cities) told.push(city.name);
return told;
//// lang-error-classes
import { ToolError as Failure } from "corral";
const told: string[] = [];
for (const path of ["/none", "/nor"]) {
  try {
    await tools.files.read({ path });
  } catch (error: unknown) {
    if (error instanceof RateLimited) told.push(`${error.retryAfterSeconds}`);
    else if (error instanceof ToolError) told.push(error instanceof InvalidArguments ? "input" : error.code.toUpperCase());
    else if (error instanceof AccessDenied || !(error instanceof Failure)) throw new ToolError("cannot be read", { cause: error });
  }
}
return told;
//// lang-error-cause
try {
  try {
    await tools.files.read({ path: "/none" });
  } catch (cause) {
    throw new Error("could not load", { cause });
  }
} catch (e) {
  return [e.message, e.cause.message, e instanceof Error];
}
//// lang-error-code
const err = new Error("bad");
err.code = "E_BAD";
err.details = { n: 1 };
return [err.code, err.details.n, err.stack.length > 0];
//// lang-custom-error
class NotFound extends Error {
  constructor(public what: string) {
    super(`${what} not found`);
  }
}
try {
  throw new NotFound("x");
} catch (e) {
  if (e instanceof NotFound) return e.what;
  throw e;
}
//// lang-getter-object
const cart = {
  items: [{ price: 2, n: 3 }],
  get total() { return this.items.reduce((s, i) => s + i.price * i.n, 0); },
  add(price, n = 1) { this.items.push({ price, n }); return this; },
};
return cart.add(4).add(1, 2).total;
//// lang-class-fields
class Counter {
  counts = {};
  static #made = 0;
  constructor() { Counter.#made++; }
  add(key, by = 1) { this.counts[key] = (this.counts[key] ?? 0) + by; return this; }
  top() { return Object.entries(this.counts).sort(([, a], [, b]) => b - a)[0]; }
}
return new Counter().add("a").add("b", 3).top();
//// lang-class-generic
class Stack<T> {
  private items: T[] = [];
  push(...items: T[]): this { this.items.push(...items); return this; }
  pop(): T | undefined { return this.items.pop(); }
}
const top = new Stack<number>().push(1, 2).pop();
return top * 2;
//// lang-class-abstract
abstract class Shape {
  abstract area(): number;
  describe() { return `${this.constructor.name}: ${this.area()}`; }
}
class Square extends Shape {
  constructor(readonly side: number) { super(); }
  override area() { return this.side ** 2; }
}
return new Square(3).describe();
//// lang-class-implements-unknown
class Job implements Runnable {
  status = "new";
  async run() {
    this.status = "done";
    this.result = await tools.add({ a: 1, b: 2 });
  }
}
const job = new Job();
await job.run();
return [job.status, job.result];
//// lang-prototype
function Point(x, y) {
  this.x = x;
  this.y = y;
}
Point.prototype.norm = function () { return Math.hypot(this.x, this.y); };
return new Point(3, 4).norm();
//// lang-function-properties
function next() { return ++next.count; }
next.count = 0;
next();
return next();
//// lang-arguments
function total() {
  return Array.prototype.slice.call(arguments).reduce((a, b) => a + b, 0);
}
return total(1, 2, 3);
//// lang-optional-parameters
function greet(name, greeting) {
  return `${greeting || "Hello"}, ${name}`;
}
return greet("Ada");
//// lang-too-many-own-arguments
const square = (n) => n * n;
return [1, 2].map((n, i) => square(n, i));
//// lang-call-own-without-object
function page({ size = 10, from = 0 } = {}) {
  return [from, from + size];
}
return [page(), page({ size: 5 }), page({ from: 3 })];
//// lang-destructure-missing
const { a, b = 2, ...rest } = { a: 1, c: 3, d: 4 };
const [first, second = "none"] = ["x"];
const { deep: { value = 0 } = {} } = {};
return { a, b, rest, first, second, value };
//// lang-swap
let [x, y] = [1, "two"];
[x, y] = [y, x];
return [x, y];
//// lang-optional-chains
const data = JSON.parse('{"user": {"name": "Ada"}}');
return [data?.user?.name?.length, data.missing?.x, data.user.tags?.[0] ?? "no tag", data.run?.()];
//// lang-nullish-assign
const options = { depth: 0 };
options.depth ??= 5;
options.width ||= 3;
options.depth &&= 9;
return options;
//// lang-typeof-undefined
let total;
if (typeof total === "undefined") total = 0;
const env = typeof process !== "undefined" ? process.env.HOME : "sandbox";
return [total, env, typeof window === "undefined", typeof require];
//// lang-global-cache
globalThis.cache ??= {};
globalThis.cache.cities = globalThis.cache.cities || (await tools.list_cities());
return globalThis.cache.cities.length;
//// lang-enum
enum Priority { Low = 1, Medium, High }
const sent = await tools.chat.send({ channel: "#ops", text: Priority[Priority.High], priority: Priority.High });
return sent.ts;
//// lang-enum-values
enum Level { Info = "INFO", Error = "ERROR" }
const log = await tools.files.read({ path: "/logs/app.log" });
return Object.values(Level).map((level) => [level, log.split(level).length - 1]);
//// lang-const-enum-object
const Status = { OPEN: "open", CLOSED: "closed" } as const;
type Status = (typeof Status)[keyof typeof Status];
const count = async (state: Status) => (await tools.github.list_issues({ repo: "acme/house", state })).length;
return [await count(Status.OPEN), await count(Status.CLOSED)];
//// lang-generics
function groupBy<T, K extends string>(items: T[], key: (item: T) => K): Record<K, T[]> {
  return items.reduce((acc, item) => {
    (acc[key(item)] ||= []).push(item);
    return acc;
  }, {} as Record<K, T[]>);
}
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
const groups = groupBy(issues, (i) => i.state);
return groups.open.length;
//// lang-generics-untyped
const groupBy = (items, key) => items.reduce((acc, item) => ({ ...acc, [item[key]]: [...(acc[item[key]] || []), item] }), {});
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
return Object.entries(groupBy(issues, "state")).map(([state, list]) => [state, list.length]);
//// lang-generics-constraint
const pick = <T extends object, K extends keyof T>(object: T, ...keys: K[]): Pick<T, K> =>
  Object.fromEntries(keys.map((k) => [k, object[k]])) as Pick<T, K>;
const contact = await tools.crm.get_contact({ id: "c1" });
return pick(contact, "name", "status");
//// lang-return-type-wrong
async function names(): Promise<string> {
  const { data } = await tools.crm.find_contacts();
  return data.map((c) => c.name);
}
return (await names()).length;
//// lang-parameter-type-wrong
async function title(issue: { number: string }): Promise<string> {
  return (await tools.github.get_issue({ repo: "acme/house", number: issue.number })).title;
}
return await title({ number: 3 });
//// lang-annotation-narrow
const total: string = await tools.add({ a: 1, b: 2 });
return total + 1;
//// lang-as-unknown-as
const cities = (await tools.list_cities()) as unknown as { name: string }[];
return cities.map((c) => String(c).length);
//// lang-utility-types
type Reading = Awaited<ReturnType<typeof tools.weather.current>>;
const describe = (r: Pick<Reading, "city" | "temperature">): string => `${r.city} ${r.temperature}`;
return describe(await tools.weather.current({ city: "Oslo" }));
//// lang-parameters-type
type Query = Parameters<typeof tools.github.list_issues>[0];
const query: Query = { repo: "acme/house" };
query.state = "closed";
return (await tools.github.list_issues(query)).length;
//// lang-partial
const q: Partial<{ repo: string; state: "open" | "closed" }> = {};
q.repo = "acme/house";
return (await tools.github.list_issues(q)).length;
//// lang-type-guard
type Issue = { number: number; assignee?: { login: string } | null };
const isAssigned = (i: Issue): i is Issue & { assignee: { login: string } } => !!i.assignee;
const issues = await tools.github.list_issues({ repo: "acme/house" });
return issues.filter(isAssigned).map((i) => i.assignee.login);
//// lang-result-type
type Result<T> = { ok: true; value: T } | { ok: false; error: string };
async function attempt<T>(work: () => Promise<T>): Promise<Result<T>> {
  try {
    return { ok: true, value: await work() };
  } catch (e) {
    return { ok: false, error: e instanceof Error ? e.message : String(e) };
  }
}
const r = await attempt(() => tools.files.read({ path: "/none" }));
return r.ok ? r.value : r.error;
//// lang-result-unnarrowed
async function safe(promise) {
  try {
    return { data: await promise };
  } catch (error) {
    return { error };
  }
}
const { data, error } = await safe(tools.files.read({ path: "/none" }));
return error ? error.message : data.length;
//// lang-tuple-result
const to = async (p) => p.then((v) => [null, v]).catch((e) => [e, null]);
const [err, cities] = await to(tools.list_cities());
if (err) throw err;
return cities.length;
//// lang-sort-locale
const people = [{ name: "Åse" }, { name: "Bo" }, { name: undefined }];
people.sort((a, b) => (a.name ?? "").localeCompare(b.name ?? "", "nb", { sensitivity: "base" }));
return people.map((p) => p.name || "-");
//// lang-sort-keys
const order = { high: 0, medium: 1, low: 2 };
const tasks = [{ p: "low" }, { p: "high" }];
tasks.sort((a, b) => order[a.p] - order[b.p]);
return tasks[0].p;
//// lang-to-sorted
const nums = [3, 1, 2];
return [nums.toSorted(), nums.toReversed(), nums.with(0, 9), nums.findLast((n) => n < 3), nums.at(-1)];
//// lang-string-methods
const s = "  Hello, World  ";
return [s.trim().replaceAll("o", "0"), s.padStart(20, 0).length, "abc".at(-1), [..."héy"].length, "a-b".split("-").map((w) => w[0].toUpperCase() + w.slice(1))];
//// lang-regex-replace
const text = "2026-03-02 and 2026-04-01";
return text.replace(/(\d+)-(\d+)-(\d+)/g, (_, y, m, d) => `${d}.${m}.${y}`);
//// lang-regex-groups-replace
const re = /(?<first>\w+) (?<last>\w+)/u;
const { first, last } = re.exec("Ada Berg").groups;
return "Ada Berg".replace(re, "$<last>, $<first>") + first.length + last.length;
//// lang-intl
const n = 1234567.891;
return [n.toLocaleString("de-DE", { maximumFractionDigits: 1 }), new Intl.NumberFormat("en", { notation: "compact" }).format(n), new Intl.ListFormat("en").format(["a", "b"]), new Intl.PluralRules("en").select(2)];
//// lang-intl-options-const
const currency = { style: "currency", currency: "USD" };
return [(5).toLocaleString("en-US", currency), new Intl.NumberFormat("en-US", currency).format(5)];
//// lang-comma-for
let i, j;
const pairs = [];
for (i = 0, j = 3; i < j; i++, j--) pairs.push([i, j]);
return pairs;
//// lang-conditional-call
const verbose = false;
verbose && console.log("details");
const f = verbose ? console.log : () => {};
f("x", 1);
return "quiet";
//// lang-reduce-promise
const total = await [1, 2, 3].reduce(async (acc, n) => (await acc) + (await tools.add({ a: n, b: 0 })), Promise.resolve(0));
return total;
//// lang-reduce-object-literal
const cities = await tools.list_cities();
const stats = cities.reduce((acc, c) => {
  acc.count++;
  acc.names.push(c);
  acc.longest = c.length > acc.longest.length ? c : acc.longest;
  return acc;
}, { count: 0, names: [], longest: "" });
return stats.longest + stats.names.length;
//// lang-entries-from-entries
const prices = { a: 1, b: 2 };
const doubled = Object.fromEntries(Object.entries(prices).map(([k, v]) => [k, v * 2]));
doubled.c = 5;
return doubled.a + doubled.b + doubled.c;
//// lang-delete
const contact = await tools.crm.get_contact({ id: "c1" });
delete contact.email;
delete contact["phone"];
return Object.keys(contact).length;
//// lang-rename-keys
const { id: contactId, name: fullName, ...others } = await tools.crm.get_contact({ id: "c1" });
return { contactId, fullName, rest: Object.keys(others).length };
//// lang-symbol-iterator
const ids = {
  *[Symbol.iterator]() {
    yield "c1";
    yield "c3";
  },
};
const names = [];
for (const id of ids) names.push((await tools.crm.get_contact({ id })).name);
return names;
//// lang-proxy
const logged = new Proxy({}, { get: (_, key) => `prop ${String(key)}` });
return logged.anything;
//// lang-weakmap-symbol
const meta = new WeakMap();
const key = {};
meta.set(key, { n: 1 });
return meta.get(key).n;
//// lang-using
await using stack = new AsyncDisposableStack();
const log = [];
stack.defer(() => { log.push("closed"); });
log.push(await tools.add({ a: 1, b: 1 }));
return log;
//// lang-switch-true
const n = await tools.add({ a: 40, b: 2 });
switch (true) {
  case n > 100: return "big";
  case n > 10: return "medium";
  default: return "small";
}
//// lang-equality-loose
const a = "1";
if (a == 1 && null == undefined) return "equal";
return "different";
//// lang-compare-mixed
const values = [3, "10", "2"];
return values.sort((a, b) => a - b);
