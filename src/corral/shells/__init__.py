"""Shells: commands and files of a computer, local or remote."""

from corral.sessions.shell import (
    Completed,
    FileInfo,
    FileKind,
    Files,
    OnOutput,
    Process,
    Shell,
    ShellCapabilities,
    ShellLimits,
    StreamName,
    current_shell,
    use_shell,
)
from corral.shells.clouds.daytona import DaytonaShell
from corral.shells.clouds.e2b import E2BShell
from corral.shells.clouds.remote import RemoteProcess, RemoteShell
from corral.shells.clouds.vercel import VercelShell
from corral.shells.jailed import JailedShell
from corral.shells.local import LocalShell
from corral.shells.memory import MemoryShell
from corral.shells.sandboxes.shell import ShellSandbox
from corral.shells.tools import shell_tools

__all__ = [
    "Completed",
    "DaytonaShell",
    "E2BShell",
    "FileInfo",
    "FileKind",
    "Files",
    "JailedShell",
    "LocalShell",
    "MemoryShell",
    "OnOutput",
    "Process",
    "RemoteProcess",
    "RemoteShell",
    "Shell",
    "ShellCapabilities",
    "ShellLimits",
    "ShellSandbox",
    "StreamName",
    "VercelShell",
    "current_shell",
    "shell_tools",
    "use_shell",
]
