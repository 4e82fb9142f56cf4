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
//// promise-variable-kept
let reading = tools.weather.current({ city: "Oslo" });
console.log("waiting");
reading = await reading;
return reading.temperature;
//// promise-void
void tools.chat.send({ channel: "#ops", text: "hello" });
tools.chat.track({ event: "x" }).catch(() => {});
return "sent";
//// promise-await-non-promise
const cities = await tools.list_cities();
const first = await cities[0];
return await first.length;
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
