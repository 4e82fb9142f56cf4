"""Tickets, files, trading, a calendar and messages: raw JSON Schemas, open and closed, plain dicts, texts, no schema."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from corral import ExecutionContext, Tool, ToolError, define_tool, tool

__all__ = ["OFFICE_TOOLS"]

# --- tickets: as an MCP server offers them

_PERSON: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {"accountId": {"type": "string"}, "displayName": {"type": "string"}},
    "required": ["accountId", "displayName"],
}
_TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "fields": {
            "type": "object",
            "properties": {
                "summary": {"type": "string"},
                "description": {"type": ["string", "null"]},
                "status": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                "priority": {"enum": ["low", "medium", "high", "urgent"]},
                "assignee": _PERSON,
                "labels": {"type": "array", "items": {"type": "string"}},
                "created": {"type": "string", "format": "date-time"},
                "storyPoints": {"type": "number"},
            },
            "required": ["summary", "status", "labels", "created", "assignee"],
        },
    },
    "required": ["key", "fields"],
}
_ADA = {"accountId": "u1", "displayName": "Ada Moe"}
_BEN = {"accountId": "u2", "displayName": "Ben Vik"}


def _ticket(number: int, summary: str, status: str, priority: str | None, who: Any, labels: str, day: int) -> Any:
    fields: dict[str, Any] = {
        "summary": summary,
        "description": None if number % 2 else f"{summary}, says a customer.",
        "status": {"name": status},
        "assignee": who,
        "labels": labels.split(),
        "created": f"2026-02-{day:02}T08:00:00+00:00",
    }
    if priority:
        fields["priority"] = priority
    if number % 3 == 0:
        fields["storyPoints"] = number
    return {"key": f"OPS-{number}", "fields": fields}


_TICKETS: list[Any] = [
    _ticket(1, "Login fails on Safari", "Open", "high", _ADA, "auth browser", 2),
    _ticket(2, "Invoice PDF is blank", "In Progress", "urgent", _BEN, "billing", 5),
    _ticket(3, "Export is slow", "Open", "medium", None, "performance", 9),
    _ticket(4, "Typo in footer", "Done", "low", _ADA, "", 11),
    _ticket(5, "Webhook retries forever", "Open", "urgent", None, "billing api", 17),
    _ticket(6, "Add dark mode", "Done", None, _BEN, "ui", 23),
    _ticket(7, "Rate limit headers missing", "In Progress", None, _ADA, "api", 26),
]
_TICKETS_OF: dict[str, list[Any]] = {}


def _tickets(context: ExecutionContext) -> list[Any]:
    return _TICKETS_OF.setdefault(context.session_id, deepcopy(_TICKETS))


def _find(context: ExecutionContext, key: str) -> Any:
    for ticket in _tickets(context):
        if ticket["key"] == key:
            return ticket
    raise ToolError(f"Issue {key} does not exist")


def _search_tickets(input: dict[str, Any], context: ExecutionContext) -> Any:
    found = [
        ticket
        for ticket in _tickets(context)
        if input.get("status") in (None, ticket["fields"]["status"]["name"])
        and input.get("text", "").casefold() in ticket["fields"]["summary"].casefold()
        and set(input.get("labels", ())) <= set(ticket["fields"]["labels"])
    ]
    start, size = input.get("startAt", 0), input.get("maxResults", 3)
    return {
        "total": len(found),
        "startAt": start,
        "maxResults": size,
        "isLast": start + size >= len(found),
        "issues": found[start : start + size],
    }


def _get_ticket(input: dict[str, Any], context: ExecutionContext) -> Any:
    return _find(context, input["key"])


def _update_ticket(input: dict[str, Any], context: ExecutionContext) -> Any:
    ticket = _find(context, input["key"])
    for name, value in input["fields"].items():
        ticket["fields"][name] = {"name": value} if name == "status" else value
    return {"ok": True, "key": input["key"], "updated": sorted(input["fields"])}


_COMMENTS: dict[str, list[str]] = {}


def _comment(input: dict[str, Any], context: ExecutionContext) -> Any:
    _find(context, input["key"])
    comments = _COMMENTS.setdefault(context.session_id, [])
    comments.append(input["body"])
    return {"id": 9000 + len(comments), "key": input["key"], "body": input["body"], "visibility": None}


def _ticket_stats(input: dict[str, Any], context: ExecutionContext) -> Any:
    statuses: dict[str, int] = {}
    for ticket in _tickets(context):
        name = ticket["fields"]["status"]["name"]
        statuses[name] = statuses.get(name, 0) + 1
    return {"byStatus": statuses, "total": len(_tickets(context)), "project": input.get("project", "OPS")}


_KEY: dict[str, Any] = {"type": "string", "description": "Such as OPS-12."}

_TICKET_TOOLS: list[Tool] = [
    define_tool(
        name="search_issues",
        namespace="tickets",
        description="Searches issues, a page at a time.",
        input_schema={
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "In the summary."},
                "status": {"type": "string", "enum": ["Open", "In Progress", "Done"]},
                "labels": {"type": "array", "items": {"type": "string"}},
                "startAt": {"type": "integer", "minimum": 0, "default": 0},
                "maxResults": {"type": "integer", "minimum": 1, "maximum": 50, "default": 3},
            },
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {
                "total": {"type": "integer"},
                "startAt": {"type": "integer"},
                "isLast": {"type": "boolean"},
                "issues": {"type": "array", "items": _TICKET},
            },
            "required": ["total", "issues"],
        },
        execute=_search_tickets,
    ),
    define_tool(
        name="get_issue",
        namespace="tickets",
        description="Gets one issue.",
        input_schema={"type": "object", "properties": {"key": _KEY}, "required": ["key"]},
        output_schema=_TICKET,
        execute=_get_ticket,
    ),
    define_tool(
        name="update_issue",
        namespace="tickets",
        description="Sets fields of an issue.",
        input_schema={
            "type": "object",
            "properties": {
                "key": _KEY,
                "fields": {
                    "type": "object",
                    "properties": {
                        "status": {"enum": ["Open", "In Progress", "Done"]},
                        "priority": {"enum": ["low", "medium", "high", "urgent"]},
                        "labels": {"type": "array", "items": {"type": "string"}},
                        "assignee": _PERSON,
                    },
                },
            },
            "required": ["key", "fields"],
        },
        execute=_update_ticket,
    ),
    define_tool(
        name="add_comment",
        namespace="tickets",
        description="Adds a comment to an issue.",
        input_schema={
            "type": "object",
            "properties": {"key": _KEY, "body": {"type": "string"}},
            "required": ["key", "body"],
            "additionalProperties": False,
        },
        execute=_comment,
    ),
    define_tool(
        name="stats",
        namespace="tickets",
        description="How many issues have each status.",
        input_schema={"type": "object", "properties": {"project": {"type": "string"}}},
        output_schema={"type": "object"},
        execute=_ticket_stats,
    ),
]

# --- files: plain dicts, with an error in the result

_FILES = {
    "notes/todo.txt": "buy milk\nCALL bank\nfix lamp\nbuy stamps\n",
    "notes/ideas.md": "# Ideas\n\n- a boat\n- a garden\n",
    "reports/q1.csv": "month,region,amount\n2026-01,north,120.50\n2026-01,south,80\n2026-02,north,99.5\n",
    "reports/q1_final.csv": "month,region,amount\n2026-03,north,10\n2026-03,south,12.25\n",
    "reports/summary.json": '{"year": 2026, "owner": {"name": "Ada"}, "totals": [200.5, 99.5, 22.25]}',
    "logs/app.log": "2026-02-01T10:00:00Z INFO start\n2026-02-01T10:00:04Z ERROR [db] timeout after 30s\n"
    "2026-02-01T10:02:00Z WARN slow query 1200ms\n2026-02-02T11:00:00Z ERROR [mail] bounced\n",
}
_DISKS: dict[str, dict[str, str]] = {}


def _disk(context: ExecutionContext) -> dict[str, str]:
    return _DISKS.setdefault(context.session_id, dict(_FILES))


@tool(namespace="fs")
def ls(path: str = ".", *, context: ExecutionContext) -> dict[str, list[str]]:
    """Lists the names in a directory.

    Returns:
        `entries`: the names.
    """
    inside = "" if path in (".", "", "/") else path.strip("/") + "/"
    names = {name[len(inside) :].partition("/")[0] for name in _disk(context) if name.startswith(inside)}
    return {"entries": sorted(names)}


@tool(namespace="fs")
def cat(path: str, *, context: ExecutionContext) -> dict[str, str]:
    """A file's text, as `content`; or `error`."""
    content = _disk(context).get(path)
    return {"error": f"cat: {path}: no such file"} if content is None else {"content": content}


