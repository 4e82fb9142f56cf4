"""What the rules read off the texts of compilers: types as they are printed, and schemas that are closed or not."""

from __future__ import annotations

from typing import Any

import pytest

from corral.checking.declared_types import DeclaredTypes, Reach
from corral.checking.inputs import Inputs
from corral.checking.python import messages as python
from corral.checking.typescript import messages as typescript
from corral.checking.written import python_arguments, read_python, read_typescript
from corral.programs.syntax.python import finder as python_finder
from corral.programs.syntax.python import parse as parse_python
from corral.programs.syntax.typescript import finder, parse

# --- TypeScript


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Type 'string' is not assignable to type 'number'.", ("string", "number")),
        (
            'Argument of type \'"done"\' is not assignable to parameter of type \'"open" | "closed"\'.',
            ('"done"', '"open" | "closed"'),
        ),
        (
            """Type '{ a: string; }' is not assignable to type '{ a: number; }'.
  Types of property 'a' are incompatible.
    Type 'string' is not assignable to type 'number'.""",
            ("string", "number"),
        ),
        (
            "Type 'string | null' is not assignable to type 'string'.\n  Type 'null' is not assignable to type 'string'.",
            ("string | null", "string"),
        ),
        ("Type '\"it's\"' is not assignable to type '\"a'b\" | \"c\"'.", ('"it\'s"', '"a\'b" | "c"')),
        (
            "Type '\"a\"' has no properties in common with type 'SearchOptions'.",
            ('"a"', "SearchOptions"),
        ),
        (
            "Property 'city' is missing in type '{ a: number; }' but required in type '{ city: string; }'.",
            ("{ a: number; }", "{ city: string; }"),
        ),
        (
            "Type '{}' is missing the following properties from type 'Contact': id, name, and 3 more.",
            ("{}", "Contact"),
        ),
        ("Cannot find name 'nope'.", None),
        ("", None),
    ],
)
def test_a_mismatch_of_typescript_is_the_innermost_one(message: str, found: tuple[str, str] | None) -> None:
    assert typescript.mismatch(message) == found


@pytest.mark.parametrize(
    ("type_", "members"),
    [
        ("string", ["string"]),
        ("string | null | undefined", ["string", "null", "undefined"]),
        ('"a | b" | "c\\" | d" | `e|${string}`', ['"a | b"', '"c\\" | d"', "`e|${string}`"]),
        ("{ a: string | null; } | (string | number)[]", ["{ a: string | null; }", "(string | number)[]"]),
        ("Map<string, A | B> | Set<C>", ["Map<string, A | B>", "Set<C>"]),
        ("((a: number) => string | null) | 5", ["((a: number) => string | null)", "5"]),
        ("(a: A<1 | 2>) => void", ["(a: A<1 | 2>) => void"]),
        ("", []),
    ],
)
def test_the_members_of_a_union_are_told_apart(type_: str, members: list[str]) -> None:
    assert typescript.union_members(type_) == members


