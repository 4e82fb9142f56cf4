"""Clients that have not read the first message of a reply when their call ends."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest

from corral import Limits, tool
from corral.calls import RemoteExecution
from tests.bridges.http.serving import PATIENCE_SECONDS
from tests.protocols.grpc.serving import GrpcServed

LARGE = 1_000_000
"""Bytes of a message, of which a client takes no more at once than `WINDOW`."""
WINDOW = 65_535


@tool
async def large() -> str:
    """A large text."""
    return "x" * LARGE


@tool(stream=True)
async def larges() -> AsyncIterator[str]:
    """Large texts without an end."""
    while True:
        yield "x" * LARGE


class Reader:
    """A client that reads a reply as far as it is asked to."""

    def __init__(self, address: str, token: str, method: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._line = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._line.initiate_connection()
        own = [(":method", "POST"), (":scheme", "http"), (":path", f"/corral.tools.Tools/{method}")]
        grpc = [(":authority", address), ("te", "trailers"), ("content-type", "application/grpc")]
        self._line.send_headers(1, [*own, *grpc, ("authorization", f"Bearer {token}")])
        self._line.send_data(1, bytes(5), end_stream=True)  # an empty message
        self.trailers: dict[str, str] | None = None
        self.received = 0

    def read(self, size: int | None = None) -> None:
        """Reads that many bytes of messages, or all until the trailers."""
        if size is None:
            for stream in None, 1:
                self._line.increment_flow_control_window(10 * LARGE, stream)
        while self.trailers is None if size is None else self.received < size:
            self._send()
            for event in self._line.receive_data(self._socket.recv(WINDOW)):
                match event:
                    case h2.events.DataReceived(data=bytes(data)):
                        self.received += len(data)
                    case h2.events.TrailersReceived(headers=headers):
                        self.trailers = {str(name): str(value) for name, value in headers or ()}
                    case _:
                        pass

    def cancel(self) -> None:
        self._line.reset_stream(1, h2.errors.ErrorCodes.CANCEL)
        self._send()

    def _send(self) -> None:
        self._socket.sendall(self._line.data_to_send())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def served() -> Iterator[GrpcServed]:
    with GrpcServed([large, larges]) as served:
        yield served


@pytest.fixture
def execution(served: GrpcServed) -> Iterator[RemoteExecution]:
    execution = served.grant(limits=Limits(tool_output_bytes=2 * LARGE))
    yield execution
    served.end(execution)


@pytest.mark.parametrize("method", ["large", "larges"])
def test_a_client_that_reads_after_its_execution_has_ended_has_the_end_of_its_call(
    served: GrpcServed, execution: RemoteExecution, method: str
) -> None:
    with closing(Reader(served.bridge.address, execution.token(), method)) as reader:
        reader.read(WINDOW)
        served.end(execution)
        reader.read()
    assert reader.received > LARGE
    trailers = reader.trailers or {}
    ended = ("16", "invalid_token") if method == "larges" else ("0", None)
    assert (trailers["grpc-status"], trailers.get("corral-error-code")) == ended


@pytest.mark.parametrize("method", ["large", "larges"])
@pytest.mark.parametrize("cancels", [True, False])
def test_a_client_that_leaves_is_no_error_of_the_server(
    method: str, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with GrpcServed([large, larges]) as served:
        execution = served.grant(limits=Limits(tool_output_bytes=2 * LARGE))
        with closing(Reader(served.bridge.address, execution.token(), method)) as reader:
            reader.read(WINDOW)
            if cancels:
                reader.cancel()
    assert not caplog.records
