"""Bounds of a shell's commands, and the jail that holds them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corral.arguments import checked
from corral.errors import ConfigError, LimitNotEnforceable
from corral.isolation import Tier

__all__ = ["ShellLimitName", "ShellLimits"]

ShellLimitName: TypeAlias = Literal["disk", "locks", "processes"]
"""Bounds that a jail may not be able to hold: `disk` is what `Scratch(bytes=..., files=...)` says of directories;
`locks` are that no other shell notices locks and watches of files of the host, as those in /usr."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Bounds of commands.

    `processes` are those of one command. `memory_mb` is what each process may ask for, and what all commands of the
    shell may have together, looked at ten times a second; then they are ended. `commands` run at the same time.

    `tier` is the jail: "auto" takes the best that works. What it cannot hold of these bounds is refused, unless
    `accept_unenforced` names it.

    Raises:
        ConfigError: one of them is not positive, or has no such value.
    """

    processes: int = 64
    memory_mb: int = 1024
    commands: int = 16
    file_bytes: int = 1_000_000_000
    tier: Tier | Literal["auto"] = "auto"
    accept_unenforced: Collection[ShellLimitName] = ()

    def __post_init__(self) -> None:
        if min(self.processes, self.memory_mb, self.commands, self.file_bytes) < 1:
            raise ConfigError(f"{self}: each must be positive")
        if self.tier == "none":
            raise ConfigError("ShellLimits(tier='none'): a jail has a tier; LocalShell is a shell without one")

    def expect_accepted(self, tier: Tier, unenforced: Collection[ShellLimitName]) -> None:
        """Finds out if all that a jail does not hold is accepted.

        Raises:
            LimitNotEnforceable: it is not.
        """
        missing = sorted(set(unenforced) - set(self.accept_unenforced))
        if missing:
            accepted = ", ".join(map(repr, sorted({*missing, *self.accept_unenforced})))
            raise LimitNotEnforceable(
                f"a shell in the tier {tier!r} does not enforce {' and '.join(missing)} on this system; use one with "
                f"user namespaces (and for locks Linux 5.11), or accept it with "
                f"ShellLimits(accept_unenforced={{{accepted}}})"
            )
