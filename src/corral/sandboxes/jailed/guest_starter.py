"""Starts engines, up to a guest that has sent READY, in jails of the best tier that works."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from corral.containment import TIERS, Space, Tier, reaches
from corral.errors import StartFailed
from corral.guest import RuntimeDirectory
from corral.guest.python.frames import NONCE_BYTES
from corral.jail import Engine, Jail, LauncherClient, Mount, Plan, in_best_jail
from corral.jail.jail import address_space_mb
from corral.jail.launcher_client import Child, Programs
from corral.jail.process import ContainedProcess, can_limit
from corral.sandboxes.channel import PostMortem
from corral.sandboxes.framed.link import ReadyReader
from corral.types import SandboxConfig

_GRACE_SECONDS = 0.2
"""Seconds for a process to exit by itself after its pipe has closed, so that its status shows the reason."""


class GuestProcess(ContainedProcess):
    """Process whose frames carry the nonce of the one execution that it serves."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.renew_nonce()

    def renew_nonce(self) -> None:
        """Makes a nonce for the next cell of a notebook: frames of earlier ones are no longer accepted."""
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.lost = ""  # as a pipe cannot be

    def reports_cpu(self, changed: Callable[[], object]) -> bool:
        """Returns False: the host reads its clock."""
        del changed
        return False

    async def post_mortem(self) -> PostMortem:
        """Returns the exit status and the end of the standard error. Ends the process if it still runs."""
        status = await self.wait(_GRACE_SECONDS)
        return PostMortem(status=status, stderr=self.error_tail() or self.failure or "")


K = TypeVar("K")
V = TypeVar("V")

NO_JAIL = "processes can be contained only on Linux"
WITHOUT_JAIL = (
    "With sandbox='auto', programs also run without a jail, in WebAssembly or in Monty: "
    "pip install 'corral[monty,wasm]'"
)
_RETRY_SECONDS = 60.0
"""Seconds until a jail is tried again after it failed, since a loaded machine can have been the reason. They double
with each further failure, because one program waits for each attempt."""
GUEST_FILE = "guest:"
"""Prefix of an argument that names a file of the guest's code. The file's path in the jail replaces it."""
VARIABLE = "variable:"
"""Prefix of an argument `NAME=VALUE` that sets an environment variable instead."""
MOUNTED = "mount:"
"""Prefix of an argument that is the path of a mount in namespaces. Its path in the jail replaces it."""
_UNMEASURED_DATA_BYTES = 1 << 30
"""Memory limit of the first guest, which measures an idle guest: Deno takes 550 MB, 512 of them reserved for code."""
_READY_SECONDS = 30.0
"""Maximum seconds for a guest to get ready. On a loaded machine it takes tenths of a second."""


_MOST_JAILS = 64
"""Maximum number of configurations whose jails a starter remembers. The oldest is dropped first."""

_measured: dict[tuple[Path, tuple[Mount, ...], Tier, int | None, Path, tuple[str, ...]], int] = {}
"""Bytes of an idle guest, measured in this process, by the executable, its mounts, tier, user, location of the code,
and arguments."""
_working: dict[tuple[Path, Path, Tier | Literal["auto"]], tuple[Tier, int | None]] = {}
"""Tier and user with which an executable starts on this machine, by the guest's location and the requested tier."""


class JailRetries:
    """Times at which a jail that failed is tried again, while programs run elsewhere."""

    def __init__(self) -> None:
        self._pause = _RETRY_SECONDS
        self._next = 0.0
        """Time of the next attempt, by `time.monotonic`; 0 if none has failed."""

    def begin(self) -> bool:
        """Returns True if the caller should try: always before the first failure, and then one caller at a time."""
        if time.monotonic() < self._next:
            return False
        if self._next:
            self._postpone()
        return True

    def fail(self) -> bool:
        """Notes that an attempt failed. Returns False if one has failed before."""
        if self._next:
            return False
        self._postpone()
        return True

    def reset(self) -> None:
        """Notes that an attempt succeeded."""
        self._pause, self._next = _RETRY_SECONDS, 0.0

    def _postpone(self) -> None:
        self._next = time.monotonic() + self._pause
        self._pause *= 2


