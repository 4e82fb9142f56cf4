// `console` with Node's format specifiers, tables, groups and counters; inspect.ts formats the values. Every entry is sent
// to the host as (level, text) at once, so that nothing is lost when the program is killed.

import { inspect } from "./inspect.ts";

export type Level = "debug" | "log" | "info" | "warn" | "error";

type Inspect = (value: unknown, depth?: number) => string;

/** Maximum width to which a cell widens its column of a table. */
const WIDEST = 60;
const { stringify } = JSON;
const { keys, is } = Object;

/** Implements Node's util.format, with its specifiers. */
function formatted(inspect: Inspect, args: readonly unknown[]): string {
  let text = "";
  let used = 0;
  if (typeof args[0] === "string") {
    used = 1;
    text = args.length === 1 ? args[0] : args[0].replace(/%[sdifjoOc%]/g, (specifier) => {
      if (specifier === "%%") return "%";
      if (used >= args.length) return specifier;
      return formatOne(inspect, specifier, args[used++]);
    });
  }
  for (let index = used; index < args.length; index++) {
    const value = args[index];
    text += `${index > 0 ? " " : ""}${typeof value === "string" ? value : inspect(value)}`;
  }
  return text;
}

function formatOne(inspect: Inspect, specifier: string, value: unknown): string {
  switch (specifier) {
    case "%s":
      if (typeof value === "string") return value;
      if (typeof value === "bigint") return `${value}n`;
      return is(value, -0) ? "-0" : typeof value === "object" && value !== null ? inspect(value) : String(value);
    case "%d":
    case "%i":
    case "%f": {
      if (typeof value === "bigint" && specifier !== "%f") return `${value}n`;
      if (typeof value === "symbol" || (typeof value === "object" && value !== null)) return "NaN";
      const number = specifier === "%d" ? Number(value) : specifier === "%i" ? parseInt(`${value}`) : parseFloat(`${value}`);
      return is(number, -0) ? "-0" : `${number}`;
    }
    case "%j":
      try {
        return stringify(value) ?? "undefined";
      } catch {
        return "[Circular]";
      }
    case "%c":
      return "";
    default:
      return inspect(value);
  }
}

/** Formats a table with Node's choice of columns; undefined if `data` has no rows to show. */
function table(inspect: Inspect, data: unknown, columns?: readonly string[]): string | undefined {
  if (typeof data !== "object" || data === null) return undefined;
  const keyed = data instanceof Map;
  const rows: [string, unknown][] = keyed || data instanceof Set
    ? [...(data as Iterable<unknown>)].map((entry, index) => [`${index}`, entry])
    : keys(data).map((key) => [key, (data as Record<string, unknown>)[key]]);
  const indexTitle = keyed || data instanceof Set ? "(iteration index)" : "(index)";
  const names: string[] = columns ? [...columns] : [];
  let values = false;
  for (const [, row] of rows) {
    if (keyed || typeof row !== "object" || row === null) values = true;
    else if (!columns) for (const name of keys(row)) if (!names.includes(name)) names.push(name);
  }
  const header = keyed ? [indexTitle, "Key", "Values"] : [indexTitle, ...names, ...(values ? ["Values"] : [])];
  const lines = rows.map(([key, row]) => {
    if (keyed) return [key, ...(row as [unknown, unknown]).map((part) => inspect(part))];
    const record = typeof row === "object" && row !== null ? (row as Record<string, unknown>) : undefined;
    const cells = names.map((name) => (record && Object.hasOwn(record, name) ? inspect(record[name]) : ""));
    return [key, ...cells, ...(values ? [record ? "" : inspect(row)] : [])];
  });
  const widths = header.map((title, column) => lines.reduce((most, line) => Math.max(most, Math.min(width(line[column]!), WIDEST)), width(title)) + 2);
  const rule = (left: string, middle: string, right: string) =>
    left + widths.map((size) => "─".repeat(size)).join(middle) + right;
  const cells = (line: string[]) =>
    `│${line.map((cell, column) => ` ${cell}${" ".repeat(Math.max(0, widths[column]! - width(cell) - 1))}`).join("│")}│`;
  return [rule("┌", "┬", "┐"), cells(header), rule("├", "┼", "┤"), ...lines.map(cells), rule("└", "┴", "┘")].join("\n");
}

