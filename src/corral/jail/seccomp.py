"""System call filter for an engine: seccomp(2), a program in classic BPF.

One list runs Deno, CPython and the language servers. A guest that has broken out of its engine cannot make processes,
open a file for writing, use sockets other than its own pair, signal, trace or limit a process, change its privileges or
namespaces, or reach most of the kernel's surface. Nor can guests communicate through shared kernel state: locks,
futexes and mappings of a file that both can read, clocks of other processes, counts of the whole machine or of all
processes of a user. They can still read every file and start every program that the surrounding layer shows, because a
filter sees numbers instead of paths, and because it is in force before the engine itself starts.

A call that is not listed fails with EPERM, or with ENOSYS from number 424 on: these calls are newer than Linux 5.0, so
their callers have a fallback, such as `clone` for `clone3`. Calls of another architecture, which only an attack would
make, end the process.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

SyscallProfile: TypeAlias = Literal["engine", "server", "program", "checker", "interpreter", "shell", "offline shell"]
"""An engine runs programs itself. A server only forks: each program gets a process that puts itself under the filter
"program", which allows the same as "engine" but starts nothing. A checker reads programs without running them. An
interpreter is a program to which the host sends connections. A shell runs commands in their own namespaces. An
offline shell has no namespaces, so it has no sockets except pairs, and can only use its own per-process state in the
kernel."""

# Name: (x86-64, arm64); None if the architecture lacks it. Numbers from Linux's
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h. In the order of comparison.
# fmt: off
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # Frequent calls of a busy engine.
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "mprotect": (10, 226), "madvise": (28, 233),
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214), "sched_yield": (24, 124),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_ctl": (233, 21), "epoll_create1": (291, 20),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    # Clocks; most of them are read without entering the kernel.
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, None),
    # Reading files.
    "openat": (257, 56), "open": (2, None), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67), "readv": (19, 65),
    "writev": (20, 66), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291), "stat": (4, None),
    "lstat": (6, None), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
    # Descriptors; an event loop wakes itself with an eventfd or a socket pair. No pipes: a pipe's capacity reveals
    # how many the user's other processes have (pipe(7), pipe-user-pages-soft).
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
    # Information about itself and about the machine. Not sysinfo: it counts all processes and all free memory.
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
"""Calls for receiving requests, and for making, watching and ending processes."""
_CALLS_OF_A_WRITER: dict[str, tuple[int | None, int | None]] = {
    "pwrite64": (18, 68), "pwritev": (296, 70), "preadv": (295, 69), "ftruncate": (77, 46), "truncate": (76, 45),
    "fsync": (74, 82), "fdatasync": (75, 83), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "utimensat": (280, 88), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "statfs": (137, 43), "fstatfs": (138, 44),
}  # fmt: skip
"""Calls in directories of a session. No links of either kind, devices, FIFOs, owners or extended attributes."""
# fmt: off
_CALLS_OF_A_SHELL: dict[str, tuple[int | None, int | None]] = {
    # Processes: making, waiting, signalling, grouping. Those of the host are outside their namespace and signal scope.
    "fork": (57, None), "vfork": (58, None), "execveat": (322, 281), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "setpgid": (109, 154), "getpgid": (121, 155), "getpgrp": (111, None), "getsid": (124, 156),
    "setsid": (112, 157), "getpriority": (140, 141), "setpriority": (141, 140), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "times": (100, 153), "sysinfo": (99, 179), "membarrier": (324, 283),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_getattr": (315, 275),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "ioprio_get": (252, 31),
    "getgroups": (115, 158), "setgroups": (116, 159), "setuid": (105, 146), "setgid": (106, 144),
    "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149),
    "getresuid": (118, 148), "getresgid": (120, 150), "capget": (125, 90),
    # Signals and timers.
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "rt_sigpending": (127, 136),
    "rt_sigqueueinfo": (129, 138), "pause": (34, None), "signalfd": (282, None), "signalfd4": (289, 74),
    "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103), "timer_create": (222, 107),
    "timer_settime": (223, 110), "timer_gettime": (224, 108), "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "futex_waitv": (449, 449),
    # Descriptors.
    "pipe": (22, None), "eventfd": (284, None), "epoll_create": (213, None), "epoll_pwait2": (441, 441),
    "sendfile": (40, 71), "splice": (275, 76), "tee": (276, 77), "copy_file_range": (326, 285),
    "fadvise64": (221, 223), "readahead": (187, 213), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28), "openat2": (437, 437),
    # Files: links, FIFOs, sockets, owners, attributes, locks.
    "creat": (85, None), "getdents": (78, None), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "chown": (92, None), "lchown": (94, None),
    "fchown": (93, 55), "fchownat": (260, 54), "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10),
    "listxattr": (194, 11), "llistxattr": (195, 12), "flistxattr": (196, 13), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "flock": (73, 32), "fallocate": (285, 47), "sync": (162, 81),
    "syncfs": (306, 267), "sync_file_range": (277, 84), "preadv2": (327, 286), "pwritev2": (328, 287),
    # Memory.
    "msync": (26, 227), "mincore": (27, 232), "mlock": (149, 228), "munlock": (150, 229), "mlock2": (325, 284),
    "pkey_alloc": (330, 289), "pkey_free": (331, 290), "pkey_mprotect": (329, 288), "getcpu": (309, 168),
}
_CALLS_OF_A_NETWORK: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242),
    "connect": (42, 203),
}
_CALLS_OF_A_SOCKET: dict[str, tuple[int | None, int | None]] = {
    "setsockopt": (54, 208), "getsockopt": (55, 209), "getpeername": (52, 205), "shutdown": (48, 210),
    "sendmmsg": (307, 269), "recvmmsg": (299, 243),
}
# fmt: on
_NOT_OF_A_PROGRAM = frozenset({"execve", "wait4"})

ALLOWED = frozenset(_CALLS)
"""Names of all calls that an engine can make, some only with certain arguments."""


class _Check(NamedTuple):
    """Condition on a call: its argument at `position`, masked, has one of these values; with `whole`, its upper half is
    0.

    The kernel reads most arguments as 32 bits and ignores the rest, but reads pointers and the flags of `clone` whole.
    """

    position: int
    values: tuple[int, ...]
    mask: int = 0xFFFF_FFFF
    whole: bool = False
    error: int = errno.EPERM


_O_WRONLY, _O_RDWR, _O_CREAT, _O_TRUNC = 0o1, 0o2, 0o100, 0o1000  # the same on both, like all numbers below
_WRITING = _O_WRONLY | _O_RDWR | _O_CREAT | _O_TRUNC
_SOCK_FLAGS = 0o4000 | 0o2000000  # SOCK_NONBLOCK, SOCK_CLOEXEC
_AF_UNIX = _SOCK_STREAM = 1
_SOCK_SEQPACKET = 5
_MSG_OOB = 1
_FUTEX_PRIVATE, _FUTEX_CLOCK_REALTIME = 0x80, 0x100
_FUTEXES = tuple(operation | _FUTEX_PRIVATE for operation in (0, 1, 3, 4, 5, 9, 10))
"""FUTEX_WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET; not those with priority inheritance. Only
private ones: others are identified by the page of a file."""
_WAITS = (0, 9)
"""FUTEX_WAIT and WAIT_BITSET, not private: glibc's pthread_join uses them to wait for the end of a thread."""
_OWN_CLOCKS = (_Check(0, (0, 1, 2, 3, 4, 5, 6, 7, 11), error=errno.EINVAL),)
"""CLOCK_REALTIME and the other named clocks. Clocks of other processes and of devices have negative numbers."""
_ADVICE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)
"""MADV_NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, DONTFORK, DOFORK, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP,
WIPEONFORK, KEEPONFORK. Not MERGEABLE, which merges equal pages of two processes, nor COLD, PAGEOUT and COLLAPSE,
which move a file's pages for every process."""

