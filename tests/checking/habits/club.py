"""A club's systems: unions of containers, generic pages, recursion, aliases, enums, open schemas that say too little."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from corral import Tool, define_tool, tool

__all__ = ["CLUB_TOOLS"]

T = TypeVar("T")

# --- models: generic, recursive, with aliases and enums


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int
    next_page: int | None = None


class Level(StrEnum):
    junior = "junior"
    senior = "senior"
    honorary = "honorary"


class Member(BaseModel):
    model_config = ConfigDict(populate_by_name=True, alias_generator=lambda name: name.replace("_", "-"))
    id: UUID
    full_name: str
    level: Level
    joined_on: dt.date
    fee: Decimal
    emergency_contact: str | None = None


class Person(BaseModel):
    id: int
    name: str
    level: Level = Level.junior
    joined: dt.date
    birthday: dt.date | None = None
    fee: Decimal = Decimal(0)
    tags: set[str] = Field(default_factory=set[str])
    contacts: list[str] | None = None


class Post(BaseModel):
    id: int
    author: str
    text: str
    likes: int = 0
    replies: list[Post] = Field(default_factory=list["Post"])


class Court(BaseModel):
    kind: Literal["court"]
    name: str
    surface: Literal["clay", "grass", "hard"]
    hourly: float


class Room(BaseModel):
    kind: Literal["room"]
    name: str
    seats: int
    equipment: list[str]


class Boat(BaseModel):
    kind: Literal["boat"]
    name: str
    length_m: float
    needs_licence: bool = False


_PEOPLE = [
    Person(id=1, name="Ida Rud", level=Level.senior, joined=dt.date(2019, 5, 1), fee=Decimal("120.50"), tags={"chess"}),
    Person(id=2, name="Leo Dahl", joined=dt.date(2025, 9, 12), birthday=dt.date(2012, 3, 3), fee=Decimal("40")),
    Person(id=3, name="Mona Eik", level=Level.honorary, joined=dt.date(1999, 1, 20), contacts=["mona@example.com"]),
    Person(
        id=4, name="Nils Foss", level=Level.senior, joined=dt.date(2021, 2, 2), fee=Decimal("120.50"), tags={"sail"}
    ),
    Person(id=5, name="Olga Gran", joined=dt.date(2024, 6, 30), fee=Decimal("60"), tags={"chess", "sail"}),
]


@tool(namespace="club")
def list_people(page: int = 1, per_page: int = 2, level: Level | None = None) -> Page[Person]:
    """People in the club, a page at a time."""
    found = [person for person in _PEOPLE if level in (None, person.level)]
    more = page + 1 if page * per_page < len(found) else None
    return Page[Person](items=found[(page - 1) * per_page : page * per_page], total=len(found), next_page=more)


@tool(namespace="club")
def get_member(number: int) -> Member:
    """A membership."""
    return Member.model_validate(
        {
            "id": UUID(int=number),
            "full-name": _PEOPLE[number - 1].name,
            "level": "senior",
            "joined-on": "2020-01-01",
            "fee": "99.90",
        }
    )


@tool(namespace="club")
def get_thread(id: int = 1) -> Post:
    """A thread of posts with all replies."""
    leaf = Post(id=4, author="Leo", text="Me too", likes=1)
    second = Post(id=2, author="Mona", text="I can come", likes=3, replies=[leaf])
    return Post(
        id=id,
        author="Ida",
        text="Who plays on Sunday?",
        likes=5,
        replies=[second, Post(id=3, author="Nils", text="No")],
    )


@tool(namespace="club")
def list_facilities() -> list[Court | Room | Boat]:
    """What can be booked."""
    return [
        Court(kind="court", name="Centre", surface="clay", hourly=22.5),
        Room(kind="room", name="Library", seats=12, equipment=["screen", "piano"]),
        Boat(kind="boat", name="Svane", length_m=7.2, needs_licence=True),
        Court(kind="court", name="North", surface="hard", hourly=15),
        Room(kind="room", name="Attic", seats=30, equipment=[]),
    ]


@tool(namespace="club")
def bookings_by_day() -> dict[str, list[dict[str, str | int | None]]]:
    """Bookings by day, each with `facility`, `hour`, `who` (or null)."""
    return {
        "2026-03-02": [
            {"facility": "Centre", "hour": 9, "who": "Ida Rud"},
            {"facility": "Library", "hour": 18, "who": None},
        ],
        "2026-03-03": [{"facility": "Centre", "hour": 10, "who": "Leo Dahl"}],
        "2026-03-04": [],
    }


@tool(namespace="club")
def book_facility(name: str, day: dt.date, hour: int, hours: int = 1) -> tuple[bool, str]:
    """Books; gives whether it worked, and a number or a reason."""
    if hour < 8:
        return False, "closed"
    return True, f"B-{day:%m%d}-{hour}"


@tool(namespace="club")
def lottery(tickets: list[int]) -> dict[int, float | None]:
    """What each ticket won, or null."""
    return {ticket: None if ticket % 2 else ticket * 1.5 for ticket in tickets}


# --- dicts whose values are containers or texts


@tool(namespace="club")
def get_invoice(number: int) -> dict[str, dict[str, float | str] | str]:
    """An invoice, as `invoice` with `amount`, `currency`, `due`; or `error` with a text."""
    if number > 100:
        return {"error": f"no invoice {number}"}
    return {"invoice": {"amount": 40.0 + number, "currency": "NOK", "due": "2026-03-31"}}


@tool(namespace="club")
def search_posts(word: str) -> dict[str, list[dict[str, str | list[str]]] | str]:
    """Posts with a word, as `results` with `author`, `text`, `tags`; or `message` if there are none."""
    if word == "nothing":
        return {"message": "no results"}
    return {"results": [{"author": "Ida", "text": f"On {word}", "tags": ["club", word]}]}


@tool(namespace="club")
def get_stats() -> dict[str, int | float | str | dict[str, int]]:
    """`members`, `average_age`, `name`, and `by_level` (numbers by level)."""
    return {
        "members": 5,
        "average_age": 41.5,
        "name": "The Club",
        "by_level": {"junior": 2, "senior": 2, "honorary": 1},
    }


@tool(namespace="club")
def poll_results(id: int) -> list[dict[str, int | str | list[str]]]:
    """Answers of a poll: `answer`, `votes`, `voters`."""
    return [
        {"answer": "Saturday", "votes": 3, "voters": ["Ida", "Leo", "Mona"]},
        {"answer": "Sunday", "votes": 1, "voters": ["Nils"]},
    ]


@tool(namespace="club")
def latest_notice() -> dict[str, str] | None:
    """The newest notice, as `title` and `text`; null if there is none."""
    return {"title": "Spring cleaning", "text": "Bring gloves."}


# --- raw schemas that say less than what comes


def _open_door(input: dict[str, Any]) -> Any:
    if input["door"] == "back":
        return {"error": "door back is stuck"}
    return {"status": "open", "opened_at": "2026-03-02T08:00:00Z", "by": "agent", "seconds": 4}


def _sensor(input: dict[str, Any]) -> Any:
    return {"name": input["name"], "value": 21.5, "unit": "C", "battery": {"level": 80, "low": False}}


def _list_devices(input: dict[str, Any]) -> Any:
    devices: list[dict[str, Any]] = [
        {"id": "d1", "kind": "lamp", "online": True, "watts": 9},
        {"id": "d2", "kind": "lock", "online": False},
        {"id": "d3", "kind": "lamp", "online": True, "watts": 11},
    ]
    return {"devices": devices, "count": 3}


def _set_device(input: dict[str, Any]) -> Any:
    return {"id": input["id"], "applied": input.get("options", {}), "ok": True}


def _history(input: dict[str, Any]) -> Any:
    if input["day"] != "today":
        return {"message": "no history"}
    return [{"time": "07:10", "what": "open"}, {"time": "06:55", "what": "alarm off"}]


def _report(input: dict[str, Any]) -> Any:
    return json.dumps({"day": input["day"], "visits": 14, "doors": {"front": 10, "back": 4}})


_TEXT, _NUMBER, _TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def _raw(execute: Any, description: str, inputs: dict[str, Any], output: dict[str, Any] | None) -> Tool:
    return define_tool(
        name=execute.__name__.strip("_"),
        namespace="gate",
        description=description,
        input_schema={**_object(**inputs), "required": [key for key in inputs if key != "options"]},
        output_schema=output,
        execute=execute,
    )


_DEVICE = _object(id=_TEXT, kind=_TEXT, online=_TRUTH)
_EVENTS = {"type": "array", "items": _object(time=_TEXT, what=_TEXT)}

_GATE_TOOLS = [
    _raw(_open_door, "Opens a door.", {"door": _TEXT}, _object(status=_TEXT, opened_at=_TEXT)),
    _raw(_sensor, "Reads a sensor.", {"name": _TEXT}, _object(name=_TEXT, value=_NUMBER, unit=_TEXT)),
    _raw(_list_devices, "Lists devices.", {}, _object(devices={"type": "array", "items": _DEVICE})),
    _raw(_set_device, "Sets options of a device.", {"id": _TEXT, "options": {"type": "object"}}, None),
    _raw(
        _history,
        "What happened, newest first: a list, or an object with a message.",
        {"day": _TEXT},
        {"anyOf": [_EVENTS, _object(message=_TEXT)]},
    ),
    _raw(_report, "A report as text.", {"day": _TEXT}, _TEXT),
]

CLUB_TOOLS = (
    list_people,
    get_member,
    get_thread,
    list_facilities,
    bookings_by_day,
    book_facility,
    lottery,
    get_invoice,
    search_posts,
    get_stats,
    poll_results,
    latest_notice,
    *_GATE_TOOLS,
)
