//// cheapest-direct
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
const withSeats = flights.filter((f) => f.status === "available" && f.available_seats.basic > 0);
withSeats.sort((a, b) => a.prices.basic - b.prices.basic);
const best = withSeats[0];
return { flight: best.flight_number, price: best.prices.basic, departs: best.departure };
//// cheapest-itinerary
const date = "2026-05-20";
const [direct, onestop] = await Promise.all([
  tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date }),
  tools.airline.connecting_flights({ origin: "OSL", destination: "TOS", date }),
]);

const itineraries = [
  ...direct.map((f) => ({ legs: [f], price: f.prices.economy })),
  ...onestop.map(([a, b]) => ({ legs: [a, b], price: a.prices.economy + b.prices.economy })),
].sort((a, b) => a.price - b.price);

const cheapest = itineraries[0];
return {
  flights: cheapest.legs.map((l) => l.flight_number),
  price: cheapest.price,
  stops: cheapest.legs.length - 1,
};
//// any-itinerary-list
const itineraries: any[] = [];
const direct = await tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
direct.forEach((d) => itineraries.push({ flights: [d], total: d.prices["business"] }));
const stops = await tools.airline.connecting_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
stops.forEach((pair) => itineraries.push({ flights: pair, total: pair.reduce((s, f) => s + f.prices["business"], 0) }));
const best = itineraries.reduce((m, x) => (x.total < m.total ? x : m));
return best.flights.map((f) => `${f.flight_number} ${f.departure}-${f.arrival}`).join(" / ");
//// cabin-loop
const flights = await tools.airline.direct_flights({ origin: "BGO", destination: "TOS", date: "2026-05-20" });
const cabins = ["basic", "economy", "business"];
const rows = [];
for (const f of flights) {
  for (const cabin of cabins) {
    if (f.available_seats[cabin] > 0) {
      rows.push({ flight: f.flight_number, cabin, price: f.prices[cabin] });
    }
  }
}
return rows;
//// cabin-as-const
const flights = await tools.airline.direct_flights({ origin: "BGO", destination: "TOS", date: "2026-05-20" });
const cabins = ["basic", "economy", "business"] as const;
const cheapest = Object.fromEntries(
  cabins.map((c) => [c, Math.min(...flights.map((f) => f.prices[c] ?? Infinity))])
);
return cheapest;
//// price-entries
const [flight] = await tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
let lowest = { cabin: "", price: Infinity };
for (const [cabin, price] of Object.entries(flight.prices)) {
  if (price < lowest.price) lowest = { cabin, price };
}
const rounded = Object.fromEntries(Object.entries(flight.prices).map(([k, v]) => [k, Math.round(v)]));
return { lowest, rounded };
//// book-and-check-ok
const user = await tools.retail.get_user({ user_id: "mia_lund_4001" });
const booking = await tools.airline.book({
  user_id: user.user_id,
  flight_numbers: ["COR101"],
  date: "2026-05-20",
  cabin: "economy",
  passengers: [{ first_name: user.name.first_name, last_name: user.name.last_name, dob: "1990-04-01" }],
  insurance: true,
});
if (!booking.ok) {
  return `Booking failed: ${booking.error}`;
}
return `Booked ${booking.reservation.reservation_id} for $${booking.total}`;
//// book-error-member
const res = await tools.airline.book({
  user_id: "omar_haddad_4002",
  flight_numbers: ["COR103"],
  date: "2026-05-20",
  cabin: "basic",
  passengers: [{ first_name: "Omar", last_name: "Haddad", dob: "1979-07-07" }],
});
if (res.error) {
  console.log("could not book:", res.error);
  return { booked: false, reason: res.error };
}
return { booked: true, id: res.reservation.reservation_id };
//// book-fallback-flights
async function tryBook(flightNumber, cabin) {
  const result = await tools.airline.book({
    user_id: "mia_lund_4001",
    flight_numbers: [flightNumber],
    date: "2026-05-20",
    cabin,
    passengers: [{ first_name: "Mia", last_name: "Lund", dob: "1990-04-01" }],
  });
  return result.ok ? result : null;
}

