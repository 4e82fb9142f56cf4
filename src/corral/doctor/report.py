"""Report on the containment in force on this machine, layer by layer, with missing parts and remedies.

Nothing is taken on trust: for every tier, the real engine, with all of its own permissions, is started in the jail and
tries to get out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import anyio

from corral import Corral
from corral.containment import TIERS, ContainmentKind, Tier
from corral.doctor.escape_probe import Attempt, Facts, Trial, attempted, make_room
from corral.doctor.language_servers import RIGHT, double
from corral.doctor.layers import (
    Layer,
    address_space_layer,
    bubblewrap_layer,
    engine_layer,
    landlock_layer,
    seccomp_layer,
    surroundings_layers,
    system,
    user_namespaces_layer,
)
from corral.errors import CorralError, MissingExtra, StartFailed
from corral.jail.jail import Engine, deno_path, jails_to_try, may_become
from corral.jail.launcher_client import LauncherClient
from corral.jail.privileges import NOBODY
from corral.jail.process import can_limit
from corral.jail.spaces import Place, open_space
from corral.plugins import load_by_name
from corral.results import ExecutionResult
from corral.sandboxes.automatic import AutomaticSandbox, PythonSandbox, TypeScriptSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.jailed.guest_starter import NO_JAIL, WITHOUT_JAIL
from corral.sandboxes.pool import default_size
from corral.sandboxes.wasm_image import image_is_cached
from corral.sessions.shell import Shell, ShellCapabilities, ShellLimitName, ShellLimits
from corral.types import Containment, Language, SandboxConfig


class Difference(NamedTuple):
    """Subject, and its description in each of two tiers as one line of Markdown."""

    name: str
    namespaces: str
    landlock: str


DIFFERENCES = (
    Difference(
        "quotas of scratch directories",
        "enforced by the kernel, which counts blocks; lengths are checked when a program has ended, and limit the "
        "files that are stored and exported",
        "checked 4 to 200 times a second, by length; a program can exceed them between two checks, and no program "
        "starts in a directory with more than twice its quota plus 64 MB",
    ),
    Difference(
        "files that no list shows",
        "counted by the kernel like others",
        "deeply nested files are counted; deleted files that are still open are counted if the host can see the "
        "guest's descriptors (`/proc/PID/fd`), but an ordinary user, or root without CAP_SYS_PTRACE, cannot see those "
        "of programs; of deleted files that are only mapped, the mapped part is counted, or all of it if the host has "
        "CAP_CHECKPOINT_RESTORE; files in transit through a socket pair are never counted",
    ),
    Difference(
        "locks and watches of the host's files",
        "commands have inodes that belong to their session (Linux 5.11), for `/dev/null` and the like only if the "
        "host is root; futexes on pages of these files are still shared by all, and so are `Directory` mounts",
        "commands share the locks of the host's inodes, which has to be accepted (`locks`), and have no watches",
    ),
    Difference(
        "what `stat` tells of the host's files",
        "nothing: they are not there",
        "that a path exists, its size, owner and times",
    ),
    Difference(
        "numbers of processes",
        "the guest's own, starting at 1; commands have a `/proc` that shows these",
        "the host's: `kill -0`, and `stat` of `/proc/PID`, tell which exist; nothing in `/proc` can be read",
    ),
    Difference(
        "signals",
        "reach no process outside, as there is none",
        "reach no process outside: programs cannot send any, and Landlock confines those of commands (Linux 6.12)",
    ),
    Difference(
        "memory",
        "limited for each process by the kernel, and for all commands together by polling; scratch files use the "
        "host's memory",
        "limited in the same way; scratch files are on disk",
    ),
    Difference(
        "network of commands",
        "none, or listed origins through a proxy that only they can reach",
        "none, and none can be configured; no unix sockets except pairs",
    ),
    Difference(
        "modes, owners and times of files",
        "work on the session's own files",
        "work if each session has its own user (as root); otherwise changes succeed without effect",
    ),
    Difference(
        "paths",
        "those of the mounts",
        "those of the host for commands; a table in the guest translates them for programs",
    ),
    Difference(
        "checks of programs",
        "the language server sees only its own files",
        "the language server can find out with `stat` which files exist",
    ),
)


_JAILS: tuple[Tier, ...] = ("namespaces", "landlock")
_LIMITS = {"Max data size": None, "Max open files": "64", "Max file size": "0", "Max core file size": "0"}
"""Limits in /proc/PID/limits that a jail sets. None stands for the program's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TierResult:
    """Result of starting guests in one tier."""

    tier: Tier
    works: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Results. `tier` is the one that `DenoSandbox(tier="auto")` would choose; None if no guest of it starts."""

    system: str
    typescript: ContainmentKind | None
    """Containment in which a TypeScript program ran; None: it did not run."""
    reason: str | None
    """Reason why it did not run, or why WebAssembly ran it instead of Deno."""
    tier: Tier | None
    python: ContainmentKind | None
    """Containment in which a Python program ran; None: it did not run."""
    python_reason: str | None
    """Reason why it did not run, or why Monty ran it instead of CPython."""
    layers: tuple[Layer, ...]
    verdicts: tuple[_TierResult, ...]
    attempts: tuple[Attempt, ...]
    properties: Mapping[str, str]
    """Description of guests in `tier`, by subject, for the subjects in which tiers differ."""
    pool_size: int
    """Default number of guests that are kept ready."""

    @property
    def contained(self) -> bool:
        """True if every attempt was made and refused, or is open by design."""
        return all(attempt.contained for attempt in self.attempts)

    def reaches(self, required: Tier) -> bool:
        """True if TypeScript programs run in this tier or with a better containment."""
        return self.typescript is not None and self.typescript.reaches(required)


def examine(tiers: Sequence[Tier] = _JAILS) -> Examination:
    """Examines this machine, with attempts in each of `tiers`. Blocks for a second or two.

    Not for a thread with a running event loop.
    """
    engine = _engine()
    engine_found = engine_layer(engine)
    verdicts: list[_TierResult] = []
    trials: dict[Tier, Trial] = {}
    if engine is not None and engine_found.in_force and can_limit:
        try:
            with make_room() as room, closing(LauncherClient()) as launcher:
                for tier in tiers:
                    verdict, trial = _try(tier, engine, room, launcher)
                    verdicts.append(verdict)
                    if trial is not None:
                        trials[tier] = trial
        except OSError as error:
            detail = f"cannot create the targets of the attempts: {error}"
            verdicts += [_TierResult(tier=tier, works=False, detail=detail) for tier in tiers[len(verdicts) :]]
    deno = DenoSandbox(pool_size=0)
    typescript, reason = _ran(TypeScriptSandbox(deno), "typescript")
    chosen: Tier | None = next((tier for tier in TIERS if tier == typescript), None)
    python, python_reason = _ran(PythonSandbox(), "python")
    verdicts += [_untried(tier, chosen) for tier in reversed(TIERS) if all(tier != each.tier for each in verdicts)]
    return Examination(
        system=system(),
        typescript=typescript,
        reason=reason,
        tier=chosen,
        python=python,
        python_reason=python_reason,
        layers=(
            engine_found,
            *surroundings_layers(),
            *_layers({tier: trial.facts for tier, trial in trials.items()}),
            *([] if chosen is None else [_forks(deno.fork_failure), _sessions(), _shells()]),
            *_webassembly(),
        )
        if can_limit
        else (
            engine_found,
            _no_jail(typescript, python),
            *_webassembly(),
        ),
        verdicts=tuple(verdicts),
        attempts=tuple(attempt for trial in trials.values() for attempt in trial.attempts),
        properties={each.name: getattr(each, chosen) for each in DIFFERENCES} if chosen in _JAILS else {},
        pool_size=1 if can_limit and deno.fork_failure is None else default_size(),
    )


def _no_jail(*containments: ContainmentKind | None) -> Layer:
    """Describes the boundary on a system without jails."""
    detail = f"{NO_JAIL}: a memory-safe engine stands between programs and this machine, in a process with your rights"
    remedy = None if all(each == "interpreter" for each in containments) else WITHOUT_JAIL
    return Layer(name="jail", in_force=False, detail=detail, remedy=remedy)


def _engine() -> Path | None:
    try:
        return deno_path()
    except FileNotFoundError:
        return None


def _try(tier: Tier, engine: Path, room: Path, launcher: LauncherClient) -> tuple[_TierResult, Trial | None]:
    """Returns the first jail of a tier in which the engine starts, in the order in which a provider tries them."""
    reasons: list[str] = []
    try:
        for jail in jails_to_try(tier, Engine(engine), room):
            try:
                trial = attempted(jail, engine, launcher, user=jail.user)
            except (StartFailed, OSError) as error:
                reasons.append(str(error))
            else:
                return _TierResult(tier=tier, works=True, detail=f"guests run as user {trial.facts.user}"), trial
    except StartFailed as error:
        reasons.append(str(error))
    return _TierResult(tier=tier, works=False, detail="; ".join(dict.fromkeys(reasons))), None


def _untried(tier: Tier, chosen: Tier | None) -> _TierResult:
    if not can_limit and tier != "none":
        return _TierResult(tier=tier, works=False, detail=NO_JAIL)
    if not can_limit and chosen is not None:
        return _TierResult(
            tier=tier,
            works=True,
            detail="neither a jail nor limits of memory and processor time: only Deno's own permissions "
            "contain programs",
        )
    if tier == "none" and chosen is not None:
        return _TierResult(
            tier=tier, works=True, detail="resource limits only: Deno's own permissions alone contain programs"
        )
    detail = "not tried" if chosen is not None else "the engine does not start"
    return _TierResult(tier=tier, works=False, detail=detail)


def _ran(provider: AutomaticSandbox, language: Language) -> tuple[ContainmentKind | None, str | None]:
    """Runs a program without required containment. Returns the containment that it had, and why it did not run, or not
    in a jail."""

    async def run() -> ExecutionResult:
        async with Corral(
            tools=[double], sandbox=provider, check=False, containment=Containment.development()
        ) as corral:
            return await corral.execute(RIGHT[language], language=language)

    try:
        result = anyio.run(run)
    except (CorralError, OSError) as error:
        return None, str(error)
    if result.error is not None:
        return None, f"a program failed: {result.error.message}"
    return result.containment, provider.without_jail


def _sessions() -> Layer:
    """Finds the location of session files by opening a session."""

    async def opened() -> bool:
        provider = DenoSandbox(pool_size=0)
        try:
            place = Place("/workspace", writable=True, bytes=1_000_000, files=10)
            space = await open_space([(provider, SandboxConfig())], [place])
            for root in space.roots:
                os.close(root)
            await space.aclose()
            return space.exact
        finally:
            await provider.aclose()

    try:
        exact = anyio.run(opened)
    except (CorralError, OSError) as error:
        return Layer(name="sessions", in_force=False, detail=f"a session cannot be opened: {error}", remedy=None)
    detail = "files in memory, with exact quotas" if exact else "files on disk, with quotas checked periodically"
    return Layer(name="sessions", in_force=True, detail=detail, remedy=None)


def _webassembly() -> list[Layer]:
    """Reports whether the image of the engine in WebAssembly is cached; nothing if the engine is not installed."""
    name = "engine in WebAssembly"
    try:
        is_cached = image_is_cached()
    except MissingExtra:
        return []
    except StartFailed as error:
        return [Layer(name=name, in_force=False, detail=str(error))]
    detail = "its image is cached" if is_cached else "the first program makes its image, which takes some seconds"
    return [Layer(name=name, in_force=True, detail=detail)]


def _shells() -> Layer:
    """Finds the jail of commands by opening a shell."""

    async def opened() -> ShellCapabilities:
        limits = ShellLimits(accept_unenforced=get_args(ShellLimitName))
        jailed: Shell = load_by_name("corral.shells", "jailed", limits=limits)
        async with jailed as shell:
            return shell.capabilities

    try:
        capabilities = anyio.run(opened)
    except (CorralError, OSError) as error:
        return Layer(name="shells", in_force=False, detail=f"a shell cannot be opened: {error}")
    names = sorted(capabilities.unenforced)
    if not names:
        return Layer(name="shells", in_force=True, detail=f"commands run in tier {capabilities.containment}")
    return Layer(
        name="shells",
        in_force=False,
        detail=f"commands run in tier {capabilities.containment}, which does not enforce {' and '.join(names)}",
        remedy=f"let bubblewrap make namespaces, or accept it: ShellLimits(accept_unenforced={set(names)})",
    )


def _layers(facts: Mapping[Tier, Facts]) -> tuple[Layer, ...]:
    users = (NOBODY, None) if os.geteuid() == 0 else (None,)
    filter_found = seccomp_layer()
    return (
        bubblewrap_layer(),
        user_namespaces_layer(users),
        landlock_layer(),
        *address_space_layer(),
        _shown("system call filter", facts, lambda each: each.seccomp, filter_found.detail)
        if filter_found.in_force
        else filter_found,
        _shown("no new privileges", facts, lambda each: each.no_new_privs, "executables gain no privileges"),
        _unprivileged(facts),
        _shown("resource limits", facts, _limited, "no core file, no byte written to a file, 64 open files"),
        _shown("memory limit", facts, lambda each: each.memory, "a guest cannot exceed its limit"),
        _processor(facts),
    )


def _forks(failure: str | None) -> Layer:
    """Describes how each execution gets its process. Either way, users share nothing."""
    if failure is None:
        return Layer(name="forked executions", in_force=True, detail="each is a process, forked from its user's engine")
    detail = f"each starts its own engine, which takes ten times as long, because engines cannot fork here: {failure}"
    return Layer(name="forked executions", in_force=False, detail=detail)


def _shown(name: str, facts: Mapping[Tier, Facts], holds: Callable[[Facts], bool], detail: str) -> Layer:
    """Returns a layer that is in force if guests have shown it."""
    if not facts:
        return Layer(name=name, in_force=False, detail="no guest starts in a jail that could show it")
    lacking = [tier for tier, each in facts.items() if not holds(each)]
    if lacking:
        return Layer(name=name, in_force=False, detail=f"guests of tier {', '.join(lacking)} run without")
    return Layer(name=name, in_force=True, detail=f"{detail} (seen in {', '.join(facts)})")


def _limited(facts: Facts) -> bool:
    return all(
        facts.limits.get(name, "unlimited") != "unlimited" if value is None else facts.limits.get(name) == value
        for name, value in _LIMITS.items()
    )


def _unprivileged(facts: Mapping[Tier, Facts]) -> Layer:
    name = "unprivileged user"
    layer = _shown(name, facts, lambda each: each.user != 0, "guests have no capability")
    if layer.in_force or not facts:
        return layer
    if not may_become(NOBODY):
        detail = f"{layer.detail}: this root cannot become another user, so guests run as it, without a capability"
        remedy = f"run as another user than root, or map user {NOBODY} and keep CAP_SETUID, CAP_SETGID and CAP_CHOWN"
        return Layer(name=name, in_force=False, detail=detail, remedy=remedy)
    return Layer(
        name=name,
        in_force=False,
        detail=f"{layer.detail}: another user cannot reach the engine, bubblewrap or the temporary directory, "
        "so guests run as root's own user, without a capability",
        remedy="keep Corral and temporary files (TMPDIR) where every user may read, or run as another user than root",
    )


def _processor(facts: Mapping[Tier, Facts]) -> Layer:
    layer = _shown("processor limit", facts, lambda each: each.clock, "the host sees a guest's processor time")
    if layer.in_force and not all(each.backstop for each in facts.values()):
        detail = f"{layer.detail}; the kernel's own limit (RLIMIT_CPU), a second line, could not be set"
        remedy = "give the host CAP_SYS_RESOURCE, or run it as another user than root"
        return Layer(name=layer.name, in_force=True, detail=detail, remedy=remedy)
    return layer
