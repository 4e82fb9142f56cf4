// Formats values for the console: in Node's notation, but in full depth and without its line breaks. A list of records that
// would make a long line has a line for each; everything else is on one line.
//
// It runs in the program's own context. Getters of the program are named, not called. Every intrinsic
// used here is captured before the program runs.

const { stringify } = JSON;
const { isArray } = Array;
const { keys, is, getPrototypeOf, getOwnPropertyDescriptor, getOwnPropertySymbols, prototype: objectPrototype } = Object;
const { isView } = ArrayBuffer;
const { apply } = Reflect;
const { min } = Math;
const functionText = Function.prototype.toString;
const symbolText = Symbol.prototype.toString;
const isoString = Date.prototype.toISOString;
const { entries: mapEntries } = Map.prototype;
const { values: setValues } = Set.prototype;
const { test } = RegExp.prototype;
const { includes, replaceAll, slice, split, startsWith, trim } = String.prototype;
const { join } = Array.prototype;
const Bytes = Uint8Array;
const tagSymbol = Symbol.toStringTag;

/** Maximum depth; deeper containers are only named. */
const MAX_DEPTH = 50;
/** Number of characters after which the remainder of a value is not even counted. */
const MOST_COUNTED = 1_000_000;
/**
 * Maximum length of a list of records on one line. Longer lists have a line for each record, unless records are as
 * short as pairs of numbers.
 */
const LINE = 100;
const SHORT = 20;

/** Maximum number of a Buffer's bytes that are shown. */
const MOST_BYTES = 50;

