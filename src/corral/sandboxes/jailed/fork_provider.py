"""Base of providers whose guests fork: one server for each owner, one process for each execution."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any, Literal, cast

import anyio

from corral.containment import NO_SPACE, Space, Tier
from corral.errors import BridgeError, StartFailed
from corral.logs import get_logger
from corral.npm import ModuleTexts, NpmModules, Trial
from corral.sandboxes.jailed.fork_self_test import expect_health, run_in_fork
from corral.sandboxes.jailed.fork_server import Fork, ForkServer, fork_message
from corral.sandboxes.jailed.guest_starter import GuestStarter, StartedGuest
from corral.sandboxes.jailed.provider import JailedGuest, JailedProvider
from corral.sandboxes.pool import OwnedBoxes, default_size
from corral.types import SandboxConfig

_TRIAL_SECONDS = 5.0
_TRIALS_SECONDS = 10.0
"""Maximum seconds for all trials of one server."""
_PRELOAD_SECONDS = 10.0
_VALUE_BYTES = 20_000
_MOST_REASONS = 5
_MOST_NAMES = 20
_REASON_CHARS = 300
_ANSWER_BYTES = 100_000
_MOST_BYTES = 32 << 20
"""Maximum bytes of the texts that one server gets."""
_LIMITS = {"calls": 1, "calls_in_flight": 1, "value_bytes": _VALUE_BYTES, "tool_input_bytes": 1, "log_bytes": 0}


class _PreloadFailed(Exception):
    """Packages behaved differently in a server than in their trials, so that server is unusable."""


async def preload(guest: StartedGuest, packages: NpmModules, space: Space) -> StartedGuest:
    """Has a server evaluate the packages that can be shared. Records in `trials` why others cannot.

    Raises:
        _PreloadFailed: close this server, and start another without preloaded packages.
        StartFailed: the server has ended.
    """
    await _try_all(guest, packages, space)
    names = [name for name in packages.names if (trial := packages.trials.get(name)) and not trial.reasons]
    if not names:
        return guest
    texts = await packages.texts(names)
    content: dict[str, object] = {
        "modules": _modules(texts),
        "mounts": space.places,
        "packages": [(name, packages.trials[name].asynchronous) for name in names],
    }
    try:
        with anyio.fail_after(_PRELOAD_SECONDS):
            evaluated = await _evaluate(guest, json.dumps(content).encode(), writes=space.writes)
            await expect_health(guest, writes=space.writes)
    except TimeoutError:
        failure = f"the server did not load them within {_PRELOAD_SECONDS:g} s"
    except (StartFailed, BridgeError, OSError, ValueError) as error:
        failure = f"the server did not load them as their trials did: {error}"
    else:
        for name in names:
            if name not in evaluated:
                _note(packages, name, Trial(("it fails to load in the server, unlike in its trial",)))
        asked = frozenset(name for each in names for name in packages.trials[each].environment)
        own = {name: packages.trials[name].environment for name in names}
        return guest._replace(preloaded={name: own.get(name, asked) for name in evaluated & texts.texts.keys()})
    for name in names:
        packages.trials[name] = Trial((failure,))
    raise _PreloadFailed(failure)


async def _try_all(guest: StartedGuest, packages: NpmModules, space: Space) -> None:
    """Loads each package that was not tried yet, one after the other, in a separate process."""
    deadline = anyio.current_time() + _TRIALS_SECONDS
    for name in packages.names:
        if name in packages.trials:
            continue
        seconds = deadline - anyio.current_time()
        if seconds < _TRIAL_SECONDS:
            logger.warning("package %r is not preloaded yet: trials of other packages used up the time", name)
            continue  # another server will try it
        try:
            texts = await packages.texts([name])
            with anyio.fail_after(_TRIAL_SECONDS):
                trial = await _try(guest, name, texts, space)
        except TimeoutError:
            trial = Trial((f"it did not load within {_TRIAL_SECONDS:.1f} s",))
        except (StartFailed, BridgeError, ValueError, TypeError, LookupError, RecursionError) as error:
            trial = Trial((f"it did not load: {error}"[:_REASON_CHARS],))
        _note(packages, name, trial)


def _note(packages: NpmModules, name: str, trial: Trial) -> None:
    packages.trials[name] = trial
    if trial.reasons:
        logger.warning("package %r is not preloaded: %s", name, "; ".join(trial.reasons))


async def _try(guest: StartedGuest, name: str, texts: ModuleTexts, space: Space) -> Trial:
    if name in texts.failures:
        return Trial((texts.failures[name],))
    start: dict[str, object] = {
        "code": f"(async (load, enter) => enter(require({json.dumps(name)}), false))",
        "tools": [],
        "env": {},
        "limits": _LIMITS,
        "modules": _modules(texts),
        "mounts": space.places,
        "rehearses": True,
    }
    kind, content, *_ = await run_in_fork(guest, start, value_bytes=_VALUE_BYTES, writes=space.writes)
    if kind != "value":
        return Trial((f"it did not load: {content[2]}"[:_REASON_CHARS],))
    reasons = tuple(str(each)[:_REASON_CHARS] for each in content["reasons"][:_MOST_REASONS])
    environment = frozenset(str(each) for each in content["environment"][:_MOST_NAMES])
    return Trial(reasons, asynchronous=content["asynchronous"] is True, environment=environment)


async def _evaluate(guest: StartedGuest, content: bytes, *, writes: bool) -> set[str]:
    """Returns the specifiers of the texts that the server has evaluated."""
    if len(content) > _MOST_BYTES:
        raise ValueError(f"their texts have {len(content)} bytes; the maximum is {_MOST_BYTES}")
    file = os.memfd_create("packages", os.MFD_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        try:
            with open(file, "wb", closefd=False) as stream:  # noqa: ASYNC230  # in memory
                stream.write(content)
            os.lseek(file, 0, os.SEEK_SET)
            message = {"bytes": len(content), "first": fork_message(guest.tier, writes)}
            guest.process.ask(json.dumps(message).encode(), [file, theirs.fileno()])
        finally:
            os.close(file)
        theirs.close()  # so that the server's end is noticed
        ours.setblocking(False)
        await anyio.wait_readable(ours)
        return _names(ours.recv(_ANSWER_BYTES))


def _names(answer: bytes) -> set[str]:
    """Parses the answer of a server that has run untrusted code.

    Raises:
        ValueError: the answer is malformed.
    """
    try:
        content: Any = json.loads(answer)
        names = content["preloaded"]
        if isinstance(names, list):
            return {each for each in cast("list[object]", names) if isinstance(each, str)}
    except (RecursionError, TypeError, LookupError):
        pass
    raise ValueError("its answer is malformed")


def _modules(texts: ModuleTexts) -> dict[str, object]:
    return {
        "allowed": texts.allowed,
        "texts": {specifier: {"code": code} for specifier, code in texts.texts.items()},
        "failures": texts.failures,
    }


logger = get_logger("corral.sandboxes")


class ForkProvider(JailedProvider):
    """Keeps `pool_size` servers ready for new users; one by default.

    Raises:
        ConfigError: see `JailedProvider`.
    """

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"],
        pool_size: int | None,
        starter: GuestStarter,
        start: Callable[[SandboxConfig, bool], StartedGuest] | None = None,
    ) -> None:
        self._servers = OwnedBoxes[Fork]()
        super().__init__(
            tier=tier,
            pool_size=min(1, default_size()) if pool_size is None else pool_size,
            starter=starter,
            start=start,
            close_servers=self._servers.close,
        )

    def prepare(self, config: SandboxConfig) -> bool:
        """Starts a server for this configuration in the background. Returns True if one is ready."""
        return self._servers.has(config) or self._pool.want(config.unowned)

    async def _guest(self, config: SandboxConfig) -> JailedGuest:
        return await self._servers.reserve(config, self._new_server)

    async def _new_server(self, config: SandboxConfig) -> ForkServer:
        space = config.space or NO_SPACE
        guest = await self._new_guest(config)
        if config.preloads is not None:
            try:
                guest = await preload(guest, config.preloads, space)
            except _PreloadFailed as error:
                logger.warning("no package is preloaded: %s", error)
                guest.close()
                guest = await self._new_guest(config)
            except BaseException:
                guest.close()
                raise
        return ForkServer(guest, writes=space.writes)

    async def _new_guest(self, config: SandboxConfig) -> StartedGuest:
        return await self._pool.take(config.unowned, kept=config.space is None)

    async def prepare_space(self, config: SandboxConfig) -> None:
        self._starter.retain()
        try:
            await self._servers.prepare(config, self._new_server)
        finally:
            await self.released()

    def forget(self, space: Space) -> None:
        self._servers.retire(space)
        super().forget(space)
