"""The tools of the programs in `valid` and `mistakes`: small, without state, the same results each time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from corral import Tool, ToolError, define_tool, tool
from tests.checking.services import SERVICES

__all__ = ["TOOLS"]

NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)

# --- without a namespace

Currency: TypeAlias = Literal["EUR", "USD", "NOK"]
_IN_EUR: dict[str, float] = {"EUR": 1.0, "USD": 0.5, "NOK": 0.125}


@tool
def now() -> datetime:
    """The time, always the same."""
    return NOW


@tool
def list_cities() -> list[str]:
    """The cities that have weather."""
    return sorted(_CELSIUS)


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool
async def convert_currency(amount: float, source: Currency, target: Currency = "EUR") -> float:
    """An amount in another currency."""
    return amount * _IN_EUR[source] / _IN_EUR[target]


@tool
async def flaky(attempt: int) -> str:
    """Fails before the third attempt.

    Args:
        attempt: Counted from 1.
    """
    if attempt < 3:
        raise ToolError(f"attempt {attempt}: try again")
    return f"done in {attempt}"


async def _echo(input: Any) -> Any:
    return input


echo = define_tool(name="echo", description="Gives its input back.", execute=_echo)

# --- github


class User(TypedDict):
    login: str
    id: int
    name: str | None


class Label(TypedDict):
    name: str
    color: str


class Milestone(TypedDict):
    title: str
    due_on: date | None


class Issue(TypedDict):
    number: int
    title: str
    state: Literal["open", "closed"]
    user: User
    assignee: User | None
    labels: list[Label]
    comments: int
    created_at: datetime
    closed_at: datetime | None
    milestone: NotRequired[Milestone]
    body: str | None


class Comment(TypedDict):
    id: int
    user: User
    body: str
    created_at: datetime


class IssuePage(TypedDict):
    total_count: int
    items: list[Issue]
    next_cursor: str | None


_ADA: User = {"login": "ada", "id": 1, "name": "Ada Berg"}
_BO: User = {"login": "bo", "id": 2, "name": None}
_BUG: Label = {"name": "bug", "color": "d73a4a"}
_DOCS: Label = {"name": "docs", "color": "0075ca"}


def _issue(number: int, title: str, days: int, **more: Any) -> Issue:
    issue: dict[str, Any] = {
        "number": number,
        "title": title,
        "state": "open",
        "user": _ADA,
        "assignee": None,
        "labels": [],
        "comments": number % 4,
        "created_at": NOW - timedelta(days=days),
        "closed_at": None,
        "body": None,
    }
    return issue | more  # pyright: ignore[reportReturnType]


_ISSUES = [
    _issue(1, "Door sticks", 40, labels=[_BUG], assignee=_BO, body="It sticks.\nSee #3."),
    _issue(2, "Lamp is out", 30, state="closed", user=_BO, closed_at=NOW - timedelta(days=20)),
    _issue(3, "Stairs creak", 21, labels=[_BUG, _DOCS], milestone={"title": "1.0", "due_on": date(2026, 4, 1)}),
    _issue(4, "Describe the lift", 9, labels=[_DOCS], user=_BO, milestone={"title": "2.0", "due_on": None}),
    _issue(5, "Roof leaks", 2, labels=[_BUG], assignee=_ADA, body="Since the storm."),
    _issue(6, "Paint the fence", 1, state="closed", closed_at=NOW),
]

State: TypeAlias = Literal["open", "closed", "all"]


@tool(namespace="github")
async def list_issues(
    repo: str,
    state: State = "open",
    labels: list[str] | None = None,
    assignee: str | None = None,
    page: Annotated[int, Field(ge=1)] = 1,
    per_page: Annotated[int, Field(ge=1, le=100)] = 30,
) -> list[Issue]:
    """The issues of a repository, a page at a time; the page after the last one is empty.

    Args:
        repo: "owner/name".
        labels: Issues that have all of them.
        assignee: A login.
    """
    found = [
        issue
        for issue in _ISSUES
        if state in ("all", issue["state"])
        and set(labels or ()) <= {label["name"] for label in issue["labels"]}
        and (assignee is None or (issue["assignee"] or {}).get("login") == assignee)
    ]
    return found[(page - 1) * per_page : page * per_page]


@tool(namespace="github")
async def get_issue(repo: str, number: int) -> Issue:
    """One issue; throws if there is none."""
    for issue in _ISSUES:
        if issue["number"] == number:
            return issue
    raise ToolError(f"{repo} has no issue {number}")


@tool(namespace="github")
async def search_issues(
    query: str,
    sort: Literal["created", "updated", "comments"] = "created",
    order: Literal["asc", "desc"] = "desc",
    cursor: str | None = None,
) -> IssuePage:
    """Issues with a text in their title, two at a time.

    Args:
        cursor: `next_cursor` of the page before.
    """
    found = [issue for issue in _ISSUES if query.casefold() in issue["title"].casefold()]
    if sort == "comments":
        found.sort(key=lambda issue: issue["comments"])
    if order == "desc":
        found.reverse()
    start = int(cursor or 0)
    return {
        "total_count": len(found),
        "items": found[start : start + 2],
        "next_cursor": str(start + 2) if start + 2 < len(found) else None,
    }


@tool(namespace="github")
async def create_issue(
    repo: str, title: str, body: str | None = None, labels: list[str] | None = None, assignees: list[str] | None = None
) -> Issue:
    """Opens an issue."""
    names: list[Label] = [{"name": name, "color": "ededed"} for name in labels or ()]
    return _issue(7, title, 0, body=body, labels=names, assignee=_BO if assignees else None)


@tool(namespace="github")
async def add_comment(repo: str, number: int, body: str) -> Comment:
    """Comments on an issue."""
    return {"id": 100 + number, "user": _ADA, "body": body, "created_at": NOW}


@tool(namespace="github")
async def list_comments(repo: str, number: int) -> list[Comment]:
    """The comments on an issue, oldest first."""
    return [
        {"id": 10 * number + place, "user": _BO if place % 2 else _ADA, "body": f"Comment {place}", "created_at": NOW}
        for place in range(number % 4)
    ]


# --- files


class Entry(TypedDict):
    path: str
    type: Literal["file", "directory"]
    size: int
    modified: datetime


class Present(TypedDict):
    exists: Literal[True]
    size: int
    type: Literal["file", "directory"]


class Absent(TypedDict):
    exists: Literal[False]


_FILES: dict[str, bytes] = {
    "/README.md": b"# House\n\nA house.\n",
    "/config.json": b'{"name": "house", "port": 8080, "tags": ["a", "b"], "nested": {"deep": true}}',
    "/data/people.csv": b"name,age,city\nAda,36,Oslo\nBo,41,Bergen\nCy,29,Oslo\n",
    "/data/sales.csv": b"date,region,amount\n2026-01-01,north,10.5\n2026-01-02,south,20\n2026-01-03,north,5\n",
    "/logs/app.log": b"2026-03-01T10:00:00Z INFO start\n2026-03-01T10:00:05Z ERROR code=7 disk full\n"
    b"2026-03-01T10:01:00Z WARN slow\n2026-03-01T10:02:00Z ERROR code=9 lost\n",
}


@tool(name="list", namespace="files")
async def list_files(path: str = "/", recursive: bool = False) -> list[Entry]:
    """What is in a directory."""
    inside = path.rstrip("/") + "/"
    files: list[Entry] = [
        {"path": name, "type": "file", "size": len(content), "modified": NOW}
        for name, content in _FILES.items()
        if name.startswith(inside) and (recursive or "/" not in name[len(inside) :])
    ]
    if inside != "/":
        return files
    return [*files, *({"path": path, "type": "directory", "size": 0, "modified": NOW} for path in ("/data", "/logs"))]


@tool(name="read", namespace="files")
async def read_file(path: str) -> str:
    """A file's text; throws if there is none."""
    return _content(path).decode()


