"""TypeScript programs in Deno, in a jail: a process for each execution, either started or forked.

The engine comes from PyPI (`deno`), so nothing is installed by hand. All of Deno's own permissions are denied, but the
boundary is the jail around it. Memory and processor time are limited from outside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import anyio
from anyio.abc import Process
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import NO_SPACE, ContainmentKind, Space, Tier
from corral.errors import StartFailed
from corral.guest import RuntimeDirectory, typescript_server
from corral.jail import Engine
from corral.jail.jail import deno_path, v8_environment
from corral.jail.process import can_limit
from corral.logs import get_logger
from corral.sandboxes.base import Sandbox
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.guest_files import DENO_ENVIRONMENT, deno_options, guest_files
from corral.sandboxes.framed.provider import FramedProvider
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.fork_self_test import SelfTestedStart
from corral.sandboxes.jailed.guest_starter import GUEST_FILE, GuestCommand, GuestStarter
from corral.sandboxes.jailed.provider import JailedProvider, LocalGuest
from corral.sandboxes.pool import default_size
from corral.types import Capabilities, Language, SandboxConfig

_version = cache(version)  # reads the metadata of a package
_ENVIRONMENT = {
    "DENO_DIR": f"{os.devnull}/deno",
    **{key: os.environ[key] for key in ("SystemRoot",) if key in os.environ},
}
"""Environment without a cache, and with the variable that Windows needs to start some programs (subprocess.Popen)."""


class UnjailedDeno(FramedProvider):
    """Starts Deno with the event loop's subprocesses. Limits V8's heap, but neither total memory nor processor time."""

    name: ClassVar[str] = "deno"
    languages: ClassVar[frozenset[Language]] = frozenset({"typescript"})
    containment = ContainmentKind.of_tier("none")

    def __init__(self, *, allow_eval: bool, allow_wasm: bool) -> None:
        self._allow_eval = allow_eval
        self._arguments = ["--allow-wasm"] * allow_wasm
        self._runtime = RuntimeDirectory()

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        del config
        try:
            folder = await run_shielded_in_thread(self._runtime.prepare)
            command = guest.command(str(deno_path()), str(folder))
            process = await anyio.open_process(
                [*command, *self._arguments],
                env={**guest.environment, **_ENVIRONMENT},
                start_new_session=sys.platform != "win32",  # so that Ctrl-C does not reach it
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise StartFailed(f"the Deno engine does not start: {error}; reinstall it: pip install deno") from error
        return _ProcessChannel(process)

    def guest_files(self, config: SandboxConfig) -> GuestFiles:
        options = deno_options(config.memory_mb, allow_eval=self._allow_eval)
        return replace(guest_files(config), options=options)

    async def aclose(self) -> None:
        await run_shielded_in_thread(self._runtime.close)


class _ProcessChannel(GuestChannel):
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr

    async def send(self, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError):  # the end of its output shows the reason
            await self._input.send(data)

    async def received(self) -> AsyncIterator[bytes]:
        async for data in self._output:
            yield data

    async def post_mortem(self) -> PostMortem:
        errors = b"".join([data async for data in self._errors])  # limited by the pipe and its buffer
        return PostMortem(status=await self._process.wait(), stderr=errors.decode(errors="replace"))

    async def aclose(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.aclose()


logger = get_logger("corral.sandboxes")
T = TypeVar("T")

_INTERPRETED = (
    "programs in TypeScript are interpreted, which takes several times as long, because this system forbids "
    "executing memory that was written; in a systemd unit, set MemoryDenyWriteExecute=no"
)
_SETTLE_SECONDS = 30.0
_GARBAGE_MB = 96
"""Memory for garbage that is not yet collected: the 32 MB by which an engine's heap can exceed the program's memory,
and two spaces for young objects. V8 then collects before the kernel refuses memory. It collects in threads, which a
busy machine can delay: with 56 MB, one of 30 programs with 60 MB of small objects failed (V8 15)."""
_FORK_GARBAGE_MB = 56
"""The same for a forked process, which collects garbage itself and has smaller spaces for young objects. Includes 7 MB
that are allocated only after the server is measured."""
_STARTED_BEFORE_FORKS = 3
"""Number of executions with their own engine before forks are used. Three take 0.20 s of processor time, or 0.43 s with
the warm-up of a server."""
_MOST_ENGINES = 8
"""Maximum number of simultaneous executions with their own engine. More wait for a server, which forks in a tenth of
the time."""
_FORK_FLAGS = ("--single-threaded", "--no-maglev", "--max-semi-space-size=16")
"""A forked process has none of the engine's threads. Without them, Maglev compiles on the main thread and keeps more of
each error alive: 100,000 errors in a loop would exceed 96 MB (V8 15). Nor is garbage collected in parallel: near the
limit, that takes half a minute with 32 MB for young objects, and a second with 16 MB."""
_WARM_UP_MB = 16
"""Megabytes by which a server grows during its warm-up."""


@checked
class DenoSandbox(JailedProvider):
    """Runs programs in Deno processes, in a jail.

    `tier` selects the jail. "auto" uses the best one that this system supports, and at least the required one. Each
    execution has its own process, and `isolation` says where it comes from. "process" starts an engine for each
    execution. "fork" forks the process from a warm engine that serves one user of one organization, in a tenth of the
    time. "auto" forks if that works, once an engine is warm: the first three executions start engines, while one is
    warmed up in the background for the fourth, unless `pool_size` is 0. `pool_size` is the number of engines kept
    ready: by default one or, if forking does not work, one per processor and at most four. `allow_eval` lets programs
    compile strings to code (`eval`, `Function`). `allow_wasm` lets them use `WebAssembly`. Off Linux there is no jail,
    and every execution starts its own process, whatever `isolation` says.

    Raises:
        ConfigError: an argument has an invalid value.
    """

    name: ClassVar[str] = "deno"
    language: ClassVar[Language] = "typescript"

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"] = "auto",
        isolation: Literal["auto", "fork", "process"] = "auto",
        allow_eval: bool = False,
        allow_wasm: bool = False,
        pool_size: int | None = None,
    ) -> None:
        if v8_environment():
            logger.warning("%s", _INTERPRETED)
        self.isolation = isolation
        self.allow_eval = allow_eval
        self.allow_wasm = allow_wasm
        forks = can_limit and isolation in ("auto", "fork")
        super().__init__(
            tier=tier,
            pool_size=pool_size if pool_size is not None else 1 if forks else default_size(),
            starter=GuestStarter(
                tier,
                partial(_command, allow_eval, allow_wasm),
                RuntimeDirectory(),
                {**DENO_ENVIRONMENT, **v8_environment()},
                garbage_mb=_GARBAGE_MB,
                warm_up_arguments=("--warm-up",),
            ),
        )
        self._capabilities = replace(self._capabilities, modules=True, durable=True, cells=True)
        self._unjailed = None if can_limit else UnjailedDeno(allow_eval=allow_eval, allow_wasm=allow_wasm)
        self._forks: _ForkingDeno | None = None
        if forks:
            self._forks = _ForkingDeno(tier=tier, allow_eval=allow_eval, allow_wasm=allow_wasm, pool_size=pool_size)
        self._in_background = isolation == "auto" and pool_size != 0
        self._warmed: SandboxConfig | None = None
        self._started = 0
        self._fork_failure: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities if self._unjailed is None else self._unjailed.capabilities

    @property
    def fork_failure(self) -> str | None:
        """Reason why executions start their own engines although forks were requested; None if they do not, so far."""
        return self._fork_failure

    async def warm(self, config: SandboxConfig) -> None:
        if self._unjailed is not None:
            await self._unjailed.warm(self._with_tier(config))
        elif self._forks is not None and self._fork_failure is None and not self._in_background:
            await self._forked_or(self._forks.warm, super().warm, config)
        else:
            await super().warm(config)
            self._warmed = config

    async def aclose(self) -> None:
        self._warmed, self._started = None, 0
        await super().aclose()
        for provider in (self._forks, self._unjailed):
            if provider is not None:
                await provider.aclose()

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        return deno_version()

    async def start(self, config: SandboxConfig) -> Sandbox:
        if self._unjailed is not None:
            return await self._unjailed.start(self._with_tier(config))
        return await super().start(config)

    @override
    async def guest(self, config: SandboxConfig) -> LocalGuest:
        if config.durable:  # the same guest, without the effects of loading packages
            config = config.model_copy(update={"durable": False, "preloads": None})
        if self._forks is not None and config.owner is not None and self._may_fork(self._forks, config):
            return await self._forked_or(self._forks.guest, super().guest, config)
        return await super().guest(config)

    def _may_fork(self, forks: _ForkingDeno, config: SandboxConfig) -> bool:
        if self._fork_failure is not None or not self._in_background or config.space is not None:
            return self._fork_failure is None
        if forks.failure is not None:
            self._do_without_forks(forks.failure)
            return False
        if self._warmed is None:
            return False  # nothing would end the warm engines
        self._started += 1
        if self._started <= _STARTED_BEFORE_FORKS:
            return False
        return forks.prepare(config) or self._live >= _MOST_ENGINES

    async def _forked_or(
        self,
        forked: Callable[[SandboxConfig], Awaitable[T]],
        otherwise: Callable[[SandboxConfig], Awaitable[T]],
        config: SandboxConfig,
    ) -> T:
        """Uses a fork. If no engine has forked yet, but one without forks works, uses that one from then on."""
        assert self._forks is not None
        try:
            return await forked(config)
        except StartFailed as error:
            if self.isolation == "fork" or self._forks.works:
                raise
            result = await otherwise(config)
            if self._fork_failure is None:
                self._do_without_forks(str(error))
                await self._forks.aclose()
            return result

    async def prepare_space(self, config: SandboxConfig) -> None:
        if self._forks is not None and self._may_fork(self._forks, config):
            await self._forked_or(self._forks.prepare_space, super().prepare_space, config)

    def forget(self, space: Space) -> None:
        """Ends guests that wait for executions in this space, and frees everything that is kept for it."""
        super().forget(space)
        if self._forks is not None:
            self._forks.forget(space)

    def _do_without_forks(self, reason: str) -> None:
        self._fork_failure = reason
        logger.warning("each execution starts its own engine, because this one does not fork: %s", reason)

    def _with_tier(self, config: SandboxConfig) -> SandboxConfig:
        """Requires this provider's tier."""
        return config if self.tier == "auto" else config.model_copy(update={"required_tier": self.tier})

    async def settled(self) -> None:
        """Waits until the pool is full, if possible with sandboxes that can be forked."""
        if self._forks is not None and self._warmed is not None and self._fork_failure is None:
            self._started = _STARTED_BEFORE_FORKS
            self._forks.prepare(self._warmed)
        provider = self if self._forks is None or self._fork_failure is not None else self._forks
        await run_shielded_in_thread(partial(provider._pool.full, _SETTLE_SECONDS))  # noqa: SLF001


