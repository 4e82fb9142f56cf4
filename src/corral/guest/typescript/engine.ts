// What the guest takes of the engine itself: its standard input and output, its event loop, its inspect. Operations of
// Deno's core, because what Deno.stdin and Deno.stdout wrap around them asks the buffer for its length, which a program
// can listen to.

interface Core {
  evalContext(code: string, name: string): [unknown, { thrown: unknown } | null];
  runMicrotasks(): void;
  read(file: number, into: Uint8Array): Promise<number>;
  readSync(file: number, into: Uint8Array): number;
  writeSync(file: number, bytes: Uint8Array): number;
  queueImmediate(immediate: object): void;
  immediateRefCount(increase: boolean): void;
}

const core = (Deno as unknown as Record<symbol, { core: Core }>)[(Deno as unknown as { internal: symbol }).internal]!.core;
const inspectValue = Deno.inspect;

export const { evalContext, runMicrotasks } = core;
export const readBlocking = (into: Uint8Array): number => core.readSync(0, into);
export const readAsynchronously = (into: Uint8Array): Promise<number> => core.read(0, into);
export const write = (bytes: Uint8Array): number => core.writeSync(1, bytes);
export const exit = Deno.exit;
export const now = performance.now.bind(performance);

export function inspect(value: unknown, depth = 2): string {
  return inspectValue(value, { depth, quotes: ["'", '"', "`"], colors: false } as Deno.InspectOptions);
}

/**
 * Calls back after this turn of the event loop, as setImmediate does. A timer would cost two milliseconds, and the global
 * setImmediate five at start-up, because it loads all of the engine's Node.js.
 */
export function nextTurn(callback: () => void): void {
  const _onImmediate = () => {
    core.immediateRefCount(false);
    callback();
  };
  core.queueImmediate({ _onImmediate, _argv: null, _destroyed: false, _idleNext: null, _idlePrev: null });
  core.immediateRefCount(true); // keeps the event loop going until then
}