@tool(namespace="fs")
def find(name: str, path: str = ".", *, context: ExecutionContext):
    """Paths that have a text in their name, as `matches`."""
    return {"matches": [each for each in sorted(_disk(context)) if name in each.rpartition("/")[2]]}


@tool(namespace="fs")
def grep(path: str, pattern: str, *, context: ExecutionContext) -> dict[str, Any]:
    """The lines of a file that hold a text, as `lines_found`; or `error`."""
    if path not in _disk(context):
        return {"error": f"grep: {path}: no such file"}
    return {"lines_found": [line for line in _disk(context)[path].splitlines() if pattern in line]}


class Done(TypedDict):
    result: str


class Failed(TypedDict):
    error: str


@tool(namespace="fs")
def mv(source: str, destination: str, *, context: ExecutionContext) -> Done | Failed:
    """Moves a file."""
    disk = _disk(context)
    if source not in disk:
        return {"error": f"mv: cannot move {source}: no such file"}
    disk[destination] = disk.pop(source)
    return {"result": f"{source} moved to {destination}"}


@tool(namespace="fs")
def write_file(path: str, content: str, append: bool = False, *, context: ExecutionContext) -> None:
    """Writes a file."""
    disk = _disk(context)
    disk[path] = disk.get(path, "") + content if append else content


