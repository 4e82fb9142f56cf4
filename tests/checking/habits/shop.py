"""A shop and an airline: pydantic models, dataclasses and TypedDicts, dicts keyed by id, unions, texts."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from corral import ExecutionContext, ToolError, tool

__all__ = ["AIRLINE_TOOLS", "SHOP_TOOLS"]

# --- the shop: pydantic models


class Name(BaseModel):
    first_name: str
    last_name: str


class Address(BaseModel):
    street: str
    city: str
    country: str
    zip: str
    unit: str | None = None


class CreditCard(BaseModel):
    source: Literal["credit_card"]
    id: str
    brand: str
    last_four: str


class GiftCard(BaseModel):
    source: Literal["gift_card"]
    id: str
    balance: float


class Paypal(BaseModel):
    source: Literal["paypal"]
    id: str


PaymentMethod: TypeAlias = Annotated[CreditCard | GiftCard | Paypal, Field(discriminator="source")]


class User(BaseModel):
    user_id: str
    name: Name
    email: str
    address: Address
    payment_methods: dict[str, PaymentMethod] = Field(description="By their id.")
    orders: list[str] = Field(description="Ids of orders, oldest first.")
    loyalty: Literal["bronze", "silver", "gold"] | None = None


class Variant(BaseModel):
    item_id: str
    options: dict[str, str]
    available: bool
    price: float


class Product(BaseModel):
    product_id: str
    name: str
    variants: dict[str, Variant] = Field(description="By item id.")


class OrderItem(BaseModel):
    item_id: str
    product_id: str
    name: str
    price: float
    quantity: int = 1
    options: dict[str, str] = Field(default_factory=dict[str, str])


class Payment(BaseModel):
    type: Literal["payment", "refund"]
    amount: float
    payment_method_id: str


class Shipment(BaseModel):
    tracking_numbers: list[str]
    item_ids: list[str]


OrderStatus: TypeAlias = Literal["pending", "processed", "delivered", "cancelled", "being returned"]


class Order(BaseModel):
    order_id: str
    user_id: str
    status: OrderStatus
    address: Address
    items: list[OrderItem]
    payments: list[Payment]
    shipments: list[Shipment] = Field(default_factory=list[Shipment])
    placed_at: str
    cancel_reason: str | None = None
    return_items: list[str] | None = None


_OSLO = {"street": "Storgata 1", "city": "Oslo", "country": "NO", "zip": "0155"}
_BERGEN = {"street": "Bryggen 7", "city": "Bergen", "country": "NO", "zip": "5003", "unit": "2B"}

_USERS: list[dict[str, Any]] = [
    {
        "user_id": "mia_lund_4001",
        "name": {"first_name": "Mia", "last_name": "Lund"},
        "email": "mia.lund@example.com",
        "address": _OSLO,
        "payment_methods": {
            "credit_card_11": {"source": "credit_card", "id": "credit_card_11", "brand": "visa", "last_four": "4242"},
            "gift_card_12": {"source": "gift_card", "id": "gift_card_12", "balance": 60.0},
        },
        "orders": ["#W1001", "#W1002", "#W1003"],
        "loyalty": "gold",
    },
    {
        "user_id": "omar_haddad_4002",
        "name": {"first_name": "Omar", "last_name": "Haddad"},
        "email": "omar@example.com",
        "address": _BERGEN,
        "payment_methods": {"paypal_21": {"source": "paypal", "id": "paypal_21"}},
        "orders": ["#W1004"],
    },
]

_PRODUCTS: list[dict[str, Any]] = [
    {
        "product_id": "p100",
        "name": "Desk Lamp",
        "variants": {
            "i101": {
                "item_id": "i101",
                "options": {"color": "white", "power": "usb"},
                "available": True,
                "price": 39.5,
            },
            "i102": {
                "item_id": "i102",
                "options": {"color": "black", "power": "usb"},
                "available": True,
                "price": 42.0,
            },
            "i103": {
                "item_id": "i103",
                "options": {"color": "black", "power": "ac"},
                "available": False,
                "price": 45.0,
            },
        },
    },
    {
        "product_id": "p200",
        "name": "Water Bottle",
        "variants": {
            "i201": {"item_id": "i201", "options": {"size": "500ml"}, "available": True, "price": 18.0},
            "i202": {"item_id": "i202", "options": {"size": "1l"}, "available": True, "price": 24.0},
        },
    },
    {
        "product_id": "p300",
        "name": "Backpack",
        "variants": {
            "i301": {"item_id": "i301", "options": {"color": "green", "size": "M"}, "available": True, "price": 120.0},
            "i302": {"item_id": "i302", "options": {"color": "grey", "size": "L"}, "available": True, "price": 135.5},
        },
    },
]


def _item(item_id: str, quantity: int = 1) -> dict[str, Any]:
    for product in _PRODUCTS:
        if item_id in product["variants"]:
            variant = product["variants"][item_id]
            return {
                "item_id": item_id,
                "product_id": product["product_id"],
                "name": product["name"],
                "price": variant["price"],
                "quantity": quantity,
                "options": variant["options"],
            }
    raise ToolError(f"item {item_id} not found")


def _order(number: int, user: int, status: str, items: list[dict[str, Any]], method: str, day: int) -> dict[str, Any]:
    total = sum(item["price"] * item["quantity"] for item in items)
    shipped = status in ("delivered", "processed")
    return {
        "order_id": f"#W{number}",
        "user_id": _USERS[user]["user_id"],
        "status": status,
        "address": _USERS[user]["address"],
        "items": items,
        "payments": [{"type": "payment", "amount": total, "payment_method_id": method}],
        "shipments": [{"tracking_numbers": [f"T{number}"], "item_ids": [item["item_id"] for item in items]}]
        if shipped
        else [],
        "placed_at": f"2026-02-{day:02}T10:15:00Z",
    }


_ORDERS = [
    _order(1001, 0, "delivered", [_item("i101"), _item("i201", 2)], "credit_card_11", 3),
    _order(1002, 0, "pending", [_item("i301")], "gift_card_12", 20),
    _order(1003, 0, "pending", [_item("i102"), _item("i202")], "credit_card_11", 27),
    _order(1004, 1, "processed", [_item("i302")], "paypal_21", 25),
]


@dataclass
class _Shop:
    users: dict[str, User]
    orders: dict[str, Order]


_SHOPS: dict[str, _Shop] = {}
"""By session: each program finds the shop as it was."""


def _shop(context: ExecutionContext) -> _Shop:
    if context.session_id not in _SHOPS:
        users = TypeAdapter(list[User]).validate_python(_USERS)
        orders = TypeAdapter(list[Order]).validate_python(_ORDERS)
        _SHOPS[context.session_id] = _Shop({u.user_id: u for u in users}, {o.order_id: o for o in orders})
    return _SHOPS[context.session_id]


def _order_of(context: ExecutionContext, order_id: str, *statuses: str) -> Order:
    found = _shop(context).orders.get(order_id)
    if found is None:
        raise ToolError("Error: order not found")
    if statuses and found.status not in statuses:
        raise ToolError(f"Error: order {order_id} is {found.status}")
    return found


@tool(namespace="retail")
def look_up_user(email: str, *, context: ExecutionContext) -> str:
    """Finds a user's id by their e-mail address; fails if there is none."""
    for user in _shop(context).users.values():
        if user.email == email:
            return user.user_id
    raise ToolError("Error: user not found")


