"""The service: programs of authenticated users run in corral's sandbox, and each sees its own organization's data."""

# pyright: reportUnknownMemberType=false, reportUnusedFunction=false

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import asyncpg
from corral import Approve, AuditLog, Corral, ExecutionContext, Limits, RateLimits
from corral.audit import AuditFilter, open_audit
from corral.bridges.base import ASGIApp
from corral.bridges.rates_redis import RedisRates
from corral.chat import SqliteChats, chat_app
from corral.chat.agents.pydantic_ai import from_pydantic_ai
from corral.egress import EgressPolicy, SafeClient
from corral.sandboxes import DenoSandbox
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.security import APIKeyHeader
from redis.asyncio import Redis
from starlette.requests import ClientDisconnect

from agents import invoice_agent
from login import Logins
from mail import MailServer
from tools import approve, invoice_tools

__all__ = ["Settings", "context_of", "create_app", "open_corral"]

_LIMITS = Limits(wall_seconds=20)
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
            limits=_LIMITS,
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


async def caller(key: Annotated[str, Depends(APIKeyHeader(name="x-api-key"))]) -> ExecutionContext:
    if (user := find_user(key)) is None:
        raise HTTPException(401, "this API key is not known")
    return user


Caller = Annotated[ExecutionContext, Depends(caller)]


def create_app(settings: Settings) -> FastAPI:
    audit = AuditLog(settings.audit)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_corral(settings, audit) as app.state.corral:
            app.mount("/bridge", app.state.corral.asgi_app())
            app.mount("/chat", _chat(app.state.corral, settings, logins))
            yield

    logins = Logins(find_user)
    app = FastAPI(lifespan=lifespan)
    app.include_router(logins.router())

    @app.post("/programs")
    async def run_program(request: Request, context: Caller) -> Response:
        """Runs the program that is the request's body, and returns the `ExecutionResult`."""
        result = await app.state.corral.execute(await _source(request), context=context)
        return Response(result.to_json(), media_type="application/json")

    @app.post("/token")
    async def issue_token(context: Caller) -> dict[str, str]:
        """A token for one program that runs elsewhere, and calls the tools at /bridge."""
        return {"token": app.state.corral.execution_token(context, ttl_seconds=60)}

    @app.get("/audit")
    async def read_audit(context: Caller) -> list[dict[str, Any]]:
        """What is on record of the caller's organization."""
        await audit.flush()
        async with aclosing(open_audit(str(settings.audit))) as reader:
            events = await reader.read(AuditFilter(organization_id=context.organization_id), 1000)
        return [json.loads(event.to_json()) for event in events]

    return app


def _chat(corral: Corral, settings: Settings, logins: Logins) -> ASGIApp:
    return chat_app(
        corral,
        from_pydantic_ai(invoice_agent(corral)),
        authenticate=logins.caller,
        store=SqliteChats(settings.audit.with_name("chats.sqlite")),
        title="Invoices",
        suggestions=["Which invoices are unpaid?"],
    )


async def _source(request: Request) -> str:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LIMITS.source_bytes:
                raise HTTPException(413, f"a program has at most {_LIMITS.source_bytes} bytes")
        return body.decode()
    except ClientDisconnect:
        raise HTTPException(400, "the program did not arrive") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "a program is UTF-8") from None
