"""Sandboxes by the names of clouds: programs in shells that their SDKs open, by the SDKs' environment variables."""

from __future__ import annotations

from typing import ClassVar

from corral.isolation import Isolation
from corral.sandboxes.shell import ShellSandbox
from corral.shells import DaytonaShell, E2BShell, VercelShell

__all__ = ["DaytonaSandbox", "E2BSandbox", "VercelSandbox"]


class DaytonaSandbox(ShellSandbox):
    """Runs programs in sandboxes of Daytona."""

    name: ClassVar[str] = "daytona"

    def __init__(self) -> None:
        super().__init__(DaytonaShell.create, isolation=Isolation("daytona", "kernel"))


class E2BSandbox(ShellSandbox):
    """Runs programs in sandboxes of E2B."""

    name: ClassVar[str] = "e2b"

    def __init__(self) -> None:
        super().__init__(E2BShell.create, isolation=Isolation("e2b", "vm"))


class VercelSandbox(ShellSandbox):
    """Runs programs in Vercel Sandboxes."""

    name: ClassVar[str] = "vercel"

    def __init__(self) -> None:
        super().__init__(VercelShell.create, isolation=Isolation("vercel", "vm"))