class _ForkingDeno(ForkProvider):
    """Deno engines that fork themselves."""

    name: ClassVar[str] = "deno"
    language: ClassVar[Language] = "typescript"

    def __init__(
        self, *, tier: Tier | Literal["auto"], allow_eval: bool, allow_wasm: bool, pool_size: int | None
    ) -> None:
        starter = GuestStarter(
            tier,
            partial(_server_command, allow_eval, allow_wasm),
            RuntimeDirectory(lambda: {"zygote.js": typescript_server()}),
            {**DENO_ENVIRONMENT, **v8_environment()},
            garbage_mb=_FORK_GARBAGE_MB + _WARM_UP_MB,
        )
        self._start_tested = SelfTestedStart(starter.start, lambda: (_engine(), typescript_server()))
        super().__init__(tier=tier, pool_size=pool_size, starter=starter, start=self._start_tested)

    @property
    def failure(self) -> str | None:
        """Reason why none of its engines forks; None if they do, or none was tried."""
        return self._start_tested.failure

    @property
    def works(self) -> bool:
        """True once an engine has forked."""
        return self._start_tested.passed


def deno_version() -> str:
    """Returns the version of the engine as ledgers record it."""
    return f"deno {_version('deno')}"


def _command(allow_eval: bool, allow_wasm: bool, config: SandboxConfig) -> GuestCommand:
    options = deno_options(config.memory_mb, allow_eval=allow_eval, space=config.space or NO_SPACE)
    own = _arguments(config, allow_eval=allow_eval, allow_wasm=allow_wasm)
    return GuestCommand(Engine(_engine(), relative_paths=True), (*options, f"{GUEST_FILE}main.js", *own))


def _server_command(allow_eval: bool, allow_wasm: bool, config: SandboxConfig) -> GuestCommand:
    options = deno_options(
        config.memory_mb, allow_eval=allow_eval, v8_flags=_FORK_FLAGS, space=config.space or NO_SPACE
    )
    own = _arguments(config, allow_eval=allow_eval, allow_wasm=allow_wasm)
    engine = Engine(_engine(), relative_paths=True, syscall_profile="server")
    return GuestCommand(engine, (*options, "--allow-ffi", f"{GUEST_FILE}zygote.js", *own))


def _arguments(config: SandboxConfig, *, allow_eval: bool, allow_wasm: bool) -> tuple[str, ...]:
    """Returns the arguments for the guest itself."""
    flags = {"--allow-eval": allow_eval, "--allow-wasm": allow_wasm, "--modules": config.modules}
    files = () if config.space is None else (f"--files={config.space.place(config.space.home)}",)
    return (*files, *(flag for flag, enabled in flags.items() if enabled))


@cache
def _engine() -> Path:
    try:
        return deno_path()
    except FileNotFoundError as error:
        raise StartFailed(f"the Deno engine is not where its package should be: {error}; pip install deno") from error
