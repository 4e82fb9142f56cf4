"""Sessions: files that programs of both languages share, from one to the next."""

from corral.sessions.files import SessionFiles
from corral.sessions.mounts import Directory, Mount, Scratch
from corral.sessions.session import OpenSession, open_session
from corral.sessions.tree import Entry, Usage

__all__ = ["Directory", "Entry", "Mount", "OpenSession", "Scratch", "SessionFiles", "Usage", "open_session"]
