"""Makes the directories of a session visible to sandboxes on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import NO_SPACE, Bind, Space, Tier
from corral.errors import StartFailed
from corral.jail.commands import host_programs
from corral.jail.jail import UserClaim, claim_user, may_become
from corral.jail.launcher_client import LauncherClient, Programs
from corral.jail.privileges import NOBODY
from corral.jail.temporary import TemporaryFolder
from corral.logs import get_logger
from corral.types import SandboxConfig

logger = get_logger("corral.jail")


class Place(NamedTuple):
    """Directory at the path `inside`: the session's own, with limits of bytes and files, or a directory of the host."""

    inside: str
    writable: bool
    bytes: int
    files: int = 0
    directory: Path | None = None
    public: bool = False
    """True if every user can read it."""


class SpaceHost(Protocol):
    """Provider whose guests can see a space."""

    async def placement(self, config: SandboxConfig) -> Tier | None:
        """Returns the tier that guests with this configuration get here; None if they see files in every tier.

        Raises:
            StartFailed: no tier works.
        """
        ...

    async def starts_as_nobody(self, config: SandboxConfig) -> bool:
        """True if a user who owns nothing can read the engine."""
        ...

    async def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, programs: Programs | None = None
    ) -> list[int]:
        """Returns descriptors of a user namespace, a mount namespace, and the roots of its in-memory file systems.

        `sizes` has the bytes and files of each file system, which are mounted on the existing folders "0", "1", ... of
        `place`. With `programs`, files in them can be executed.

        Raises:
            StartFailed: such namespaces cannot be made here.
            OSError: no descriptors are left.
        """
        ...

    async def prepare_space(self, config: SandboxConfig) -> None:
        """Starts a guest in advance for executions in the space.

        Raises:
            StartFailed: see `SandboxProvider.start`.
        """
        ...

    def forget(self, space: Space) -> None:
        """Ends guests that wait for executions in this space, and frees everything kept for it."""
        ...


class LauncherSpaces:
    """Part of a `SpaceHost` whose guests read only world-readable files of the host: a launcher makes its spaces."""

    def __init__(self, launcher: LauncherClient) -> None:
        self.launcher = launcher

    async def starts_as_nobody(self, config: SandboxConfig) -> bool:  # noqa: ARG002
        """Returns True, because such guests read only world-readable files."""
        return True

    async def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, programs: Programs | None = None
    ) -> list[int]:
        """Delegates to `LauncherClient.make_space`."""
        return await run_shielded_in_thread(partial(self.launcher.make_space, sizes, place, user, programs))


@dataclass(kw_only=True)
class OpenSpace:
    """A space, descriptors of its directories in the order of the places, and its cleanup."""

    space: Space
    roots: list[int]
    owner: tuple[int, int] | None
    """User and group of the guests, if they differ from this process's."""
    exact: bool
    """True if the kernel enforces the quotas."""
    descriptors: list[int] = field(default_factory=list[int])
    folder: TemporaryFolder | None = None
    hosts: Sequence[SpaceHost] = ()
    claim: UserClaim | None = None

    async def aclose(self) -> None:
        """Ends the guests and frees everything except `roots`, which the caller owns."""
        for host in self.hosts:
            host.forget(self.space)
        descriptors, self.descriptors = self.descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
        if self.folder is not None:
            await run_shielded_in_thread(self.folder.close)
        if self.claim is not None:
            self.claim.close()


async def open_space(
    hosts: Sequence[tuple[SpaceHost, SandboxConfig]], places: Sequence[Place], *, executable: bool = False
) -> OpenSpace:
    """Makes a space in which every host can start guests. The first host makes it.

    With `executable`, files in the session's own directories can be executed.

    Raises:
        StartFailed: no tier works here, or none that shows directories at any path.
        OSError: a directory does not exist, or no descriptors are left.
    """
    tiers = [await host.placement(config) for host, config in hosts]
    guests = [(host, config, tier) for (host, config), tier in zip(hosts, tiers, strict=True) if tier is not None]
    first, _, tier = guests[0] if guests else (*hosts[0], "namespaces")
    in_namespaces = all(each == "namespaces" for _, _, each in guests)
    user = await _user([(host, config) for host, config, _ in guests], places)
    claim = claim_user() if user is not None and not in_namespaces else None
    user = user if claim is None else claim.user
    made: list[int] = []
    unused: list[int] = []
    overlaid = False
    own = [place for place in places if place.directory is None]
    folder = TemporaryFolder()
    opened = OpenSpace(space=NO_SPACE, roots=[], owner=None, exact=True, folder=folder, claim=claim)
    try:
        for number in range(len(own)):
            (folder.path / str(number)).mkdir(mode=0o700)
        tried: list[Programs | None] = [None]
        if executable:
            (folder.path / "empty").mkdir()
            (folder.path / "empty").chmod(0o755)
            kept = [str(place.directory) for place in places if place.directory is not None]
            tried = [Programs(host_programs(), kept), Programs()]
        for programs in tried if own and in_namespaces else ():
            try:
                sizes = [(each.bytes, each.files) for each in own]
                made = await first.make_space(sizes, folder.path, user, programs)
            except StartFailed as error:
                if programs is tried[-1]:
                    logger.warning("directories of sessions are on disk, so their quotas are only polled: %s", error)
                else:
                    logger.info("commands of all sessions share locks on the files of /usr: %s", error)
            else:
                overlaid = programs is not None and programs.overlays != ()
                break
        opened.exact = bool(made) or not own
        opened.descriptors = made[:2]
        sources = iter([folder.path / str(number) for number in range(len(own))])
        unused = made[2:]
        binds: list[Bind] = []
        for place in places:
            source = next(sources) if place.directory is None else place.directory
            binds.append(Bind(str(source), place.inside, place.writable))
            if place.directory is None and made:
                opened.roots.append(unused.pop(0))
                continue
            if place.directory is None and user is not None:
                os.chown(source, user, user)
            opened.roots.append(os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        opened.space = Space(
            binds=tuple(binds),
            namespaces=(made[0], made[1]) if made else None,
            user=user,
            own_user=claim is not None,
            # One byte above the quota, so that a full directory fails as full, not as a file that is too large.
            file_bytes=max((place.bytes + 1 for place in places if place.writable), default=0),
            overlaid=overlaid,
            mapped=tier != "namespaces",
            served=not guests,
            home=next((place.inside for place in places if place.writable), places[0].inside if places else "/"),
        )
        opened.owner = (user, user) if user is not None else None
    except BaseException:
        for root in [*opened.roots, *unused]:
            os.close(root)
        await opened.aclose()
        raise
    opened.hosts = [host for host, _ in hosts]
    return opened


async def _user(hosts: Sequence[tuple[SpaceHost, SandboxConfig]], places: Sequence[Place]) -> int | None:
    """Returns the guests' user: if the host is root, a user who owns nothing, unless that user could not read the
    engine."""
    if not hosts or os.geteuid() != 0 or not may_become(NOBODY):
        return None
    if any(place.directory is not None and not place.public for place in places):
        return None
    return NOBODY if all([await host.starts_as_nobody(config) for host, config in hosts]) else None
