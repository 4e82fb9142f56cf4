"""Programs on other machines: `WorkerSandbox` at the host, and `corral worker` there."""

from corral.cluster.provider import WorkerSandbox

__all__ = ["WorkerSandbox"]
