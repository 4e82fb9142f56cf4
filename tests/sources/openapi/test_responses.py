"""What a server answers becomes a tool's result, or an error that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from corral.egress import EgressPolicy, SafeClient
from corral.errors import EgressBlocked, InvalidToolOutput, ToolError
from tests.sources.openapi.service import Answer, Service, calling, document, operation, serve

pytestmark = pytest.mark.anyio

JSON = {"application/json": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}


def answering(responses: dict[str, Any], method: str = "get", **more: Any) -> dict[str, Any]:
    return document(operation(method=method, responses=responses, **more))


def content(*media: str, **schema: Any) -> dict[str, Any]:
    return {"content": {each: {"schema": schema} for each in media}}


@pytest.mark.parametrize(
    ("responses", "answer", "expected"),
    [
        ({"200": {"content": JSON}}, Answer.of({"n": 1}), {"n": 1}),
        ({"2XX": {"content": JSON}}, Answer.of({"n": 1}, 207), {"n": 1}),
        ({"default": {"content": JSON}}, Answer.of({"n": 1}), {"n": 1}),
        (
            {"200": {"content": JSON}, "default": content("application/json", type="string")},
            Answer.of({"n": 2}),
            {"n": 2},
        ),
        ({"200": {"content": JSON}, "204": {}}, Answer(204, b""), None),
        ({"200": {"content": JSON}, "201": content("text/plain")}, Answer(201, b"made"), "made"),
        ({"204": {"description": "gone"}}, Answer(204, b""), None),
        ({"200": {"description": "ok"}}, Answer(200, b"ignored"), None),
        ({}, Answer(200, b"ignored"), None),
        ({"201": {"content": JSON}}, Answer.of({"n": 1}, 200), {"n": 1}),
        ({"200": content("application/hal+json")}, Answer(200, b"\xef\xbb\xbf[1]"), [1]),
        ({"200": content("*/*")}, Answer(200, b"[1]", {}), [1]),
        ({"200": content("text/csv")}, Answer(200, b"a,\xe9", {"content-type": "text/csv; charset=iso-8859-1"}), "a,é"),
        ({"200": content("text/html")}, Answer(200, b"x\xff", {"content-type": "text/html; charset=zlib"}), "x\ufffd"),
        ({"200": content("image/png", type="string", format="binary")}, Answer(200, b"\x89\x00"), b"\x89\x00"),
        ({"200": content("application/pdf")}, Answer(200, b""), b""),
        ({"200": content("application/xml", "application/json")}, Answer(200, b'{"a": 1}'), {"a": 1}),
    ],
)
async def test_a_success_becomes_a_result(responses: Any, answer: Answer, expected: Any, service: Service) -> None:
    service.answers.append(answer)
    async with calling(service, answering(responses)) as call:
        assert await call() == expected


async def test_what_is_declared_is_what_is_asked_for(service: Service) -> None:
    responses = {"200": content("text/html", "application/json"), "202": content("text/plain"), "404": content("a/b")}
    async with calling(service, answering(responses)) as call:
        await call()
        assert service.last.header("accept") == "application/json, text/plain"
        assert call.tools["call"].output_schema == {"anyOf": [{}, {"type": "string"}]}
    async with calling(service, answering({"204": {}})) as call:
        await call()
        assert service.last.header("accept") == "*/*"
        assert call.tools["call"].output_schema == {"type": "null"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            Answer(200, b"<html>\n <body>Sign in", {"content-type": "text/html"}),
            "GET /things answered 200 with text/html instead of JSON; it may have taken effect: <html> <body>S",
        ),
        (Answer.of({"message": "Not Found"}, 404), 'GET /things answered 404 Not Found: {"message": "Not Found"}'),
        (Answer(500, b""), "GET /things answered 500 Internal Server Error"),
        (Answer(502, b"\x00", {"content-type": "image/gif"}), "answered 502 Bad Gateway: 1 bytes of image/gif"),
        (Answer(429, b"slow down", {"retry-after": "30"}), "429 Too Many Requests (retry after 30 s): slow down"),
        (
            Answer(503, b"", {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
            "503 Service Unavailable (retry after Wed, 21 Oct 2026 07:28:00 GMT)",
        ),
        (Answer(304, b"", {}), "GET /things answered 304 Not Modified"),
    ],
)  # fmt: skip
async def test_anything_else_is_an_error_that_says_what_came(answer: Answer, text: str, service: Service) -> None:
    service.answers.append(answer)
    async with calling(service, answering({"200": {"content": JSON}})) as call:
        with pytest.raises(ToolError) as raised:
            await call()
    assert type(raised.value) is ToolError
    assert text in str(raised.value)
    assert len(str(raised.value)) < 1_300


async def test_of_a_long_error_the_beginning_is_shown(service: Service) -> None:
    service.answers.append(Answer(400, b"e" * 100_000, {"content-type": "text/plain"}))
    async with calling(service, answering({})) as call:
        with pytest.raises(ToolError, match=r"e{1000}…$"):
            await call()


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (Answer(200, b"", {}), None),
        (Answer(200, b"OK"), "OK"),
        (Answer(200, b'{"n": NaN}'), '{"n": NaN}'),
        (Answer(200, b"[" * 1_000), "[" * 1_000),
        (Answer(200, b"\x00\x01", {"content-type": "image/png"}), b"\x00\x01"),
    ],
)  # fmt: skip
async def test_what_came_is_delivered_where_json_is_promised(answer: Answer, value: object, service: Service) -> None:
    service.answers.append(answer)
    async with calling(service, answering({"200": {"content": JSON}})) as call:
        assert await call() == value


async def test_a_result_that_breaks_its_schema_is_delivered_unless_that_is_strict(service: Service) -> None:
    said = answering({"200": {"content": JSON}})
    service.answers += [Answer.of({"n": "one"})] * 3
    async with calling(service, said, validate_output="strict") as call:
        with pytest.raises(InvalidToolOutput, match=r'"api.call" ran, but its .* withheld: n: expected integer'):
            await call()
    for validate_output in ("warn", False):
        async with calling(service, said, validate_output=validate_output) as call:
            assert await call() == {"n": "one"}
            assert call.tools["call"].output_schema == JSON["application/json"]["schema"]


async def test_a_result_that_is_too_large_is_an_error(service: Service) -> None:
    service.answers.append(Answer(200, b"[" + b"1," * 1_000 + b"1]"))
    policy = EgressPolicy(
        hosts=["127.0.0.1"], ports=[int(service.url[-5:])], exempt_networks=["127.0.0.1"], max_response_bytes=1_000
    )
    async with SafeClient(policy) as client:
        async with calling(service, answering({}), client=client) as call:
            with pytest.raises(EgressBlocked, match=r"the body is larger than max_response_bytes=1000"):
                await call()
        assert not client.is_closed


async def test_no_answer_is_an_error(service: Service) -> None:
    with serve() as gone:
        pass
    async with calling(gone, answering({})) as call:
        with pytest.raises(ToolError, match=r"GET /things was not answered: ConnectError"):
            await call()


# --- redirects


async def test_reading_follows_redirects_and_writing_does_not(service: Service) -> None:
    there = Answer(302, b"", {"location": "/there?a=1"})
    service.answers += [there, Answer.of({"n": 1}), there]
    async with calling(service, answering({"200": {"content": JSON}})) as call:
        assert await call() == {"n": 1}
        assert [asked.target for asked in service.asked] == ["/things", "/there?a=1"]
    async with calling(service, answering({"200": {"content": JSON}}, "post")) as call:
        with pytest.raises(ToolError, match=r"answered 302 Found, a redirect to '/there\?a=1', which is not followed"):
            await call()


async def test_a_redirect_leads_to_no_other_origin(service: Service) -> None:
    with serve() as other:
        service.answers.append(Answer(302, b"", {"location": other.url}))
        async with calling(service, answering({"200": {"content": JSON}})) as call:
            with pytest.raises(EgressBlocked, match=r"the port is not one of"):
                await call()
        assert other.asked == []


async def test_a_redirect_that_is_the_answer_is_given_as_one(service: Service) -> None:
    service.answers.append(Answer(302, b"", {"location": "https://elsewhere.example/file"}))
    async with calling(service, answering({"302": {"description": "the file"}, "404": {}})) as call:
        assert await call() == {"data": None, "headers": {"location": "https://elsewhere.example/file"}}


# --- headers

PAGE = {
    "content": {"application/json": {"schema": {"type": "array"}}},
    "headers": {
        "Link": {"description": "other pages", "schema": {"type": "string"}},
        "X-Total-Count": {"$ref": "#/components/headers/Count"},
        "X-RateLimit-Remaining": {"schema": {"type": "integer"}},
    },
}
COUNT = {"headers": {"Count": {"schema": {"type": "integer"}}}}


async def test_headers_that_the_document_declares_come_beside_the_data(service: Service) -> None:
    said = {**answering({"200": PAGE}), "components": COUNT}
    sent = {
        "link": '<https://x/?page=2>; rel="next"',
        "x_total_count": "3",
        "x_ratelimit_remaining": "9",
        "x_other": "1",
    }
    service.answers += [Answer.of([1], 200, **sent) for _ in range(3)] + [Answer.of([1])]
    async with calling(service, said) as call:
        assert await call() == {"data": [1], "headers": {"link": sent["link"], "x-total-count": 3}}
        assert call.tools["call"].output_schema == {
            "type": "object",
            "properties": {
                "data": {"type": "array"},
                "headers": {
                    "type": "object",
                    "properties": {
                        "link": {"type": "string", "description": "other pages"},
                        "x-total-count": {"type": "integer"},
                    },
                    "additionalProperties": False,
                },
            },
            "required": ["data", "headers"],
            "additionalProperties": False,
        }
    async with calling(service, said, headers="none") as call:
        assert await call() == [1]
    async with calling(service, said, headers="all") as call:
        result = await call()
        assert (result["headers"]["x-other"], result["headers"]["x-total-count"]) == ("1", 3)
    async with calling(service, said) as call:
        assert await call() == {"data": [1], "headers": {}}


async def test_headers_about_rates_and_the_server_do_not_change_a_result(service: Service) -> None:
    noise = [
        "X-RateLimit-Limit",
        "RateLimit-Reset",
        "X-Rate-Limit-Limit",
        "Retry-After",
        "X-Request-Id",
        "Date",
        "Content-Type",
    ]
    responses: dict[str, Any] = {"200": {"content": JSON, "headers": {name: {"schema": {}} for name in noise}}}
    service.answers.append(Answer.of({"n": 1}))
    async with calling(service, answering(responses)) as call:
        assert await call() == {"n": 1}


async def test_of_head_the_headers_are_the_result(service: Service) -> None:
    service.answers.append(Answer(200, b"12345", {"x-size": "5", "set-cookie": "a=b"}))
    async with calling(service, answering({"200": {"content": JSON}}, "head")) as call:
        result = await call()
    assert result["data"] is None
    assert result["headers"]["x-size"] == "5"
    assert "set-cookie" not in result["headers"]
