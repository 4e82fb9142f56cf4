"""The system calls that an engine may make, as a filter for the kernel: seccomp(2), a program in classic BPF.

One list runs Deno, CPython and the language servers. What it keeps from a guest that has broken out of its engine: to
make processes, to open a file for writing, to use any socket but a pair of its own, to signal, trace or limit a
process, to change its privileges or namespaces, and most of the kernel's surface. It also keeps guests from talking to
each other by what the kernel holds for all: locks, futexes and mappings of a file that both may read, clocks of
other processes, counts of the whole machine or of all processes of a user. What it leaves: reading every
file and starting every program that the layer around it shows, because a filter sees numbers and not paths, and because
it is in force before the engine itself is started.

A call that is not listed fails with EPERM. From number 424 on it fails with ENOSYS: those are newer than Linux 5.0, so
whoever makes one knows how to do without (a thread is made by `clone` if there is no `clone3`). What only an attack
would do, calls of another architecture, ends the process.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["ALLOWED", "SyscallProfile", "filter_program", "supported"]

SyscallProfile: TypeAlias = Literal["engine", "server", "program", "checker"]
"""An engine runs programs itself. A server only forks: for each program a process, which puts itself under the filter
of a program, who may do what an engine may, but start nothing. A checker reads programs and runs none."""

# Name: (x86-64, arm64); None where an architecture does not have it. Numbers from Linux's
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h. In the order in which they are compared.
# fmt: off
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # What a busy engine does all the time.
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "mprotect": (10, 226), "madvise": (28, 233),
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214), "sched_yield": (24, 124),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_ctl": (233, 21), "epoll_create1": (291, 20),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    # Clocks; most of them are answered without the kernel.
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, None),
    # Files, for reading.
    "openat": (257, 56), "open": (2, None), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67), "readv": (19, 65),
    "writev": (20, 66), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291), "stat": (4, None),
    "lstat": (6, None), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
    # Descriptors; an event loop wakes itself by an eventfd or a pair of sockets. No pipes: how much one holds tells how
    # many the user's other processes have (pipe(7), pipe-user-pages-soft).
    "fcntl": (72, 25), "ioctl": (16, 29), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "eventfd2": (290, 19), "socketpair": (53, 199), "getsockname": (51, 204), "recvfrom": (45, 207),
    "sendto": (44, 206),
    # Signals to itself, from the processor.
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    # The process, its threads and its end. bubblewrap, itself under the filter, waits for the engine with wait4.
    "execve": (59, 221), "clone": (56, 220), "wait4": (61, 260), "exit": (60, 93), "exit_group": (231, 94),
    "set_tid_address": (218, 96), "set_robust_list": (273, 99), "rseq": (334, 293), "arch_prctl": (158, None),
    "prctl": (157, 167),
    # What it may know: about itself, and about the machine. Not sysinfo: it counts all processes and all free memory.
    "getrandom": (318, 278), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "prlimit64": (302, 261), "getrusage": (98, 165),
    "sched_getaffinity": (204, 123), "sched_getscheduler": (145, 120), "sched_getparam": (143, 121),
    "getcpu": (309, 168), "uname": (63, 160),
}
# fmt: on

_CALLS_OF_A_SERVER: dict[str, tuple[int | None, int | None]] = {
    "recvmsg": (47, 212), "sendmsg": (46, 211), "waitid": (247, 95), "close_range": (436, 436),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pipe2": (293, 59),
}  # fmt: skip
"""To be asked for processes, to make, watch and end them."""
_CALLS_OF_A_WRITER: dict[str, tuple[int | None, int | None]] = {
    "pwrite64": (18, 68), "pwritev": (296, 70), "preadv": (295, 69), "ftruncate": (77, 46), "truncate": (76, 45),
    "fsync": (74, 82), "fdatasync": (75, 83), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "utimensat": (280, 88), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "statfs": (137, 43), "fstatfs": (138, 44),
}  # fmt: skip
"""In directories that a session gives. Not links of both kinds, devices, FIFOs, owners, extended attributes."""
_NOT_OF_A_PROGRAM = frozenset({"execve", "wait4"})

ALLOWED = frozenset(_CALLS)
"""The names of all calls that an engine may make, some of them only with certain arguments."""


class _Check(NamedTuple):
    """Argument `position`, masked, has one of these values. Whole: and its upper half is 0. Else the call fails.

    The kernel takes most arguments as 32 bits and ignores the rest; pointers and flags of `clone` it takes whole.
    """

    position: int
    values: tuple[int, ...]
    mask: int = 0xFFFF_FFFF
    whole: bool = False
    error: int = errno.EPERM


_O_WRONLY, _O_RDWR, _O_CREAT, _O_TRUNC = 0o1, 0o2, 0o100, 0o1000  # the same in both, as all numbers below
_WRITING = _O_WRONLY | _O_RDWR | _O_CREAT | _O_TRUNC
_SOCK_FLAGS = 0o4000 | 0o2000000  # SOCK_NONBLOCK, SOCK_CLOEXEC
_AF_UNIX = _SOCK_STREAM = 1
_FUTEX_PRIVATE, _FUTEX_CLOCK_REALTIME = 0x80, 0x100
_FUTEXES = tuple(operation | _FUTEX_PRIVATE for operation in (0, 1, 3, 4, 5, 9, 10))
"""FUTEX_WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET; not those that lend priority. Private
ones: others know each other by the page of a file."""
_WAITS = (0, 9)
"""FUTEX_WAIT, WAIT_BITSET, not private: how glibc's pthread_join waits for a thread, whose end wakes it."""
_OWN_CLOCKS = (_Check(0, (0, 1, 2, 3, 4, 5, 6, 7, 11), error=errno.EINVAL),)
"""CLOCK_REALTIME and the others that have a name; below 0 are the clocks of other processes and of devices."""
_ADVICE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)
"""MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, DONTFORK, DOFORK, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP,
WIPEONFORK, KEEPONFORK. Not MERGEABLE, by which equal pages of two processes become one, nor COLD, PAGEOUT and COLLAPSE,
which move a file's pages in the memory of all."""

