"""Sandboxes: engines and processes in which programs run, and the contract of their providers."""

from corral.sandboxes.base import Job, Sandbox, SandboxProvider, below_required_tier
from corral.sandboxes.channel import ChannelLost, GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.framed.boxes import BoxProvider
from corral.sandboxes.framed.exits import failed_exit
from corral.sandboxes.framed.provider import FramedProvider
from corral.sandboxes.jailed.provider import JailedProvider, LocalGuest

__all__ = [
    "BoxProvider",
    "CPythonSandbox",
    "ChannelLost",
    "DenoSandbox",
    "FramedProvider",
    "GuestChannel",
    "GuestFiles",
    "JailedProvider",
    "Job",
    "LocalGuest",
    "PostMortem",
    "Sandbox",
    "SandboxProvider",
    "below_required_tier",
    "failed_exit",
]
