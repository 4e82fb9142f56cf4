"""What the web app and the worker share: users, settings, and the corral."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from corral import AuditLog, Corral, ExecutionContext, Limits, RateLimits
from corral.calls.rates_redis import RedisRates
from corral.egress import EgressPolicy, SafeClient
from corral.sandboxes import DenoSandbox
from corral.types import Approve
from redis.asyncio import Redis

from mail import MailServer
from tools import approve, invoice_tools

# pyright: reportUnknownMemberType=false

__all__ = ["LIMITS", "Settings", "context_of", "find_user", "open_corral"]

LIMITS = Limits(wall_seconds=20)
_USERS: dict[str, dict[str, Any]] = {
    "key-of-ann": {
        "user_id": "ann",
        "organization_id": "acme",
        "scopes": {"invoices:read", "invoices:pay", "mail:send"},
    },
    "key-of-bob": {"user_id": "bob", "organization_id": "acme", "scopes": {"invoices:read"}},
    "key-of-gus": {
        "user_id": "gus",
        "organization_id": "globex",
        "scopes": {"invoices:read", "invoices:pay", "mail:send"},
    },
}
"""By API key. A real service has them in a database, hashed."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    postgres: str
    valkey: str
    rates: str
    """URL of the service for exchange rates, which is at an internal address."""
    audit: Path
    mail: MailServer


@asynccontextmanager
async def open_corral(settings: Settings, audit: AuditLog, *, approve: Approve = approve) -> AsyncGenerator[Corral]:
    """The tools with what they need, in a corral that holds all organizations to the same rules."""
    inside = urlsplit(settings.rates)
    only_rates = EgressPolicy(
        hosts=[str(inside.hostname)], ports=[inside.port or 80], exempt_networks=[f"{inside.hostname}/32"]
    )
    async with (
        asyncpg.create_pool(settings.postgres, min_size=1, max_size=8) as pool,
        Redis.from_url(settings.valkey) as cache,
        SafeClient(only_rates, base_url=settings.rates) as rates,
        SafeClient(EgressPolicy(max_response_bytes=100_000, total_seconds=5), follow_redirects=True) as internet,
        Corral(
            invoice_tools(pool, cache, rates, internet, settings.mail),
            sandbox=DenoSandbox(),
            limits=LIMITS,
            rates=RateLimits(user="300/minute", store=RedisRates(settings.valkey, timeout_seconds=1)),
            approve=approve,
            audit=audit,
        ) as corral,
    ):
        yield corral


def find_user(key: str) -> ExecutionContext | None:
    return ExecutionContext(**_USERS[key]) if key in _USERS else None


def context_of(user_id: str) -> ExecutionContext:
    """The rights that a user has now, for a job."""
    [user] = [user for user in _USERS.values() if user["user_id"] == user_id]
    return ExecutionContext(**user)
