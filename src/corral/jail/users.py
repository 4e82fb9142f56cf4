"""Users for sessions, if the host is root and no user namespace can provide one."""

from __future__ import annotations

import os
import random
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.platform != "win32":
    import pwd

_USERS = range(60_578, 61_184)
"""Numbers that neither Debian nor systemd assigns (https://systemd.io/UIDS-GIDS)."""
_ATTEMPTS = 50
_NEEDED = 1 << 0 | 1 << 6 | 1 << 7
"""CAP_CHOWN, CAP_SETGID and CAP_SETUID (linux/capability.h)."""


@dataclass(slots=True)
class UserClaim:
    """A user that no other process on this machine runs as, until `close` or the end of this process."""

    user: int
    _socket: socket.socket

    def close(self) -> None:
        """Releases the user."""
        self._socket.close()


def claim_user() -> UserClaim | None:
    """Claims a user without processes; None if there is none.

    A claim is an abstract unix socket, unix(7), which one process can hold at a time.
    """
    mapped = _mapped()
    usable = [user for user in _USERS if any(user in users for users in mapped)]
    for user in random.sample(usable, min(_ATTEMPTS, len(usable))):
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(OSError):
            claimed.bind(f"\0corral-user-{user}")
            if not _is_known(user) and user not in _running():
                return UserClaim(user, claimed)
        claimed.close()
    return None


def may_become(user: int) -> bool:
    """True if this process can run others as this user, and give files to it.

    Root cannot if it is the only user of its namespace, as is possible when rootless, or lacks capabilities.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return False
    held = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return held & _NEEDED == _NEEDED and any(user in users for users in _mapped())


def _mapped() -> list[range]:
    """Returns the mapped users: user_namespaces(7)."""
    try:
        lines = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except OSError:
        return []
    return [range(int(first), int(first) + int(count)) for first, _, count in map(str.split, lines)]


def _is_known(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _running() -> set[int]:
    """Returns the users of all processes."""
    users: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(OSError):
                    users.add(entry.stat().st_uid)
    return users
