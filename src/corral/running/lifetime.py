"""Opening and closing a Corral."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.lifecycle import Lifecycle
from corral.concurrency.threads import expect_threads, run_shielded_in_thread
from corral.errors import ConfigError
from corral.jail import LauncherClient
from corral.logs import get_logger
from corral.running import Execution, Runtime
from corral.sandboxes.selection import Providers, Sandboxes
from corral.sessions import KeptSessions, OpenSession
from corral.tools.tool_sources import ToolSources
from corral.types import Language

logger = get_logger("corral")

_UNREADY_SECONDS = 15.0
"""Seconds after a sandbox could not be started; without an end, nobody would send the program that shows a recovery."""


class CorralLifetime(Lifecycle):
    """Opens tool sources, bridges and sandboxes, and closes them with all executions that still run."""

    def __init__(self, runtime: Runtime, sources: ToolSources, sandbox: Sandboxes) -> None:
        super().__init__()
        self._runtime = runtime
        self._sources = sources
        self._sandbox = sandbox
        self._live: set[Execution] = set()
        self._sessions: set[OpenSession] = set()
        self._kept_sessions: KeptSessions | None = None
        self._commands = LauncherClient()
        self._draining = False
        self.first_language: Language | None = None
        """Language to be ready for when it is opened, if it is known."""

    @checked
    async def drain(self, seconds: float = 30.0) -> bool:
        """Takes no new programs from now on, and waits until those that run have ended; cancels them after `seconds`.

        Programs elsewhere count until their grant ends, and `aclose` ends them. Returns False if any was still
        running then. `aclose` is to follow.
        """
        self._draining = True
        with anyio.move_on_after(seconds) as waiting:
            for execution in [*self._live]:
                await execution.ended.wait()
            await self._runtime.grants.all_ended()
        live = [*self._live]
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            for execution in live:
                await execution.ended.wait()
        return not waiting.cancelled_caught

    @checked
    def unready(self) -> str | None:
        """Returns the reason that a balancer should send no more requests here; None if programs can be run.

        That is so if it is not open or draining, and for 15 s after a sandbox could not be started.
        """
        if self._draining:
            return "draining"
        if not self._open:
            return "not open"
        failed_lately = time.monotonic() - self._runtime.start_failed < _UNREADY_SECONDS
        return "sandboxes cannot be started" if failed_lately else None

    @override
    async def aclose(self) -> None:
        """Cancels running executions, waits for their end, and frees sandboxes and sources. Idempotent.

        In a fork of the process that opened it, it leaves that process's resources alone.
        """
        if not self._owner.is_current:
            self._reset_in_fork()
            return
        self._expect_no_closing()
        runtime = self._runtime
        if runtime.grants.is_calling():
            raise ConfigError("a tool cannot close the Corral that runs it")
        self._closed = True
        was_open = self._open
        self._open = runtime.keeps_warm = False
        live = list(self._live)
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            await runtime.grants.close_all()
            for execution in live:
                await execution.ended.wait()
            async with anyio.create_task_group() as tasks:
                for observation in [*runtime.observations]:
                    tasks.start_soon(observation.finish)
            for session in [*self._sessions]:
                await session.aclose()
            if self._kept_sessions is not None:
                await self._kept_sessions.aclose()
            await run_shielded_in_thread(self._commands.close)
            await runtime.protocols.aclose()
            await self._sources.aclose()
            await run_shielded_in_thread(runtime.checker.close)
            if was_open:
                for compiler in runtime.compilers.values():
                    await compiler.aclose()
            for provider in runtime.providers.made:
                if not provider.is_entered:
                    await provider.aclose()  # a provider shared with other Corrals keeps their sandboxes
            await run_shielded_in_thread(self._save_learnt)
            await runtime.rates.store.aclose()
            if runtime.audit is not None:
                await runtime.audit.aclose()

    def _save_learnt(self) -> None:
        try:
            self._runtime.learnt.save()
        except ConfigError as error:
            logger.warning("%s", error)

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._closed else "not open"
        count = len(self._runtime.tools)
        return f"<Corral of {count} tool{'' if count == 1 else 's'}, {state}>"

    @override
    def _renew(self) -> object:
        runtime = self._runtime
        behind = self._sources, runtime.checker, runtime.providers, runtime.protocols
        self._sources = self._sources.copy()
        self._live, self._sessions, self._commands = set(), set(), LauncherClient()
        if self._kept_sessions is not None:
            self._kept_sessions = self._kept_sessions.empty()
        runtime.renew(Providers(self._sandbox))
        return behind

    @override
    async def _get_ready(self) -> None:
        """Opens tool sources and bridges, and warms sandboxes; raises if the required isolation is not available."""
        self._reset_in_fork()
        if self._open:
            raise ConfigError("this Corral is open already")
        expect_threads()
        runtime = self._runtime
        was_closed, self._closed, self._draining = self._closed, False, False
        if was_closed:
            runtime.renew()
        try:
            await self._sources.open()
            await runtime.protocols.open()
            if self._closed:
                raise ConfigError("this Corral was closed while it was being opened")
            self._open = runtime.keeps_warm = True
            await runtime.providers.warm_up(runtime.warm_up, self.first_language)
            for compiler in runtime.compilers.values():
                await compiler.open()
            self._expect_closing()
        except BaseException:
            self._open, self._closed = False, was_closed
            runtime.keeps_warm = False
            with anyio.CancelScope(shield=True):
                await runtime.protocols.aclose()
                await self._sources.aclose()
                await run_shielded_in_thread(runtime.checker.close)
            runtime.renew()
            raise

    @asynccontextmanager
    async def connected(self, *, bridges: bool = False) -> AsyncGenerator[Self]:
        """Opens only the tool sources, for the duration of the block: enough to declare all tools.

        `bridges` also opens the bridges, such as the server of a `GrpcBridge`: enough to serve programs elsewhere.

        Raises:
            CorralError: a required tool source or a bridge cannot be opened.
        """
        self._require_own()
        if self._open:
            yield self
            return
        await self._sources.open()
        try:
            if bridges:
                await self._runtime.protocols.open()
            yield self
        finally:
            if bridges:
                await self._runtime.protocols.aclose()
            await self._sources.aclose()

    def _require_usable(self) -> None:
        self._require_own()
        if self._closed:
            raise ConfigError("this Corral is closed; `async with corral` opens it again")
        if self._draining:
            raise ConfigError("this Corral is draining: it takes no new programs")

    def _require_sources(self) -> None:
        if self._sources.missing:
            raise ConfigError(
                "this Corral has tool sources, which are not open; open it with `async with corral` or `with corral`"
            )

    @contextmanager
    def _lives(self, execution: Execution) -> Generator[None]:
        """Keeps an execution among those that `aclose` ends, for the duration of the block."""
        self._live.add(execution)
        try:
            yield
        finally:
            self._live.discard(execution)
