"""Which operations of a document become tools, where they are, and what is known of them."""

from __future__ import annotations

from typing import Any

import pytest

from corral import Corral, ExecutionContext, ToolCall
from corral.egress import EgressPolicy, SafeClient
from corral.errors import ConfigError, EgressBlocked, ToolDefinitionError, ToolError
from corral.sandboxes import DenoSandbox
from corral.sources.openapi import OpenApi, Operation
from corral.tools import ToolRegistry
from tests.conftest import both_loops
from tests.sources.openapi.service import Answer, Caller, Service, calling, document

pytestmark = pytest.mark.anyio

URL = "http://localhost"


def paths(*operations: str, **more: Any) -> dict[str, Any]:
    """`"GET /a id tag"`, the last two of which may be missing."""
    found: dict[str, Any] = {}
    for each in operations:
        method, path, *rest = each.split()
        said: dict[str, Any] = {"responses": {}, **more}
        if rest:
            said["operationId"] = rest[0]
        if rest[1:]:
            said["tags"] = rest[1:]
        names = [name.strip("{}") for name in path.split("/") if name.startswith("{")]
        said["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {}} for name in names]
        found.setdefault(path, {})[method.lower()] = said
    return found


REPOS = document(
    paths(
        "GET /repos/{owner} repos/get repos",
        "DELETE /repos/{owner} repos/delete repos",
        "GET /issues issues/list issues",
        "POST /issues issues/create issues",
        "PUT /issues/{id} issues/update issues",
    )
)


def names(said: Any = REPOS, **options: Any) -> list[str]:
    return [tool.name for tool in OpenApi("api", said, base_url=URL, **options).tools]


def test_all_operations_are_tools() -> None:
    source = OpenApi("github", REPOS, base_url=URL)
    assert source.skipped == []
    assert [str(name) for name in ToolRegistry(*source.tools).names()] == [
        "github.issues_create", "github.issues_list", "github.issues_update", "github.repos_delete", "github.repos_get",
    ]  # fmt: skip


def deletes(operation: Operation) -> bool:
    return operation.method == "DELETE"


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("repos/get", ["repos/get"]),
        ("repos/*", ["repos/get", "repos/delete"]),
        ("tag:issues", ["issues/list", "issues/create", "issues/update"]),
        ("GET", ["repos/get", "issues/list"]),
        ("/issues", ["issues/list", "issues/create"]),
        ("/issues*", ["issues/list", "issues/create", "issues/update"]),
        ("PUT /issues*", ["issues/update"]),
        (["POST", "repos/get"], ["repos/get", "issues/create"]),
        (deletes, ["repos/delete"]),
    ],
)
def test_operations_are_chosen(select: Any, expected: list[str]) -> None:
    assert names(include=select) == expected
    assert sorted(names(exclude=select)) == sorted(set(names()) - set(expected))


def test_a_pattern_that_matches_nothing_is_a_mistake() -> None:
    for option in ("include", "exclude"):
        with pytest.raises(ConfigError, match=f"{option}='isues/.' matches no operation"):
            names(**{option: ["issues/*", "isues/*"[:-1] + "."]})
    assert names(include=[]) == []


def test_a_function_that_chooses_sees_the_operation() -> None:
    seen: list[Operation] = []

    def choose(operation: Operation) -> bool:
        seen.append(operation)
        return True

    names(include=choose)
    assert (seen[1].method, seen[1].path, seen[1].operation_id, seen[1].tags) == (
        "DELETE", "/repos/{owner}", "repos/delete", ("repos",),
    )  # fmt: skip


def test_names_are_made_of_method_and_path_where_there_is_no_id() -> None:
    said = paths(
        "GET /",
        "GET /users/{id}.json",
        "POST /users/{id}/a-b/{c}",
        "GET /ü",
        "GET /users/{id}",
        "GET /users/id",
        "PUT /x !!!",
    )
    said["/users/{id}.json"]["get"]["parameters"] = [{"name": "id", "in": "path", "schema": {}}]
    found = names(document(said))
    assert found[:3] == ["get", "get_users_id_json", "post_users_id_a_b_c"]
    assert found[-1] == "put_x"
    assert [name[:13] for name in found[4:6]] == ["get_users_id_"] * 2
    assert len(set(found)) == 7


def test_the_same_id_twice_makes_two_names_that_do_not_depend_on_the_order() -> None:
    first, second = paths("GET /a same"), paths("POST /b same")
    assert names(document({**first, **second})) == ["same_get_a", "same_post_b"]
    assert names(document({**second, **first})) == ["same_post_b", "same_get_a"]


def test_long_ids_are_cut_and_stay_distinct() -> None:
    found = names(document(paths(f"GET /a {'x' * 500}1", f"GET /b {'x' * 500}2")))
    assert len(set(found)) == 2
    assert all(len(name) <= 100 for name in found)


