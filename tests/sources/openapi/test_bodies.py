"""What programs give for a request's body arrives as the document says."""

from __future__ import annotations

import email.policy
import json
from email.parser import BytesParser
from typing import Any

import pytest

from corral.errors import InvalidArguments, ToolError
from tests.sources.openapi.service import Asked, Service, calling, document, operation

pytestmark = pytest.mark.anyio


def post(content: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"content": content, **more}
    return document(operation(method="post", requestBody=body))


def parts_of(asked: Asked) -> list[Any]:
    """Name, file name, media type and content of each part, read by the standard library."""
    head = f"Content-Type: {asked.header('content-type')}\r\n\r\n".encode()
    message = BytesParser(policy=email.policy.HTTP).parsebytes(head + asked.body)
    return [
        (
            str(part.get_param("name", header="content-disposition")),
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    ]


@pytest.mark.parametrize(
    ("media", "value", "expected"),
    [
        ("application/json", {"a": [1, None, "é"]}, b'{"a":[1,null,"\xc3\xa9"]}'),
        ("application/json; charset=utf-8", [1.5], b"[1.5]"),
        ("application/json", "text", b'"text"'),
        ("application/json", b"\xff\xfe", b'"//4="'),
        ("application/vnd.api+json", {"data": {}}, b'{"data":{}}'),
        ("application/merge-patch+json", {"a": None}, b'{"a":null}'),
        ("text/plain", "lines\r\nof é", "lines\r\nof é".encode()),
        ("application/xml", "<a/>", b"<a/>"),
        ("application/octet-stream", b"\x00\xff", b"\x00\xff"),
        ("application/octet-stream", "text", b"text"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
    ],
)
async def test_a_body_arrives_in_its_media_type(media: str, value: Any, expected: bytes, service: Service) -> None:
    async with calling(service, post({media: {"schema": {}}})) as call:
        await call(body=value)
    assert (service.last.header("content-type"), service.last.body) == (media, expected)
    assert service.last.header("content-length") == str(len(expected))


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["application/xml", "application/json", "multipart/form-data"], "application/json"),
        (["application/json-patch+json", "application/json"], "application/json"),
        (["text/plain", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
        (["application/octet-stream", "text/csv"], "text/csv"),
        (["*/*"], "application/json"),
    ],
)
async def test_of_several_media_types_one_that_suits_programs_is_sent(
    offered: list[str], chosen: str, service: Service
) -> None:
    async with calling(service, post({media: {} for media in offered})) as call:
        await call(body="x" if "text" in chosen else {"a": "x"})
    assert service.last.header("content-type") == chosen


@pytest.mark.parametrize(
    ("value", "encoding", "expected"),
    [
        ({"a": "x y&=+é", "b": 2, "c": True, "d": None}, {}, "a=x%20y%26%3D%2B%C3%A9&b=2&c=true"),
        ({"a": ["x", "y"]}, {}, "a=x&a=y"),
        ({"a": ["x", "y"]}, {"a": {"explode": False}}, "a=x,y"),
        ({"a": {"b": 1}}, {}, "a=%7B%22b%22%3A1%7D"),
        ({"a": {"b": {"c": [1]}}}, {"a": {"style": "deepObject"}}, "a%5Bb%5D%5Bc%5D%5B0%5D=1"),
        ({"a": ["x"]}, {"a": {"style": "deepObject", "explode": True}}, "a%5B0%5D=x"),
        ({"a&b": "1"}, {}, "a%26b=1"),
        ({}, {}, ""),
    ],
)
async def test_a_form_is_encoded(value: Any, encoding: Any, expected: str, service: Service) -> None:
    said = post({"application/x-www-form-urlencoded": {"schema": {"type": "object"}, "encoding": encoding}})
    async with calling(service, said) as call:
        await call(body=value)
    assert service.last.body.decode() == expected
    assert service.last.header("content-type") == "application/x-www-form-urlencoded"


UPLOAD = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "the picture"},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "title": {"type": "string"},
        "size": {"type": "integer"},
        "meta": {"type": "object"},
        "icon": {"type": "string", "format": "binary"},
    },
    "required": ["file"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [UPLOAD, {"$ref": "#/components/schemas/Upload"}])