NAMED = {"Status": '"open" | "closed"', "Contact": "{ id: string; name?: string }", "Id": "number", "Self": "Self"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("string", "number"),
        ("number", "boolean | null"),
        ("null", "string"),
        ("undefined", "string"),
        ("void", "string"),
        ('"done"', '"open" | "closed"'),
        ('"done"', "Status"),
        ("5", "6 | 7"),
        ("5n", '"5"'),
        ("true", "false"),
        ("string[]", "string"),
        ("string", "string[]"),
        ("readonly string[]", "Contact"),
        ("[string, number]", "string"),
        ("{ a: number; }", "string"),
        ("Contact", "Id"),
        ("Record<string, number>", "number[]"),
        ("Set<string>", "string | null"),
        ("Map<string, number>", "string"),
        ("Date", "number"),
        ("URL", "Contact"),
        ("RegExp", "number | string[] | Contact"),
        ("() => string", "string"),
        ("new () => Date", "string"),
        ("typeof Date", "string"),
        ("symbol", "string"),
        ("Promise<string>", "string"),
        ("`a${number}`", "number"),
        ("string | number", "boolean | Contact"),
        ("Error", "string"),
    ],
)
def test_typescript_types_of_which_no_value_is_of_both(given: str, wanted: str) -> None:
    assert typescript.certainly_differs(given, wanted, NAMED)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("string", '"open" | "closed"'),
        ("string", "Status"),
        ("string | null", "string"),
        ("string | undefined", "number | string"),
        ("number", "5"),
        ("10n", "number"),
        ("number", "bigint"),
        ("boolean", "true"),
        ("Date", "string"),
        ("Set<string>", "string[]"),
        ("Map<string, number>", "{ [key: string]: number; }"),
        ("Map<string, number>", "[string, number][]"),
        ("Iterable<string>", "string[]"),
        ("Uint8Array", "string"),
        ("Uint8Array<ArrayBuffer>", "number[]"),
        ("Buffer", "string"),
        ("ArrayBuffer", "string"),
        ("URL", "string"),
        ("Temporal.Instant", "string"),
        ("Error", "Contact"),
        ("any", "number"),
        ("unknown", "number"),
        ("never", "number"),
        ("object", "string"),
        ("{}", "string"),
        ("string & { brand: 1 }", "number"),
        ("OfTheProgramsOwn", "number"),
        ("Color", "string"),
        ("{ a: 1; }", "Contact"),
        ("Partial<Contact>", "Contact"),
        ("Self", "Self"),
        ("string[]", "number[]"),
        ("`a${number}`", "string"),
    ],
)
def test_typescript_types_of_which_some_value_may_be_of_both(given: str, wanted: str) -> None:
    assert not typescript.certainly_differs(given, wanted, NAMED)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Property 'a' is missing in type '{}' but required in type '{ a: 1; }'.", ["a"]),
        ("Type '{}' is missing the following properties from type 'X': a, b", ["a", "b"]),
        ("Type '{}' is missing the following properties from type 'X': a, b, c, d, and 2 more.", ["a", "b", "c", "d"]),
        ("Type 'string' is not assignable to type 'X'.\n  Property 'id' is missing in type 'S' but required in type 'X'.", ["id"]),
        ("Type 'string' is not assignable to type 'number'.", []),
        ("", []),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(message: str, names: list[str]) -> None:
    assert typescript.missing(message) == names


def test_declared_types_are_known_by_their_names() -> None:
    declared = 'type A = { a: string; b?: B } | null;\ntype B = "x" | "y";\ndeclare const tools: { a(): Promise<A> };\n'
    assert typescript.named_types(declared) == {"A": "{ a: string; b?: B } | null", "B": '"x" | "y"'}


@pytest.mark.parametrize(
    ("given", "wanted", "less"),
    [
        ("string", "number", True),
        ('"5"', "Id | null", True),
        ("string", "boolean", True),
        ("string", "bigint", True),
        ("string", "string[]", False),
        ("string | null", "number", False),
        ("number", "boolean", False),
    ],
)
def test_a_text_may_spell_a_number(given: str, wanted: str, less: bool) -> None:
    assert typescript.is_text_for_less(given, wanted, NAMED) is less


@pytest.mark.parametrize(
    ("type_", "is_object"), [("Contact", True), ("string | { a: 1 }", True), ("Id", False), ("string[]", False)]
)
def test_an_object_has_members_by_name(type_: str, is_object: bool) -> None:
    assert typescript.is_object(type_, NAMED) is is_object


# --- Python


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Argument to function `add` is incorrect: Expected `int`, found `str`", ("str", "int")),
        (
            'Argument to function `f` is incorrect: Expected `Literal["a", "b"] | None`, found `Literal["c"]`\ninfo: more',
            ('Literal["c"]', 'Literal["a", "b"] | None'),
        ),
        ("Object of type `int` is not assignable: expected `str`, found `int`", ("int", "str")),
        ("Name `nope` used when not defined", None),
        ("", None),
    ],
)
def test_a_mismatch_of_python_is_read_off_its_message(message: str, found: tuple[str, str] | None) -> None:
    assert python.mismatch(message) == found


@pytest.mark.parametrize(
    ("type_", "members"),
    [
        ("str | None", ["str", "None"]),
        ('Literal["a", "b, c"] | int', ['Literal["a"]', 'Literal["b, c"]', "int"]),
        ('Literal["a | b", "it\'s"]', ['Literal["a | b"]', 'Literal["it\'s"]']),
        ("Literal['x\\'y', 1, True]", ["Literal['x\\'y']", "Literal[1]", "Literal[True]"]),
        ("dict[str, int | None] | list[A | B]", ["dict[str, int | None]", "list[A | B]"]),
        ("(a: int) -> (str | None)", ["(a: int) -> (str | None)"]),
        ("", []),
    ],
)
def test_the_members_of_a_union_of_python_are_told_apart(type_: str, members: list[str]) -> None:
    assert python.union_members(type_) == members


