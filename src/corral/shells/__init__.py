"""Shells: commands and files of a computer, on this machine or elsewhere."""

from corral.shells.base import Completed, OnOutput, Process, Shell, ShellCapabilities, StreamName
from corral.shells.files import FileInfo, FileKind, Files

__all__ = [
    "Completed",
    "FileInfo",
    "FileKind",
    "Files",
    "OnOutput",
    "Process",
    "Shell",
    "ShellCapabilities",
    "StreamName",
]