@tool(namespace="files")
async def read_bytes(path: str, limit: int | None = None) -> bytes:
    """A file's bytes, the first `limit` of them."""
    return _content(path)[:limit]


@tool(name="write", namespace="files")
async def write_file(path: str, content: str | bytes, append: bool = False) -> int:
    """Writes a file; gives how many bytes were written."""
    return len(content.encode() if isinstance(content, str) else content)


@tool(namespace="files")
async def stat(path: str) -> Present | Absent:
    """Whether a path is there, and what it is."""
    if path in ("/", "/data", "/logs"):
        return {"exists": True, "size": 0, "type": "directory"}
    return {"exists": True, "size": len(_FILES[path]), "type": "file"} if path in _FILES else {"exists": False}


def _content(path: str) -> bytes:
    if path not in _FILES:
        raise ToolError(f"no such file: {path}")
    return _FILES[path]


# --- http


class Response(TypedDict):
    status: int
    ok: bool
    headers: dict[str, str]
    body: Any


@tool(namespace="http")
async def fetch(
    url: str,
    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET",
    headers: dict[str, str] | None = None,
    query: dict[str, str | int | bool] | None = None,
    body: Any = None,
    timeout_seconds: float = 30.0,
) -> Response:
    """Fetches from an API: `/users`, `/users/1`, `/text`; anything else is not found.

    Args:
        body: Sent as JSON.
    """
    users: list[dict[str, Any]] = [
        {"id": 1, "name": "Ada", "roles": ["admin"], "active": True},
        {"id": 2, "name": "Bo", "roles": []},
    ]
    answers: dict[str, Any] = {"/users": users, "/users/1": users[0], "/users/2": users[1], "/text": '{"n": 3}'}
    if method != "GET":
        return {"status": 201, "ok": True, "headers": {"content-type": "application/json"}, "body": body}
    path = "/" + url.removeprefix("https://").partition("/")[2].partition("?")[0]
    if path not in answers:
        return {"status": 404, "ok": False, "headers": {}, "body": {"error": "not found"}}
    return {"status": 200, "ok": True, "headers": {"content-type": "application/json"}, "body": answers[path]}


