from corral.sandboxes.base import Job, Sandbox, SandboxProvider, below_required_tier
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.framed.boxes import BoxProvider
from corral.sandboxes.framed.exits import failed_exit
from corral.sandboxes.framed.provider import FramedProvider

__all__ = [
    "BoxProvider",
    "CPythonSandbox",
    "DenoSandbox",
    "FramedProvider",
    "GuestChannel",
    "GuestFiles",
    "Job",
    "PostMortem",
    "Sandbox",
    "SandboxProvider",
    "below_required_tier",
    "failed_exit",
]
