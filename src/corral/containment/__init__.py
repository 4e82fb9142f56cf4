"""The jail: what stands between a guest and the system when everything inside the engine has failed.

Each layer has its module: `namespaces`, `landlock`, `seccomp`; `launcher` applies them in a process of its own, which
`spawner` is the host's side of. `jail` puts the layers of a tier together.
"""

from corral.containment.jail import Engine, Jail, address_space_mb, candidates, missing, told
from corral.containment.launcher_client import Child, Plan, Spawner, ends
from corral.containment.namespaces import Place

__all__ = [
    "Child",
    "Engine",
    "Jail",
    "Place",
    "Plan",
    "Spawner",
    "address_space_mb",
    "candidates",
    "ends",
    "missing",
    "told",
]
