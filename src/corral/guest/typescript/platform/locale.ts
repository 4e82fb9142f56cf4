// The language's functions that depend on a locale, for an engine without `Intl`: numbers, dates and the order of texts
// as en-US has them, with the usual options, in UTC. Everything else is refused, because the engine's own functions
// would ignore the locale.

type Options = Record<string, unknown>;
type DateKind = "date" | "time" | "any";

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/** Symbols in en-US, of the currencies that have two digits; JPY and KRW have none. */
const CURRENCIES: Record<string, string> = {
  __proto__: null as never, USD: "$", EUR: "€", GBP: "£", JPY: "¥", KRW: "₩", INR: "₹", CNY: "CN¥", CAD: "CA$", AUD: "A$", NZD: "NZ$",
  MXN: "MX$", BRL: "R$", HKD: "HK$", ILS: "₪", CHF: "CHF\xa0", SEK: "SEK\xa0", NOK: "NOK\xa0", DKK: "DKK\xa0", PLN: "PLN\xa0", CZK: "CZK\xa0", SGD: "SGD\xa0", ZAR: "ZAR\xa0",
};
const NUMBER_OPTIONS = ["style", "currency", "minimumFractionDigits", "maximumFractionDigits", "useGrouping"];
const FIELDS = ["weekday", "year", "month", "day", "hour", "minute", "second"];
const DATE_OPTIONS = [...FIELDS, "hour12", "timeZone", "dateStyle", "timeStyle"];
const COLLATOR_OPTIONS = ["numeric", "sensitivity", "usage"];
/** ASCII in the order of CLDR's root collation, in which upper and lower case differ only at the end. */
const ORDER = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";
/** Accents in the order of the Unicode Collation Algorithm. */
const ACCENTS = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0327\u0328\u0304";
/** Languages in which Latin letters have that order. */
const ROOT_ORDER = /^(?:en|de|fr|it|pt|nl)(?:-|$)/;
const ADVICE = "this engine has only en-US in UTC, without Intl: format the parts in the program, or run it with sandbox=\"deno\"";

function refuse(text: string): never {
  throw new TypeError(`${text}: ${ADVICE}`);
}

function localeOf(locales: unknown): string {
  const first = Array.isArray(locales) ? locales[0] as unknown : locales;
  return first === undefined ? "en-US" : `${first}`;
}

function optionsOf(name: string, locales: unknown, options: unknown, known: readonly string[]): Options {
  const locale = localeOf(locales);
  if (known !== COLLATOR_OPTIONS && locale !== "en-US" && locale !== "en") refuse(`${name} with the locale ${locale}`);
  if (known === COLLATOR_OPTIONS && !ROOT_ORDER.test(locale)) refuse(`${name} with the locale ${locale}`);
  const checked: Options = {};
  for (const [key, value] of Object.entries((options ?? {}) as Options)) {
    if (value === undefined) continue;
    if (!known.includes(key)) refuse(`${name} with the option ${key}`);
    checked[key] = value;
  }
  return checked;
}

// --- numbers

/** Returns the digits before and after the point of the shortest decimal form. */
function digitsOf(value: number | bigint): [string, string] {
  const [mantissa, exponent = "0"] = `${value}`.replace(/^-/, "").split("e") as [string, string?];
  const [whole, fraction = ""] = mantissa.split(".") as [string, string?];
  const shift = +exponent;
  if (shift >= 0) return [whole + fraction.slice(0, shift).padEnd(shift, "0"), fraction.slice(shift)];
  const padded = whole.padStart(1 - shift, "0");
  return [padded.slice(0, shift), padded.slice(shift) + fraction];
}

/** Rounds half away from zero, and writes at least `least` and at most `most` digits after the point. */
function rounded([whole, fraction]: [string, string], least: number, most: number): [string, string] {
  let kept = fraction.slice(0, most);
  if (fraction.length > most && fraction[most]! >= "5") {
    const digits = `${BigInt(whole + kept) + 1n}`.padStart(whole.length + kept.length, "0");
    whole = digits.slice(0, digits.length - kept.length);
    kept = digits.slice(digits.length - kept.length);
  }
  kept = kept.replace(/0+$/, "");
  return [whole, kept.padEnd(least, "0")];
}