class GuestCommand(NamedTuple):
    """Engine of a guest, and the arguments for it."""

    engine: Engine
    arguments: tuple[str, ...]


class _Prepared(NamedTuple):
    """Jail that works for a configuration, and the plans of its guests."""

    jail: Jail
    on_demand: Plan
    in_advance: Plan


class StartedGuest(NamedTuple):
    """Ready guest, and its tier."""

    process: GuestProcess
    tier: Tier
    lasts: Callable[[], bool] = lambda: True
    """False once its starter has been closed, which ends the guest sooner or later."""
    preloaded: Mapping[str, frozenset[str]] = MappingProxyType({})

    @property
    def alive(self) -> bool:
        return self.lasts() and self.process.alive

    def close(self) -> None:
        self.process.close()


class GuestStarter:
    """Starts guests according to their configuration, which is the whole key. Methods block. Thread-safe.

    `command` returns the engine for a configuration, and its arguments. `garbage_mb` is memory on top of a program's
    limit, for garbage that the engine has not collected yet. `warm_up_arguments` are added for guests that are started
    in advance. The launcher, the jails and the guest's code on disk are created at the first start, and kept until
    `close`.
    """

    def __init__(
        self,
        tier: Tier | Literal["auto"],
        command: Callable[[SandboxConfig], GuestCommand],
        runtime: RuntimeDirectory,
        environment: Mapping[str, str],
        *,
        garbage_mb: int,
        warm_up_arguments: Sequence[str] = (),
    ) -> None:
        self._tier: Tier | Literal["auto"] = tier
        self.command = command
        self._runtime = runtime
        self._environment = environment
        self._garbage_mb = garbage_mb
        self._warm_up_arguments = warm_up_arguments
        self._lock = threading.RLock()
        self._launcher = LauncherClient()
        self._directory: Path | None = None
        self._prepared: dict[SandboxConfig, _Prepared] = {}
        self._unlimited: GuestProcess | None = None
        """Guest that was measured and has no limit yet."""
        self._count = threading.Lock()
        self._held = 0
        self._closing = False
        self._generation = 0
        """Number of times that the starter was closed."""

    def start(self, config: SandboxConfig, in_advance: bool) -> StartedGuest:
        """Starts a guest and waits until it is ready. Starting one in advance takes longer, because it is warmed up.

        Raises:
            StartFailed: no guest starts; the message has the reason and the remedy.
        """
        with self._lock:  # other callers wait until the first guest has shown which tier works
            directory = self._ready_directory()
            prepared = self._prepared.get(config)
            if prepared is None:
                command = self.command(config)
                jail = self._jail(config, command, directory)
                data_bytes = self._measure(jail, command.arguments)
                data_bytes += (config.memory_mb + self._garbage_mb) * (1 << 20)
                warm = (*command.arguments, *self._warm_up_arguments)
                plans = [self._plan(jail, each, data_bytes) for each in (command.arguments, warm)]
                prepared = _Prepared(jail, *plans)
                _remember(self._prepared, config, prepared)
                measured, self._unlimited = self._unlimited, None
                if measured is not None:
                    cold = in_advance and self._warm_up_arguments
                    if not cold and self._limit_data(jail, measured, data_bytes):
                        return StartedGuest(measured, jail.tier, self._lasts())
                    measured.close()
            lasts = self._lasts()
        jail = prepared.jail
        process = self._start(prepared.in_advance if in_advance else prepared.on_demand)
        if not jail.verified:
            self._verify(jail, process)
        return StartedGuest(process, jail.tier, lasts)

    def placement(self, config: SandboxConfig) -> Tier:
        """Returns the tier that works for such guests.

        Raises:
            StartFailed: see `start`.
        """
        with self._lock:
            directory = self._ready_directory()
            prepared = self._prepared.get(config)
            jail = self._jail(config, self.command(config), directory) if prepared is None else prepared.jail
            self._close_unlimited()
            return jail.tier

    def starts_as_nobody(self, config: SandboxConfig) -> bool:
        """True if a user who owns nothing can read the engine and all its files."""
        engine = self.command(config).engine
        return all(map(_is_public, (engine.executable, *(mount.path for mount in engine.mounts))))

    def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, programs: Programs | None = None
    ) -> list[int]:
        """Delegates to `LauncherClient.make_space`."""
        return self._launcher.make_space(sizes, place, user, programs)

    def forget(self, space: Space) -> None:
        """Frees everything that is kept for starting guests in this space."""
        with self._lock:
            prepared = [self._prepared.pop(each) for each in [*self._prepared] if each.space is space]
            self._launcher.forget([plan for each in prepared for plan in (each.on_demand, each.in_advance)])

    def retain(self) -> None:
        """Makes `close` keep the launcher, and with it all guests, until `release`."""
        with self._count:
            self._held += 1

    def release(self) -> bool:
        """Ends one `retain`. Returns True if `close` was called meanwhile, and has to be called again."""
        with self._count:
            self._held -= 1
            return self._closing and self._held == 0

    def close(self) -> None:
        """Ends the launcher and deletes the guest's code, unless retained. Idempotent; `start` starts it again."""
        self._close(held_too=False)

    def end(self) -> None:
        """Does the same as `close`, even if retained: every guest ends with the launcher."""
        self._close(held_too=True)

    def _close(self, *, held_too: bool) -> None:
        with self._lock:
            with self._count:
                self._closing = self._held > 0 and not held_too
                if self._closing:
                    return
                self._generation += 1  # so that later holders take no guest from before
            self._launcher.close()
            self._runtime.close()
            self._forget()

    def _lasts(self) -> Callable[[], bool]:
        generation = self._generation
        return lambda: self._generation == generation

    def _forget(self) -> None:
        self._close_unlimited()
        self._directory = None
        self._prepared.clear()

    def _ready_directory(self) -> Path:
        if not can_limit:
            raise StartFailed(f"{NO_JAIL}. {WITHOUT_JAIL}")
        self._launcher.begin()  # while the guest's files are made
        try:
            directory = self._runtime.prepare()
        except OSError as error:
            reason = f"cannot write the guest's code to a temporary directory: {error}"
            raise StartFailed(f"{reason}; set the environment variable TMPDIR to another folder") from error
        if directory != self._directory:
            self._forget()
            self._directory = directory
        return directory

    def _jail(self, config: SandboxConfig, command: GuestCommand, directory: Path) -> Jail:
        """Returns a jail in which such guests start. In a space, it has the tier that also works outside spaces."""
        if config.space is not None:
            return self._jail_in(config.space, config, command, directory)
        engine, required = command.engine, config.required_tier
        if not engine.executable.is_file():
            raise StartFailed(f"there is no engine at {engine.executable}")
        if self._tier != "auto" and not reaches(self._tier, required):
            raise StartFailed(
                f"this sandbox runs in tier {self._tier!r}, below the required {required!r}; "
                f"use another `tier`, or accept it with Corral(required_tier={self._tier!r})"
            )
        place = engine.executable, directory.parents[1], self._tier
        jail = self._known_jail(required, command, directory, _working.get(place))
        jail = jail or self._find_jail(required, command, directory)
        _working[place] = jail.tier, jail.user
        return jail

    def _jail_in(self, space: Space, config: SandboxConfig, command: GuestCommand, directory: Path) -> Jail:
        usual_config = config.model_copy(update={"space": None})
        usual = self._jail(usual_config, self.command(usual_config), directory)
        self._close_unlimited()  # the directory is outside the space
        if space.namespaces is not None and usual.tier != "namespaces":
            raise StartFailed(f"the session's files are in namespaces, and programs run in tier {usual.tier!r} here")
        return Jail(usual.tier, command.engine, directory, user=space.user, space=space)

    def _known_jail(
        self, required: Tier, command: GuestCommand, directory: Path, known: tuple[Tier, int | None] | None
    ) -> Jail | None:
        """Returns a jail of the tier that is known to work on this machine, if it applies here and still works."""
        if known is None or not reaches(known[0], required):
            return None
        try:
            jail = Jail(known[0], command.engine, directory, user=known[1])
            self._measure(jail, command.arguments)
        except StartFailed:
            return None
        return jail

    def _find_jail(self, required: Tier, command: GuestCommand, directory: Path) -> Jail:
        """Tries the tiers from the best down to the required one. Returns the first jail in which a guest starts."""

        def measured(jail: Jail) -> Jail:
            self._measure(jail, command.arguments)
            return jail

        allowed: Iterable[Tier] = reversed(TIERS) if self._tier == "auto" else (self._tier,)
        tiers: list[Tier] = [tier for tier in allowed if reaches(tier, required)]
        try:
            return in_best_jail(tiers, command.engine, directory, measured)
        except StartFailed as error:
            messages = [_no_tier(required, str(error)), _address_space(), WITHOUT_JAIL]
            if required != "none":
                messages.append(
                    "`corral doctor` shows details; Corral(containment='none') runs programs without a jail"
                )
            raise StartFailed(". ".join(filter(None, messages))) from error

    def _measure(self, jail: Jail, arguments: tuple[str, ...]) -> int:
        """Returns the memory of an idle guest in bytes, as measured on a guest that gets its limit afterwards.

        Other guests get their limit before they start, because root without CAP_SYS_RESOURCE cannot set it later.
        """
        place = jail.directory.parents[1]  # the temporary directory
        seen = (jail.engine.executable, jail.engine.mounts, jail.tier, jail.user, place, arguments)
        bytes_ = _measured.get(seen)
        if bytes_ is None:
            process = self._start(self._plan(jail, arguments, _UNMEASURED_DATA_BYTES))
            self._verify(jail, process)
            try:
                bytes_ = process.data_bytes()
                _remember(_measured, seen, bytes_)  # a session can have its own arguments
            except OSError as error:
                process.close()
                raise StartFailed(f"the kernel does not report how much memory the guest takes: {error}") from error
            self._close_unlimited()
            self._unlimited = process
        return bytes_

    def _limit_data(self, jail: Jail, process: GuestProcess, bytes_: int) -> bool:
        """Sets the limit, as the host or by means of the launcher as the guest's own user. Returns True if it was
        set."""
        if process.limit_data(bytes_):
            return True
        try:
            return jail.user is not None and self._launcher.limit_data(process.pid, bytes_, jail.user)
        except (StartFailed, OSError):
            return False

    def _close_unlimited(self) -> None:
        if self._unlimited is not None:
            self._unlimited.close()
            self._unlimited = None

    def _verify(self, jail: Jail, process: GuestProcess) -> None:
        try:
            jail.verify(process.pid)
        except BaseException:
            process.close()
            raise

    def _plan(self, jail: Jail, arguments: Sequence[str], data_bytes: int) -> Plan:
        named = [_named(jail, argument) for argument in arguments if not argument.startswith(VARIABLE)]
        variables = (argument.removeprefix(VARIABLE) for argument in arguments if argument.startswith(VARIABLE))
        environment = {**self._environment, **dict(variable.split("=", 1) for variable in variables)}
        return replace(jail.plan(named, environment, data_bytes=data_bytes), scratch=self._runtime.home)

    def _start(self, plan: Plan) -> GuestProcess:
        process = GuestProcess.spawn(self._launcher, plan)
        try:
            _await_ready(process)
        except BaseException:
            process.close()
            raise
        return process


