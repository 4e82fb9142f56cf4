"""The schema of GitHub, with thousands of fields; and documents that are no schemas."""

from __future__ import annotations

from typing import Any, cast

import pytest
from graphql import IntrospectionQuery, build_client_schema, parse, validate
from pydantic_core import from_json

from corral import Corral
from corral.errors import ConfigError
from corral.protocols.graphql.service_schema import TypeRef, read_schema
from corral.protocols.graphql.source import Budget, GraphqlApi, select
from tests.foreign import npm_folder

pytestmark = pytest.mark.anyio
GITHUB = npm_folder("@octokit/graphql-schema") / "schema.json"
EVERY = 12
"""Every so many tools are looked at."""


@pytest.mark.matrix("a small schema with each form is read in the gate; GitHub's, of a thousand types")
async def test_tools_of_github_are_made_on_first_use_and_ask_for_what_there_is() -> None:
    document = from_json(GITHUB.read_bytes())
    schema = build_client_schema(cast("IntrospectionQuery", document.get("data", document)), assume_valid=True)
    source = GraphqlApi("github", "https://api.github.example/graphql", schema=GITHUB)
    async with Corral([source]).connected() as corral:
        tools = corral.tools.snapshot()
        assert len(tools) > 250
        assert not any(tool.has_schemas for tool in tools.values())
        for tool in [*tools.values()][::EVERY]:
            endpoint: Any = cast("Any", tool.function).func.__self__
            text = endpoint._text({each.name: None for each in endpoint.operation.field.arguments}, "")
            assert not validate(schema, parse(text)), text
            assert tool.input_schema is not None
            assert text.count(" ") < 200
        declared = corral.model.catalog(budget_tokens=4_000, first=["github.createIssue"]).text
        assert "repositoryId: string | number" in declared


@pytest.mark.parametrize(
    "document", [b"{", b"[]", b"{}", b'{"data": null}', b'{"data": {"__schema": {"types": []}}}', b'"text"']
)
def test_documents_that_are_no_schemas(document: bytes) -> None:
    with pytest.raises(ConfigError, match=r"introspection query|not JSON"):
        read_schema(document)


def test_parts_that_cannot_be_used_are_left_out() -> None:
    text = {"kind": "SCALAR", "name": "String"}
    wrapped: dict[str, Any] = text
    for _ in range(100):
        wrapped = {"kind": "LIST", "ofType": wrapped}
    fields = [
        {"name": "good", "type": text, "args": [{"name": "bad name", "type": text}, {"name": "a", "type": text}, 1]},
        {"name": "deep", "type": wrapped},
        {"name": "x } mutation { y", "type": text},
        {"name": "untyped"},
        {"name": "foreign", "type": {"kind": "OBJECT", "name": "Missing"}},
        {"name": "self", "type": {"kind": "OBJECT", "name": "Query"}},
        None,
    ]
    types: list[Any] = [{"kind": "OBJECT", "name": "Query", "fields": fields}, {"kind": "OBJECT", "name": "Odd"}, text]
    schema = read_schema({"queryType": {"name": "Query"}, "mutationType": None, "types": [*types, {"kind": []}, 7]})
    found = schema.types["Query"].fields
    assert list(found) == ["good", "foreign", "self"]
    assert [each.name for each in found["good"].arguments] == ["a"]
    selection = select(schema, TypeRef("Query", ""), Budget(5, 100))
    assert selection is not None
    assert selection.text() == "{ good }"
    empty = select(schema, TypeRef("Odd", ""), Budget(5, 100))
    assert empty is not None
    assert empty.text() == "{ __typename }"
