"""Python programs in CPython, in a jail. A warm server in the jail forks a process for each execution.

A server serves only one owner, because its processes could learn its memory addresses and hash seed.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

from typing_extensions import override

from corral.arguments import checked
from corral.containment import Tier
from corral.guest import RuntimeDirectory, python_server
from corral.jail import Mount
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.guest_starter import GUEST_FILE, MOUNTED, VARIABLE, GuestCommand, GuestStarter
from corral.sandboxes.jailed.python_runtime import OWN_PACKAGES, PACKAGES, find_packages, installation
from corral.types import Capabilities, Language, SandboxConfig

_ENVIRONMENT = {"LC_CTYPE": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The interpreter's whole environment. It keeps libraries from starting threads, with which a server could not fork."""
_ISOLATED = ("-I", "-S", "-B")
_DURABLE = ("-s", "-P", "-S", "-B", f"{VARIABLE}PYTHONHASHSEED=0")
"""The same for durable executions, with a hash seed, which `-I` would ignore: sets of texts must have the same order
each time."""
_GARBAGE_MB = 8
"""Memory for a thread, and for reserves of the interpreter's allocator."""


@checked
class CPythonSandbox(ForkProvider):
    """Runs programs in processes of this Python, in a jail. Programs can import the standard library and `packages`.

    `packages` are names of installed packages, as for pip or for `import`. They are imported in advance, and programs
    can read them and their dependencies. `Corral(packages=...)` adds others, from a lock file.

    `tier` selects the jail. "auto" uses the best one that this system supports, and at least the required one.
    `pool_size` is the number of servers kept ready for new users.

    Raises:
        ConfigError: an argument has an invalid value, or a package is not installed.
    """

    name: ClassVar[str] = "cpython"
    language: ClassVar[Language] = "python"

    def __init__(
        self, *, packages: Iterable[str] = (), tier: Tier | Literal["auto"] = "auto", pool_size: int | None = None
    ) -> None:
        self.packages = tuple(packages)
        installed = find_packages(self.packages)
        runtime = RuntimeDirectory(python_server, lambda: dict(installed.entries))
        super().__init__(
            tier=tier,
            pool_size=pool_size,
            starter=GuestStarter(tier, partial(_command, self.packages), runtime, _ENVIRONMENT, garbage_mb=_GARBAGE_MB),
        )

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, modules=True, durable=True, cells=True)

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        own = () if config.packages is None else (f"packages {config.packages.version}",)
        return ", ".join((interpreter_version(), *find_packages(self.packages).versions, *own))


def interpreter_version() -> str:
    """Returns the version of the interpreter as ledgers record it."""
    return f"{sys.implementation.name} {platform.python_version()}"


def _command(packages: tuple[str, ...], config: SandboxConfig) -> GuestCommand:
    engine, installed = installation(packages)
    interpreter, durable = (_DURABLE, ("--durable",)) if config.durable else (_ISOLATED, ())
    arguments = (*interpreter, f"{GUEST_FILE}guest.py", f"{GUEST_FILE}guest.bin", *durable)
    arguments += ("--modules", *installed.modules, "--path", GUEST_FILE, PACKAGES)
    own = config.packages
    if own is None:
        return GuestCommand(engine, arguments)
    arguments += (f"{MOUNTED}{OWN_PACKAGES}", "--preload", *own.preloaded, "--offer", *own.offered)
    return GuestCommand(replace(engine, mounts=(*engine.mounts, Mount(own.folder, OWN_PACKAGES))), arguments)
