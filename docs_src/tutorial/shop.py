from typing import Literal

from pydantic import BaseModel

from corral import Corral, ToolError, tool
from corral.ledger import SqliteLedger


class Order(BaseModel):
    customer: str
    total: float
    status: Literal["delivered", "damaged"]


ORDERS = {
    1001: Order(customer="Ada", total=40.0, status="delivered"),
    1002: Order(customer="Bo", total=15.5, status="damaged"),
    1003: Order(customer="Chiara", total=99.0, status="damaged"),
}


@tool
def list_orders() -> list[int]:
    """The numbers of all orders."""
    return list(ORDERS)


@tool
def get_order(order: int) -> Order:
    """The customer, total in EUR, and status of an order."""
    if order not in ORDERS:
        raise ToolError(f"there is no order {order}")
    return ORDERS[order]


@tool(needs_approval=True)
async def refund(order: int, amount: float) -> str:
    """Refunds an amount of an order, in EUR."""
    print(f"(the shop pays {amount} EUR for order {order})")
    return f"order {order}: {amount} EUR refunded"


TOOLS = [list_orders, get_order, refund]


def open_shop() -> Corral:
    return Corral(TOOLS, ledger=SqliteLedger("shop.db"))  # keys from CORRAL_LEDGER_KEYS
