"""The service: programs of authenticated users run in corral's sandbox, and each sees its own organization's data."""

# pyright: reportUnknownMemberType=false, reportUnusedFunction=false

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

from corral import AuditLog, Corral, ExecutionContext
from corral.audit import AuditFilter, open_audit
from corral.bridges.base import ASGIApp
from corral.chat import SqliteChats, chat_app
from corral.chat.agents.pydantic_ai import from_pydantic_ai
from fastapi import Depends, FastAPI, HTTPException, Path, Request, Response
from fastapi.security import APIKeyHeader
from starlette.requests import ClientDisconnect

from assistant import invoice_agent
from database import store_program
from jobs import Jobs
from login import Logins
from service import LIMITS, Settings, find_user, open_corral

__all__ = ["create_app"]


async def caller(key: Annotated[str, Depends(APIKeyHeader(name="x-api-key"))]) -> ExecutionContext:
    if (user := find_user(key)) is None:
        raise HTTPException(401, "this API key is not known")
    return user


Caller = Annotated[ExecutionContext, Depends(caller)]
Name = Annotated[str, Path(pattern="^[a-z0-9_]{1,50}$")]


def create_app(settings: Settings) -> FastAPI:
    audit = AuditLog(settings.audit)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_corral(settings, audit) as app.state.corral, jobs:
            app.mount("/bridge", app.state.corral.remote.asgi_app())
            app.mount("/chat", _chat(app.state.corral, settings, logins))
            yield

    logins, jobs = Logins(find_user), Jobs(settings)
    app = FastAPI(lifespan=lifespan)
    app.include_router(logins.router())

    @app.post("/programs")
    async def run_program(request: Request, context: Caller) -> Response:
        """Runs the program that is the request's body, and returns the `ExecutionResult`."""
        result = await app.state.corral.execute(await _source(request), context=context)
        return Response(result.to_json(), media_type="application/json")

    @app.put("/programs/{name}", status_code=204)
    async def keep_program(name: Name, request: Request, context: Caller) -> None:
        """Stores the program that is the request's body, for jobs."""
        await store_program(settings.postgres, context, name, await _source(request))

    @app.post("/jobs/programs/{name}", status_code=202)
    async def start_program(name: Name, context: Caller) -> None:
        """Runs a stored program in the background, and mails its result to the caller."""
        await jobs.program.kiq(user=context.user_id, name=name)

    @app.post("/jobs/agent", status_code=202)
    async def start_agent(request: Request, context: Caller) -> None:
        """Gives the request's body to the agent, in the background, and mails its answer to the caller."""
        await jobs.agent.kiq(user=context.user_id, prompt=await _source(request))

    @app.post("/token")
    async def issue_token(context: Caller) -> dict[str, str]:
        """A token for one program that runs elsewhere, and calls the tools at /bridge."""
        return {"token": app.state.corral.remote.token(context, ttl_seconds=60)}

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
            if len(body) > LIMITS.source_bytes:
                raise HTTPException(413, f"a program has at most {LIMITS.source_bytes} bytes")
        return body.decode()
    except ClientDisconnect:
        raise HTTPException(400, "the program did not arrive") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "a program is UTF-8") from None
