"""Descriptions of the directories that a session gives to its programs."""

from __future__ import annotations

import itertools
import json
import os
import posixpath
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.errors import ConfigError
from corral.sessions.tree import FileTree

_MAX_FILES = 100_000
Keep: TypeAlias = Literal["files", "variables"]
"""Things that the programs of a session share: only files, or also variables, like cells of a notebook."""
StoredFile: TypeAlias = tuple[str, Iterable[bytes]]
"""Path of a file, and its content in pieces. Iterating over it blocks."""


class StoreKey(NamedTuple):
    """Owner of files: a session of a user of an organization, and the path of the mount in it."""

    organization_id: str | None
    user_id: str
    session_id: str
    mount: str


class Store(ABC):
    """Keeps the files of scratch directories: `Scratch(store=...)`.

    A session loads them when it opens, and saves changes after each execution and when it closes. Paths are chosen by
    programs, and relative to the mount, with `/` between names. If two processes have the same session open at the same
    time, they overwrite each other's files.
    """

    @abstractmethod
    def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        """Yields each file, or nothing if the session is new. A thread reads each before the next is requested."""

    @abstractmethod
    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        """Stores the `changed` files and removes the `deleted` ones.

        Iterate over `changed` in a thread, and read each file before the next one. All stored files together have at
        most `Scratch(bytes=...)`, with each file rounded up to a page.
        """


@checked
class DirectoryStore(Store):
    """Keeps files in a directory of the host, one folder for each key, named by a hash of it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @override
    async def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        tree = await anyio.to_thread.run_sync(self._open, key)
        try:
            entries = partial(tree.list, (), recursive=True, max_entries=_MAX_FILES)
            for entry in await anyio.to_thread.run_sync(entries) or ():
                if entry.kind == "file":
                    pieces = await anyio.to_thread.run_sync(tree.pieces, entry.path.split("/"))
                    if pieces is not None:
                        yield entry.path, pieces
        finally:
            tree.close()

    @override
    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        tree = await anyio.to_thread.run_sync(self._open, key)

        def write() -> None:
            for path in deleted:
                _remove(tree, path.split("/"))
            for path, pieces in changed:
                tree.write(path.split("/"), pieces)

        try:
            await anyio.to_thread.run_sync(write)
        finally:
            tree.close()

    def _open(self, key: StoreKey) -> FileTree:
        folder = self.path / sha256(json.dumps(key).encode()).hexdigest()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileTree(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _remove(tree: FileTree, path: list[str]) -> None:
    """Removes a file, and any folders that are empty without it."""
    tree.remove(path)
    with suppress(OSError):  # E2BIG means that there is more than one file
        while (path := path[:-1]) and not tree.list(path, recursive=False, max_entries=1):
            tree.remove(path)


MAX_PATH_BYTES = 1024
MAX_MOUNTS = 5
"""Maximum number of mounts, so that their descriptors fit into one message of the process that makes them."""
_TAKEN = ("/guest", "/python", "/packages", "/libraries", "/usr", "/lib", "/lib64", "/bin", "/proc", "/dev", "/etc")
"""Folders of the jail that hold the engine and its files."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Empty directory for one session, which is deleted with the session.

    `bytes` and `files` are its quota. If the session has its own file system, in the host's memory, the kernel enforces
    them exactly. With a `store`, the next session of the same organization, user and `session_id` has the files again.

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
    """Directory of the host, with everything below it.

    `file_bytes` is the maximum size of a file that a program writes; its file system is the only other limit.
    """

    path: str | Path
    file_bytes: int = 1_000_000_000


MountSource: TypeAlias = Scratch | Directory


@checked
@dataclass(frozen=True, slots=True)
class Mount:
    """Directory that programs of a session see at `path`, read-only unless `writable`.

    Raises:
        ConfigError: the path is not absolute and normalized, or overlaps the engine's own folders.
    """

    path: str
    source: MountSource = Scratch()
    writable: bool | None = None
    """None makes scratch directories writable, and directories of the host read-only."""

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
