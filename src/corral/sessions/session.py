"""A session: directories that outlive one program, for one user of one organization."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import anyio

from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import ConfigError
from corral.isolation import Space
from corral.results import FileChanges
from corral.sandboxes.spaces import OpenSpace, Place, SpaceHost, open_space
from corral.sessions.files import SessionFiles, Snapshot, Tree, changes
from corral.sessions.mounts import Directory, Mount, Scratch, check_mounts
from corral.sessions.tree import FileTree
from corral.skills import SkillSet
from corral.skills.skill import PLACE
from corral.types import ExecutionContext, Language, SandboxConfig

__all__ = ["OpenSession", "open_session"]


class OpenSession:
    """Open directories, as executions need them, and their end."""

    def __init__(
        self, context: ExecutionContext, space: OpenSpace, trees: Sequence[Tree], languages: Iterable[Language]
    ) -> None:
        self.context = context
        self.languages = frozenset(languages)
        self.files = SessionFiles(trees)
        self._space = space
        self._trees = trees
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

    async def begin(self) -> None:
        """Looks, if the host has changed files since the last look: those are not the next execution's."""
        if self.files.host_has_written:
            self.files.host_has_written = False
            await self.look()

    async def look(self) -> FileChanges:
        """Lists what has changed since the last look."""
        async with self._looking:
            before, self._seen = self._seen, await self.files.snapshot()
            return changes(before, self._seen)

    async def aclose(self) -> None:
        """Ends its guests and frees its directories. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with anyio.CancelScope(shield=True):
            await self._space.aclose()
            for tree in self._trees:
                tree.files.close()


async def open_session(
    context: ExecutionContext,
    mounts: Sequence[Mount],
    hosts: Mapping[Language, tuple[SpaceHost, SandboxConfig]],
    skills: SkillSet,
) -> OpenSession:
    """Makes the directories of a session.

    Raises:
        ConfigError: the mounts do not fit together, a directory is not there, or no sandbox here has files.
        StartFailed: nothing on this system can make them.
    """
    check_mounts((*mounts, *([Mount(PLACE, Directory("/"))] if skills.skills else ())))
    if not mounts:
        raise ConfigError("a session has files; give it a Mount")
    if not hosts:
        raise ConfigError("none of this Corral's sandboxes has files of a session; DenoSandbox and CPythonSandbox do")
    places = [_place(mount) for mount in mounts]
    if skills.skills:
        folder = (await run_shielded_in_thread(skills.node_modules)) / "skills"
        places.append(Place(PLACE, False, 0, directory=folder, public=True))
    opened = await open_space([*hosts.values()], places)
    trees = [
        Tree(
            mount.path,
            FileTree(root, owner=opened.owner if isinstance(mount.source, Scratch) else None),
            host_writes=mount.writable or isinstance(mount.source, Scratch),
            own=opened.exact and isinstance(mount.source, Scratch),
        )
        for mount, root in zip(
            mounts, opened.roots, strict=False
        )  # skills come last, and are not the session's to change
    ]
    for root in opened.roots[len(mounts) :]:
        os.close(root)
    return OpenSession(context, opened, trees, hosts)


def _place(mount: Mount) -> Place:
    match mount.source:
        case Scratch(bytes=size, files=files):
            return Place(mount.path, mount.writable, size, files)
        case Directory(path=path, file_bytes=size):
            found = Path(path).resolve()
            if not found.is_dir():
                raise ConfigError(f"Mount({mount.path!r}): there is no directory {str(path)!r}")
            return Place(mount.path, mount.writable, size, directory=found)
