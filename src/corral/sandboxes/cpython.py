"""Python in CPython, in a jail: a process for each execution, forked from a warm server in that jail.

A server serves only one owner, as processes of a server could learn its addresses and hash seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

from corral.arguments import checked
from corral.containment import Tier
from corral.guest import RuntimeDirectory, python_server
from corral.jail import Mount
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.guest_starter import GUEST_FILE, MOUNTED, GuestCommand, GuestStarter
from corral.sandboxes.jailed.python_runtime import OWN_PACKAGES, PACKAGES, find_packages, installation
from corral.types import Capabilities, Language, SandboxConfig

_ENVIRONMENT = {"LC_CTYPE": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The interpreter's whole environment. A server with a library's threads could not fork."""
_GARBAGE_MB = 8
"""Memory for a thread, and for reserves of the interpreter's allocator."""


@checked
class CPythonSandbox(ForkProvider):
    """Starts processes of this Python in a jail. Programs import the standard library, and `packages`.

    `packages` are names of installed packages, as pip or as `import` knows them. Programs can read them and their
    dependencies, and find them imported already. `Corral(packages=...)` adds others, from a lock file.

    `tier` is the jail: "auto" uses the best that this system supports, at least the required one. `pool_size` is the
    number of servers kept ready for new users.

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
        return replace(super().capabilities, modules=True)


def _command(packages: tuple[str, ...], config: SandboxConfig) -> GuestCommand:
    engine, installed = installation(packages)
    arguments = ("-I", "-S", "-B", f"{GUEST_FILE}guest.py", f"{GUEST_FILE}guest.bin")
    arguments += ("--modules", *installed.modules, "--path", GUEST_FILE, PACKAGES)
    own = config.packages
    if own is None:
        return GuestCommand(engine, arguments)
    arguments += (f"{MOUNTED}{OWN_PACKAGES}", "--preload", *own.preloaded, "--offer", *own.offered)
    return GuestCommand(replace(engine, mounts=(*engine.mounts, Mount(own.folder, OWN_PACKAGES))), arguments)
