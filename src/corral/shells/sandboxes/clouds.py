"""Sandboxes named after clouds: programs in shells that the SDKs open, configured by environment variables."""

from __future__ import annotations

from typing import ClassVar

from corral.containment import ContainmentKind
from corral.shells.clouds.daytona import DaytonaShell
from corral.shells.clouds.e2b import E2BShell
from corral.shells.clouds.vercel import VercelShell
from corral.shells.sandboxes.shell import ShellSandbox


class DaytonaSandbox(ShellSandbox):
    """Runs programs in Daytona sandboxes."""

    name: ClassVar[str] = "daytona"

    def __init__(self) -> None:
        super().__init__(DaytonaShell.create, containment=ContainmentKind("daytona", "kernel"))


class E2BSandbox(ShellSandbox):
    """Runs programs in E2B sandboxes."""

    name: ClassVar[str] = "e2b"

    def __init__(self) -> None:
        super().__init__(E2BShell.create, containment=ContainmentKind("e2b", "vm"))


class VercelSandbox(ShellSandbox):
    """Runs programs in Vercel Sandboxes."""

    name: ClassVar[str] = "vercel"

    def __init__(self) -> None:
        super().__init__(VercelShell.create, containment=ContainmentKind("vercel", "vm"))
