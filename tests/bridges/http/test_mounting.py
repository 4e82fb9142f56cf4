"""The app inside of another one: its paths, its names, and nobody else's tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount

from corral import Corral, tool
from corral.bridges import ASGIApp
from corral.bridges.http import HttpBridge
from corral.errors import ConfigError
from tests.bridges.http.serving import CONTEXT, Audited, call, tools
from tests.conftest import both_loops

pytestmark = pytest.mark.anyio


def in_fastapi(app: ASGIApp, path: str) -> ASGIApp:
    outer = FastAPI()
    outer.mount(path, app)
    return outer


def in_starlette(app: ASGIApp, path: str) -> ASGIApp:
    return Starlette(routes=[Mount(path, app)])


def client(app: ASGIApp, host: str = "localhost", **transport: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, **transport), base_url=f"http://{host}")


@both_loops
@pytest.mark.parametrize("mount", [in_fastapi, in_starlette])
@pytest.mark.parametrize("path", ["/corral", "/a/b"])
@pytest.mark.parametrize("root_path", ["", "/behind/a/proxy"])
async def test_every_route_is_there(mount: Callable[[ASGIApp, str], ASGIApp], path: str, root_path: str) -> None:
    corral = Corral(tools(), check=False)
    with corral.remote.grant(CONTEXT) as execution:
        headers = {"authorization": f"Bearer {execution.token()}"}
        async with client(mount(corral.remote.asgi_app(), path), root_path=root_path) as http:
            calls = await http.post(f"{root_path}{path}/calls", json={"calls": [call()]}, headers=headers)
            assert (calls.status_code, calls.json()) == (200, {"sequence": 1, "value": 3})
            one = await http.post(f"{root_path}{path}/tools/add", json={"a": 1, "b": 2}, headers=headers)
            assert (one.status_code, one.json()) == (200, 3)
            renewed = await http.post(f"{root_path}{path}/token", json={}, headers=headers)
            assert renewed.json().keys() == {"token", "expires"}
            for route in ("openapi.json", "health", "corral.mjs", "corral_tools.py"):
                assert (await http.get(f"{root_path}{path}/{route}", headers=headers)).status_code == 200
            assert (await http.get(f"{root_path}{path}/calls", headers=headers)).status_code == 405
            assert (await http.post(f"{root_path}{path}/tools/add/calls", headers=headers)).status_code == 404
            assert (await http.post("/calls", json={"calls": [call()]}, headers=headers)).status_code == 404


async def test_the_names_of_the_outer_app_have_to_be_allowed_here_too() -> None:
    corral = Corral(tools(), check=False)
    url = "https://tools.example/corral"
    for bridge, status in ((HttpBridge(url), 200), (HttpBridge(allowed_hosts=["TOOLS.example"]), 200), (None, 421)):
        outer = TrustedHostMiddleware(in_fastapi(corral.remote.asgi_app(bridge), "/corral"), ["tools.example"])
        async with client(outer, "tools.example") as http:
            assert (await http.get("/corral/health")).status_code == status
        async with client(outer, "attacker.example") as http:
            assert (await http.get("/corral/health")).status_code == 400  # the outer app's own refusal


async def test_any_name_is_taken_only_if_that_was_said() -> None:
    app = Corral(tools(), check=False).remote.asgi_app(HttpBridge(allowed_hosts=["*"]))
    async with client(app, "whatever.example") as http:
        assert (await http.get("/health")).status_code == 200


async def test_two_corrals_of_one_app_do_not_take_each_others_tokens() -> None:
    @tool
    async def whose() -> str:
        return "the other's"

    one, other = Corral(tools(), check=False), Corral([whose], check=False)
    app = Starlette(routes=[Mount("/one", one.remote.asgi_app()), Mount("/other", other.remote.asgi_app())])
    with one.remote.grant(CONTEXT) as of_one, other.remote.grant(CONTEXT) as of_other:
        async with client(app) as http:

            async def status(path: str, token: str) -> int:
                body = {"calls": [call("whose", {})]}
                headers = {"authorization": f"Bearer {token}"}
                return (await http.post(f"{path}/calls", json=body, headers=headers)).status_code

            assert [await status("/one", of_one.token()), await status("/other", of_other.token())] == [200, 200]
            assert [await status("/other", of_one.token()), await status("/one", of_other.token())] == [401, 401]


async def test_a_closed_corral_takes_no_token_any_more() -> None:
    corral = Corral(tools(), check=False)
    token = corral.remote.token(CONTEXT)
    async with client(corral.remote.asgi_app()) as http:
        headers = {"authorization": f"Bearer {token}"}
        assert (await http.post("/tools/add", json={"a": 1, "b": 2}, headers=headers)).status_code == 200
        await corral.aclose()
        assert (await http.post("/tools/add", json={"a": 1, "b": 2}, headers=headers)).status_code == 401


@pytest.mark.parametrize("url", ["tools.example", "ftp://tools.example", "https://", "/corral"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an http or https URL"):
        HttpBridge(url)


async def test_calls_are_numbered_as_they_arrive_whatever_their_clients_number_them() -> None:
    audit = Audited()
    corral = Corral(tools(), audit=audit.log, check=False)
    with corral.remote.grant(CONTEXT) as execution:
        headers = {"authorization": f"Bearer {execution.token()}"}
        async with corral, client(corral.remote.asgi_app()) as http:
            for numbers in ((7, 3), (7,), (2**53 - 1,)):
                each = [call(sequence=number) for number in numbers]
                answer = await http.post("/calls", json={"calls": each}, headers=headers)
                lines = [json.loads(line) for line in answer.text.splitlines()]
                assert sorted(line["sequence"] for line in lines) == sorted(numbers)
            await http.post("/tools/add", json={"a": 1, "b": 2}, headers=headers)
    assert sorted(event.sequence or 0 for event in audit.events if event.kind == "call") == [1, 2, 3, 4, 5]


def test_the_url_is_the_environments_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_URL", "https://tools.example/corral/")
    assert HttpBridge().url == "https://tools.example/corral"
    assert HttpBridge("https://other.example").url == "https://other.example"
    monkeypatch.setenv("TOOL_BRIDGE_URL", "tools.example")
    with pytest.raises(ConfigError, match="not an http or https URL"):
        HttpBridge()
