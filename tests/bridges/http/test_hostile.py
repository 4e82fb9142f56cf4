"""Requests that no client of ours sends are refused with what they deserve, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from corral import ExecutionContext
from corral.bridges.web import request_watch as watch
from corral.calls import RemoteExecution
from corral.calls.tokens import ExecutionTokens
from tests.bridges.http.serving import Connection, Served, call, request

H11 = pytest.param(
    "h11", marks=pytest.mark.matrix("httptools, by which the gate asks, is another parser of the same requests")
)
pytestmark = pytest.mark.parametrize("served", ["httptools", H11], indirect=True, scope="module")

GOOD = json.dumps({"calls": [call()]})
CONTEXT = ExecutionContext(user_id="ada", organization_id="acme", session_id="s-1", scopes={"mail:read"})


def calls(*each: object, **more: object) -> str:
    return json.dumps({"calls": each, **more})


@pytest.fixture
def connection(served: Served, execution: RemoteExecution) -> Iterator[Connection]:
    """A connection; after the test the server still answers, over another one."""
    with Connection(served.server.port) as connection:
        yield connection
    with Connection(served.server.port) as after:
        after.send(request(body=GOOD, token=execution.token()))
        answer = after.answer()
    assert (answer.status, answer.json) == (200, {"sequence": 1, "value": 3})


# --- who asks


TOKENS = {
    "none": None,
    "garbage": "garbage",
    "of no algorithm": "eyJhbGciOiJub25lIn0.e30.",
    "not ASCII": "t\xf6ken",
    "too long": "x" * 9000,
    "of another host": ExecutionTokens().issue("execution-1", CONTEXT),
}


@pytest.mark.parametrize("path", ["/calls", "/tools/add", "/token"])
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_without_a_good_token_nothing_is_called_and_it_is_on_record(
    served: Served, connection: Connection, path: str, token: str | None
) -> None:
    before = len(served.audit.events)
    connection.send(request(path, GOOD, token=token))
    answer = connection.answer()
    assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (401, "invalid_token", "Bearer")
    [event] = [each for each in served.audit.events[before:] if each.outcome == "denied"]  # before the answer
    assert (event.code, event.protocol, event.user_id, event.tool) == ("invalid_token", "http", None, None)


@pytest.mark.parametrize("authorization", ["Basic YTpi", "Bearer", "Bearer ", "", "bearer\t", "Bearer a, Bearer b"])
def test_other_kinds_of_authorization_are_none(connection: Connection, authorization: str) -> None:
    connection.send(request("/openapi.json", None, f"authorization: {authorization}", method="GET"))
    assert connection.answer().status == 401


def test_an_expired_token_is_refused(served: Served, connection: Connection, execution: RemoteExecution) -> None:
    token = execution.token()
    with served.clock.ahead_by(299):
        connection.send(request(body=GOOD, token=token))
        assert connection.answer().json == {"sequence": 1, "value": 3}
    with served.clock.ahead_by(301):
        connection.send(request(body=GOOD, token=token))
        assert connection.answer().json["error"]["message"] == "the token has expired"


def test_a_token_is_dead_when_its_execution_has_ended(served: Served, connection: Connection) -> None:
    execution = served.grant()
    token = execution.token()
    connection.send(request(body=GOOD, token=token))
    assert connection.answer().status == 200
    served.end(execution)
    for path in ("/calls", "/token", "/tools/add"):
        connection.send(request(path, GOOD, token=token))
        assert connection.answer().code == "invalid_token"
    connection.send(request("/openapi.json", None, method="GET", token=token))
    assert connection.answer().code == "invalid_token"


def test_the_end_of_its_execution_ends_a_running_call(served: Served, connection: Connection) -> None:
    execution = served.grant()
    connection.send(request(body=calls(call("wait", {})), token=execution.token()))
    assert served.waiting.started.wait(30)
    served.end(execution)
    assert served.waiting.was_cancelled()
    assert connection.answer().json["error"]["code"] == "invalid_token"


# --- from where

HOSTS = {
    "a name that was made to point here": "attacker.example",
    "none": None,
    "empty": "",
    "two names": "127.0.0.1, attacker.example",
    "a longer name": "127.0.0.1.attacker.example",
    "a name in a name": "attacker.example:127.0.0.1",
    "a user": "127.0.0.1@attacker.example",
    "any address": "0.0.0.0",  # noqa: S104
    "a number": "2130706433",
    "not ASCII": "127.0.0.1\xa0",
}


@pytest.mark.parametrize("path", ["/calls", "/health", "/corral.mjs", "/corral_tools.py"])
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_request_that_names_another_host_is_not_for_us(
    connection: Connection, execution: RemoteExecution, path: str, host: str | None
) -> None:
    connection.send(request(path, GOOD, token=execution.token(), host=host))
    assert connection.answer().status in ((421, 400) if host is None or host.endswith("\xa0") else (421,))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:80", "[::1]", "[::1]:8787"])
def test_names_of_this_machine_are_taken(connection: Connection, host: str) -> None:
    connection.send(request("/health", None, method="GET", host=host))
    assert connection.answer().json == {"status": "ok"}


def test_a_target_with_another_host_does_not_stand_in_for_the_header(
    connection: Connection, execution: RemoteExecution
) -> None:
    connection.send(request("http://127.0.0.1/calls", GOOD, token=execution.token(), host="attacker.example"))
    assert connection.answer().status == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://attacker.example", 403),
        ("null", 403),
        ("", 403),
        ("http://127.0.0.1", 403),
        ("http://app.example", 403),
        ("https://app.example.attacker.example", 403),
        ("https://app.example", 200),
    ],
)
def test_a_web_page_may_send_requests_only_from_an_allowed_origin(
    connection: Connection, execution: RemoteExecution, origin: str, status: int
) -> None:
    connection.send(request("/calls", GOOD, f"origin: {origin}", token=execution.token()))
    assert connection.answer().status == status


@pytest.mark.parametrize("header", ["authorization: Bearer x", "origin: https://app.example", "host: 127.0.0.1"])
def test_a_header_that_counts_and_comes_twice_is_refused(
    connection: Connection, execution: RemoteExecution, header: str
) -> None:
    connection.send(request("/calls", GOOD, header, header, token=execution.token()))
    assert connection.answer().status == 400


def test_content_types_that_a_form_could_send_are_refused(connection: Connection, execution: RemoteExecution) -> None:
    for path in ("/calls", "/tools/add"):
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            None,
            "application/jsonp",
        ):
            connection.send(request(path, GOOD, token=execution.token(), kind=kind))
            assert connection.answer().status == 415
    connection.send(request(body=GOOD, token=execution.token(), kind="Application/JSON; charset=utf-8"))
    assert connection.answer().status == 200


# --- how much


def test_a_flood_of_headers_is_refused(connection: Connection) -> None:
    connection.send(request("/calls", GOOD, *(f"x-{number}: 1" for number in range(200))))
    assert connection.answer().status == 431


def test_a_header_that_is_too_long_is_refused(connection: Connection) -> None:
    connection.send(request("/calls", GOOD, f"x: {'y' * 40_000}"))
    assert connection.answer().status == 431


def test_an_address_that_is_too_long_is_refused(connection: Connection, execution: RemoteExecution) -> None:
    connection.send(request(f"/tools/{'x' * 3000}", GOOD, token=execution.token()))
    assert connection.answer().status == 414
    connection.send(request(f"/calls?{'x' * 3000}", GOOD, token=execution.token()))
    assert connection.answer().status == 414


@pytest.mark.parametrize("path", ["/calls", "/tools/add", "/token"])
@pytest.mark.parametrize("length", ["2000000", "9" * 18])
def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(
    connection: Connection, execution: RemoteExecution, path: str, length: str
) -> None:
    connection.send(request(path, None, f"content-length: {length}", token=execution.token()))
    answer = connection.answer()
    assert (answer.status, answer.code) == (413, "message_too_large")


@pytest.mark.parametrize("path", ["/calls", "/tools/add", "/token"])
def test_a_body_without_end_is_refused_at_its_bound(
    connection: Connection, execution: RemoteExecution, path: str
) -> None:
    connection.send(request(path, None, "transfer-encoding: chunked", token=execution.token()))
    for _ in range(12):
        connection.send(b"186a0\r\n%b\r\n" % (b" " * 100_000))
    assert connection.answer().code == "message_too_large"


def test_more_than_was_announced_is_not_a_part_of_the_body(connection: Connection, execution: RemoteExecution) -> None:
    connection.send(request("/calls", None, "content-length: 2", token=execution.token()) + b'{}{"calls": []}')
    assert connection.answer().status == 400  # for `{}`, or because the rest is no request, whichever is seen first


@pytest.mark.parametrize(
    ("head", "drop"), [("content-length: 10", b"{"), ("transfer-encoding: chunked", b"1\r\n{\r\n")]
)
def test_a_body_that_comes_drop_by_drop_is_given_up(
    connection: Connection, execution: RemoteExecution, monkeypatch: pytest.MonkeyPatch, head: str, drop: bytes
) -> None:
    monkeypatch.setattr(watch, "BODY_SECONDS", 0.05)
    connection.send(request("/calls", None, head, token=execution.token()) + drop)
    assert "did not arrive within" in connection.answer().json["error"]["message"]


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "x", "9" * 40])
def test_a_length_that_is_none_is_refused(connection: Connection, execution: RemoteExecution, length: str) -> None:
    connection.send(request("/calls", None, f"content-length: {length}", token=execution.token()))
    assert connection.answer().status == 400


def test_two_lengths_are_refused(connection: Connection, execution: RemoteExecution) -> None:
    connection.send(request("/calls", GOOD, "content-length: 3", token=execution.token()))
    assert connection.answer().status == 400


# --- what

BODIES = {
    "nothing": "",
    "no JSON": "{",
    "an array": "[]",
    "null": "null",
    "no calls": "{}",
    "an empty list": calls(),
    "no list": '{"calls": {}}',
    "another member": calls(call(), more=1),
    "65 calls": calls(*(call(sequence=number) for number in range(1, 66))),
    "one sequence twice": calls(call(), call()),
    "a call that is none": calls(1),
    "a call with another member": calls(call(token="x")),
    "sequence as text": calls(call(sequence="1")),
    "sequence as a bool": calls(call(sequence=True)),
    "sequence as a float": calls(call(sequence=1.0)),
    "sequence 0": calls(call(sequence=0)),
    "a huge sequence": calls(call(sequence=2**53)),
    "a sequence of many digits": '{"calls": [{"sequence": %s, "tool": "add"}]}' % ("9" * 5000),
    "tool as a number": calls(call(1)),
    "an empty tool": calls(call("")),
    "a long tool": calls(call("x" * 201)),
    "tagged as text": calls(call(tagged="yes")),
    "a wrong tag": calls(call("echo", {"$bigint": "x"}, tagged=True)),
    "NaN": '{"calls": [{"sequence": 1, "tool": "echo", "input": NaN}]}',
    "Infinity": '{"calls": [{"sequence": 1, "tool": "echo", "input": -Infinity}]}',
    "100,000 levels": '{"calls": [{"sequence": 1, "tool": "echo", "input": %s}]}' % ("[" * 100_000 + "]" * 100_000),
    "100,000 objects": '{"calls": [{"sequence": 1, "tool": "echo", "input": %s}]}' % ('{"a":' * 100_000),
    "half a surrogate": '{"calls": [{"sequence": 1, "tool": "\\ud800"}]}',
    "NUL": "\0",
    "two values": f"{GOOD}{GOOD}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_of_another_shape_is_malformed(connection: Connection, execution: RemoteExecution, body: str) -> None:
    connection.send(request(body=body, token=execution.token()))
    answer = connection.answer()
    assert (answer.status, answer.code) == (400, "malformed_message")
    assert len(answer.body) < 1000


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"calls": [{"sequence": 1, "tool": "\xff"}]}', "{}".encode("utf-16")])
def test_bytes_that_are_not_utf_8_are_malformed(
    connection: Connection, execution: RemoteExecution, body: bytes
) -> None:
    connection.send(request(body=body, token=execution.token()))
    assert connection.answer().status == 400


@pytest.mark.parametrize("path", ["/tools/add", "/tools/%00", "/tools/%ff", "/tools/%2e%2e", "/tools/__class__"])
def test_a_tool_that_is_none_or_an_input_that_does_not_fit_is_said(
    connection: Connection, execution: RemoteExecution, path: str
) -> None:
    connection.send(request(path, '{"c": "\\u0000"}', token=execution.token()))
    answer = connection.answer()
    assert answer.code == ("invalid_arguments" if path == "/tools/add" else "tool_not_found")
    assert answer.status == (422 if path == "/tools/add" else 404)


@pytest.mark.parametrize("name", ["x" * 200, "\0", "a\nb", "add\u2028", "__proto__", "a.b.c", "../add", "'; drop"])
def test_names_of_all_kinds_are_no_tools(connection: Connection, execution: RemoteExecution, name: str) -> None:
    connection.send(request(body=calls(call(name)), token=execution.token()))
    answer = connection.answer()
    assert answer.json["error"]["code"] == "tool_not_found"


def test_an_input_over_the_limit_of_its_execution_is_refused_alone(served: Served, connection: Connection) -> None:
    limits = served.corral.limits.model_copy(update={"tool_input_bytes": 1000})
    execution = served.grant(limits=limits)
    body = calls(call("echo", "x" * 2000), call("echo", "y", sequence=2))
    connection.send(request(body=body, token=execution.token()))
    lines = sorted(connection.answer().body.splitlines())
    assert json.loads(lines[0])["error"]["code"] == "message_too_large"
    assert json.loads(lines[1]) == {"sequence": 2, "value": "y"}
    served.end(execution)


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "with another call"])
def test_an_input_of_just_the_limit_is_taken(served: Served, connection: Connection, beside: int) -> None:
    limits = served.corral.limits.model_copy(update={"tool_input_bytes": 1000})
    execution = served.grant(limits=limits)
    body = calls(call("echo", "x" * 998), *[call("echo", "y", sequence=2)] * beside)
    connection.send(request(body=body, token=execution.token()))
    assert [json.loads(each).get("error") for each in connection.answer().body.splitlines()] == [None] * (1 + beside)
    served.end(execution)


# --- other ways


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/calls", 405),
        ("PUT", "/calls", 405),
        ("GET", "/tools/add", 405),
        ("GET", "/token", 405),
        ("POST", "/health", 405),
        ("POST", "/nowhere", 404),
        ("POST", "/calls/", 404),
        ("POST", "//calls", 404),
        ("POST", "/calls/../calls", 404),
        ("POST", "/CALLS", 404),
        ("POST", "/tools/a/b", 404),
        ("OPTIONS", "/calls", 405),
        ("TRACE", "/calls", 405),
    ],
)
def test_another_method_or_path_is_not_served(
    connection: Connection, execution: RemoteExecution, method: str, path: str, status: int
) -> None:
    connection.send(request(path, GOOD, method=method, token=execution.token()))
    answer = connection.answer()
    assert (answer.status, answer.code) == (status, "bridge_error")


def test_a_websocket_is_not_opened(connection: Connection, execution: RemoteExecution) -> None:
    upgrade = ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: YWJj"]
    connection.send(request("/calls", None, *upgrade, method="GET", token=execution.token()))
    assert connection.answer().status == 405


def test_what_is_no_http_is_refused(connection: Connection) -> None:
    connection.send(b"\0\x16\x03\x01 nonsense\r\n\r\n")
    assert connection.answer().status == 400


def test_a_client_that_goes_away_takes_its_calls_along(served: Served, execution: RemoteExecution) -> None:
    for body in (calls(call("wait", {})), calls(call("wait", {}), call(sequence=2))):
        with Connection(served.server.port) as connection:
            connection.send(request(body=body, token=execution.token()))
            assert served.waiting.started.wait(30)
        assert served.waiting.was_cancelled()


def test_a_client_of_one_tool_that_goes_away_takes_its_call_along(served: Served, execution: RemoteExecution) -> None:
    with Connection(served.server.port) as connection:
        connection.send(request("/tools/wait", "{}", token=execution.token()))
        assert served.waiting.started.wait(30)
    assert served.waiting.was_cancelled()


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(
    connection: Connection, execution: RemoteExecution
) -> None:
    token = execution.token()
    bodies = [calls(call("nap", {"seconds": 0.02})), GOOD, "{", GOOD]
    connection.send(b"".join(request(body=body, token=token) for body in bodies))
    statuses = [connection.answer().status for _ in bodies]
    assert statuses == [200, 200, 400, 200]
