"""What a declaration costs grows as its schema does, whatever the schema is made of."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from corral import define_tool
from corral.model import Catalog, declare_python, declare_typescript, secret_parameters
from corral.model.printing.printers import declare_short
from corral.tools import ToolRegistry
from corral.types import Language, ToolName
from tests.work import calls_of

_SMALL = 12
IN_ONE = [
    "typescript",
    pytest.param("python", marks=pytest.mark.matrix("the same reading of schemas in TypeScript in the gate")),
]


def objects(count: int, kind: str = "p") -> dict[str, Any]:
    return {"type": "object", "properties": {f"{kind}{i}": {"type": "string"} for i in range(count)}}


def resources(count: int) -> dict[str, Any]:
    """Each with the same dynamic anchor, and referring to it."""
    inner = {"$dynamicAnchor": "a", "properties": {"x": {"$dynamicRef": "#a"}}}
    return {"$dynamicAnchor": "a", "properties": {f"p{i}": {"$id": f"http://a/{i}", **inner} for i in range(count)}}


def patterned(count: int) -> dict[str, Any]:
    return {**objects(count), "patternProperties": {f"^x{i}-": {"type": "string"} for i in range(count)}}


def alike(count: int) -> dict[str, Any]:
    return {"type": "object", "patternProperties": {f"^x[a-z]{i}": {"enum": [i]} for i in range(count)}}


def conditions(count: int) -> dict[str, Any]:
    condition = [{"if": {"properties": {f"p{i}": {"const": i}}}, "then": {"required": ["q"]}} for i in range(count)]
    return {**objects(count), "allOf": condition}


def constants(count: int) -> dict[str, Any]:
    return {"oneOf": [{"properties": {f"p{i}": {"const": 1} for i in range(count)}} for _ in range(8)]}


SCHEMAS: dict[str, Callable[[int], dict[str, Any]]] = {
    "constants": lambda count: {"enum": [f"x{i}" for i in range(10 * count)]},
    "all but constants": lambda count: {"enum": list(range(10 * count)), "not": {"enum": list(range(5 * count))}},
    "properties": lambda count: objects(10 * count),
    "patterns": patterned,
    "patterns of one prefix": alike,
    "objects in one": lambda count: {"allOf": [objects(1, f"p{i}_") for i in range(2 * count)]},
    "conditions": conditions,
    "choices that share constants": constants,
    "choices of one property": lambda count: {"anyOf": [{"properties": {"p": {"const": i}}} for i in range(2 * count)]},
    "a chain": lambda count: {
        "$ref": "#/$defs/D0",
        "$defs": {f"D{i}": {"properties": {"next": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(5 * count)},
    },
    "dynamic references": resources,
}


@pytest.mark.parametrize("language", IN_ONE)
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_twice_the_schema_takes_about_twice_as_long(
    schema: Callable[[int], dict[str, Any]], language: Language
) -> None:
    def work(count: int) -> int:
        shape = SimpleNamespace(
            description="",
            input_schema=None,
            output_schema=schema(count),
            needs_approval=False,
            policy="",
            stream=False,
            rate_limit=None,
            returns_bytes=False,
        )
        tools: Any = {ToolName(None, "made"): shape}
        whole = declare_python if language == "python" else declare_typescript
        return calls_of(lambda: (whole(tools), declare_short(tools, language)))

    work(3)  # imports
    assert work(2 * _SMALL) < 2.6 * work(_SMALL)


def test_secrets_are_looked_for_only_where_some_may_be() -> None:
    plain, secret = objects(500), objects(500) | {"required": ["password"]}
    assert calls_of(lambda: secret_parameters(plain)) < calls_of(lambda: secret_parameters(secret)) / 50
    for name in ("apiKey", "password", "AccessToken", "JWT", "client-credentials", "Authorization"):
        assert secret_parameters({"properties": {name: {"type": "string"}}}) == (name,)


# --- many tools of one API


def chained(count: int, definitions: dict[str, Any]) -> dict[ToolName, Any]:
    """Tools whose schemas all have the same definitions, and something of their own."""

    def tool(number: int) -> Any:
        given = {"type": "object", "properties": {f"own{number}": {"$ref": "#/$defs/D1"}}, "$defs": definitions}
        returned = {"$ref": "#/$defs/D0", "$defs": definitions}
        return SimpleNamespace(
            description="",
            input_schema=given,
            output_schema=returned,
            needs_approval=False,
            policy="",
            stream=False,
            rate_limit=None,
            returns_bytes=False,
        )

    return {ToolName("api", f"tool{number}"): tool(number) for number in range(count)}


def chain(count: int) -> dict[str, Any]:
    inner = {
        f"D{i}": {"title": f"Part {i}", "properties": {"next": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(count)
    }
    return inner | {
        f"D{count}": {"type": "object", "properties": {"back": {"$ref": "#/$defs/D0"}, "n": {"type": "number"}}}
    }


def test_what_tools_have_in_common_is_read_once() -> None:
    definitions = chain(100)
    few, many = (calls_of(lambda count=count: declare_typescript(chained(count, definitions))) for count in (10, 40))
    assert many < 2 * few


@pytest.mark.parametrize("declare", [declare_typescript, declare_python])
def test_the_text_does_not_depend_on_what_is_read_once(declare: Callable[..., str]) -> None:
    definitions = chain(12)
    tools = chained(5, definitions)
    other = chained(5, {**definitions, "D3": {"type": "string"}})
    tools |= {ToolName("other", name.name): each for name, each in other.items()}
    assert declare(tools) == declare(deepcopy(tools))


def test_a_schema_that_says_where_it_is_stands_by_itself() -> None:
    definitions: dict[str, Any] = chain(12)
    tools = chained(2, definitions) | chained(1, {**definitions, "D2": {"$id": "http://a/", "$ref": "#"}})
    text = declare_typescript(tools)
    assert text == declare_typescript(deepcopy(tools))


@pytest.mark.parametrize("language", IN_ONE)
def test_a_catalog_does_not_read_whole_what_has_no_room_in_it(language: Language) -> None:
    schema = {"type": "object", "properties": {"e": {"enum": [f"value {number}" for number in range(30_000)]}}}
    tools = ToolRegistry(*(define_tool(name=f"t{number}", input_schema=schema, execute=print) for number in range(20)))
    assert calls_of(lambda: Catalog(tools, language)) < 1_000_000
