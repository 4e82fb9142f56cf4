"""Session: directories that outlive one program, for one user of one organization."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.lowlevel
import anyio.to_thread

from corral.concurrency.kept import Lease
from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import Space
from corral.errors import ConfigError, FileError
from corral.jail.spaces import OpenSpace, Place, SpaceHost, open_space
from corral.logs import get_logger
from corral.results import FileChanges
from corral.sessions.files import ProgramFiles, SessionFiles, Snapshot, Tree, as_text, changes
from corral.sessions.mounts import Directory, Keep, Mount, Scratch, Store, StoredFile, StoreKey, check_mounts
from corral.sessions.quota import Quota, QuotaWatch, watch_quotas
from corral.sessions.skills import PLACE, SkillSet
from corral.sessions.tree import FileTree, Usage
from corral.types import ExecutionContext, Language, SandboxConfig

logger = get_logger("corral.sessions")
_NOTHING = Usage(0, 0)
_NAME_BYTES = 4_096
"""Minimum size that a file of a store counts for if it is left out."""
_MOST_NAMED = 10
_NAME_CHARS = 200


class OpenSession:
    """Open directories of a session."""

    def __init__(
        self,
        context: ExecutionContext,
        space: OpenSpace,
        trees: Sequence[Tree],
        languages: Iterable[Language],
        stores: Mapping[str, Store],
        read: Sequence[Tree] = (),
        keep: Keep = "files",
    ) -> None:
        self.context = context
        self.keep: Keep = keep
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        """Called before its directories are freed."""
        self.lease: Lease | None = None
        """Right to have it open, among several hosts."""
        self.languages = frozenset(languages)
        self.files = SessionFiles(trees, context.owner)
        self.program_files = ProgramFiles((*trees, *read), space.space.home, space.space.file_bytes)
        """The same with read-only directories, for programs whose engine asks the host for files."""
        self._space = space
        self._trees = (*trees, *read)
        self._stores = stores
        """Trees by mount path."""
        self.quotas = [Quota(tree.path, tree.files, tree.most) for tree in trees if tree.most and not tree.own]
        """Quotas that the kernel does not enforce."""
        self._seen: Snapshot = {}
        self._stored: dict[str, Snapshot] = {}
        """Files in each mount's store, by mount path."""
        self._looking = anyio.Lock()
        self.closed = False

    @property
    def space(self) -> Space:
        """Directories, for sandboxes.

        Raises:
            ConfigError: the session is closed.
        """
        if self.closed:
            raise ConfigError("this session is closed")
        return self._space.space

    @property
    def mounts(self) -> tuple[tuple[str, bool], ...]:
        return self.space.mounts

    @property
    def exact_quota(self) -> bool:
        return self._space.exact

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[Self]:
        """Yields the session, which is already open."""
        yield self

    @asynccontextmanager
    async def enter(self, over: Callable[[str], None]) -> AsyncGenerator[Self]:
        """Looks for changes that the host has made, so that they are not attributed to the execution in the block.

        Calls `over` with an error if a directory exceeds a quota that the kernel does not enforce.
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
        """Lists changes since the last check, and stores them within the directories' quotas.

        Calls `over` with an error if files have grown beyond their directory's quota since the last check.

        Raises:
            FileError: files cannot be listed. Exception: a store raised it.
        """
        async with self._looking:
            self.files.host_has_written = False
            seen = await self.files.snapshot()
            changed = changes(self._seen, seen)
            for tree in self._trees:
                now = _within(tree, seen)
                if (
                    changed
                    and over is not None
                    and (reason := _grown(tree, _within(tree, self._seen), now)) is not None
                ):
                    over(reason)
                if tree.path in self._stores:
                    await self._save(tree, now)
            self._seen = seen
            return changed

    async def load(self) -> None:
        """Loads the files of stores, as far as they fit into the quotas.

        Raises:
            Exception: a store raised it.
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
                await anyio.lowlevel.checkpoint()  # a store can yield endless names and never wait
                if files == 0:
                    raise FileError("this mount already holds its maximum number of files")
                await self.files.write_stream(f"{tree.path}/{path}", taken.within(pieces, left))
            except (FileError, ValueError):
                in_vain -= max(taken.bytes, _NAME_BYTES)  # so that a store that is far too large is not read to its end
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
        for path in sorted(now, key=lambda path: (stored.get(path) != now[path], path)):  # stored files first
            taken = tree.takes(now[path][0])
            if taken > left:
                without.append(path)
                continue
            left -= taken
            kept[path] = now[path]
        changed = {path: state[0] for path, state in kept.items() if stored.get(path) != state}
        deleted = stored.keys() - kept.keys()
        if changed or deleted:
            if self.lease is not None and not self.lease.is_held:
                raise FileError("changed files are not stored, because another host can have the session open by now")
            unread: list[str] = []
            await self._stores[tree.path].save(self._key(tree.path), _contents(tree.files, changed, unread), deleted)
            without += unread
            for path in unread:
                del kept[path]
        self._stored[tree.path] = kept
        if without:
            logger.warning("%s: not stored, because they are too long or unreadable: %s", tree.path, _names(without))

    def _key(self, mount: str) -> StoreKey:
        context = self.context
        assert context.session_id is not None  # `open_session` has already looked
        return StoreKey(context.organization_id, context.user_id, context.session_id, mount)

    async def aclose(self) -> None:
        """Ends the session's guests and frees its directories. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._free()
            finally:
                if self.lease is not None:
                    await self.lease.release()

    async def _free(self) -> None:
        for close in self.on_close:
            await close()
        if self._stores:
            try:
                await self.look()
            except FileError as error:
                logger.warning("files of a closing session could not be stored: %s", error)
            except Exception:
                logger.exception("files of a closing session could not be stored")
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
    keep: Keep = "files",
) -> OpenSession:
    """Makes the directories of a session. With a host for `commands`, files in the session's own directories can be
    executed.

    Raises:
        ConfigError: mounts conflict, a directory is missing, or no sandbox here supports files. StartFailed: this
        system cannot make the directories.
    """
    check_mounts((*mounts, *([Mount(PLACE, Directory("/"))] if skills.skills else ())))
    if not mounts:
        raise ConfigError("a session has files; give it a Mount")
    if not hosts and commands is None:
        raise ConfigError("this Corral's sandboxes do not support sessions; use a sandbox on this machine")
    stores = {
        mount.path: mount.source.store
        for mount in mounts
        if isinstance(mount.source, Scratch) and mount.source.store is not None
    }
    if stores and context.session_id is None:
        raise ConfigError("a Mount has a store, which needs a session: give the ExecutionContext a session_id")
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
            host_writes=bool(mount.writable) or isinstance(mount.source, Scratch),
            program_writes=bool(mount.writable),
            own=opened.exact and isinstance(mount.source, Scratch),
            most=Usage(mount.source.bytes, mount.source.files) if isinstance(mount.source, Scratch) else None,
        )
        for mount, root in zip(mounts, opened.roots, strict=False)  # skills come last, and are read-only
    ]
    read = [
        Tree(PLACE, FileTree(root), host_writes=False, program_writes=False, own=False)
        for root in opened.roots[len(mounts) :]
    ]
    session = OpenSession(context, opened, trees, hosts, stores, read, keep)
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
        """Yields the pieces.

        Raises:
            OSError: ENOSPC if the pieces have more than `left` bytes. RuntimeError: the pieces cannot be read.
        """
        try:
            for piece in pieces:
                self.bytes += len(piece) or 1  # so that empty pieces cannot go on forever
                if self.bytes > left:
                    break
                yield piece
        except OSError as error:  # it would be mistaken for an error of the written file
            raise RuntimeError(f"a stored file cannot be read: {error}") from error
        if self.bytes > left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _contents(files: FileTree, sizes: Mapping[str, int], unread: list[str]) -> Iterator[StoredFile]:
    """Yields the files, each with its size in the snapshot. Adds those that cannot be read to `unread`."""
    for path, size in sizes.items():
        try:
            pieces = files.pieces(path.split("/"), size)
        except OSError:
            unread.append(path)
        else:
            if pieces is not None:  # otherwise deleted meanwhile
                yield path, pieces


def _within(tree: Tree, seen: Snapshot) -> Snapshot:
    """Returns the files of one mount, by their path in it."""
    prefix = f"{tree.path}/"
    return {path.removeprefix(prefix): state for path, state in seen.items() if path.startswith(prefix)}


def _grown(tree: Tree, before: Snapshot, now: Snapshot) -> str | None:
    """Returns an error if a mount's files have grown beyond its quota."""
    was, sizes = ([state[0] for state in each.values()] for each in (before, now))
    return tree.over(sizes) if sum(sizes) > sum(was) else None


def _names(paths: Sequence[str]) -> str:
    named = ", ".join(repr(as_text(path)[:_NAME_CHARS]) for path in paths[:_MOST_NAMED])
    return named if len(paths) <= _MOST_NAMED else f"{named} and {len(paths) - _MOST_NAMED:,} more files"


def _place(mount: Mount) -> Place:
    match mount.source:
        case Scratch(bytes=size, files=files):
            return Place(mount.path, bool(mount.writable), size, files)
        case Directory(path=path, file_bytes=size):
            directory = Path(path).resolve()
            if not directory.is_dir():
                raise ConfigError(f"Mount({mount.path!r}): there is no directory {str(path)!r}")
            return Place(mount.path, bool(mount.writable), size, directory=directory)
