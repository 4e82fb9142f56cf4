// The C library, called from the engine's own process, so that a server can fork itself.
//
// The permission for native calls is used here once, and given up before anything else happens. Only the module that
// imports this one has access to the library. Programs cannot reach it.

export type Argument = number | bigint | Uint8Array | null;
type Call = (...args: Argument[]) => number;

const SIGNATURES = {
  fork: [],
  _exit: ["i32"],
  getpid: [],
  getppid: [],
  waitpid: ["i32", "buffer", "i32"],
  prctl: ["i32", "u64", "u64", "u64", "u64"],
  setrlimit: ["i32", "buffer"],
  madvise: ["u64", "u64", "i32"],
  malloc_trim: ["u64"],
  getrandom: ["buffer", "u64", "u32"],
  poll: ["buffer", "u64", "i32"],
  read: ["i32", "buffer", "u64"],
  recvmsg: ["i32", "buffer", "i32"],
  sendmsg: ["i32", "buffer", "i32"],
  socketpair: ["i32", "i32", "i32", "buffer"],
  pipe2: ["buffer", "i32"],
  statx: ["i32", "buffer", "i32", "u32", "buffer"],
  dup2: ["i32", "i32"],
  close: ["i32"],
  epoll_create1: ["i32"],
  epoll_ctl: ["i32", "i32", "i32", "buffer"],
  eventfd: ["u32", "i32"],
  sched_yield: [],
  syscall: ["i64", "u64", "u64", "u64"],
} as const;

export interface Libc {
  /** Results have 32 bits, which is enough for descriptors, process numbers and sizes of messages. */
  call: Readonly<Record<keyof typeof SIGNATURES, Call>>;
  errno(): number;
  /**
   * Gives each idle thread of the engine's pool a job that never ends. A forked process has none of these threads, but
   * would otherwise assume that they are waiting for work, and wait for them.
   */
  occupyThreads(): void;
}

/** Returns the address of the first byte. */
export type AddressOf = (bytes: Uint8Array) => bigint;

interface Native {
  dlopen(name: string, symbols: object): { symbols: Record<string, Call> };
  UnsafePointer: { of(bytes: Uint8Array): object; value(pointer: object): number | bigint };
  UnsafePointerView: { getArrayBuffer(pointer: object, size: number): ArrayBuffer };
  permissions: { revokeSync(descriptor: { name: string }): unknown };
}

const LIBRARY = "libc.so.6"; // already loaded by the engine itself: no file is read
/** Maximum number of idle threads in the engine's pool. */
const IDLE_THREADS = 8;
const YIELDS = 1_000_000;
const semaphore = new Uint8Array(new ArrayBuffer(32)); // sem_t: its second word counts those that wait

/**
 * Opens the C library, lets `prepare` get the addresses that it will need, and gives up the permission. Throws if the
 * engine would still grant it.
 */
export function openLibc<T>(prepare: (addressOf: AddressOf) => T): { libc: Libc; prepared: T } {
  const native = Deno as unknown as Native;
  const symbols: Record<string, object> = {
    occupy: { name: "sem_wait", parameters: ["buffer"], result: "i32", nonblocking: true },
    errnoAddress: { name: "__errno_location", parameters: [], result: "pointer" },
  };
  for (const [name, parameters] of Object.entries(SIGNATURES)) symbols[name] = { parameters, result: "i32" };
  const { errnoAddress, occupy, ...call } = native.dlopen(LIBRARY, symbols).symbols;
  const errors = new Int32Array(native.UnsafePointerView.getArrayBuffer(errnoAddress!() as unknown as object, 4));
  const prepared = prepare((bytes) => BigInt(native.UnsafePointer.value(native.UnsafePointer.of(bytes))));
  native.permissions.revokeSync({ name: "ffi" });
  for (const attempt of [() => native.dlopen(LIBRARY, {}), () => native.UnsafePointer.of(new Uint8Array(1))]) {
    if (succeeds(attempt)) throw new Error("the engine still grants native calls");
  }
  const typed = call as Libc["call"];
  return { libc: { call: typed, errno: () => errors[0]!, occupyThreads: () => occupyThreads(occupy!, typed) }, prepared };
}

function occupyThreads(occupy: Call, { sched_yield }: Libc["call"]): void {
  const waiting = new Uint32Array(semaphore.buffer);
  for (let count = 0; count < IDLE_THREADS; count++) void occupy(semaphore);
  for (let tries = 0; waiting[1] !== IDLE_THREADS; tries++) {
    if (tries === YIELDS) throw new Error("the engine's threads do not wait as the C library says they would");
    sched_yield();
  }
}

function succeeds(attempt: () => unknown): boolean {
  try {
    attempt();
    return true;
  } catch {
    return false;
  }
}
