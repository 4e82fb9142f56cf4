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

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.containment import Tier
from corral.errors import MissingExtra, StartFailed
from corral.guest import RuntimeDirectory, python_server
from corral.jail import Mount
from corral.jail.process import can_limit
from corral.jail.spaces import SpaceHost
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes.base import Sandbox, SandboxProvider
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
        interpreter = f"{sys.implementation.name} {platform.python_version()}"
        return ", ".join((interpreter, *find_packages(self.packages).versions, *own))


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


logger = get_logger("corral.sandboxes")


class PythonSandbox(SandboxProvider):
    """Uses CPython if it starts in a jail here, else Monty if installed, else CPython if the required tier permits
    that.

    Raises:
        MissingExtra: Monty is not installed, on a system without jails.
    """

    name: ClassVar[str] = "python"

    def __init__(self) -> None:
        self._cpython = CPythonSandbox()
        self._chosen: SandboxProvider | None = None if can_limit else load_by_name("corral.sandboxes", "monty")
        self._choosing = anyio.Lock()
        self.without_cpython: str | None = None
        """Reason why programs run in Monty; None if they do not, or if none has run yet."""

    @property
    def capabilities(self) -> Capabilities:
        return (self._chosen or self._cpython).capabilities

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        return (self._chosen or self._cpython).engine_version(config)

    async def warm(self, config: SandboxConfig) -> None:
        await (await self._choose(config)).warm(config)

    async def start(self, config: SandboxConfig) -> Sandbox:
        return await (await self._choose(config)).start(config)

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:
        return await (await self._choose(config)).space_host(config)

    async def aclose(self) -> None:
        if self._chosen is not None:
            await self._chosen.aclose()

    async def _choose(self, config: SandboxConfig) -> SandboxProvider:
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._first_that_works(config)
            return self._chosen

    async def _first_that_works(self, config: SandboxConfig) -> SandboxProvider:
        jailed = config.model_copy(update={"required_tier": "landlock"}) if config.required_tier == "none" else config
        try:
            await self._cpython.warm(jailed)
        except StartFailed as error:
            await self._cpython.aclose()
            try:
                monty: SandboxProvider = load_by_name("corral.sandboxes", "monty")
                self.without_cpython = str(error)
                logger.warning("programs in Python run in Monty, which has few modules, as CPython fails: %s", error)
                return monty
            except MissingExtra:
                if config.required_tier == "none":
                    return self._cpython
                raise StartFailed(
                    f"{error}; without a jail Python runs in Monty: pip install 'corral[monty]'"
                ) from error
        return self._cpython