async def test_files_and_fields_make_parts(schema: dict[str, Any], service: Service) -> None:
    content = {"multipart/form-data": {"schema": schema, "encoding": {"icon": {"contentType": "image/png, image/gif"}}}}
    said = {**post(content), "components": {"schemas": {"Upload": UPLOAD}}}
    async with calling(service, said) as call:
        await call(
            body={
                "file": b"\x00\xff\r\n--",
                "more": [b"1", {"data": "zwei", "filename": 'a"b\r\nc.txt', "content_type": "text/csv"}],
                "title": "é",
                "size": 3,
                "meta": {"a": [1]},
                "icon": b"PNG",
            }
        )
        assert parts_of(service.last) == [
            ("file", "file", "application/octet-stream", b"\x00\xff\r\n--"),
            ("more", "more", "application/octet-stream", b"1"),
            ("more", "a%22b%0D%0Ac.txt", "text/csv", b"zwei"),
            ("title", None, "text/plain", "é".encode()),
            ("size", None, "text/plain", b"3"),
            ("meta", None, "application/json", b'{"a":[1]}'),
            ("icon", "icon", "image/png", b"PNG"),
        ]
        with pytest.raises(InvalidArguments, match=r"body.file: field required"):
            await call(body={"title": "x"})
        with pytest.raises(ToolError, match=r"body\.file: a header must be"):
            await call(body={"file": {"data": "x", "content_type": "text/plain\r\nX-Evil: 1"}})


async def test_files_of_openapi_31_are_files_too(service: Service) -> None:
    properties = {"file": {"type": "string", "contentMediaType": "application/octet-stream"}}
    said = post({"multipart/form-data": {"schema": {"type": "object", "properties": properties}}})
    async with calling(service, {**said, "openapi": "3.1.0"}) as call:
        await call(body={"file": {"data": b"x", "filename": "a.txt"}})
    assert parts_of(service.last) == [("file", "a.txt", "application/octet-stream", b"x")]


@pytest.mark.parametrize(
    ("media", "value"),
    [
        ("application/json", {"a": float("nan")}),
        ("application/x-www-form-urlencoded", "text"),
        ("multipart/form-data", ["text"]),
        ("text/plain", {"a": 1}),
        ("application/octet-stream", 1),
    ],
)
async def test_what_cannot_be_sent_is_refused(media: str, value: Any, service: Service) -> None:
    async with calling(service, post({media: {}})) as call:
        with pytest.raises(ToolError, match=r"body"):
            await call(body=value)
    assert service.asked == []


async def test_a_body_is_required_where_the_document_says(service: Service) -> None:
    async with calling(service, post({"application/json": {}}, required=True)) as call:
        with pytest.raises(InvalidArguments, match=r"body: field required"):
            await call()
        await call(body=None)
        assert service.last.body == b"null"
    async with calling(service, post({"application/json": {}})) as call:
        await call()
        assert (service.last.body, service.last.header("content-type")) == (b"", None)
        await call(body=None)
        assert service.last.body == b""


async def test_a_body_has_a_place_of_its_own_beside_parameters_of_the_same_names(service: Service) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "body": {"type": "string"}}}
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    body = {"$ref": "#/components/requestBodies/Issue"}
    said = document(
        operation(parameter, path="/issues/{id}", method="patch", requestBody=body),
        components={
            "requestBodies": {"Issue": {"required": True, "content": {"application/json": {"schema": schema}}}}
        },
    )
    async with calling(service, said) as call:
        await call(id="1", body={"id": "2", "body": "text"})
    assert service.last.target == "/issues/1"
    assert json.loads(service.last.body) == {"id": "2", "body": "text"}
