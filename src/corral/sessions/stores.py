"""Keeping a session's files beyond its process."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.sessions.tree import FileTree

__all__ = ["DirectoryStore", "Store", "StoreKey"]

_MAX_FILES = 100_000
_MAX_BYTES = 1 << 40


class StoreKey(NamedTuple):
    """Owner of files: a session of a user of an organization, and the path of the mount in it."""

    organization_id: str | None
    user_id: str
    session_id: str
    mount: str


class Store(ABC):
    """Keeps the files of scratch directories: `Scratch(store=...)`.

    A session loads them when it is opened, and saves what has changed after each execution and when it is closed. Paths
    are relative to the mount, with `/` between names; a program has chosen them. Two processes that have the same
    session open at the same time overwrite each other's files.
    """

    @abstractmethod
    def load(self, key: StoreKey) -> AsyncIterator[tuple[str, bytes]]:
        """Yields each file's path and content; nothing if the session is new."""

    @abstractmethod
    async def save(self, key: StoreKey, changed: Mapping[str, bytes], deleted: Collection[str]) -> None:
        """Keeps these files from now on, and these no longer."""


@checked
class DirectoryStore(Store):
    """Keeps files in a directory of the host, one folder for each key, named by a hash of it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @override
    async def load(self, key: StoreKey) -> AsyncIterator[tuple[str, bytes]]:
        tree = await anyio.to_thread.run_sync(self._open, key)
        try:
            for entry in tree.list((), recursive=True, max_entries=_MAX_FILES) or ():
                if entry.kind == "file":
                    data = await anyio.to_thread.run_sync(tree.read, entry.path.split("/"), _MAX_BYTES)
                    if data is not None:
                        yield entry.path, data
        finally:
            tree.close()

    @override
    async def save(self, key: StoreKey, changed: Mapping[str, bytes], deleted: Collection[str]) -> None:
        tree = await anyio.to_thread.run_sync(self._open, key)

        def write() -> None:
            for path in deleted:
                tree.remove(path.split("/"))
            for path, data in changed.items():
                tree.write(path.split("/"), (data,))

        try:
            await anyio.to_thread.run_sync(write)
        finally:
            tree.close()

    def _open(self, key: StoreKey) -> FileTree:
        folder = self.path / sha256(json.dumps(key).encode()).hexdigest()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileTree(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