let booked = null;
for (const n of ["COR103", "COR105", "COR101"]) {
  booked = await tryBook(n, "basic");
  if (booked) break;
}
return booked ? { id: booked.reservation.reservation_id, leg: booked.reservation.legs[0].flight_number, total: booked.total } : "full";
//// book-with-variables
const passengers = [
  { first_name: "Mia", last_name: "Lund", dob: "1990-04-01" },
  { first_name: "Jon", last_name: "Lund", dob: "1988-11-23" },
];
const cabin = passengers.length > 2 ? "economy" : "basic";
const request = {
  user_id: "mia_lund_4001",
  flight_numbers: ["COR201"],
  date: "2026-05-20",
  cabin: cabin,
  passengers,
  baggages: 1,
};
const r = await tools.airline.book(request);
return r.total ?? r.error;
//// book-request-grown
const request = {
  user_id: "omar_haddad_4002",
  flight_numbers: [],
  date: "2026-05-20",
  cabin: "business",
  passengers: [],
};
const flights = await tools.airline.direct_flights({ origin: "TOS", destination: "OSL", date: request.date });
for (const f of flights) {
  request.flight_numbers.push(f.flight_number);
}
const old = await tools.airline.get_reservation({ reservation_id: "Q4ZKM1" });
for (const p of old.passengers) request.passengers.push(p);
request.baggages = old.baggages + 1;
const out = await tools.airline.book(request);
return out.ok && out.total;
//// passengers-of-reservation
const { passengers, legs, cabin, insurance } = await tools.airline.get_reservation({ reservation_id: "R8X2LQ" });
const names = passengers.map((p) => [p.first_name, p.last_name].join(" "));
const price = legs.reduce((s, l) => s + l.price, 0) * passengers.length;
return `${names.join(" and ")} in ${cabin}${insurance ? " insured" : ""}: ${price}`;
//// reservations-of-user
const reservations = await tools.airline.find_reservations({ user_id: "mia_lund_4001" });
const list = Object.values(reservations);
const upcoming = list
  .filter((r) => r.status !== "cancelled")
  .map((r) => ({ id: r.reservation_id, first: r.legs[0]?.date, bags: r.baggages || 0 }));
return upcoming.length ? upcoming : "No reservations";
//// reservations-entries
const reservations = await tools.airline.find_reservations({ user_id: "omar_haddad_4002" });
for (const [id, r] of Object.entries(reservations)) {
  for (const leg of r.legs) {
    const status = await tools.airline.get_flight_status({ flight_number: leg.flight_number, date: leg.date });
    leg.status = status;
  }
  console.log(id, r.legs.map((l) => `${l.flight_number}:${l.status}`).join(","));
}
//// cancel-if-insured
for (const id of ["R8X2LQ", "Q4ZKM1"]) {
  const r = await tools.airline.get_reservation({ reservation_id: id });
  if (r.insurance) {
    const done = await tools.airline.cancel_reservation({ reservation_id: id });
    console.log(`${id} -> ${done.status}`);
  } else {
    console.log(`${id} has no insurance; skipped`);
  }
}
return "done";
//// airport-lookup
const airports = await tools.airline.list_airports();
const byCity = new Map(airports.map((a) => [a.city, a.iata]));
const origin = byCity.get("Oslo");
const destination = byCity.get("Bergen");
const flights = await tools.airline.direct_flights({ origin, destination, date: "2026-05-20" });
return flights.length;
//// airport-object-lookup
const airports = await tools.airline.list_airports();
const codes = {};
airports.forEach((a) => { codes[a.city.toLowerCase()] = a.iata; });
const flights = await tools.airline.direct_flights({
  origin: codes["oslo"],
  destination: codes.tromsø,
  date: "2026-05-20",
});
return flights.map((f) => f.flight_number);
//// airport-find
const airports = await tools.airline.list_airports();
const from = airports.find((a) => a.city === "Oslo").iata;
const to = airports.find((a) => a.city === "Bergen")?.iata;
const flights = await tools.airline.direct_flights({ origin: from, destination: to, date: "2026-05-20" });
return flights.map(({ flight_number: number, departure, prices: { economy } }) => ({ number, departure, economy }));
//// all-pairs
const airports = await tools.airline.list_airports();
const pairs = airports.flatMap((a) => airports.filter((b) => b !== a).map((b) => [a.iata, b.iata]));
const results = await Promise.all(
  pairs.map(async ([origin, destination]) => {
    const flights = await tools.airline.direct_flights({ origin, destination, date: "2026-05-20" });
    return { route: `${origin}-${destination}`, count: flights.length, fastest: Math.min(...flights.map((f) => f.duration_minutes)) };
  })
);
return results.filter((r) => r.count > 0);
//// graph-search
type Edge = { to: string; price: number; flight: string };
const airports = await tools.airline.list_airports();
const graph: Map<string, Edge[]> = new Map();

for (const a of airports) {
  for (const b of airports) {
    if (a.iata === b.iata) continue;
    const flights = await tools.airline.direct_flights({ origin: a.iata, destination: b.iata, date: "2026-05-20" });
    for (const f of flights) {
      if (!graph.has(a.iata)) graph.set(a.iata, []);
      graph.get(a.iata)!.push({ to: b.iata, price: f.prices.basic!, flight: f.flight_number });
    }
  }
}

function cheapest(from: string, to: string, seen: Set<string> = new Set()): { price: number; path: string[] } | null {
  if (from === to) return { price: 0, path: [] };
  let best: { price: number; path: string[] } | null = null;
  for (const edge of graph.get(from) ?? []) {
    if (seen.has(edge.to)) continue;
    const rest = cheapest(edge.to, to, new Set([...seen, from]));
    if (rest && (!best || edge.price + rest.price < best.price)) {
      best = { price: edge.price + rest.price, path: [edge.flight, ...rest.path] };
    }
  }
  return best;
}

