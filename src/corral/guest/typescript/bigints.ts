// JSON of BigInts: integers of tools are BigInts beyond 2^53, and are declared as numbers, so that programs write them as such.

interface RawJson {
  rawJSON?(text: string): object;
  isRawJSON(value: unknown): boolean;
}

const { stringify, rawJSON, isRawJSON } = JSON as typeof JSON & RawJson;
const { apply } = Reflect;
const { defineProperty } = Object;
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

function define(holder: object, methods: Record<string, unknown>): void {
  for (const name in methods) {
    defineProperty(holder, name, { value: methods[name], writable: true, configurable: true, enumerable: false });
  }
}
