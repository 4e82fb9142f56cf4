// Prepares a newly forked process for its program: replaces everything that it shares with the server and its siblings, and
// puts it under the system call filter of a program.
//
// Numbers are Linux's, the same on x86-64 and arm64.

import type { AddressOf, Libc } from "./libc.ts";

const PR_SET_PDEATHSIG = 1;
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;
const SIGKILL = 9;
const RLIMIT_NOFILE = 7;
const SYS_CLOSE_RANGE = 436;
const ALL = 0xffff_ffff;
const MADV_DOFORK = 11;
const ADDRESSES = 2 ** 48 - 2 ** 16; // of any process, page aligned: x86-64 has half of them
const AF_UNIX = 1;
const SOCK_STREAM = 1;
const NONBLOCKING = 0o4000;
const CLOSE_ON_EXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
const ENOENT = 2;
const EBADF = 9;
const EEXIST = 17;
const WAKER_EVENTS = 0x8000_2001; // EPOLLET, EPOLLRDHUP, EPOLLIN: as the engine's own event loop registers its eventfd
const AT_EMPTY_PATH = 0x1000;
const STATX_BASIC = 0x7ff;
const FILE_TYPE = 0xf000;
const SOCKET = 0xc000;
const GUEST_FILES = 64;
const SERVER_FILES = 1024;
const FILTER_BYTES = 1 << 16;
const UNSEALED = 125;
const WARM_UPS = 3;
const RANDOM_WORDS = 1024;

const { defineProperty } = Object;

const block = (size: number): Uint8Array => new Uint8Array(new ArrayBuffer(size)); // outside of the heap, so it does not move

/** A system call filter in the kernel's format: struct sock_fprog (linux/filter.h). */
export class Filter {
  readonly #program = block(FILTER_BYTES);
  readonly #description = block(16);
  readonly #at: bigint;
  #length = 0;

