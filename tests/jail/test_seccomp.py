"""The filter, twice: installed in the kernel around real engines and real attempts, and read by a small interpreter,
which reaches the other architecture and every number."""

from __future__ import annotations

import errno
import json
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deno
import pytest

from corral.jail import seccomp
from corral.jail.seccomp import ALLOWED, filter_program, supported

MACHINES = ("x86_64", "aarch64")

linux = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")

TRAMPOLINE = """
import ctypes, json, os, resource, sys
program, limits = bytes.fromhex(sys.argv[1]), json.loads(sys.argv[2])
for number, value in limits:
    resource.setrlimit(number, (value, value))
class Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, program)), 0, 0) == 0  # PR_SET_SECCOMP
os.execv(sys.argv[3], sys.argv[3:])
"""

# Cores of the engines that are made to crash would fill the disk.
NO_CORE = ((resource.RLIMIT_CORE, 0),)


def confined(
    command: Sequence[str], limits: Sequence[tuple[int, int]] = (), input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command under this machine's filter, started as the launcher does: filter first, then exec."""
    limits = [*NO_CORE, *limits]
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRAMPOLINE, filter_program().hex(), json.dumps(limits), *command],
        input=input,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"DENO_DIR": "/dev/null/deno", "NO_COLOR": "1"},
    )


