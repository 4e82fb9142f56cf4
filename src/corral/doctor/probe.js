// Program that `corral doctor` runs inside a jail, in an engine that has all of its own permissions. It tries to get
// out by harmless means, reports each attempt on one line, and then computes until it is ended.
const aim = JSON.parse(Deno.args[0]);
const MEGABYTE = 1 << 20;
const LIBRARIES = ["libc.so.6", "libc.so", "/lib/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
const attempts = {};

/**
 * Runs an attempt. `action` returns what it got, in words, or throws the refusal. An error of the probe itself is not a
 * refusal.
 */
const attempt = async (name, action) => {
  try {
    attempts[name] = ["got through", String(await action()).slice(0, 100)];
  } catch (error) {
    const broken = error instanceof TypeError || error instanceof ReferenceError || error instanceof SyntaxError;
    attempts[name] = [broken ? "not tried" : "refused", String(error?.message ?? error).slice(0, 100)];
  }
};

/**
 * Returns the result of the first action that gets through. If none does, throws the last refusal, or the first error
 * of the probe itself.
 */
const any = async (...actions) => {
  const errors = [];
  for (const action of actions) {
    try {
      return await action();
    } catch (error) {
      errors.push(error);
    }
  }
  throw errors.find((error) => error instanceof TypeError) ?? errors.at(-1);
};

const connect = async (options) => {
  (await Deno.connect(options)).close();
  return "connected";
};

const environment = (process) => () => {
  const text = Deno.readTextFileSync(`/proc/${process}/environ`);
  const found = text.split("\0").find((entry) => entry.startsWith(`${aim.variable}=`));
  if (process === "self" && found === undefined) throw new Error("only its own");
  return `/proc/${process}/environ: ${found ?? `${text.length} characters`}`;
};

/** All streams are pipes, because a jail need not have a /dev/null. */
const run = (program, ...args) => async () => {
  const pipes = { stdin: "piped", stdout: "piped", stderr: "piped" };
  const child = new Deno.Command(program, { args, clearEnv: true, ...pipes }).spawn();
  await child.stdin.close();
  return `${program}, which ended with ${(await child.output()).code}`;
};

const library = (symbols) => {
  let failure;
  for (const name of LIBRARIES) {
    try {
      return Deno.dlopen(name, symbols).symbols;
    } catch (error) {
      failure = error;
    }
  }
  throw new Error(`no C library to call: ${failure.message}`);
};

const callKernel = () => {
  const number = { parameters: ["i32"], result: "i32" };
  const libc = library({
    getuid: { parameters: [], result: "u32" },
    socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
    memfd_create: { parameters: ["buffer", "u32"], result: "i32" },
    fork: { parameters: [], result: "i32" },
    _exit: { ...number, result: "void" },
  });
  const made = [];
  // linux/socket.h: AF_UNIX 1, AF_INET 2, AF_NETLINK 16; SOCK_STREAM 1, SOCK_DGRAM 2, SOCK_RAW 3
  for (const [name, family, kind] of [["TCP", 2, 1], ["UDP", 2, 2], ["unix", 1, 2], ["netlink", 16, 3]]) {
    if (libc.socket(family, kind, 0) >= 0) made.push(`${name} socket`);
  }
  if (libc.memfd_create(new Uint8Array([109, 0]), 0) >= 0) made.push("file in memory");
  const child = libc.fork();
  if (child === 0) libc._exit(0);
  if (child > 0) made.push("process");
  if (made.length === 0) throw new Error(`no socket, no file in memory, no process, as user ${libc.getuid()}`);
  return made.join(", ");
};

/** Returns how many megabytes of buffers it gets, up to two gigabytes. None of them is touched. */
const allocate = () => {
  const held = [];
  try {
    while (held.length < 8) held.push(new ArrayBuffer(256 * MEGABYTE));
  } catch {
    // as it should
  }
  return held.length * 256;
};

const list = (path) => Array.from(Deno.readDirSync(path), (entry) => entry.name);
let root = [];
try {
  root = list("/").slice(0, 40);
} catch {
  // nothing to see
}

await attempt("read_file", () => Deno.readTextFileSync(aim.file));
await attempt("see_file", () => `${Deno.statSync(aim.file).size} bytes`);
await attempt("list_directory", () => list(aim.directory).join(" "));
await attempt("write_file", () => Deno.writeTextFileSync(aim.written, "written"));
await attempt("read_environment", () => any(environment(aim.process), environment(1), environment("self")));
await attempt("connect_tcp", () => connect({ hostname: "127.0.0.1", port: aim.port }));
await attempt("connect_unix", () => connect({ transport: "unix", path: aim.socket }));
await attempt("start_process", () => any(run("/bin/true"), run("/usr/bin/true"), run(Deno.execPath(), "--version")));
await attempt("signal_process", () => Deno.kill(aim.process, "SIGCONT"));
await attempt("call_kernel", callKernel);
const report = { attempts, root, variable: Deno.env.get(aim.variable) ?? null, megabytes: allocate() };
Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify(report) + "\n"));
for (;;);