_CHECKS: dict[str, tuple[_Check, ...]] = {
    "open": (_Check(1, (0,), mask=_WRITING),),
    "openat": (_Check(2, (0,), mask=_WRITING),),
    "futex": (_Check(1, (*_FUTEXES, *_WAITS), mask=0xFFFF_FFFF ^ _FUTEX_CLOCK_REALTIME),),
    "madvise": (_Check(2, _ADVICE),),
    "clock_gettime": _OWN_CLOCKS,
    "clock_getres": _OWN_CLOCKS,
    "clock_nanosleep": _OWN_CLOCKS,
    # MAP_PRIVATE, and not MAP_GROWSDOWN: shared memory and stacks do not count in RLIMIT_DATA. Not MAP_HUGETLB: the
    # number of huge pages is limited per machine.
    "mmap": (_Check(3, (0x02,), mask=0x0F | 0x100 | 0x4_0000),),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; not locks and leases, which others can see, and not
    # F_SETOWN, which makes the kernel signal another process.
    "fcntl": (_Check(1, (0, 1, 2, 3, 4, 1030)),),
    # TCGETS and TCGETS2 (is it a terminal?), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX; not TIOCSTI, which types into a
    # terminal.
    "ioctl": (_Check(1, (0x5401, 0x802C_542A, 0x541B, 0x5421, 0x5450, 0x5451)),),
    # A stream, never datagrams, which could be sent to any socket with a path.
    "socketpair": (_Check(0, (_AF_UNIX,)), _Check(1, (_SOCK_STREAM,), mask=0xFFFF_FFFF ^ _SOCK_FLAGS)),
    # Without an address. No out-of-band data (MSG_OOB) either, which no engine uses.
    "sendto": (_Check(3, (0,), mask=_MSG_OOB), _Check(4, (0,), whole=True)),
    "recvfrom": (_Check(3, (0,), mask=_MSG_OOB),),
    # Exactly what pthread_create(3) asks for: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID,
    # CHILD_CLEARTID; musl's adds CLONE_DETACHED, which does nothing.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00), whole=True),),
    "arch_prctl": (_Check(0, (0x1002,)),),  # ARCH_SET_FS: the thread's own data
    "prctl": (_Check(0, (15, 16)),),  # PR_SET_NAME, PR_GET_NAME: names of threads
    "prlimit64": (_Check(0, (0,)), _Check(2, (0,), whole=True)),  # reads the process's own limits
}

