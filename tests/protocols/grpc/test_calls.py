"""Calls by stubs that clients make at run time, and the statuses of those that fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from corral import Limits, tool
from tests.bridges.http.serving import PATIENCE_SECONDS
from tests.protocols.grpc.serving import Client, GrpcServed, endless_closed


def failure(error: grpc.RpcError) -> tuple[str, str, str]:
    """Its status, corral's code and its message."""
    call: Any = error
    trailers = dict(call.trailing_metadata())
    status = Status.FromString(trailers["grpc-status-details-bin"])
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "corral"
    assert info.metadata["code"] == trailers["corral-error-code"] == info.reason.lower()
    assert status.code == call.code().value[0]
    return call.code().name, info.metadata["code"], call.details()


def test_values(client: Client) -> None:
    assert client.call("add", a=1, b=2).result == 3
    assert list(client.call("inbox").result) == ["Lunch?"]
    assert not client.call("nothing").ListFields()
    known, unknown = client.call("maybe", known=True), client.call("maybe", known=False)
    assert known.HasField("result")
    assert not unknown.HasField("result")
    tree = client.call("grow", service="corral.tools.treesTools", node={"name": "root", "weight": float("inf")})
    assert (tree.name, tree.weight, [each.name for each in tree.children]) == ("root", float("inf"), ["leaf"])
    assert not tree.children[0].HasField("weight")
    given: Any = {
        "text": "",
        "whole": 2**62,
        "share": 0.0,
        "flag": False,
        "raw": b"\x00\xff",
        "when": datetime(2026, 1, 2, tzinfo=UTC).isoformat(),
        "words": [],
        "counts": {"a": -1},
    }
    said = client.call("everything", **given).result
    defaults: Any = ("", 2**62, 0.0, False, b"\x00\xff", 2026, [], {"a": -1}, "red", 3, None, [], None, 7)
    assert said == repr(defaults)
    more: Any = {
        "colour": "blue",
        "either": {"string_value": "x"},
        "perhaps": {"items": []},
        "lists": [{"list_value": {"values": [{"number_value": 1}]}}],
        "open": {"b": [1.5, None]},
        "class_": 0,
    }
    said = client.call("everything", **given, **more).result
    assert said.endswith("'blue', 'x', [], [[1]], {'b': [1.5, None]}, 0)")


def test_statuses(client: Client) -> None:
    def failing(method: str, **fields: Any) -> tuple[str, str, str]:
        with pytest.raises(grpc.RpcError) as raised:
            client.call(method, **fields)
        return failure(raised.value)

    assert failing("refuse") == ("FAILED_PRECONDITION", "tool_error", "größer\nnot today")
    assert failing("add", a=1)[:2] == ("INVALID_ARGUMENT", "invalid_arguments")
    assert failing("pay", euros=30)[:2] == ("PERMISSION_DENIED", "approval_denied")
    assert client.call("pay", euros=3).result == 3
    status, code, message = failing("break_down")
    assert (status, code) == ("INTERNAL", "tool_failed")
    assert "hunter2" not in message
    assert client.call("quote").result == 1
    with pytest.raises(grpc.RpcError) as raised:
        client.call("quote")
    assert failure(raised.value)[:2] == ("RESOURCE_EXHAUSTED", "rate_limited")
    call: Any = raised.value
    status_details = Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])
    retry = RetryInfo()
    assert status_details.details[1].Unpack(retry)
    assert 3_500 < retry.retry_delay.seconds <= 3_600


def test_methods_that_a_caller_does_not_see(client: Client) -> None:
    for path, expected in {
        "/corral.tools.Tools/send": ("PERMISSION_DENIED", "scope_denied"),
        "/corral.tools.Tools/nix": ("UNIMPLEMENTED", "tool_not_found"),
        "/corral.tools.treesTools/nix": ("UNIMPLEMENTED", "tool_not_found"),
    }.items():
        with pytest.raises(grpc.RpcError) as raised:
            client.raw(path)
        assert failure(raised.value)[:2] == expected


