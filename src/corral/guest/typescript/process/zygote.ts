// Fork server: a warm engine that runs no program itself, and forks a process for each one.
//
// It speaks the protocol of guest/python/zygote.py. A forked process runs its program as main.ts does.

import { exit, nextTurn, readAsynchronously, readBlocking, write } from "../engine.ts";
import { execute, prepareGlobals, sendReady, type Streams } from "./execution.ts";
import { type AddressOf, type Libc, openLibc } from "./libc.ts";
import { openBuiltIns, preload, type Preloading } from "./modules.ts";
import { LANGUAGE, warmUp, warmUpPlatform } from "./warm_up.ts";

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
const FORK_WARM_UPS = 3;
const RANDOM_WORDS = 1024;

const { defineProperty } = Object;

const Bytes = Uint8Array; // constructors use no other constructor, unlike methods that create views
const block = (size: number): Uint8Array => new Bytes(new ArrayBuffer(size)); // outside of the heap, so it does not move

/** System call filter in the kernel's format: struct sock_fprog (linux/filter.h). */
class Filter {
  readonly #program = block(FILTER_BYTES);
  readonly #description = block(16);
  readonly #at: bigint;
  #length = 0;

  constructor(addressOf: AddressOf) {
    new BigUint64Array(this.#description.buffer)[1] = addressOf(this.#program);
    this.#at = addressOf(this.#description);
  }

  /** Without a program there is no filter, as when there is no jail. */
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
class Forker {
  #libc: Libc;
  readonly #opened: Opened;
  readonly #server: number;
  readonly #reseed: () => void;
  readonly #pairBytes = block(8);
  readonly #pair = new Int32Array(this.#pairBytes.buffer);
  readonly #limit = block(16);
  readonly #event = block(16);

  /**
   * Create it once the engine has opened all its descriptors. From then on, no descriptor of the server gets a number
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
    for (let times = 0; times < FORK_WARM_UPS; times++) this.enter(0, 2, null);
    this.#libc = libc;
  }

  /** Works like fork(2). The engine excludes its heap from being copied, including new parts each time. */
  fork(): number {
    const { call } = this.#libc;
    call.madvise(2 ** 16, ADDRESSES - 2 ** 16, MADV_DOFORK);
    return call.fork();
  }

  /** In a forked process, makes these the standard streams, and replaces everything that is shared with others. */
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

/** Classifies each descriptor. Throws if there is one of a kind that forked processes cannot replace. */
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
 * Makes Math.random use the kernel's random numbers, because the engine's own state is the same in all processes of a
 * server. Returns a function that discards numbers drawn ahead.
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

const CONTROL = 0;
const WARM_UPS_BEFORE = 20;
const WARM_UPS = 100;
const CALLS = 2;
/** Twice the number of processes that the host requests at once. */
const MOST_PROCESSES = 512;
const MESSAGE_BYTES = 1 << 17;
const MOST_DESCRIPTORS = 8;
/** Maximum length of the reported end of a process's standard error, which is also the capacity of a pipe. */
const ERRORS_BYTES = 16_384;
const PIPE_BYTES = 65_536;
const MESSAGE_SIZE = BigInt(MESSAGE_BYTES);
const CONTROL_SIZE = BigInt(16 + 4 * MOST_DESCRIPTORS);

const PR_SET_DUMPABLE = 4;
const POLLIN = 1;
const WAITS = -1;
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_SEND_SIGNAL = 424;
const EINTR = 4;
const EAGAIN = 11;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
const MSG_CTRUNC = 0x8n;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x4000_0000;
const ERRORS = 0x21; // "!"

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const encodeInto = encoder.encodeInto.bind(encoder);
const decode = decoder.decode.bind(decoder);
const asBigInt = BigInt;
const { apply } = Reflect;
const { copyWithin } = Object.getPrototypeOf(Uint8Array.prototype) as Uint8Array;
const { parse, stringify } = JSON;

/**
 * Messages of a socket, with descriptors: struct msghdr and struct cmsghdr (recvmsg(2), cmsg(3)) of 64 bits. From here
 * on, the code that serves processes uses existing views, and no part of the language that preloaded code could have
 * replaced: no globals, no method look-ups, no iteration, no growing lists.
 */
class Messages {
  readonly #buffer = new ArrayBuffer(MESSAGE_BYTES);
  readonly #data = new Bytes(this.#buffer);
  readonly #control = block(16 + 4 * MOST_DESCRIPTORS);
  readonly #words = new Int32Array(this.#control.buffer);
  readonly #header = block(56);
  readonly #fields = new BigUint64Array(this.#header.buffer);
  readonly #vector = new BigUint64Array(new ArrayBuffer(16));
  readonly #controlAt: bigint;
  readonly #dataAt: bigint;
  readonly #errors = new Bytes(this.#buffer, 1, PIPE_BYTES);
  /** Descriptors of the last message, and their number. */
  readonly descriptors = new Int32Array(MOST_DESCRIPTORS);
  count = 0;

  constructor(addressOf: AddressOf) {
    this.#dataAt = this.#vector[0] = addressOf(this.#data);
    this.#fields[2] = addressOf(new Uint8Array(this.#vector.buffer));
    this.#fields[3] = 1n;
    this.#controlAt = addressOf(this.#control);
  }

  /** Returns the size of a message, or a negative number if there is none. Drops its descriptors if some were lost. */
  receive({ call }: Libc, socket: number): number {
    this.#vector[1] = MESSAGE_SIZE;
    this.#fields[4] = this.#controlAt;
    this.#fields[5] = CONTROL_SIZE;
    this.count = 0;
    const size = call.recvmsg(socket, this.#header, MSG_CMSG_CLOEXEC);
    if (size <= 0 || this.#fields[5] === 0n) return size;
    const words = this.#words;
    if (words[2] === SOL_SOCKET && words[3] === SCM_RIGHTS) {
      const count = (words[0]! >> 2) - 4;
      while (this.count < count) this.descriptors[this.count] = words[4 + this.count++]!;
    }
    if ((this.#fields[6]! & MSG_CTRUNC) === 0n) return size;
    this.closeAll({ call });
    return size;
  }

  /** Closes the descriptors of the last message. */
  closeAll({ call }: Pick<Libc, "call">): void {
    while (this.count > 0) call.close(this.descriptors[--this.count]!);
  }

  text(size: number): string {
    return decode(new Bytes(this.#buffer, 0, size));
  }

  /** Sends the end of a pipe's content, if there is any, and closes the pipe. */
  sendErrors({ call }: Libc, socket: number, pipe: number): void {
    const size = call.read(pipe, this.#errors, PIPE_BYTES);
    call.close(pipe);
    if (size <= 0) return;
    const from = size > ERRORS_BYTES ? size - ERRORS_BYTES : 0;
    this.#data[from] = ERRORS;
    this.#vector[0] = this.#dataAt + asBigInt(from);
    this.#vector[1] = asBigInt(size - from + 1);
    this.#fields[4] = this.#fields[5] = 0n;
    call.sendmsg(socket, this.#header, MSG_NOSIGNAL | MSG_DONTWAIT);
    this.#vector[0] = this.#dataAt;
  }

  /** Sends a message. Returns false if the other end is closed, or the descriptor cannot be sent. */
  send({ call }: Libc, socket: number, text: string, descriptor?: number): boolean {
    this.#vector[1] = asBigInt(encodeInto(text, this.#data).written);
    this.#fields[4] = descriptor === undefined ? 0n : this.#controlAt;
    this.#fields[5] = descriptor === undefined ? 0n : 24n;
    if (descriptor !== undefined) {
      const words = this.#words;
      words[0] = 20;
      words[1] = 0;
      words[2] = SOL_SOCKET;
      words[3] = SCM_RIGHTS;
      words[4] = descriptor;
    }
    return call.sendmsg(socket, this.#header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  }
}

/** Packages in a file of `bytes`, and the message that requests a process. */
interface Packages {
  bytes: number;
  first: string;
}

class Server {
  readonly #libc: Libc;
  readonly #messages: Messages;
  readonly #filter: Filter;
  readonly #forker: Forker;
  /** struct pollfd: the control socket's, then two for each process, its own and its lifeline's. */
  readonly #polls = block(8 * (1 + 2 * MOST_PROCESSES));
  readonly #polled = new Int32Array(this.#polls.buffer);
  readonly #pids = new Int32Array(MOST_PROCESSES);
  /** Pipes of each process's standard error. */
  readonly #errors = new Int32Array(MOST_PROCESSES);
  readonly #pipeBytes = block(8);
  readonly #pipe = new Int32Array(this.#pipeBytes.buffer);
  #count = 0;
  readonly #statusBytes = block(8);
  readonly #status = new Int32Array(this.#statusBytes.buffer);
  #loaded = "";
  #preloaded = false;

  constructor(libc: Libc, messages: Messages, filter: Filter) {
    this.#libc = libc;
    this.#messages = messages;
    this.#filter = filter;
    this.#forker = new Forker(libc);
    libc.call.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    this.#watch(0, CONTROL, POLLIN);
  }

  /** Forks processes: forever or, if it `hurries`, until no request is pending. Returns true in a forked process. */
  serve(hurries: boolean): boolean {
    const { call, errno } = this.#libc;
    for (;;) {
      const count = this.#count;
      const ready = call.poll(this.#polls, 1 + 2 * count, hurries ? 0 : WAITS);
      if (ready === 0) return false;
      if (ready < 0 && errno() !== EINTR) call._exit(1);
      if (ready < 0) continue;
      // Backwards, because the last entry replaces a removed one.
      for (let index = count - 1; index >= 0; index--) this.#look(index);
      // Last, because a new process gets numbers of descriptors closed above, which may have been polled.
      if (this.#happened(0) && this.#take()) return true;
    }
  }

  #watch(entry: number, descriptor: number, events: number): void {
    this.#polled[2 * entry] = descriptor;
    this.#polled[2 * entry + 1] = events;
  }

  #happened(entry: number): boolean {
    return this.#polled[2 * entry + 1]! >>> 16 !== 0;
  }

  #look(index: number): void {
    const { call } = this.#libc;
    const process = this.#polled[2 * (1 + 2 * index)]!;
    if (this.#happened(1 + 2 * index)) this.#reap(index);
    else if (this.#happened(2 + 2 * index)) { // the host has closed it
      call.syscall(SYS_PIDFD_SEND_SIGNAL, process, SIGKILL, 0);
      this.#polled[2 * (2 + 2 * index) + 1] = 0;
      this.#polled[2 * (2 + 2 * index)] = ~this.#polled[2 * (2 + 2 * index)]!; // poll(2) ignores negative ones
    }
  }

  #reap(index: number): void {
    const { call } = this.#libc;
    const process = this.#polled[2 * (1 + 2 * index)]!;
    const watched = this.#polled[2 * (2 + 2 * index)]!;
    const lifeline = watched < 0 ? ~watched : watched;
    call.waitpid(this.#pids[index]!, this.#statusBytes, 0);
    const word = this.#status[0]!;
    const signal = word & 0x7f;
    this.#messages.sendErrors(this.#libc, lifeline, this.#errors[index]!);
    this.#messages.send(this.#libc, lifeline, `{"status":${signal === 0 ? (word >> 8) & 0xff : -signal}}`);
    call.close(process);
    call.close(lifeline);
    const last = --this.#count;
    if (index === last) return;
    this.#pids[index] = this.#pids[last]!;
    this.#errors[index] = this.#errors[last]!;
    const from = 2 * (1 + 2 * last);
    apply(copyWithin, this.#polled, [2 * (1 + 2 * index), from, from + 4]);
  }

  /** Handles one message: makes a process. Returns true in that process. */
  #take(): boolean {
    const libc = this.#libc;
    const { call, errno } = libc;
    const messages = this.#messages;
    const size = messages.receive(libc, CONTROL);
    if (size < 0 && errno() === EINTR) return false;
    if (size <= 0) call._exit(0); // the host has closed the socket
    const { count, descriptors } = messages;
    if (count !== 2) { // no descriptors were left for them, so their lifeline is closed
      messages.closeAll(libc);
      return false;
    }
    const connection = descriptors[0]!;
    const lifeline = descriptors[1]!;
    const packages = this.#load(messages.text(size));
    if (packages !== undefined) {
      this.#preload(packages, connection, lifeline);
      return false;
    }
    const piped = this.#count < MOST_PROCESSES && call.pipe2(this.#pipeBytes, CLOSE_ON_EXEC) === 0;
    const pid = piped ? this.#forker.fork() : -1;
    if (pid === 0) {
      this.#forker.enter(connection, this.#pipe[1]!, this.#filter);
      return true;
    }
    const process = pid < 0 ? -1 : call.syscall(SYS_PIDFD_OPEN, pid, 0, 0);
    const error = errno();
    call.close(connection);
    if (piped) call.close(this.#pipe[1]!);
    if (process < 0) {
      if (piped) call.close(this.#pipe[0]!);
      messages.send(libc, lifeline, `{"error":"fork: error ${error}${error === EAGAIN ? ": raise the limit of processes (ulimit -u, --pids-limit)" : ""}"}`);
      call.close(lifeline);
      return false;
    }
    const entry = 1 + 2 * this.#count;
    this.#errors[this.#count] = this.#pipe[0]!;
    this.#pids[this.#count++] = pid;
    this.#watch(entry, process, POLLIN);
    this.#watch(entry + 1, lifeline, 0);
    if (!messages.send(libc, lifeline, `{"pid":0}`, process)) { // the host's user may have too many descriptors in flight
      messages.send(libc, lifeline, `{"error":"pid: error ${errno()}"}`);
      call.syscall(SYS_PIDFD_SEND_SIGNAL, process, SIGKILL, 0);
    }
    return false;
  }

  /** Evaluates the packages of an in-memory file, before any program's process is forked, and reports them. `first` comes next. */
  #preload({ bytes, first }: Packages, file: number, reply: number): void {
    const { call } = this.#libc;
    this.#load(first);
    const buffer = new ArrayBuffer(bytes);
    let count = 0;
    while (count < bytes) {
      const taken = call.read(file, new Bytes(buffer, count), bytes - count);
      if (taken <= 0) call._exit(1);
      count += taken;
    }
    call.close(file);
    this.#preloaded = true;
    const evaluated = preload(parse(decode(new Bytes(buffer))) as Preloading);
    this.#messages.send(this.#libc, reply, `{"preloaded":${stringify(evaluated)}}`);
    call.close(reply);
  }

  /**
   * Loads the filter of programs, or returns the packages to preload. Once code was preloaded, messages are no longer
   * parsed, because that code could change the result.
   */
  #load(message: string): Packages | undefined {
    if (message === this.#loaded) return undefined;
    if (this.#preloaded) this.#libc.call._exit(1);
    const asked = parse(message) as Packages | { filter: string | null };
    if ("bytes" in asked) return asked;
    this.#loaded = message;
    this.#filter.load(asked.filter === null ? null : bytesOf(asked.filter));
    return undefined;
  }

  /** True in a forked process if input from the host may have arrived. */
  get hasInput(): boolean {
    this.#watch(0, 0, POLLIN);
    return this.#libc.call.poll(this.#polls, 1, 0) > 0;
  }
}

const { fromBase64 } = Uint8Array as unknown as { fromBase64(text: string): Uint8Array };
const bytesOf = fromBase64.bind(Uint8Array);

const { error: report } = console;

async function main(): Promise<void> {
  const { libc, prepared: [messages, filter] } = openLibc((addressOf) => [new Messages(addressOf), new Filter(addressOf)] as const);
  const { _exit } = libc.call;
  const streams: Streams = { readBlocking, readAsynchronously, write, exit: () => void _exit(0) };
  await warmUpPlatform();
  const compact = await openCompaction(libc);
  await prepareGlobals();
  await new Promise<void>((done) => warmUp(WARM_UPS_BEFORE, CALLS, done));
  libc.occupyThreads();
  const server = new Server(libc, messages, filter);
  const steps = [...LANGUAGE];
  let left = WARM_UPS - WARM_UPS_BEFORE;
  const serve = (): void => {
    while (!server.serve(left > 0)) {
      const step = steps.pop();
      if (step === undefined) {
        left--;
        return warmUp(1, CALLS, left > 0 ? serve : compactAndServe);
      }
      step();
    }
    // A process that is forked ahead of its program touches everything that it will need, so that its pages are already copied.
    if (server.hasInput) execute(streams);
    else warmUp(1, CALLS, () => execute(streams));
  };
  const compactAndServe = (): void => {
    compact();
    serve();
  };
  sendReady(streams);
  nextTurn(serve);
}

main().catch((error: unknown) => {
  // The jail works, so the host must not try another one. It gets this error when it requests a process.
  report(`this engine cannot fork itself: ${error}`);
  sendReady({ write } as Streams);
  readBlocking(new Uint8Array(1));
  exit(1);
});

type Collect = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;

/**
 * Returns a function that frees the memory of all garbage and compacts the heap, because each of its pages is mapped
 * and unmapped again for every forked process. The engine's collector is global only in contexts that are created while
 * a flag is set, so programs cannot find it. If an engine has no such collector, the garbage stays.
 */
async function openCompaction({ call }: Libc): Promise<() => void> {
  const builtIn = await openBuiltIns();
  const { setFlagsFromString } = builtIn("v8") as { setFlagsFromString(flag: string): void };
  const { runInNewContext } = builtIn("vm") as { runInNewContext(code: string): Collect | undefined };
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("globalThis.gc");
  setFlagsFromString("--no-expose-gc");
  return () => {
    collect?.({ type: "major", execution: "sync", flavor: "last-resort" });
    call.malloc_trim(0);
  };
}