def test_what_http_says_of_methods_is_known_of_tools() -> None:
    said = document(
        paths(*(f"{method} /a {method}" for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH")))
    )
    source = OpenApi(None, said, base_url=URL, needs_approval=True, scopes=["api"], timeout_seconds=7)
    known = {tool.name: (tool.read_only, tool.idempotent, tool.needs_approval) for tool in source.tools}
    assert known == {
        **dict.fromkeys(("GET", "HEAD", "OPTIONS"), (True, True, False)),
        **dict.fromkeys(("PUT", "DELETE"), (False, True, True)),
        **dict.fromkeys(("POST", "PATCH"), (False, False, True)),
    }
    assert {(tool.scopes, tool.timeout_seconds) for tool in source.tools} == {(frozenset({"api"}), 7)}


def test_descriptions_are_the_summary_and_the_description() -> None:
    def described(**more: Any) -> str:
        [tool] = OpenApi(None, document(paths("GET /a", **more)), base_url=URL).tools
        return tool.description

    assert described(summary="Lists.", description="All of them.") == "Lists.\n\nAll of them."
    assert described(summary="Lists.", description="Lists.") == "Lists."
    assert described(description="Lists.", deprecated=True) == "Lists.\n\nDeprecated."
    assert described() == "GET /a"
    assert len(described(description="x" * 10_000)) == 2_001


async def test_callbacks_webhooks_and_trace_are_no_tools() -> None:
    hook: Any = {"post": {"operationId": "hook", "responses": {}}}
    said = paths("POST /a made", callbacks={"done": {"{$request.body#/url}": hook}})
    said["/a"]["trace"] = {"responses": {}}
    source = OpenApi(None, {**document(said, version="3.1.0"), "webhooks": {"new": hook}}, base_url=URL)
    assert [tool.name for tool in source.tools] == ["made"]
    assert [skipped.operation for skipped in source.skipped] == ["TRACE /a"]


def test_a_document_of_31_may_have_no_paths() -> None:
    assert names({"openapi": "3.1.0", "info": {}, "webhooks": {}}) == []


async def test_a_path_may_be_defined_elsewhere(service: Service) -> None:
    said = document(
        {"/a": {"$ref": "#/components/pathItems/A"}},
        version="3.1.0",
        components={"pathItems": {"A": paths("GET /a list")["/a"]}},
    )
    async with calling(service, said) as call:
        await call("list")
    assert service.last.target == "/a"


# --- where they are


def at(*urls: Any, **more: Any) -> dict[str, Any]:
    said = document(paths("GET /a call"), servers=[{"url": each} if isinstance(each, str) else each for each in urls])
    said["paths"]["/a"].update(more)
    return said


async def asked(service: Service, said: Any, **options: Any) -> str:
    async with calling(service, said, **options) as call:
        await call()
    return service.last.target


async def test_the_base_url_is_the_hosts_or_the_first_server(service: Service) -> None:
    assert await asked(service, at("https://api.example.com/v1"), base_url=f"{service.url}/mine/") == "/mine/a"
    variables = {"version": {"default": "v3"}, "port": {"default": service.url.rpartition(":")[2]}}
    local = {"url": "http://api.example.com:{port}/{version}", "variables": variables}
    [tool] = OpenApi(None, at(local)).tools
    assert tool.name == "call"


@pytest.mark.parametrize(
    ("servers", "base_url", "text"),
    [
        ([], None, "the document names no server: give base_url"),
        (["/v1"], None, "the document's server is '/v1': give base_url, such as"),
        ([{"url": "https://{tenant}.example.com"}], None, "its variable 'tenant' has no default"),
        (["ftp://example.com"], None, "a base URL is http or https"),
        (["https://user:password@example.com"], None, "but no user"),
        (["https://example.com/?a=1"], None, "but no user, query"),
        ([], "http://", "a base URL is http or https and has a host"),
        ([], "example.com", "base_url='example.com' needs http:// or https:// and a host"),
        ([], "127.0.0.1:1", "base_url='127.0.0.1:1' needs http:// or https:// and a host"),
        (["http://127.0.0.1:1/v1"], None, "the address is not public; to allow that, pass it as base_url"),
        (["http://localhost:3000"], None, "it is the name of an internal host; to allow that, pass it as base_url"),
        ([{"url": 5}], None, "#/servers/0/url: is not a string"),
    ],
)  # fmt: skip
def test_a_base_url_that_is_none_is_an_error(servers: list[Any], base_url: str | None, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OpenApi(None, at(*servers), base_url=base_url)
    assert text in str(raised.value)


async def test_an_operation_may_have_a_server_of_its_own_at_an_origin_that_is_allowed(service: Service) -> None:
    elsewhere = {"servers": [{"url": "https://uploads.example.com/v2"}]}
    [skipped] = OpenApi(None, at("https://api.example.com", **elsewhere)).skipped
    assert "it is at 'https://uploads.example.com/v2'; pass origins=[...] to allow that" in skipped.reason
    assert (
        OpenApi(None, at("https://api.example.com", **elsewhere), origins=["https://uploads.example.com"]).skipped == []
    )
    assert await asked(service, at(servers=[{"url": "/v2"}]), base_url=f"{service.url}/v1") == "/v2/a"
    beside = at("https://api.example.com/v1", servers=[{"url": "https://api.example.com/v2"}])
    assert await asked(service, beside, base_url=f"{service.url}/v1") == "/v2/a"
    same = at("https://api.example.com/v1", servers=[{"url": "https://api.example.com/v1/"}])
    assert await asked(service, same, base_url=f"{service.url}/other") == "/other/a"
    other = at(servers=[{"url": f"{service.url}/x"}])
    assert await asked(service, other, base_url="http://127.0.0.1:9", origins=[service.url]) == "/x/a"


async def test_a_document_cannot_name_an_internal_address(service: Service) -> None:
    for url in (service.url, service.url.replace("127.0.0.1", "localhost")):
        with pytest.raises(ConfigError, match="to allow that, pass it as base_url"):
            OpenApi(None, at(url))
        elsewhere = at("https://api.example.com", servers=[{"url": url}])
        async with calling(service, elsewhere, base_url=None, origins=[url]) as call:
            with pytest.raises(EgressBlocked, match="not public"):
                await call()
    assert service.asked == []


async def test_programs_hear_why_no_operation_is_a_tool(warm_deno: DenoSandbox) -> None:
    wanting: dict[str, Any] = {**at("https://api.example.com"), "security": [{"token": []}]}
    for source in (OpenApi("api", wanting), OpenApi("api", wanting, client=SafeClient(EgressPolicy()))):
        async with Corral([source], sandbox=warm_deno, check=False) as corral:
            result = await corral.execute("return await tools.api.call()")
        assert result.error is not None
        assert "no operation of the document can be called: it needs a credential: token" in result.error.message


@pytest.mark.parametrize("path", ["a", "@evil.example/a", "//a?b=1", "/a#b", "/a b", "/../a", "/%2e%2E/a", "\\a", ""])
def test_a_path_that_leads_elsewhere_is_skipped(path: str) -> None:
    source = OpenApi(None, document({path: {"get": {"responses": {}}}}), base_url=URL)
    assert [len(source.tools), len(source.skipped)] == [0, 1]


async def test_two_slashes_lead_to_no_other_host(service: Service) -> None:
    async with calling(
        service, document({"//evil.example/a": {"get": {"operationId": "call", "responses": {}}}})
    ) as call:
        await call()
    assert service.last.target == "//evil.example/a"


# --- as a source


def test_options_that_are_wrong_are_errors_of_the_host() -> None:
    with pytest.raises(ConfigError, match="headers takes 'declared', 'none' or 'all', not 'some'"):
        OpenApi(None, REPOS, base_url=URL, headers="some")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolDefinitionError, match="reserved"):
        OpenApi("__tools", REPOS, base_url=URL)


async def test_until_a_source_is_open_its_tools_say_so() -> None:
    source = OpenApi("api", REPOS, base_url=URL)
    tool = source.tools[0]
    with pytest.raises(ToolError, match="not open"):
        await tool.execute(await tool.parse_input({"owner": "me"}), ToolCall(ExecutionContext()))


@both_loops
async def test_a_source_may_be_open_several_times_at_once(service: Service, anyio_backend: str) -> None:
    source = OpenApi("api", REPOS, base_url=service.url)
    first, second = Caller(), Caller()
    async with source.open(first.offer):
        async with source.open(second.offer):
            await second("repos/get", owner="a")
        await first("repos/get", owner="b")
        with pytest.raises(RuntimeError, match="closed"):
            await second("repos/get", owner="c")
    assert [each.target for each in service.asked] == ["/repos/a", "/repos/b"]


async def test_programs_in_both_languages_call_operations(service: Service, warm: Any) -> None:
    service.answers += [Answer(200, b"\x00\xff", {"content-type": "image/png"}), Answer.of({"message": "no"}, 404)] * 2
    body = {
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
            }
        }
    }
    image: Any = {"content": {"image/png": {}}}
    said = paths("POST /upload/{id} upload", requestBody=body, responses={"200": image})
    typescript = """
        const image = await tools.api.upload({ id: "a", body: { file: new Uint8Array([1, 2]) } });
        try { await tools.api.upload({ id: "b" }) } catch (error) { return [image, error.code, error.message] }
    """
    python = """
image = await tools.api.upload(id="a", body={"file": b"\\x01\\x02"})
try:
    await tools.api.upload(id="b")
except ToolError as error:
    result = [image, error.code, str(error)]
result
"""
    async with Corral(
        tools=[OpenApi("api", document(said), base_url=service.url)], sandbox=warm, check=False
    ) as corral:
        for language, program in (("typescript", typescript), ("python", python)):
            result = await corral.execute(program, language=language)  # pyright: ignore[reportArgumentType]
            assert result.error is None
            assert result.value == [
                b"\x00\xff",
                "tool_error",
                'POST /upload/{id} answered 404 Not Found: {"message": "no"}',
            ]
            assert b"\r\n\r\n\x01\x02\r\n" in service.asked[-2].body
        assert "Uint8Array" in corral.model.declarations()
