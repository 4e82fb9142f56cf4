"""A bridge that runs as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral import Corral
from corral.protocols.graphql.bridge import GraphqlBridge
from tests.bridges.http.serving import Audited, Server, Waiting, approve
from tests.bridges.http.serving import tools as other_tools
from tests.protocols.graphql.serving import Client, Served, tools


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    audit, waiting = Audited(), Waiting()
    everything = [*tools(), *other_tools(), waiting.tool]
    corral = Corral(everything, audit=audit.log, approve=approve, check=False)
    with Server(corral.remote.asgi_app(GraphqlBridge(allowed_origins=["https://app.example"]))) as server:
        yield Served(corral, server, audit, waiting)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    execution = served.grant()
    yield Client(served.server.url, execution.token())
    served.server.do(execution.end)
