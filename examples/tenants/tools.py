"""What programs may do. Who asks is in the `ExecutionContext` that corral passes in; no program can name it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from corral import ApprovalRequest, ExecutionContext, Tool, ToolError, tool
from corral.egress import SafeClient
from corral.errors import ApprovalDenied
from pydantic import Field, TypeAdapter
from redis.asyncio import Redis
from typing_extensions import TypedDict

from database import invoices_of, organization_of

__all__ = ["approve", "invoice_tools"]

Amount = Annotated[int, Field(gt=0, lt=2**31)]

_ASKED_ABOVE_CENTS = 1_000_00
_APPROVED_UP_TO_CENTS = 5_000_00
_CACHED_SECONDS = 60


class Invoice(TypedDict):
    number: str
    currency: str
    amount_cents: int
    paid: bool


_invoice_list = TypeAdapter(list[Invoice])
_SELECT = "SELECT number, currency, amount_cents, paid FROM invoices"


def _is_large(input: dict[str, Any], _context: ExecutionContext) -> bool:
    return input["amount_cents"] > _ASKED_ABOVE_CENTS


async def approve(request: ApprovalRequest) -> bool:
    """Decides about large payments: here by a rule, where another service would ask somebody and wait."""
    if request.input["amount_cents"] <= _APPROVED_UP_TO_CENTS:
        return True
    raise ApprovalDenied(f"{request.context.organization_id} pays more than 5,000.00 by hand only")


def invoice_tools(pool: Any, cache: Redis, rates: SafeClient, internet: SafeClient) -> list[Tool]:
    """The tools over a pool of connections to PostgreSQL, a cache, a service inside, and the internet."""

    @tool(scopes={"invoices:read"}, read_only=True)
    async def list_invoices(context: ExecutionContext) -> list[Invoice]:
        """All invoices that you have received. The list may be a minute old."""
        key = _cache_key(context)
        if (cached := await cache.get(key)) is not None:
            return _invoice_list.validate_json(cached)
        async with invoices_of(pool, context) as connection:
            rows = await connection.fetch(f"{_SELECT} ORDER BY number")
        invoices = [Invoice(**row) for row in rows]
        await cache.set(key, _invoice_list.dump_json(invoices), ex=_CACHED_SECONDS)
        return invoices

    @tool(scopes={"invoices:read"}, read_only=True)
    async def get_invoice(number: str, context: ExecutionContext) -> Invoice:
        """One invoice. Throws if there is none of this number."""
        async with invoices_of(pool, context) as connection:
            row = await connection.fetchrow(f"{_SELECT} WHERE number = $1", number)
        if row is None:
            raise ToolError(f"there is no invoice {number!r}")
        return Invoice(**row)

    @tool(scopes={"invoices:pay"}, needs_approval=_is_large)
    async def pay_invoice(number: str, amount_cents: Amount, context: ExecutionContext) -> None:
        """Pays an invoice. Throws if it is paid already, or is not of this amount."""
        async with invoices_of(pool, context) as connection:
            paid = await connection.fetchval(
                "UPDATE invoices SET paid = true WHERE number = $1 AND amount_cents = $2 AND NOT paid RETURNING paid",
                number,
                amount_cents,
            )
        if not paid:
            raise ToolError(f"there is no unpaid invoice {number!r} of that amount")
        await cache.delete(_cache_key(context))

    @tool(rate_limit={"organization": "3/6s"}, read_only=True)
    async def exchange_rate(currency: Literal["CHF", "GBP", "SEK", "USD"]) -> float:
        """How much of a currency one euro buys."""
        response = await rates.get(f"/rates/{currency}")
        return response.raise_for_status().json()

    @tool(read_only=True)
    async def fetch_url(url: str) -> str:
        """The text of a public web page."""
        response = await internet.get(url)
        return response.raise_for_status().text

    return [list_invoices, get_invoice, pay_invoice, exchange_rate, fetch_url]


def _cache_key(context: ExecutionContext) -> str:
    return f"invoices:{organization_of(context)}"
