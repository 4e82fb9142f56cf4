//// calendar-date-argument
const now = new Date(await tools.now());
const tomorrow = new Date(now);
tomorrow.setDate(tomorrow.getDate() + 1);
const events = await tools.calendar.list_events({ start: now, end: tomorrow });
return events.length;
//// calendar-create-dates
const start = new Date(Date.UTC(2026, 2, 3, 10));
const event = await tools.calendar.create_event({ title: "Plan", start, end: new Date(+start + 3600e3), reminder_minutes: 0 });
return event.end;
//// calendar-create-temporal
const day = Temporal.PlainDate.from("2026-03-03");
const start = day.toZonedDateTime({ timeZone: "UTC", plainTime: "09:00" }).toInstant();
const event = await tools.calendar.create_event({ title: "Plan", start: start.toString(), end: start.add({ minutes: 45 }) });
return event.title;
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
//// weather-forecast-days-string
let days = "5";
days = parseInt(days);
const f = await tools.weather.forecast({ city: "Oslo", days });
return f.days.length;
//// weather-history
const history = await tools.weather.history({ city: "Tromsø" });
const asObject = Object.fromEntries(history);
const [firstDate, firstTemp] = history[0];
return { firstDate, firstTemp, n: Object.keys(asObject).length };
//// weather-history-map
const temps = new Map(await tools.weather.history({ city: "Oslo" }));
return temps.get("2025-04-01") - temps.get("2025-01-01");
