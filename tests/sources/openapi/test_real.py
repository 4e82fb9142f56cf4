"""Documents of real services: their operations become tools, whose requests a server on the loopback sees."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from corral import Tool
from corral.model import Catalog, declare_typescript
from corral.model.catalog import estimated_tokens
from corral.sources.openapi import ApiKey, OpenApi
from corral.tools import ToolRegistry
from corral.tools.json_schema.document_schema import DocumentSchema
from tests.sources.openapi.documents import EXAMPLES, github, kubernetes
from tests.sources.openapi.service import Answer, Service, calling
from tests.work import calls_of

pytestmark = pytest.mark.anyio

URL = "http://localhost"
UPLOADS = ["https://uploads.github.com"]
MOST_CALLS_A_TOOL = 10_000
"""Of functions; it takes three thousand."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in github()["paths"].items():
        for method, said in item.items():
            yield path, method, said


@pytest.fixture(scope="module")
def source() -> OpenApi:
    sources: list[OpenApi] = []
    calls = calls_of(lambda: sources.append(OpenApi("github", github(), base_url=URL, origins=UPLOADS)))
    [source] = sources
    assert calls < MOST_CALLS_A_TOOL * len(source.tools)
    return source


@pytest.mark.matrix("documents of the gate have each form; a thousand real operations")
def test_each_operation_of_github_is_a_tool(source: OpenApi) -> None:
    assert source.skipped == []
    assert {tool.name for tool in source.tools} == {said["operationId"] for _, _, said in operations()}
    assert len(source.tools) > 700
    names = [str(name) for name in ToolRegistry(*source.tools).names()]
    assert "github.issues_list_for_repo" in names
    assert len(OpenApi("github", github(), base_url=URL).skipped) == 1


@pytest.mark.matrix("each form of a document is declared in the gate; here those of GitHub's")
def test_they_are_declared(source: OpenApi) -> None:
    registry = ToolRegistry(*source.tools)
    assert "github.issues_create" in [str(name) for name, _ in registry.search("create an issue", limit=3).tools]
    assert estimated_tokens(Catalog(registry, "typescript", budget_tokens=4_000).text) <= 4_000
    by_name = {tool.name: tool for tool in source.tools}
    declared = declare_typescript(ToolRegistry(by_name["issues/list-for-repo"]).snapshot())
    assert "headers: { link?: string" in declared
    assert 'state?: "open" | "closed" | "all"' in declared


def values(tool: Tool) -> dict[str, Any]:
    """Something for each parameter that is required."""
    schema = tool.input_schema or {}

    def value(said: dict[str, Any]) -> Any:
        if "$ref" in said:
            return value(schema["$defs"][said["$ref"].rpartition("/")[2]])
        return said.get("enum", [7 if said.get("type") == "integer" else "a b/ü"])[0]

    return {name: value(schema["properties"][name]) for name in schema.get("required", ())}


def example(said: dict[str, Any]) -> Any:
    for status, response in sorted(said["responses"].items()):
        if "$ref" not in response and status.startswith("2"):
            for media, content in response.get("content", {}).items():
                for each in content.get("examples", {}).values():
                    if media == "application/json":
                        each = (
                            github()["components"]["examples"][each["$ref"].rpartition("/")[2]]
                            if "$ref" in each
                            else each
                        )
                        return int(status), each["value"]
    return None


@pytest.mark.matrix("documents of the gate have each form; a thousand real operations")
async def test_what_reads_from_github_asks_for_its_path_and_takes_githubs_examples(service: Service) -> None:
    asked = 0
    async with calling(service, github(), include=["GET", "DELETE"]) as call:
        for path, method, said in islice(operations(), 0, None, 6):
            name = said["operationId"]
            shown = example(said)
            if method not in ("get", "delete") or shown is None or "requestBody" in said:
                continue
            status, value = shown
            service.answers.append(Answer.of(value, status))
            given = values(call.tools[name])
            asked += 1
            assert await call(name, **given) in (value, {"data": value, "headers": {}})
            expected = path
            for key, each in given.items():
                expected = expected.replace(f"{{{key}}}", quote(str(each), safe=""))
            target, _, query = service.last.target.partition("?")
            assert (service.last.method, target) == (method.upper(), expected), name
            assert {name for name, _ in parse_qsl(query)} <= given.keys(), name
    assert asked > 50


def test_examples_of_each_feature_are_read_from_json_and_yaml_alike() -> None:
    folder = EXAMPLES
    files = sorted(folder.glob("3.*/json/*.json"))
    assert len(files) > 40
    read = 0
    for path in files[::2]:
        source = OpenApi("api", path, base_url=URL, without_credentials=True)
        for tool in source.tools:
            DocumentSchema(tool.input_schema or {}, owner=tool.name)
            DocumentSchema(tool.output_schema or {}, owner=tool.name)
        read += len(source.tools)
        reasons = [skipped.reason for skipped in source.skipped]
        assert all("pass origins" in reason or "more than a path" in reason for reason in reasons), path
        yaml = path.parents[1] / "yaml" / f"{path.stem}.yaml"
        if yaml.exists():
            same = OpenApi("api", yaml, base_url=URL, without_credentials=True)
            assert [(tool.name, tool.input_schema, tool.output_schema) for tool in same.tools] == [
                (tool.name, tool.input_schema, tool.output_schema) for tool in source.tools
            ]
    assert read > 150


@pytest.mark.matrix("GitHub's document is read in the gate; another one that is as large")
async def test_the_whole_of_kubernetes_is_called_by_its_document(service: Service) -> None:
    async with calling(service, kubernetes(), credentials={"BearerToken": ApiKey("Bearer of-ada")}) as call:
        assert len(call.tools) > 1_000
        pods: dict[str, Any] = {"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "web-1"}}]}
        service.answers.append(Answer.of(pods))
        assert await call("listCoreV1NamespacedPod", namespace="shop", labelSelector="app=web") == pods
        assert service.last.target == "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb"
        assert service.last.header("authorization") == "Bearer of-ada"