@tool(namespace="fs")
def rm(path: str, *, context: ExecutionContext) -> bool:
    """Removes a file; says whether there was one."""
    return _disk(context).pop(path, None) is not None


_FILE_TOOLS = [ls, cat, find, grep, mv, write_file, rm]

# --- trading: dicts of mixed values

_STOCKS: dict[str, dict[str, float | str]] = {
    "ACME": {"symbol": "ACME", "price": 120.5, "change_percent": -1.2, "volume": 2.4, "sector": "industry"},
    "NORD": {"symbol": "NORD", "price": 33.0, "change_percent": 2.5, "volume": 0.9, "sector": "energy"},
    "PIXL": {"symbol": "PIXL", "price": 410.25, "change_percent": 0.3, "volume": 1.1, "sector": "tech"},
    "ZETA": {"symbol": "ZETA", "price": 15.75, "change_percent": -4.8, "volume": 6.0, "sector": "tech"},
}


@tool(namespace="trading")
def get_quote(symbol: str) -> dict[str, float | str]:
    """A stock: `price`, `change_percent`, `volume`, `symbol`, `sector`; or `error`."""
    return _STOCKS.get(symbol, {"error": f"no stock {symbol}"})


@tool(namespace="trading")
def list_watched() -> dict[str, list[str]]:
    """The symbols that are watched, as `watchlist`."""
    return {"watchlist": ["ACME", "NORD", "ZETA"]}


@tool(namespace="trading")
def get_account():
    """The account: `account_id`, `balance`, `holdings` (a list of symbol, quantity, average_cost)."""
    holdings = [
        {"symbol": "ACME", "quantity": 10, "average_cost": 100.0},
        {"symbol": "ZETA", "quantity": 40, "average_cost": 20.0},
    ]
    return {"account_id": 7781, "balance": 1500.0, "currency": "USD", "holdings": holdings}


