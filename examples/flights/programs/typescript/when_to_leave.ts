/** For the busiest destinations and San Juan: from which airport, and in which hour, is one most often on time? */

interface Departure {
  origin: string;
  hour: number;
  scheduled: number;
  onTime: number;
}

const MIN_FLIGHTS = 100;

const percent = (departure: Departure) => Math.round((1000 * departure.onTime) / departure.scheduled) / 10;
const label = ({ origin, hour }: Departure) => `${origin} ${String(hour).padStart(2, "0")}:00`;

export default async (tools) => {
  async function nameOf(code: string): Promise<string> {
    try {
      return `${(await tools.get_airport({ code })).name} (${code})`;
    } catch (error) {
      if (!(error instanceof Error) || error.name !== "ToolError") throw error;
      console.warn(error.message);
      return code;
    }
  }

  async function departuresTo(dest: string): Promise<Departure[]> {
    const departures = new Map<string, Departure>();
    let offset: number | null = 0;
    while (offset !== null) {
      const page = await tools.flights.list({ dest, offset });
      for (const { origin, hour, arr_delay } of page.flights) {
        const key = `${origin} ${hour}`;
        const departure = departures.get(key) ?? { origin, hour, scheduled: 0, onTime: 0 };
        departure.scheduled += 1;
        // A flight that was cancelled or diverted has no arrival delay: it was not on time.
        if (arr_delay !== null && arr_delay < 15) departure.onTime += 1;
        departures.set(key, departure);
      }
      offset = page.next_offset;
    }
    return [...departures.values()].filter(({ scheduled }) => scheduled >= MIN_FLIGHTS);
  }

  const busiest = await tools.flights.destinations({ limit: 8 });
  const codes = [...new Set([...busiest.map(({ dest }) => dest), "SJU"])];

  const destinations = await Promise.all(
    codes.map(async (code) => {
      const [to, departures] = await Promise.all([nameOf(code), departuresTo(code)]);
      departures.sort((a, b) => percent(b) - percent(a) || label(a).localeCompare(label(b)));
      const best = departures[0];
      const worst = departures[departures.length - 1];
      return {
        to,
        leave: label(best),
        onTimePercent: percent(best),
        avoid: label(worst),
        thenOnTimePercent: percent(worst),
      };
    }),
  );

  return { destinations };
};