def python(source: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return confined([sys.executable, "-I", "-S", "-c", source], input=input)


# --- engines ------------------------------------------------------------------------------------------------------

DENO_WORK = """
import vm from "node:vm";
const encoder = new TextEncoder(), decoder = new TextDecoder();
const bytes = new Uint8Array(6);
Deno.stdin.readSync(bytes);
Deno.stdout.writeSync(encoder.encode("sync " + decoder.decode(bytes)));
let rest = "";
for await (const chunk of Deno.stdin.readable) rest += decoder.decode(chunk);
await Deno.stdout.write(encoder.encode("async " + rest));
await Promise.all([1, 5, 2].map((ms) => new Promise((done) => setTimeout(done, ms))));
const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", encoder.encode("x")));
await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
let kept: unknown[] = [];
for (let i = 0; i < 200; i++) {
  kept.push(Array.from({ length: 10_000 }, () => ({ i })));
  if (i % 40 === 0) kept = [];
}
for (let i = 0; i < 100; i++) new Uint8Array(1 << 20).fill(1);
const fib = (n: number): number => (n < 2 ? n : fib(n - 1) + fib(n - 2));
const typescript = "export const value: number = 41 + 1;";
const module = await import("data:application/typescript," + encodeURIComponent(typescript));
const wasm = "AGFzbQEAAAABBQFgAAF/AwIBAAcFAQFmAAAKBgEEAEEqCw==";
const instance = await WebAssembly.instantiate(Uint8Array.from(atob(wasm), (c) => c.charCodeAt(0)));
new WebAssembly.Memory({ initial: 10, maximum: 100 }).grow(20);
Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 2);
const refused = [];
for (const attempt of [() => new Deno.Command("true").outputSync(), () => fetch("http://127.0.0.1:1/")]) {
  try { await attempt(); } catch { refused.push(true); }
}
console.log(JSON.stringify([
  hash[0], fib(27), module.value, instance.instance.exports.f(), vm.runInContext("a * 21", vm.createContext({ a: 2 })),
  structuredClone(new Map([[1, new Date(5)]])).get(1)?.getTime(), new URL("https://a.example/b?c=d").search,
  new Intl.DateTimeFormat("de-DE", { timeZone: "Europe/Oslo" }).format(new Date(0)), refused.length,
]));
console.error("to stderr");
Deno.exit(3);
"""


def run_deno(
    tmp_path: Path, source: str, *options: str, limits: Sequence[tuple[int, int]] = (), input: str = ""
) -> subprocess.CompletedProcess[str]:
    main = tmp_path / "main.ts"
    main.write_text(source, encoding="utf-8")
    flags = "run --quiet --no-prompt --no-config --no-lock --no-npm --no-remote --no-code-cache".split()
    return confined([deno.find_deno_bin(), *flags, *options, str(main)], limits, input)


@linux
@pytest.mark.parametrize(
    ("options", "limits"),
    [
        pytest.param([], [], id="no permissions", marks=pytest.mark.matrix("the gate has it within low limits too")),
        pytest.param(
            ["--allow-all"],
            [],
            id="all permissions",
            marks=pytest.mark.matrix("no program of the product has them all"),
        ),
        pytest.param(
            [],
            [(resource.RLIMIT_DATA, 1 << 30), (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_FSIZE, 0)],
            id="low limits",
        ),
    ],
)
def test_deno_does_its_whole_work(tmp_path: Path, options: list[str], limits: list[tuple[int, int]]) -> None:
    done = run_deno(tmp_path, DENO_WORK, *options, limits=limits, input="first\nthe rest\n")
    assert done.stdout.splitlines() == [
        "sync first",
        "async the rest",
        '[45,196418,42,42,42,5,"?c=d","1.1.1970",2]',
    ]
    assert done.stderr == "to stderr\n"
    assert done.returncode == 3


@linux
def test_an_uncaught_error_ends_deno_as_ever(tmp_path: Path) -> None:
    done = run_deno(tmp_path, "throw new Error('nobody catches this');")
    assert "nobody catches this" in done.stderr
    assert done.returncode == 1


@linux
def test_deno_without_memory_ends_although_it_cannot_signal_itself(tmp_path: Path) -> None:
    bomb = "const all: number[][] = []; for (;;) all.push(new Array(10_000).fill(0.5));"
    done = run_deno(tmp_path, bomb, "--v8-flags=--max-old-space-size=32")
    assert "out of memory" in done.stderr
    assert -done.returncode in {signal.SIGTRAP, signal.SIGILL, signal.SIGSEGV}


@linux
@pytest.mark.parametrize(
    "attempt", ["new Deno.Command(Deno.execPath()).outputSync()", "Deno.writeTextFileSync(FILE, 'x')"]
)
def test_deno_with_every_permission_still_makes_no_process_and_no_file(tmp_path: Path, attempt: str) -> None:
    file = tmp_path / "made"
    done = run_deno(tmp_path, f"const FILE = {json.dumps(str(file))}; {attempt};", "--allow-all")
    assert "Operation not permitted" in done.stderr
    assert done.returncode == 1
    assert not file.exists()


PYTHON_WORK = """
import asyncio, ctypes, hashlib, os, subprocess, sys, threading, time
digests = []
threads = [threading.Thread(target=lambda: digests.append(hashlib.sha256(bytes(100_000)).digest())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
nap = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: time.sleep(0.05))
assert libc.pthread_create(ctypes.byref(thread), None, nap, None) == libc.pthread_join(thread, None) == 0
async def main():
    await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(3)))
    return await asyncio.to_thread(sum, range(10))
try:
    subprocess.run([sys.executable])
except PermissionError:
    print("no subprocess")
print(len(set(digests)), asyncio.run(main()), sys.stdin.read(), len(os.urandom(4)), time.localtime(0).tm_year)
"""


@linux
def test_cpython_does_its_whole_work() -> None:
    done = python(PYTHON_WORK, input="hello")
    assert (done.stdout, done.stderr, done.returncode) == ("no subprocess\n1 45 hello 4 1970\n", "", 0)


@linux
def test_cpython_that_aborts_ends_although_it_cannot_signal_itself() -> None:
    assert python("import os; os.abort()").returncode < 0


# --- refused calls --------------------------------------------------------------------------------------------------

# Name: (x86-64, arm64), from the same two files of the kernel as the filter's own table.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "execveat": (322, 281),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "accept": (43, 202),
    "sendmsg": (46, 211),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "memfd_create": (319, 279),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "capset": (126, 91),
    "setuid": (105, 146),
    "setsid": (112, 157),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "shmget": (29, 194),
    "mq_open": (240, 180),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "mkdirat": (258, 34),
    "unlinkat": (263, 35),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "renameat2": (316, 276),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fchmodat": (268, 53),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "splice": (275, 76),
    "pkey_alloc": (330, 289),
    "modify_ldt": (154, None),
    "flock": (73, 32),
    "sysinfo": (99, 179),
    "times": (153, 153),
    "pipe2": (293, 59),
    "getpriority": (140, 141),
    "ioprio_get": (252, 31),
    "mincore": (27, 232),
    "fadvise64": (221, 223),
    "preadv2": (327, 286),
    "membarrier": (324, 283),
    "timer_create": (222, 107),
    "fstatfs": (138, 44),
}
UNKNOWN: dict[str, int] = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "pidfd_open": 434,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "memfd_secret": 447,
}