return cheapest("OSL", "TOS");
//// duration-format
const flights = await tools.airline.direct_flights({ origin: "BGO", destination: "TOS", date: "2026-05-20" });
const fmt = (m: number) => `${Math.floor(m / 60)}h ${String(m % 60).padStart(2, "0")}m`;
return flights.map((f) => `${f.flight_number}: ${fmt(f.duration_minutes)}`);
//// departure-window
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
const toMinutes = (t) => {
  const [h, m] = t.split(":").map(Number);
  return h * 60 + m;
};
const afternoon = flights.filter((f) => toMinutes(f.departure) >= 12 * 60);
const result = afternoon.map((f) => f.flight_number);
console.log(`${afternoon.length} afternoon flights:`, result);
result;
//// date-objects
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
const f = flights[0];
const dep = new Date(`${f.date}T${f.departure}:00Z`);
const arr = new Date(dep.getTime() + f.duration_minutes * 60_000);
return { dep: dep.toISOString(), arr: arr.toISOString(), diff: (arr - dep) / 60000 };
//// date-from-today
const today = new Date("2026-05-18");
const days = Array.from({ length: 4 }, (_, i) => {
  const d = new Date(today);
  d.setDate(d.getDate() + i);
  return d.toISOString().slice(0, 10);
});
const counts = {};
for (const date of days) {
  const found = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date });
  counts[date] = found.length;
}
return counts;
//// statuses-in-parallel
const numbers = ["COR101", "COR103", "COR999"];
const statuses = await Promise.all(
  numbers.map((n) =>
    tools.airline
      .get_flight_status({ flight_number: n, date: "2026-05-20" })
      .then((s) => ({ n, s }))
      .catch((err) => ({ n, s: "unknown", err: String(err) }))
  )
);
return statuses;
//// status-with-annotation
const check = async (flight: string): Promise<"ok" | "problem" | "missing"> => {
  try {
    const status = await tools.airline.get_flight_status({ flight_number: flight, date: "2026-05-20" });
    return status === "available" ? "ok" : "problem";
  } catch (e: any) {
    if (e.message.includes("no flight")) return "missing";
    throw e;
  }
};
return { a: await check("COR101"), b: await check("COR000") };
//// generator-of-flights
async function* allFlights(date: string) {
  const airports = await tools.airline.list_airports();
  for (const a of airports) {
    for (const b of airports) {
      if (a.iata !== b.iata) {
        yield* await tools.airline.direct_flights({ origin: a.iata, destination: b.iata, date });
      }
    }
  }
}
let longest = null;
for await (const f of allFlights("2026-05-20")) {
  if (!longest || f.duration_minutes > longest.duration_minutes) longest = f;
}
return longest.flight_number;
//// own-type-alias-flight
type Itinerary = { flights: Flight[]; total: number };
const score = (flights: Flight[]): Itinerary => ({
  flights,
  total: flights.reduce((s, f) => s + (f.prices.economy ?? 0), 0),
});
const direct = await tools.airline.direct_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
const one = await tools.airline.connecting_flights({ origin: "OSL", destination: "TOS", date: "2026-05-20" });
const all: Itinerary[] = [...direct.map((f) => score([f])), ...one.map((pair) => score(pair))];
return all.sort((x, y) => x.total - y.total).map((i) => [i.flights.map((f) => f.flight_number).join("+"), i.total]);
//// own-flight-interface
interface FlightInfo {
  flight_number: string;
  prices: { basic: number; economy: number; business: number };
  available_seats: Record<string, number>;
}
const found: FlightInfo[] = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
const seats = found.map((f) => Object.values(f.available_seats).reduce((a, b) => a + b, 0));
return { cheapest: Math.min(...found.map((f) => f.prices.basic)), seats };
//// upgrade-cost
const r = await tools.airline.get_reservation({ reservation_id: "R8X2LQ" });
let upgrade = 0;
for (const leg of r.legs) {
  const [origin, destination] = leg.flight_number === "COR101" ? ["OSL", "BGO"] : ["BGO", "TOS"];
  const flights = await tools.airline.direct_flights({ origin, destination, date: leg.date });
  const flight = flights.find((f) => f.flight_number === leg.flight_number);
  if (!flight) throw new Error("flight vanished: " + leg.flight_number);
  upgrade += (flight.prices.business - leg.price) * r.passengers.length;
}
return { upgrade };
//// notes-appended
const r = await tools.airline.get_reservation({ reservation_id: "Q4ZKM1" });
r.notes.push("checked by agent");
r.baggages += 1;
r.legs[0].seat = "12A";
return { notes: r.notes, bags: r.baggages, seat: r.legs[0].seat };
//// seat-matrix
const flights = await tools.airline.direct_flights({ origin: "OSL", destination: "BGO", date: "2026-05-20" });
const matrix = flights.map((f) => Object.entries(f.available_seats).map(([c, n]) => `${c[0].toUpperCase()}${n}`));
const total = flights.reduce((acc, { available_seats: s }) => acc + s.basic + s.economy + s.business, 0);
return { matrix, total };
