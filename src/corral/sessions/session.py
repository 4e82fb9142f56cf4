"""A session: directories that outlive one program, for one user of one organization."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment.spaces import OpenSpace, Place, SpaceHost, open_space
from corral.errors import ConfigError
from corral.isolation import Space
from corral.logs import get_logger
from corral.results import FileChanges
from corral.sessions.files import SessionFiles, Snapshot, Tree, changes
from corral.sessions.mounts import Directory, Mount, Scratch, check_mounts
from corral.sessions.program_files import ProgramFiles
from corral.sessions.quota import Quota, QuotaWatch, watch_quotas
from corral.sessions.stores import Store, StoreKey
from corral.sessions.tree import FileTree, Usage
from corral.skills import SkillSet
from corral.skills.skill import PLACE
from corral.types import ExecutionContext, Language, SandboxConfig

__all__ = ["OpenSession", "open_session"]

logger = get_logger("corral.sessions")


class OpenSession:
    """Open directories, as executions need them, and their end."""

    def __init__(
        self,
        context: ExecutionContext,
        space: OpenSpace,
        trees: Sequence[Tree],
        languages: Iterable[Language],
        stores: Mapping[str, Store],
        quotas: Sequence[Quota],
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
        self.quotas = quotas
        """Quotas that the kernel does not hold."""
        self._seen: Snapshot = {}
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
        async with plain_task_group() as tasks:
            tasks.start_soon(watch_quotas, watch, over)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def look(self) -> FileChanges:
        """Lists what has changed since the last look, and has it stored.

        Raises:
            FileError: files cannot be listed, or read for their store.
            Exception: whatever a store raises.
        """
        async with self._looking:
            self.files.host_has_written = False
            seen = await self.files.snapshot()
            found = changes(self._seen, seen)
            for mount, store in self._stores.items():
                await self._save(mount, store, seen)
            self._seen = seen
            return found

    async def load(self) -> None:
        """Brings the files of stores.

        Raises:
            FileError: there is no room for them.
            Exception: whatever a store raises.
        """
        for mount, store in self._stores.items():
            async for path, data in store.load(self._key(mount)):
                await self.files.write_binary(f"{mount}/{path}", data)
        self._seen = await self.files.snapshot()
        self.files.host_has_written = False

    async def _save(self, mount: str, store: Store, seen: Snapshot) -> None:
        prefix = f"{mount}/"
        changed: dict[str, bytes] = {}
        for path, now in seen.items():
            if path.startswith(prefix) and self._seen.get(path) != now:
                data = await self.files.read_binary(path)
                if data is not None:
                    changed[path.removeprefix(prefix)] = data
        deleted = [path.removeprefix(prefix) for path in self._seen.keys() - seen.keys() if path.startswith(prefix)]
        if changed or deleted:
            await store.save(self._key(mount), changed, deleted)

    def _key(self, mount: str) -> StoreKey:
        context = self.context
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
    if stores and "session_id" not in context.model_fields_set:
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
        )
        for mount, root in zip(
            mounts, opened.roots, strict=False
        )  # skills come last, and are not the session's to change
    ]
    read = [
        Tree(PLACE, FileTree(root), host_writes=False, program_writes=False, own=False)
        for root in opened.roots[len(mounts) :]
    ]
    quotas = [
        Quota(mount.path, tree.files, Usage(mount.source.bytes, mount.source.files))
        for mount, tree in zip(mounts, trees, strict=True)
        if isinstance(mount.source, Scratch) and not opened.exact
    ]
    session = OpenSession(context, opened, trees, hosts, stores, quotas, read)
    try:
        await session.load()
    except BaseException:
        await session.aclose()
        raise
    return session


def _place(mount: Mount) -> Place:
    match mount.source:
        case Scratch(bytes=size, files=files):
            return Place(mount.path, mount.writable, size, files)
        case Directory(path=path, file_bytes=size):
            found = Path(path).resolve()
            if not found.is_dir():
                raise ConfigError(f"Mount({mount.path!r}): there is no directory {str(path)!r}")
            return Place(mount.path, mount.writable, size, directory=found)