def test_streams(client: Client) -> None:
    assert [each.result for each in client.call("numbers", n=3)] == [0, 1, 2]
    described = client.pool.FindServiceByName("corral.tools.Tools").methods_by_name["numbers"]
    assert described.server_streaming
    got: list[bytes] = []
    stream: Any = client.stream("/corral.tools.Tools/numbers")
    body = _request(client, "numbers", n=7)
    with pytest.raises(grpc.RpcError) as raised:
        got.extend(stream(body, timeout=PATIENCE_SECONDS))
    assert failure(raised.value)[1] == "tool_error"
    endless: Any = client.stream("/corral.tools.Tools/endless")(b"", timeout=PATIENCE_SECONDS)
    first = next(iter(endless))
    assert b"0 " in first
    endless.cancel()
    assert endless_closed.acquire(timeout=PATIENCE_SECONDS)


def _request(client: Client, method: str, **fields: Any) -> bytes:

    described = client.pool.FindServiceByName("corral.tools.Tools").methods_by_name[method]
    return GetMessageClass(described.input_type)(**fields).SerializeToString()


def test_calls_end_with_their_client_their_deadline_and_their_execution(served: GrpcServed) -> None:
    execution = served.grant()
    with Client(served.bridge.address, execution.token()) as client:
        call = client.unary("/corral.tools.Tools/wait")
        future = call.future(b"")
        assert served.waiting.started.wait(PATIENCE_SECONDS)
        future.cancel()
        assert served.waiting.was_cancelled()
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=0.3)
        late: Any = raised.value
        assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert served.waiting.was_cancelled()
        future = call.future(b"")
        assert served.waiting.started.wait(PATIENCE_SECONDS)
        served.end(execution)
        assert failure(future.exception(PATIENCE_SECONDS))[:2] == ("UNAUTHENTICATED", "invalid_token")
        assert served.waiting.was_cancelled()
        with pytest.raises(grpc.RpcError) as raised:
            client.raw("/corral.tools.Tools/nothing")
        assert failure(raised.value)[:2] == ("UNAUTHENTICATED", "invalid_token")


def test_tools_that_come_and_go(served: GrpcServed, client: Client) -> None:
    @tool
    async def guest() -> str:
        """Comes late."""
        return "here"

    assert client.raw("/corral.tools.Tools/nothing") == b""
    served.do(lambda: served.corral.tools.register(guest))
    assert client.call("guest").result == "here"
    served.do(lambda: served.corral.tools.remove("guest"))
    with pytest.raises(grpc.RpcError) as raised:
        client.call("guest")
    assert failure(raised.value)[:2] == ("UNIMPLEMENTED", "tool_not_found")


def test_bounds(served: GrpcServed) -> None:
    execution = served.grant(limits=Limits(calls=3, tool_input_bytes=1_000, tool_output_bytes=5_000))
    with Client(served.bridge.address, execution.token()) as client:

        def failing(method: str, **fields: Any) -> tuple[str, str]:
            with pytest.raises(grpc.RpcError) as raised:
                client.call(method, **fields)
            return failure(raised.value)[:2]

        too_large = ("RESOURCE_EXHAUSTED", "message_too_large")
        assert failing("echo", input={"a": "x" * 2_000}) == too_large
        assert failing("much", bytes=6_000) == too_large
        client.call("nothing")
        client.call("nothing")
        assert failing("nothing") == ("RESOURCE_EXHAUSTED", "call_budget_exceeded")
    served.end(execution)


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"\xff\xff\xff", "malformed_message"), (b"\x08\x01", "invalid_arguments")],
    ids=["no message", "unknown field"],
)
def test_malformed_messages(client: Client, body: bytes, code: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        client.raw("/corral.tools.Tools/nothing", body)
    assert failure(raised.value)[:2] == ("INVALID_ARGUMENT", code)
