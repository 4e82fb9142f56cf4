"""What programs may do. Who asks is in the `ExecutionContext` that corral passes in; no program can name it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from corral import ApprovalRequest, ExecutionContext, Later, Tool, ToolError, tool
from corral.egress import SafeClient
from corral.errors import ApprovalDenied
from pydantic import Field, TypeAdapter
from redis.asyncio import Redis
from typing_extensions import TypedDict

from database import invoices_of, organization_of
from mail import MailServer, is_inside

__all__ = ["approve", "approve_unattended", "invoice_tools"]

Amount = Annotated[int, Field(gt=0, lt=2**31)]
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,255}$")]
Subject = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}$")]
"""One line: a second one would be a header of the program's own."""

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


def _is_to_outside(input: dict[str, Any], context: ExecutionContext) -> bool:
    return not is_inside(input["to"], context.organization_id)


async def approve(request: ApprovalRequest) -> bool | Later:
    """Decides about large payments by a rule. About mail to outside, the user decides, on the chat page."""
    if request.tool == "send_mail":
        return Later()
    if request.input["amount_cents"] <= _APPROVED_UP_TO_CENTS:
        return True
    raise ApprovalDenied(f"{request.context.organization_id} pays more than 5,000.00 by hand only")


async def approve_unattended(request: ApprovalRequest) -> bool | Later:
    """Decides as `approve` does, where nobody can be asked."""
    if isinstance(answer := await approve(request), Later):
        raise ApprovalDenied("mail to outside needs somebody who approves it, and nobody is there")
    return answer


def invoice_tools(
    pool: Any, cache: Redis, rates: SafeClient, internet: SafeClient, mail_server: MailServer
) -> list[Tool]:
    """The tools over a pool of connections to PostgreSQL, a cache, a service inside, the internet, and mail."""

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

    @tool(scopes={"mail:send"}, needs_approval=_is_to_outside, rate_limit={"organization": "20/minute"})
    async def send_mail(to: Address, subject: Subject, text: Annotated[str, Field(max_length=10_000)]) -> None:
        """Sends a message. The user is asked before one leaves the organization."""
        await mail_server.send(to, subject, text)

    return [list_invoices, get_invoice, pay_invoice, exchange_rate, fetch_url, send_mail]


def _cache_key(context: ExecutionContext) -> str:
    return f"invoices:{organization_of(context)}"
