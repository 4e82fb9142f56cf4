"""Programs on other machines: `WorkerSandbox`, `AgentSandbox` and `RaySandbox` at the host, and `corral worker`
there."""

from corral.cluster.agent_sandbox import AgentSandbox
from corral.cluster.provider import WorkerSandbox
from corral.cluster.ray import RaySandbox

__all__ = ["AgentSandbox", "RaySandbox", "WorkerSandbox"]
