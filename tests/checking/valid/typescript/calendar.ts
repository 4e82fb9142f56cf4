//// calendar-today
const now = new Date(await tools.now());
const start = now.toISOString().split("T")[0];
const events = await tools.calendar.list_events({ start, end: start });
return events.map((e) => `${e.start.slice(11, 16)} ${e.title}`);
//// calendar-date-argument
const now = new Date(await tools.now());
const tomorrow = new Date(now);
tomorrow.setDate(tomorrow.getDate() + 1);
const events = await tools.calendar.list_events({ start: now, end: tomorrow });
return events.length;
//// calendar-durations
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const minutes = events.map((e) => (new Date(e.end) - new Date(e.start)) / 60000);
return { minutes, total: minutes.reduce((a, b) => a + b, 0) };
//// calendar-durations-get-time
const events = await tools.calendar.list_events({ start: "2026-03-02" });
let busy = 0;
for (const { start, end } of events) busy += new Date(end).getTime() - new Date(start).getTime();
return busy / 3_600_000;
//// calendar-overlaps
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const overlaps = [];
for (let i = 0; i < events.length; i++)
  for (let j = i + 1; j < events.length; j++)
    if (events[i].start < events[j].end && events[j].start < events[i].end) overlaps.push([events[i].id, events[j].id]);
return overlaps;
//// calendar-create
const start = new Date("2026-03-03T10:00:00Z");
const end = new Date(start.getTime() + 30 * 60 * 1000);
const event = await tools.calendar.create_event({ title: "1:1", start: start.toISOString(), end: end.toISOString(), attendees: ["ada@example.com"] });
return event.attendees[0].email;
//// calendar-create-dates
const start = new Date(Date.UTC(2026, 2, 3, 10));
const event = await tools.calendar.create_event({ title: "Plan", start, end: new Date(+start + 3600e3), reminder_minutes: 0 });
return event.end;
//// calendar-create-temporal
const day = Temporal.PlainDate.from("2026-03-03");
const start = day.toZonedDateTime({ timeZone: "UTC", plainTime: "09:00" }).toInstant();
const event = await tools.calendar.create_event({ title: "Plan", start: start.toString(), end: start.add({ minutes: 45 }) });
return event.title;
//// calendar-attendees
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const declined = events.flatMap((e) => e.attendees.filter((a) => a.response === "declined").map((a) => ({ event: e.title, who: a.email })));
const optional = events.some((e) => e.attendees.some((a) => a.optional));
return { declined, optional };
//// calendar-attendees-set
const emails = new Set();
for (const e of await tools.calendar.list_events({ start: "2026-03-02" })) for (const a of e.attendees) emails.add(a.email);
const event = await tools.calendar.create_event({ title: "All", start: "2026-03-04T09:00:00Z", end: "2026-03-04T10:00:00Z", attendees: [...emails] });
return event.attendees.length;
//// calendar-rooms
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const rooms = events.map((e) => e.location).filter(Boolean);
return rooms.map((r) => r.toUpperCase());
//// calendar-rooms-default
const events = await tools.calendar.list_events({ start: "2026-03-02" });
return events.map(({ title, location = "nowhere" }) => `${title} @ ${location ?? "nowhere"}`);
//// calendar-free-slots
const slots = await tools.calendar.free_slots({ day: "2026-03-02", minutes: 60 });
const toMinutes = (t) => {
  const [h, m] = t.split(":").map(Number);
  return h * 60 + m;
};
return slots.map(([from, to]) => toMinutes(to) - toMinutes(from)).filter((m) => m >= 90);
//// calendar-first-slot
const [[from, to]] = await tools.calendar.free_slots({ day: "2026-03-02" });
const event = await tools.calendar.create_event({ title: "Focus", start: `2026-03-02T${from}:00Z`, end: `2026-03-02T${to}:00Z` });
return new Date(event.start).getUTCHours();
//// calendar-slots-date
const day = new Date(Date.UTC(2026, 2, 2));
const slots = await tools.calendar.free_slots({ day });
return slots.length;
//// calendar-week
const monday = new Date("2026-03-02T00:00:00Z");
const days = Array.from({ length: 5 }, (_, i) => new Date(monday.getTime() + i * 864e5).toISOString().slice(0, 10));
const free = {};
for (const day of days) free[day] = (await tools.calendar.free_slots({ day })).length;
return free;
//// calendar-format
const events = await tools.calendar.list_events({ start: "2026-03-02" });
const options = { weekday: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" };
return events.map((e) => new Date(e.start).toLocaleString("en-GB", options));
//// calendar-format-intl
const formatter = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeZone: "UTC" });
const [event] = await tools.calendar.list_events({ start: "2026-03-02" });
const parts = Object.fromEntries(formatter.formatToParts(new Date(event.start)).map((p) => [p.type, p.value]));
return `${parts.month} ${parts.day}`;
//// calendar-days-until
const due = "2026-04-01";
const days = Math.ceil((Date.parse(due) - new Date(await tools.now())) / (1000 * 60 * 60 * 24));
return days;
//// calendar-date-compare
const now = new Date(await tools.now());
const events = await tools.calendar.list_events({ start: now });
const upcoming = events.filter((e) => new Date(e.start) > now);
const next = upcoming.sort((a, b) => a.start.localeCompare(b.start))[0];
return next?.title ?? "nothing";
//// calendar-maybe-date
let since = undefined;
const from = new Date(since ?? "2026-01-01");
const orders = await tools.shop.list_orders({ since: from });
return [from.getFullYear(), orders.length];
//// weather-coldest
const cities = await tools.list_cities();
const readings = await Promise.all(cities.map((city) => tools.weather.current({ city })));
const coldest = readings.reduce((a, b) => (a.temperature < b.temperature ? a : b));
return { city: coldest.city, temperature: coldest.temperature };
//// weather-sequential
const temps = [];
for (const city of await tools.list_cities()) {
  const w = await tools.weather.current({ city });
  temps.push({ city, temp: w.temperature });
}
temps.sort((x, y) => x.temp - y.temp);
return temps[0].city;
//// weather-for-each-then
const out = {};
const cities = await tools.list_cities();
await Promise.all(cities.map((city) => tools.weather.current({ city }).then((w) => { out[city] = w.conditions; })));
return out;
//// weather-then-chain
tools.weather.current({ city: "Oslo" })
  .then((w) => w.temperature)
  .catch((e) => e.message)
  .finally(() => console.log("done"));