function numberText(name: string, value: number | bigint, locales: unknown, options: unknown): string {
  const { style = "decimal", currency, useGrouping = true, ...fraction } = optionsOf(name, locales, options, NUMBER_OPTIONS);
  let [least, most] = [0, 3];
  let before = "";
  if (style === "percent") most = 0;
  else if (style === "currency") {
    const code = `${currency}`.toUpperCase();
    before = CURRENCIES[code] ?? refuse(`${name} with the currency ${code}`);
    least = most = code === "JPY" || code === "KRW" ? 0 : 2;
  } else if (style !== "decimal") refuse(`${name} with the style ${style}`);
  const { minimumFractionDigits: minimum, maximumFractionDigits: maximum } = fraction as Record<string, number | undefined>;
  for (const each of [minimum, maximum]) {
    if (each !== undefined && !(each >= 0 && each <= 100)) throw new RangeError(`${minimum === each ? "minimum" : "maximum"}FractionDigits value is out of range.`);
  }
  if (minimum !== undefined && maximum !== undefined && minimum > maximum) throw new RangeError("maximumFractionDigits value is out of range.");
  least = Math.floor(minimum ?? Math.min(least, maximum ?? least));
  most = Math.floor(maximum ?? Math.max(most, least));
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const after = style === "percent" ? "%" : "";
  if (typeof value === "number" && !Number.isFinite(value)) return Number.isNaN(value) ? `${before.trim()}NaN${after}` : `${sign}${before.trim()}∞${after}`;
  let parts = digitsOf(value);
  if (style === "percent") parts = [`${parts[0]}${parts[1].slice(0, 2).padEnd(2, "0")}`.replace(/^0+(?=\d)/, ""), parts[1].slice(2)];
  const [whole, digits] = rounded(parts, least, most);
  const grouped = useGrouping === false || useGrouping === "false" ? whole : whole.replace(/\B(?=(?:\d{3})+$)/g, ",");
  return `${sign}${before}${grouped}${digits === "" ? "" : `.${digits}`}${after}`;
}

// --- dates

const two = (value: number): string => `${value}`.padStart(2, "0");

function numeric(value: number, form: unknown): string {
  return form === "2-digit" ? two(value % 100) : `${value}`;
}

function datePart(name: string, date: Date, { weekday, year, month, day }: Options): string {
  const shownDay = day === undefined ? undefined : numeric(date.getUTCDate(), day);
  const full = date.getUTCFullYear();
  if (year !== undefined && full < 1) refuse(`${name} of a year before 1`);
  const shownYear = year === undefined ? undefined : year === "2-digit" ? two(full % 100) : `${full}`;
  const days = DAYS[date.getUTCDay()]!;
  const shownWeekday = weekday === undefined ? undefined : weekday === "long" ? days : weekday === "short" ? days.slice(0, 3) : refuse(`${name} with weekday: ${weekday}`);
  let rest: string | undefined;
  const textual = month === "long" || month === "short";
  if (month === undefined) {
    if (shownYear !== undefined && (shownDay ?? shownWeekday) !== undefined) refuse(`${name} with a year and a day, without a month`);
    if (shownWeekday !== undefined && shownDay !== undefined) return `${shownDay} ${shownWeekday}`;
    rest = shownYear ?? shownDay;
  } else if (textual) {
    const month_ = MONTHS[date.getUTCMonth()]!;
    const first = [month === "long" ? month_ : month_.slice(0, 3), shownDay].filter((each) => each !== undefined).join(" ");
    rest = shownYear === undefined ? first : `${first}${shownDay === undefined ? "" : ","} ${shownYear}`;
  } else if (month === "numeric" || month === "2-digit") {
    rest = [numeric(date.getUTCMonth() + 1, month), shownDay, shownYear].filter((each) => each !== undefined).join("/");
  } else refuse(`${name} with month: ${month}`);
  if (shownWeekday !== undefined && month !== undefined && shownDay === undefined) refuse(`${name} with a weekday and a month, without a day`);
  return [shownWeekday, rest].filter((each) => each !== undefined).join(", ");
}

function timePart(name: string, date: Date, { hour, minute, second, hour12 = true }: Options): string {
  if (hour === undefined) return refuse(`${name} with minutes, without an hour`);
  if (second !== undefined && minute === undefined) return refuse(`${name} with seconds, without minutes`);
  const hours = date.getUTCHours();
  const shown = hour12 ? hours % 12 || 12 : hours;
  const parts = [hour === "2-digit" || !hour12 ? two(shown) : `${shown}`];
  if (minute !== undefined) parts.push(two(date.getUTCMinutes()));
  if (second !== undefined) parts.push(two(date.getUTCSeconds()));
  return `${parts.join(":")}${hour12 ? (hours < 12 ? " AM" : " PM") : ""}`;
}

