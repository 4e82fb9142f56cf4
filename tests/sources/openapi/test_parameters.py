"""What programs give for parameters arrives as the document says, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from corral.errors import InvalidArguments, ToolError
from corral.sources.openapi import OpenApi
from tests.sources.openapi.service import Service, calling, document, operation

pytestmark = pytest.mark.anyio

COLORS = ["blue", "black", "brown"]
RGB = {"R": 100, "G": 200, "B": 150}


def parameter(place: str, **more: Any) -> dict[str, Any]:
    return {"name": "color", "in": place, "required": place == "path", "schema": {}, **more}


# The examples of the specification's table of styles, and what it leaves open.
STYLES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("path", {}, "blue", "/c/blue"),
    ("path", {}, COLORS, "/c/blue,black,brown"),
    ("path", {"explode": True}, COLORS, "/c/blue,black,brown"),
    ("path", {}, RGB, "/c/R,100,G,200,B,150"),
    ("path", {"explode": True}, RGB, "/c/R=100,G=200,B=150"),
    ("path", {"style": "label"}, "blue", "/c/.blue"),
    ("path", {"style": "label"}, COLORS, "/c/.blue,black,brown"),
    ("path", {"style": "label", "explode": True}, COLORS, "/c/.blue.black.brown"),
    ("path", {"style": "label"}, RGB, "/c/.R,100,G,200,B,150"),
    ("path", {"style": "label", "explode": True}, RGB, "/c/.R=100.G=200.B=150"),
    ("path", {"style": "matrix"}, "blue", "/c/;color=blue"),
    ("path", {"style": "matrix"}, COLORS, "/c/;color=blue,black,brown"),
    ("path", {"style": "matrix", "explode": True}, COLORS, "/c/;color=blue;color=black;color=brown"),
    ("path", {"style": "matrix"}, RGB, "/c/;color=R,100,G,200,B,150"),
    ("path", {"style": "matrix", "explode": True}, RGB, "/c/;R=100;G=200;B=150"),
    ("path", {"content": {"application/json": {}}}, {"a": ["b/c"]}, "/c/%7B%22a%22%3A%5B%22b%2Fc%22%5D%7D"),
    ("query", {}, "blue", "/c?color=blue"),
    ("query", {}, "", "/c?color="),
    ("query", {}, COLORS, "/c?color=blue&color=black&color=brown"),
    ("query", {"explode": False}, COLORS, "/c?color=blue,black,brown"),
    ("query", {}, RGB, "/c?R=100&G=200&B=150"),
    ("query", {"explode": False}, RGB, "/c?color=R,100,G,200,B,150"),
    ("query", {"style": "spaceDelimited"}, COLORS, "/c?color=blue%20black%20brown"),
    ("query", {"style": "spaceDelimited"}, RGB, "/c?color=R%20100%20G%20200%20B%20150"),
    ("query", {"style": "spaceDelimited", "explode": True}, COLORS, "/c?color=blue&color=black&color=brown"),
    ("query", {"style": "pipeDelimited"}, COLORS, "/c?color=blue%7Cblack%7Cbrown"),
    ("query", {"style": "pipeDelimited"}, RGB, "/c?color=R%7C100%7CG%7C200%7CB%7C150"),
    ("query", {"style": "deepObject", "explode": True}, RGB, "/c?color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ("query", {"style": "deepObject"}, {"a": {"b": [1, 2]}}, "/c?color%5Ba%5D%5Bb%5D%5B0%5D=1&color%5Ba%5D%5Bb%5D%5B1%5D=2"),
    ("query", {"style": "deepObject"}, ["x"], "/c?color%5B0%5D=x"),
    ("query", {}, [], "/c"),
    ("query", {"explode": False}, {}, "/c"),
    ("query", {}, True, "/c?color=true"),
    ("query", {}, 2.0, "/c?color=2"),
    ("query", {}, 1.5, "/c?color=1.5"),
    ("query", {}, None, "/c"),
    ("query", {"required": True}, None, "/c?color="),
    ("query", {}, "a&b=c#d e+f%2Fé", "/c?color=a%26b%3Dc%23d%20e%2Bf%252F%C3%A9"),
    ("query", {"explode": False}, ["a,b", "c"], "/c?color=a%2Cb,c"),
    ("query", {"allowReserved": True}, "/a?b=c:d@e,f&g#h", "/c?color=/a?b=c:d@e,f%26g%23h"),
    ("query", {"content": {"application/json": {"schema": {}}}}, {"a": [1, None]}, "/c?color=%7B%22a%22%3A%5B1%2Cnull%5D%7D"),
    ("query", {"content": {"text/plain": {}}}, "a b", "/c?color=a%20b"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "more", "value", "expected"), STYLES)
async def test_a_parameter_arrives_in_its_style(
    place: str, more: dict[str, Any], value: Any, expected: str, service: Service
) -> None:
    path = "/c/{color}" if place == "path" else "/c"
    async with calling(service, document(operation(parameter(place, **more), path=path))) as call:
        await call(color=value)
    assert service.last.target == expected


HEADERS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("header", {}, "blue", "blue"),
    ("header", {}, COLORS, "blue,black,brown"),
    ("header", {}, RGB, "R,100,G,200,B,150"),
    ("header", {"explode": True}, RGB, "R=100,G=200,B=150"),
    ("header", {}, "50% a/b", "50% a/b"),
    ("header", {"content": {"application/json": {}}}, {"a": "é"}, '{"a":"\\u00e9"}'),
    ("cookie", {}, "blue", "color=blue"),
    ("cookie", {}, "a=b; c, d\r\n", "color=a=b%3B%20c%2C%20d%0D%0A"),
    ("cookie", {"explode": False}, COLORS, "color=blue,black,brown"),
    ("cookie", {}, COLORS, "color=blue; color=black; color=brown"),
    ("cookie", {"explode": False}, RGB, "color=R,100,G,200,B,150"),
]


@pytest.mark.parametrize(("place", "more", "value", "expected"), HEADERS)
async def test_a_header_or_cookie_arrives_in_its_style(
    place: str, more: dict[str, Any], value: Any, expected: str, service: Service
) -> None:
    async with calling(service, document(operation(parameter(place, **more)))) as call:
        await call(color=value)
    assert service.last.header("cookie" if place == "cookie" else "color") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a/b", "/c/a%2Fb/d"),
        ("a?b#c", "/c/a%3Fb%23c/d"),
        ("%2e%2e", "/c/%252e%252e/d"),
        ("...", "/c/.../d"),
        ("a\r\nb\x00", "/c/a%0D%0Ab%00/d"),
        ("ü;=", "/c/%C3%BC%3B%3D/d"),
    ],
)
async def test_a_value_stays_within_its_segment_of_the_path(value: str, expected: str, service: Service) -> None:
    async with calling(service, document(operation(parameter("path"), path="/c/{color}/d"))) as call:
        await call(color=value)
    assert service.last.target == expected


@pytest.mark.parametrize("value", ["..", ".", "", "a/../b", "../x", "..\\x", None, [], ["a", "b/../c"], {}])
@pytest.mark.parametrize("more", [{}, {"explode": True}])
async def test_a_value_that_would_lead_to_another_path_is_refused(
    value: Any, more: dict[str, Any], service: Service
) -> None:
    async with calling(service, document(operation(parameter("path", **more), path="/c/{color}"))) as call:
        with pytest.raises(ToolError, match=r"GET /c/{color}: color: "):
            await call(color=value)
    assert service.asked == []


async def test_a_label_cannot_make_two_dots_of_one(service: Service) -> None:
    async with calling(service, document(operation(parameter("path", style="label"), path="/c/{color}"))) as call:
        with pytest.raises(ToolError, match=r"another path"):
            await call(color=".")
    assert service.asked == []


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", " a", "a ", "\x00", "ü"])
async def test_a_header_takes_one_line_of_ascii(value: str, service: Service) -> None:
    async with calling(service, document(operation(parameter("header")))) as call:
        with pytest.raises(ToolError, match=r"color: a header must be printable ASCII"):
            await call(color=value)
    assert service.asked == []


@pytest.mark.parametrize("value", [[["a"]], {"a": {"b": 1}}, float("nan"), b"x"])
async def test_what_has_no_form_in_a_query_is_refused(value: Any, service: Service) -> None:
    async with calling(service, document(operation(parameter("query")))) as call:
        with pytest.raises(ToolError, match=r"color: .*cannot be sent"):
            await call(color=value)
    assert service.asked == []


async def test_several_parameters_share_a_segment(service: Service) -> None:
    both = [{**parameter("path"), "name": name} for name in ("from", "to")]
    async with calling(service, document(operation(*both, path="/{from}...{to}.diff"))) as call:
        await call(**{"from": "main", "to": "a/b"})
        assert service.last.target == "/main...a%2Fb.diff"


async def test_parameters_of_the_path_belong_to_each_operation_which_may_override_them(service: Service) -> None:
    paths: Any = {
        "/x/{owner}": {
            "parameters": [
                {"name": "owner", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "page", "in": "query", "schema": {"type": "string"}},
            ],
            "get": {"operationId": "a", "responses": {}},
            "put": {
                "operationId": "b",
                "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer"}}],
                "responses": {},
            },
        }
    }
    async with calling(service, document(paths)) as call:
        await call("a", owner="me", page="first")
        assert service.last.target == "/x/me?page=first"
        await call("b", owner="me", page=2)
        assert service.last.target == "/x/me?page=2"
        with pytest.raises(InvalidArguments, match=r"page: expected integer"):
            await call("b", owner="me", page="first")


async def test_parameters_of_the_same_name_are_all_addressable(service: Service) -> None:
    same = [
        {"name": "id", "in": place, "required": place == "path", "schema": {"type": "string"}}
        for place in ("header", "cookie", "query", "path")
    ]
    body = {"content": {"application/json": {"schema": {"type": "string"}}}}
    shadow = {"name": "body", "in": "query", "schema": {"type": "string"}}
    said = document(operation(*same, shadow, path="/x/{id}", method="post", requestBody=body))
    async with calling(service, said) as call:
        assert call.tools["call"].input_schema is not None
        assert list(call.tools["call"].input_schema["properties"]) == [
            "id", "query_id", "query_body", "header_id", "cookie_id", "body",
        ]  # fmt: skip
        await call(id="p", query_id="q", header_id="h", cookie_id="c", query_body="qb", body="b")
    assert service.last.target == "/x/p?id=q&body=qb"
    assert (service.last.header("id"), service.last.header("cookie"), service.last.body) == ("h", "id=c", b'"b"')


async def test_headers_that_frame_a_request_or_say_who_sends_it_are_not_the_models(service: Service) -> None:
    names = ["Accept", "Authorization", "Content-Type", "Cookie", "Host", "Content-Length", "Transfer-Encoding", "X-Ok"]
    headers = [
        {"name": name, "in": "header", "schema": {"type": "string"}, "required": name != "X-Ok"} for name in names
    ]
    async with calling(service, document(operation(*headers))) as call:
        assert list((call.tools["call"].input_schema or {})["properties"]) == ["X-Ok"]
        await call()


async def test_a_parameter_may_be_defined_elsewhere(service: Service) -> None:
    shared = {"Page": {"name": "page", "in": "query", "schema": {"$ref": "#/components/schemas/Count"}}}
    said = document(
        operation({"$ref": "#/components/parameters/Page"}),
        schemas={"Count": {"type": "integer", "minimum": 1}},
        components={"parameters": shared},
    )
    async with calling(service, said) as call:
        await call(page=3)
        assert service.last.target == "/things?page=3"
        with pytest.raises(InvalidArguments, match=r"page: expected at least 1"):
            await call(page=0)


def test_what_a_document_says_wrongly_of_a_parameter_skips_the_operation() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "must be in one of path, query": parameter("form"),
        "no query parameter has the style 'simple'": parameter("query", style="simple"),
        "its name cannot be sent": {**parameter("header"), "name": "a b"},
        "its path has {id}, which is not one of its parameters": parameter("query"),
        "/style: is not a string": parameter("query", style=["form"]),
        "/explode: is neither true nor false": parameter("query", explode="yes"),
    }
    for reason, said in wrong.items():
        path = "/x/{id}" if "{id}" in reason else "/x"
        source = OpenApi(None, document(operation(said, path=path)), base_url="http://localhost")
        [skipped] = source.skipped
        assert skipped.operation == f"GET {path}"
        assert reason in skipped.reason
        assert skipped.reason.startswith("#/paths/~1x")
        assert source.tools == []
