from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import ToolDefinitionError
from corral.tools import ToolRegistry, define_tool
from corral.tools.names import distinct_identifiers, identifier, namespace_identifier

CASES: list[dict[str, Any]] = [
    case
    for case in json.loads((Path(__file__).parents[1] / "cases" / "js-peers.json").read_text(encoding="utf-8"))
    if case["area"] == "sanitise"
]
IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def echo(value: Any) -> Any:
    return value


def registry_of(name: str, namespace: str | None = None) -> ToolRegistry:
    return ToolRegistry(define_tool(name=name, namespace=namespace, execute=echo))


@pytest.mark.parametrize(
    "case", [case for case in CASES if isinstance(case["input"], str)], ids=lambda case: case["id"]
)
def test_names_of_the_shared_cases_become_identifiers(case: dict[str, Any]) -> None:
    (name,) = registry_of(case["input"]).names()
    assert IDENTIFIER.fullmatch(name.name)
    exact = re.match(r"[\w$]+(?=$| \()", case["expect"])
    if exact:
        assert name.name == exact[0]


@pytest.mark.parametrize(
    "case", [case for case in CASES if isinstance(case["input"], dict)], ids=lambda case: case["id"]
)
def test_namespaces_of_the_shared_cases_shadow_nothing(case: dict[str, Any]) -> None:
    namespace = case["input"]["namespace"]
    found = {"my-ns": "my_ns", "codemode": "codemode_"}.get(namespace, namespace)
    if namespace == "__dispatchers":
        with pytest.raises(ToolDefinitionError, match="reserved"):
            registry_of("get", namespace)
    else:
        assert registry_of("get", namespace).namespaces() == (found,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("get-weather", "get_weather"),
        ("getUser", "getUser"),
        ("files/read.all", "files_read_all"),
        ("2fa", "_2fa"),
        ("class", "class_"),
        ("lambda", "lambda_"),
        ("None", "None_"),
        ("await", "await_"),
        ("naïve", "naive"),
        ("日本", "u65e5u672c"),
        ("then", "then_"),
        ("toJSON", "toJSON_"),
        ("toString", "toString_"),
        ("constructor", "constructor_"),
        ("__proto__", "__proto___"),
        ("__class__", "__class___"),
        ("____", "____"),
        ("foo'); process.exit(1); (function bar() {", "foo_process_exit1_function_bar_"),
    ],
)
def test_a_name_is_cleaned_by_the_documented_rules(name: str, expected: str) -> None:
    assert identifier(name) == expected


@pytest.mark.parametrize("name", ["", "!", "🚀", "\u0301"])
def test_a_name_with_nothing_for_an_identifier_is_an_error(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="identifier"):
        identifier(name)


@pytest.mark.parametrize("namespace", ["search", "describe", "tools", "codemode", "toString", "then"])
def test_a_namespace_that_collides_gets_a_suffix(namespace: str) -> None:
    assert namespace_identifier(namespace) == f"{namespace}_"


@pytest.mark.parametrize("namespace", ["fetch", "crypto", "process", "performance", "navigator", "console", "Promise"])
def test_a_namespace_may_be_called_like_a_global(namespace: str) -> None:
    assert namespace_identifier(namespace) == namespace


def test_a_namespace_that_begins_as_names_of_the_language_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="reserved"):
        namespace_identifier("__x")


def test_of_colliding_names_the_identifier_keeps_its_own() -> None:
    names = distinct_identifiers(["get-user", "get_user", "get user", "getUser"])
    assert names["get_user"] == "get_user"
    assert names["getUser"] == "getUser"
    assert re.fullmatch(r"get_user_[0-9a-f]{4}", names["get-user"])
    assert names["get-user"] != names["get user"]


def test_the_escaped_name_of_a_reserved_word_yields_to_a_tool_that_is_called_so() -> None:
    names = distinct_identifiers(["class", "class_"])
    assert names["class_"] == "class_"
    assert names["class"].startswith("class__")


def test_a_digest_that_is_taken_grows() -> None:
    short = distinct_identifiers(["a-b", "a_b"])["a-b"]
    names = distinct_identifiers(["a-b", "a_b", short])
    assert names[short] == short
    assert names["a-b"].startswith(short)
    assert len(set(names.values())) == 3


@given(st.text(min_size=1, max_size=20))
def test_whatever_a_name_is_its_identifier_is_valid_and_stays_itself(name: str) -> None:
    try:
        cleaned = identifier(name)
    except ToolDefinitionError:
        return
    assert IDENTIFIER.fullmatch(cleaned)
    assert not keyword.iskeyword(cleaned)
    assert identifier(cleaned) == cleaned


@given(st.lists(st.sampled_from(["a-b", "a b", "a.b", "a_b", "A-b", "a_b_", "class", "class_", "é", "e"]), unique=True))
def test_names_differ_and_do_not_depend_on_the_order_of_registration(names: list[str]) -> None:
    found = distinct_identifiers(names)
    assert len(set(found.values())) == len(names)
    assert found == distinct_identifiers(reversed(names))


def test_words_that_only_javascript_reserves_stay_and_both_spellings_lead_to_the_tool() -> None:
    tools = [define_tool(name=name, namespace="bills", execute=echo) for name in ("export", "import", "list_")]
    registry = ToolRegistry(*tools)
    assert list(map(str, registry)) == ["bills.export", "bills.import_", "bills.list_"]
    spelled = {path: registry.guest_name(f"bills.{path}") for path in ("export_", "import", "list", "exports")}
    assert spelled == {
        "export_": "bills.export",
        "import": "bills.import_",
        "list": "bills.list",
        "exports": "bills.exports",
    }
    assert registry.resolve("bills.export_") is tools[0]
    registry.register(define_tool(name="export_", namespace="bills", execute=echo))
    assert registry.resolve("bills.export_") is not tools[0]
