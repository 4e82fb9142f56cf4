"""Programs on other machines: `WorkerSandbox` and `RaySandbox` at the host, and `corral worker` there."""

from corral.cluster.provider import WorkerSandbox
from corral.cluster.ray import RaySandbox

__all__ = ["RaySandbox", "WorkerSandbox"]
