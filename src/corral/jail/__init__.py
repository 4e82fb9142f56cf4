"""Containment of processes by the kernel: the last line of defence, once everything inside an engine has failed.

Each layer is a module: `namespaces`, `landlock`, `seccomp`. `launcher` is a process that applies them, and
`launcher_client` is the host's side of it. `jail` combines the layers of a tier.
"""

from corral.jail.jail import Engine, Jail, in_best_jail
from corral.jail.launcher_client import LauncherClient, Plan
from corral.jail.namespaces import Mount

__all__ = ["Engine", "Jail", "LauncherClient", "Mount", "Plan", "in_best_jail"]
