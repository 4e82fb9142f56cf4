from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from corral import Corral, tool


class Person(BaseModel):
    """Someone who works here."""

    name: str
    born: date | None = None
    manager: "Person | None" = None


@tool(namespace="people")
async def find(
    name: Annotated[str, Field(min_length=2)],
    sort: Literal["name", "age"] = "name",
) -> list[Person]:
    """Finds people by a part of their name.

    Args:
        name: Any part of it.
        sort: What to sort by.

    Returns:
        At most 50 people.
    """
    return []


@tool
async def count(kind: str, options: dict[str, int] | None = None) -> int:
    """Counts things."""
    return 0


print(Corral(tools=[find, count]).model.declarations(), end="")
