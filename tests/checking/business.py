"""Tools of the kinds that agents are given: a shop's orders, flights, tickets, files, trading, a calendar.

Some are known by schemas alone, open ones and closed ones, some by pydantic models, some by TypedDicts. Without state.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from corral import Tool, ToolError, define_tool, tool

__all__ = ["BUSINESS"]

Schema = dict[str, Any]
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _object(
    members: Mapping[str, Schema], *, optional: tuple[str, ...] = (), more: bool | Schema | None = None
) -> Schema:
    """An object. `more`: its `additionalProperties`."""
    required = [name for name in members if name not in optional]
    described: Schema = {"type": "object", "properties": dict(members), "required": required}
    return described if more is None else described | {"additionalProperties": more}


def _by_id(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_NUMBER: Schema = {"type": "number"}
_INTEGER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}


def _known_by_schema(
    name: str,
    input: Mapping[str, Schema],
    output: Schema | None,
    answer: Callable[[dict[str, Any]], Any],
    *,
    optional: tuple[str, ...] = (),
    namespace: str | None = None,
) -> Tool:
    async def execute(given: dict[str, Any]) -> Any:
        return copy.deepcopy(answer(given))

    execute_: Callable[[Any], Awaitable[Any]] = execute
    return define_tool(
        name=name,
        namespace=namespace,
        description=name.replace("_", " ").capitalize() + ".",
        input_schema=_object(input, optional=optional, more=False),
        output_schema=output,
        execute=execute_,
    )


# --- a shop: schemas that say nothing of other members

_ADDRESS = _object({"address1": _text(), "address2": _text(), "city": _text(), "state": _text(), "zip": _text()})
_ITEM = _object(
    {"name": _text(), "product_id": _text(), "item_id": _text(), "price": _NUMBER, "options": _by_id(_text())}
)
_PAYMENT = _object(
    {
        "transaction_type": _text(enum=["payment", "refund"]),
        "amount": _NUMBER,
        "payment_method_id": _text(),
    }
)
_ORDER = _object(
    {
        "order_id": _text(),
        "user_id": _text(),
        "address": _ADDRESS,
        "items": _list(_ITEM),
        "status": _text(enum=["pending", "processed", "delivered", "cancelled"]),
        "payment_history": _list(_PAYMENT),
        "cancel_reason": _or_null(_text()),
        "note": _text(),
    },
    optional=("cancel_reason", "note"),
)
_METHOD = _object(
    {
        "source": _text(enum=["credit_card", "gift_card", "paypal"]),
        "id": _text(),
        "balance": _NUMBER,
        "last_four": _text(),
    },
    optional=("balance", "last_four"),
)
_USER = _object(
    {
        "user_id": _text(),
        "name": _object({"first_name": _text(), "last_name": _text()}),
        "email": _text(),
        "address": _ADDRESS,
        "payment_methods": _by_id(_METHOD),
        "orders": _list(_text()),
    }
)
_VARIANT = _object({"item_id": _text(), "options": _by_id(_text()), "available": _FLAG, "price": _NUMBER})
_PRODUCT = _object({"name": _text(), "product_id": _text(), "variants": _by_id(_VARIANT)})


def _at(city: str, state: str, zip: str) -> dict[str, str]:
    return {"address1": "1 Hill Street", "address2": "", "city": city, "state": state, "zip": zip}


def _bought(name: str, product: str, item: str, price: float, **options: str) -> dict[str, Any]:
    return {"name": name, "product_id": product, "item_id": item, "price": price, "options": options}


def _sold(order_id: str, user: str, status: str, *items: dict[str, Any], **more: Any) -> dict[str, Any]:
    paid = {
        "transaction_type": "payment",
        "amount": sum(each["price"] for each in items),
        "payment_method_id": "card_1",
    }
    return {
        "order_id": order_id,
        "user_id": user,
        "address": _at("Oslo", "NO", "0150"),
        "items": list(items),
        "status": status,
        "payment_history": [paid],
        **more,
    }


_ORDERS = {
    each["order_id"]: each
    for each in (
        _sold(
            "#W1",
            "ada_berg_1",
            "pending",
            _bought("Lamp", "p1", "i1", 20.0, color="red"),
            _bought("Desk", "p2", "i4", 199.5),
        ),
        _sold("#W2", "ada_berg_1", "delivered", _bought("Lamp", "p1", "i2", 25.0, color="blue"), note="Ring twice"),
        _sold(
            "#W3",
            "bo_dal_2",
            "cancelled",
            _bought("Desk", "p2", "i4", 199.5, size="L"),
            cancel_reason="no longer needed",
        ),
    )
}
_USERS = {
    "ada_berg_1": {
        "user_id": "ada_berg_1",
        "name": {"first_name": "Ada", "last_name": "Berg"},
        "email": "ada@example.org",
        "address": _at("Oslo", "NO", "0150"),
        "payment_methods": {
            "card_1": {"source": "credit_card", "id": "card_1", "last_four": "1111"},
            "gift_1": {"source": "gift_card", "id": "gift_1", "balance": 75.5},
        },
        "orders": ["#W1", "#W2"],
    },
    "bo_dal_2": {
        "user_id": "bo_dal_2",
        "name": {"first_name": "Bo", "last_name": "Dal"},
        "email": "bo@example.org",
        "address": _at("Bergen", "NO", "5003"),
        "payment_methods": {},
        "orders": ["#W3"],
    },
}
_PRODUCTS = {
    "p1": {
        "name": "Lamp",
        "product_id": "p1",
        "variants": {
            "i1": {"item_id": "i1", "options": {"color": "red"}, "available": True, "price": 20.0},
            "i2": {"item_id": "i2", "options": {"color": "blue"}, "available": True, "price": 25.0},
            "i3": {"item_id": "i3", "options": {"color": "green"}, "available": False, "price": 18.0},
        },
    },
    "p2": {
        "name": "Desk",
        "product_id": "p2",
        "variants": {"i4": {"item_id": "i4", "options": {"size": "L"}, "available": True, "price": 199.5}},
    },
}


def _found(table: Mapping[str, Any], key: str) -> Any:
    if key not in table:
        raise ToolError(f"{key} not found")
    return table[key]


def _changed(given: dict[str, Any]) -> dict[str, Any]:
    order = copy.deepcopy(_found(_ORDERS, given["order_id"]))
    return order | {"address": {each: given[each] for each in _ADDRESS["properties"]}}


_SHOP = [
    _known_by_schema(
        "get_order_details", {"order_id": _text()}, _ORDER, lambda given: _found(_ORDERS, given["order_id"])
    ),
    _known_by_schema("get_user_details", {"user_id": _text()}, _USER, lambda given: _found(_USERS, given["user_id"])),
    _known_by_schema(
        "get_product_details", {"product_id": _text()}, _PRODUCT, lambda given: _found(_PRODUCTS, given["product_id"])
    ),
    _known_by_schema(
        "list_all_product_types", {}, _by_id(_text()), lambda _: {each["name"]: id for id, each in _PRODUCTS.items()}
    ),
    _known_by_schema("list_users", {}, _list(_USER), lambda _: list(_USERS.values())),
    _known_by_schema(
        "find_user_id_by_email",
        {"email": _text()},
        _or_null(_text()),
        lambda given: next((id for id, each in _USERS.items() if each["email"] == given["email"]), None),
    ),
    _known_by_schema(
        "modify_pending_order_address",
        {"order_id": _text(), **_ADDRESS["properties"]},
        _ORDER,
        _changed,
    ),
    _known_by_schema(
        "exchange_items",
        {"order_id": _text(), "item_ids": _list(_text()), "new_item_ids": _list(_text()), "payment_method_id": _text()},
        _ORDER,
        lambda given: _found(_ORDERS, given["order_id"]),
    ),
    _known_by_schema("calculate", {"expression": _text()}, _text(), lambda given: str(len(given["expression"]))),
]

# --- flights: models that take no other members, and a union of them


class Exact(BaseModel):
    """Takes no other members."""

    model_config = ConfigDict(extra="forbid")


class Flight(Exact):
    flight_number: str
    origin: str
    destination: str
    date: date
    price: float
    seats: dict[Literal["economy", "business"], int]


class Passenger(Exact):
    first_name: str
    last_name: str
    dob: date | None = None


class CreditCard(Exact):
    source: Literal["credit_card"]
    id: str
    brand: str


class Certificate(Exact):
    source: Literal["certificate"]
    id: str
    amount: float


class Reservation(Exact):
    reservation_id: str
    user_id: str
    cabin: Literal["economy", "business"]
    flights: list[Flight]
    passengers: list[Passenger]
    payment: CreditCard | Certificate
    total_baggages: int
    insurance: bool | None = None
    status: Literal["cancelled"] | None = None


def _flight(number: str, origin: str, destination: str, price: float, day: int) -> Flight:
    return Flight(
        flight_number=number,
        origin=origin,
        destination=destination,
        date=date(2026, 5, day),
        price=price,
        seats={"economy": 12, "business": 0},
    )


_FLIGHTS = [
    _flight("HAT001", "OSL", "BGO", 99.0, 15),
    _flight("HAT002", "OSL", "BGO", 79.0, 16),
    _flight("HAT003", "BGO", "OSL", 120.0, 20),
]
_RESERVATIONS = [
    Reservation(
        reservation_id="R1",
        user_id="ada_berg_1",
        cabin="economy",
        flights=[_FLIGHTS[0], _FLIGHTS[2]],
        passengers=[Passenger(first_name="Ada", last_name="Berg", dob=date(1990, 2, 3))],
        payment=CreditCard(source="credit_card", id="card_1", brand="visa"),
        total_baggages=1,
    ),
    Reservation(
        reservation_id="R2",
        user_id="bo_dal_2",
        cabin="business",
        flights=[_FLIGHTS[1]],
        passengers=[Passenger(first_name="Bo", last_name="Dal"), Passenger(first_name="Cy", last_name="Eng")],
        payment=Certificate(source="certificate", id="cert_2", amount=250.0),
        total_baggages=3,
        insurance=True,
        status="cancelled",
    ),
]


@tool(namespace="airline")
async def search_flights(origin: str, destination: str, on: date | None = None) -> list[Flight]:
    """Direct flights."""
    return [
        each
        for each in _FLIGHTS
        if (each.origin, each.destination) == (origin, destination) and on in (None, each.date)
    ]


@tool(namespace="airline")
async def get_reservation(reservation_id: str) -> Reservation:
    """One reservation; throws if there is none."""
    for each in _RESERVATIONS:
        if each.reservation_id == reservation_id:
            return each
    raise ToolError(f"no reservation {reservation_id}")


@tool(namespace="airline")
async def list_reservations(user_id: str | None = None) -> list[Reservation]:
    """The reservations of a user, or all."""
    return [each for each in _RESERVATIONS if user_id in (None, each.user_id)]


@tool(namespace="airline")
async def update_baggages(
    reservation_id: str, total_baggages: Annotated[int, Field(ge=0)], payment_id: str | None = None
) -> Reservation:
    """Changes how many bags there are."""
    found = await get_reservation(reservation_id=reservation_id)
    return found.model_copy(update={"total_baggages": total_baggages})


@tool(namespace="airline")
async def book(
    user_id: str,
    flight_numbers: list[str],
    passengers: list[Passenger],
    cabin: Literal["economy", "business"] = "economy",
) -> Reservation:
    """Books flights."""
    chosen = [each for each in _FLIGHTS if each.flight_number in flight_numbers]
    made = _RESERVATIONS[0].model_copy(update={"reservation_id": "R9", "user_id": user_id, "cabin": cabin})
    return made.model_copy(update={"flights": chosen, "passengers": passengers})


# --- tickets: TypedDicts with members that may be missing, and nulls


class Person(TypedDict):
    id: int
    name: str
    email: str | None


class Reply(TypedDict):
    author: Person
    text: str
    at: datetime


class Ticket(TypedDict):
    id: int
    title: str
    status: Literal["open", "pending", "solved"]
    priority: Literal["low", "normal", "high"] | None
    requester: Person
    assignee: Person | None
    tags: list[str]
    replies: list[Reply]
    fields: dict[str, str | int | None]
    due: NotRequired[datetime]
    parent: NotRequired[int | None]


class TicketPage(TypedDict):
    results: list[Ticket]
    count: int
    next_page: int | None


_ANN: Person = {"id": 1, "name": "Ann", "email": "ann@example.org"}
_BEN: Person = {"id": 2, "name": "Ben", "email": None}


def _ticket(id: int, title: str, status: str, **more: Any) -> Ticket:
    ticket: dict[str, Any] = {
        "id": id,
        "title": title,
        "status": status,
        "priority": None,
        "requester": _ANN,
        "assignee": None,
        "tags": [],
        "replies": [],
        "fields": {},
    }
    return ticket | more  # pyright: ignore[reportReturnType]


_TICKETS = [
    _ticket(
        1,
        "Cannot log in",
        "open",
        priority="high",
        tags=["login", "web"],
        assignee=_BEN,
        fields={"team": "web", "level": 2},
    ),
    _ticket(2, "Refund", "pending", requester=_BEN, due=NOW + timedelta(days=2), parent=1),
    _ticket(3, "Typo", "solved", priority="low", replies=[{"author": _BEN, "text": "Done", "at": NOW}], parent=None),
]


@tool(namespace="tickets")
async def search(
    query: str = "", status: Literal["open", "pending", "solved"] | None = None, page: int = 1
) -> TicketPage:
    """Tickets with a text in their title, two at a time."""
    found = [each for each in _TICKETS if query.lower() in each["title"].lower() and status in (None, each["status"])]
    more = page * 2 < len(found)
    return {"results": found[page * 2 - 2 : page * 2], "count": len(found), "next_page": page + 1 if more else None}


@tool(namespace="tickets")
async def get(id: int) -> Ticket | None:
    """One ticket, or null."""
    return next((each for each in _TICKETS if each["id"] == id), None)


@tool(namespace="tickets")
async def update(
    id: int,
    status: Literal["open", "pending", "solved"] | None = None,
    priority: Literal["low", "normal", "high"] | None = None,
    tags: list[str] | None = None,
    fields: dict[str, str | int | None] | None = None,
) -> Ticket:
    """Changes a ticket."""
    found = await get(id=id)
    if found is None:
        raise ToolError(f"no ticket {id}")
    changes = {"status": status, "priority": priority, "tags": tags, "fields": fields}
    return found | {name: each for name, each in changes.items() if each is not None}  # pyright: ignore[reportReturnType]


@tool(namespace="tickets")
async def reply(id: int, text: str, public: bool = True) -> Reply:
    """Answers a ticket."""
    return {"author": _ANN, "text": text, "at": NOW}


# --- files: an open schema that holds itself

_NODE: Schema = {
    "type": "object",
    "properties": {
        "name": _text(),
        "path": _text(),
        "kind": _text(enum=["file", "directory"]),
        "size": _INTEGER,
        "children": _list({"$ref": "#/$defs/node"}),
        "owner": _or_null(_object({"name": _text()}, more=True)),
    },
    "required": ["name", "path", "kind"],
    "additionalProperties": True,
}
_TREE: Schema = {"$ref": "#/$defs/node", "$defs": {"node": _NODE}}
_ROOT = {
    "name": "home",
    "path": "/home",
    "kind": "directory",
    "mode": "rwx",
    "owner": {"name": "ada", "group": "staff"},
    "children": [
        {"name": "notes.txt", "path": "/home/notes.txt", "kind": "file", "size": 12, "owner": None, "mode": "rw"},
        {
            "name": "src",
            "path": "/home/src",
            "kind": "directory",
            "mode": "rwx",
            "children": [{"name": "main.py", "path": "/home/src/main.py", "kind": "file", "size": 120, "mode": "rw"}],
        },
    ],
}
_CONTENT = {"/home/notes.txt": '{"todo": ["a", "b"]}', "/home/src/main.py": "import os\nprint('hi')\n"}
_FILES = [
    _known_by_schema("tree", {"path": _text()}, _TREE, lambda _: _ROOT, optional=("path",), namespace="fs"),
    _known_by_schema("cat", {"path": _text()}, _text(), lambda given: _found(_CONTENT, given["path"]), namespace="fs"),
    _known_by_schema(
        "find",
        {"path": _text(), "name": _text()},
        _object({"matches": _list(_text()), "skipped": _list(_text())}, optional=("skipped",), more=True),
        lambda given: {"matches": [each for each in _CONTENT if given["name"] in each], "took_ms": 3},
        optional=("path",),
        namespace="fs",
    ),
    _known_by_schema(
        "wc",
        {"path": _text(), "mode": _text(enum=["l", "w", "c"])},
        _object({"count": _INTEGER, "type": _text()}, more=True),
        lambda given: {"count": len(_CONTENT[given["path"]].split()), "type": "words"},
        optional=("mode",),
        namespace="fs",
    ),
]

# --- trading: closed schemas, and answers of several shapes

_QUOTE = _object(
    {
        "symbol": _text(),
        "price": _NUMBER,
        "percent_change": _NUMBER,
        "volume": _INTEGER,
        "market_cap": _or_null(_NUMBER),
    },
    more=False,
)
_TRADE = _object(
    {
        "id": _INTEGER,
        "symbol": _text(),
        "side": _text(enum=["buy", "sell"]),
        "price": _NUMBER,
        "amount": _INTEGER,
        "status": _text(enum=["open", "completed", "cancelled"]),
    },
    more=False,
)
_FAILURE = _object({"error": _text()}, more=False)
_QUOTES = {
    "ACME": {"symbol": "ACME", "price": 12.5, "percent_change": -1.2, "volume": 1000, "market_cap": 1e6},
    "HILL": {"symbol": "HILL", "price": 99.0, "percent_change": 3.4, "volume": 20, "market_cap": None},
}
_TRADES = [
    {"id": 1, "symbol": "ACME", "side": "buy", "price": 12.0, "amount": 10, "status": "open"},
    {"id": 2, "symbol": "HILL", "side": "sell", "price": 98.0, "amount": 3, "status": "completed"},
    {"id": 3, "symbol": "ACME", "side": "sell", "price": 13.0, "amount": 4, "status": "completed"},
]
_TRADING = [
    _known_by_schema(
        "get_stock_info",
        {"symbol": _text()},
        {"oneOf": [_QUOTE, _FAILURE]},
        lambda given: _QUOTES.get(given["symbol"], {"error": f"no {given['symbol']}"}),
        namespace="trading",
    ),
    _known_by_schema(
        "get_quote", {"symbol": _text()}, _QUOTE, lambda given: _found(_QUOTES, given["symbol"]), namespace="trading"
    ),
    _known_by_schema(
        "get_watchlist",
        {},
        _object({"watchlist": _list(_text())}, more=False),
        lambda _: {"watchlist": ["ACME", "HILL"]},
        namespace="trading",
    ),
    _known_by_schema(
        "get_trades",
        {"symbol": _text()},
        _list(_TRADE),
        lambda given: [each for each in _TRADES if given.get("symbol") in (None, each["symbol"])],
        optional=("symbol",),
        namespace="trading",
    ),
    _known_by_schema(
        "place_order",
        {"side": _text(enum=["buy", "sell"]), "symbol": _text(), "price": _NUMBER, "amount": _INTEGER},
        _TRADE,
        lambda given: {"id": 4, "status": "open", **given},
        namespace="trading",
    ),
    _known_by_schema(
        "get_portfolio",
        {},
        _object(
            {
                "cash": _NUMBER,
                "holdings": _by_id(_object({"shares": _INTEGER, "cost": _NUMBER}, more=False)),
                "history": _by_id(_list(_NUMBER)),
            },
            more=False,
        ),
        lambda _: {
            "cash": 500.0,
            "holdings": {"ACME": {"shares": 10, "cost": 11.5}},
            "history": {"ACME": [11.0, 12.0, 12.5]},
        },
        namespace="trading",
    ),
]

# --- a calendar: models with times, and a tool of which nothing is known


class Attendee(BaseModel):
    email: str
    response: Literal["yes", "no", "maybe"] | None = None


class Meeting(BaseModel):
    id: str
    title: str
    start: datetime
    end: datetime
    location: str | None = None
    attendees: list[Attendee] = []
    reminders: dict[str, int] = {}


_MEETINGS = [
    Meeting(
        id="m1",
        title="Standup",
        start=NOW,
        end=NOW + timedelta(minutes=15),
        attendees=[Attendee(email="ann@example.org", response="yes"), Attendee(email="ben@example.org")],
    ),
    Meeting(
        id="m2",
        title="Review",
        start=NOW + timedelta(hours=3),
        end=NOW + timedelta(hours=4),
        location="Room 1",
        reminders={"mail": 10},
    ),
]


@tool(namespace="calendar")
async def meetings(day: date | None = None, person: str | None = None) -> list[Meeting]:
    """The meetings of a day, or all."""
    return [each for each in _MEETINGS if person is None or person in [who.email for who in each.attendees]]


@tool(namespace="calendar")
async def schedule(
    title: str, start: datetime, end: datetime, attendees: list[str] | None = None, location: str | None = None
) -> Meeting:
    """Makes a meeting."""
    return Meeting(
        id="m9",
        title=title,
        start=start,
        end=end,
        location=location,
        attendees=[Attendee(email=each) for each in attendees or ()],
    )


@tool(namespace="calendar")
async def busy(people: list[str]) -> dict[str, list[tuple[datetime, datetime]]]:
    """When people are busy."""
    return {each: [(NOW, NOW + timedelta(hours=1))] for each in people}


async def _raw(input: Any) -> Any:
    return {"ok": True, "received": input, "rows": [{"a": 1, "b": [2, 3]}]}


raw = define_tool(name="raw", description="Something that says nothing of its answers.", execute=_raw)

BUSINESS: list[Tool] = [
    *_SHOP,
    search_flights,
    get_reservation,
    list_reservations,
    update_baggages,
    book,
    search,
    get,
    update,
    reply,
    *_FILES,
    *_TRADING,
    meetings,
    schedule,
    busy,
    raw,
]
