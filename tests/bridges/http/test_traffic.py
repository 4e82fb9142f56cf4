"""What one execution can make the bridge hold in memory, wait for, or do, is bounded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from corral import Corral, ExecutionContext, Limits, tool
from corral.bridges.web import request_load as traffic
from corral.bridges.web import request_watch as watch
from corral.calls import RemoteExecution
from corral.errors import ConfigError
from tests.bridges.http.serving import NO_TLS, Connection, Served, Server, request

CALL = '{"calls":[{"sequence":1,"tool":"%s","input":%s}]}'


def headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "content-type": "application/json"}


def test_bodies_of_one_execution_wait_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_BODY_BYTES", 3_000)
    running = most = 0
    lock = threading.Lock()
    together = threading.Barrier(2, timeout=30)

    @tool
    def hold(text: str) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return len(text)

    corral = Corral([hold], check=False)
    with Server(corral.remote.asgi_app(), "httptools") as server:
        token = server.do(lambda: corral.remote.grant(ExecutionContext()).token())
        body = CALL % ("hold", f'{{"text":"{"x" * 1_200}"}}')

        def post(_: int) -> str:
            return httpx.post(
                f"{server.url}/calls", content=body, headers=headers(token), timeout=20, verify=NO_TLS
            ).text

        with ThreadPoolExecutor(6) as threads:
            assert ['"value":1200' in text for text in threads.map(post, range(6))] == [True] * 6
    assert most == 2


def test_calls_far_over_the_budget_are_refused_as_whole_requests(served: Served) -> None:
    execution = served.grant(limits=Limits(calls=2))
    body = CALL % ("add", '{"a":1,"b":1}')
    with httpx.Client(
        base_url=served.server.url, headers=headers(execution.token()), timeout=30, verify=NO_TLS
    ) as client:
        statuses = [client.post("/calls", content=body).status_code for _ in range(2 + 64 + 3)]
    assert statuses == [200] * 66 + [429] * 3
    served.end(execution)


def test_a_body_that_never_begins_is_given_up(
    served: Served, execution: RemoteExecution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BODY_SECONDS", 0.05)
    with Connection(served.server.port) as connection:
        connection.send(request("/calls", None, "content-length: 9", token=execution.token()))
        assert connection.answer().status == 400


def test_a_tool_cannot_close_the_corral_that_it_is_called_through_over_http() -> None:
    @tool
    async def close() -> str:
        try:
            await corral.aclose()
        except ConfigError as error:
            return str(error)
        return "closed"

    corral = Corral([close], check=False)
    with Server(corral.remote.asgi_app(), "httptools") as server:
        token = server.do(lambda: corral.remote.grant(ExecutionContext()).token())
        answer = httpx.post(
            f"{server.url}/tools/close", content="{}", headers=headers(token), timeout=30, verify=NO_TLS
        ).json()
    assert answer == "a tool cannot close the Corral that runs it"
