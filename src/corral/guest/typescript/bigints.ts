// JSON as programs need it. Tools' integers beyond 2^53 are BigInts but declared as numbers, so programs encode them as
// numbers. A tool's result is already parsed, but programs often parse it again.

interface RawJson {
  rawJSON?(text: string): object;
  isRawJSON(value: unknown): boolean;
}

const { stringify, parse, rawJSON, isRawJSON } = JSON as typeof JSON & RawJson;
const { apply } = Reflect;
const { defineProperty, getPrototypeOf, prototype: plain } = Object;
const { isArray } = Array;
const { toString } = BigInt.prototype;

/**
 * Makes `JSON.stringify` write a BigInt as the exact integer, unless the program defines another form. Not possible in
 * Node 20.
 */
export function writeBigInts(): void {
  if (rawJSON === undefined) return;
  const exact = (value: unknown): unknown => rawJSON(apply(toString, value, []) as string);
  define(BigInt.prototype, {
    toJSON(this: unknown) {
      return exact(this);
    },
  });
  define(JSON, {
    stringify(value: unknown, replacer: unknown, space: unknown): string | undefined {
      if (typeof replacer !== "function") return stringify(value, replacer as null, space as number);
      // A replacer has to get the BigInt itself, but `toJSON` is called first.
      const replaced = function (this: Record<string, unknown>, key: string, value: unknown): unknown {
        const member = isRawJSON(value) && typeof this[key] === "bigint" ? this[key] : value;
        const written = apply(replacer, this, [key, member]) as unknown;
        return typeof written === "bigint" ? exact(written) : written;
      };
      return stringify(value, replaced, space as number);
    },
  });
}

/** Makes `JSON.parse` return an object or array that it cannot read as a string, with a remark. */
export function giveBackParsed(remark: () => void): void {
  define(JSON, {
    parse(text: unknown, reviver: unknown): unknown {
      // `[1]` would be parsed as 1. An array that begins with a string may be intended.
      if (reviver === undefined && isArray(text) && typeof text[0] !== "string") {
        remark();
        return text;
      }
      try {
        return parse(text as string, reviver as undefined);
      } catch (error) {
        if (reviver !== undefined || !isData(text)) throw error;
        remark();
        return text;
      }
    },
  });
}

function isData(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return isArray(value) || getPrototypeOf(value) === plain || getPrototypeOf(value) === null;
}

function define(holder: object, methods: Record<string, unknown>): void {
  for (const name in methods) {
    defineProperty(holder, name, { value: methods[name], writable: true, configurable: true, enumerable: false });
  }
}