OBJECTS = frozenset({"Contact"})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("str", "int"),
        ("int", "str | None"),
        ("None", "str"),
        ('Literal["done"]', 'Literal["open", "closed"]'),
        ("Literal[5]", "Literal[6, 7]"),
        ("Literal[True]", 'Literal["yes"]'),
        ("list[str]", "str"),
        ("str", "list[str]"),
        ("tuple[str, int]", "dict[str, int]"),
        ("set[str]", "str"),
        ("dict[str, int]", "list[int]"),
        ("Contact", "str"),
        ("list[str]", "Contact"),
        ("bytes", "int"),
        ("defaultdict[str, int]", "str"),
        ("CoroutineType[Any, Any, str]", "str"),
        ("def f(x: int) -> str", "str"),
        ("(x) -> int", "str"),
        ("<class 'int'>", "int"),
        ("str | bytes", "int | Contact"),
        ("collections.Counter[str]", "str"),
    ],
)
def test_python_types_of_which_no_value_is_of_both(given: str, wanted: str) -> None:
    assert python.certainly_differs(given, wanted, OBJECTS)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("str", 'Literal["open", "closed"]'),
        ("str | None", "str"),
        ("int", "float"),
        ("float", "int"),
        ("bool", "int"),
        ("Literal[1]", "float"),
        ("bytes", "str"),
        ("str", "bytes"),
        ("tuple[int, ...]", "list[int]"),
        ("set[int]", "list[int]"),
        ("dict[str, int]", "Contact"),
        ("Contact", "dict[str, Any]"),
        ("datetime", "str"),
        ("date", "str"),
        ("Decimal", "float"),
        ("OfTheProgramsOwn", "int"),
        ("Any", "int"),
        ("Unknown", "int"),
        ("str & ~AlwaysFalsy", "int"),
        ("list[str]", "list[int]"),
        ("Literal[b'x']", "str"),
    ],
)
def test_python_types_of_which_some_value_may_be_of_both(given: str, wanted: str) -> None:
    assert not python.certainly_differs(given, wanted, OBJECTS)


# --- schemas

OBJECT = finder("(object) @object")
CALL = python_finder("(call) @call")
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
TREE: dict[str, Any] = {
    "$defs": {"node": CLOSED | {"properties": {"children": {"items": {"$ref": "#/$defs/node"}}}}, "a/b": OPEN},
    "$ref": "#/$defs/node",
}


def told(schema: dict[str, Any], literal: str) -> list[str]:
    root = parse(f"f({literal})".encode()).root_node
    given = OBJECT(root)["object"][0]
    return [flaw.message for flaw in Inputs(read_typescript).flaws(schema, read_typescript(given))]


def is_closed(schema: dict[str, Any], path: list[str | None]) -> bool:
    """Whether a member that no schema lists is wrong in an object that is written out at a path."""
    literal = "{ other: 1 }"
    for step in reversed(path):
        literal = f"[{literal}]" if step is None else f"{{ {step}: {literal} }}"
    return any("has no member 'other'" in each for each in told(schema, literal))


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (CLOSED, []),
        ({"type": "object", "unevaluatedProperties": False}, []),
        ({"properties": {"filter": CLOSED}}, ["filter"]),
        ({"properties": {"filter": {"anyOf": [CLOSED, {"type": "null"}]}}}, ["filter"]),
        ({"properties": {"rows": {"type": "array", "items": CLOSED}}}, ["rows", None]),
        ({"additionalProperties": CLOSED}, ["anything"]),
        (TREE, []),
        (TREE, ["children", None, "children", None]),
    ],
)
def test_an_object_that_takes_only_what_it_lists_is_closed(schema: dict[str, Any], path: list[str | None]) -> None:
    assert is_closed(schema, path)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (OPEN, []),
        (CLOSED | {"additionalProperties": {"type": "string"}}, []),
        (CLOSED, ["a"]),
        (CLOSED, ["absent"]),
        ({}, []),
        ({"type": "string"}, []),
        ({"oneOf": [CLOSED, OPEN]}, []),
        ({"properties": {"rows": {"items": OPEN}}}, ["rows", None]),
        ({"$defs": {"a/b": OPEN}, "$ref": "#/$defs/a~1b"}, []),
        ({"$ref": "#"}, []),
        ({"$ref": "#/nowhere/at/all"}, []),
        ({"$ref": "https://example.com/schema"}, []),
        ({"properties": 5, "anyOf": 7, "$ref": 9}, ["a"]),
    ],
)
def test_an_object_that_may_take_more_or_is_not_known_is_open(schema: dict[str, Any], path: list[str | None]) -> None:
    assert not is_closed(schema, path)


