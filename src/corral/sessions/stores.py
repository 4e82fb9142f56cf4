"""Keeping a session's files beyond its process."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeAlias

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.sessions.tree import FileTree

_MAX_FILES = 100_000
StoredFile: TypeAlias = tuple[str, Iterable[bytes]]
"""A file's path, and its content piece by piece. Iterating it blocks."""


class StoreKey(NamedTuple):
    """Owner of files: a session of a user of an organization, and the path of the mount in it."""

    organization_id: str | None
    user_id: str
    session_id: str
    mount: str


class Store(ABC):
    """Keeps the files of scratch directories: `Scratch(store=...)`.

    A session loads them when it opens, and saves changes after each execution and when it closes. Paths are relative to
    the mount, with `/` between names; programs choose them. Two processes that have the same session open at the same
    time overwrite each other's files.
    """

    @abstractmethod
    def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        """Yields each file; nothing if the session is new. Each is read in a thread before the next is requested."""

    @abstractmethod
    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        """Stores the `changed` files and removes the `deleted` ones.

        Iterate over `changed` in a thread, and read each file before the next one. The stored files together have at
        most `Scratch(bytes=...)`, each rounded up to a page.
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
    """Removes a file, and the folders that this leaves empty."""
    tree.remove(path)
    with suppress(OSError):  # E2BIG: there is more than one file
        while (path := path[:-1]) and not tree.list(path, recursive=False, max_entries=1):
            tree.remove(path)
