"""The stubs that a model reads: what is named, what is told, in which order."""

from __future__ import annotations

import ast
import json
import re
from textwrap import dedent
from typing import Any

import pytest

from corral.model import declare_python
from corral.types import JsonSchema, ToolName
from tests.docs.markdown import ROOT, table
from tests.model.declarations.checker import declare, errors_of
from tests.model.declarations.compiler import Shape

STRING: JsonSchema = {"type": "string"}
POINT: JsonSchema = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}
ADDRESS: JsonSchema = {
    "type": "object",
    "description": "Where something is.",
    "properties": {"street": STRING | {"description": "With its number."}, "geo": {"$ref": "#/$defs/Geo"}},
    "required": ["street"],
}
DEFINITIONS: JsonSchema = {"Address": ADDRESS, "Geo": POINT}


def properties(**schemas: Any) -> JsonSchema:
    return {"type": "object", "properties": schemas, "required": list(schemas)}


def optional(**schemas: Any) -> JsonSchema:
    return {"type": "object", "properties": schemas}


def head(schema: JsonSchema) -> str:
    """The line that declares a tool of that input."""
    text = re.sub(r"\s*#:[^\n]*", "", declare(t=Shape(input_schema=schema)))
    found = re.search(r"async def .*? -> .*?:(?= \.\.\.\n)", text, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", found[0]).replace(", )", ")")


TOOLS = {
    ToolName("github", "list"): Shape(
        description="Open issues.\n\nNewest first.",
        input_schema=optional(
            limit={"type": "integer", "default": 30, "maximum": 100},
            labels={"type": "array", "items": STRING, "description": "All of them.\nNo others."},
        ),
        output_schema={"type": "array", "items": STRING, "description": "Titles."},
    ),
    ToolName("github", "close"): Shape(
        input_schema=properties(numbers={"type": "array", "items": {"type": "integer"}}), needs_approval=True
    ),
    ToolName("github", "old$name"): Shape(input_schema=properties(a=STRING), output_schema={"type": "null"}),
    ToolName(None, "locate"): Shape(
        description="Finds an address.",
        input_schema={"$ref": "#/$defs/Address", "$defs": DEFINITIONS},
        output_schema=properties(geo={"anyOf": [{"$ref": "#/$defs/Geo"}, {"type": "null"}]}, home=ADDRESS)
        | {"$defs": DEFINITIONS},
    ),
    ToolName(None, "anything"): Shape(),
}


def test_a_whole_declaration() -> None:
    assert declare_python(TOOLS) == dedent('''\
        import builtins
        from typing import Any, NotRequired, TypedDict
        class Address(TypedDict):
            """Where something is."""
            street: str #: With its number.
            geo: NotRequired[Geo]
        class Geo(TypedDict):
            lat: float
        class LocateOutput(TypedDict):
            geo: Geo | None
            home: Address
        class tools:
            @staticmethod
            async def anything(input: Any = ..., /) -> Any: ...
            @staticmethod
            async def locate(*,
                street: str, #: With its number.
                geo: Geo = ...,
            ) -> LocateOutput:
                """Finds an address."""
            class github:
                @staticmethod
                async def close(*, numbers: builtins.list[int]) -> Any:
                    """Approval: required; calls wait"""
                @staticmethod
                async def list(*,
                    limit: int = 30, #: maximum 100
                    #: All of them.
                    #: No others.
                    labels: builtins.list[str] = ...,
                ) -> builtins.list[str]:
                    """Open issues.
                    Newest first.
                    Returns: Titles."""
                #: getattr(tools.github, "old$name")
                #: @staticmethod
                #: async def old$name(*, a: str) -> None: ...
        codemode = tools
    ''')
    assert declare_python(dict(reversed(TOOLS.items()))) == declare_python(TOOLS)


def test_programs_are_held_to_what_is_declared() -> None:
    good = """
        from stubs import codemode, tools
        async def program() -> str:
            issues = await tools.github.list(limit=5, labels=["bug"])
            place = await codemode.locate(street=issues[0])
            geo = place["geo"]
            return place["home"]["street"] if geo is None else f"{geo['lat'] + 1}"
    """
    bad = """
        async def wrong() -> None:
            await tools.github.list(5)
            await tools.github.list(limt=5)
            await tools.github.close(numbers=["1"])
            await tools.github.shut()
            (await tools.locate(street=""))["geo"]["lat"]
            (await tools.github.list())[0].nothing
            tools.locate(street="")["geo"]
    """
    lines = [*dedent(good).splitlines(), *dedent(bad).splitlines()]
    in_stubs, in_program = errors_of(declare_python(TOOLS), "\n".join(lines))
    assert in_stubs == {}
    assert list(in_program) == list(range(len(lines) - 6, len(lines) + 1))