_CHECKS_OF_A_SERVER: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # Also fork(3): SIGCHLD alone, or with CLONE_CHILD_SETTID and CLONE_CHILD_CLEARTID.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00, 0x0120_0011, 0x11), whole=True),),
    # Also PR_SET_PDEATHSIG and PR_SET_SECCOMP for its children, and PR_SET_DUMPABLE for all processes.
    "prctl": (_Check(0, (15, 16, 1, 22, 4)),),
    "prlimit64": (_Check(0, (0,)),),  # the process's own limits, which it can only lower
}

_CHECKS_OF_A_CHECKER: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # Also Go's threads (runtime/os_linux.go): without any of the last three flags, or with CLONE_SETTLS.
    "clone": (_Check(0, (0x003D_0F00, 0x007D_0F00, 0x0005_0F00, 0x000D_0F00), whole=True),),
}

_O_TMPFILE = 0o20_000_000
_SET_ID = 0o6000
"""S_ISUID and S_ISGID: in a directory of the host, a file with one of them would grant its owner's rights."""
_SET_ID_CHECKS: dict[str, tuple[_Check, ...]] = {
    "open": (_Check(1, (0,), mask=_O_TMPFILE), _Check(2, (0,), mask=_SET_ID)),
    "openat": (_Check(2, (0,), mask=_O_TMPFILE), _Check(3, (0,), mask=_SET_ID)),
    "chmod": (_Check(1, (0,), mask=_SET_ID),),
    "fchmod": (_Check(1, (0,), mask=_SET_ID),),
    "fchmodat": (_Check(2, (0,), mask=_SET_ID),),
}
_CHECKS_OF_A_WRITER: dict[str, tuple[_Check, ...]] = _SET_ID_CHECKS | {
    # Also F_GETLK, F_SETLK and F_SETLKW, with which sqlite locks files that the session's programs share. They work on
    # files of the engine too, which others can read: two cooperating programs can communicate through them.
    "fcntl": (_Check(1, (0, 1, 2, 3, 4, 5, 6, 7, 1030)),),
}

_CHECKS_OF_A_PROGRAM: dict[str, tuple[_Check, ...]] = _CHECKS | {
    # Any process allowed to wait can be woken by the end of another's thread. When pthread_join gets EAGAIN, it checks
    # the value again.
    "futex": (_Check(1, _FUTEXES, mask=0xFFFF_FFFF ^ _FUTEX_CLOCK_REALTIME, error=errno.EAGAIN),),
}