# Every attempt answers 0 if it succeeds. All are harmless even without the filter: signal 0 has no effect.
ATTEMPTS = """
import ctypes, errno, fcntl, json, mmap, os, resource, socket, sys, termios, time
assert "Seccomp:\\t2" in open("/proc/self/status").read()
libc = ctypes.CDLL(None, use_errno=True)
def raw(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments, *[0] * (6 - len(arguments)))))
    return ctypes.get_errno() if result < 0 else 0
def answer(attempt):
    try:
        result = attempt()
    except OSError as error:
        return error.errno
    return result if type(result) is int and result > 0 else 0
numbers, parent, file = json.loads(sys.stdin.read())
descriptor = os.open(sys.executable, os.O_RDONLY)
memory = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped := mmap.mmap(-1, 4096, flags=0x22))))
limits = (ctypes.c_uint64 * 2)(*resource.getrlimit(resource.RLIMIT_NOFILE))
attempts = {
    "os.fork": os.fork,
    "os.posix_spawn": lambda: os.posix_spawn(sys.executable, ["python", "-c", ""], {}),
    "signal the parent": lambda: os.kill(parent, 0),
    "signal init": lambda: os.kill(1, 0),
    "signal itself": lambda: os.kill(os.getpid(), 0),
    "own a descriptor's signals": lambda: fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid()),
    "lease": lambda: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "type into a terminal": lambda: fcntl.ioctl(descriptor, termios.TIOCSTI, b"x"),
    "lock": lambda: fcntl.lockf(descriptor, fcntl.LOCK_SH) or 0,
    "look for a lock": lambda: len(fcntl.fcntl(descriptor, fcntl.F_GETLK, bytes(32))),
    "lock for a descriptor": lambda: len(fcntl.fcntl(descriptor, 37, bytes(32))),
    "resize a pipe": lambda: fcntl.fcntl(0, 1031, 4096),
    "ask for a pipe's size": lambda: fcntl.fcntl(0, 1032),
    "merge equal pages": lambda: libc.madvise(memory, 4096, 12) and ctypes.get_errno(),
    "send pages out": lambda: libc.madvise(memory, 4096, 21) and ctypes.get_errno(),
    "huge pages": lambda: 0 * len(mmap.mmap(-1, 1 << 21, flags=0x40022)),
    "drop pages": lambda: libc.madvise(memory, 4096, 4) and ctypes.get_errno(),
    "read flags": lambda: 0 * fcntl.fcntl(descriptor, fcntl.F_GETFL),
    "read limits": lambda: resource.prlimit(0, resource.RLIMIT_NOFILE) and 0,
    "set limits": lambda: libc.prlimit(0, resource.RLIMIT_NOFILE, limits, None) and ctypes.get_errno(),
    "another's limits": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE) and 0,
    "write a file": lambda: os.open(file, os.O_WRONLY),
    "make a file": lambda: os.open(file + ".new", os.O_RDONLY | os.O_CREAT),
    "empty a file": lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
    "make a file without a name": lambda: os.open(os.path.dirname(file), os.O_TMPFILE | os.O_RDWR),
    "read a file": lambda: 0 * os.open(file, os.O_RDONLY),
    "a pair of streams": lambda: socket.socketpair() and 0,
    "a pair of datagrams": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) and 0,
    "a pair of packets": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) and 0,
    "send to a path": lambda: socket.socketpair()[0].sendto(b"x", "/nowhere"),
    "dumpable": lambda: libc.prctl(4, 1, 0, 0, 0) and ctypes.get_errno(),
    "a parent's death": lambda: libc.prctl(1, 0, 0, 0, 0) and ctypes.get_errno(),
}
answers = {name: answer(attempt) for name, attempt in attempts.items()}
answers |= {name: raw(number) for name, number in numbers.items()}
print(json.dumps(answers))
"""

