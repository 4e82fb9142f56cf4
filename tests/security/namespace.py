"""Namespaces of the harness's own: what an attack harms, if it gets out of its jail, is the harness and nothing else.

`unshare` gives a process that is number 1 of its namespace. It has the network to itself (a loopback interface), the
shared memory, the places that anybody may write to (empty file systems in memory), and everything else read-only. It
starts the worker and reaps what the worker leaves behind.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.security.canaries import ENVIRONMENT_NAME, WRITABLE, new_token

__all__ = ["NoNamespace", "run_inside"]

_ROOT = Path(__file__).parents[2]

# linux/mount.h, linux/if.h, linux/sockios.h
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_RELATIME = 1, 32, 4096, 16384, 1 << 21
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class NoNamespace(Exception):
    """This machine does not let us have namespaces, so nothing here may run."""


def run_inside(arguments: Sequence[str], data: str, *, seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs the worker with `arguments`, `data` on its standard input; returns what it wrote and how it ended.

    Raises:
        NoNamespace: with what `unshare` says, and the remedy.
        subprocess.TimeoutExpired: the worker did not end in time. Everything in its namespace is gone then.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise NoNamespace("the attacks run in namespaces of their own, which util-linux's `unshare` makes; install it")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    flags = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]
    works = subprocess.run([unshare, *user, *flags, "true"], capture_output=True, text=True, check=False)
    if works.returncode != 0:
        raise NoNamespace(
            f"unshare {' '.join([*user, *flags])} fails: {works.stderr.strip()}; run as root, or allow unprivileged user "
            "namespaces"
        )
    command = [unshare, *user, *flags, sys.executable, "-m", "tests.security.namespace", *arguments]
    return subprocess.run(
        command,
        input=data,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=_ROOT,
        env=os.environ
        | {
            ENVIRONMENT_NAME: f"{new_token()}-environment",
            "PYTHONDONTWRITEBYTECODE": "1",
            "CORRAL_TEST_IDS": f"{os.getuid()}:{os.getgid()}",
        },
    )


def main() -> int:
    """Process number 1. Its status is the worker's."""
    _empty_places()
    _loopback_up()
    worker = os.fork()
    if worker == 0:
        # A worker that is root only in its own user namespace is its ordinary user again, as the product would run.
        user, group = os.environ["CORRAL_TEST_IDS"].split(":")
        mapped = [] if user == "0" else ["unshare", "--user", f"--map-user={user}", f"--map-group={group}"]
        command = [*mapped, sys.executable, "-m", "tests.security.worker", *sys.argv[1:]]
        os.execvp(command[0], command)  # noqa: S606 - process 1 reaps, and this is its child
    while True:
        child, status = os.wait()
        if child == worker:
            return os.waitstatus_to_exitcode(status) % 256


def _empty_places() -> None:
    """Empty file systems where anybody may write; the rest read-only. What we run from stays where it is."""
    keep = {Path(each).resolve() for each in (_ROOT, sys.prefix, sys.base_prefix)}
    hidden = {path: os.open(path, os.O_PATH) for path in keep if str(path).startswith(tuple(f"{p}/" for p in WRITABLE))}
    for mount in _mounts():
        if not mount.startswith("/proc"):
            _mount(None, mount, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _kept_flags(mount))
    for place in WRITABLE:
        if Path(place).is_dir():
            _mount("tmpfs", place, "tmpfs", 0, "mode=1777,size=64m")
    for path, descriptor in hidden.items():
        path.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", str(path), None, _MS_BIND | _MS_REC)
        os.close(descriptor)
    os.chdir(_ROOT)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [value and value.encode() for value in (source, target, kind)]
    if libc.mount(*arguments, ctypes.c_ulong(flags), options and options.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {target}: {os.strerror(error)}")


def _mounts() -> list[str]:
    """Where something is mounted that can be reached (proc_pid_mountinfo(5): the fifth field, with octal escapes)."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    return sorted(point for point in points if os.path.ismount(point))


def _kept_flags(mount: str) -> int:
    """The flags that a remount must repeat, because a user namespace may not take them off (mount_namespaces(7))."""
    now = os.statvfs(mount).f_flag
    kept = now & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
    return kept | (_MS_RELATIME if now & os.ST_RELATIME else 0)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(main())
