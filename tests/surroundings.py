"""Surroundings that lack something: what a process puts itself into before it is what is to be tried there."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tests.forks import run_forked

__all__ = [
    "DOCKER",
    "NO_LANDLOCK",
    "NO_NAMESPACES",
    "Rule",
    "Surroundings",
    "filtered",
    "guests_change_user",
    "refused",
    "run_in",
]

Surroundings: TypeAlias = Literal[
    "one user",
    "little address space",
    "no /proc",
    "no room for temporary files",
    "read-only temporary files",
    "temporary files that do not execute",
    "process 1",
    "hidden processes",
    "fixed settings",
    "no capabilities",
]


class Rule(NamedTuple):
    """A system call that fails with `error`, if one of its arguments has all of these bits."""

    call: int
    error: int = errno.EPERM
    argument: int = 0
    bits: int = 0


# Name: number on x86-64, on arm64 (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
_CALLS = {
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "bpf": (321, 280), "perf_event_open": (298, 241),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265), "kcmp": (312, 272), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236), "move_pages": (279, 239), "migrate_pages": (256, 238), "io_uring_setup": (425, 425),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "close_range": (436, 436), "mmap": (9, 222),
    "mprotect": (10, 226), "memfd_create": (319, 279),
}  # fmt: skip
_COLUMN = 0 if platform.machine() == "x86_64" else 1
_NEW_NAMESPACES = [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)]
"""CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET: linux/sched.h."""


def refused(*names: str, error: int = errno.EPERM, argument: int = 0, bits: int = 0) -> list[Rule]:
    """Rules that refuse these calls."""
    return [Rule(_CALLS[name][_COLUMN], error, argument, bits) for name in names]


NO_NAMESPACES = [
    *(rule for bit in _NEW_NAMESPACES for rule in refused("clone", "unshare", bits=bit)),
    *refused("clone3", error=errno.ENOSYS),
]
NO_LANDLOCK = refused("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", error=errno.ENOSYS)
# Facts of Docker's default profile (https://docs.docker.com/engine/security/seccomp, and moby's profiles/seccomp) for a
# container without added capabilities: of the calls that it refuses, those that an engine, a jail or Python might make.
DOCKER = NO_NAMESPACES + refused(
    "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsmount",
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "keyctl", "add_key", "request_key",
    "open_by_handle_at", "kcmp", "mbind", "set_mempolicy", "get_mempolicy", "move_pages", "migrate_pages",
)  # fmt: skip

_CALL = """
import ctypes, os, struct, sys
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    assert result == 0, os.strerror(ctypes.get_errno())
"""
# A filter of classic BPF (linux/filter.h): load the call's number; for each rule, compare it, look at an argument, and
# answer with the error. prctl 38 is PR_SET_NO_NEW_PRIVS, 22 with 2 is PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
_FILTER = """
code = [(0x20, 0, 0, 0)]
for number, error, argument, bits in RULES:
    body = [(0x06, 0, 0, 0x50000 | error)]
    if bits:
        body = [(0x20, 0, 0, 16 + 8 * argument), (0x54, 0, 0, bits), (0x15, 0, 1, bits), *body, (0x20, 0, 0, 0)]
    code += [(0x15, 0, len(body), number), *body]
code.append((0x06, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in code))
description = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(program)))
call(libc.prctl(38, 1, 0, 0, 0))
call(libc.prctl(22, 2, description, 0, 0))
"""
# unshare(2): CLONE_NEWUSER, CLONE_NEWNS. A process may map itself, as the only user that there is. No mount made here
# reaches the host.
_ONE_USER = f"""{_CALL}
user, group = os.geteuid(), os.getegid()
call(libc.unshare(0x10000000 | 0x00020000))
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {{user}} 1")
Path("/proc/self/gid_map").write_text(f"0 {{group}} 1")
def cover(path, options):
    call(libc.mount(b"none", path, b"tmpfs", 0, options))
"""
_MOUNTS = f"{_CALL}call(libc.unshare(0x00020000))\ncall(libc.mount(b'none', b'/', None, 0x4000 | 0x40000, None))\n"
"""Root's, with a copy of its mounts (MS_REC, MS_PRIVATE)."""
_PROCESS_1 = """
call(libc.unshare(0x20000000))
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
call(libc.mount(b"none", b"/proc", b"proc", 0, OPTIONS))
"""
# Capabilities by linux/capability.h: those that Docker leaves a root, and none. prctl 24 is PR_CAPBSET_DROP.
_KEEP = """
for each in range(64):
    if not KEPT >> each & 1:
        libc.prctl(24, each, 0, 0, 0)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
call(libc.capset(header, (ctypes.c_uint32 * 6)(KEPT, KEPT, 0, 0, 0, 0)))
"""
_DOCKER_KEEPS = sum(1 << each for each in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
_PREPARED: dict[Surroundings, str] = {
    "one user": _ONE_USER,
    "little address space": "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n",
    "no /proc": _ONE_USER + "cover(b'/proc', b'')\n",
    "no room for temporary files": _ONE_USER + "cover(os.environ['TMPDIR'].encode(), b'size=8k')\n",
    # MS_REMOUNT, MS_RDONLY; MS_REMOUNT, MS_NOEXEC
    "read-only temporary files": f"{_ONE_USER}place = os.environ['TMPDIR'].encode()\ncover(place, b'')\n"
    "call(libc.mount(b'none', place, None, 0x21, None))\n",
    "temporary files that do not execute": f"{_ONE_USER}place = os.environ['TMPDIR'].encode()\ncover(place, b'')\n"
    "call(libc.mount(b'none', place, None, 0x28, None))\n",
    "process 1": f"{_MOUNTS}OPTIONS = None\n{_PROCESS_1}",
    # Whoever is in group 0 sees all, and so does CAP_SYS_PTRACE.
    "hidden processes": f"{_MOUNTS}OPTIONS = b'hidepid=2'\n{_PROCESS_1}os.setgroups([])\n"
    f"os.setresgid(1000, 1000, 1000)\nKEPT = {_DOCKER_KEEPS}\n{_KEEP}",
    # MS_BIND; then MS_REMOUNT, MS_BIND and MS_RDONLY.
    "fixed settings": f"{_MOUNTS}call(libc.mount(b'/proc/sys', b'/proc/sys', None, 0x1000, None))\n"
    "call(libc.mount(b'none', b'/proc/sys', None, 0x1021, None))\n",
    "no capabilities": f"{_CALL}KEPT = 0\n{_KEEP}",
}


def filtered(rules: Iterable[Rule]) -> str:
    """Code by which a process puts itself under a filter, as container runtimes do."""
    return f"{_CALL}RULES = {[tuple(rule) for rule in rules]}\n{_FILTER}"


def guests_change_user() -> bool:
    """True if guests run as another user than root: they cannot from a folder that is root's alone."""
    folders = [*Path(sys.prefix).resolve().parents, Path(sys.prefix)]
    return os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in folders)


def run_in(surroundings: Surroundings, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with `-c` there to its end. TMPDIR must be in `env` where it matters."""
    interpreter, option, script, *arguments = command
    return run_forked([interpreter, option, _PREPARED[surroundings] + script, *arguments], env=os.environ | env)