@tool(namespace="retail")
def get_user(user_id: str, *, context: ExecutionContext) -> User:
    """A user's details, with their orders' ids."""
    if user_id not in _shop(context).users:
        raise ToolError("Error: user not found")
    return _shop(context).users[user_id]


@tool(namespace="retail")
def get_order(order_id: str, *, context: ExecutionContext) -> Order:
    """An order's details.

    Args:
        order_id: Begins with "#", as in "#W1001".
    """
    return _order_of(context, order_id)


@tool(namespace="retail")
def get_product(product_id: str) -> Product:
    """A product with all its variants."""
    for product in _PRODUCTS:
        if product["product_id"] == product_id:
            return Product.model_validate(product)
    raise ToolError("Error: product not found")


@tool(namespace="retail")
def product_index() -> str:
    """The names and ids of all products, as JSON: an object from name to id."""
    return json.dumps({product["name"]: product["product_id"] for product in _PRODUCTS})


@tool(namespace="retail")
def cancel_order(
    order_id: str, reason: Literal["changed my mind", "wrong item"], *, context: ExecutionContext
) -> Order:
    """Cancels a pending order and refunds it."""
    order = _order_of(context, order_id, "pending")
    order.status, order.cancel_reason = "cancelled", reason
    order.payments += [each.model_copy(update={"type": "refund"}) for each in order.payments]
    return order