@tool(namespace="trading")
def place_order(
    symbol: str, side: Literal["buy", "sell"], quantity: int, limit_price: float | None = None
) -> dict[str, int | float | str | None]:
    """Places an order: gives `order_id`, `status`, `symbol`, `side`, `price`, `quantity`."""
    price = limit_price if limit_price is not None else _STOCKS.get(symbol, {}).get("price")
    return {"order_id": 501, "status": "open", "symbol": symbol, "side": side, "price": price, "quantity": quantity}


@tool(namespace="trading")
def list_transactions(days: int = 30) -> dict[str, list[dict[str, Any]]]:
    """Deposits, withdrawals, trades, as `transactions`: `type`, `amount`, `timestamp`, sometimes `symbol`."""
    rows: list[dict[str, Any]] = [
        {"type": "deposit", "amount": 2000.0, "timestamp": "2026-02-01T09:00:00Z"},
        {"type": "buy", "amount": 1000.0, "timestamp": "2026-02-03T14:30:00Z", "symbol": "ACME"},
        {"type": "buy", "amount": 800.0, "timestamp": "2026-02-10T15:00:00Z", "symbol": "ZETA"},
        {"type": "withdrawal", "amount": 150.0, "timestamp": "2026-02-20T12:00:00Z"},
        {"type": "sell", "amount": 450.0, "timestamp": "2026-02-27T16:45:00Z", "symbol": "NORD"},
    ]
    return {"transactions": rows}


_TRADING_TOOLS = [get_quote, list_watched, get_account, place_order, list_transactions]

# --- a calendar: TypedDicts with times


class Attendee(TypedDict):
    email: str
    response: Literal["yes", "no", "maybe"] | None


class Event(TypedDict):
    id: str
    title: str
    start: datetime
    end: datetime
    location: str | None
    attendees: list[Attendee]
    recurrence: NotRequired[Literal["daily", "weekly"]]


def _event(id: str, title: str, day: int, hour: int, minutes: int, location: str | None, *people: str) -> Event:
    start = datetime(2026, 3, day, hour, 0, tzinfo=UTC)
    answers: list[Literal["yes", "no", "maybe"] | None] = ["yes", "maybe", None]
    attendees: list[Attendee] = [
        {"email": f"{name}@example.com", "response": answers[place % 3]} for place, name in enumerate(people)
    ]
    end = start + timedelta(minutes=minutes)
    return {"id": id, "title": title, "start": start, "end": end, "location": location, "attendees": attendees}


_EVENTS: list[Event] = [
    {**_event("e1", "Stand-up", 2, 9, 15, None, "ada", "ben", "cy"), "recurrence": "daily"},
    _event("e2", "Design review", 2, 9, 90, "Room 4", "ada", "cy"),
    _event("e3", "Lunch", 3, 12, 60, "Canteen", "ben"),
    _event("e4", "Board", 4, 14, 120, "Room 1", "ada", "ben", "cy", "dee"),
    _event("e5", "1:1", 4, 15, 30, None, "ada", "ben"),
]


@tool(namespace="calendar")
def list_events(start: date, end: date | None = None) -> list[Event]:
    """Events of some days, by their start."""
    last = end or start
    return [event for event in _EVENTS if start <= event["start"].date() <= last]


@tool(namespace="calendar")
def create_event(
    title: str,
    start: datetime,
    end: datetime,
    attendees: list[str] | None = None,
    location: str | None = None,
) -> Event:
    """Creates an event."""
    invited: list[Attendee] = [{"email": email, "response": None} for email in attendees or ()]
    return {"id": "e9", "title": title, "start": start, "end": end, "location": location, "attendees": invited}


