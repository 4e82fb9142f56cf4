"""Ledgers that several hosts share."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import anyio.to_thread
import pytest

from corral.ledger import Ledger, MemoryLedger
from tests.audit.conftest import own_server as own_server
from tests.audit.conftest import postgres_server as postgres_server
from tests.postgres import execute, fresh_url
from tests.running.killed_host import ledger_at

ON_POSTGRES = pytest.mark.matrix("runs over PostgreSQL what the gate runs in memory")


class Store:
    """Database for ledgers, by its path or URL."""

    def __init__(self, place: str) -> None:
        self.place = place

    def ledger(self) -> Ledger:
        """A ledger of one more host."""
        return ledger_at(self.place)

    def execute(self, statement: str) -> None:
        """Executes a statement over tables with the names that they have in SQLite."""
        if "://" not in self.place:
            with sqlite3.connect(self.place) as database:
                database.execute(statement)
        else:
            execute(self.place, re.sub(r"(UPDATE|FROM) ", r"\1 corral_", statement))

    async def expire(self) -> None:
        """Ends all leases, as 30 s later."""
        await anyio.to_thread.run_sync(self.execute, "UPDATE executions SET lease = 0")


@pytest.fixture
def url(postgres_server: str) -> str:
    """The URL of an empty database."""
    return fresh_url(postgres_server)


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.matrix("hosts share Postgres in the gate; here a file")),
        "postgres",
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return Store(str(tmp_path / "runs.db"))
    return Store(request.getfixturevalue("url"))


@pytest.fixture(params=["memory", pytest.param("postgres", marks=ON_POSTGRES)])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """A ledger of one host."""
    if request.param == "memory":
        return MemoryLedger()
    return ledger_at(request.getfixturevalue("url"))
