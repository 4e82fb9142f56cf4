"""Bridges that run as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral import Corral
from corral.bridges.http import HttpBridge
from corral.calls import RemoteExecution
from corral.calls.tokens import ExecutionTokens, KeyRing
from tests.bridges.http.serving import Audited, Clock, Served, Server, Waiting, approve, tools


@pytest.fixture(scope="module", params=["httptools"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    audit, waiting, clock = Audited(), Waiting(), Clock()
    tokens = ExecutionTokens(KeyRing.generate(clock=clock))
    corral = Corral([*tools(), waiting.tool], audit=audit.log, approve=approve, tokens=tokens, check=False)
    bridge = HttpBridge(allowed_origins=["https://app.example"])
    with Server(corral.remote.asgi_app(bridge), request.param) as server:
        yield Served(corral, server, audit, waiting, clock)


@pytest.fixture
def execution(served: Served) -> Iterator[RemoteExecution]:
    execution = served.grant()
    yield execution
    served.end(execution)