# --- inputs that are written out


TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "size": {"type": "integer", "default": 1},
        "to": {"$ref": "#/$defs/person"},
        "copies": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/person"}}, {"type": "null"}]},
        "options": {"type": "object"},
        "state": {"enum": ["open", "closed"]},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}]},
        "either": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "object", "required": ["x"], "properties": {}}]},
    },
    "required": ["id", "size"],
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


@pytest.mark.parametrize(
    ("literal", "messages"),
    [
        ("{ ident: 1 }", ["'id' is missing in the input"]),
        ("{ id: undefined }", ["'id' is missing in the input"]),
        ("{ id: 1, to: {} }", ["'name' is missing in to"]),
        ("{ id: 1, to: ({ nme: 'a' } as any) }", ["'name' is missing in to"]),
        ("{ id: 1, copies: [{ name: 'a' }, { n: 'b' }] }", ["'name' is missing in copies[]"]),
        ("{ id: 1, options: [] }", ["options is an object, not an array"]),
        ("{ ...more, to: {} }", ["'name' is missing in to"]),
        ("{ id: 'one' }", ['id is an integer, not "one"']),
        ("{ id: 1.5 }", ["id is an integer, not 1.5"]),
        ("{ id: null }", ["id is an integer, not null"]),
        ("{ id: `one ${1}` }", ["id is an integer, not a string"]),
        ("{ id: 1, to: 'Ann' }", ['to is an object { name }, not "Ann"']),
        ("{ id: 1, copies: 'Ann' }", ['copies is an array or null, not "Ann"']),
        ("{ id: 1, either: {} }", ["'name' is missing in either"]),
        ("{ id: 1, state: 'opne' }", ['state is "open" or "closed", not "opne"']),
        ("{ id: 1, pair: ['a', 'b'] }", ['pair[] is a number, not "b"']),
    ],
)
def test_an_input_that_is_written_out_is_held_against_its_schema(literal: str, messages: list[str]) -> None:
    assert told(TICKET, literal) == messages


@pytest.mark.parametrize(
    "literal",
    [
        "{ id: 1 }",
        "{ 'id': 1, other: 2 }",
        "{ id }",
        "{ ...more }",
        "{ [key]: 1 }",
        "{ id: 1, to: person, copies: people }",
        "{ id: 1, either: { x: 1 } }",
        "{ id: 'one', ...more }",
        "{ id: 1, state: 'op\\u0065n' }",
        "{ id: 1, state: `${word}` }",
        "{ id: 1.0, state: some ? 'a' : 'b' }",
        "{ id: 1, pair: [...more, 'b'] }",
        "{ __proto__: person }",
        "{ id: 1, to: { get name() { return 'a' } } }",
        "{ id: 1, copies: null, options: {} }",
        "{ id: 'one' as any }",
        "{ id: 1, options: [] as any, to: ({ name: 1 } as any) }",
    ],
)
def test_an_input_may_have_what_its_schema_requires(literal: str) -> None:
    assert told(TICKET, literal) == []


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"$ref": "#"}, {"properties": 5, "required": 7}, {"allOf": []}]
)
def test_a_schema_that_says_little_asks_for_nothing(schema: dict[str, Any]) -> None:
    assert told(schema, "{ a: { b: [{}] } }") == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}, "required": []},
        {"properties": {"a": {"$id": "https://example.com/a", "$ref": "#/type"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "type": "string"},
        {"not": {"type": "object"}},
        {"properties": {"a": {"type": "money"}}},
        {"additionalProperties": False, "patternProperties": {"^a": {}}},
        {"properties": {"a": False}},
    ],
)
def test_a_schema_that_is_hard_to_read_says_nothing(schema: dict[str, Any]) -> None:
    assert told(schema, "{ a: 1 }") == []


