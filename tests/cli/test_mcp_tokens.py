"""`corral mcp --http` that asks for tokens: one for all, or those of an OAuth issuer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corral.errors import ConfigError
from corral.integrations.mcp.authorization import OAuthTokens, OneToken
from tests.cli.terminal import Project
from tests.forks import CORRAL, ForkedProcess
from tests.shells.faults import served
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

RESOURCE = "https://tools.example/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Issuer:
    """Authorization server as far as resource servers see it."""

    url = ""
    asked = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/keys", self._keys),
                Route("/.well-known/oauth-authorization-server/keyless", self._keyless),
            ]
        )

    async def _metadata(self, _: Request) -> Response:
        return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def _keyless(self, _: Request) -> Response:
        return JSONResponse({"issuer": f"{self.url}/keyless"})

    async def _keys(self, _: Request) -> Response:
        self.asked += 1
        public = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})

    def token(self, *, key: Any = KEY, kid: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
        good = {
            "iss": self.url,
            "aud": RESOURCE,
            "sub": "ann",
            "exp": int(time.time()) + 300,
            "scope": "mcp mail:send",
        }
        kept = {name: value for name, value in {**good, **claims}.items() if value is not None}
        return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid})


@pytest.fixture(scope="module")
def issuer() -> Generator[Issuer]:
    made = Issuer()
    with served(made.app()) as url:
        made.url = url
        yield made


@contextmanager
def serving(project: Project, *arguments: str, **env: str) -> Generator[str]:
    command = [CORRAL, "mcp", "--tools", "app.tools", "--http", "--port", "0", *arguments]
    pipe = subprocess.PIPE
    with ForkedProcess(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=project.directory, env={**os.environ, **env}
    ) as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"tools at (http://\S+/mcp)", each) for each in process.stderr)))
            yield found[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_SECONDS) == 0
        finally:
            if process.poll() is None:
                process.kill()


async def program(url: str, token: str, code: str) -> Any:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        return (await client.call_tool("execute_code", {"code": code})).structured_content


async def hello(url: str, token: str | None) -> httpx.Response:
    headers = {"accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with httpx.AsyncClient(headers=headers, timeout=LIMIT_SECONDS) as http:
        return await http.post(url, json=HELLO)


async def test_one_token_lets_clients_in_and_nobody_else(project: Project) -> None:
    token = "a-token-for-all-clients-of-this-server"
    with serving(project, CORRAL_MCP_TOKEN=token) as url:
        answer = await program(url, token, "return 1 + 1")
        assert answer["value"] == 2
        for wrong in (None, "x", token[:-1], f"{token}x"):
            response = await hello(url, wrong)
            assert response.status_code == 401, wrong
            assert "bearer" in response.headers["www-authenticate"].lower()


async def test_tokens_of_an_issuer_name_the_user_whose_session_it_is_and_their_scopes(
    project: Project, issuer: Issuer
) -> None:
    arguments = ("--oauth-issuer", issuer.url, "--oauth-resource", RESOURCE, "--oauth-scope", "mcp")
    with serving(project, *arguments) as url:
        answer = await program(url, issuer.token(), "return await tools.who()")
        user, _, session, *scopes = answer["value"]
        assert (user, scopes) == ("ann", ["mail:send", "mcp"])
        assert session is None  # no MCP session
        without = await hello(url, None)
        assert without.status_code == 401
        [place] = re.findall(r'resource_metadata="([^"]+)"', without.headers["www-authenticate"])
        assert place == "https://tools.example/.well-known/oauth-protected-resource/mcp"
        async with httpx.AsyncClient(timeout=LIMIT_SECONDS) as http:
            told = (await http.get(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"))).json()
        assert (told["resource"], told["authorization_servers"]) == (RESOURCE, [issuer.url])
        assert (await hello(url, issuer.token(scope="other"))).status_code == 403
        # A session belongs to the user who opened it.
        opened = await hello(url, issuer.token())
        assert opened.status_code == 200
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "accept": "application/json, text/event-stream"}
        found: dict[str, int] = {}
        async with httpx.AsyncClient(headers=session, timeout=LIMIT_SECONDS) as http:
            for user in ("ann", "bob"):
                headers = {"authorization": f"Bearer {issuer.token(sub=user)}"}
                found[user] = (await http.post(url, json=listing, headers=headers)).status_code
    assert found["ann"] == 200
    assert found["bob"] in (403, 404)


async def test_what_is_no_token_for_this_resource_is_refused(issuer: Issuer) -> None:
    tokens = OAuthTokens(issuer.url, RESOURCE)
    good = await tokens.verify_token(issuer.token())
    assert good is not None
    assert (good.subject, good.scopes) == ("ann", ["mcp", "mail:send"])
    public = KEY.public_key()
    bad = {
        "another resource": issuer.token(aud="https://other.example/mcp"),
        "another issuer": issuer.token(iss="https://evil.example"),
        "expired": issuer.token(exp=int(time.time()) - 60),
        "without an end": issuer.token(exp=None),
        "without a subject": issuer.token(sub=None),
        "another key": issuer.token(key=OTHER),
        "unsigned": jwt.encode({"sub": "ann", "aud": RESOURCE}, "", algorithm="none", headers={"kid": "one"}),
        "a shared secret": jwt.encode({"sub": "ann"}, str(public.public_numbers().n), "HS256", headers={"kid": "one"}),
        "too long": issuer.token(padding="x" * 9_000),
        "no token": "x.y.z",
    }
    accepted = [name for name, token in bad.items() if await tokens.verify_token(token) is not None]
    assert accepted == []


async def test_unknown_keys_do_not_have_the_issuer_asked_each_time(issuer: Issuer) -> None:
    tokens = OAuthTokens(issuer.url, RESOURCE)
    before = issuer.asked
    for number in range(20):
        assert await tokens.verify_token(issuer.token(kid=f"unknown-{number}")) is None
    assert issuer.asked == before + 1


async def test_an_issuer_that_cannot_be_asked_lets_nobody_in(issuer: Issuer) -> None:
    for place in ("http://127.0.0.1:9", f"{issuer.url}/elsewhere", f"{issuer.url}/keyless"):
        assert await OAuthTokens(place, RESOURCE).verify_token(issuer.token(iss=place)) is None


def test_settings_that_protect_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="shorter than 32 characters"):
        OneToken("short")
    with pytest.raises(ConfigError, match="not an http or https URL"):
        OAuthTokens("issuer", RESOURCE)