@tool(namespace="calendar")
def free_busy(emails: list[str], day: date) -> dict[str, list[tuple[str, str]]]:
    """When people are busy: pairs of times such as "09:00", by e-mail."""
    return {
        email: [
            (f"{event['start']:%H:%M}", f"{event['end']:%H:%M}")
            for event in _EVENTS
            if event["start"].date() == day and email in {each["email"] for each in event["attendees"]}
        ]
        for email in emails
    }


_CALENDAR_TOOLS = [list_events, create_event, free_busy]

# --- messages: texts, JSON in texts, cursors


class Message(TypedDict):
    id: int
    sender: str
    subject: str | None
    body: str
    read: bool
    sent_at: str


class Inbox(TypedDict):
    messages: list[Message]
    next_cursor: str | None


_MESSAGES: list[Message] = [
    {
        "id": number,
        "sender": f"{('ada', 'ben', 'cy')[number % 3]}@example.com",
        "subject": None if number % 4 == 0 else f"Subject {number}",
        "body": f"Hello, this is message {number}." + (" Please reply by 2026-03-05." if number % 3 == 0 else ""),
        "read": number % 2 == 0,
        "sent_at": f"2026-02-{number + 10:02}T07:{number:02}:00Z",
    }
    for number in range(1, 9)
]


@tool(namespace="messages")
def inbox(cursor: str | None = None, limit: int = 3) -> Inbox:
    """Messages, oldest first, a page at a time."""
    start = int(cursor or 0)
    following = start + limit
    more = str(following) if following < len(_MESSAGES) else None
    return {"messages": _MESSAGES[start:following], "next_cursor": more}


@tool(namespace="messages")
def send(to: str | list[str], body: str, subject: str | None = None) -> str:
    """Sends a message; gives a text that says so."""
    if not body.strip():
        raise ToolError("a message needs a body")
    people = [to] if isinstance(to, str) else to
    return f"Message sent to {', '.join(people)} (id: 77)"


@tool(namespace="messages")
def export_contacts() -> str:
    """All contacts as JSON: a list of objects with `name`, `email` and sometimes `phone`."""
    return json.dumps(
        [
            {"name": "Ada Moe", "email": "ada@example.com", "phone": "+47 111"},
            {"name": "Ben Vik", "email": "ben@example.com"},
            {"name": "Cy Dahl", "email": "cy@example.com", "phone": "+47 333"},
        ]
    )


@tool(namespace="messages")
def find_contact(name: str) -> str:
    """A contact as a line of text, `name <email>`."""
    for first, last in (("Ada", "Moe"), ("Ben", "Vik"), ("Cy", "Dahl")):
        if name.casefold() in f"{first} {last}".casefold():
            return f"{first} {last} <{first.lower()}@example.com>"
    return "No contact found"


_MESSAGE_TOOLS = [inbox, send, export_contacts, find_contact]

# --- without a namespace

_RATES = {"USD": 1.0, "EUR": 1.25, "NOK": 0.1}


@tool
def get_current_time() -> str:
    """The time, as ISO 8601."""
    return "2026-03-02T08:00:00+00:00"


@tool
async def get_exchange_rate(base: Literal["USD", "EUR", "NOK"], target: Literal["USD", "EUR", "NOK"]) -> float:
    """How much of `target` one `base` is."""
    return _RATES[base] / _RATES[target]


_attempts: dict[str, int] = {}


@tool
async def charge_card(amount: float, currency: str = "USD", *, context: ExecutionContext) -> dict[str, Any]:
    """Charges a card. The provider is often busy: try again a few times."""
    _attempts[context.session_id] = _attempts.get(context.session_id, 0) + 1
    if _attempts[context.session_id] % 3:
        raise ToolError("503 Service Unavailable")
    return {"status": "charged", "amount": amount, "currency": currency}


OFFICE_TOOLS = (
    *_TICKET_TOOLS,
    *_FILE_TOOLS,
    *_TRADING_TOOLS,
    *_CALENDAR_TOOLS,
    *_MESSAGE_TOOLS,
    get_current_time,
    get_exchange_rate,
    charge_card,
)