_NEW_NAMESPACES = 0x7E02_0080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME (linux/sched.h)."""
_CLONE_FILES, _CLONE_THREAD = 0x0400, 0x1_0000
_AF_INET, _AF_INET6 = 2, 10
_FILE_KINDS = 0o170000
_NO_ATTRIBUTES = (_Check(0, (), error=errno.EOPNOTSUPP),)
"""Error of file systems without extended attributes, which programs expect, for example when they copy an access
list."""
_CHECKS_OF_A_SHELL: dict[str, tuple[_Check, ...]] = _SET_ID_CHECKS | {
    "creat": (_Check(1, (0,), mask=_SET_ID),),
    # No thread with its own descriptors, which /proc/PID/fd would not show.
    "clone": (
        _Check(0, (0,), mask=_NEW_NAMESPACES, whole=True),
        _Check(0, (0, _CLONE_FILES, _CLONE_THREAD | _CLONE_FILES), mask=_CLONE_THREAD | _CLONE_FILES),
    ),
    "madvise": (_Check(2, _ADVICE),),
    "mmap": (_Check(3, (0,), mask=0x4_0000),),  # not MAP_HUGETLB: the number of huge pages is limited per machine
    # Regular files, FIFOs and sockets; no devices.
    "mknod": (_Check(1, (0, 0o100000, 0o010000, 0o140000), mask=_FILE_KINDS), _Check(1, (0,), mask=_SET_ID)),
    "mknodat": (_Check(2, (0, 0o100000, 0o010000, 0o140000), mask=_FILE_KINDS), _Check(2, (0,), mask=_SET_ID)),
    # The engine's, locks of both kinds, F_SETPIPE_SZ and F_GETPIPE_SZ, seals; not leases, notifications, F_SETOWN.
    "fcntl": (_Check(1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032, 1033, 1034)),),
    # Terminals (TCGETS to TCFLSH, TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ, TIOCGWINSZ, TIOCSWINSZ, TIOCNOTTY,
    # TIOCGSID, the pseudo ones of pty(7)), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, SIOCGIFCONF, FICLONE,
    # FS_IOC_GETFLAGS. Not TIOCSTI and TIOCLINUX, which type into a terminal.
    "ioctl": (
        _Check(
            1,
            (
                *range(0x5401, 0x540C), 0x540E, 0x540F, 0x5410, 0x5411, 0x5413, 0x5414, 0x541B, 0x5421, 0x5422, 0x5429,
                0x5441, 0x5450, 0x5451, 0x5452, 0x802C_542A, 0x8004_5430, 0x4004_5431, 0x8912, 0x4004_9409, 0x8008_6601,
            ),
            error=errno.ENOTTY,
        ),
    ),
    "socket": (_Check(0, (_AF_UNIX, _AF_INET, _AF_INET6), error=errno.EAFNOSUPPORT),),
    "socketpair": (_Check(0, (_AF_UNIX,), error=errno.EAFNOSUPPORT),),
    # PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ, timer
    # slack, child subreaper, no_new_privs, transparent huge pages, PR_CAP_AMBIENT, PR_SET_VMA.
    "prctl": (
        _Check(
            0, (1, 2, 3, 4, 15, 16, 21, 22, 23, 29, 30, 36, 37, 38, 39, 41, 42, 47, 0x5356_4D41), error=errno.EINVAL
        ),
    ),
    "clock_gettime": (),
    "arch_prctl": (_Check(0, (0x1001, 0x1002, 0x1003, 0x1004)),),
    "setxattr": _NO_ATTRIBUTES,
    "lsetxattr": _NO_ATTRIBUTES,
    "fsetxattr": _NO_ATTRIBUTES,
}  # fmt: skip
"""Calls whose reach is limited by namespaces: processes, sockets, the kernel's state of a process."""

_ITSELF = (_Check(0, (0,)),)
_CHECKS_OF_AN_OFFLINE_SHELL: dict[str, tuple[_Check, ...]] = {
    # No datagrams, which could be sent to any socket with a path.
    "socketpair": (
        _Check(0, (_AF_UNIX,), error=errno.EAFNOSUPPORT),
        _Check(1, (_SOCK_STREAM, _SOCK_SEQPACKET), mask=0xFFFF_FFFF ^ _SOCK_FLAGS),
    ),
    # These also work on the user's other processes, even on those that the guest may not signal.
    "prlimit64": _ITSELF,
    "sched_setaffinity": _ITSELF,
    "sched_setscheduler": _ITSELF,
    "setpriority": (_Check(0, (0,)), _Check(1, (0,))),  # PRIO_PROCESS
    "clock_gettime": _OWN_CLOCKS,
    # With mode 0, or to make a hole. Not FALLOC_FL_KEEP_SIZE alone, which allocates space that no length shows.
    "fallocate": (_Check(1, (0, 3), error=errno.EOPNOTSUPP),),
    # Landlock does not cover them.
    "getxattr": _NO_ATTRIBUTES,
    "lgetxattr": _NO_ATTRIBUTES,
    "listxattr": _NO_ATTRIBUTES,
    "llistxattr": _NO_ATTRIBUTES,
}
_NOT_OF_AN_OFFLINE_SHELL = frozenset({"inotify_add_watch", "inotify_init", "inotify_init1"})
"""Reveals the names of files in every folder that the user can read."""

