//// state-class-typed
class Repo {
  private cache: Map<string, Awaited<ReturnType<typeof tools.retail.order_details>>> = new Map();
  async get(id: string) {
    let found = this.cache.get(id);
    if (!found) { found = await tools.retail.order_details({ order_id: id }); this.cache.set(id, found); }
    return found;
  }
}
const repo = new Repo();
return (await repo.get("o1")).items.length;
//// state-class-static
class Api {
  static calls = 0;
  static async order(id) { Api.calls++; return await tools.retail.order_details({ order_id: id }); }
}
const o = await Api.order("o1");
return [o.status, Api.calls];
//// state-argument-set-in-callback
let cheapest = null;
const flights = await tools.air.search_flights({ origin: "JFK", destination: "SEA", date: "d" });
flights.forEach((f) => { cheapest = f.flight_number; });
return await tools.air.flight_status({ flight_number: cheapest });
//// state-argument-undefined-set-in-callback
let id;
Object.entries(await tools.retail.all_customers()).forEach(([key, u]) => { if (u.name.first_name === "Ada") id = key; });
return (await tools.retail.get_customer({ user_id: id })).email;
//// state-argument-typed-null-set-in-callback
let id: string | null = null;
Object.entries(await tools.retail.all_customers()).forEach(([key, u]) => { if (u.name.first_name === "Ada") id = key; });
return (await tools.retail.get_customer({ user_id: id })).email;
//// state-argument-literal-set-in-callback
let cabin: "economy" | "business" | "none" = "none";
["economy"].forEach((c) => { cabin = c; });
return await tools.air.book({ user_id: "u", cabin, flights: ["HAT1"], passengers: [] });
//// state-argument-false-set-in-callback
let status = false;
await Promise.all([1].map(async () => { status = "open"; }));
return (await tools.search_tickets({ query: "x", status })).count;
//// state-flag-in-callback
let done = false;
await Promise.all(["o1"].map(async (id) => { const o = await tools.retail.order_details({ order_id: id }); if (o.status === "delivered") done = true; }));
if (done === true) return "done";
return "not done";
//// state-generator-sync
function* walk(node) { yield node; for (const c of node.children) yield* walk(c); }
const root = await tools.disk.tree();
return [...walk(root)].filter((n) => n.kind === "file").map((n) => n.name);
//// state-stack-with-path
const stack = [{ node: await tools.disk.tree(), path: "" }];
const found = [];
while (stack.length > 0) {
  const { node, path } = stack.pop();
  for (const child of node.children) stack.push({ node: child, path: `${path}/${node.name}` });
  if (node.size) found.push({ path: path + "/" + node.name, size: node.size });
}
return found.sort((a, b) => b.size - a.size)[0].path;
//// state-input-built-in-parts
const passengers = [];
passengers.push({ first_name: "Ada", last_name: "Berg", dob: "1990-01-01" });
const trip = {};
trip.flights = ["HAT1"];
Object.assign(trip, { user_id: "u1", cabin: "economy" });
trip.passengers = passengers;
return (await tools.air.book(trip)).total;
//// state-input-spread
const base = { user_id: "u1", cabin: "economy" };
const r = await tools.air.book({ ...base, flights: ["HAT1"], passengers: [] });
return r.total;
//// state-input-spread-changed
const base = {};
base.user_id = "u1";
base["cabin"] = "business";
const r = await tools.air.book({ ...base, flights: ["HAT1"], passengers: [] });
return r.cabin;
//// state-input-conditional-spread
const limit = 5;
return (await tools.broker.place_order({ symbol: "AAA", side: "buy", amount: 1, ...(limit && { limit }) })).order_id;
//// state-input-notes-undefined
const seat = undefined;
return (await tools.air.book({ user_id: "u", cabin: "economy", flights: ["HAT1"], passengers: [], notes: ["window", seat, undefined] })).total;
//// state-tools-dynamic
const calls = [["get_ticket", { ticket_id: 1 }], ["search_tickets", { query: "x" }]];
const out = {};
for (const [name, input] of calls) out[name] = await tools[name](input);
return out.get_ticket.subject + out.search_tickets.count;
//// state-class-accessor
class Counter {
  accessor count = 0;
  accessor names: string[] = [];
  async add() { this.count += (await tools.list_cities()).length; this.names.push("x"); }
}
const counter = new Counter();
await counter.add();
return counter.count + counter.names.length;