# What is not in this table is refused with EPERM.
POSSIBLE = {"read flags", "read limits", "read a file", "a pair of streams", "drop pages"}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The error number that each attempt ended with, or 0."""
    file = tmp_path_factory.mktemp("seccomp") / "file"
    file.write_text("content", encoding="utf-8")
    column = MACHINES.index(platform.machine())
    numbers = {name: pair[column] for name, pair in REFUSED.items() if pair[column] is not None} | UNKNOWN
    done = python(ATTEMPTS, input=json.dumps([numbers, os.getpid(), str(file)]))
    assert done.returncode == 0, done.stderr
    assert file.read_text(encoding="utf-8") == "content"
    assert [path.name for path in file.parent.iterdir()] == ["file"]
    return json.loads(done.stdout)


@linux
def test_each_forbidden_call_fails_with_eperm(attempts: dict[str, int]) -> None:
    answers = {name: answer for name, answer in attempts.items() if name not in POSSIBLE and name not in UNKNOWN}
    assert len(answers) > 60
    assert {name: answer for name, answer in answers.items() if answer != errno.EPERM} == {}


@linux
def test_each_call_newer_than_the_list_looks_as_if_the_kernel_did_not_have_it(attempts: dict[str, int]) -> None:
    assert {name for name in UNKNOWN if attempts[name] != errno.ENOSYS} == set()


@linux
def test_what_is_restricted_still_does_what_it_is_for(attempts: dict[str, int]) -> None:
    assert {name: attempts[name] for name in POSSIBLE} == dict.fromkeys(POSSIBLE, 0)


@linux
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has a second numbering of calls")
def test_an_x32_call_kills_the_process() -> None:
    done = python("import ctypes; ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39)); print('survived')")
    assert (done.stdout, done.returncode) == ("", -signal.SIGSYS)


@linux
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 runs 32-bit calls from 64-bit code, by int 0x80")
def test_a_32_bit_call_kills_the_process() -> None:
    # mov eax, 20 (getpid); int 0x80; ret
    source = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print("survived")
"""
    done = python(source)
    assert (done.stdout, done.returncode) == ("", -signal.SIGSYS)


# --- the program itself, for both architectures -----------------------------------------------------------------------

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
ANSWERS = {
    **dict.fromkeys(("clock_gettime", "clock_getres", "clock_nanosleep"), errno.EINVAL),
}
"""What a caller hears who can do without, by name; all others hear EPERM."""
CLOCKS: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = (
    [(0,), (1,), (3,), (7,), (11,), (1 << 32,)],
    [(8,), (9,), (10,), (12,), ((~4711 << 3 | 2) % 2**64,), (2**64 - 6,), (2**32 - 5,)],
)
CLONE_THREAD_AS_GLIBC, CLONE_THREAD_AS_MUSL, CLONE_NEWNET = 0x3D0F00, 0x7D0F00, 0x40000000
HIGH = 1 << 32

