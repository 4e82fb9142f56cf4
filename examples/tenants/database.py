"""The table of invoices. PostgreSQL itself keeps organizations apart, whatever a query says."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from corral import ExecutionContext, ToolError

__all__ = ["create_invoices", "invoices_of", "organization_of", "program_of", "store_program"]

_SCHEMA = """
    CREATE TABLE invoices (
        organization text NOT NULL,
        number text NOT NULL,
        currency text NOT NULL,
        amount_cents integer NOT NULL,
        paid boolean NOT NULL DEFAULT false,
        PRIMARY KEY (organization, number)
    );

    ALTER TABLE invoices ENABLE ROW LEVEL SECURITY;
    CREATE POLICY one_organization ON invoices USING (organization = current_setting('app.organization', true));

    CREATE TABLE programs (organization text, name text, source text NOT NULL, PRIMARY KEY (organization, name));
    ALTER TABLE programs ENABLE ROW LEVEL SECURITY;
    CREATE POLICY one_organization ON programs USING (organization = current_setting('app.organization', true));

    -- Policies do not bind superusers, roles with BYPASSRLS and the table's owner. This role is none of them.
    CREATE ROLE invoicing LOGIN;
    GRANT SELECT, UPDATE (paid) ON invoices TO invoicing;
    GRANT SELECT, INSERT, UPDATE (source) ON programs TO invoicing;
"""
_INVOICES = [
    ("acme", "ACME-1", "EUR", 120_00),
    ("acme", "ACME-2", "USD", 1_800_00),
    ("acme", "ACME-3", "GBP", 9_400_00),
    ("acme", "ACME-4", "CHF", 75_00),
    ("acme", "ACME-5", "SEK", 310_00),
    ("globex", "GLOBEX-1", "USD", 640_00),
    ("globex", "GLOBEX-2", "GBP", 55_00),
    ("globex", "GLOBEX-3", "EUR", 2_100_00),
]


async def create_invoices(url: str) -> None:
    """Fills an empty database, as its owner."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_SCHEMA)
        await connection.executemany("INSERT INTO invoices VALUES ($1, $2, $3, $4)", _INVOICES)
    finally:
        await connection.close()


def organization_of(context: ExecutionContext) -> str:
    """The caller's organization.

    Raises:
        ToolError: there is none.
    """
    if context.organization_id is None:
        raise ToolError("invoices belong to an organization, and the caller has none")
    return context.organization_id


@asynccontextmanager
async def invoices_of(pool: Any, context: ExecutionContext) -> AsyncGenerator[Any]:
    """A connection that has the invoices of the caller's organization only, for one transaction.

    The setting ends with the transaction: the pool's next user of the connection begins without an organization.
    """
    async with pool.acquire() as connection, _organization_set(connection, context):
        yield connection


@asynccontextmanager
async def _connected(url: str, context: ExecutionContext) -> AsyncGenerator[Any]:
    """As `invoices_of`, by a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        async with _organization_set(connection, context):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _organization_set(connection: Any, context: ExecutionContext) -> AsyncGenerator[None]:
    async with connection.transaction():
        await connection.execute("SELECT set_config('app.organization', $1, true)", organization_of(context))
        yield


async def store_program(url: str, context: ExecutionContext, name: str, source: str) -> None:
    """Stores a program of the caller's organization, or replaces it."""
    async with _connected(url, context) as connection:
        await connection.execute(
            "INSERT INTO programs VALUES ($1, $2, $3) ON CONFLICT (organization, name) DO UPDATE SET source = $3",
            organization_of(context),
            name,
            source,
        )


async def program_of(url: str, context: ExecutionContext, name: str) -> str:
    """A stored program of the caller's organization.

    Raises:
        ToolError: there is none of this name.
    """
    async with _connected(url, context) as connection:
        source = await connection.fetchval("SELECT source FROM programs WHERE name = $1", name)
    if source is None:
        raise ToolError(f"there is no program {name!r}")
    return source