@tool(namespace="retail")
def return_items(
    order_id: str, item_ids: list[str], payment_method_id: str | None = None, *, context: ExecutionContext
) -> Order:
    """Asks for the return of some items of a delivered order.

    Args:
        payment_method_id: Gets the refund; by default the one that paid.
    """
    order = _order_of(context, order_id, "delivered")
    missing = set(item_ids) - {item.item_id for item in order.items}
    if missing:
        raise ToolError(f"Error: no such items: {', '.join(sorted(missing))}")
    order.status, order.return_items = "being returned", sorted(item_ids)
    return order


@tool(namespace="retail")
def modify_items(
    order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str, *, context: ExecutionContext
) -> Order:
    """Exchanges items of a pending order for other variants, one for one."""
    order = _order_of(context, order_id, "pending")
    if len(item_ids) != len(new_item_ids):
        raise ToolError("Error: the number of items does not match")
    for old, new in zip(item_ids, new_item_ids, strict=True):
        place = next((n for n, item in enumerate(order.items) if item.item_id == old), None)
        if place is None:
            raise ToolError(f"Error: {old} is not in the order")
        before, after = order.items[place], OrderItem.model_validate(_item(new))
        order.items[place] = after
        difference = round(after.price - before.price, 2)
        kind: Literal["payment", "refund"] = "payment" if difference > 0 else "refund"
        paid = Payment(type=kind, amount=abs(difference), payment_method_id=payment_method_id)
        order.payments.append(paid)
    return order


@tool(namespace="retail")
def calculate(expression: str) -> str:
    """The value of a sum such as "1 + 2.5 - 3", as text with two decimals."""
    total, sign = 0.0, 1
    for part in expression.split():
        if part in "+-":
            sign = 1 if part == "+" else -1
        else:
            total += sign * float(part)
    return f"{total:.2f}"


SHOP_TOOLS = (
    look_up_user,
    get_user,
    get_order,
    get_product,
    product_index,
    cancel_order,
    return_items,
    modify_items,
    calculate,
)

# --- the airline: TypedDicts and dataclasses

Cabin: TypeAlias = Literal["basic", "economy", "business"]


class Flight(TypedDict):
    flight_number: str
    origin: str
    destination: str
    date: str
    departure: str
    arrival: str
    duration_minutes: int
    status: Literal["available", "delayed", "cancelled"]
    available_seats: dict[Cabin, int]
    prices: dict[Cabin, float]


class Airport(TypedDict):
    iata: str
    city: str


@dataclass
class Passenger:
    first_name: str
    last_name: str
    dob: str


@dataclass
class Leg:
    flight_number: str
    date: str
    price: float


@dataclass
class Reservation:
    reservation_id: str
    user_id: str
    cabin: Cabin
    legs: list[Leg]
    passengers: list[Passenger]
    baggages: int = 0
    insurance: bool = False
    status: Literal["confirmed", "cancelled"] = "confirmed"
    notes: list[str] = field(default_factory=list[str])


@dataclass
class Booked:
    ok: Literal[True]
    reservation: Reservation
    total: float


@dataclass
class NotBooked:
    ok: Literal[False]
    error: str


def _flight(number: str, way: str, departure: str, minutes: int, price: float, seats: int = 9) -> Flight:
    origin, destination = way.split("-")
    hour, minute = map(int, departure.split(":"))
    end = hour * 60 + minute + minutes
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "date": "2026-05-20",
        "departure": departure,
        "arrival": f"{end // 60 % 24:02}:{end % 60:02}",
        "duration_minutes": minutes,
        "status": "available",
        "available_seats": {"basic": seats, "economy": seats + 3, "business": 2},
        "prices": {"basic": price, "economy": price * 1.5, "business": price * 4},
    }