# --- sql


class Column(TypedDict):
    name: str
    type: str
    nullable: bool


_ORDERS = [
    {"id": 1, "customer": "Ada", "total": 120.5, "status": "paid", "placed": "2026-01-05"},
    {"id": 2, "customer": "Bo", "total": 80, "status": "open", "placed": "2026-01-09"},
    {"id": 3, "customer": "Ada", "total": 19.5, "status": "paid", "placed": "2026-02-01"},
    {"id": 4, "customer": "Cy", "total": 300, "status": "refunded", "placed": "2026-02-11"},
]


@tool(namespace="sql")
async def query(sql: str, params: list[str | float | bool | None] | None = None):
    """Rows of `orders`: id, customer, total, status, placed; or one row with `count`."""
    if "count(" in sql.casefold():
        return [{"count": len(_ORDERS)}]
    return [row for row in _ORDERS if not params or row["customer"] in params]


@tool(namespace="sql")
async def tables() -> dict[str, list[Column]]:
    """The columns of each table."""
    number: Column = {"name": "id", "type": "integer", "nullable": False}
    name: Column = {"name": "name", "type": "text", "nullable": True}
    return {"orders": [number], "customers": [number, name]}


# --- calendar


class Attendee(TypedDict):
    email: str
    response: Literal["accepted", "declined", "tentative", "none"]
    optional: NotRequired[bool]


class Event(TypedDict):
    id: str
    title: str
    start: datetime
    end: datetime
    location: str | None
    attendees: list[Attendee]
    all_day: bool


def _event(id: str, title: str, hour: int, minutes: int, location: str | None = None) -> Event:
    start = datetime(2026, 3, 2, hour, tzinfo=UTC)
    return {
        "id": id,
        "title": title,
        "start": start,
        "end": start + timedelta(minutes=minutes),
        "location": location,
        "attendees": [
            {"email": "ada@example.com", "response": "accepted"},
            {"email": "bo@example.com", "response": "declined" if hour > 12 else "tentative", "optional": True},
        ],
        "all_day": False,
    }


@tool(namespace="calendar")
async def list_events(start: date | datetime, end: date | datetime | None = None, name: str = "main") -> list[Event]:
    """The events between two times.

    Args:
        name: Of the calendar.
    """
    return [_event("e1", "Stand-up", 9, 15), _event("e2", "Review", 11, 60, "Room 1"), _event("e3", "Talk", 14, 45)]


@tool(namespace="calendar")
async def create_event(
    title: str,
    start: datetime,
    end: datetime,
    attendees: list[str] | None = None,
    reminder_minutes: Annotated[int, Field(ge=0)] = 10,
) -> Event:
    """Adds an event."""
    event = _event("e9", title, 16, 30)
    event["start"], event["end"] = start, end
    event["attendees"] = [{"email": email, "response": "none"} for email in attendees or ()]
    return event


