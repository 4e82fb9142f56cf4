"""Clients that send what no stub sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from corral import Corral, ExecutionContext, tool
from corral.bridges.peers import Peers
from corral.calls import RemoteExecution
from corral.calls.tokens import ExecutionTokens, Key, KeyRing
from corral.protocols.grpc import bridge, methods
from corral.protocols.grpc.bridge import GrpcBridge
from tests.bridges.http.serving import PATIENCE_SECONDS
from tests.protocols.grpc.serving import Client, GrpcServed

ADD = "/corral.tools.Tools/add"


def status(served: GrpcServed, metadata: list[tuple[str, str]], messages: Iterator[bytes] | None = None) -> str:
    with grpc.insecure_channel(served.bridge.address) as channel:
        make: Any = channel.stream_unary
        with pytest.raises(grpc.RpcError) as raised:
            make(ADD)(iter([b""]) if messages is None else messages, metadata=metadata, timeout=PATIENCE_SECONDS)
        failed: Any = raised.value
        return failed.code().name


def test_metadata(served: GrpcServed, execution: RemoteExecution) -> None:
    own = ("authorization", f"Bearer {execution.token()}")
    assert status(served, [own]) == "INVALID_ARGUMENT"  # a and b are missing
    assert status(served, [own, own]) == "INVALID_ARGUMENT"
    assert status(served, [("authorization", "Basic x")]) == "UNAUTHENTICATED"
    assert status(served, [own, *((f"x{number}", "y") for number in range(120))]) == "RESOURCE_EXHAUSTED"
    assert status(served, [own, ("x", "y" * 100_000)]) == "RESOURCE_EXHAUSTED"


def test_refused_tokens_are_audited(served: GrpcServed) -> None:
    served.audit.events.clear()
    assert status(served, [("authorization", "Bearer no")]) == "UNAUTHENTICATED"
    served.flush()
    assert [(event.protocol, event.code) for event in served.audit.events] == [("grpc", "invalid_token")]


@pytest.mark.anyio
async def test_the_token_of_another_host_is_refused_with_the_name_of_that_host() -> None:
    keys = KeyRing(Key("shared", "the key that both hosts of this test share"))
    token = ExecutionTokens(keys).issue("execution-1", ExecutionContext(user_id="ada"), host="b")
    server, ran = GrpcBridge(), list[str]()

    @tool
    def note() -> None:
        """Notes that it ran."""
        ran.append("note")

    host = Peers("a", {"b": "http://127.0.0.1:1"}, secret="s" * 32)
    metadata = [("authorization", f"Bearer {token}")]
    async with (
        Corral([note], bridge=server, tokens=ExecutionTokens(keys), peers=host, check=False),
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        make: Any = channel.unary_unary
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await make("/corral.tools.Tools/note")(b"", metadata=metadata, timeout=PATIENCE_SECONDS)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "belongs to the host 'b', and gRPC requests are not forwarded" in (raised.value.details() or "")
    assert ran == []


def test_messages_that_do_not_come(
    served: GrpcServed, execution: RemoteExecution, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ("authorization", f"Bearer {execution.token()}")
    assert status(served, [own], iter([])) == "INVALID_ARGUMENT"
    monkeypatch.setattr(bridge, "_MESSAGE_SECONDS", 0.05)

    refused = threading.Event()

    def never() -> Iterator[bytes]:
        refused.wait(PATIENCE_SECONDS)
        yield b""

    assert status(served, [own], never()) == "INVALID_ARGUMENT"
    refused.set()


def test_results_that_do_not_fit_and_what_nobody_expects(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(method: str) -> tuple[str, str, str]:
        with pytest.raises(grpc.RpcError) as raised:
            client.call(method)
        failed: Any = raised.value
        return failed.code().name, dict(failed.trailing_metadata())["corral-error-code"], failed.details()

    for method in "large", "wrong":
        status, code, said = failing(method)
        assert (status, code) == ("INTERNAL", "invalid_tool_output")
        assert "does not fit its message" in said

    def broken(*_: object) -> None:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(methods, "write_root", broken)
    status, code, said = failing("inbox")
    assert (status, code) == ("INTERNAL", "tool_failed")
    assert "hunter2" not in said


def test_deep_values(client: Client) -> None:
    value: Any = 1
    for _ in range(30):
        value = {"a": value}
    assert client.call("echo", input=value).result.struct_value.fields["a"]
    deep = b"\x08\x01"
    for _ in range(5_000):
        deep = b"\x0a" + _length(deep) + deep
    with pytest.raises(grpc.RpcError) as raised:
        client.raw("/corral.tools.Tools/echo", deep)
    failed: Any = raised.value
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert client.call("add", a=1, b=2).result == 3


def _length(data: bytes) -> bytes:
    number, out = len(data), b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
