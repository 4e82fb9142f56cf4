// What the attacks of own.py begin with: system calls by number, through the C library, as native code would make them.
const leaked = (what) => console.log("LEA" + "KED " + what);
const libc = (symbols) => {
  let failure;
  for (const path of ["libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6"]) {
    try {
      return Deno.dlopen(path, symbols).symbols;
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
};
const x86 = Deno.build.arch === "x86_64";
const NUMBERS = {
  write: [1, 64], socket: [41, 198], connect: [42, 203], sendto: [44, 206], clone: [56, 220], execve: [59, 221],
  kill: [62, 129], msgget: [68, 186], ptrace: [101, 117], syslog: [103, 116], personality: [135, 92],
  setpriority: [141, 140], pivot_root: [155, 41], chroot: [161, 51], mount: [165, 40], sethostname: [170, 161],
  tkill: [200, 130], mq_open: [240, 180], add_key: [248, 217], request_key: [249, 218], keyctl: [250, 219],
  inotify_init1: [294, 26], unshare: [272, 97], perf_event_open: [298, 241], fanotify_init: [300, 262], prlimit64: [302, 261],
  name_to_handle_at: [303, 264], setns: [308, 268], process_vm_readv: [310, 270], seccomp: [317, 277],
  memfd_create: [319, 279], bpf: [321, 280], execveat: [322, 281], userfaultfd: [323, 282], statx: [332, 291],
  shmget: [29, 194], shmat: [30, 196], mknodat: [259, 33], linkat: [265, 37], symlinkat: [266, 36], openat: [257, 56],
  pread64: [17, 67], fork: [57, -1], vfork: [58, -1], dup3: [292, 24], rt_sigqueueinfo: [129, 138],
  pidfd_send_signal: [424, 424], io_uring_setup: [425, 425], pidfd_open: [434, 434], clone3: [435, 435],
  madvise: [28, 233], flock: [73, 32], fcntl: [72, 25], sysinfo: [99, 179], futex: [202, 98], clock_gettime: [228, 113], mmap: [9, 222],
  pipe2: [293, 59], utimensat: [280, 88], mincore: [27, 232], preadv2: [327, 286],
  pidfd_getfd: [438, 438], landlock_create_ruleset: [444, 444], open_tree: [428, 428], fsopen: [430, 430],
};
let invoke;
const held = [];
const text = (string) => new TextEncoder().encode(string + "\0");
/** The address of a buffer, or of a string's bytes, that lives as long as the program. */
const at = (value) => {
  const buffer = typeof value === "string" ? text(value) : value;
  held.push(buffer);
  return BigInt(Deno.UnsafePointer.value(Deno.UnsafePointer.of(buffer)));
};
/** A system call: -1n is a failure, whatever the reason. */
const sys = (name, ...values) => {
  invoke ??= libc({ syscall: { parameters: Array(7).fill("i64"), result: "i64" } }).syscall;
  const all = [NUMBERS[name][x86 ? 0 : 1], ...values].map(BigInt);
  while (all.length < 7) all.push(0n);
  return BigInt(invoke(...all));
};
const sockaddr = (port) => new Uint8Array([2, 0, port >> 8, port & 255, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
const unixaddr = (path) => new Uint8Array([1, 0, ...new TextEncoder().encode(path), 0]);
const words = (...values) => new Uint8Array(new BigInt64Array(values.map(BigInt)).buffer);
const read = (path) => {
  try {
    return fs.readFileSync(path, "latin1").slice(0, 20000);
  } catch (error) {
    return String(error.code);
  }
};