/** Estimates terminal columns: code points, with wide East Asian ones counted twice. */
function width(text: string): number {
  let total = 0;
  for (const point of text) total += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u.test(point) ? 2 : 1;
  return total;
}

/**
 * Makes the program's `console`. `emit` receives each entry and, if an error is printed alone, the error object too.
 * `now` is a clock in milliseconds. `room` is the maximum number of characters printed for one value.
 */
export function makeConsole(emit: (level: Level, text: string, error?: Error) => void, now: () => number, room: () => number): object {
  const shown: Inspect = (value, depth) => inspect(value, room(), depth);
  const counts = new Map<string, number>();
  const timers = new Map<string, number>();
  let indent = "";

  const print = (level: Level, text: string, error?: Error) =>
    emit(level, indent === "" ? text : indent + text.replaceAll("\n", `\n${indent}`), error);
  const printer = (level: Level) => (...args: unknown[]) => {
    const error = level === "error" ? args.find((each) => each instanceof Error) as Error | undefined : undefined;
    print(level, formatted(shown, args), error);
  };
  const elapsed = (label: string) => {
    const milliseconds = now() - timers.get(label)!;
    return milliseconds >= 1000 ? `${(milliseconds / 1000).toFixed(3)}s` : `${Number(milliseconds.toFixed(3))}ms`;
  };
  const log = printer("log");
  const warn = printer("warn");
  const error = printer("error");
  const group = (...args: unknown[]) => {
    if (args.length > 0) log(...args);
    indent += "  ";
  };

  return {
    log,
    debug: printer("debug"),
    info: printer("info"),
    warn,
    error,
    trace: function trace(...args: unknown[]) {
      const site = { stack: "" };
      Error.captureStackTrace(site, trace);
      const message = formatted(shown, args);
      print("error", `Trace${message === "" ? "" : `: ${message}`}\n${site.stack.split("\n").slice(1).join("\n")}`);
    },
    dir(value: unknown, options?: { depth?: number | null }) {
      print("log", shown(value, options?.depth ?? undefined));
    },
    dirxml: log,
    table(data: unknown, columns?: readonly string[]) {
      const text = table(shown, data, columns);
      if (text === undefined) log(data);
      else print("log", text);
    },
    assert(condition?: unknown, ...args: unknown[]) {
      if (condition) return;
      if (typeof args[0] === "string") error(`Assertion failed: ${args[0]}`, ...args.slice(1));
      else error(...["Assertion failed", ...args]);
    },
    count(label: unknown = "default") {
      const count = (counts.get(`${label}`) ?? 0) + 1;
      counts.set(`${label}`, count);
      log(`${label}: ${count}`);
    },
    countReset(label: unknown = "default") {
      if (!counts.delete(`${label}`)) warn(`Count for '${label}' does not exist`);
    },
    time(label: unknown = "default") {
      if (timers.has(`${label}`)) warn(`Label '${label}' already exists for console.time()`);
      else timers.set(`${label}`, now());
    },
    timeLog(label: unknown = "default", ...args: unknown[]) {
      if (timers.has(`${label}`)) log(`${label}: ${elapsed(`${label}`)}`, ...args);
      else warn(`No such label '${label}' for console.timeLog()`);
    },
    timeEnd(label: unknown = "default") {
      if (timers.has(`${label}`)) {
        log(`${label}: ${elapsed(`${label}`)}`);
        timers.delete(`${label}`);
      } else warn(`No such label '${label}' for console.timeEnd()`);
    },
    group,
    groupCollapsed: group,
    groupEnd() {
      indent = indent.slice(2);
    },
    clear() {},
    get [Symbol.toStringTag]() {
      return "console";
    },
  };
}
