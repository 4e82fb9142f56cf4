"""`corral.v1.Bridge`: values, errors and streams as runtimes need them."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest

from corral.guest import decode_value, encode_value
from corral.protocols.grpc.methods import CallMessage as CallRequest
from corral.protocols.grpc.methods import CallReply, RenewReply
from tests.bridges.http.serving import PATIENCE_SECONDS
from tests.protocols.grpc.serving import Client, GrpcServed


def call(client: Client, tool: str, input: object = None) -> Any:
    value = encode_value({} if input is None else input)
    request = CallRequest(tool=tool, input=value.text, tagged=value.tagged)
    return CallReply.FromString(client.raw("/corral.v1.Bridge/Call", request.SerializeToString()))


def value_of(reply: Any) -> object:
    return decode_value(reply.value, tagged=reply.tagged)


def test_values_and_errors(client: Client) -> None:
    value: Any = {"big": 2**80, "bytes": b"\x00\xff", "nan": math.inf, "list": [None, [1], {"a": 1}], "$bytes": "x"}
    assert value_of(call(client, "echo", value)) == value
    assert value_of(call(client, "search", {"query": "add"})) is not None
    nothing = call(client, "nothing")
    assert not nothing.HasField("value")
    assert not nothing.HasField("error")
    denied = call(client, "send", {"text": "x"}).error
    assert (denied.code, denied.name) == ("scope_denied", "ScopeDenied")
    assert call(client, "refuse").error.message == "größer\nnot today"
    assert call(client, "break_down").error.HasField("correlation_id")
    call(client, "quote")
    assert call(client, "quote").error.retry_after_seconds > 3_500
    assert [value_of(call(client, "numbers", {"n": 3}))] == [[0, 1, 2]]


def test_streams(client: Client) -> None:
    def items(tool: str, input: object) -> list[Any]:
        body = CallRequest(tool=tool, input=encode_value(input).text).SerializeToString()
        stream = client.stream("/corral.v1.Bridge/Stream")(body, timeout=PATIENCE_SECONDS)
        return [CallReply.FromString(each) for each in stream]

    assert [value_of(each) for each in items("numbers", {"n": 3})] == [0, 1, 2]
    *good, last = items("numbers", {"n": 6})
    assert len(good) == 6
    assert last.error.message == "more than five"
    assert [value_of(each) for each in items("add", {"a": 1, "b": 1})] == [2]


def test_renewal(served: GrpcServed, client: Client) -> None:
    renewed = RenewReply.FromString(client.raw("/corral.v1.Bridge/Renew"))
    assert renewed.expires > served.clock()
    with Client(served.bridge.address, renewed.token) as another:
        assert value_of(call(another, "add", {"a": 1, "b": 2})) == 3


@pytest.mark.parametrize("body", [b"", b"\x0a\x03add\x12\x01{", b'\x0a\x03add\x12\x0e{"$bytes":"!!"}\x18\x01'])
def test_hostile_requests(client: Client, body: bytes) -> None:
    try:
        reply = CallReply.FromString(client.raw("/corral.v1.Bridge/Call", body))
        code = reply.error.code
    except grpc.RpcError as error:
        failed: Any = error
        code = dict(failed.trailing_metadata())["corral-error-code"]
    assert code in ("tool_not_found", "malformed_message")
