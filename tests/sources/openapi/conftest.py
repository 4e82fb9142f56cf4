"""The server that most tests ask."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.sources.openapi.service import Service, serve


@pytest.fixture(scope="module")
def _server() -> Generator[Service]:
    with serve() as service:
        yield service


@pytest.fixture
def service(_server: Service) -> Service:
    _server.asked.clear()
    _server.answers.clear()
    return _server
