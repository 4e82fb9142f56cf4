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
"""Their descriptors all fit into one message of the process that makes them."""
_TAKEN = ("/guest", "/python", "/packages", "/libraries", "/usr", "/lib", "/lib64", "/bin", "/proc", "/dev", "/etc")
"""Folders of the jail that hold the engine and its files."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """An empty directory for one session, deleted with it.

    `bytes` and `files` are its quota. Where the session has its own file system, in the host's memory, the kernel
    enforces them exactly. With a `store`, the files return in the next session of the same organization, user and
    `session_id`.

    Raises:
        ConfigError: `bytes` or `files` is not positive.
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
    """A directory of the host, with everything below it.

    `file_bytes` is the largest file that a program can write; only its file system limits anything else.
    """

    path: str | Path
    file_bytes: int = 1_000_000_000


MountSource: TypeAlias = Scratch | Directory


@checked
@dataclass(frozen=True, slots=True)
class Mount:
    """A directory that programs of a session see at `path`: read-only, or writable with `writable`.

    Raises:
        ConfigError: the path is not absolute and normalized, or overlaps the engine's own folders.
    """

    path: str
    source: MountSource = Scratch()
    writable: bool | None = None
    """None: scratch directories are writable, directories of the host are not."""

    def __post_init__(self) -> None:
        path = self.path
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/" or "\0" in path:
            raise ConfigError(f"Mount({path!r}): the path must be absolute and plain, such as '/workspace'")
        if len(path.encode()) > MAX_PATH_BYTES or "," in path:  # a comma ends a path in the engine's options
            raise ConfigError(f"Mount({path!r}): the path must be at most {MAX_PATH_BYTES} bytes, without a comma")
        for taken in _TAKEN:
            if path == taken or path.startswith(f"{taken}/"):
                raise ConfigError(f"Mount({path!r}): {taken} belongs to the engine; take another path")
        if self.writable is None:
            object.__setattr__(self, "writable", isinstance(self.source, Scratch))


def check_mounts(mounts: tuple[Mount, ...]) -> None:
    """Raises ConfigError if there are too many mounts, or one is within another."""
    if len(mounts) > MAX_MOUNTS:
        raise ConfigError(f"{len(mounts)} mounts are more than a session may have: {MAX_MOUNTS}")
    paths = sorted(mount.path for mount in mounts)
    for path, following in itertools.pairwise(paths):
        if following == path or following.startswith(f"{path}/"):
            raise ConfigError(f"the mount {following!r} is within {path!r}; directories of a session may not overlap")
