"""More tools of the programs in `valid`: a shop, an airline, a help desk, a disk, a log and a broker, of models and of raw schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import Enum
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from corral import Tool, ToolError, define_tool, tool

__all__ = ["SERVICES"]

# --- retail: pydantic models, dictionaries of models, a union in a dictionary


class Variant(BaseModel):
    item_id: str
    options: dict[str, str]
    available: bool
    price: float


class Product(BaseModel):
    name: str
    product_id: str
    variants: dict[str, Variant]


class PersonName(BaseModel):
    first_name: str
    last_name: str


class CreditCard(BaseModel):
    source: Literal["credit_card"]
    id: str
    brand: str
    last_four: str


class GiftCard(BaseModel):
    source: Literal["gift_card"]
    id: str
    balance: float


class Customer(BaseModel):
    user_id: str
    name: PersonName
    email: str
    payment_methods: dict[str, CreditCard | GiftCard]
    orders: list[str]


class OrderItem(BaseModel):
    name: str
    product_id: str
    item_id: str
    price: float
    qty: int
    options: dict[str, str]


class Payment(BaseModel):
    kind: Literal["payment", "refund"]
    amount: float
    payment_method_id: str


class RetailOrder(BaseModel):
    order_id: str
    user_id: str
    items: list[OrderItem]
    status: Literal["pending", "processed", "delivered", "cancelled"]
    payments: list[Payment]
    cancel_reason: Literal["no longer needed", "ordered by mistake"] | None = None


def _variant(item_id: str, color: str, price: float, available: bool = True) -> Variant:
    return Variant(item_id=item_id, options={"color": color, "size": "L"}, available=available, price=price)


_PRODUCTS = {
    "p1": Product(
        name="T-Shirt",
        product_id="p1",
        variants={"i1": _variant("i1", "blue", 20.5), "i2": _variant("i2", "red", 19, False)},
    ),
    "p2": Product(name="Lamp", product_id="p2", variants={"i3": _variant("i3", "white", 80)}),
}
_CUSTOMERS = {
    "ada_1": Customer(
        user_id="ada_1",
        name=PersonName(first_name="Ada", last_name="Berg"),
        email="ada@example.com",
        payment_methods={
            "cc1": CreditCard(source="credit_card", id="cc1", brand="visa", last_four="1234"),
            "gc1": GiftCard(source="gift_card", id="gc1", balance=50),
        },
        orders=["o1", "o2"],
    ),
    "bo_2": Customer(
        user_id="bo_2",
        name=PersonName(first_name="Bo", last_name="Dal"),
        email="bo@example.com",
        payment_methods={},
        orders=["o3"],
    ),
}


def _item(name: str, product: str, item: str, price: float, qty: int) -> OrderItem:
    return OrderItem(name=name, product_id=product, item_id=item, price=price, qty=qty, options={"color": "blue"})


def _paid(amount: float) -> list[Payment]:
    return [Payment(kind="payment", amount=amount, payment_method_id="cc1")]


_SHIRTS, _LAMP = _item("T-Shirt", "p1", "i1", 20.5, 2), _item("Lamp", "p2", "i3", 80, 1)
_RETAIL_ORDERS = {
    "o1": RetailOrder(order_id="o1", user_id="ada_1", items=[_SHIRTS, _LAMP], status="delivered", payments=_paid(121)),
    "o2": RetailOrder(order_id="o2", user_id="ada_1", items=[_LAMP], status="pending", payments=_paid(80)),
    "o3": RetailOrder(order_id="o3", user_id="bo_2", items=[_SHIRTS], status="pending", payments=[]),
}


@tool(namespace="retail")
async def find_customer(email: str) -> str:
    """The id of the customer with an address."""
    for each in _CUSTOMERS.values():
        if each.email == email:
            return each.user_id
    raise ToolError("no such customer")


@tool(namespace="retail")
async def get_customer(user_id: str) -> Customer:
    """A customer."""
    return _CUSTOMERS[user_id]


@tool(namespace="retail")
async def all_customers() -> dict[str, Customer]:
    """All customers, by id."""
    return _CUSTOMERS


@tool(namespace="retail")
async def order_details(order_id: str) -> RetailOrder:
    """An order."""
    if order_id not in _RETAIL_ORDERS:
        raise ToolError(f"no order {order_id}")
    return _RETAIL_ORDERS[order_id]


@tool(namespace="retail")
async def product_details(product_id: str) -> Product:
    """A product with its variants."""
    return _PRODUCTS[product_id]


@tool(namespace="retail")
async def product_types() -> str:
    """A JSON text: ids by name."""
    return '{"T-Shirt": "p1", "Lamp": "p2"}'


@tool(namespace="retail")
async def cancel_order(order_id: str, reason: Literal["no longer needed", "ordered by mistake"]) -> RetailOrder:
    """Cancels a pending order."""
    return _RETAIL_ORDERS[order_id].model_copy(update={"status": "cancelled", "cancel_reason": reason})


@tool(namespace="retail")
async def exchange(order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str) -> RetailOrder:
    """Exchanges items of an order."""
    return _RETAIL_ORDERS[order_id]


# --- airline: TypedDicts, a union by status, tuples, nullable members


class OnTime(TypedDict):
    status: Literal["on time"]
    departure: str


class Delayed(TypedDict):
    status: Literal["delayed"]
    departure: str
    minutes: int


class Cancelled(TypedDict):
    status: Literal["cancelled"]


FlightStatus: TypeAlias = OnTime | Delayed | Cancelled


class Flight(TypedDict):
    flight_number: str
    origin: str
    destination: str
    prices: dict[Literal["economy", "business"], int]
    seats: dict[str, int]
    gate: str | None


class Passenger(TypedDict):
    first_name: str
    last_name: str
    dob: str


class Reservation(TypedDict):
    reservation_id: str
    cabin: Literal["economy", "business"]
    flights: list[Flight]
    passengers: list[Passenger]
    insurance: Literal["yes", "no"]
    baggage: int | None


def _flight(number: str, origin: str, destination: str, price: int, gate: str | None = None) -> Flight:
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "prices": {"economy": price, "business": price * 3},
        "seats": {"economy": 9, "business": 2},
        "gate": gate,
    }


_FLIGHTS = [
    _flight("HAT1", "JFK", "SEA", 120, "B4"),
    _flight("HAT2", "SEA", "SFO", 80),
    _flight("HAT3", "JFK", "SEA", 99),
]


@tool(namespace="air")
async def search_flights(origin: str, destination: str, date: str) -> list[Flight]:
    """Direct flights."""
    return [each for each in _FLIGHTS if (each["origin"], each["destination"]) == (origin, destination)]


@tool(namespace="air")
async def one_stop(origin: str, destination: str, date: str) -> list[tuple[Flight, Flight]]:
    """Pairs of flights."""
    return [(_FLIGHTS[0], _FLIGHTS[1]), (_FLIGHTS[2], _FLIGHTS[1])]


@tool(namespace="air")
async def flight_status(flight_number: str) -> FlightStatus:
    """How it goes with a flight."""
    match flight_number:
        case "HAT1":
            return {"status": "delayed", "departure": "06:00", "minutes": 30}
        case "HAT2":
            return {"status": "cancelled"}
        case _:
            return {"status": "on time", "departure": "07:00"}


@tool(namespace="air")
async def get_reservation(reservation_id: str) -> Reservation | None:
    """A reservation, or null."""
    if reservation_id != "R1":
        return None
    return {
        "reservation_id": "R1",
        "cabin": "economy",
        "flights": [_FLIGHTS[0]],
        "passengers": [{"first_name": "Ada", "last_name": "Berg", "dob": "1990-01-02"}],
        "insurance": "no",
        "baggage": None,
    }


@tool(namespace="air")
async def book(
    user_id: str,
    cabin: Literal["economy", "business"],
    flights: list[str],
    passengers: list[Passenger],
    baggage: int = 0,
    notes: list[str | None] | None = None,
) -> dict[str, Any]:
    """Books flights."""
    return {"reservation_id": "R2", "cabin": cabin, "flights": flights, "total": 100 * len(passengers)}


# --- desk: raw schemas, open and closed

_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
_AGENT = {"type": "object", "properties": {"id": _INTEGER, "name": _TEXT}, "required": ["id", "name"]}
_TICKET = {
    "type": "object",
    "properties": {
        "id": _INTEGER,
        "subject": _TEXT,
        "priority": {"enum": ["low", "normal", "high", "urgent"]},
        "status": {"enum": ["new", "open", "pending", "solved"]},
        "assignee": {"anyOf": [_AGENT, {"type": "null"}]},
        "tags": {"type": "array", "items": _TEXT},
        "due": _TEXT,
        "fields": {"type": "object", "additionalProperties": _TEXT},
    },
    "required": ["id", "subject", "priority", "status", "assignee", "tags", "fields"],
    "additionalProperties": False,
}
_TICKETS: list[dict[str, Any]] = [
    {"id": 1, "subject": "No heat", "priority": "high", "status": "open", "assignee": {"id": 7, "name": "Ada"}, "tags": ["heat"], "fields": {"floor": "2"}},
    {"id": 2, "subject": "Wet floor", "priority": "low", "status": "new", "assignee": None, "tags": [], "due": "2026-03-01", "fields": {}},
    {"id": 3, "subject": "Dark stairs", "priority": "urgent", "status": "open", "assignee": {"id": 8, "name": "Bo"}, "tags": ["light", "stairs"], "fields": {}},
]  # fmt: skip


async def _search_tickets(input: dict[str, Any]) -> dict[str, Any]:
    wanted = input.get("status")
    found = [each for each in _TICKETS if wanted in (None, each["status"])]
    return {"results": found, "count": len(found), "next_page": None}


async def _get_ticket(input: dict[str, Any]) -> dict[str, Any]:
    number: int = input["ticket_id"]
    return _TICKETS[number - 1]


async def _update_ticket(input: dict[str, Any]) -> dict[str, Any]:
    number: int = input["ticket_id"]
    return {"ok": True, "ticket": _TICKETS[number - 1] | input.get("changes", {})}


search_tickets = define_tool(
    name="search_tickets",
    description="Tickets with a text.",
    input_schema={
        "type": "object",
        "properties": {"query": _TEXT, "status": {"enum": ["new", "open", "pending", "solved"]}, "page": _INTEGER},
        "required": ["query"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "results": {"type": "array", "items": _TICKET},
            "count": _INTEGER,
            "next_page": {"type": ["integer", "null"]},
        },
        "required": ["results", "count", "next_page"],
    },
    execute=_search_tickets,
)
get_ticket = define_tool(
    name="get_ticket",
    description="One ticket.",
    input_schema={"type": "object", "properties": {"ticket_id": _INTEGER}, "required": ["ticket_id"]},
    output_schema=_TICKET,
    execute=_get_ticket,
)
update_ticket = define_tool(
    name="update_ticket",
    description="Changes a ticket.",
    input_schema={
        "type": "object",
        "properties": {
            "ticket_id": _INTEGER,
            "changes": {"type": "object", "properties": {"status": _TEXT, "priority": _TEXT}},
        },
        "required": ["ticket_id", "changes"],
    },
    output_schema={
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "ticket": _TICKET, "error": _TEXT},
        "required": ["ok"],
    },
    execute=_update_ticket,
)

# --- disk: a recursive type


class Node(BaseModel):
    name: str
    kind: Literal["file", "folder"]
    size: int | None = None
    children: list[Node] = Field(default_factory=list)


@tool(namespace="disk")
async def tree(path: str = "/") -> Node:
    """What is below a path."""
    leaf = Node(name="a.txt", kind="file", size=10)
    inner = Node(name="docs", kind="folder", children=[leaf, Node(name="b.txt", kind="file", size=32)])
    return Node(name="/", kind="folder", children=[inner, Node(name="c.bin", kind="file", size=4)])


@tool(namespace="disk")
async def read_json(path: str) -> str:
    """The text of a JSON file."""
    return '{"version": 2, "users": [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}], "flags": {"beta": true}}'


@tool(namespace="disk")
async def owners() -> dict[str, dict[str, list[str]]]:
    """Who may do what: user, right, paths."""
    return {"ada": {"read": ["/"], "write": ["/docs"]}, "bo": {"read": ["/docs"]}}


# --- log: a stream, an enum, a tool that gives nothing


class Severity(Enum):
    SEVERE = "severe"
    IN_REVIEW = "in-review"


class Line(BaseModel):
    text: str
    severity: Severity


@tool(namespace="log", stream=True)
async def tail(lines: int = 2) -> AsyncIterator[Line]:
    """The last lines."""
    for number in range(lines):
        yield Line(text=f"line {number}", severity=Severity.IN_REVIEW)


@tool(namespace="log")
async def note(text: str, severity: Severity = Severity.IN_REVIEW) -> None:
    """Adds a line."""


# --- broker: dictionaries, tuples, numbers


class Position(TypedDict):
    symbol: str
    shares: int
    price: float
    lots: list[tuple[str, int]]


class Account(BaseModel):
    account_id: int
    balance: float
    positions: dict[str, Position]
    watch: list[str]
    last_order: dict[str, str] | None = None


@tool(namespace="broker")
async def account() -> Account:
    """The account."""
    return Account(
        account_id=5,
        balance=1000.5,
        positions={
            "AAA": {"symbol": "AAA", "shares": 10, "price": 5.5, "lots": [("2026-01-01", 4), ("2026-02-01", 6)]},
            "BBB": {"symbol": "BBB", "shares": 2, "price": 100, "lots": []},
        },
        watch=["CCC", "AAA"],
    )


@tool(namespace="broker")
async def quote(symbol: str) -> Position | None:
    """What a share costs."""
    prices = {"AAA": 6.0, "BBB": 90.0, "CCC": 12.25}
    if symbol not in prices:
        return None
    return {"symbol": symbol, "shares": 0, "price": prices[symbol], "lots": []}


@tool(namespace="broker")
async def place_order(
    symbol: str, side: Literal["buy", "sell"], amount: int, limit: float | None = None
) -> dict[str, Any]:
    """Places an order."""
    return {"order_id": 77, "symbol": symbol, "side": side, "amount": amount, "status": "open"}


SERVICES: list[Tool] = [
    find_customer,
    get_customer,
    all_customers,
    order_details,
    product_details,
    product_types,
    cancel_order,
    exchange,
    search_flights,
    one_stop,
    flight_status,
    get_reservation,
    book,
    search_tickets,
    get_ticket,
    update_ticket,
    tree,
    read_json,
    owners,
    tail,
    note,
    account,
    quote,
    place_order,
]
