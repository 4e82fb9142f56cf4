//// lang-variable-retyped-await
let data = tools.list_cities();
data = await data;
data = data.map((c) => c.length);
return data;
//// lang-unary-plus
const a = "3", b = "4";
return await tools.add({ a: +a, b: Number(b) });
//// lang-string-arithmetic
const parts = "10:30".split(":");
return parts[0] * 60 + +parts[1];
//// lang-boolean-arithmetic
const flags = [true, false, true];
return flags.reduce((n, f) => n + f, 0);
//// lang-encode-anything
return [encodeURIComponent(5), encodeURIComponent(null), encodeURI(["a b"]), escape("é")];
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
//// lang-generics-untyped
const groupBy = (items, key) => items.reduce((acc, item) => ({ ...acc, [item[key]]: [...(acc[item[key]] || []), item] }), {});
const issues = await tools.github.list_issues({ repo: "acme/house", state: "all" });
return Object.entries(groupBy(issues, "state")).map(([state, list]) => [state, list.length]);
//// lang-generics-constraint
const pick = <T extends object, K extends keyof T>(object: T, ...keys: K[]): Pick<T, K> =>
  Object.fromEntries(keys.map((k) => [k, object[k]])) as Pick<T, K>;
const contact = await tools.crm.get_contact({ id: "c1" });
return pick(contact, "name", "status");
//// lang-parameter-type-wrong
async function title(issue: { number: string }): Promise<string> {
  return (await tools.github.get_issue({ repo: "acme/house", number: issue.number })).title;
}
return await title({ number: 3 });
//// lang-partial
const q: Partial<{ repo: string; state: "open" | "closed" }> = {};
q.repo = "acme/house";
return (await tools.github.list_issues(q)).length;
//// lang-regex-groups-replace
const re = /(?<first>\w+) (?<last>\w+)/u;
const { first, last } = re.exec("Ada Berg").groups;
return "Ada Berg".replace(re, "$<last>, $<first>") + first.length + last.length;
//// lang-delete
const contact = await tools.crm.get_contact({ id: "c1" });
delete contact.email;
delete contact["phone"];
return Object.keys(contact).length;
//// lang-rename-keys
const { id: contactId, name: fullName, ...others } = await tools.crm.get_contact({ id: "c1" });
return { contactId, fullName, rest: Object.keys(others).length };
//// lang-proxy
const logged = new Proxy({}, { get: (_, key) => `prop ${String(key)}` });
return logged.anything;
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
