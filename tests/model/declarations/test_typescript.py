"""The text that a model reads: what is named, what is told in comments, in which order."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from corral.model import declare_typescript
from corral.tools import Tool, ToolRegistry, define_tool
from corral.types import JsonSchema, ToolName
from tests.model.declarations.compiler import Shape, declare, type_errors


def properties(**schemas: Any) -> JsonSchema:
    return {"type": "object", "properties": schemas, "required": list(schemas)}


def declared(schema: JsonSchema) -> str:
    return declare(tool=Shape(input_schema=schema))


ADDRESS: JsonSchema = {
    "type": "object",
    "description": "Where something is.",
    "properties": {"street": {"type": "string"}, "geo": {"$ref": "#/$defs/Geo"}},
    "required": ["street"],
}
GEO: JsonSchema = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}
DEFINITIONS: JsonSchema = {"Address": ADDRESS, "Geo": GEO}


def test_a_whole_declaration() -> None:
    tools = {
        ToolName("github", "list_issues"): Shape(
            description="Open issues.\n\nNewest first.",
            input_schema={"type": "object", "properties": {"limit": {"type": "integer", "default": 30}}},
            output_schema={"type": "array", "items": {"type": "string"}, "description": "Titles."},
        ),
        ToolName(None, "locate"): Shape(
            description="Finds an address.",
            input_schema={"$ref": "#/$defs/Address", "$defs": DEFINITIONS},
            output_schema=properties(geo={"anyOf": [{"$ref": "#/$defs/Geo"}, {"type": "null"}]})
            | {"$defs": DEFINITIONS},
        ),
        ToolName(None, "anything"): Shape(),
    }
    assert declare_typescript(tools) == dedent("""\
        // Where something is.
        type Address = { street: string; geo?: Geo };
        type Geo = { lat: number };
        declare const tools: {
          anything(input?: unknown): Promise<unknown>;
          // Finds an address.
          locate(input: Address): Promise<{ geo: Geo | null }>;
          github: {
            // Open issues.
            // Newest first.
            // Returns: Titles.
            list_issues(input?: {
              limit?: number; // default 30
            }): Promise<string[]>;
          };
        };
        declare const codemode: typeof tools;
    """)
    assert declare_typescript(dict(reversed(tools.items()))) == declare_typescript(tools)


def test_tools_of_a_registry_are_declared_under_the_names_programs_use() -> None:
    async def execute(input: Any) -> Any:
        return input

    tools: list[Tool] = [define_tool(name=name, execute=execute) for name in ("web-search", "getUser", "get_user")]
    registry = ToolRegistry(*tools)
    text = declare_typescript(registry.snapshot())
    assert all(f"  {name}(input" in text for name in map(str, registry))
    assert "web_search(" in text
    assert type_errors(text) == {}


def test_no_tools_at_all() -> None:
    assert declare() == "declare const tools: {};\ndeclare const codemode: typeof tools;\n"


def test_a_tool_without_a_schema_leaves_the_others_alone() -> None:
    text = declare(a=Shape(), b=Shape(input_schema=properties(x={"type": "string"})))
    assert "a(input?: unknown): Promise<unknown>;" in text
    assert "b(input: { x: string }): Promise<unknown>;" in text


def test_results_can_be_used_as_their_schema_says() -> None:
    text = declare(locate=Shape(output_schema=properties(geo={"$ref": "#/$defs/Geo"}) | {"$defs": DEFINITIONS}))
    program = "const { geo } = await tools.locate();\nconst lat: number = geo.lat;\nconst wrong: string = geo.lat;\n"
    same = "const again: typeof tools = codemode;\n"
    assert list(type_errors(text + program + same)) == [text.count("\n") + 3]


@pytest.mark.parametrize(
    ("schema", "optional"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, False),
        ({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object"}]}, True),
        ({"type": "string"}, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, True),
        ({}, True),
        ({"type": ["object", "null"]}, True),
    ],
)
def test_the_input_may_be_left_out_where_an_empty_object_will_do(schema: JsonSchema, optional: bool) -> None:
    assert ("tool(input?: " in declared(schema)) is optional


# --- names


def test_definitions_are_rendered_once_and_used_by_name() -> None:
    schema = properties(a={"$ref": "#/$defs/Geo"}, b={"$ref": "#/$defs/Geo"}) | {"$defs": DEFINITIONS}
    text = declare(x=Shape(input_schema=schema), y=Shape(output_schema=schema))
    assert text.count("type Geo = ") == 1
    assert "Address" not in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("foo-bar", "FooBar"),
        ("My Type", "MyType"),
        ("app__models__Node-Input", "AppModelsNodeInput"),
        ("Page_Item_", "PageItem"),
        ("HTTPError", "HTTPError"),
        ("3d", "Type3d"),
        ("***", "Type"),
        ("Promise", "PromiseType"),
        ("string", "StringType"),
        ("größe", "Größe"),
        ("a*/b", "AB"),
    ],
)
def test_definitions_get_valid_type_names(name: str, expected: str) -> None:
    text = declared({"$ref": "#/definitions/" + name.replace("/", "~1"), "definitions": {name: {"type": "string"}}})
    assert text.startswith(f"type {expected} = string;\n")


def test_equal_definitions_are_shared_and_different_ones_told_apart() -> None:
    def using(unit: str) -> JsonSchema:
        """The definition `Size` is always the same, but for what it refers to."""
        size = properties(unit={"$ref": "#/$defs/Unit"})
        return properties(size={"$ref": "#/$defs/Size"}) | {"$defs": {"Size": size, "Unit": {"const": unit}}}

    text = declare(
        a=Shape(input_schema=using("cm"), output_schema=using("in")),
        b=Shape(input_schema=using("cm")),
        c=Shape(input_schema=using("km")),
    )
    assert text.startswith(
        "type Size = { unit: Unit };\n"
        "type SizeInput = { unit: UnitInput };\n"
        "type SizeOutput = { unit: UnitOutput };\n"
        'type Unit = "cm";\n'
        'type UnitInput = "km";\n'
        'type UnitOutput = "in";\n'
    )
    assert "b(input: { size: Size })" in text
    assert "c(input: { size: SizeInput })" in text


def test_mutually_recursive_definitions_are_shared_between_tools() -> None:
    definitions = {"A": properties(b={"$ref": "#/$defs/B"}), "B": {"type": "array", "items": {"$ref": "#/$defs/A"}}}
    one: JsonSchema = {"$ref": "#/$defs/A", "$defs": definitions}
    other: JsonSchema = {"$ref": "#/$defs/B", "$defs": dict(reversed(definitions.items()))}
    text = declare(x=Shape(input_schema=one), y=Shape(input_schema=other))
    assert text.startswith("type A = { b: B };\ntype B = A[];\ndeclare")


# --- comments


@pytest.mark.parametrize(
    ("schema", "comment"),
    [
        ({"type": "string", "format": "uuid"}, "// format uuid"),
        ({"type": "number", "description": "Results per page", "default": 30}, "// Results per page (default 30)"),
        ({"type": "string", "deprecated": True}, "// deprecated"),
        ({"type": "string", "default": "x"}, '// default "x"'),
        ({"type": "array", "default": []}, "// default []"),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9.5}, "// minimum 0, exclusiveMaximum 9.5"),
        ({"type": "number", "multipleOf": 0.5}, "// multipleOf 0.5"),
        (
            {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a"},
            "// pattern ^a, minLength 1, maxLength 5",
        ),
        (
            {"type": "array", "minItems": 1, "maxItems": 50, "uniqueItems": True},
            "// minItems 1, maxItems 50, uniqueItems",
        ),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}, "// minimum 1"),
        ({"type": "string", "title": "The full name of the person"}, "// The full name of the person"),
        ({"oneOf": [{"const": 1, "description": "low"}, {"const": 2, "description": "high"}]}, "- 1: low"),
    ],
)
def test_comments_say_what_types_cannot(schema: JsonSchema, comment: str) -> None:
    assert comment in declared(properties(some_value=schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "title": "Some Value"},
        {"type": "string", "description": "  \n "},
        {"type": "string", "default": None},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "minItems": 1, "maxItems": 1},
        {"type": "string", "pattern": "x" * 1000},
    ],
)
def test_comments_leave_out_what_says_nothing(schema: JsonSchema) -> None:
    assert "//" not in declared(properties(some_value=schema))


def test_a_description_beside_a_reference_is_that_of_the_property() -> None:
    schema = properties(home={"$ref": "#/$defs/Geo", "description": "Where I live."}) | {"$defs": DEFINITIONS}
    assert "home: Geo; // Where I live.\n" in declared(schema)


def test_lines_of_a_description_are_kept_and_blank_ones_are_not() -> None:
    schema = properties(x={"type": "string", "description": "\n\nfirst\r\n\r\n\r\n  - second\u2028third\n"})
    assert "    // first\n    //   - second\n    // third\n    x: string;\n" in declared(schema)


def test_lines_that_were_wrapped_are_one_again_and_items_of_a_list_are_not() -> None:
    long = "A sentence that is so long that its author had to go on with it"
    text = f"{long}\non the next line.\n\n{long}:\n- one\n- two\n{long}.\n\nAnother paragraph."
    lines = declare(tool=Shape(description=text)).splitlines()
    assert [line.strip() for line in lines if "//" in line] == [
        f"// {long} on the next line.",
        f"// {long}:",
        "// - one",
        "// - two",
        f"// {long}.",
        "// Another paragraph.",
    ]


@pytest.mark.parametrize(
    ("schema", "comment"),
    [
        ({"type": "string", "examples": ["Oslo", "Bergen"]}, '// e.g. "Oslo", "Bergen"'),
        ({"type": "string", "examples": ["a", "a", "b", "c", "d"]}, '// e.g. "a", "b"'),
        ({"type": "string", "description": "A city.", "example": "Oslo"}, '// A city. (e.g. "Oslo")'),
        ({"type": "string", "examples": ["x" * 200, "short"]}, '// e.g. "short"'),
        ({"type": "object", "examples": [{"lat": 1.5}]}, '// e.g. {"lat": 1.5}'),
    ],
)
def test_examples_are_told_if_they_are_short(schema: JsonSchema, comment: str) -> None:
    assert f"{comment}\n" in declared(properties(x=schema))


@pytest.mark.parametrize("examples", [["x" * 200], "Oslo", [object()], {"a": 1}, []])
def test_other_examples_are_left_out(examples: object) -> None:
    assert "//" not in declared(properties(x={"type": "string", "examples": examples}))


def test_examples_of_a_whole_input_are_told_of_the_tool() -> None:
    text = declared(properties(city={"type": "string"}) | {"examples": [{"city": "Oslo"}]})
    assert '  // E.g.: {"city": "Oslo"}\n  tool(input: { city: string }): ' in text


def test_a_default_that_the_description_tells_is_not_told_again() -> None:
    text = declared(
        {"type": "object", "properties": {"a": {"type": "integer", "description": "Defaults to 5.", "default": 5}}}
    )
    assert "a?: number; // Defaults to 5.\n" in text


# --- types that occur several times

ORDER: JsonSchema = {
    "title": "Order",
    "description": "What somebody bought.",
    **properties(
        order_id={"type": "string", "description": "A number sign and digits."}, address={"$ref": "#/$defs/Address"}
    ),
    "$defs": DEFINITIONS,
}


def test_an_output_that_several_tools_have_is_named_once_by_its_title() -> None:
    text = declare(
        cancel=Shape(output_schema=ORDER),
        get=Shape(output_schema=ORDER),
        list=Shape(output_schema={"type": "array", "items": ORDER, "$defs": DEFINITIONS}),
    )
    assert text.count("A number sign and digits.") == text.count("What somebody bought.") == 1
    assert "// What somebody bought.\ntype Order = {" in text
    assert "  cancel(input?: unknown): Promise<Order>;" in text
    assert "  list(input?: unknown): Promise<Order[]>;" in text


def test_an_output_that_one_tool_has_stays_where_it_is() -> None:
    text = declare(get=Shape(output_schema=ORDER))
    assert "type Order " not in text
    assert "// Returns: What somebody bought.\n  get(" in text


def test_a_type_without_a_title_is_named_by_where_it_is() -> None:
    point = properties(
        latitude={"type": "number"}, longitude={"type": "number"}, altitude={"type": "number"}, label={"type": "string"}
    )
    text = declare(
        a=Shape(output_schema=properties(center=point)), b=Shape(output_schema=properties(center=point, x={}))
    )
    assert text.startswith("type Center = { latitude: number; longitude: number; altitude: number; label: string };\n")
    text = declare(find=Shape(output_schema=point), move=Shape(output_schema=point))
    assert text.startswith("type FindOutput = { latitude")


def test_equal_types_of_which_other_things_are_told_are_two() -> None:
    def of(unit: str) -> JsonSchema:
        return properties(
            size=properties(
                width={"type": "number", "description": f"How wide it is, in {unit}."}, height={"type": "number"}
            )
        )

    text = declare(
        a=Shape(output_schema=of("cm")), b=Shape(output_schema=of("inches")), c=Shape(output_schema=of("inches"))
    )
    assert "in cm." in text
    assert text.count("in inches.") == 1


def test_a_type_under_several_names_is_shared_only_if_it_is_long() -> None:
    seats = properties(business={"type": "integer"}, economy={"type": "integer"}, basic_economy={"type": "integer"})
    text = declare(a=Shape(output_schema=properties(seats=seats, prices=seats)))
    assert "type " not in text.partition("declare")[0]


def test_short_types_and_inputs_stay_where_they_are() -> None:
    schema = properties(
        a={"type": "string", "description": "One of the letters that there are, whichever it may be."},
        b={"type": "number"},
    )
    text = declare(
        x=Shape(input_schema=schema),
        y=Shape(input_schema=schema),
        z=Shape(output_schema=properties(i={"type": "string"})),
    )
    assert text.count("b: number") == 2
    assert "z(input?: unknown): Promise<{ i: string }>" in text


def test_a_long_description_of_the_same_member_is_told_once() -> None:
    described = {
        "type": "string",
        "description": "The order's number, such as '#W0000000'. Mind the sign at its beginning.",
    }
    tools = {name: Shape(input_schema=properties(order_id=described, **{name: {}})) for name in "abcd"}
    text = declare(**tools)
    assert text.startswith(f"// {described['description']}\ntype OrderId = string;\n")
    assert "  a(input: { order_id: OrderId; a: unknown }): Promise<unknown>;\n" in text


def test_a_default_of_such_a_member_stays_with_it() -> None:
    described = {
        "type": "integer",
        "description": "How many there are on one page of the list that you get, at most.",
        "default": 7,
    }
    tools = {name: Shape(input_schema={"type": "object", "properties": {"page_size": described}}) for name in "abcd"}
    text = declare(**tools)
    assert "page_size?: PageSize; // default 7\n" in text


def test_what_many_descriptions_begin_with_is_told_once() -> None:
    same = "This tool belongs to the travel system, which books flights. Description: "
    tools = {name: Shape(description=f"{same}Does {name}.") for name in "abc"}
    text = declare(**tools, d=Shape(description="Does d."))
    assert f"// [1] is: {same.strip()}\ndeclare" in text
    assert "  // [1] Does a.\n  a(" in text
    assert "  // Does d.\n  d(" in text
    assert "[1]" not in declare(a=tools["a"], b=tools["b"])


def test_what_is_checked_has_no_texts() -> None:
    tools = {
        ToolName(None, name): Shape(description="Texts.", input_schema=ORDER, output_schema=ORDER) for name in "ab"
    }
    assert "//" not in declare_typescript(tools, checked=True)


# --- tools that take nothing


@pytest.mark.parametrize(
    "schema",
    [{"type": "object", "properties": {}}, {"type": "object", "properties": {}, "additionalProperties": False}],
)
def test_a_tool_without_members_takes_no_argument_but_an_empty_object_is_accepted(schema: JsonSchema) -> None:
    assert "  tool(): Promise<unknown>;\n" in declared(schema)
    checked = declare_typescript({ToolName(None, "tool"): Shape(input_schema=schema)}, checked=True)
    assert type_errors(f"{checked}tools.tool();\ntools.tool({{}});\n") == {}


def test_a_tool_that_takes_any_object_says_so() -> None:
    assert "tool(input?: Record<string, unknown>): " in declared({"type": "object"})
