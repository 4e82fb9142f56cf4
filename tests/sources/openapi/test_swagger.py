"""Documents of Swagger 2.0: each of their own forms, and a server behind it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest

from corral.errors import ConfigError
from corral.sources.openapi import ApiKey, Basic, OpenApi
from tests.sources.openapi.documents import EXAMPLES
from tests.sources.openapi.service import Answer, Service, calling

pytestmark = pytest.mark.anyio

PET = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "tag": {"type": "string", "x-nullable": True}},
}


def swagger(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = {"swagger": "2.0", "info": {"title": "t", "version": "1"}, "host": "api.example.com", "basePath": "/v1/"}
    return {**about, "definitions": {"Pet": PET}, "paths": paths, **more}


def call(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    responses = {"200": {"description": "ok", "schema": {"$ref": "#/definitions/Pet"}}}
    return {"operationId": "call", "parameters": list(parameters), "responses": responses, **more}


async def test_parameters_of_every_place_and_collection_are_sent(service: Service) -> None:
    listed = {"type": "array", "items": {"type": "string"}}
    document = swagger(
        {
            "/pets/{id}": {
                "parameters": [{"name": "id", "in": "path", "required": True, "type": "integer"}],
                "get": call(
                    {"$ref": "#/parameters/limit"},
                    {"name": "csv", "in": "query", **listed},
                    {"name": "multi", "in": "query", "collectionFormat": "multi", **listed},
                    {"name": "pipes", "in": "query", "collectionFormat": "pipes", **listed},
                    {"name": "X-Trace", "in": "header", "type": "string"},
                ),
            }
        },
        parameters={"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 9}},
    )
    service.answers.append(Answer.of({"id": 7, "tag": None}))
    async with calling(service, document) as api:
        several = ["a", "b"]
        given = {"id": 7, "limit": 3, "csv": several, "multi": several, "pipes": several, "X-Trace": "t"}
        assert await api("call", **given) == {"id": 7, "tag": None}
        tool = api.tools["call"]
        assert tool.output_schema is not None
        assert tool.output_schema["$defs"]["Pet"]["properties"]["tag"] == {"type": ["string", "null"]}
    assert service.last.target == "/pets/7?limit=3&csv=a,b&multi=a&multi=b&pipes=a%7Cb"
    assert service.last.header("x-trace") == "t"


async def test_bodies_are_sent_as_json_as_forms_and_with_files(service: Service) -> None:
    field = {"in": "formData", "type": "string", "required": True}
    body = {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    document = swagger(
        {
            "/json": {"post": {**call(body), "operationId": "json"}},
            "/form": {"post": {**call({"name": "a", **field}, {"name": "b", **field}), "operationId": "form"}},
            "/file": {"post": {**call({"name": "a", **field, "type": "file"}), "operationId": "file"}},
        }
    )
    async with calling(service, document) as api:
        await api("json", body={"id": 1})
        assert (service.last.header("content-type"), service.last.body) == ("application/json", b'{"id":1}')
        await api("form", body={"a": "x y", "b": "&"})
        assert parse_qs(service.last.body.decode()) == {"a": ["x y"], "b": ["&"]}
        await api("file", body={"a": {"data": b"\0", "filename": "a.bin"}})
        assert b'filename="a.bin"' in service.last.body


async def test_responses_may_be_shared_files_and_headers(service: Service) -> None:
    shared = {"description": "ok", "schema": {"$ref": "#/definitions/Pet"}, "headers": {"Link": {"type": "string"}}}
    document = swagger(
        {
            "/a": {"get": {"operationId": "a", "responses": {"200": {"$ref": "#/responses/Pet"}}}},
            "/b": {"get": {"operationId": "b", "responses": {"200": {"description": "", "schema": {"type": "file"}}}}},
            "/c": {"$ref": "#/x-c"},
        },
        responses={"Pet": shared},
        **{"x-c": {"get": {"operationId": "c", "produces": ["text/plain"], "responses": {"200": shared}}}},
    )
    service.answers += [Answer.of({"id": 1}, link="next"), Answer(body=b"\0\1"), Answer(body=b"text")]
    async with calling(service, document) as api:
        assert await api("a") == {"data": {"id": 1}, "headers": {"link": "next"}}
        assert await api("b") == b"\0\1"
        assert (await api("c"))["data"] == "text"


async def test_credentials_go_where_the_definitions_say(service: Service) -> None:
    schemes = {"basic": {"type": "basic"}, "key": {"type": "apiKey", "in": "query", "name": "k"}}
    document = swagger({"/a": {"get": call()}}, securityDefinitions=schemes, security=[{"basic": [], "key": []}])
    credentials = {"basic": Basic("a", "b"), "key": ApiKey("secret")}
    async with calling(service, document, credentials=credentials) as api:
        await api("call")
    assert (service.last.target, service.last.header("authorization")) == ("/a?k=secret", "Basic YTpi")


async def test_a_failure_that_comes_with_200_is_declared_and_read(service: Service) -> None:
    def answer(ok: bool, **members: Any) -> dict[str, Any]:
        flag = {"type": "boolean", "enum": [ok]}
        schema = {"type": "object", "properties": {"ok": flag, **members}, "required": ["ok", *members]}
        return {"description": "", "schema": {**schema, "additionalProperties": False}}

    error = {"type": "string", "enum": ["a", "b"]}
    responses = {"200": answer(True, id={"type": "string"}), "default": answer(False, error=error)}
    service.answers.append(Answer.of({"ok": False, "error": "a"}))
    async with calling(service, swagger({"/a": {"post": call(responses=responses)}})) as api:
        schema = api.tools["call"].output_schema
        assert schema is not None
        assert schema["properties"]["error"] == {"type": "string"}
        assert (schema["properties"]["ok"], schema["required"]) == ({"type": "boolean"}, ["ok", "id"])
        assert await api("call") == {"ok": False, "error": "a"}


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ({"name": "a", "in": "query", "type": "array", "collectionFormat": "tsv"}, "has the style 'tsv'"),
        ({"$ref": "#/parameters/none"}, "which does not exist"),
        ({"name": "a", "in": "elsewhere", "type": "string"}, "a parameter must be in one of"),
    ],
)
def test_what_cannot_be_converted_is_skipped_with_a_reason(parameter: dict[str, Any], reason: str) -> None:
    good = {**call(), "operationId": "good"}
    source = OpenApi("api", swagger({"/a": {"get": call(parameter), "post": good}}))
    assert [tool.name for tool in source.tools] == ["good"]
    assert reason in source.skipped[0].reason


def test_the_server_is_made_of_its_parts() -> None:
    source = OpenApi("api", swagger({"/a": {"get": call()}}, schemes=["http"]), base_url=None)
    assert [tool.name for tool in source.tools] == ["call"]
    with pytest.raises(ConfigError, match="the document's server is '/v1': give base_url"):
        OpenApi("api", {**swagger({}), "host": None})


def test_documents_of_others_are_read() -> None:
    for path in sorted((EXAMPLES / "2.0" / "json").glob("*.json")):
        source = OpenApi("api", path, base_url="https://api.example.com", without_credentials=True)
        assert source.tools, path
        assert source.skipped == [], path
