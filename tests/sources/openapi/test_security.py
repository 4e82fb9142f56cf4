"""The host's credentials go where the document says, and are seen nowhere else."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from corral import ExecutionContext
from corral.egress import EgressPolicy, SafeClient
from corral.errors import ConfigError, ToolError
from corral.sources.openapi import ApiKey, Basic, Bearer, Credential, OpenApi
from tests.sources.openapi.service import Answer, Service, calling, document, operation, serve

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t/with=chars"
SCHEMES: Any = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
    "basic": {"type": "http", "scheme": "Basic"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "oauth": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://x/.well-known"},
    "digest": {"type": "http", "scheme": "digest"},
    "mtls": {"type": "mutualTLS"},
}
BASIC = base64.b64encode(f"me:{SECRET}".encode()).decode()


def secured(*requirements: dict[str, list[str]], parameters: Any = (), **more: Any) -> dict[str, Any]:
    paths = operation(*parameters, security=list(requirements))
    return document(paths, components={"securitySchemes": SCHEMES}, **more)


@pytest.mark.parametrize(
    ("scheme", "credential", "header", "expected"),
    [
        ("header", ApiKey(SECRET), "x-api-key", SECRET),
        ("cookie", ApiKey("a;b"), "cookie", "session=a%3Bb"),
        ("basic", Basic("me", SECRET), "authorization", f"Basic {BASIC}"),
        ("bearer", Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
        ("oauth", Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
        ("oidc", Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
    ],
)
async def test_a_credential_goes_where_its_scheme_says(
    scheme: str, credential: Credential, header: str, expected: str, service: Service
) -> None:
    async with calling(service, secured({scheme: []}), credentials={scheme: credential}) as call:
        await call()
    assert service.last.header(header) == expected


@pytest.mark.parametrize("credential", [SECRET, None, 5])
async def test_what_is_no_credential_is_refused_unseen(credential: Any) -> None:
    for credentials in (credential, {"header": credential}):
        with pytest.raises(ConfigError, match="takes Bearer, Basic, ApiKey") as raised:
            OpenApi(None, secured({"header": []}), credentials=credentials)
        assert SECRET not in str(raised.value)


async def test_a_key_may_be_in_the_query(service: Service) -> None:
    async with calling(service, secured({"query": []}), credentials={"query": ApiKey("a&b")}) as call:
        await call()
    assert service.last.target == "/things?api_key=a%26b"


async def test_of_alternatives_one_is_enough_and_of_combinations_all_are_needed(service: Service) -> None:
    said = secured({"oauth": []}, {"header": [], "basic": []}, {})
    both: dict[str, Credential] = {"header": ApiKey("k"), "basic": Basic("u", "p")}
    async with calling(service, said, credentials=both) as call:
        await call()
        assert (service.last.header("x-api-key"), service.last.header("authorization")) == ("k", "Basic dTpw")
    async with calling(service, said, credentials={"header": ApiKey("k")}) as call:
        await call()
        assert service.last.header("x-api-key") is None
    [skipped] = OpenApi(None, secured({"oauth": []}, {"header": [], "mtls": []}), base_url=service.url).skipped
    assert skipped == (
        "GET /things",
        "it needs a credential: oauth (a token of oauth2) or header (a key in the header) with mtls (mutualTLS)",
    )


async def test_what_needs_a_credential_can_be_taken_without_one(service: Service) -> None:
    async with calling(service, secured({"oauth": []}), without_credentials=True) as call:
        await call()
    assert service.last.header("authorization") is None


async def test_an_operation_can_do_without_what_the_document_asks_of_all(service: Service) -> None:
    said: dict[str, Any] = {**document(operation(security=[])), "security": [{"oauth": []}]}
    async with calling(service, said) as call:
        await call()
    del said["paths"]["/things"]["get"]["security"]
    assert OpenApi(None, said, base_url=service.url).skipped != []


async def test_one_credential_can_be_for_a_document_that_says_nothing_of_security(service: Service) -> None:
    credentials: list[tuple[Credential, str, str]] = [
        (Bearer(SECRET), "authorization", f"Bearer {SECRET}"),
        (Basic("me", SECRET), "authorization", f"Basic {BASIC}"),
        (ApiKey(SECRET, name="X-Key"), "x-key", SECRET),
        (ApiKey("k", name="key", place="cookie"), "cookie", "key=k"),
        (lambda context: ApiKey(context.user_id, name="X-Key"), "x-key", "ann"),
    ]
    for credential, header, expected in credentials:
        async with calling(service, document(operation()), credentials=credential) as call:
            await call("call", ExecutionContext(user_id="ann"))
        assert service.last.header(header) == expected


async def test_a_credential_can_be_found_for_each_caller(service: Service) -> None:
    async def find(context: ExecutionContext) -> Bearer | None:
        return Bearer(f"token-of-{context.user_id}") if context.user_id != "nobody" else None

    async with calling(service, secured({"oauth": []}), credentials={"oauth": find}) as call:
        await call("call", ExecutionContext(user_id="ann"))
        assert service.last.header("authorization") == "Bearer token-of-ann"
        await call("call", ExecutionContext(user_id="bob"))
        assert service.last.header("authorization") == "Bearer token-of-bob"
        with pytest.raises(ToolError, match=r"there is no credential for this caller \(oauth\)"):
            await call("call", ExecutionContext(user_id="nobody"))
    assert len(service.asked) == 2


def nobodys(context: ExecutionContext) -> None: ...


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        ({"nope": Bearer("t")}, "no security scheme 'nope'; it has: basic, bearer, cookie"),
        ({"oauth": Basic("u", SECRET)}, "'oauth' is a token of oauth2; it takes a Bearer, not a Basic"),
        ({"basic": Bearer(SECRET)}, "it takes a Basic, not a Bearer"),
        ({"digest": Basic("u", SECRET)}, "'digest' is http digest, which is not supported"),
        ({"mtls": nobodys}, "'mtls' is mutualTLS, which is not supported"),
        ({"bearer": Bearer(f"{SECRET}\r\nX-Evil: 1")}, "the credential for bearer is not allowed in a header"),
        (ApiKey(SECRET), "ApiKey needs a name"),
    ],
)
def test_a_credential_that_does_not_fit_is_an_error_of_the_host(credentials: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OpenApi(None, secured({"oauth": []}), base_url="http://localhost", credentials=credentials)
    assert text in str(raised.value)
    assert SECRET not in str(raised.value)


async def test_programs_cannot_set_what_credentials_are_for(service: Service) -> None:
    parameters = [
        {"name": "X-API-KEY", "in": "header", "required": True, "schema": {"type": "string"}},
        {"name": "api_key", "in": "query", "schema": {"type": "string"}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
        {"name": "filter", "in": "query", "schema": {"type": "object"}},
    ]
    given: dict[str, Credential] = {"query": ApiKey("mine"), "header": ApiKey("k")}
    said = secured({"query": [], "header": []}, parameters=parameters)
    async with calling(service, said, credentials=given) as call:
        assert list((call.tools["call"].input_schema or {})["properties"]) == ["filter"]
        await call(filter={"api_key": "theirs", "a": "1"})
    assert service.last.target == "/things?a=1&api_key=mine"


async def test_no_secret_is_in_what_anybody_reads(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    echo = f'{{"error": "bad token {SECRET}, {BASIC}"}}'.encode()
    service.answers += [Answer(401, echo), Answer(200, b"<p>" + echo, {"content-type": "text/html"})]
    given: dict[str, Credential] = {"basic": Basic("me", SECRET), "header": ApiKey(SECRET)}
    source = OpenApi("api", secured({"basic": [], "header": []}), base_url=service.url, credentials=given)
    assert SECRET not in repr([given, source, source.__dict__, source.tools])
    with caplog.at_level(logging.DEBUG, logger="corral"):
        async with calling(service, secured({"basic": [], "header": []}), credentials=given) as call:
            for _ in range(2):
                with pytest.raises(ToolError) as raised:
                    await call()
                assert SECRET not in str(raised.value)
                assert BASIC not in str(raised.value)
                assert "bad token [redacted], [redacted]" in str(raised.value)
                assert raised.value.__cause__ is None
    assert SECRET not in caplog.text


async def test_a_redirect_takes_no_secret_to_another_origin(service: Service) -> None:
    with serve() as other:
        ports = [int(each.url.rpartition(":")[2]) for each in (service, other)]
        policy = EgressPolicy(hosts=["127.0.0.1"], ports=ports, exempt_networks=["127.0.0.1"])
        service.answers.append(Answer(302, b"", {"location": f"{other.url}/x"}))
        names: Any = {"basic": [], "header": [], "cookie": []}
        given: dict[str, Credential] = {
            "basic": Basic("me", SECRET), "header": ApiKey(SECRET), "cookie": ApiKey(SECRET),
        }  # fmt: skip
        async with (
            SafeClient(policy) as client,
            calling(service, secured(names), credentials=given, client=client) as call,
        ):
            await call()
        assert SECRET in str(service.last)
        assert SECRET not in str(other.last)
        assert BASIC not in str(other.last)


def test_a_document_that_gives_no_tool_at_all_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    OpenApi("api", secured({"bearer": []}), base_url="http://127.0.0.1:9")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("OpenApi 'api': 0 operations became tools, 1 did not: 1 × it needs a cred")
