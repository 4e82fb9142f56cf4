from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.framed.exits import failed_exit

__all__ = ["CPythonSandbox", "DenoSandbox", "Job", "Sandbox", "SandboxProvider", "failed_exit"]
