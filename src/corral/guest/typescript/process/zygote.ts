// The fork server: a warm engine that runs no program itself, and forks a process for each one.
//
// It speaks the protocol of guest/python/zygote.py. A forked process runs its program as main.ts does.

import { exit, nextTurn, readAsynchronously, readBlocking, write } from "../engine.ts";
import { execute, prepareGlobals, sendReady, type Streams } from "./execution.ts";
import { Filter, Forker } from "./fork.ts";
import { type AddressOf, type Libc, openLibc } from "./libc.ts";
import { openBuiltIns, preload, type Preloading } from "./modules.ts";
import { LANGUAGE, warmUp, warmUpPlatform } from "./warm_up.ts";

const CONTROL = 0;
const WARM_UPS_BEFORE = 20;
const WARM_UPS = 100;
const CALLS = 2;
/** Twice the number of processes that the host requests at once. */
const MOST_PROCESSES = 512;
const MESSAGE_BYTES = 1 << 17;
const MOST_DESCRIPTORS = 8;
/** Maximum length of the reported end of a process's standard error, and the capacity of a pipe. */
const ERRORS_BYTES = 16_384;
const PIPE_BYTES = 65_536;
const MESSAGE_SIZE = BigInt(MESSAGE_BYTES);
const CONTROL_SIZE = BigInt(16 + 4 * MOST_DESCRIPTORS);

const PR_SET_DUMPABLE = 4;
const POLLIN = 1;
const WAITS = -1;
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_SEND_SIGNAL = 424;
const SIGKILL = 9;
const EINTR = 4;
const EAGAIN = 11;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
const MSG_CTRUNC = 0x8n;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x4000_0000;
const CLOSE_ON_EXEC = 0o2000000;
const ERRORS = 0x21; // "!"

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const encodeInto = encoder.encodeInto.bind(encoder);
const decode = decoder.decode.bind(decoder);
const asBigInt = BigInt;
const { apply } = Reflect;
const { copyWithin } = Object.getPrototypeOf(Uint8Array.prototype) as Uint8Array;
const { parse, stringify } = JSON;

const Bytes = Uint8Array; // constructors use no other constructor, unlike methods that make views
const view = (bytes: number): Uint8Array => new Bytes(new ArrayBuffer(bytes));

/**
 * Messages of a socket, with descriptors: struct msghdr and struct cmsghdr (recvmsg(2), cmsg(3)) of 64 bits.
 *
 * From here on, the code that serves processes uses existing views, and no part of the language that preloaded code could
 * have replaced: no globals, no method lookups, no iteration, no growing lists.
 */
class Messages {
  readonly #buffer = new ArrayBuffer(MESSAGE_BYTES);
  readonly #data = new Bytes(this.#buffer);
  readonly #control = view(16 + 4 * MOST_DESCRIPTORS);
  readonly #words = new Int32Array(this.#control.buffer);
  readonly #header = view(56);
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

  /** Returns the size of a message, below 0 if there is none. Drops its descriptors if some were lost. */
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

  /** Returns false if the other end is closed, or the descriptor cannot be sent. */
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
  /** struct pollfd: the control socket's, then two for each process: its own and its lifeline's. */
  readonly #polls = view(8 * (1 + 2 * MOST_PROCESSES));
  readonly #polled = new Int32Array(this.#polls.buffer);
  readonly #pids = new Int32Array(MOST_PROCESSES);
  /** Pipes of each process's standard error. */
  readonly #errors = new Int32Array(MOST_PROCESSES);
  readonly #pipeBytes = view(8);
  readonly #pipe = new Int32Array(this.#pipeBytes.buffer);
  #count = 0;
  readonly #statusBytes = view(8);
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

  /** Forks processes, until no request is pending if it `hurries`, otherwise forever. Returns true in a forked process. */
  serve(hurries: boolean): boolean {
    const { call, errno } = this.#libc;
    for (;;) {
      const count = this.#count;
      const ready = call.poll(this.#polls, 1 + 2 * count, hurries ? 0 : WAITS);
      if (ready === 0) return false;
      if (ready < 0 && errno() !== EINTR) call._exit(1);
      if (ready < 0) continue;
      // Backwards, because the last one takes the place of a removed one.
      for (let index = count - 1; index >= 0; index--) this.#look(index);
      // Last: a new process gets numbers of descriptors closed above, which may have been polled.
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
    if (count !== 2) { // no descriptors were left for them; their lifeline is closed
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
    if (!messages.send(libc, lifeline, `{"pid":0}`, process)) { // too many descriptors of the host's user may be in flight
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
   * Loads the filter of programs, or returns the packages to preload. Once code was preloaded, messages are no longer parsed:
   * that code could change the result.
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
    // A process forked ahead of its program touches everything that it will need, so that its pages are already copied.
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
  // The jail works, so the host must not look for another one: it gets this error when it requests a process.
  report(`this engine cannot fork itself: ${error}`);
  sendReady({ write } as Streams);
  readBlocking(new Uint8Array(1));
  exit(1);
});

type Collect = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;

/**
 * Returns a function that frees the memory of all garbage and compacts the rest: each page of the heap is mapped and
 * unmapped again for every forked process.
 *
 * The engine's collector is global only in contexts that are made while a flag is set: programs cannot find it. If an engine
 * has no such collector, the garbage stays.
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