//// weather-units
const units = ["metric", "imperial"];
const both = await Promise.all(units.map((u) => tools.weather.current({ city: "Oslo", units: u })));
return both.map((b) => b.temperature.toFixed(1));
//// weather-units-ternary
const fahrenheit = true;
const units = fahrenheit ? "imperial" : "metric";
const w = await tools.weather.current({ city: "Oslo", units });
return `${w.temperature}°${fahrenheit ? "F" : "C"}`;
//// weather-units-function
function unitsFor(country: string) {
  return country === "US" ? "imperial" : "metric";
}
return (await tools.weather.current({ city: "Oslo", units: unitsFor("US") })).temperature;
//// weather-units-lookup
const UNITS = { US: "imperial", NO: "metric" };
return (await tools.weather.current({ city: "Oslo", units: UNITS["NO"] })).wind.speed;
//// weather-alert-optional
const cities = await tools.list_cities();
const alerts = [];
for (const city of cities) {
  const { alert } = await tools.weather.current({ city });
  if (alert) alerts.push(`${city}: ${alert.toUpperCase()}`);
}
return alerts;
//// weather-wind
const { wind: { speed, direction } } = await tools.weather.current({ city: "Bergen" });
const names = ["N", "E", "S", "W"];
return `${speed} m/s ${names[Math.round(direction / 90) % 4]}`;
//// weather-conditions-switch
const advice = async (city) => {
  const { conditions } = await tools.weather.current({ city });
  switch (conditions) {
    case "rain": return "umbrella";
    case "snow": return "boots";
    case "fog": return "lights";
    default: return "nothing";
  }
};
return [await advice("Bergen"), await advice("Oslo")];
//// weather-conditions-map
const icons = { rain: "🌧", snow: "❄", sunny: "☀" };
const readings = await Promise.all(["Oslo", "Bergen"].map((city) => tools.weather.current({ city })));
return readings.map((r) => icons[r.conditions] || "?");
//// weather-forecast-max
const { days } = await tools.weather.forecast({ city: "Oslo", days: 5 });
const hottest = days.reduce((max, d) => (d.high > max.high ? d : max), days[0]);
return hottest.date;
//// weather-forecast-precipitation
const forecast = await tools.weather.forecast({ city: "Oslo" });
const total = forecast.days.map((d) => d.precipitation || 0).reduce((a, b) => a + b, 0);
const wet = forecast.days.filter((d) => d.precipitation > 0.2).length;
return { total, wet };
//// weather-forecast-days-string
let days = "5";
days = parseInt(days);
const f = await tools.weather.forecast({ city: "Oslo", days });
return f.days.length;
//// weather-forecast-clamped
const asked = "9";
const f = await tools.weather.forecast({ city: "Oslo", days: Math.min(asked, 7) });
return f.days.length;
//// weather-history
const history = await tools.weather.history({ city: "Tromsø" });
const asObject = Object.fromEntries(history);
const [firstDate, firstTemp] = history[0];
return { firstDate, firstTemp, n: Object.keys(asObject).length };
//// weather-history-years
const years = [2023, 2024, 2025];
const data = await Promise.all(years.map((year) => tools.weather.history({ city: "Oslo", year })));
const means = data.map((d) => d.reduce((s, [, t]) => s + t, 0) / d.length);
return Object.fromEntries(years.map((y, i) => [y, means[i]]));
//// weather-history-map
const temps = new Map(await tools.weather.history({ city: "Oslo" }));
return temps.get("2025-04-01") - temps.get("2025-01-01");
//// weather-errors-per-city
const report = {};
for (const city of ["Oslo", "Atlantis"]) {
  try {
    report[city] = (await tools.weather.current({ city })).temperature;
  } catch (e) {
    report[city] = `error: ${e.message}`;
  }
}
return report;
//// weather-catch-default
const safe = (city) => tools.weather.current({ city }).catch(() => null);
const results = (await Promise.all(["Oslo", "Atlantis", "Bergen"].map(safe))).filter((r) => r !== null);
return results.map((r) => r.city);
//// weather-catch-filter-boolean
const results = await Promise.all(["Oslo", "Atlantis"].map((city) => tools.weather.current({ city }).catch((e) => undefined)));
return results.filter(Boolean).map((r) => r.temperature);
//// weather-matrix
const cities = await tools.list_cities();
const forecasts = await Promise.all(cities.map((c) => tools.weather.forecast({ city: c, days: 2 })));
const matrix = forecasts.map((f) => f.days.map((d) => [d.low, d.high]));
const flat = matrix.flat(2);
console.table(matrix);
return [Math.min(...flat), Math.max(...flat)];
//// weather-console-table
const rows = (await Promise.all((await tools.list_cities()).map((city) => tools.weather.current({ city })))).map(({ city, temperature }) => ({ city, temperature }));
console.table(rows, ["city"]);
console.group("cities");
console.log("%s cities", rows.length);
console.groupEnd();
return rows.length;
