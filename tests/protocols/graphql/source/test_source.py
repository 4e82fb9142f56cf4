"""Tools of a real service, called by programs of a real Corral and directly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from graphql import introspection_from_schema, parse, validate

from corral import Corral, ExecutionContext, Tool
from corral.errors import ConfigError, StartFailed
from corral.protocols.graphql.source import GraphqlApi
from corral.sandboxes import DenoSandbox
from tests.protocols.graphql.source.service import SCHEMA, Service, serve
from tests.until import until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Service, str]]:
    with serve() as found:
        yield found


@asynccontextmanager
async def tools_of(source: GraphqlApi) -> AsyncGenerator[dict[str, Tool]]:
    async with Corral([source]).connected() as corral:
        yield {name.name: tool for name, tool in corral.tools.snapshot().items()}


def properties_of(tool: Tool) -> dict[str, Any]:
    assert tool.input_schema is not None
    return tool.input_schema["properties"]


async def run(source: GraphqlApi, program: str, **options: Any) -> Any:
    """What a program returns."""
    async with Corral([source], sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
        result = await corral.execute(program, **options)
    assert result.error is None, result
    return result.value


async def test_a_program_calls_queries_and_mutations(served: tuple[Service, str]) -> None:
    service, url = served
    found = await run(
        GraphqlApi("shop", url),
        """
        const book = await tools.shop.book({ id: "1", select: "reviews(first: 1) { nodes { stars } }" });
        const page = await tools.shop.books({ filter: { genre: "ESSAY" }, first: 1 });
        const kinds = (await tools.shop.search({ text: "x" })).map((each) => each.__typename + " " + each.id);
        const named = await tools.shop.named({ id: "a" });
        const renamed = await tools.shop.rename_mutation({ id: "2", name: "New" });
        const failures = [];
        for (const call of [() => tools.shop.broken(), () => tools.shop.half(), () => tools.shop.fail(),
                            () => tools.shop.book({ id: "1", select: "nothing" }),
                            () => tools.shop.book({ id: "1", select: "id } } mutation { fail" }),
                            () => tools.shop.book({ id: 1.5 })]) {
          try { await call(); failures.push("none"); } catch (error) { failures.push(error.code + " " + error.message); }
        }
        return { book, page, kinds, named, renamed: renamed.name, count: await tools.shop.count(), failures,
                 missing: await tools.shop.book({ id: "9" }) };
        """,
        context=ExecutionContext(user_id="ada"),
    )
    assert found["book"]["name"] == "Emma"
    assert found["book"]["stamp"] == {"at": 1}
    assert found["book"]["author"]["name"] == "Jane"
    assert found["book"]["reviews"] == {"nodes": [{"stars": 5}]}
    assert "isbn" not in found["book"]  # deprecated
    assert [each["name"] for each in found["page"]["nodes"]] == ["Walden"]
    assert found["page"]["totalCount"] == 1
    assert found["page"]["pageInfo"]["endCursor"] == "c"
    assert found["kinds"] == ["Book 1", "Author a", "Magazine m"]
    assert found["named"]["__typename"] == "Author"
    assert found["named"]["born"] == 1775
    assert (found["renamed"], found["count"], found["missing"]) == ("New", 2, None)
    broken, half, failed, unknown, injected, wrong = found["failures"]
    assert broken == "tool_error query broken failed: no access with None (at broken, FORBIDDEN)"
    assert "only a partial result, which was withheld: not for you (at half.secret)" in half
    assert failed == "tool_error mutation fail failed: failed (at fail)"
    assert "Cannot query field 'nothing'" in unknown
    assert injected.startswith("tool_error select: ")
    assert wrong.startswith("invalid_arguments")
    assert not any("mutation { fail" in query for query, *_ in service.requests if "book" in query)


async def test_what_is_sent_fits_the_schema_whatever_the_budget(served: tuple[Service, str]) -> None:
    _, url = served
    for levels, fields in [(0, 1), (0, 50), (1, 3), (2, 10), (3, 500)]:
        async with tools_of(GraphqlApi(None, url, levels=levels, fields=fields)) as tools:
            assert len(tools) == 12
            assert "search_query" in tools  # `search` is a tool of every program
            for tool in tools.values():
                endpoint: Any = cast("Any", tool.function).func.__self__
                arguments = {each.name: None for each in endpoint.operation.field.arguments}
                text = endpoint._text(arguments, "")
                assert not validate(SCHEMA, parse(text)), text
                assert text.count("{") == text.count("}")


async def test_schemas_of_tools(served: tuple[Service, str]) -> None:
    _, url = served
    async with tools_of(GraphqlApi("shop", url, select={"book": "reviews { nodes { text } }"})) as tools:
        books = tools["books"]
        assert books.read_only
        assert not tools["rename_mutation"].read_only
        assert "use count" in tools["old"].description
        input = books.input_schema
        assert input is not None
        assert "required" not in input
        assert input["properties"]["first"] == {"type": ["integer", "null"], "description": "Default: 2"}
        assert input["$defs"]["Filter"]["properties"]["not"] == {
            "anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}]
        }
        assert set(properties_of(tools["rename"])) == {"select", "select_"}
        assert tools["count"].output_schema == {"type": "integer"}
        search = tools["search"].output_schema
        assert search is not None
        kinds = search["items"]["anyOf"]
        assert [each["properties"]["__typename"] for each in kinds] == [
            {"const": name} for name in ("Book", "Author", "Magazine")
        ]
        assert "name_Magazine" in kinds[2]["properties"]  # it has another type than the others
    async with tools_of(GraphqlApi(None, url, selectable=False)) as tools:
        assert "select" not in properties_of(tools["book"])


async def test_credentials_are_of_the_caller_and_in_no_message(served: tuple[Service, str]) -> None:
    _, url = served

    def credentials(context: ExecutionContext) -> dict[str, str] | None:
        return {"authorization": f"Bearer secret-of-{context.user_id}"} if context.user_id == "ada" else None

    source = GraphqlApi("shop", url, headers={"authorization": "Bearer for-the-schema"}, credentials=credentials)
    program = """
    const failure = await tools.shop.broken().catch((error) => error.message);
    return [await tools.shop.me().catch((error) => error.message), failure];
    """
    me, failure = await run(source, program, context=ExecutionContext(user_id="ada"))
    assert me == "Bearer secret-of-ada"
    assert failure == "query broken failed: no access with [redacted] (at broken, FORBIDDEN)"
    assert await run(source, program) == ["there is no credential for this caller"] * 2


async def test_parts_of_a_result_are_delivered_if_the_host_allows_it(served: tuple[Service, str]) -> None:
    _, url = served
    found = await run(GraphqlApi("shop", url, partial_data=True), "return await tools.shop.half()")
    assert (found["name"], found["secret"]) == ("Emma", None)


async def test_chosen_fields(served: tuple[Service, str]) -> None:
    _, url = served
    async with tools_of(GraphqlApi(None, url, include=("book*", "mutation:*"), exclude="mutation:fail")) as tools:
        assert sorted(tools) == ["book", "books", "rename"]
    wrong: list[dict[str, Any]] = [{"include": "nothing*"}, {"select": {"nothing": "id"}}]
    for options in wrong:
        with pytest.raises(StartFailed, match="nothing"):
            async with tools_of(GraphqlApi(None, url, required=True, **options)):
                pass


async def test_a_service_that_is_not_there_yet(served: tuple[Service, str], monkeypatch: pytest.MonkeyPatch) -> None:
    service, url = served
    monkeypatch.setattr("corral.sources.opening._RETRY_SECONDS", 0.01)
    monkeypatch.setattr(service, "introspects", False)
    async with Corral([GraphqlApi("shop", url)]).connected() as corral:
        assert not corral.tools.snapshot()
        service.introspects = True
        await until(corral.tools.snapshot)
    service.introspects = False
    with pytest.raises(StartFailed, match="status 503"):
        async with tools_of(GraphqlApi("shop", url, required=True)):
            pass


async def test_responses_that_are_not_graphql(served: tuple[Service, str]) -> None:
    _, url = served
    schema = dict(introspection_from_schema(SCHEMA))
    source = GraphqlApi("shop", url.replace("/graphql", "/text"), schema=schema)
    found = await run(source, "return await tools.shop.count().catch((error) => error.message)")
    assert found == "query count has no GraphQL response; its status is 502"
    small = GraphqlApi("shop", url, max_schema_bytes=1_000, required=True)
    with pytest.raises(StartFailed, match="max_response_bytes=1000"):
        async with tools_of(small):
            pass


def test_options_that_cannot_be_used() -> None:
    wrong: list[dict[str, Any]] = [
        {"url": "ftp://x"},
        {"url": "http://user:pass@host/"},
        {"fields": 0},
        {"select": {"book": "a } { b"}},
        {"select": {"book": "...F"}},
        {"select": {"book": "a(b: $c)"}},
    ]
    for options in wrong:
        with pytest.raises(ConfigError):
            GraphqlApi(None, options.pop("url", "http://host/graphql"), **options)
