from typing import Annotated, Literal

from pydantic import BaseModel, Field

from corral import Corral, tool


class Person(BaseModel):
    """Someone who works here."""

    name: str
    age: int = Field(ge=0)
    manager: "Person | None" = None


@tool(namespace="people")
async def find(
    name: Annotated[str, Field(min_length=2)],
    sort: Literal["name", "age"] = "name",
    limit: int | None = None,
) -> list[Person]:
    """Finds people by a part of their name.

    Args:
        name: Any part of it.
        limit: How many at most.
    """
    return []


@tool
async def average(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The middle of some points."""
    return points[0]


print(Corral(tools=[find, average]).model.declarations("python"), end="")