_CHECKS: dict[str, tuple[_Check, ...]] = {
    "open": (_Check(1, (0,), mask=_WRITING),),
    "openat": (_Check(2, (0,), mask=_WRITING),),
    "futex": (_Check(1, (*_FUTEXES, *_WAITS), mask=0xFFFF_FFFF ^ _FUTEX_CLOCK_REALTIME),),
    "madvise": (_Check(2, _ADVICE),),
    "clock_gettime": _OWN_CLOCKS,
    "clock_getres": _OWN_CLOCKS,
    "clock_nanosleep": _OWN_CLOCKS,
    # MAP_PRIVATE, and not MAP_GROWSDOWN: shared memory and stacks do not count in RLIMIT_DATA. Not MAP_HUGETLB: the
    # machine has so many huge pages for all.
    "mmap": (_Check(3, (0x02,), mask=0x0F | 0x100 | 0x4_0000),),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; not locks and leases, which others see, and not
    # F_SETOWN, which lets the kernel signal another process.
    "fcntl": (_Check(1, (0, 1, 2, 3, 4, 1030)),),
    # TCGETS and TCGETS2 (is it a terminal?), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX; not TIOCSTI, which types into a
    # terminal.
    "ioctl": (_Check(1, (0x5401, 0x802C_542A, 0x541B, 0x5421, 0x5450, 0x5451)),),
    # A stream, never datagrams: those could be sent to any socket that has a path.
    "socketpair": (_Check(0, (_AF_UNIX,)), _Check(1, (_SOCK_STREAM,), mask=0xFFFF_FFFF ^ _SOCK_FLAGS)),
    "sendto": (_Check(4, (0,), whole=True),),  # to no address
    # Exactly what pthread_create(3) asks for: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID,
    # CHILD_CLEARTID; musl's adds CLONE_DETACHED, which does nothing.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00), whole=True),),
    "arch_prctl": (_Check(0, (0x1002,)),),  # ARCH_SET_FS: where a thread's own data are
    "prctl": (_Check(0, (15, 16)),),  # PR_SET_NAME, PR_GET_NAME: of a thread
    "prlimit64": (_Check(0, (0,)), _Check(2, (0,), whole=True)),  # its own limits, for reading
}

_CHECKS_OF_A_SERVER: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # fork(3) too: SIGCHLD alone, or with CLONE_CHILD_SETTID and CLONE_CHILD_CLEARTID.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00, 0x0120_0011, 0x11), whole=True),),
    # PR_SET_PDEATHSIG and PR_SET_SECCOMP too, of its children, and PR_SET_DUMPABLE, of all of them.
    "prctl": (_Check(0, (15, 16, 1, 22, 4)),),
    "prlimit64": (_Check(0, (0,)),),  # its own limits, which can only fall
}

_CHECKS_OF_A_CHECKER: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # Threads as Go makes them too (runtime/os_linux.go): without any of the last three flags, or with CLONE_SETTLS.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00, 0x0005_0F00, 0x000D_0F00), whole=True),),
}

_O_TMPFILE = 0o20_000_000
_SET_ID = 0o6000
"""S_ISUID and S_ISGID: on a directory of the host, a file with them would be a way to its owner's rights."""
_CHECKS_OF_A_WRITER: dict[str, tuple[_Check, ...]] = {
    "open": (_Check(1, (0,), mask=_O_TMPFILE), _Check(2, (0,), mask=_SET_ID)),
    "openat": (_Check(2, (0,), mask=_O_TMPFILE), _Check(3, (0,), mask=_SET_ID)),
    "chmod": (_Check(1, (0,), mask=_SET_ID),),
    "fchmod": (_Check(1, (0,), mask=_SET_ID),),
    "fchmodat": (_Check(2, (0,), mask=_SET_ID),),
    # F_GETLK, F_SETLK and F_SETLKW too, by which sqlite locks what the session's programs share. They work on files of
    # the engine as well, which others may read: two programs that want to can talk by them.
    "fcntl": (_Check(1, (0, 1, 2, 3, 4, 5, 6, 7, 1030)),),
}