const STYLES: Record<string, Options> = {
  full: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
  long: { year: "numeric", month: "long", day: "numeric" },
  medium: { year: "numeric", month: "short", day: "numeric" },
  short: { year: "2-digit", month: "numeric", day: "numeric" },
};
const TIME_STYLES: Record<string, Options> = {
  medium: { hour: "numeric", minute: "2-digit", second: "2-digit" },
  short: { hour: "numeric", minute: "2-digit" },
};

function dateText(name: string, date: Date, locales: unknown, options: unknown, required: DateKind): string {
  const { timeZone = "UTC", dateStyle, timeStyle, ...checked } = optionsOf(name, locales, options, DATE_OPTIONS);
  if (!/^(?:utc|gmt|etc\/utc|etc\/gmt)$/i.test(`${timeZone}`)) refuse(`${name} with the time zone ${timeZone}`);
  if (Number.isNaN(date.getTime())) return "Invalid Date";
  let fields = checked;
  if (dateStyle !== undefined && required === "time") throw new TypeError("Invalid option : dateStyle");
  if (timeStyle !== undefined && required === "date") throw new TypeError("Invalid option : timeStyle");
  if (dateStyle !== undefined || timeStyle !== undefined) {
    const day = dateStyle === undefined ? {} : STYLES[`${dateStyle}`] ?? refuse(`${name} with dateStyle: ${dateStyle}`);
    const time = timeStyle === undefined ? {} : TIME_STYLES[`${timeStyle}`] ?? refuse(`${name} with timeStyle: ${timeStyle}`);
    fields = { ...checked, ...day, ...time };
  } else {
    const has = (names: readonly string[]): boolean => names.some((each) => checked[each] !== undefined);
    const [dates, times] = [FIELDS.slice(0, 4), FIELDS.slice(4)];
    const missing = required === "date" ? !has(dates) : required === "time" ? !has(times) : !has(FIELDS);
    if (missing && required !== "time") fields = { year: "numeric", month: "numeric", day: "numeric", ...fields };
    if (missing && required !== "date") fields = { hour: "numeric", minute: "2-digit", second: "2-digit", ...fields };
  }
  const day = fields.weekday ?? fields.year ?? fields.month ?? fields.day;
  const time = fields.hour ?? fields.minute ?? fields.second;
  const parts = [day === undefined ? undefined : datePart(name, date, fields), time === undefined ? undefined : timePart(name, date, fields)];
  const isOnlyWeekday = fields.weekday === day && (fields.month ?? fields.day) === undefined && fields.minute !== undefined;
  return parts.filter((each) => each !== undefined).join(fields.month === "long" ? " at " : isOnlyWeekday ? " " : ", ");
}

// --- the order of texts

/** Returns three keys of a text: its letters, its accents and its cases. */
function keysOf(name: string, text: string, numericOrder: boolean): [string, string, string] {
  let [letters, accents, cases] = ["", "", ""];
  const plain = text.normalize("NFD");
  for (let index = 0; index < plain.length; index++) {
    const character = plain[index]!;
    const accent = ACCENTS.indexOf(character);
    if (accent >= 0 && index > 0) {
      accents += String.fromCharCode(2 + accent);
      continue;
    }
    const rank = ORDER.indexOf(character.toLowerCase());
    if (rank < 0 || character > "\x7f") refuse(`${name} of ${JSON.stringify(text.slice(0, 40))}, which has other characters than Latin letters`);
    if (numericOrder && /\d/.test(character)) {
      const digits = /^\d+/.exec(plain.slice(index))![0];
      const significant = digits.replace(/^0+(?=\d)/, "");
      letters += String.fromCharCode(ORDER.indexOf("0") + 1, 0x100 + significant.length) + significant;
      index += digits.length - 1;
    } else letters += String.fromCharCode(rank + 1);
    accents += "\x01";
    cases += /[A-Z]/.test(character) ? "1" : "0";
  }
  return [letters, accents, cases];
}

function compareTexts(name: string, a: string, b: string, locales: unknown, options: unknown): number {
  const { numeric: numericOrder = false, sensitivity = "variant" } = optionsOf(name, locales, options, COLLATOR_OPTIONS);
  if (a === b) return 0;
  const [first, second] = [keysOf(name, a, numericOrder === true), keysOf(name, b, numericOrder === true)];
  const compared = { base: [0], accent: [0, 1], case: [0, 2], variant: [0, 1, 2] }[`${sensitivity}`] ?? refuse(`${name} with sensitivity: ${sensitivity}`);
  for (const level of compared) if (first[level] !== second[level]) return first[level]! < second[level]! ? -1 : 1;
  return 0;
}