def _named(jail: Jail, argument: str) -> str:
    """Returns an argument for guests of this jail."""
    if argument.startswith(GUEST_FILE):
        return jail.path(argument.removeprefix(GUEST_FILE))
    return jail.mounted(argument.removeprefix(MOUNTED)) if argument.startswith(MOUNTED) else argument


def _remember(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= _MOST_JAILS:
        del known[next(iter(known))]
    known[key] = value


def _is_public(path: Path) -> bool:
    """True if everyone can read the file, and search all folders above it."""
    path = path.resolve()
    needed = 0o005 if path.is_dir() or os.access(path, os.X_OK) else 0o004
    return path.stat().st_mode & needed == needed and all(each.stat().st_mode & 0o001 for each in path.parents)


def _await_ready(process: GuestProcess) -> None:
    reader = ReadyReader()
    while not reader.feed(process.await_output(_READY_SECONDS)):
        pass


def _no_tier(required: Tier, reasons: str) -> str:
    if required == "none":
        return f"the engine does not start here: {reasons}"
    return f"no containment of tier {required!r} or better works here. {reasons}"


def _address_space() -> str | None:
    limit = address_space_mb()
    if limit is None:
        return None
    return f"Address space is limited to {limit} MB here, and engines reserve far more: ulimit -v unlimited"