# By name: arguments that pass and arguments that do not. All other calls that are allowed take any argument.
ARGUMENTS: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    # Private, not shared, nor a stack that grows: those do not count in RLIMIT_DATA.
    "mmap": (
        [(0, 1, 3, 0x22), (0, 1, 1, 0x02), (0, 1, 0, 0x4022), (0, 1, 7, 0x32)],
        [(0, 1, 3, 0x21), (0, 1, 3, 0x01), (0, 1, 3, 0x23), (0, 1, 3, 0x122), (0, 1, 3, 0), (0, 1, 3, 0x40022)],
    ),
    "open": ([(1, 0), (1, 0o2000000)], [(1, 1), (1, 2), (1, 3), (1, 0o100), (1, 0o1000), (1, 0o20200002)]),
    "openat": ([(1, 1, 0), (1, 1, HIGH)], [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 0o100), (0, 0, HIGH | 2)]),
    "fcntl": (
        [(0, n) for n in (0, 1, 2, 3, 4, 1030)],
        [(0, n) for n in (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1025, 1026, 1031, 1032, 1033, 1034)],
    ),
    # Each of them private, with and without FUTEX_CLOCK_REALTIME; and to wait as pthread_join does.
    "futex": (
        [(1, n | clock) for n in (0, 9, 0x80, 0x81, 0x83, 0x84, 0x85, 0x89, 0x8A) for clock in (0, 0x100)],
        [
            *((1, n | clock) for n in {*range(14)} - {0, 9} for clock in (0, 0x100)),
            *((1, n | 0x80) for n in (2, 6, 7, 8, 11, 12, 13)),
        ],
    ),
    "madvise": (
        [(0, 1, n) for n in (4, 8, 10, 14, 15, 16, 17)],
        [(0, 1, n) for n in (9, 12, 13, 20, 21, 22, 25, 100, 101)],
    ),
    **dict.fromkeys(("clock_gettime", "clock_getres", "clock_nanosleep"), CLOCKS),
    "ioctl": ([(0, 0x5401), (0, 0x541B), (0, 0x5421), (0, 0x5451)], [(0, 0), (0, 0x5412), (0, 0x5402), (0, 0x541C)]),
    "socketpair": ([(1, 1), (1, 0o2004001)], [(1, 2), (1, 5), (2, 1), (1, 3), (16, 1), (1, 0o2000002)]),
    "sendto": ([(0, 1, 1, 0, 0), (0, 1, 1, 0x4000, 0)], [(0, 1, 1, 0, 1), (0, 1, 1, 0, HIGH), (0, 1, 1, 0x4001, 0)]),
    "recvfrom": ([(0, 1, 1, 0), (0, 1, 1, 2)], [(0, 1, 1, 1), (0, 1, 1, 3)]),
    "clone": (
        [(CLONE_THREAD_AS_GLIBC,), (CLONE_THREAD_AS_MUSL,)],
        [(0,), (17,), (0x4111,), (0x10000,), (CLONE_THREAD_AS_GLIBC | CLONE_NEWNET,), (CLONE_THREAD_AS_GLIBC | HIGH,)],
    ),
    "arch_prctl": ([(0x1002,)], [(0x1001,), (0x1012,), (0x5001,)]),
    "prctl": ([(15,), (16,)], [(1,), (4,), (22,), (24,), (35,), (38,), (0x53564D41,)]),
    "prlimit64": ([(0, 7, 0)], [(1, 7, 0), (0, 7, 1), (0, 7, HIGH)]),
}


