// The language's own prototypes, in an order that is the same in every context: what comes from another context is
// given the prototype at the same place here.

const { getPrototypeOf } = Object;

const errors = [Error, AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];
const views = [
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array,
  BigInt64Array, BigUint64Array, DataView,
];
const others = [Object, Array, ArrayBuffer, Map, Set, Date, RegExp, Number, String, Boolean, BigInt];

/** Prototypes of objects that can be adopted by changing their prototype. */
export const ADOPTABLE: readonly object[] = [...errors, ...views, ...others].map((type) => type.prototype as object);

export const PROMISE: object = Promise.prototype;
export const ITERATOR: object = Iterator.prototype;
export const ASYNC_ITERATOR: object = getPrototypeOf(getPrototypeOf(async function* () {}.prototype) as object) as object;

/** The functions' own prototypes, whose `constructor` makes code from strings. */
export const FUNCTIONS: readonly object[] = [
  function () {},
  function* () {},
  async function () {},
  async function* () {},
].map((each) => getPrototypeOf(each) as object);
