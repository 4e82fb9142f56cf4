"""SQLite databases shared by several processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

_POLL_SECONDS = 0.005


def write_ahead(connection: Connection, seconds: float) -> None:
    """Sets the journal mode WAL, in which readers and a writer do not wait for each other.

    If two connections change the mode at the same time, each holds a lock that the other needs, and SQLite fails at
    once, whatever its timeout. So this retries for `seconds`.

    Raises:
        sqlite3.OperationalError: the database is still locked, or cannot be written to.
    """
    import sqlite3  # most hosts do not need it

    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return
