"""Containment of processes by the kernel, the last protection when everything inside an engine has failed.

Each layer has its module: `namespaces`, `landlock`, `seccomp`; `launcher` is a process that applies them, and
`launcher_client` the host's side of it. `jail` combines the layers of a tier.
"""

from corral.jail.jail import (
    Engine,
    Jail,
    address_space_mb,
    jails_to_try,
    reasons_by_tier,
    unavailable_reason,
    v8_environment,
)
from corral.jail.launcher_client import Child, LauncherClient, Plan, Programs, child_streams
from corral.jail.namespaces import Mount

__all__ = [
    "Child",
    "Engine",
    "Jail",
    "LauncherClient",
    "Mount",
    "Plan",
    "Programs",
    "address_space_mb",
    "child_streams",
    "jails_to_try",
    "reasons_by_tier",
    "unavailable_reason",
    "v8_environment",
]
