"""Landlock: irrevocably limits the files that a process can open. References: landlock(7), linux/landlock.h.

The host makes the ruleset, and the launcher applies it in the child. It handles every right that the kernel knows, so
all of them are denied unless a rule grants them.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

# asm-generic/unistd.h; the same on every architecture.
_SYS_CREATE_RULESET = 444
_SYS_ADD_RULE = 445
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_WRITING = _READ_FILE | _READ_DIR | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13 | 1 << 14
"""Also WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, REFER and TRUNCATE; no links, devices or sockets."""
_OF_FILES = _EXECUTE | _READ_FILE | 1 << 1 | 1 << 14 | 1 << 15
"""EXECUTE, READ_FILE, WRITE_FILE, TRUNCATE and IOCTL_DEV, the only rights that a rule for a file can have."""
PROGRAMS = _EXECUTE | _READ_FILE | _READ_DIR
"""Rights of commands in folders that contain programs."""
WORKSPACE = _WRITING | _EXECUTE | 1 << 10 | 1 << 12
"""Rights of commands in their own folders: also MAKE_FIFO and MAKE_SYM; no devices or sockets."""
DEVICE = _READ_FILE | 1 << 1 | 1 << 15
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file rights by ABI. They occupy the lowest bits. ABIs after 5 have the same number."""
_NET_RIGHTS = 0b11
"""Rights to bind and connect over TCP, since ABI 4."""
_SCOPES = 0b11
"""Scopes for abstract unix sockets and signals to outside processes, since ABI 6."""
COVERS_TRUNCATE = 3
"""First ABI with a right for truncate(2)."""
SCOPES_SIGNALS = 6
"""First ABI that can deny signals to outside processes."""


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    """Attribute of a rule for a path. The kernel packs it, and does not read the four bytes of padding at its end."""

    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


@cache
def abi() -> int:
    """Returns the kernel's Landlock ABI; 0 if it has no Landlock or it is disabled."""
    return max(0, ctypes.CDLL(None).syscall(_SYS_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION))


def ruleset(
    *,
    executable: Iterable[Path],
    readable: Iterable[Path],
    listable: Iterable[Path] = (),
    writable: Iterable[Path] = (),
) -> int:
    """Returns the descriptor of a ruleset that allows only reading these files and folders.

    `executable` files can also be executed. Folders in `listable` can be listed, with all subfolders, but not read. In
    `writable` folders, files and folders can also be made, changed, moved and removed.

    Raises:
        OSError: the kernel has no Landlock, or a path does not exist.
    """
    granted = (
        (executable, _READ_FILE | _EXECUTE),
        (readable, _READ_FILE),
        (listable, _READ_DIR),
        (writable, _WRITING),
    )
    return ruleset_of((path, rights) for paths, rights in granted for path in paths)


def ruleset_of(rules: Iterable[tuple[Path, int]]) -> int:
    """Returns the descriptor of a ruleset that grants only these rights, to files and to the contents of folders.

    Raises:
        OSError: the kernel has no Landlock, or a path does not exist.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = abi()
    attributes = _RulesetAttributes(
        fs=(1 << _FS_RIGHTS[max(1, min(version, 5))]) - 1,
        net=_NET_RIGHTS if version >= 4 else 0,
        scoped=_SCOPES if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    made = _checked(libc.syscall(_SYS_CREATE_RULESET, ctypes.byref(attributes), size, 0))
    try:
        for path, rights in rules:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                allowed = rights & attributes.fs
                if not stat.S_ISDIR(os.fstat(parent).st_mode):
                    allowed &= _OF_FILES
                rule = _PathBeneath(allowed, parent)
                _checked(libc.syscall(_SYS_ADD_RULE, made, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
            finally:
                os.close(parent)
    except BaseException:
        os.close(made)
        raise
    return made


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
