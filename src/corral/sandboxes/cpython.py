"""Python in CPython, in a jail: a process for each execution, forked from a server that stands ready inside it.

A server serves one trust domain only: what processes of the same server could find out about each other, its addresses
and the seed of its hashes, is then nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Literal

from corral.arguments import checked
from corral.guest import RuntimeDirectory, python_server
from corral.isolation import Tier
from corral.jail import Engine, Mount
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.guest_starter import GUEST_FILE, MOUNTED, GuestKind, GuestStarter
from corral.sandboxes.jailed.python_runtime import OWN_PACKAGES, PACKAGES, find_packages, installation
from corral.types import Capabilities, Language, PythonModules, SandboxConfig

_ENVIRONMENT = {"LC_CTYPE": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""All that the interpreter has. A server with threads of a library's could not fork."""
_GARBAGE_MB = 8
"""Room for a thread, and for what the interpreter's allocator holds in reserve."""


@checked
class CPythonSandbox(ForkProvider):
    """Starts processes of this Python in a jail. Programs import the standard library, and `packages`.

    `packages` are names of packages that this environment has, as pip or as `import` knows them: programs see them and
    what they depend on, read-only, and find them imported already. `Corral(packages=...)` adds others, by a lock.

    `tier` is the jail: "auto" takes the best that this system has, down to the one that is required. `pool_size` is how
    many servers are kept ready for users who are new.

    Raises:
        ConfigError: an argument has no such value, or a package is not installed.
    """

    name: ClassVar[str] = "cpython"
    language: ClassVar[Language] = "python"

    def __init__(
        self, *, packages: Iterable[str] = (), tier: Tier | Literal["auto"] = "auto", pool_size: int | None = None
    ) -> None:
        self.packages = tuple(packages)
        found = find_packages(self.packages)
        runtime = RuntimeDirectory(python_server, lambda: dict(found.entries))
        self._arguments = (
            *("-I", "-S", "-B", f"{GUEST_FILE}guest.py", f"{GUEST_FILE}guest.bin"),
            *("--modules", *found.modules, "--path", GUEST_FILE, PACKAGES),
        )
        super().__init__(
            tier=tier,
            pool_size=pool_size,
            starter=GuestStarter(tier, self._engine, runtime, _ENVIRONMENT, garbage_mb=_GARBAGE_MB),
        )

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, modules=True)

    def guest_kind(self, config: SandboxConfig) -> GuestKind:
        return GuestKind(config.unowned, (*self._arguments, *_own_arguments(config.packages)))

    def _engine(self, config: SandboxConfig) -> Engine:
        engine = installation(self.packages).engine
        if config.packages is None:
            return engine
        return replace(engine, mounts=(*engine.mounts, Mount(config.packages.folder, OWN_PACKAGES)))


def _own_arguments(packages: PythonModules | None) -> tuple[str, ...]:
    """Adds a folder to the path, and names the modules in it."""
    if packages is None:
        return ()
    return (f"{MOUNTED}{OWN_PACKAGES}", "--preload", *packages.preloaded, "--offer", *packages.offered)