def test_a_schema_that_branches_without_end_comes_to_an_end() -> None:
    schema = {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "anyOf": [{"$ref": "#"}, {"type": "object"}]}
    assert told(schema, "{ a: [{}] }") == []


def python_told(schema: dict[str, Any], call: str) -> list[str]:
    root = parse_python(call.encode()).root_node
    given = python_arguments(CALL(root)["call"][0], lambda name: None)
    inputs = Inputs(lambda value: read_python(value, lambda name: None))
    return [flaw.message for flaw in inputs.flaws(schema, given)]


@pytest.mark.parametrize(
    ("call", "messages"),
    [
        ("f(ident=1)", ["'id' is missing in the input"]),
        ("f({'id': 'one'})", ['id is an integer, not "one"']),
        ("f(**{'id': None})", ["id is an integer, not null"]),
        ("f(id=f'{1}')", ["id is an integer, not a string"]),
        ("f(id=1.5, **more)", ["id is an integer, not 1.5"]),
        ("f(id=1, copies=[{'n': each} for each in rows])", ["'name' is missing in copies[]"]),
        ("f(id=1, pair=('a', 'b'))", ['pair[] is a number, not "b"']),
        ("f(id=1, to=dict(name=1), options=[])", ["options is an object, not an array"]),
        ("f(id=True, state='open')", []),
        ("f(id=1, state='op\\x65n')", []),
        ("f(id=1, state=rb'open')", []),
        ("f(id=1, state='op' 'en')", []),
        ("f(**more)", []),
        ("f(*more)", []),
        ("f({**more})", []),
        ("f({'id': 'one', **more})", []),
        ("f({key: 1})", []),
        ("f(id=-1, copies=people, to=person)", []),
        ("f(each for each in rows)", []),
    ],
)
def test_the_arguments_of_a_call_in_python_are_held_against_its_schema(call: str, messages: list[str]) -> None:
    assert python_told(TICKET, call) == messages


# --- types in declarations

DECLARED = """
type Item = { name: string; maker: Maker };
type Maker = { country: string };
type Other = { name: string };
declare const tools: {
  shop: {
    all(input?: {}): Promise<{ [key: string]: Item }>;
    one(input: { id: string }): Promise<{ items: Item[]; tags: Record<string, string> | null; size: number }>;
  };
  other(input?: {}): Promise<Other[]>;
};
"""
TYPES = DeclaredTypes(parse(DECLARED.encode()).root_node)


def at(text: str) -> tuple[int, int]:
    start = DECLARED.index(text)
    return start, start + len(text)


def test_dictionaries_are_known_by_the_names_of_members_and_tools() -> None:
    assert TYPES.dictionaries == {"all", "tags"}


def test_a_member_reaches_the_types_that_it_refers_to() -> None:
    reach = Reach(TYPES)
    reach.add(TYPES.at(*at("items")))
    assert [reach.covers(at(text)[0]) for text in ("{ name: string; maker", "country", "items")] == [True] * 3
    assert [reach.covers(at(text)[0]) for text in ("tags", "size", "{ name: string }")] == [False] * 3


def test_the_members_of_a_type_are_those_of_the_object_that_it_is() -> None:
    assert TYPES.members_at(*at("{ items: Item[]")) == {"items", "tags", "size"}
    assert "country" in TYPES.members_at(*at("Maker ="))


def test_the_arrays_of_an_object_are_known() -> None:
    assert TYPES.arrays(at("{ items: Item[]; tags: Record<string, string> | null; size: number }")) == ["items"]


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("Cannot find name 'x'.", "Cannot find name 'x'."),
        (
            """Type '{ a: string; }' is not assignable to type '{ a: number; }'.
  Types of property 'a' are incompatible.
    Type 'string' is not assignable to type 'number'.""",
            "Types of property 'a' are incompatible. Type 'string' is not assignable to type 'number'.",
        ),
        (
            f"Property 'x' does not exist on type '{{ {'a: string; ' * 20}}}'. Did you mean 'y'?",
            "Property 'x' does not exist on type '{ ... }'. Did you mean 'y'?",
        ),
        ("", ""),
    ],
)
def test_a_message_is_shortened_to_what_the_declaration_does_not_say(message: str, short: str) -> None:
    assert typescript.shortened(message) == short
