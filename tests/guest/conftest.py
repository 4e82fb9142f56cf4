"""Bridges that run as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.guest.serving import Bridge, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def bridge(server: Server) -> Bridge:
    return server.bridge()