_FLIGHTS = [
    _flight("COR101", "OSL-BGO", "07:10", 55, 60),
    _flight("COR103", "OSL-BGO", "12:40", 55, 48, 0),
    _flight("COR105", "OSL-BGO", "18:20", 60, 52),
    _flight("COR201", "OSL-TOS", "09:00", 110, 120),
    _flight("COR202", "BGO-TOS", "10:30", 125, 70),
    _flight("COR204", "BGO-TOS", "20:10", 125, 55),
    _flight("COR301", "TOS-OSL", "15:00", 115, 99),
]
_RESERVATIONS = {
    "R8X2LQ": Reservation(
        "R8X2LQ",
        "mia_lund_4001",
        "economy",
        [Leg("COR101", "2026-05-20", 90.0), Leg("COR202", "2026-05-20", 105.0)],
        [Passenger("Mia", "Lund", "1990-04-01"), Passenger("Jon", "Lund", "1988-11-23")],
        baggages=1,
    ),
    "Q4ZKM1": Reservation(
        "Q4ZKM1",
        "omar_haddad_4002",
        "basic",
        [Leg("COR201", "2026-05-20", 120.0)],
        [Passenger("Omar", "Haddad", "1979-07-07")],
        insurance=True,
    ),
}
_BOOKED: dict[str, dict[str, Reservation]] = {}


def _reservations(context: ExecutionContext) -> dict[str, Reservation]:
    return _BOOKED.setdefault(context.session_id, deepcopy(_RESERVATIONS))


@tool(namespace="airline")
def list_airports() -> list[Airport]:
    """The airports that are served."""
    return [{"iata": "OSL", "city": "Oslo"}, {"iata": "BGO", "city": "Bergen"}, {"iata": "TOS", "city": "Tromsø"}]


@tool(namespace="airline")
def direct_flights(origin: str, destination: str, date: str) -> list[Flight]:
    """Direct flights between two airports on a day.

    Args:
        date: As YYYY-MM-DD.
    """
    return [f for f in _FLIGHTS if (f["origin"], f["destination"], f["date"]) == (origin, destination, date)]


@tool(namespace="airline")
def connecting_flights(origin: str, destination: str, date: str) -> list[tuple[Flight, Flight]]:
    """Pairs of flights with one stop between them."""
    return [
        (first, second)
        for first in _FLIGHTS
        for second in _FLIGHTS
        if first["origin"] == origin
        and second["destination"] == destination
        and first["destination"] == second["origin"]
        and first["arrival"] < second["departure"]
        and first["date"] == date
    ]


@tool(namespace="airline")
def get_reservation(reservation_id: str, *, context: ExecutionContext) -> Reservation:
    """A reservation by its id."""
    if reservation_id not in _reservations(context):
        raise ToolError(f"Reservation {reservation_id} not found")
    return _reservations(context)[reservation_id]


@tool(namespace="airline")
def find_reservations(user_id: str, *, context: ExecutionContext) -> dict[str, Reservation]:
    """A user's reservations by their id."""
    return {id: each for id, each in _reservations(context).items() if each.user_id == user_id}


@tool(namespace="airline")
def book(
    user_id: str,
    flight_numbers: list[str],
    date: str,
    cabin: Cabin,
    passengers: list[Passenger],
    baggages: int = 0,
    insurance: bool = False,
    *,
    context: ExecutionContext,
) -> Booked | NotBooked:
    """Books flights for some passengers. Says in its result if there is no seat."""
    found = [f for number in flight_numbers for f in _FLIGHTS if f["flight_number"] == number]
    if len(found) < len(flight_numbers):
        return NotBooked(False, "unknown flight")
    if any(f["available_seats"][cabin] < len(passengers) for f in found):
        return NotBooked(False, "not enough seats")
    legs = [Leg(f["flight_number"], date, f["prices"][cabin]) for f in found]
    total = sum(leg.price for leg in legs) * len(passengers) + 50 * baggages + 30 * insurance * len(passengers)
    made = Reservation("NEW001", user_id, cabin, legs, passengers, baggages, insurance)
    _reservations(context)[made.reservation_id] = made
    return Booked(True, made, total)


@tool(namespace="airline")
def cancel_reservation(reservation_id: str, *, context: ExecutionContext) -> Reservation:
    """Cancels a reservation."""
    held = get_reservation(reservation_id, context=context)
    _reservations(context)[reservation_id] = replace(held, status="cancelled")
    return _reservations(context)[reservation_id]


@tool(namespace="airline")
def get_flight_status(flight_number: str, date: str) -> str:
    """The status of a flight, as a text."""
    for flight in _FLIGHTS:
        if flight["flight_number"] == flight_number and flight["date"] == date:
            return flight["status"]
    raise ToolError(f"no flight {flight_number} on {date}")


AIRLINE_TOOLS = (
    list_airports,
    direct_flights,
    connecting_flights,
    get_reservation,
    find_reservations,
    book,
    cancel_reservation,
    get_flight_status,
)
