//// promise-methods
const p = tools.add({ a: 1, b: 2 });
return await p.then((n) => n * 2).finally(() => console.log("added"));
//// promise-instance
const maybe = tools.add({ a: 1, b: 2 });
return maybe instanceof Promise && typeof maybe.then === "function" ? await maybe : maybe;
//// promise-pending-once
let pending;
const cities = async () => {
  if (!pending) pending = tools.list_cities();
  return await pending;
};
await cities();
return (await cities()).length;
//// promise-pending-nullish
let job = null;
if (job) await job;
job ??= tools.list_cities();
return (await job)[0];
//// promise-cache-object
const cache = {};
function load(id) {
  return (cache[id] ??= tools.crm.get_contact({ id }));
}
const [a, b] = await Promise.all([load("c1"), load("c1")]);
return a === b && cache["c1"] === load("c1");
//// promise-cache-map
const cache = new Map();
function load(id) {
  let hit = cache.get(id);
  if (!hit) {
    hit = tools.crm.get_contact({ id });
    cache.set(id, hit);
  }
  return hit;
}
return (await load("c1")).name + (await load("c1")).id;
//// promise-conditional-return
const fetchSum = (wanted) => (wanted ? tools.add({ a: 1, b: 2 }) : null);
const sum = await fetchSum(true);
const none = await fetchSum(false);
return [sum, none];
//// promise-object-values
const jobs = { sum: tools.add({ a: 1, b: 2 }), cities: tools.list_cities() };
const values = await Promise.all(Object.values(jobs));
return Object.fromEntries(Object.keys(jobs).map((key, i) => [key, values[i]]));
//// promise-mixed-all
const [sum, five, nothing] = await Promise.all([tools.add({ a: 1, b: 2 }), 5, null]);
return [sum, five, nothing];
//// promise-variable-kept
let reading = tools.weather.current({ city: "Oslo" });
console.log("waiting");
reading = await reading;
return reading.temperature;
//// promise-helper-awaits
async function timed(label, promise) {
  const value = await promise;
  console.log(label);
  return value;
}
const w = await timed("weather", tools.weather.current({ city: "Oslo" }));
return w.city;
//// promise-thunks
const tasks = ["Oslo", "Bergen"].map((city) => () => tools.weather.current({ city }));
const out = [];
for (const task of tasks) out.push((await task()).city);
return out;
//// promise-queue-shift
const queue = ["Oslo", "Bergen", "Tromsø"];
const out = [];
async function worker() {
  let city;
  while ((city = queue.shift())) out.push((await tools.weather.current({ city })).city);
}
await Promise.all([worker(), worker()]);
return out.sort();
//// promise-then-list
const temperatures = await Promise.all((await tools.list_cities()).map((city) => tools.weather.current({ city }).then((w) => w.temperature)));
return Math.min(...temperatures);
//// promise-void
void tools.chat.send({ channel: "#ops", text: "hello" });
tools.chat.track({ event: "x" }).catch(() => {});
return "sent";
//// promise-in-list-later
const pairs = ["Oslo", "Bergen"].map((city) => ({ city, weather: tools.weather.current({ city }) }));
const out = [];
for (const { city, weather } of pairs) out.push(`${city} ${(await weather).temperature}`);
return out;
//// promise-await-in-arguments
return await tools.add({ a: await tools.add({ a: 1, b: 1 }), b: (await tools.list_cities()).length });
//// promise-await-non-promise
const cities = await tools.list_cities();
const first = await cities[0];
return await first.length;
//// promise-async-map-all
const orders = await tools.shop.list_orders();
const flags = await Promise.all(orders.map(async (o) => (await tools.shop.get_order({ id: o.id })).status === "paid"));
return orders.filter((_, i) => flags[i]).map((o) => o.id);
//// promise-console-settled
const p = tools.add({ a: 1, b: 1 });
console.log(await p, [await p], `${await p}`);
return JSON.stringify({ sum: await p });
//// promise-class-method
class Weather {
  constructor(private readonly api: typeof tools.weather) {}
  in = (city: string) => this.api.current({ city });
  async warmest(...cities: string[]) {
    const all = await Promise.all(cities.map(this.in));
    return all.sort((a, b) => b.temperature - a.temperature)[0].city;
  }
}
return await new Weather(tools.weather).warmest("Oslo", "Bergen");