_NO_EFFECT = (_Check(0, (), error=0),)
_CHECKS_OF_A_SHARED_USER: dict[str, tuple[_Check, ...]] = dict.fromkeys(
    "chmod fchmod fchmodat chown lchown fchown fchownat utime utimes futimesat utimensat".split(), _NO_EFFECT
)
"""Calls that Landlock does not cover, as they change modes, owners and times of any file that the user owns. They
succeed without effect: most programs treat a refusal as an error, but work without the change."""

_FIRST_NEW_CALL = 424
"""Number of pidfd_send_signal, from Linux 5.1. From here on, all architectures have the same numbers."""
_X32 = 0x4000_0000
"""__X32_SYSCALL_BIT: x86-64 with other numbers and 32-bit pointers. arm64 has no such call either."""


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
    """True if there is a filter for `machine`, which defaults to this one."""
    return (machine or platform.machine()) in _MACHINES


def filter_program(
    machine: str | None = None,
    profile: SyscallProfile = "engine",
    *,
    writes: bool = False,
    shared_user: bool = False,
) -> bytes:
    """Returns the filter for `machine` (as named by platform.machine()) as an array of struct sock_filter, 8 bytes
    each.

    `writes` allows writing files, if the surrounding layers show writable ones. `shared_user` forbids changing modes,
    owners and times; use it if the process can see other files of its user.

    Raises:
        ValueError: there is no system call table for this machine.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise ValueError(f"there is no table of system calls for {machine}, only for {' and '.join(_MACHINES)}")
    column, audit = _MACHINES[machine]
    program = [_instruction(_LOAD, _ARCHITECTURE), *_unless(_IF_EQUAL, audit, _KILL), _instruction(_LOAD, _NUMBER)]
    program += _if(_IF_AT_LEAST, _X32, [_instruction(_RETURN, _KILL)])
    calls, checks = _calls_of(profile)
    if writes and profile not in ("shell", "offline shell"):
        calls, checks = {**calls, **_CALLS_OF_A_WRITER}, {**checks, **_CHECKS_OF_A_WRITER}
    if shared_user:
        checks = {**checks, **_CHECKS_OF_A_SHARED_USER}
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
        case "interpreter":
            calls, checks = _calls_of("program")
            return {**calls, "recvmsg": _CALLS_OF_A_SERVER["recvmsg"]}, checks
        case "shell" | "offline shell":
            calls = _CALLS | _CALLS_OF_A_SERVER | _CALLS_OF_A_WRITER | _CALLS_OF_A_SHELL | _CALLS_OF_A_SOCKET
            if profile == "shell":
                return calls | _CALLS_OF_A_NETWORK, _CHECKS_OF_A_SHELL
            left = {name: numbers for name, numbers in calls.items() if name not in _NOT_OF_AN_OFFLINE_SHELL}
            return left, _CHECKS_OF_A_SHELL | _CHECKS_OF_AN_OFFLINE_SHELL


def _checked(check: _Check) -> list[bytes]:
    """Continues if the check succeeds, else returns its error."""
    low = _ARGUMENTS + 8 * check.position
    code = [_instruction(_LOAD, low), _instruction(_AND, check.mask)]
    left = len(check.values)  # a match jumps over the remaining values, and over the return
    code += [_instruction(_IF_EQUAL, value, then=left - place) for place, value in enumerate(check.values)]
    code.append(_instruction(_RETURN, _ERRNO | check.error))
    if check.whole:
        code += [_instruction(_LOAD, low + 4), *_unless(_IF_EQUAL, 0, _ERRNO | check.error)]
    return code


def _if(test: int, value: int, body: list[bytes]) -> list[bytes]:
    """Runs the body, which returns, if the loaded word passes the test."""
    return [_instruction(test, value, otherwise=len(body)), *body]


def _unless(test: int, value: int, result: int) -> list[bytes]:
    """Returns the result if the test fails."""
    return [_instruction(test, value, then=1), _instruction(_RETURN, result)]


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Encodes a struct sock_filter (linux/filter.h). Jumps skip that many instructions."""
    return struct.pack("=HBBI", code, then, otherwise, value)
