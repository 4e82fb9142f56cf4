"""Shells: commands and files of a computer, on this machine or elsewhere."""

from corral.shells.base import Completed, OnOutput, Process, Shell, ShellCapabilities, StreamName
from corral.shells.clouds.daytona import DaytonaShell
from corral.shells.clouds.e2b import E2BShell
from corral.shells.clouds.remote import RemoteProcess, RemoteShell
from corral.shells.clouds.vercel import VercelShell
from corral.shells.files import FileInfo, FileKind, Files
from corral.shells.jailed import JailedShell
from corral.shells.jails.limits import ShellLimits
from corral.shells.local import LocalShell
from corral.shells.memory import MemoryShell
from corral.shells.tools import current_shell, shell_tools, use_shell

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
    "StreamName",
    "VercelShell",
    "current_shell",
    "shell_tools",
    "use_shell",
]
