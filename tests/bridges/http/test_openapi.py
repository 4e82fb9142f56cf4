"""The OpenAPI document is one, tells a token's holder what it may call, and the bridge does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import BaseModel
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as conformance

from corral import Corral, ExecutionContext, Limits, Tool, define_tool, tool
from corral.bridges import http as http_bridge
from corral.bridges.http import openapi
from corral.tools import ToolRegistry
from corral.types import ToolName
from tests.bridges.http.serving import NO_TLS, Server, add, approve, inbox, pay, quote, refuse, send
from tests.model.catalog.making import anything

CONTEXT = ExecutionContext(user_id="ada", scopes={"mail:read"})
CHECKS: list[Any] = [
    getattr(module, name)
    for module, name in [
        (checks, "not_a_server_error"),
        (conformance, "response_schema_conformance"),
        (conformance, "status_code_conformance"),
        (conformance, "content_type_conformance"),
    ]
]
TOOLS = {"add", "inbox", "quote", "pay", "refuse", "echo", "forest.grow", "forest.shape"}


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@tool(namespace="forest")
async def grow(tree: Tree, kind: Literal["oak", "fir"] = "oak") -> Tree:
    """A tree under a new root."""
    return Tree(name=kind, children=[tree])


SHAPE: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "$ref": {"type": "string"}}}},
}


def registry() -> ToolRegistry:
    def echo(input: Any) -> Any:
        return input

    shape = define_tool(name="shape", namespace="forest", input_schema=SHAPE, output_schema=SHAPE, execute=echo)
    return ToolRegistry(add, inbox, send, quote, pay, refuse, grow, shape, define_tool(name="echo", execute=echo))


class Described(NamedTuple):
    url: str
    headers: dict[str, str]
    document: dict[str, Any]


@pytest.fixture(scope="module")
def described() -> Iterator[Described]:
    corral = Corral(registry(), approve=approve, limits=Limits(calls=1_000_000), check=False)
    with Server(corral.remote.asgi_app()) as server:
        execution = server.do(lambda: corral.remote.grant(CONTEXT))
        headers = {"authorization": f"Bearer {execution.token()}"}
        document = httpx.get(f"{server.url}/openapi.json", headers=headers, timeout=30, verify=NO_TLS).json()
        yield Described(server.url, headers, document)


def test_it_lists_what_the_scopes_of_the_token_allow(described: Described) -> None:
    paths = described.document["paths"].keys()
    assert {path.removeprefix("/tools/") for path in paths if path.startswith("/tools/")} == TOOLS


def test_every_reference_leads_somewhere(described: Described) -> None:
    found: list[str] = []

    def look(part: Any) -> None:
        match part:
            case dict():
                for key, value in part.items():  # pyright: ignore[reportUnknownVariableType]
                    found.extend([value] if key == "$ref" and isinstance(value, str) else [])
                    look(value)
            case list():
                for value in part:  # pyright: ignore[reportUnknownVariableType]
                    look(value)
            case _:
                pass

    look(described.document)
    assert any("$defs" in reference for reference in found)
    for reference in found:
        target: Any = described.document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]


@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        ("add", {"a": 1, "b": 2}, {"a": "x", "b": 2}),
        ("forest.grow", {"tree": {"name": "a", "children": [{"name": "b"}]}}, {"tree": {"children": [{"name": 1}]}}),
        ("forest.shape", {"next": {"next": {"$ref": "x"}}}, {"next": {"next": {"$ref": 1}}}),
    ],
)
def test_schemas_are_those_of_the_tools_recursion_included(
    described: Described, tool: str, good: object, bad: object
) -> None:
    operation = described.document["paths"][f"/tools/{tool}"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema_rs.validator_for({**schema, "components": described.document["components"]})
    assert (validator.is_valid(good), validator.is_valid(bad)) == (True, False)
    statuses = [
        httpx.post(
            f"{described.url}/tools/{tool}", json=input, headers=described.headers, timeout=30, verify=NO_TLS
        ).status_code
        for input in (good, bad)
    ]
    assert statuses == [200, 422]


def test_it_is_served_to_nobody_without_a_token(described: Described) -> None:
    assert httpx.get(f"{described.url}/openapi.json", timeout=30, verify=NO_TLS).status_code == 401


def test_it_is_a_document_of_openapi(described: Described) -> None:
    schemathesis.openapi.from_dict(described.document).validate()
    with pytest.raises(Exception, match="required property"):
        schemathesis.openapi.from_dict({**described.document, "info": {}}).validate()


IN_GATE = ["/calls", "/tools/add", "/tools/forest.shape"]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *((path, GenerationMode.POSITIVE) for path in ("/tools/add", "/token", "/health")),
        *((path, GenerationMode.NEGATIVE) for path in IN_GATE),
        *(
            pytest.param(path, mode, marks=pytest.mark.matrix("the gate asks other tools by the same schemas"))
            for path in sorted(f"/tools/{name}" for name in TOOLS)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
            if path not in IN_GATE
        ),
        *(
            pytest.param(
                path, GenerationMode.POSITIVE, marks=pytest.mark.matrix("valid calls of /tools/add are in the gate")
            )
            for path in IN_GATE
            if path != "/tools/add"
        ),
    ],
    ids=str,
)
def test_the_bridge_does_what_it_says(described: Described, path: str, mode: GenerationMode) -> None:
    schema: Any = schemathesis.openapi.from_dict(described.document)
    [operation] = schema[path].values()

    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        response = case.call(base_url=described.url, headers=described.headers)
        case.validate_response(response, checks=CHECKS)

    asked()


# --- what it costs


def test_it_is_made_once_for_all_who_may_call_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    whole = http_bridge.openapi

    def counted(tools: Mapping[ToolName, Tool]) -> bytes:
        made.append(len(tools))
        return whole(tools)

    monkeypatch.setattr(http_bridge, "openapi", counted)
    corral = Corral(registry(), check=False)
    with Server(corral.remote.asgi_app()) as server, ThreadPoolExecutor(8) as threads:

        def ask(user: str, *scopes: str) -> dict[str, Any]:
            context = ExecutionContext(user_id=user, scopes=scopes)
            token = server.do(lambda: corral.remote.grant(context)).token()
            return httpx.get(
                f"{server.url}/openapi.json",
                headers={"authorization": f"Bearer {token}"},
                timeout=30,
                verify=NO_TLS,
            ).json()

        first = ask("ada", "mail:read")
        assert list(threads.map(ask, "bcdefghi", ["mail:read"] * 8)) == [first] * 8
        assert "/tools/inbox" not in ask("eve")["paths"]
        assert len(made) == 2
        corral.tools.register(define_tool(name="later", execute=anything))
        assert "/tools/later" in ask("ada", "mail:read")["paths"]


def test_it_counts_as_calls_do() -> None:
    corral = Corral(registry(), limits=Limits(calls=1), check=False)
    with (
        Server(corral.remote.asgi_app()) as server,
        httpx.Client(base_url=server.url, timeout=30, verify=NO_TLS) as client,
    ):
        token = server.do(lambda: corral.remote.grant(CONTEXT)).token()
        headers = {"authorization": f"Bearer {token}"}
        statuses = [client.get("/openapi.json", headers=headers).status_code for _ in range(80)]
    assert statuses == [200] * 65 + [429] * 15


def test_only_references_are_moved() -> None:
    text = 'see {"$ref":"#/x"}, \\"$ref":"#/y'
    schema: dict[str, Any] = {
        "type": "object",
        "description": text,
        "properties": {"a": {"$ref": "#/$defs/A"}, 'b"$ref': {"enum": [text, "$ref"]}, "$ref": {"const": "#"}},
        "required": ["$ref"],
        "default": {'b"$ref': "#/z", "c\\": "#"},
        "$defs": {"A": {"type": "integer"}},
    }
    made = define_tool(name="odd", input_schema=schema, execute=anything)
    document = json.loads(openapi(ToolRegistry(made).snapshot()))
    [(place, moved)] = [found for found in document["components"]["schemas"].items() if found[0].endswith(".input")]
    reference = f"#/components/schemas/{place}/$defs/A"
    assert moved == {**schema, "properties": {**schema["properties"], "a": {"$ref": reference}}}
