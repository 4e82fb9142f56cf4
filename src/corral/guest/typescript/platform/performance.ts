// `performance` of a context: the engine's clock, with its own list of marks and measures.

interface Entry {
  name: string;
  entryType: "mark" | "measure";
  startTime: number;
  duration: number;
  detail: unknown;
}

type Place = string | number | undefined;

export function makePerformance(now: () => number, timeOrigin: number): object {
  let entries: Entry[] = [];
  const add = (name: unknown, entryType: Entry["entryType"], startTime: number, end: number, detail: unknown = null) => {
    const entry: Entry = { name: `${name}`, entryType, startTime, duration: end - startTime, detail };
    entries.push(entry);
    return entry;
  };
  const time = (place: Place, otherwise: number): number => {
    if (place === undefined) return otherwise;
    if (typeof place === "number") return place;
    const mark = entries.findLast((entry) => entry.entryType === "mark" && entry.name === `${place}`);
    if (mark === undefined) throw new SyntaxError(`Cannot find mark: "${place}"`);
    return mark.startTime;
  };
  const clear = (entryType: Entry["entryType"], name?: string) => {
    entries = entries.filter((entry) => entry.entryType !== entryType || (name !== undefined && entry.name !== name));
  };
  return {
    now: () => now(),
    timeOrigin,
    mark: (name: string, options: { startTime?: number; detail?: unknown } = {}) => {
      const start = options.startTime ?? now();
      return add(name, "mark", start, start, options.detail);
    },
    measure: (name: string, from?: string | { start?: Place; end?: Place; duration?: number; detail?: unknown }, to?: string) => {
      const options = typeof from === "object" ? from : { start: from, end: to };
      const start = time(options.start, 0);
      const end = options.end === undefined && options.duration !== undefined ? start + options.duration : time(options.end, now());
      return add(name, "measure", start, end, options.detail);
    },
    clearMarks: (name?: string) => clear("mark", name),
    clearMeasures: (name?: string) => clear("measure", name),
    getEntries: () => [...entries],
    getEntriesByName: (name: string, type?: string) =>
      entries.filter((entry) => entry.name === name && (type === undefined || entry.entryType === type)),
    getEntriesByType: (type: string) => entries.filter((entry) => entry.entryType === type),
    toJSON: () => ({ timeOrigin }),
    get [Symbol.toStringTag]() {
      return "Performance";
    },
  };
}
