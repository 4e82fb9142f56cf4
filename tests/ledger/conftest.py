"""An empty database for ledgers."""

from __future__ import annotations

import pytest

from tests.audit.conftest import own_server as own_server
from tests.audit.conftest import postgres_server as postgres_server
from tests.postgres import fresh_url


@pytest.fixture
def url(postgres_server: str) -> str:
    return fresh_url(postgres_server)
