"""Sandboxes by the names of clouds: programs in shells that their SDKs open."""

from __future__ import annotations

from corral.isolation import Isolation
from corral.sandboxes.shell import ShellSandbox
from corral.shells import DaytonaShell, E2BShell, VercelShell

__all__ = ["daytona", "e2b", "vercel"]


def daytona() -> ShellSandbox:
    """Makes a sandbox whose programs run in sandboxes of Daytona, by the SDK's environment variables."""
    return ShellSandbox(DaytonaShell.create, isolation=Isolation("daytona", "kernel"))


def e2b() -> ShellSandbox:
    """Makes a sandbox whose programs run in sandboxes of E2B, by the SDK's environment variables."""
    return ShellSandbox(E2BShell.create, isolation=Isolation("e2b", "vm"))


def vercel() -> ShellSandbox:
    """Makes a sandbox whose programs run in Vercel Sandboxes, by the SDK's environment variables."""
    return ShellSandbox(VercelShell.create, isolation=Isolation("vercel", "vm"))