_CHECKS_OF_A_PROGRAM: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # Whoever may wait can be woken by the end of another's thread. pthread_join, told that the value has changed, looks
    # again until it has.
    "futex": (_Check(1, _FUTEXES, mask=0xFFFF_FFFF ^ _FUTEX_CLOCK_REALTIME, error=errno.EAGAIN),),
}

_FIRST_NEW_CALL = 424
"""pidfd_send_signal, of Linux 5.1. From here on a call has the same number on every architecture."""
_X32 = 0x4000_0000
"""__X32_SYSCALL_BIT: x86-64 with other numbers and pointers of 32 bits. arm64 knows no such call either."""


class _Machine(NamedTuple):
    column: int
    audit: int


_MACHINES = {"x86_64": _Machine(0, 0xC000_003E), "aarch64": _Machine(1, 0xC000_00B7)}
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 (linux/audit.h). Both little-endian."""

# struct seccomp_data (linux/seccomp.h): the call's number, the architecture, the instruction pointer, six arguments.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# linux/bpf_common.h: BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_JMP|BPF_JEQ|BPF_K, BPF_JMP|BPF_JGE|BPF_K, BPF_RET
_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06

# linux/seccomp.h: SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000


def supported(machine: str | None = None) -> bool:
    """True if there is a filter for `machine`, by default this one."""
    return (machine or platform.machine()) in _MACHINES


def filter_program(machine: str | None = None, profile: SyscallProfile = "engine", *, writes: bool = False) -> bytes:
    """The filter for `machine` as platform.machine() names it: an array of struct sock_filter, 8 bytes each.

    With `writes` it lets files be written, where the layers around it show any that may be.

    Raises:
        ValueError: there is no table of this machine's calls.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise ValueError(f"there is no table of system calls for {machine}, only for {' and '.join(_MACHINES)}")
    column, audit = _MACHINES[machine]
    program = [_instruction(_LOAD, _ARCHITECTURE), *_unless(_IF_EQUAL, audit, _KILL), _instruction(_LOAD, _NUMBER)]
    program += _if(_IF_AT_LEAST, _X32, [_instruction(_RETURN, _KILL)])
    calls, checks = _calls_of(profile)
    if writes:
        calls, checks = {**calls, **_CALLS_OF_A_WRITER}, {**checks, **_CHECKS_OF_A_WRITER}
    for name, numbers in calls.items():
        if (number := numbers[column]) is not None:
            body = [instruction for check in checks.get(name, ()) for instruction in _checked(check)]
            program += _if(_IF_EQUAL, number, [*body, _instruction(_RETURN, _ALLOW)])
    program += _if(_IF_AT_LEAST, _FIRST_NEW_CALL, [_instruction(_RETURN, _ERRNO | errno.ENOSYS)])
    return b"".join([*program, _instruction(_RETURN, _ERRNO | errno.EPERM)])


def _calls_of(
    profile: SyscallProfile,
) -> tuple[Mapping[str, tuple[int | None, int | None]], Mapping[str, tuple[_Check, ...]]]:
    match profile:
        case "engine":
            return _CALLS, _CHECKS
        case "server":
            return _CALLS | _CALLS_OF_A_SERVER, _CHECKS_OF_A_SERVER
        case "checker":
            return _CALLS, _CHECKS_OF_A_CHECKER
        case "program":
            calls = {name: numbers for name, numbers in _CALLS.items() if name not in _NOT_OF_A_PROGRAM}
            return calls, _CHECKS_OF_A_PROGRAM


def _checked(check: _Check) -> list[bytes]:
    """Goes on if the check holds, else answers its error."""
    low = _ARGUMENTS + 8 * check.position
    code = [_instruction(_LOAD, low), _instruction(_AND, check.mask)]
    left = len(check.values)  # a value that fits jumps over those after it, and over the return
    code += [_instruction(_IF_EQUAL, value, then=left - place) for place, value in enumerate(check.values)]
    code.append(_instruction(_RETURN, _ERRNO | check.error))
    if check.whole:
        code += [_instruction(_LOAD, low + 4), *_unless(_IF_EQUAL, 0, _ERRNO | check.error)]
    return code


def _if(test: int, value: int, body: list[bytes]) -> list[bytes]:
    """Runs the body, which returns, if the test of the loaded word holds."""
    return [_instruction(test, value, otherwise=len(body)), *body]


def _unless(test: int, value: int, result: int) -> list[bytes]:
    """Returns the result if the test does not hold."""
    return [_instruction(test, value, then=1), _instruction(_RETURN, result)]


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """struct sock_filter (linux/filter.h): a jump skips so many of the next instructions."""
    return struct.pack("=HBBI", code, then, otherwise, value)
