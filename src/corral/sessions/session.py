"""A session: directories that outlive one program, for one user of one organization."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.lowlevel
import anyio.to_thread

from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import ConfigError, FileError
from corral.isolation import Space
from corral.jail.spaces import OpenSpace, Place, SpaceHost, open_space
from corral.logs import get_logger
from corral.results import FileChanges
from corral.sessions.files import SessionFiles, Snapshot, Tree, as_text, changes
from corral.sessions.mounts import Directory, Mount, Scratch, check_mounts
from corral.sessions.program_files import ProgramFiles
from corral.sessions.quota import Quota, QuotaWatch, watch_quotas
from corral.sessions.skills import PLACE, SkillSet
from corral.sessions.stores import Store, StoredFile, StoreKey
from corral.sessions.tree import FileTree, Usage
from corral.types import ExecutionContext, Language, SandboxConfig

logger = get_logger("corral.sessions")
_NOTHING = Usage(0, 0)
_NAME_BYTES = 4_096
"""Least bytes that a file of a store counts as if it is left out."""
_MOST_NAMED = 10
_NAME_CHARS = 200


class OpenSession:
    """Open directories, as executions need them, and their end."""

    def __init__(
        self,
        context: ExecutionContext,
        space: OpenSpace,
        trees: Sequence[Tree],
        languages: Iterable[Language],
        stores: Mapping[str, Store],
        read: Sequence[Tree] = (),
    ) -> None:
        self.context = context
        self.languages = frozenset(languages)
        self.files = SessionFiles(trees, context.trust_domain)
        self.program_files = ProgramFiles((*trees, *read), space.space.home, space.space.file_bytes)
        """The same, and those that are not the session's to change, for programs whose engine asks the host."""
        self._space = space
        self._trees = (*trees, *read)
        self._stores = stores
        """By the path of a mount."""
        self.quotas = [Quota(tree.path, tree.files, tree.most) for tree in trees if tree.most and not tree.own]
        """Quotas that the kernel does not hold."""
        self._seen: Snapshot = {}
        self._stored: dict[str, Snapshot] = {}
        """By the path of a mount: the files that its store has, by their paths in it."""
        self._looking = anyio.Lock()
        self.closed = False

    @property
    def space(self) -> Space:
        """The directories, for sandboxes.

        Raises:
            ConfigError: the session is closed.
        """
        if self.closed:
            raise ConfigError("this session is closed")
        return self._space.space

    @property
    def exact_quota(self) -> bool:
        return self._space.exact

    @asynccontextmanager
    async def enter(self, over: Callable[[str], None]) -> AsyncGenerator[Self]:
        """Looks, if the host has changed files since the last look: those are not the execution's in the block.

        Calls `over` with the reason if a directory holds more than it may, where the kernel does not see to that.
        """
        if self.files.host_has_written:
            await self.look()
        if not self.quotas:
            yield self
            return
        watch = await anyio.to_thread.run_sync(QuotaWatch, self.quotas)  # before a program writes
        reason, wait = await anyio.to_thread.run_sync(watch.look)
        if reason is not None:
            over(reason)
        async with plain_task_group() as tasks:
            tasks.start_soon(watch_quotas, watch, over, wait)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def look(self, over: Callable[[str], None] | None = None) -> FileChanges:
        """Lists what has changed since the last look, and has it stored as far as the directories' quotas go.

        Calls `over` with the reason if files are longer than their directory may hold, and than at the last look.

        Raises:
            FileError: files cannot be listed.
            Exception: whatever a store raises.
        """
        async with self._looking:
            self.files.host_has_written = False
            seen = await self.files.snapshot()
            found = changes(self._seen, seen)
            for tree in self._trees:
                now = _within(tree, seen)
                if found and over is not None and (reason := _grown(tree, _within(tree, self._seen), now)) is not None:
                    over(reason)
                if tree.path in self._stores:
                    await self._save(tree, now)
            self._seen = seen
            return found

    async def load(self) -> None:
        """Brings the files of stores, as far as there is room for them.

        Raises:
            Exception: whatever a store raises.
        """
        for tree in self._trees:
            if tree.path in self._stores:
                await self._load(tree, self._stores[tree.path])
        self._seen = await self.files.snapshot()
        self._stored = {path: _within(tree, self._seen) for tree in self._trees if (path := tree.path) in self._stores}
        self.files.host_has_written = False

    async def _load(self, tree: Tree, store: Store) -> None:
        most = tree.most or _NOTHING
        left = in_vain = tree.takes(most.bytes)
        files = most.files
        without: list[str] = []
        async for path, pieces in store.load(self._key(tree.path)):
            taken = _Taken()
            try:
                await anyio.lowlevel.checkpoint()  # a store may give names without end, and never wait
                if files == 0:
                    raise FileError("there is no room left")
                await self.files.write_stream(f"{tree.path}/{path}", taken.within(pieces, left))
            except (FileError, ValueError):
                in_vain -= max(taken.bytes, _NAME_BYTES)  # a store that is far too large is not read to its end
                without.append(path)
                if in_vain <= 0:
                    break
            else:
                left, files = left - tree.takes(taken.bytes), files - 1
        if without:
            logger.warning("%s: no room for these files of a session's store: %s", tree.path, _names(without))

    async def _save(self, tree: Tree, now: Snapshot) -> None:
        stored = self._stored.get(tree.path, {})
        left = tree.takes((tree.most or _NOTHING).bytes)
        kept: dict[str, tuple[int, int, int]] = {}
        without: list[str] = []
        for path in sorted(now, key=lambda path: (stored.get(path) != now[path], path)):  # first what is stored already
            taken = tree.takes(now[path][0])
            if taken > left:
                without.append(path)
                continue
            left -= taken
            kept[path] = now[path]
        changed = {path: state[0] for path, state in kept.items() if stored.get(path) != state}
        deleted = stored.keys() - kept.keys()
        if changed or deleted:
            unread: list[str] = []
            await self._stores[tree.path].save(self._key(tree.path), _contents(tree.files, changed, unread), deleted)
            without += unread
            for path in unread:
                del kept[path]
        self._stored[tree.path] = kept
        if without:
            logger.warning("%s: not stored, as too long or not to be read: %s", tree.path, _names(without))

    def _key(self, mount: str) -> StoreKey:
        context = self.context
        assert context.session_id is not None  # `open_session` has looked
        return StoreKey(context.organization_id, context.user_id, context.session_id, mount)

    async def aclose(self) -> None:
        """Ends its guests and frees its directories. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with anyio.CancelScope(shield=True):
            if self._stores:
                try:
                    await self.look()
                except Exception:
                    logger.exception("files of a session that is closed could not be stored")
            for quota in self.quotas:
                with suppress(OSError):
                    await anyio.to_thread.run_sync(quota.files.clear)
            await self._space.aclose()
            for tree in self._trees:
                tree.files.close()


async def open_session(
    context: ExecutionContext,
    mounts: Sequence[Mount],
    hosts: Mapping[Language, tuple[SpaceHost, SandboxConfig]],
    skills: SkillSet,
    *,
    commands: tuple[SpaceHost, SandboxConfig] | None = None,
) -> OpenSession:
    """Makes the directories of a session. With a host of `commands`, files in its own directories
    may be executed.

    Raises:
        ConfigError: the mounts do not fit together, a directory is not there, or no sandbox here has files.
        StartFailed: nothing on this system can make them.
    """
    check_mounts((*mounts, *([Mount(PLACE, Directory("/"))] if skills.skills else ())))
    if not mounts:
        raise ConfigError("a session has files; give it a Mount")
    if not hosts and commands is None:
        raise ConfigError("none of this Corral's sandboxes has files of a session; those on this machine do")
    stores = {
        mount.path: mount.source.store
        for mount in mounts
        if isinstance(mount.source, Scratch) and mount.source.store is not None
    }
    if stores and context.session_id is None:
        raise ConfigError("files that are stored belong to a session: give the ExecutionContext a session_id")
    places = [_place(mount) for mount in mounts]
    if skills.skills:
        folder = (await run_shielded_in_thread(skills.node_modules)) / "skills"
        places.append(Place(PLACE, False, 0, directory=folder, public=True))
    users = [*hosts.values(), *([] if commands is None else [commands])]
    opened = await open_space(users, places, executable=commands is not None)
    trees = [
        Tree(
            mount.path,
            FileTree(root, owner=opened.owner if isinstance(mount.source, Scratch) else None),
            host_writes=mount.writable or isinstance(mount.source, Scratch),
            program_writes=mount.writable,
            own=opened.exact and isinstance(mount.source, Scratch),
            most=Usage(mount.source.bytes, mount.source.files) if isinstance(mount.source, Scratch) else None,
        )
        for mount, root in zip(
            mounts, opened.roots, strict=False
        )  # skills come last, and are not the session's to change
    ]
    read = [
        Tree(PLACE, FileTree(root), host_writes=False, program_writes=False, own=False)
        for root in opened.roots[len(mounts) :]
    ]
    session = OpenSession(context, opened, trees, hosts, stores, read)
    try:
        await session.load()
    except BaseException:
        await session.aclose()
        raise
    return session


class _Taken:
    """Counts the bytes of a stored file as they are read."""

    def __init__(self) -> None:
        self.bytes = 0

    def within(self, pieces: Iterable[bytes], left: int) -> Iterator[bytes]:
        """The pieces, unless they are more than these bytes.

        Raises:
            OSError: ENOSPC, they are.
            RuntimeError: they cannot be read.
        """
        try:
            for piece in pieces:
                self.bytes += len(piece) or 1  # or they may have no end
                if self.bytes > left:
                    break
                yield piece
        except OSError as error:  # which would be taken for one of the file that is written
            raise RuntimeError(f"a stored file cannot be read: {error}") from error
        if self.bytes > left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _contents(files: FileTree, sizes: Mapping[str, int], unread: list[str]) -> Iterator[StoredFile]:
    """These files, each as long as it was when it was looked at. Notes those that cannot be read."""
    for path, size in sizes.items():
        try:
            pieces = files.pieces(path.split("/"), size)
        except OSError:
            unread.append(path)
        else:
            if pieces is not None:  # else it is gone by now
                yield path, pieces


def _within(tree: Tree, seen: Snapshot) -> Snapshot:
    """The files of one mount, by their paths in it."""
    prefix = f"{tree.path}/"
    return {path.removeprefix(prefix): state for path, state in seen.items() if path.startswith(prefix)}


def _grown(tree: Tree, before: Snapshot, now: Snapshot) -> str | None:
    """The reason why a mount's files are longer than it may hold, unless they were as long before."""
    was, sizes = ([state[0] for state in each.values()] for each in (before, now))
    return tree.over(sizes) if sum(sizes) > sum(was) else None


def _names(paths: Sequence[str]) -> str:
    named = ", ".join(repr(as_text(path)[:_NAME_CHARS]) for path in paths[:_MOST_NAMED])
    return named if len(paths) <= _MOST_NAMED else f"{named} and {len(paths) - _MOST_NAMED:,} more files"


def _place(mount: Mount) -> Place:
    match mount.source:
        case Scratch(bytes=size, files=files):
            return Place(mount.path, mount.writable, size, files)
        case Directory(path=path, file_bytes=size):
            found = Path(path).resolve()
            if not found.is_dir():
                raise ConfigError(f"Mount({mount.path!r}): there is no directory {str(path)!r}")
            return Place(mount.path, mount.writable, size, directory=found)
