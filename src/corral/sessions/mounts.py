"""Descriptions of the directories that a session gives to its programs."""

from __future__ import annotations

import itertools
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from corral.arguments import checked
from corral.errors import ConfigError
from corral.sessions.stores import Store

MAX_PATH_BYTES = 1024
MAX_MOUNTS = 5
"""The descriptors of all fit into one message of the process that makes them."""
_TAKEN = ("/guest", "/python", "/packages", "/libraries", "/usr", "/lib", "/lib64", "/bin", "/proc", "/dev", "/etc")
"""Folders of the jail that have the engine and what it reads."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """An empty directory for one session, gone with it.

    `bytes` and `files` are how much it holds. Where the session has a file system of its own, it is in the host's
    memory, and nothing gets beyond them. With a `store` its files are there again in the next session with the same
    organization, user and `session_id`.

    Raises:
        ConfigError: one of them is not positive.
    """

    bytes: int = 64_000_000
    files: int = 5_000
    store: Store | None = None

    def __post_init__(self) -> None:
        if self.bytes < 1 or self.files < 1:
            raise ConfigError(f"Scratch(bytes={self.bytes}, files={self.files}): both must be positive")


@checked
@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of the host, with all that is below it.

    `file_bytes` is the largest file that a program may write into it; its file system bounds all else.
    """

    path: str | Path
    file_bytes: int = 1_000_000_000


MountSource: TypeAlias = Scratch | Directory


@checked
@dataclass(frozen=True, slots=True)
class Mount:
    """A directory that programs of a session see at `path`, to be read, or with `write` to be changed too.

    Raises:
        ConfigError: the path is not absolute and plain, or has to do with what the engine itself reads.
    """

    path: str
    source: MountSource = Scratch()
    write: bool | None = None
    """None: what programs may change is a scratch directory, and not a directory of the host."""

    def __post_init__(self) -> None:
        path = self.path
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/" or "\0" in path:
            raise ConfigError(f"Mount({path!r}): the path must be absolute and plain, such as '/workspace'")
        if len(path.encode()) > MAX_PATH_BYTES or "," in path:  # which ends a path in the engine's options
            raise ConfigError(f"Mount({path!r}): the path may have {MAX_PATH_BYTES} bytes, and no comma")
        for taken in _TAKEN:
            if path == taken or path.startswith(f"{taken}/"):
                raise ConfigError(f"Mount({path!r}): {taken} belongs to the engine; take another path")

    @property
    def writable(self) -> bool:
        return isinstance(self.source, Scratch) if self.write is None else self.write


def check_mounts(mounts: tuple[Mount, ...]) -> None:
    """Finds what does not fit together.

    Raises:
        ConfigError: there are too many, or one is within another.
    """
    if len(mounts) > MAX_MOUNTS:
        raise ConfigError(f"{len(mounts)} mounts are more than a session may have: {MAX_MOUNTS}")
    paths = sorted(mount.path for mount in mounts)
    for path, following in itertools.pairwise(paths):
        if following == path or following.startswith(f"{path}/"):
            raise ConfigError(f"the mount {following!r} is within {path!r}; directories of a session may not overlap")