/** Members to show of platform objects, which have no properties of their own. */
const PLATFORM: Record<string, readonly string[]> = {
  __proto__: null as never,
  AbortController: ["signal"],
  AbortSignal: ["aborted", "reason"],
  ArrayBuffer: ["byteLength"],
  Blob: ["size", "type"],
  CryptoKey: ["type", "extractable", "algorithm", "usages"],
  CustomEvent: ["type", "detail"],
  Event: ["type"],
  File: ["name", "size", "type"],
  Request: ["method", "url", "headers"],
  Response: ["status", "statusText", "url", "headers"],
  URL: ["href", "origin", "pathname", "search", "hash"],
  URLPattern: ["protocol", "hostname", "port", "pathname", "search", "hash"],
};
const isText = (tag: string) => tag === "URLSearchParams" || apply(startsWith, tag, ["Temporal."]);
const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;
const CONTROL = /[\x00-\x1f\x7f-\x9f'\\]/;

class Printer {
  #ancestors: object[] = [];
  /** Containers to which cycles lead back. */
  #referred: object[] = [];
  #left = MOST_COUNTED;
  #maxDepth: number;
  /** True within a list, because only the outermost list can have lines. */
  #flat = false;

  constructor(maxDepth: number) {
    this.#maxDepth = maxDepth;
  }

  /** True if part of the value was left out because it is too large. */
  get exhausted(): boolean {
    return this.#left <= 0;
  }

  print(value: unknown): string {
    this.#left -= 2;
    const depth = this.#ancestors.length;
    try {
      if (typeof value === "object" && value !== null) return this.#object(value);
      const text = typeof value === "function" ? this.#function(value) : simple(value);
      this.#left -= text.length;
      return text;
    } catch {
      this.#ancestors.length = depth;
      return "[an object that cannot be read]"; // for example, a proxy's trap threw
    }
  }

  #object(value: object): string {
    const depth = this.#ancestors.length;
    for (let index = 0; index < depth; index++) if (this.#ancestors[index] === value) return this.#circle(value);
    if (depth > this.#maxDepth) return isArray(value) ? "[Array]" : `[${className(value) || "Object"}]`;
    this.#ancestors[depth] = value;
    const text = this.#contents(value);
    this.#ancestors.length = depth;
    if (this.#referred.length > 0) {
      const reference = this.#reference(value);
      if (reference > 0) return `<ref *${reference}> ${text}`;
    }
    return text;
  }

  #circle(value: object): string {
    if (this.#reference(value) === 0) this.#referred[this.#referred.length] = value;
    return `[Circular *${this.#reference(value)}]`;
  }

  #reference(value: object): number {
    for (let index = 0; index < this.#referred.length; index++) if (this.#referred[index] === value) return index + 1;
    return 0;
  }

  #contents(value: object): string {
    if (isArray(value)) return this.#array(value, namePrefix(value, "Array", value.length));
    const prototype: unknown = getPrototypeOf(value);
    if (prototype === objectPrototype) return this.#record(value, prefixOf(value, ""));
    if (prototype === null) return this.#record(value, "[Object: null prototype] ");
    if (value instanceof Error) return this.#error(value);
    if (value instanceof Map) return this.#map(value);
    if (value instanceof Set) {
      const members = [...(apply(setValues, value, []) as Iterable<unknown>)];
      return this.#list(members.length, (index) => this.print(members[index]), (index) => members[index], `${className(value)}(${members.length}) `, "{", "}", []);
    }
    if (value instanceof Date) return isNaN(+value) ? "Invalid Date" : apply(isoString, value, []) as string;
    if (value instanceof RegExp) return `${value}`;
    if (value instanceof Promise) return "Promise { <not awaited> }";
    if (isView(value) && !(value instanceof DataView)) {
      if (className(value) === "Buffer") return buffer(value as Uint8Array);
      return this.#array(value as unknown as unknown[], `${className(value)}(${(value as Uint8Array).length}) `);
    }
    if (value instanceof String || value instanceof Number || value instanceof Boolean) {
      return `[${className(value)}: ${this.print(value.valueOf())}]`;
    }
    return this.#instance(value);
  }

  #instance(value: object): string {
    const tag = (value as Record<symbol, unknown>)[tagSymbol];
    if (typeof tag === "string" && keys(value).length === 0) {
      if (isText(tag)) return `${tag} ${value}`;
      const { entries } = value as { entries?: unknown };
      if ((tag === "Headers" || tag === "FormData") && typeof entries === "function") {
        const pairs = [...(apply(entries, value, []) as Iterable<[string, unknown]>)];
        const members = pairs.map(([name, member]) => `${keyText(name)}: ${this.print(member)}`);
        return `${tag} ${braced(members)}`;
      }
      const members = PLATFORM[tag];
      if (members !== undefined) {
        const shown = members.map((name) => [name, (value as Record<string, unknown>)[name]] as const);
        const texts = shown.filter(([, member]) => member !== undefined && member !== "").map(([name, member]) => `${name}: ${this.print(member)}`);
        return `${className(value)} ${braced(texts)}`;
      }
      return `${prefixOf(value, className(value) || "Object")}{}`; // without the brands by which the engine identifies its own objects
    }
    const name = className(value);
    return this.#record(value, prefixOf(value, name === "Object" ? "" : name));
  }

  #array(value: readonly unknown[], prefix: string): string {
    const names = isView(value) ? [] : keys(value);
    let extra: string[] = [];
    let holes = false;
    const { length } = value;
    if (!isView(value)) {
      // Members that are not elements come last.
      let elements = names.length;
      while (elements > 0 && !isIndex(names[elements - 1]!, length)) elements -= 1;
      holes = elements < length;
      extra = this.#members(value, names.slice(elements));
    }
    if (!holes) return this.#list(length, (index) => this.print(value[index]), (index) => value[index], prefix, "[", "]", extra);
    const present = names.slice(0, names.length - extra.length);
    const parts: string[] = [];
    let next = 0;
    for (let index = 0; index <= present.length && this.#left > 0; index++) {
      const at = index < present.length ? +present[index]! : length;
      if (at > next) parts[parts.length] = `<${at - next} empty item${at - next === 1 ? "" : "s"}>`;
      if (index < present.length) parts[parts.length] = this.print(value[at]);
      next = at + 1;
    }
    return `${prefix}${bracketed(parts.concat(extra))}`;
  }

  /** Formats elements, each on its own line if they are records and would make a long one. */
  #list(
    length: number, print: (index: number) => string, element: (index: number) => unknown, prefix: string, open: string, close: string, extra: string[],
  ): string {
    const outermost = !this.#flat;
    const parts: string[] = [];
    let records = 0;
    let size = 0;
    this.#flat = true;
    for (let index = 0; index < length && this.#left > 0; index++) {
      const text = print(index);
      const value = element(index);
      if (typeof value === "object" && value !== null) records += 1;
      size += text.length + 2;
      parts[index] = text;
    }
    this.#flat = !outermost;
    const all = parts.concat(extra);
    if (outermost && records > 1 && size > LINE && size > SHORT * length) return `${prefix}${open}\n  ${apply(join, all, [",\n  "])}\n${close}`;
    return `${prefix}${all.length === 0 ? open + close : `${open} ${apply(join, all, [", "])} ${close}`}`;
  }

  #map(value: Map<unknown, unknown>): string {
    const pairs = [...(apply(mapEntries, value, []) as Iterable<[unknown, unknown]>)];
    const print = (index: number) => `${this.print(pairs[index]![0])} => ${this.print(pairs[index]![1])}`;
    return this.#list(pairs.length, print, (index) => pairs[index]![1], `${className(value)}(${pairs.length}) `, "{", "}", []);
  }

  #record(value: object, prefix: string): string {
    return `${prefix}${braced(this.#members(value, keys(value)))}`;
  }

  #members(value: object, names: readonly string[]): string[] {
    const parts: string[] = [];
    for (let index = 0; index < names.length && this.#left > 0; index++) {
      parts[parts.length] = `${keyText(names[index]!)}: ${this.#member(value, names[index]!)}`;
      this.#left -= names[index]!.length;
    }
    const symbols = getOwnPropertySymbols(value);
    for (let index = 0; index < symbols.length && this.#left > 0; index++) {
      const symbol = symbols[index]!;
      if (!getOwnPropertyDescriptor(value, symbol)?.enumerable || symbol === tagSymbol) continue;
      parts[parts.length] = `[${apply(symbolText, symbol, [])}]: ${this.#member(value, symbol)}`;
    }
    return parts;
  }

  /** Formats a member. Does not call a getter of the program. */
  #member(value: object, name: PropertyKey): string {
    const descriptor = getOwnPropertyDescriptor(value, name);
    if (descriptor?.get !== undefined) return descriptor.set === undefined ? "[Getter]" : "[Getter/Setter]";
    if (descriptor?.set !== undefined) return "[Setter]";
    return this.print((value as Record<PropertyKey, unknown>)[name]);
  }

  /** Formats an error: with its stack at the top level, on one line within another value. */
  #error(error: Error): string {
    const { stack } = error;
    const header = `${error.name}: ${error.message}`;
    let text = typeof stack === "string" && stack !== "" ? stack : `[${header}]`;
    if (this.#ancestors.length > 1) {
      const lines = apply(split, text, ["\n"]) as string[];
      const place = lines.find((line) => apply(startsWith, line, ["    at "]));
      text = `[${header}${place === undefined ? "" : ` ${apply(trim, place, []) as string}`}]`;
    }
    const members = this.#members(error, keys(error).filter((name) => name !== "name" && name !== "message" && name !== "stack"));
    if (getOwnPropertyDescriptor(error, "cause") !== undefined) members.push(`[cause]: ${this.print(error.cause)}`);
    if (error instanceof AggregateError) members.push(`[errors]: ${this.print(error.errors)}`);
    return members.length === 0 ? text : `${text} ${braced(members)}`;
  }

  #function(value: object): string {
    const { name } = value as { name?: unknown };
    const shown = typeof name === "string" && name !== "" ? name : undefined;
    let text: string;
    if (apply(startsWith, apply(functionText, value, []) as string, ["class"])) {
      const base = getPrototypeOf(value) as { name?: unknown } | null;
      const extended = typeof base?.name === "string" && base.name !== "" ? ` extends ${base.name}` : "";
      text = `[class ${shown ?? "(anonymous)"}${extended}]`;
    } else {
      const kind = (value as Record<symbol, unknown>)[tagSymbol];
      text = `[${typeof kind === "string" ? kind : "Function"}${shown === undefined ? " (anonymous)" : `: ${shown}`}]`;
    }
    if (this.#ancestors.length > this.#maxDepth || keys(value).length === 0) return text;
    for (let index = 0; index < this.#ancestors.length; index++) if (this.#ancestors[index] === value) return text;
    this.#ancestors[this.#ancestors.length] = value;
    const members = braced(this.#members(value, keys(value)));
    this.#ancestors.length -= 1;
    return `${text} ${members}`;
  }
}

function buffer(value: Uint8Array): string {
  const { length } = value;
  let text = "<Buffer";
  for (let index = 0; index < length && index < MOST_BYTES; index++) text += value[index]! < 16 ? ` 0${value[index]!.toString(16)}` : ` ${value[index]!.toString(16)}`;
  return `${text}${length > MOST_BYTES ? ` … ${grouped(length - MOST_BYTES)} more bytes` : ""}>`;
}

function simple(value: unknown): string {
  switch (typeof value) {
    case "string":
      return quoted(value);
    case "bigint":
      return `${value}n`;
    case "symbol":
      return apply(symbolText, value, []) as string;
    default:
      return is(value, -0) ? "-0" : `${value}`;
  }
}

const braced = (members: readonly string[]) => (members.length === 0 ? "{}" : `{ ${apply(join, members, [", "])} }`);
const bracketed = (members: readonly string[]) => (members.length === 0 ? "[]" : `[ ${apply(join, members, [", "])} ]`);

function isIndex(name: string, length: number): boolean {
  const index = +name;
  return index >= 0 && index < length && `${index}` === name;
}

/** Returns the name of the class that created an object; empty if unknown. */
function className(value: object): string {
  for (let each: unknown = getPrototypeOf(value); typeof each === "object" && each !== null; each = getPrototypeOf(each)) {
    const constructor: unknown = getOwnPropertyDescriptor(each, "constructor")?.value;
    if (typeof constructor === "function" && typeof constructor.name === "string" && constructor.name !== "") return constructor.name;
  }
  return "";
}

function namePrefix(value: object, usual: string, length: number): string {
  const name = className(value);
  return name === usual || name === "" ? "" : `${name}(${length}) `;
}

/** Returns a class's name, and the tag if that differs. */
function prefixOf(value: object, name: string): string {
  const tag = (value as Record<symbol, unknown>)[tagSymbol];
  const shown = typeof tag === "string" && tag !== "" && tag !== name ? `${name || "Object"} [${tag}]` : name;
  return shown === "" ? "" : `${shown} `;
}

function keyText(name: string): string {
  return apply(test, IDENTIFIER, [name]) ? name : quoted(name);
}

/** Quotes a string with single quotes, unless others need fewer escapes. */
function quoted(text: string): string {
  if (!apply(test, CONTROL, [text])) return `'${text}'`;
  const json = stringify(text);
  if (!apply(includes, text, ["'"])) return `'${apply(replaceAll, apply(slice, json, [1, -1]), ['\\"', '"']) as string}'`;
  if (!apply(includes, text, ['"'])) return json;
  return `'${apply(replaceAll, apply(replaceAll, apply(slice, json, [1, -1]), ['\\"', '"']), ["'", "\\'"]) as string}'`;
}

/** Formats a value. After about `room` characters, only states how many are missing. */
export function inspect(value: unknown, room = MOST_COUNTED, depth = MAX_DEPTH): string {
  const printer = new Printer(min(depth, MAX_DEPTH));
  const text = printer.print(value);
  if (text.length <= room) return text;
  const missing = `${printer.exhausted ? "more than " : ""}${grouped(text.length - room)}`;
  return `${apply(slice, text, [0, room]) as string}… ${missing} more characters`;
}

/** Formats an integer with thousands separators. */
function grouped(number: number): string {
  let digits = `${number}`;
  let text = "";
  for (; digits.length > 3; digits = apply(slice, digits, [0, -3]) as string) text = `,${apply(slice, digits, [-3]) as string}${text}`;
  return digits + text;
}
