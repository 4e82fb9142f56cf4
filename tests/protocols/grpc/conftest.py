"""A gRPC bridge that runs as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.calls import RemoteExecution
from tests.protocols.grpc.serving import Client, GrpcServed


@pytest.fixture(scope="module")
def served() -> Iterator[GrpcServed]:
    with GrpcServed() as served:
        yield served


@pytest.fixture
def execution(served: GrpcServed) -> Iterator[RemoteExecution]:
    execution = served.grant()
    yield execution
    served.end(execution)


@pytest.fixture
def client(served: GrpcServed, execution: RemoteExecution) -> Iterator[Client]:
    with Client(served.bridge.address, execution.token()) as client:
        yield client