def interpret(program: bytes, number: int, architecture: int, arguments: Sequence[int] = ()) -> int:
    """What the kernel would answer: classic BPF over struct seccomp_data, as far as a filter can use it."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions: list[Any] = list(struct.iter_unpack("=HBBI", program))
    accumulator = place = 0
    while True:
        code, then, otherwise, value = instructions[place]
        place += 1
        match code:
            case 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                place += then if accumulator == value else otherwise
            case 0x35:
                place += then if accumulator >= value else otherwise
            case 0x06:
                return value
            case _:
                raise AssertionError(f"the kernel does not know {code:#x} in a filter")


def numbers_of(machine: str) -> dict[str, int]:
    """The numbers of the allowed calls."""
    column = MACHINES.index(machine)
    pairs = {name: pair[column] for name, pair in seccomp._CALLS.items()}  # pyright: ignore[reportPrivateUsage]
    return {name: number for name, number in pairs.items() if number is not None}


@pytest.mark.parametrize("machine", MACHINES)
def test_exactly_the_listed_numbers_pass(machine: str) -> None:
    program, audit, numbers = filter_program(machine), ARCHITECTURES[machine], numbers_of(machine)
    assert len(set(numbers.values())) == len(numbers)
    arguments = {number: ARGUMENTS[name][0][0] for name, number in numbers.items() if name in ARGUMENTS}
    answers = {number: interpret(program, number, audit, arguments.get(number, ())) for number in range(600)}
    assert {number for number, answer in answers.items() if answer == ALLOW} == set(numbers.values())
    refused = {number: answer for number, answer in answers.items() if answer != ALLOW}
    assert refused == {number: ENOSYS if number >= 424 else EPERM for number in refused}


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_where_a_call_can_do_more_than_an_engine_needs(machine: str) -> None:
    program, audit = filter_program(machine), ARCHITECTURES[machine]
    for name, number in numbers_of(machine).items():
        good, bad = ARGUMENTS.get(name, ([(0,) * 6, (2**64 - 1,) * 6], []))
        assert {interpret(program, number, audit, arguments) for arguments in good} == {ALLOW}, name
        for arguments in bad:
            answer = 0x50000 | ANSWERS.get(name, errno.EPERM)
            assert interpret(program, number, audit, arguments) == answer, f"{name}{arguments}"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_neither_waits_for_nor_wakes_what_other_processes_may(machine: str) -> None:
    program, audit, number = filter_program(machine, "program"), ARCHITECTURES[machine], numbers_of(machine)["futex"]
    answers = {n: interpret(program, number, audit, (1, n)) for n in (0, 1, 9, 10, 0x109, 0x80, 0x81, 0x189, 0x8A)}
    assert {n for n, answer in answers.items() if answer == ALLOW} == {0x80, 0x81, 0x189, 0x8A}
    assert {answer for answer in answers.values() if answer != ALLOW} == {0x50000 | errno.EAGAIN}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("architecture", [0x40000003, 0x40000028, 0, *ARCHITECTURES.values()])
def test_a_call_of_another_architecture_kills_the_process(machine: str, architecture: int) -> None:
    if architecture != ARCHITECTURES[machine]:
        assert {interpret(filter_program(machine), number, architecture) for number in range(600)} == {KILL}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_number_of_x32_or_below_zero_kills_the_process(machine: str) -> None:
    program, audit = filter_program(machine), ARCHITECTURES[machine]
    assert {interpret(program, 0x40000000 + number, audit) for number in range(600)} == {KILL}
    assert interpret(program, 0xFFFFFFFF, audit) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_refused_on_one_architecture_is_refused_on_both(machine: str) -> None:
    program, column = filter_program(machine), MACHINES.index(machine)
    assert not ALLOWED & (REFUSED.keys() | UNKNOWN.keys())
    for pair in REFUSED.values():
        if (number := pair[column]) is not None:
            assert interpret(program, number, ARCHITECTURES[machine]) == EPERM


def test_a_machine_without_a_table_is_named_in_the_error() -> None:
    assert [supported(machine) for machine in (*MACHINES, "riscv64")] == [True, True, False]
    with pytest.raises(ValueError, match="riscv64, only for x86_64 and aarch64"):
        filter_program("riscv64")


@linux
def test_without_a_name_it_is_this_machine() -> None:
    assert supported() == (platform.machine() in MACHINES)
    assert filter_program() == filter_program(platform.machine())
