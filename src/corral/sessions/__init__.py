"""Sessions: files that programs of both languages share, from one to the next."""

from corral.sessions.files import ProgramFiles, SessionFiles
from corral.sessions.kept import KeptSessions, KeptWorkspace, Sessions
from corral.sessions.mounts import Directory, DirectoryStore, Keep, Mount, Scratch, Store, StoredFile, StoreKey
from corral.sessions.session import OpenSession, open_session
from corral.sessions.tree import Entry, Usage

__all__ = [
    "Directory",
    "DirectoryStore",
    "Entry",
    "Keep",
    "KeptSessions",
    "KeptWorkspace",
    "Mount",
    "OpenSession",
    "ProgramFiles",
    "Scratch",
    "SessionFiles",
    "Sessions",
    "Store",
    "StoreKey",
    "StoredFile",
    "Usage",
    "open_session",
]
