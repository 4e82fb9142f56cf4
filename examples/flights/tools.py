"""What a program may ask about the flights: rows, a page at a time. Joining and counting them is the program's part."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from corral import Tool, ToolError, tool
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from database import select

__all__ = ["TOOLS"]

Origin: TypeAlias = Literal["EWR", "JFK", "LGA"]
Month: TypeAlias = Annotated[int, Field(ge=1, le=12)]
Offset: TypeAlias = Annotated[int, Field(ge=0)]
described = with_config(ConfigDict(use_attribute_docstrings=True))
"""Shows the texts below fields to the model."""


@described
class Airline(TypedDict):
    carrier: str
    """Two characters, as in flights."""
    name: str


@described
class Airport(TypedDict):
    faa: str
    """Three characters, as `origin` and `dest` of flights."""
    name: str
    lat: float
    lon: float
    tzone: str | None
    """IANA time zone."""


@described
class Plane(TypedDict):
    tailnum: str
    year: int | None
    """Year of manufacture."""
    manufacturer: str
    model: str
    engines: int
    seats: int


@described
class PlanePage(TypedDict):
    planes: list[Plane]
    next_offset: int | None
    """Pass it as `offset` to get the next page; null on the last one."""


@described
class WeatherHour(TypedDict):
    time_hour: str
    """Start of the hour, UTC; joins with `time_hour` of flights from the same origin."""
    temp: float | None
    """Fahrenheit."""
    wind_speed: float | None
    """Miles per hour. One reading, over 1,000, is plainly wrong."""
    wind_gust: float | None
    """Miles per hour; null in an hour without gusts to report."""
    precip: float
    """Inches in the hour."""
    visib: float
    """Miles; 10 is the most that is recorded."""


@described
class Flight(TypedDict):
    carrier: str
    flight: int
    tailnum: str | None
    """Joins with planes. About one in six finds no plane there, mostly of AA and MQ, which report fleet numbers."""
    origin: Origin
    dest: str
    time_hour: str
    """Scheduled hour of departure, UTC, as in weather."""
    hour: int
    """The same hour on New York's clocks."""
    dep_delay: int | None
    """Minutes, negative if early; null if the flight was cancelled."""
    arr_delay: int | None
    """Minutes, negative if early; null if the flight was cancelled or diverted."""


@described
class FlightPage(TypedDict):
    flights: list[Flight]
    next_offset: int | None
    """Pass it as `offset` to get the next page; null on the last one."""


class Destination(TypedDict):
    dest: str
    flights: int


@tool(read_only=True)
def list_airlines() -> list[Airline]:
    """All airlines: the name for each carrier code."""
    return select(Airline, "FROM airlines ORDER BY carrier")


@tool(read_only=True)
def get_airport(code: str) -> Airport:
    """One airport. Throws a ToolError if the table does not have it, which is so for a few destinations.

    Args:
        code: Three characters, such as "JFK".
    """
    found = select(Airport, "FROM airports WHERE faa = :code", {"code": code})
    if not found:
        raise ToolError(f"the table of airports has no {code!r}")
    return found[0]


@tool(name="list", namespace="planes", read_only=True)
def list_planes(offset: Offset = 0, limit: Annotated[int, Field(ge=1, le=1_000)] = 1_000) -> PlanePage:
    """All planes by tail number, a page at a time.

    Args:
        offset: How many to skip.
        limit: How many to return at most.
    """
    planes = select(Plane, "FROM planes ORDER BY tailnum LIMIT :rows OFFSET :offset", _window(offset, limit))
    return PlanePage(planes=planes[:limit], next_offset=_next(offset, limit, len(planes)))


@tool(name="hourly", namespace="weather", read_only=True)
def hourly_weather(origin: Origin, month: Month) -> list[WeatherHour]:
    """The weather at an airport, hour by hour for a month of 2013. Some hours are missing."""
    return select(
        WeatherHour,
        "FROM weather WHERE origin = :origin AND month = :month ORDER BY time_hour",
        {"origin": origin, "month": month},
    )


@tool(name="list", namespace="flights", read_only=True)
def list_flights(
    origin: Origin | None = None,
    dest: str | None = None,
    carrier: str | None = None,
    month: Month | None = None,
    offset: Offset = 0,
    limit: Annotated[int, Field(ge=1, le=5_000)] = 5_000,
) -> FlightPage:
    """Flights that were to leave New York City in 2013, cancelled ones too, a page at a time. Filters combine.

    Args:
        origin: Only from this airport.
        dest: Only to this airport.
        carrier: Only of this airline.
        month: Only in this month of departure.
        offset: How many to skip: `next_offset` of the page before.
        limit: How many to return at most.
    """
    filters = {"origin": origin, "dest": dest, "carrier": carrier, "month": month}
    given = {column: value for column, value in filters.items() if value is not None}
    where = "WHERE " + " AND ".join(f"{column} = :{column}" for column in given) if given else ""
    rest = f"FROM flights {where} ORDER BY rowid LIMIT :rows OFFSET :offset"
    flights = select(Flight, rest, given | _window(offset, limit))
    return FlightPage(flights=flights[:limit], next_offset=_next(offset, limit, len(flights)))


@tool(name="destinations", namespace="flights", read_only=True)
def busiest_destinations(limit: Annotated[int, Field(ge=1, le=200)] = 10) -> list[Destination]:
    """Destinations with the number of flights scheduled in the year, the busiest first.

    Args:
        limit: How many to return at most.
    """
    counted = "(SELECT dest, count(*) AS flights FROM flights GROUP BY dest)"
    return select(Destination, f"FROM {counted} ORDER BY flights DESC, dest LIMIT :limit", {"limit": limit})


TOOLS: tuple[Tool, ...] = (
    list_airlines,
    get_airport,
    list_planes,
    hourly_weather,
    list_flights,
    busiest_destinations,
)


def _window(offset: int, limit: int) -> dict[str, object]:
    """One row more than asked for, which tells whether there is a next page."""
    return {"offset": offset, "rows": limit + 1}


def _next(offset: int, limit: int, found: int) -> int | None:
    return offset + limit if found > limit else None
