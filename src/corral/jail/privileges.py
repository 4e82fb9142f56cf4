"""Irrevocably drops privileges of a process, and ties it to its parent. Imports only the standard library.

`launcher` imports it by its path.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False

NOBODY = 65534
"""User that by convention owns nothing, and is mapped in every container. Also the user inside a space's namespace,
whoever it is outside: without capabilities, no process can map root into a nested namespace."""
# linux/prctl.h, linux/seccomp.h, linux/capability.h, linux/close_range.h, linux/landlock.h; the system calls have the
# same number on every architecture (asm-generic/unistd.h).
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_ACCESS_FS_REFER = 1 << 13
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_SCOPE_SIGNAL = 2
_SYS_CLOSE_RANGE = 436
_CLOSE_RANGE_CLOEXEC = 4
_ALL = 0xFFFF_FFFF
_MOST_DESCRIPTORS = 1 << 16
"""More descriptors than a launcher or a server ever has. The limit itself can be a billion."""
_LAST_CAPABILITY = 63
_SIGKILL = 9  # signal(7); the module `signal` is slow to import

if TYPE_CHECKING or sys.platform != "win32":  # Windows has no library of that kind, and no jails
    libc = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog (linux/filter.h)."""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def drop_privileges(user: int | None) -> None:
    """Drops every capability; root becomes `user`, without groups."""
    if os.geteuid() == 0:
        for capability in range(_LAST_CAPABILITY + 1):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for capabilities that the kernel does not know
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call(libc.capset(header, (ctypes.c_uint32 * 6)()))


def forgo_privileges() -> None:
    """Sets no_new_privs, which the following layers require."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def restrict(ruleset: int) -> None:
    """Irrevocably puts this process under Landlock rules."""
    call(libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def tie_to_parent(parent: int, how: int = _SIGKILL) -> None:
    """Has the kernel send this process a signal when its parent, process `parent`, ends."""
    _prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(1)


def scope_signals() -> None:
    """Uses Landlock to restrict this process's signals to itself and its descendants.

    Raises:
        OSError: the kernel does not support that.
    """
    attributes = struct.pack("QQQ", _LANDLOCK_ACCESS_FS_REFER, 0, _LANDLOCK_SCOPE_SIGNAL)
    rules = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "Landlock cannot scope signals; it can from Linux 6.12 on")
    # Every Landlock domain denies moving files between folders unless a rule grants that.
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", _LANDLOCK_ACCESS_FS_REFER, root)
    call(libc.syscall(_SYS_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, rule, 0))
    os.close(root)
    restrict(rules)
    os.close(rules)


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_from(first: int) -> None:
    """Closes all descriptors from `first` on. Before Linux 5.9, which has close_range(2), closes them one by one."""
    if libc.syscall(_SYS_CLOSE_RANGE, first, _ALL, 0) != 0:
        os.closerange(first, min(os.sysconf("SC_OPEN_MAX"), _MOST_DESCRIPTORS))


def close_on_exec() -> None:
    """Marks all descriptors except the standard streams as close-on-exec."""
    libc.syscall(_SYS_CLOSE_RANGE, 3, _ALL, _CLOSE_RANGE_CLOEXEC)


def show() -> None:
    """Makes a process that has changed its user the owner of its own files in /proc."""
    _prctl(_PR_SET_DUMPABLE, 1)


def hide() -> None:
    """Hides descriptors and memory of this process and its forks from everyone except root.

    Otherwise, where /proc exists, processes of the same user could open each other's pipes through /proc/PID/fd.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def seal(program: bytes) -> None:
    """Irrevocably puts this process under a system call filter."""
    description = _FilterProgram(len(program) // 8, program)
    call(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(description), 0, 0))


def _prctl(option: int, value: int) -> None:
    call(libc.prctl(option, value, 0, 0, 0))


def call(result: int) -> None:
    """Checks the result of a system call.

    Raises:
        OSError: the result is negative.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
