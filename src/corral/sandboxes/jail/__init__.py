"""The jail: what stands between a guest and the system when everything inside the engine has failed.

Each layer has its module: `namespaces`, `landlock`, `seccomp`; `launcher` applies them in a process of its own, which
`spawner` is the host's side of. `jail` puts the layers of a tier together.
"""

from corral.sandboxes.jail.jail import Jail, candidates, missing
from corral.sandboxes.jail.spawner import Child, Plan, Spawner

__all__ = ["Child", "Jail", "Plan", "Spawner", "candidates", "missing"]