// --- the globals

const { defineProperty } = Object;
const { apply } = Reflect;

function define(holder: object, methods: object): void {
  for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(methods))) {
    defineProperty(holder, name, { value: descriptor.value as unknown, writable: true, configurable: true, enumerable: false });
  }
}

/** Defines the functions that depend on a locale, and the common parts of `Intl`. */
export function defineLocale(): void {
  const { toString, toTimeString, getTime } = Date.prototype;
  const dateOf = (value: unknown): Date => new Date(apply(getTime, value, []));
  const zone = (text: string): string => (text.endsWith("GMT+0000") ? `${text} (Coordinated Universal Time)` : text);
  define(Number.prototype, {
    toLocaleString(this: number, locales?: unknown, options?: unknown) {
      return numberText("toLocaleString", Number.prototype.valueOf.call(this), locales, options);
    },
  });
  define(BigInt.prototype, {
    toLocaleString(this: bigint, locales?: unknown, options?: unknown) {
      return numberText("toLocaleString", BigInt.prototype.valueOf.call(this), locales, options);
    },
  });
  define(Date.prototype, {
    toLocaleString(this: Date, locales?: unknown, options?: unknown) {
      return dateText("toLocaleString", dateOf(this), locales, options, "any");
    },
    toLocaleDateString(this: Date, locales?: unknown, options?: unknown) {
      return dateText("toLocaleDateString", dateOf(this), locales, options, "date");
    },
    toLocaleTimeString(this: Date, locales?: unknown, options?: unknown) {
      return dateText("toLocaleTimeString", dateOf(this), locales, options, "time");
    },
    toString(this: Date) {
      return zone(apply(toString, this, []));
    },
    toTimeString(this: Date) {
      return zone(apply(toTimeString, this, []));
    },
  });
  const cased = (name: "toUpperCase" | "toLowerCase") => {
    const change = String.prototype[name];
    return function (this: string, locales?: unknown): string {
      if (/^(?:tr|az|lt)\b/.test(localeOf(locales))) refuse(`a change of case with the locale ${localeOf(locales)}`);
      return apply(change, this, []);
    };
  };
  define(String.prototype, {
    localeCompare(this: string, other: unknown, locales?: unknown, options?: unknown) {
      return compareTexts("localeCompare", `${this}`, `${other}`, locales, options);
    },
    toLocaleUpperCase: cased("toUpperCase"),
    toLocaleLowerCase: cased("toLowerCase"),
  });
  const formatter = (name: string, make: (locales: unknown, options: unknown) => object) =>
    function (locales?: unknown, options?: unknown): object {
      return { ...make(locales, options), resolvedOptions: () => ({ locale: localeOf(locales), timeZone: "UTC", ...(options ?? {}) as object }), [Symbol.toStringTag]: `Intl.${name}` };
    };
  const parts: Record<string, unknown> = {
    NumberFormat: formatter("NumberFormat", (locales, options) => {
      const format = (value: unknown): string => numberText("Intl.NumberFormat", typeof value === "bigint" ? value : Number(value), locales, options);
      format(0); // refuses unsupported options
      return { format };
    }),
    DateTimeFormat: formatter("DateTimeFormat", (locales, options) => {
      const format = (value?: unknown): string => {
        const date = value === undefined ? new Date() : new Date(value as number);
        if (Number.isNaN(date.getTime())) throw new RangeError("Invalid time value");
        return dateText("Intl.DateTimeFormat", date, locales, options, (options as Options | undefined)?.hour === undefined ? "date" : "any");
      };
      format(0);
      return { format };
    }),
    Collator: formatter("Collator", (locales, options) => {
      const compare = (a: unknown, b: unknown): number => compareTexts("Intl.Collator", `${a}`, `${b}`, locales, options);
      compare("a", "b");
      return { compare };
    }),
    [Symbol.toStringTag]: "Intl",
  };
  const Intl = new Proxy(parts, {
    get: (target, key) => (key in target ? target[key as string] : refuse(`Intl.${String(key)} is absent`)),
  });
  defineProperty(globalThis, "Intl", { value: Intl, writable: true, configurable: true, enumerable: false });
}
