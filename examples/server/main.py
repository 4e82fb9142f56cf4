"""A FastAPI server that runs programs for several organizations, each with its own data, scopes and rates."""

# pyright: reportUnusedFunction=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.security import APIKeyHeader

from corral import Corral, ExecutionContext, Limits, RateLimits, tool

INVOICES = {"acme": {1: 120.0, 2: 80.0}, "globex": {1: 999.0}}
KEYS = {  # in your service: a table of hashes
    "key-of-ann": ExecutionContext(user_id="ann", organization_id="acme", scopes={"invoices:read", "invoices:write"}),
    "key-of-rob": ExecutionContext(user_id="rob", organization_id="acme", scopes={"invoices:read"}),
    "key-of-eve": ExecutionContext(user_id="eve", organization_id="globex", scopes={"invoices:read"}),
}


@tool(scopes={"invoices:read"}, read_only=True)
async def list_invoices(*, context: ExecutionContext) -> dict[int, float]:
    """Numbers and amounts of the invoices of your organization, in EUR."""
    return INVOICES[context.organization_id or ""]


@tool(scopes={"invoices:write"})
async def write_off(number: int, *, context: ExecutionContext) -> float:
    """Writes off an invoice, and returns the amount that is lost, in EUR."""
    return INVOICES[context.organization_id or ""].pop(number)


async def caller(key: Annotated[str, Depends(APIKeyHeader(name="x-api-key"))]) -> ExecutionContext:
    if (context := KEYS.get(key)) is None:
        raise HTTPException(401, "this API key is not known")
    return context


def create_app() -> FastAPI:
    corral = Corral(
        [list_invoices, write_off],
        rates=RateLimits(user="60/minute", organization="200/minute"),
        limits=Limits(wall_seconds=20, calls=50),
        hide_denied=True,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with corral:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/programs")
    async def run(request: Request, context: Annotated[ExecutionContext, Depends(caller)]) -> Response:
        """Runs the program that is the request's body."""
        source = (await request.body()).decode()
        result = await corral.execute(source, context=context)
        return Response(result.to_json(), media_type="application/json")

    @app.get("/declarations")
    async def declarations(context: Annotated[ExecutionContext, Depends(caller)]) -> str:
        """The tools that this caller's model should see."""
        return corral.model.declarations(context=context)

    return app


app = create_app()  # uvicorn main:app --workers 2

TOTAL = "return Object.values(await tools.list_invoices()).reduce((sum, each) => sum + each, 0)"
WRITE_OFF = "return await tools.write_off({ number: 2 })"


async def main() -> None:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        for key, program in [("ann", TOTAL), ("eve", TOTAL), ("rob", WRITE_OFF), ("ann", WRITE_OFF), ("ann", TOTAL)]:
            response = await client.post("/programs", content=program, headers={"x-api-key": f"key-of-{key}"})
            result: dict[str, Any] = response.json()
            print(f"{key}: {result['value'] if result['error'] is None else result['error']['message']}")
        print("a stranger:", (await client.post("/programs", content=TOTAL, headers={"x-api-key": "?"})).status_code)


if __name__ == "__main__":
    asyncio.run(main())