  constructor(addressOf: AddressOf) {
    new BigUint64Array(this.#description.buffer)[1] = addressOf(this.#program);
    this.#at = addressOf(this.#description);
  }

  /** Without a program there is no filter, as without a jail. */
  load(program: Uint8Array | null): void {
    this.#length = program === null ? 0 : program.length;
    if (program !== null) this.#program.set(program);
    new Uint16Array(this.#description.buffer)[0] = this.#length / 8;
  }

  /** Irrevocably puts this process under the filter. */
  seal({ call }: Libc): void {
    if (this.#length === 0) return;
    if (call.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, this.#at, 0, 0) !== 0) call._exit(UNSEALED);
  }
}

/** Descriptors that the engine itself has opened, by what a forked process has to do with them. */
interface Opened {
  /** Copies of the standard streams: their numbers, and which stream each is. */
  copies: [number, number][];
  polls: number[];
  /** Descriptors that wake the event loop. */
  wakers: number[];
  /** Descriptors through which a signal reaches the event loop. */
  sockets: number[];
  firstFree: number;
}

/** Forks this process. */
export class Forker {
  #libc: Libc;
  readonly #opened: Opened;
  readonly #server: number;
  readonly #reseed: () => void;
  readonly #pairBytes = block(8);
  readonly #pair = new Int32Array(this.#pairBytes.buffer);
  readonly #limit = block(16);
  readonly #event = block(16);

  /**
   * Create it when the engine has opened all its descriptors. From then on, no descriptor of the server's own gets a number
   * below the engine's largest one.
   */
  constructor(libc: Libc) {
    this.#libc = libc;
    new Uint32Array(this.#event.buffer)[0] = WAKER_EVENTS;
    new BigUint64Array(this.#limit.buffer).fill(BigInt(GUEST_FILES));
    this.#opened = findOpened(libc, this.#event);
    this.#server = libc.call.getpid();
    this.#reseed = replaceRandom(libc);
    this.#warmUp();
  }

  /** Makes the server compile the code that each fork runs, by running it without effect. */
  #warmUp(): void {
    const libc = this.#libc;
    const call = Object.fromEntries(Object.keys(libc.call).map((name) => [name, () => name === "getppid" ? this.#server : 0]));
    this.#libc = { ...libc, call: call as unknown as Libc["call"] };
    for (let times = 0; times < WARM_UPS; times++) this.enter(0, 2, null);
    this.#libc = libc;
  }

  /** Like fork(2). The engine excludes its heap from being copied, including new parts each time. */
  fork(): number {
    const { call } = this.#libc;
    call.madvise(2 ** 16, ADDRESSES - 2 ** 16, MADV_DOFORK);
    return call.fork();
  }

  /** In a forked process: makes these its standard streams, and replaces everything shared with others. */
  enter(connection: number, errors: number, filter: Filter | null): void {
    const { call } = this.#libc;
    const { copies, polls, wakers, sockets, firstFree } = this.#opened;
    call.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (call.getppid() !== this.#server) call._exit(1);
    call.dup2(connection, 0);
    call.dup2(connection, 1);
    call.dup2(errors, 2);
    for (let index = 0; index < copies.length; index++) call.dup2(copies[index]![1], copies[index]![0]);
    this.#renewEventLoop(polls, wakers);
    if (sockets.length > 0) {
      call.socketpair(AF_UNIX, SOCK_STREAM | NONBLOCKING | CLOSE_ON_EXEC, 0, this.#pairBytes);
      for (let index = 0; index < sockets.length; index++) call.dup2(this.#pair[0]!, sockets[index]!);
    }
    call.syscall(SYS_CLOSE_RANGE, firstFree, ALL, 0);
    call.setrlimit(RLIMIT_NOFILE, this.#limit);
    filter?.seal(this.#libc);
    this.#reseed();
  }

  /** Replaces the shared open files, through which siblings would wake each other. */
  #renewEventLoop(polls: readonly number[], wakers: readonly number[]): void {
    const { call } = this.#libc;
    const poll = call.epoll_create1(CLOSE_ON_EXEC);
    const waker = call.eventfd(0, CLOSE_ON_EXEC | NONBLOCKING);
    for (let index = 0; index < wakers.length; index++) call.dup2(waker, wakers[index]!);
    for (let index = 0; index < polls.length; index++) call.dup2(poll, polls[index]!);
    call.epoll_ctl(polls[0]!, EPOLL_CTL_ADD, wakers[0]!, this.#event);
  }
}

/**
 * Classifies each descriptor.
 *
 * Throws if there is one of a kind that forked processes cannot replace.
 */
function findOpened({ call, errno }: Libc, event: Uint8Array): Opened {
  const path = block(1);
  const status = block(256);
  const view = new DataView(status.buffer);
  const numbers: number[] = [];
  const modes = new Map<number, number>();
  const identities = new Map<number, string>();
  for (let descriptor = 0; descriptor < SERVER_FILES; descriptor++) {
    if (call.statx(descriptor, path, AT_EMPTY_PATH, STATX_BASIC, status) !== 0) {
      if (errno() === EBADF) continue;
      throw new Error(`cannot identify descriptor ${descriptor}: error ${errno()}`);
    }
    // struct statx (linux/stat.h): mode, inode, and the device as two numbers
    modes.set(descriptor, view.getUint16(28, true) & FILE_TYPE);
    identities.set(descriptor, [view.getBigUint64(32, true), view.getUint32(136, true), view.getUint32(140, true)].join());
    if (descriptor > 2) numbers.push(descriptor);
  }
  const opened: Opened = { copies: [], polls: [], wakers: [], sockets: [], firstFree: (numbers.at(-1) ?? 2) + 1 };
  const standard = [0, 1, 2].map((descriptor) => identities.get(descriptor));
  const { copies, polls, wakers, sockets } = opened;
  const isPoll = (descriptor: number) => call.epoll_ctl(descriptor, EPOLL_CTL_DEL, 0, event) !== 0 && errno() === ENOENT;
  for (const descriptor of numbers) if (modes.get(descriptor) === 0 && isPoll(descriptor)) polls.push(descriptor);
  for (const descriptor of numbers) {
    const mode = modes.get(descriptor);
    const place = standard.indexOf(identities.get(descriptor));
    if (polls.includes(descriptor)) continue;
    if (mode !== 0 && place >= 0) copies.push([descriptor, place]);
    else if (mode === SOCKET) sockets.push(descriptor);
    else if (mode === 0 && polls.length > 0 && call.epoll_ctl(polls[0]!, EPOLL_CTL_ADD, descriptor, event) !== 0 && errno() === EEXIST) {
      wakers.push(descriptor);
    } else throw new Error(`descriptor ${descriptor} is of a kind that cannot be forked: ${mode}`);
  }
  if (wakers.length === 0) throw new Error("the engine's event loop is not one that can be forked");
  for (let descriptor = 3; descriptor < opened.firstFree; descriptor++) {
    if (modes.has(descriptor)) continue;
    call.dup2(2, descriptor);
    copies.push([descriptor, 2]);
  }
  return opened;
}

/**
 * Makes Math.random use the kernel's random numbers: the engine's own state is the same in all processes of a server.
 * Returns a function that discards numbers drawn ahead.
 */
function replaceRandom({ call }: Libc): () => void {
  const words = new Uint32Array(RANDOM_WORDS);
  const bytes = new Uint8Array(words.buffer);
  let next = RANDOM_WORDS;
  const { random } = {
    random(): number {
      if (next === RANDOM_WORDS) {
        call.getrandom(bytes, 4 * RANDOM_WORDS, 0);
        next = 0;
      }
      return ((words[next++]! >>> 5) * 2 ** 26 + (words[next++]! >>> 6)) / 2 ** 53;
    },
  };
  defineProperty(Math, "random", { value: random, writable: true, configurable: true, enumerable: false });
  return () => void (next = RANDOM_WORDS);
}