@tool(namespace="calendar")
async def free_slots(day: date, minutes: int = 30) -> list[tuple[str, str]]:
    """When there is time: pairs of beginning and end, such as "10:00"."""
    return [("09:30", "11:00"), ("12:00", "14:00"), ("15:00", "17:00")]


# --- weather


class Wind(TypedDict):
    speed: float
    direction: int | None


class Reading(TypedDict):
    city: str
    temperature: float
    conditions: Literal["sunny", "cloudy", "rain", "snow"]
    wind: Wind
    observed_at: datetime
    alert: NotRequired[str]


class Day(TypedDict):
    date: date
    low: float
    high: float
    precipitation: float | None


class Forecast(TypedDict):
    city: str
    days: list[Day]


_CELSIUS: dict[str, float] = {"Bergen": 4.5, "Oslo": -2.5, "Tromsø": -6.5}


def _celsius(city: str) -> float:
    if city not in _CELSIUS:
        raise ToolError(f"no weather for {city!r}")
    return _CELSIUS[city]


@tool(namespace="weather")
async def current(city: str, units: Literal["metric", "imperial"] = "metric") -> Reading:
    """The weather in a city; throws for a city without any."""
    celsius = _celsius(city)
    reading: Reading = {
        "city": city,
        "temperature": celsius if units == "metric" else celsius * 1.8 + 32,
        "conditions": "rain" if celsius > 0 else "snow",
        "wind": {"speed": 7.5, "direction": 270 if celsius > 0 else None},
        "observed_at": NOW,
    }
    if celsius < -5:
        reading["alert"] = "frost"
    return reading


@tool(namespace="weather")
async def forecast(city: str, days: Annotated[int, Field(ge=1, le=7)] = 3) -> Forecast:
    """The days to come."""
    celsius = _celsius(city)
    return {
        "city": city,
        "days": [
            {
                "date": NOW.date() + timedelta(days=ahead),
                "low": celsius - ahead,
                "high": celsius + ahead,
                "precipitation": None if ahead == 1 else 0.5 * ahead,
            }
            for ahead in range(days)
        ],
    }


@tool(namespace="weather")
async def history(city: str, year: int = 2025) -> list[tuple[date, float]]:
    """The first days of a year's quarters, with their temperatures."""
    celsius = _celsius(city)
    return [(date(year, month, 1), celsius + month) for month in (1, 4, 7, 10)]


# --- crm

Status: TypeAlias = Literal["lead", "active", "churned"]


class Address(TypedDict):
    street: NotRequired[str]
    city: str
    country: str


class Company(TypedDict):
    name: str
    industry: NotRequired[str]
    address: NotRequired[Address]


class Contact(TypedDict):
    id: str
    name: str
    email: str | None
    phone: NotRequired[str]
    company: Company | None
    status: Status
    revenue: float
    tags: list[str]
    custom: dict[str, str | float]


class ContactPage(TypedDict):
    data: list[Contact]
    has_more: bool
    next_cursor: str | None


class ContactFilter(BaseModel):
    """Contacts for which all of it is true."""

    model_config = ConfigDict(extra="forbid")

    status: Status | list[Status] | None = None
    tag: str | None = None
    min_revenue: float | None = None
    has_email: bool | None = None


class Call(TypedDict):
    kind: Literal["call"]
    at: datetime
    minutes: int


class Email(TypedDict):
    kind: Literal["email"]
    at: datetime
    subject: str


class Meeting(TypedDict):
    kind: Literal["meeting"]
    at: datetime
    place: str | None
    people: list[str]


Activity: TypeAlias = Call | Email | Meeting

_HILL: Company = {"name": "Hill", "industry": "energy", "address": {"city": "Oslo", "country": "NO"}}
_CONTACTS: list[Contact] = [
    {
        "id": "c1",
        "name": "Ada Berg",
        "email": "ada@hill.example",
        "phone": "+47 1",
        "company": _HILL,
        "status": "active",
        "revenue": 1200.5,
        "tags": ["vip", "north"],
        "custom": {"tier": "gold", "seats": 12},
    },
    {
        "id": "c2",
        "name": "Bo Dal",
        "email": None,
        "company": None,
        "status": "lead",
        "revenue": 0,
        "tags": [],
        "custom": {},
    },
    {
        "id": "c3",
        "name": "Cy Eng",
        "email": "cy@lake.example",
        "company": {"name": "Lake"},
        "status": "churned",
        "revenue": 310,
        "tags": ["north"],
        "custom": {"tier": "silver"},
    },
]


