// JSON as programs need it. Integers of tools are BigInts beyond 2^53, and are declared as numbers, so that programs write them
// as such. What a tool returned is read already, and programs read it once more.

interface RawJson {
  rawJSON?(text: string): object;
  isRawJSON(value: unknown): boolean;
}

const { stringify, parse, rawJSON, isRawJSON } = JSON as typeof JSON & RawJson;
const { apply } = Reflect;
const { defineProperty, getPrototypeOf, prototype: plain } = Object;
const { isArray } = Array;
const { toString } = BigInt.prototype;

/** Has `JSON.stringify` write a BigInt as the exact integer, unless the program has another form for it. Node 20 cannot. */
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
      // A replacer is to find the BigInt itself, which `toJSON` comes before.
      const replaced = function (this: Record<string, unknown>, key: string, given: unknown): unknown {
        const member = isRawJSON(given) && typeof this[key] === "bigint" ? this[key] : given;
        const written = apply(replacer, this, [key, member]) as unknown;
        return typeof written === "bigint" ? exact(written) : written;
      };
      return stringify(value, replaced, space as number);
    },
  });
}

/** Has `JSON.parse` give back an object or array in which it cannot read a text, and tells of it. */
export function giveBackParsed(remark: () => void): void {
  define(JSON, {
    parse(text: unknown, reviver: unknown): unknown {
      // Of `[1]` it would make 1; a text in an array may be meant.
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
