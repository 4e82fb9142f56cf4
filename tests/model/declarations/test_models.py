"""Schemas as pydantic writes them: arguments that a model accepts are accepted by the type, and others are not."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tests.model.declarations.compiler import Shape, declare, judge, type_errors, wrong

Item = TypeVar("Item")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A point on earth."""

    model_config = ConfigDict(extra="forbid")
    lat: float = Field(ge=-90, le=90, description="Degrees north")
    lon: float
    color: Color = Color.RED


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    cursor: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[str] = set()


class Node(BaseModel):
    value: int
    children: list[Node] = []
    parent: Node | None = None


class Row(NamedTuple):
    name: str
    size: int = 0


class Options(TypedDict):
    depth: int
    names: NotRequired[list[str]]


class Extensible(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]  # pyright: ignore[reportIncompatibleVariableOverride] - as pydantic documents it
    name: str


class Matrix(RootModel[list[list[float]]]):
    pass


POINT = {"lat": 1.5, "lon": 2}
MODELS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "model": (Point, [POINT, POINT | {"color": "blue"}], [{"lat": 1}, POINT | {"color": "green"}, POINT | {"z": 1}]),
    "generic": (
        Page[Point],
        [{"items": [POINT]}, {"items": [], "cursor": None}],
        [{"items": [1]}, {"items": [{"lat": 1}]}],
    ),
    "generic of a builtin": (Page[int], [{"items": [1], "cursor": "c"}], [{"items": ["x"]}, {}]),
    "discriminated": (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        [{"kind": "cat", "lives": 9}, {"kind": "dog", "tricks": ["sit"]}, {"kind": "dog"}],
        [{"kind": "cat"}, {"kind": "cow"}, {"kind": "cat", "lives": "nine"}],
    ),
    "recursive": (
        Node,
        [{"value": 1, "children": [{"value": 2, "parent": None}]}],
        [{"value": 1, "children": [{}]}, {"value": 1, "parent": {"value": "x"}}],
    ),
    "map": (dict[str, Point], [{}, {"a": POINT}], [{"a": 1}, {"a": {"lat": 1}}]),
    "map by enum": (dict[Color, int], [{}, {"red": 1}], [{"green": 1}, {"red": "x"}]),
    "map by literal": (dict[Literal["a", "b"], bool], [{"a": True}], [{"c": True}, {"a": 1}]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
    "long tuple": (tuple[float, ...], [[], [1, 2, 3]], [["a"]]),
    "named tuple": (Row, [["a"], ["a", 1]], [[], ["a", "b"], ["a", 1, 2]]),
    "literals": (Literal[1, "x", True] | None, [1, "x", True, None], [2, "y", False]),
    "nullable": (int | None, [1, None], ["x"]),
    "union": (int | str | list[int], [1, "a", [1]], [None, ["a"], {}]),
    "texts": (tuple[datetime, date, UUID], [["2026-01-01T00:00:00Z", "2026-01-01", str(UUID(int=0))]], [[1, 2, 3]]),
    "decimal": (Decimal, [1.5, "1.5"], [None, []]),
    "bytes": (bytes, ["x"], [1]),
    "typed dict": (Options, [{"depth": 1}, {"depth": 1, "names": ["a"]}], [{}, {"depth": 1, "names": [1]}]),
    "extra properties": (Extensible, [{"name": "a"}, {"name": "a", "n": 1}], [{"n": 1}, {"name": "a", "n": True}]),
    "root model": (Matrix, [[[1, 2], []]], [[1], [["a"]]]),
    "any JSON": (dict[str, JsonValue], [{"a": [1, None, {"b": "c"}]}], [1]),
    "fixed length": (Annotated[list[int], Field(min_length=2, max_length=2)], [[1, 2]], [[1], [1, 2, 3]]),
}


def test_a_type_accepts_what_a_model_accepts_and_nothing_else() -> None:
    schemas = [TypeAdapter[Any](model).json_schema() for model, _, _ in MODELS.values()]
    verdicts = judge(schemas, [[*valid, *invalid] for _, valid, invalid in MODELS.values()])
    misjudged = {
        name: found
        for (name, (_, valid, invalid)), verdict in zip(MODELS.items(), verdicts, strict=True)
        if (found := wrong(verdict, [*valid, *invalid], len(valid)))
    }
    assert misjudged == {}


def test_models_accept_the_valid_arguments() -> None:
    for name, (model, valid, _) in MODELS.items():
        adapter = TypeAdapter[Any](model)
        assert [adapter.validate_python(value) for value in valid], name


def test_defaults_are_optional_in_what_goes_in_and_certain_in_what_comes_out() -> None:
    adapter = TypeAdapter(list[Point])
    shape = Shape(input_schema=adapter.json_schema(), output_schema=adapter.json_schema(mode="serialization"))
    text = declare(paint=shape)
    program = (
        f"const points = await tools.paint([{POINT}]);\nconst color: 'red' | 'blue' | undefined = points[0].color;\n"
    )
    assert type_errors(text + program) == {}
    with pytest.raises(ValidationError):
        adapter.validate_python([{"lat": 1}])


def test_titles_that_pydantic_makes_up_are_not_repeated() -> None:
    text = declare(tool=Shape(input_schema=TypeAdapter(Page[Point]).json_schema()))
    assert "// A point on earth.\n" in text
    assert "lat: number; // Degrees north (minimum -90, maximum 90)" in text
    assert "Cursor" not in text
