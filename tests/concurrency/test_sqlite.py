"""Databases of SQLite that several processes share."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from corral.concurrency.sqlite import write_ahead


def test_who_changes_the_mode_waits_for_others(tmp_path: Path) -> None:
    path, refused = tmp_path / "database", threading.Event()

    class Second(sqlite3.Connection):
        def execute(self, *statement: Any) -> sqlite3.Cursor:
            try:
                return super().execute(*statement)
            except sqlite3.OperationalError:
                refused.set()
                raise

    with (
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as first,
        closing(sqlite3.connect(path, timeout=0, check_same_thread=False, factory=Second)) as second,
    ):
        first.execute("BEGIN EXCLUSIVE")
        changing = threading.Thread(target=write_ahead, args=(second, 20.0))
        changing.start()
        assert refused.wait(20)
        first.execute("COMMIT")
        changing.join()
        assert second.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_that_stays_locked_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "database"
    with (
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as first,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as second,
    ):
        first.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            write_ahead(second, 0.02)


def test_what_cannot_be_written_to_is_an_error_at_once(tmp_path: Path) -> None:
    path = tmp_path / "database"
    path.write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError, match="not a database"):
        write_ahead(connection, 20.0)