@tool(namespace="crm")
async def find_contacts(
    filter: ContactFilter | None = None,
    sort: Literal["name", "revenue"] = "name",
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    cursor: str | None = None,
) -> ContactPage:
    """Contacts, a page at a time."""
    wanted = filter or ContactFilter()
    statuses = [wanted.status] if isinstance(wanted.status, str) else wanted.status
    found = [
        contact
        for contact in _CONTACTS
        if (not statuses or contact["status"] in statuses)
        and (wanted.tag is None or wanted.tag in contact["tags"])
        and contact["revenue"] >= (wanted.min_revenue or 0)
        and (wanted.has_email is None or wanted.has_email == (contact["email"] is not None))
    ]
    found.sort(key=lambda contact: contact["name"] if sort == "name" else -contact["revenue"])
    start = int(cursor or 0)
    more = start + limit < len(found)
    return {
        "data": found[start : start + limit],
        "has_more": more,
        "next_cursor": str(start + limit) if more else None,
    }


@tool(namespace="crm")
async def get_contact(id: str) -> Contact | None:
    """One contact, or null."""
    return next((contact for contact in _CONTACTS if contact["id"] == id), None)


class ContactChanges(BaseModel):
    """What to change. Other members become fields of `custom`."""

    model_config = ConfigDict(extra="allow")

    name: str | None = None
    email: str | None = None
    status: Status | None = None


@tool(namespace="crm")
async def update_contact(id: str, changes: ContactChanges) -> Contact:
    """Changes a contact."""
    contact = await get_contact(id=id)
    if contact is None:
        raise ToolError(f"no contact {id!r}")
    known = changes.model_dump(exclude_none=True, include=set(ContactChanges.model_fields))
    return contact | known | {"custom": contact["custom"] | (changes.model_extra or {})}  # pyright: ignore[reportReturnType]


@tool(namespace="crm")
async def activities(contact_id: str, kind: Literal["call", "email", "meeting"] | None = None) -> list[Activity]:
    """What happened with a contact."""
    happened: list[Activity] = [
        {"kind": "call", "at": NOW - timedelta(days=3), "minutes": 12},
        {"kind": "email", "at": NOW - timedelta(days=2), "subject": "Offer"},
        {"kind": "meeting", "at": NOW - timedelta(days=1), "place": None, "people": ["Ada", "Bo"]},
    ]
    return [activity for activity in happened if kind in (None, activity["kind"])]


@tool(namespace="crm")
async def log_call(
    contact_id: str, minutes: Annotated[int, Field(ge=1)], note: str = "", at: datetime | None = None
) -> Call:
    """Notes a call."""
    return {"kind": "call", "at": at or NOW, "minutes": minutes}


# --- shop

OrderStatus: TypeAlias = Literal["open", "paid", "shipped", "cancelled"]


class Money(TypedDict):
    amount: float
    currency: Currency


class Line(TypedDict):
    sku: str
    quantity: int
    price: Money


class Order(TypedDict):
    id: int
    customer_id: int
    status: OrderStatus
    lines: list[Line]
    placed_at: datetime
    shipped_at: datetime | None
    note: NotRequired[str | None]


class SearchOptions(BaseModel):
    """Members that are not here are ignored."""

    page: int = 1
    page_size: int = 20
    newest_first: bool = True


def _order(id: int, customer_id: int, status: OrderStatus, *lines: tuple[str, int, float]) -> Order:
    return {
        "id": id,
        "customer_id": customer_id,
        "status": status,
        "lines": [
            {"sku": sku, "quantity": quantity, "price": {"amount": amount, "currency": "EUR"}}
            for sku, quantity, amount in lines
        ],
        "placed_at": NOW - timedelta(days=id),
        "shipped_at": NOW if status == "shipped" else None,
    }


_SHOP_ORDERS = [
    _order(11, 1, "paid", ("lamp", 2, 20.0), ("rug", 1, 55.5)),
    _order(12, 2, "open", ("desk", 1, 199.0)),
    _order(13, 1, "shipped", ("lamp", 1, 20.0)),
]


