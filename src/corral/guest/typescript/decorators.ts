// Decorators of classes, as the proposal of ECMAScript has them. What a program wrote as `@a @b m() {}` reaches a
// Decoration as calls of `on`, while the class is being made; `apply` is called before anything else of it runs.

type Kind = "method" | "getter" | "setter" | "field" | "accessor";
type Class = abstract new (...input: never[]) => object;
type Initializer = (this: unknown, value?: unknown) => unknown;
export type Decorator = (value: unknown, context: object) => unknown;

interface Member {
  kind: Kind;
  isStatic: boolean;
  key: PropertyKey;
  decorators: Decorator[];
  /** What changes the value that a field begins with. */
  initial: Initializer[];
  /** What is called once there is a member. */
  after: Initializer[];
}

const { apply, defineProperty, getOwnPropertyDescriptor, deleteProperty, getPrototypeOf } = Reflect;
const { create } = Object;
const PARTS = { method: "value", getter: "get", setter: "set" } as const;

/** One class, while it is made and afterwards. */
export class Decoration {
  readonly #name: string;
  readonly #decorators: Decorator[];
  readonly #members: Member[] = [];
  readonly #mark = Symbol();
  readonly #after: Initializer[] = [];
  #metadata: object = {};
  #decorated: Class | undefined;

  constructor(name: string, decorators: Decorator[]) {
    this.#name = name;
    this.#decorators = decorators;
  }

  /** Takes the decorators of a member. Returns the name of the method that stands there to call this. */
  on(kind: Kind, isStatic: boolean, key: PropertyKey, decorators: Decorator[]): symbol {
    this.#members.push({ kind, isStatic, key, decorators, initial: [], after: [] });
    return this.#mark;
  }

  /** Takes the computed name of the member whose decorators came last. */
  key(value: unknown): PropertyKey {
    return this.#members.at(-1)!.key = typeof value === "symbol" ? value : `${value}`;
  }

  /** Applies all decorators. Returns the class, or what its decorators made of it. */
  apply(made: Class): Class {
    deleteProperty(made, this.#mark);
    const symbols = Symbol as unknown as { metadata?: symbol };
    const metadata = symbols.metadata ??= Symbol("Symbol.metadata");
    this.#metadata = create(((getPrototypeOf(made) as Record<symbol, object | undefined>)[metadata]) ?? null) as object;
    defineProperty(made, "name", { value: this.#name, configurable: true });
    for (const fields of [false, true]) {
      for (const isStatic of [true, false]) {
        for (const member of this.#members) {
          if ((member.kind === "field") !== fields || member.isStatic !== isStatic) continue;
          this.#decorate(isStatic ? made : made.prototype as object, member);
        }
      }
    }
    const described = { value: this.#metadata, configurable: true, writable: true };
    defineProperty(made, metadata, described); // at once, because a decorator may seal the class
    let decorated = made;
    for (const decorator of this.#decorators.toReversed()) {
      const context = { kind: "class", name: this.#name, metadata: this.#metadata };
      decorated = (this.#call(decorator, decorated, context, this.#after) as Class | undefined) ?? decorated;
    }
    defineProperty(decorated, metadata, described);
    this.#begin(made, true);
    return this.#decorated = decorated;
  }

  /** Called with each object of the class before its fields are there. */
  start(object: object): void {
    this.#begin(object, false);
  }

  /** The value that a field begins with. */
  init(index: number, object: object, value: unknown): unknown {
    for (const initializer of this.#members[index]!.initial) value = apply(initializer, object, [value]);
    return value;
  }

  /** Called when a field is there. */
  after(index: number, object: object): void {
    for (const initializer of this.#members[index]!.after) apply(initializer, object, []);
  }

  /** Called when the static fields of the class are there. Returns the class as it is decorated. */
  finish(made: Class): Class {
    const decorated = this.#decorated ?? made;
    for (const initializer of this.#after) apply(initializer, decorated, []);
    return decorated;
  }

  #begin(object: object, isStatic: boolean): void {
    for (const { kind, after, ...member } of this.#members) {
      if (member.isStatic !== isStatic || kind === "field" || kind === "accessor") continue;
      for (const initializer of after) apply(initializer, object, []);
    }
  }

  #decorate(home: object, member: Member): void {
    const { kind, isStatic, key, decorators, initial, after } = member;
    const descriptor = getOwnPropertyDescriptor(home, key) ?? {};
    const access: Record<string, unknown> = { has: (object: object) => key in object };
    if (kind !== "setter") access["get"] = (object: Record<PropertyKey, unknown>) => object[key];
    if (kind !== "method" && kind !== "getter") {
      access["set"] = (object: Record<PropertyKey, unknown>, value: unknown) => object[key] = value;
    }
    for (const decorator of decorators.toReversed()) {
      const context = { kind, name: key, static: isStatic, private: false, metadata: this.#metadata, access };
      const { get, set } = descriptor;
      const value = kind === "field" ? undefined : kind === "accessor" ? { get, set } : descriptor[PARTS[kind]];
      const result = this.#call(decorator, value, context, after, kind === "accessor");
      if (result === undefined) continue;
      if (kind === "field") initial.unshift(result as Initializer);
      else if (kind === "accessor") {
        const made = result as { get?: () => unknown; set?: (value: unknown) => void; init?: Initializer };
        for (const part of ["get", "set"] as const) if (made[part] !== undefined) descriptor[part] = callable(made[part]) as never;
        if (made.init !== undefined) initial.unshift(callable(made.init) as Initializer);
      } else descriptor[PARTS[kind]] = result as never;
    }
    if (kind !== "field") defineProperty(home, key, descriptor);
  }

  /** Calls a decorator. What it returns is a function or, for an accessor, an object; or nothing. */
  #call(decorator: Decorator, value: unknown, context: object, after: Initializer[], object = false): unknown {
    let done = false;
    const addInitializer = (initializer: unknown): void => {
      if (done) throw new TypeError("addInitializer must be called while the decorator runs");
      after.push(callable(initializer) as Initializer);
    };
    const result = decorator(value, { ...context, addInitializer });
    done = true;
    if (result === undefined) return undefined;
    if (!object) return callable(result);
    if (typeof result !== "object" || result === null) throw new TypeError("a decorator of an accessor must return an object or nothing");
    return result;
  }
}

function callable(value: unknown): unknown {
  if (typeof value !== "function") throw new TypeError("a decorator must return a function or nothing");
  return value;
}