def test_no_tools_at_all() -> None:
    assert declare() == "class tools:\n    ...\ncodemode = tools\n"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (properties(a=STRING), "*, a: str"),
        (optional(a=STRING), "*, a: str = ..."),
        (optional(a=STRING | {"default": 'x"\n'}), r'*, a: str = "x\"\n"'),
        (optional(a={"type": "boolean", "default": True}), "*, a: bool = True"),
        (optional(a={"type": ["string", "null"], "default": None}), "*, a: str | None = None"),
        (optional(a={"type": ["string", "null"]}), "*, a: str | None = ..."),
        (optional(a={"enum": ["x", "y"], "default": "y"}), '*, a: Literal["x", "y"] = "y"'),
        (optional(a={"type": "integer", "default": 2.0}), "*, a: int = 2"),
        (optional(a={"type": "integer", "default": "two"}), "*, a: int = ..."),
        (optional(a={"type": "array", "items": STRING, "default": []}), "*, a: list[str] = ..."),
        ({"type": "object", "additionalProperties": False}, ""),
        ({"type": "object"}, "input: dict[str, Any] = ..., /"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "input: dict[str, float] = ..., /"),
        (properties(a=STRING) | {"additionalProperties": STRING}, "input: TInput, /"),
        (properties(**{"a-b": STRING}), "input: TInput, /"),
        (properties(**{"from": STRING}), "input: TInput, /"),
        ({"$ref": "#/$defs/Geo", "$defs": DEFINITIONS}, "*, lat: float"),
        ({"anyOf": [POINT, properties(a=STRING)]}, "input: TInputLat | TInputA, /"),
        ({"type": "array", "items": STRING}, "input: list[str], /"),
        (STRING, "input: str, /"),
        ({}, "input: Any = ..., /"),
    ],
)
def test_an_input_is_keywords_where_these_can_be_written_and_else_one_value(schema: JsonSchema, expected: str) -> None:
    assert head(schema) == f"async def t({expected}) -> Any:"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("foo-bar", "FooBar"),
        ("ValueError", "ValueErrorType"),
        ("any", "AnyType"),
        ("none", "NoneType"),
        ("Date", "Date"),
        ("3d", "Type3d"),
        ("größe", "Größe"),
        ("***", "Type"),
        ("Taken", "TakenInput"),
    ],
)
def test_definitions_get_type_names_that_mean_nothing_else(name: str, expected: str) -> None:
    schema = properties(v={"$ref": f"#/$defs/{name}"}) | {"$defs": {name: STRING}}
    text = declare_python({ToolName(None, "t"): Shape(input_schema=schema), ToolName("Taken", "Taken"): Shape()})
    assert f"\n{expected}: TypeAlias = str\n" in text


def test_objects_without_a_name_are_called_by_where_they_are() -> None:
    filters, others = (
        properties(filter=properties(words={"type": "array", "items": item})) for item in (POINT, properties(x=STRING))
    )
    sizes = properties(size={"oneOf": [properties(kind={"const": "px"}), properties(kind={"const": "em"}), POINT]})
    text = declare(find=Shape(input_schema=filters), search=Shape(input_schema=others), draw=Shape(input_schema=sizes))
    names = [line.split()[1].split("(")[0] for line in text.splitlines() if "(TypedDict)" in line]
    assert names == ["Filter", "SearchFilter", "SearchWordsItem", "SizeEm", "SizeLat", "SizePx", "WordsItem"]


def test_only_what_is_used_is_declared_and_imported() -> None:
    schema = {"allOf": [{"$ref": "#/$defs/Geo"}, properties(a=STRING)], "$defs": DEFINITIONS}
    text = declare(t=Shape(input_schema=schema, output_schema={"type": "null"}))
    assert text.startswith("class tools:\n    @staticmethod\n    async def t(*, lat: float, a: str) -> None: ...\n")
    text = declare(t=Shape(output_schema=properties(v=schema), input_schema=STRING))
    assert text.startswith("from typing import TypedDict\nclass TOutput(TypedDict):\n    v: V\nclass V(TypedDict):\n")


def test_recursive_definitions_mention_each_other() -> None:
    defs = {
        "Json": {"anyOf": [STRING, {"type": "array", "items": {"$ref": "#/$defs/Json"}}, {"$ref": "#/$defs/Node"}]},
        "Node": properties(value={"$ref": "#/$defs/Json"}) | {"additionalProperties": {"$ref": "#/$defs/Node"}},
    }
    assert declare(t=Shape(input_schema={"$ref": "#/$defs/Json", "$defs": defs})).startswith(
        "from typing import Any, TypeAlias\n"
        "from typing_extensions import TypedDict\n"
        "Json: TypeAlias = str | list[Json] | Node\n"
        "class Node(TypedDict, extra_items=Node):\n"
        "    value: Json\n"
    )


def test_what_has_no_name_in_python_is_a_comment_that_says_how_to_get_it() -> None:
    text = declare_python(
        {ToolName("a$b", "c"): Shape(), ToolName("a$b", "d$e"): Shape(), ToolName(None, "if"): Shape()}
    )
    assert [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)] == ["tools"]
    assert '#: getattr(tools, "a$b")\n' in text
    assert 'getattr(getattr(tools, "a$b"), "d$e")\n' in text
    assert '#: getattr(tools, "if")\n' in text


@pytest.mark.parametrize(
    ("schema", "comment"),
    [
        ({"type": "string", "format": "uuid"}, "format uuid"),
        ({"type": "integer", "description": "A page.", "minimum": 0, "default": 3}, "A page. (default 3, minimum 0)"),
        ({"type": "string", "deprecated": True}, "deprecated"),
        ({"default": {"a": [True, None]}}, 'default {"a": [True, None]}'),
        ({"oneOf": [{"const": 1, "description": "low"}, {"const": 2}]}, "- 1: low"),
    ],
)
def test_comments_say_what_types_cannot(schema: JsonSchema, comment: str) -> None:
    text = declare(t=Shape(output_schema=properties(v=schema)))
    assert f"#: {comment}\n" in text


DOCUMENTED = table(ROOT / "docs" / "declarations.md", "in the schema")


@pytest.mark.parametrize("row", DOCUMENTED, ids=[row[0] for row in DOCUMENTED])
def test_a_schema_becomes_the_type_in_the_documentation(row: list[str]) -> None:
    assert head(properties(v=json.loads(row[0]))) == f"async def t(*, v: {row[1]}) -> Any:"