@tool(namespace="shop")
async def list_orders(
    customer_id: int | None = None,
    status: list[OrderStatus] | None = None,
    since: datetime | None = None,
    options: SearchOptions | None = None,
) -> list[Order]:
    """Orders, of one customer or of all."""
    return [
        order
        for order in _SHOP_ORDERS
        if customer_id in (None, order["customer_id"]) and (not status or order["status"] in status)
    ]


@tool(namespace="shop")
async def get_order(id: int) -> Order:
    """One order; throws if there is none."""
    for order in _SHOP_ORDERS:
        if order["id"] == id:
            return order
    raise ToolError(f"no order {id}")


@tool(namespace="shop")
async def stock(skus: list[str]) -> dict[str, int]:
    """How many there are of each."""
    return {sku: len(sku) for sku in skus}


@tool(namespace="shop")
async def refund(
    order_id: int, reason: Literal["damaged", "late", "other"], amount: Money | None = None
) -> Annotated[dict[str, Any], Field(description="`id` and `status`.")]:
    """Gives money back."""
    return {"id": f"r{order_id}", "status": "pending", "amount": amount}


# --- metrics


class Summary(TypedDict):
    count: int
    mean: float
    low: float
    high: float


@tool(namespace="metrics")
async def series(name: str, step: Literal["hour", "day"] = "day", last: int = 3) -> list[tuple[datetime, float]]:
    """Points of a series: time and value."""
    unit = timedelta(hours=1) if step == "hour" else timedelta(days=1)
    return [(NOW - unit * ago, float(len(name) + ago)) for ago in reversed(range(last))]


@tool(namespace="metrics")
async def summary(values: list[float]) -> Summary:
    """What is to be said of some numbers."""
    if not values:
        raise ToolError("no values")
    return {"count": len(values), "mean": sum(values) / len(values), "low": min(values), "high": max(values)}


@tool(namespace="metrics")
async def by_region() -> dict[str, dict[Literal["north", "south"], float]]:
    """Sales and visits of each region."""
    return {"sales": {"north": 15.5, "south": 20.0}, "visits": {"north": 150.0, "south": 90.0}}


# --- chat: known by schemas only, as the tools of a server are

_SEND = {
    "type": "object",
    "properties": {
        "channel": {"type": "string", "description": 'With its "#".'},
        "text": {"type": "string", "maxLength": 4000},
        "blocks": {"type": "array", "items": {"type": "object"}},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "thread": {"type": ["string", "null"]},
    },
    "required": ["channel", "text"],
    "additionalProperties": False,
}
_SENT = {
    "type": "object",
    "properties": {"ok": {"const": True}, "ts": {"type": "string"}, "channel": {"type": "string"}},
    "required": ["ok", "ts"],
}
_TRACK = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "user": {"type": "string"}},
    "required": ["event"],
    "additionalProperties": True,
}


async def _send(input: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "ts": f"{len(input['text'])}.0", "channel": input["channel"]}


async def _track(input: dict[str, Any]) -> dict[str, Any]:
    return {"tracked": sorted(input)}


async def _channels(input: object) -> list[dict[str, Any]]:
    return [{"id": "C1", "name": "#general", "members": 12, "topic": "All"}, {"id": "C2", "name": "#ops", "members": 3}]


send = define_tool(name="send", description="Sends a message.", input_schema=_SEND, output_schema=_SENT, execute=_send)
track = define_tool(
    name="track", description="Records an event, with any members.", input_schema=_TRACK, execute=_track
)
channels = define_tool(
    name="channels",
    description="All channels.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "name": {"type": "string"},
                "members": {"type": "integer"},
                "topic": {"type": "string"},
            },
            "required": ["id", "name", "members"],
        },
    },
    execute=_channels,
)

TOOLS: list[Tool] = [
    now,
    list_cities,
    add,
    convert_currency,
    flaky,
    echo,
    list_issues,
    get_issue,
    search_issues,
    create_issue,
    add_comment,
    list_comments,
    list_files,
    read_file,
    read_bytes,
    write_file,
    stat,
    fetch,
    query,
    tables,
    list_events,
    create_event,
    free_slots,
    current,
    forecast,
    history,
    find_contacts,
    get_contact,
    update_contact,
    activities,
    log_call,
    list_orders,
    get_order,
    stock,
    refund,
    series,
    summary,
    by_region,
    *(replace(each, namespace="chat") for each in (send, track, channels)),
    *SERVICES,
]
