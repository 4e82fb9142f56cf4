// Are older planes late more often, and which models are late most? June to August; late is 15 minutes or more on arrival.
enum Age {
  Young = "up to 5 years",
  Middle = "6 to 15 years",
  Old = "16 years and more",
  Unknown = "not recorded",
}

interface Count {
  arrived: number;
  late: number;
}

const SUMMER = [6, 7, 8];
const MIN_ARRIVALS = 500;

const ageOf = (built: number | null): Age => {
  if (built === null) return Age.Unknown;
  const years = 2013 - built;
  return years <= 5 ? Age.Young : years <= 15 ? Age.Middle : Age.Old;
};

const share = ({ arrived, late }: Count): number => late / arrived;
const percent = (value: number): number => Math.round(1000 * value) / 10;

function countIn<K>(counts: Map<K, Count>, key: K, late: boolean): void {
  const count = counts.get(key) ?? { arrived: 0, late: 0 };
  count.arrived += 1;
  count.late += Number(late);
  counts.set(key, count);
}

async function readPlanes() {
  const planes = new Map<string, { year: number | null; model: string }>();
  for (let offset: number | null = 0; offset !== null; ) {
    const page = await tools.planes.list({ offset, limit: 500 });
    for (const { tailnum, year, model } of page.planes) planes.set(tailnum, { year, model });
    offset = page.next_offset;
  }
  return planes;
}

async function readFlights(month: number) {
  const flights = [];
  for (let offset: number | null = 0; offset !== null; ) {
    const page = await tools.flights.list({ month, offset });
    flights.push(...page.flights);
    offset = page.next_offset;
  }
  return flights;
}

const [planes, airlines, ...months] = await Promise.all([
  readPlanes(),
  tools.list_airlines(),
  ...SUMMER.map(readFlights),
]);
const airlineNames = new Map(airlines.map(({ carrier, name }) => [carrier, name]));

const byAge = new Map<Age, Count>();
const byCarrier = new Map<string, Count>();
const byModel = new Map<string, Map<string, Count>>(); // model → carrier → count
let notArrived = 0;
let unknownPlane = 0;

for (const flight of months.flat()) {
  if (flight.arr_delay === null) {
    notArrived += 1;
    continue;
  }
  const late = flight.arr_delay >= 15;
  countIn(byCarrier, flight.carrier, late);
  const plane = planes.get(flight.tailnum ?? "");
  if (!plane) {
    unknownPlane += 1;
    continue;
  }
  countIn(byAge, ageOf(plane.year), late);
  const carriers = byModel.get(plane.model) ?? new Map<string, Count>();
  byModel.set(plane.model, carriers);
  countIn(carriers, flight.carrier, late);
}

const models = [...byModel].map(([model, carriers]) => {
  const total: Count = { arrived: 0, late: 0 };
  let expected = 0; // late arrivals, had each flight been late as often as its airline's flights are
  for (const [carrier, count] of carriers) {
    total.arrived += count.arrived;
    total.late += count.late;
    expected += count.arrived * share(byCarrier.get(carrier)!);
  }
  const [main] = [...carriers].sort((a, b) => b[1].arrived - a[1].arrived)[0];
  return {
    model,
    flownMostBy: airlineNames.get(main) ?? main,
    arrivals: total.arrived,
    latePercent: percent(share(total)),
    airlinesLatePercent: percent(expected / total.arrived),
  };
});

return {
  ages: Object.values(Age)
    .filter((age) => byAge.has(age))
    .map((age) => ({ age, arrivals: byAge.get(age)!.arrived, latePercent: percent(share(byAge.get(age)!)) })),
  models: models
    .filter(({ arrivals }) => arrivals >= MIN_ARRIVALS)
    .sort((a, b) => b.latePercent - a.latePercent)
    .slice(0, 6),
  cancelledOrDiverted: notArrived,
  arrivedOnUnknownPlane: unknownPlane,
};
