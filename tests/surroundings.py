"""Surroundings that lack something: what a process puts itself into before it is what is to be tried there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal, TypeAlias

from tests.forks import run_forked

__all__ = ["Surroundings", "guests_change_user", "run_in"]

Surroundings: TypeAlias = Literal["one user", "little address space", "no /proc", "no room for temporary files"]

# unshare(2): CLONE_NEWUSER, CLONE_NEWNS. A process may map itself, as the only user that there is.
_ONE_USER = """
import ctypes, os, sys
from pathlib import Path
libc, user, group = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
assert libc.unshare(0x10000000 | 0x00020000) == 0, os.strerror(ctypes.get_errno())
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {user} 1")
Path("/proc/self/gid_map").write_text(f"0 {group} 1")
def cover(path, options):
    assert libc.mount(b"none", path, b"tmpfs", 0, options) == 0, os.strerror(ctypes.get_errno())
"""
_PREPARED: dict[Surroundings, str] = {
    "one user": _ONE_USER,
    "little address space": "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n",
    "no /proc": _ONE_USER + "cover(b'/proc', b'')\n",
    "no room for temporary files": _ONE_USER + "cover(os.environ['TMPDIR'].encode(), b'size=8k')\n",
}


def guests_change_user() -> bool:
    """True if guests run as another user than root: they cannot from a folder that is root's alone."""
    folders = [*Path(sys.prefix).resolve().parents, Path(sys.prefix)]
    return os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in folders)


def run_in(surroundings: Surroundings, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with `-c` there to its end. TMPDIR must be in `env` where it matters."""
    interpreter, option, script, *arguments = command
    return run_forked([interpreter, option, _PREPARED[surroundings] + script, *arguments], env=os.environ | env)
