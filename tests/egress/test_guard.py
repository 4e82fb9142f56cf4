"""Whatever a program's URL is, a client connects to addresses that were checked, and to no others."""

from __future__ import annotations

import asyncio
import http.cookies
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.egress import EgressPolicy, SafeClient
from corral.egress.client import _has_left  # pyright: ignore[reportPrivateUsage]
from corral.errors import ConfigError, EgressBlocked
from tests.egress.conftest import NO_CERTIFICATES, ClientFactory, both_loops
from tests.egress.wire import Attempts, Server, recorded, serve

pytestmark = pytest.mark.anyio

INWARD = """
    http://127.0.0.1:${PORT}/ http://127.1.2.3:${PORT}/ http://localhost:${PORT}/ http://a.localhost:${PORT}/
    http://169.254.169.254/ http://100.64.0.1/ http://100.100.100.200/ http://198.18.0.1/
    http://[::ffff:127.0.0.1]:${PORT}/ http://[::ffff:a9fe:a9fe]/ http://[64:ff9b::7f00:1]:${PORT}/
    http://[2002:7f00:1::]:${PORT}/ http://2130706433:${PORT}/ http://0x7f000001:${PORT}/ http://0177.0.0.1:${PORT}/
    http://127.1:${PORT}/ file:///etc/passwd ftp://h/ gopher://h/ javascript:alert(1)
    http://[::1%25lo]:${PORT}/ http://[fe80::1%25eth0]/ http://127.0.0.1.:${PORT}/ http://[fd00:ec2::254]/
    http://metadata.google.internal/ http://metadata/ http://kubernetes.default.svc/ http://inward.example/
    http://mapped.example/ http://mixed.example/ http://xn--a/ http://xn--a.example/ http://１２７.0.0.1/ http://
    http://ⓛocalhost/ http://127.0.0.1%2f@93.184.216.34/ http://u:p@93.184.216.34/ http://93.184.216.34:22/ //127.0.0.1/
    http://93.184.216.34:0/
""".split()
NAMES = {
    "inward.example": ["127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
}
"""What the names among these targets resolve to. The targets of `attacks.json` are in test_programs."""


async def is_blocked(client: SafeClient, url: str) -> bool:
    """httpx itself refuses some texts as the target of a redirect."""
    try:
        await client.get(url)
    except EgressBlocked:
        return True
    except httpx.RemoteProtocolError as error:
        return "Invalid URL in location header" in str(error)
    return False


@both_loops
async def test_an_inward_url_is_blocked_without_a_connection(
    make_client: ClientFactory, canary: Server, attempts: Attempts
) -> None:
    client = make_client(NAMES)
    urls = [url.replace("${PORT}", str(canary.port)) for url in INWARD]
    assert [url for url in urls if not await is_blocked(client, url)] == []
    assert (attempts.dialled, attempts.looked_up) == ([], [])


@both_loops
async def test_a_redirect_to_an_inward_url_is_not_followed(
    make_client: ClientFactory, server: Server, canary: Server, attempts: Attempts
) -> None:
    client = make_client(NAMES, follow_redirects=True)
    urls = [url.replace("${PORT}", str(canary.port)) for url in INWARD if url != "http://"]  # httpx adds the host there
    targets = [f"/redirect?{urlencode({'to': url})}" for url in urls]
    redirects = [f"{server.origin}/redirect?{urlencode({'to': target})}" for target in targets]
    assert [url for url in redirects if not await is_blocked(client, url)] == []
    assert (len(server.requests), set(attempts.dialled), attempts.looked_up) == (2 * len(urls), {"127.0.0.2"}, [])


CONFUSING = st.sampled_from(
    "http https ftp : / // \\ @ # ? % %00 %2f [ ] [::1] 127.0.0.1 localhost inward.example . 。 ％ é xn-- xn--a a 1 0x7f 017 "
    "\r\n \t \0 :80 :443 :99999 :-1 user:pw@ ws".split(" ")
)


def test_no_url_connects_when_all_names_are_inward() -> None:
    async def resolver(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    client = SafeClient(resolver=resolver, verify=NO_CERTIFICATES)

    @given(st.lists(CONFUSING, max_size=12).map("".join) | st.text(max_size=30).map("http://{}".format))
    def none_connects(url: str) -> None:
        with pytest.raises(EgressBlocked):
            runner.run(client.get(url))

    with recorded() as attempts, asyncio.Runner() as runner:
        none_connects()
    assert attempts.dialled == []


# --- names


@both_loops
async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(
    make_client: ClientFactory, server: Server, canary: Server, attempts: Attempts
) -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"]]
    asked: list[str] = []

    async def resolver(host: str) -> Sequence[str]:
        asked.append(host)
        return answers.pop(0)

    client = make_client(resolver=resolver)
    response = await client.get(f"http://rebinding.example:{server.port}/close")
    assert (response.text, asked, attempts.dialled) == ("bye", ["rebinding.example"], ["127.0.0.2"])
    with pytest.raises(EgressBlocked, match="not public"):
        await client.get(f"http://rebinding.example:{server.port}/")
    assert (len(asked), attempts.dialled, attempts.looked_up) == (2, ["127.0.0.2"], [])


async def test_a_kept_connection_is_used_again_without_a_lookup(make_client: ClientFactory, server: Server) -> None:
    asked: list[str] = []

    async def resolver(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.2"]

    client = make_client(resolver=resolver)
    for _ in range(3):
        assert (await client.get(f"http://name.example:{server.port}/")).status_code == 200
    assert (asked, server.connections, len(server.requests)) == (["name.example"], 1, 3)


async def test_a_public_address_is_dialled_as_it_was_checked(make_client: ClientFactory, attempts: Attempts) -> None:
    client = make_client({"public.example": ["93.184.216.34", "2606:4700::1111"]})
    with pytest.raises(httpx.ConnectError):
        await client.get("http://public.example/")
    assert (attempts.dialled, attempts.looked_up) == (["93.184.216.34", "2606:4700::1111"], [])


@both_loops
async def test_the_checked_addresses_are_tried_in_order(
    make_client: ClientFactory, server: Server, attempts: Attempts
) -> None:
    client = make_client({"two.example": ["127.0.0.3", "127.0.0.2"]})
    response = await client.get(f"http://two.example:{server.port}/")
    assert response.json()["host"] == f"two.example:{server.port}"
    assert attempts.dialled == ["127.0.0.3", "127.0.0.2"]


async def test_no_more_than_four_addresses_are_tried(make_client: ClientFactory, attempts: Attempts) -> None:
    client = make_client({"many.example": [f"1.1.1.{last}" for last in range(9)]})
    with pytest.raises(httpx.ConnectError):
        await client.get("http://many.example/")
    assert attempts.dialled == [f"1.1.1.{last}" for last in range(4)]


async def test_an_answer_of_too_many_addresses_is_blocked(make_client: ClientFactory, attempts: Attempts) -> None:
    client = make_client({"many.example": ["1.1.1.1"] * 65})
    with pytest.raises(EgressBlocked, match="more than 64 addresses"):
        await client.get("http://many.example/")
    assert attempts.dialled == []


async def test_names_without_an_address_are_connect_errors(make_client: ClientFactory) -> None:
    for host in ("unknown.example", "empty.example"):
        with pytest.raises(httpx.ConnectError, match=host):
            await make_client({"empty.example": []}).get(f"http://{host}/")


async def test_the_error_does_not_say_what_was_looked_up_and_the_log_does(
    make_client: ClientFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(EgressBlocked) as caught:
        await make_client({"split.example": ["10.11.12.13"]}).get("http://split.example/path")
    expected = "egress to 'split.example' blocked: it resolves to an address that is not public"
    assert str(caught.value) == expected
    assert "10.11.12.13" in caplog.text


@both_loops
async def test_the_systems_resolver_is_the_default(server: Server) -> None:
    policy = EgressPolicy(hosts=["localhost"], ports=[server.port], exempt_networks=["127.0.0.0/8", "::1/128"])
    async with serve("127.0.0.1", server.port), SafeClient(policy, verify=NO_CERTIFICATES) as client:
        assert (await client.get(f"http://localhost:{server.port}/")).json()["host"] == f"localhost:{server.port}"
    async with SafeClient(EgressPolicy(hosts=["localhost"]), verify=NO_CERTIFICATES) as client:
        with pytest.raises(EgressBlocked, match="not public"):
            await client.get("http://localhost/")


@both_loops
async def test_a_lookup_has_the_connect_timeout(make_client: ClientFactory) -> None:
    async def resolver(host: str) -> Sequence[str]:
        await anyio.sleep_forever()
        return []

    with pytest.raises(httpx.ConnectTimeout):
        await make_client(resolver=resolver, timeout=0.05).get("http://slow.example/")


# --- the policy


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com/", True),
        ("https://API.example.com./", True),
        ("https://a.b.example.org/", True),
        ("https://93.184.216.34/", True),
        ("https://0x5db8d822/", True),
        ("https://[2606:4700::1111]/", True),
        ("http://api.example.com/", False),
        ("https://api.example.com:8443/", False),
        ("https://api.example.com.evil.com/", False),
        ("https://api.example.com@evil.com/", False),
        ("https://evil.com/?u=api.example.com", False),
        ("https://example.org/", False),
        ("https://badexample.org/", False),
        ("https://93.184.216.35/", False),
    ],
)
def test_hosts_schemes_and_ports_are_compared_after_the_url_is_read(url: str, *, allowed: bool) -> None:
    hosts = ["API.example.com", "*.example.org", "93.184.216.34", "[2606:4700::1111]"]
    policy = EgressPolicy(hosts=hosts, schemes=["https"], ports=[443])
    read = httpx.URL(url)
    assert (policy.objection(read.scheme, read.raw_host.decode(), read.port) is None) is allowed


async def test_the_error_names_the_host_and_what_to_edit(make_client: ClientFactory) -> None:
    with pytest.raises(EgressBlocked, match=r"^egress to 'evil.com' blocked: it is not in EgressPolicy.hosts$"):
        await make_client(hosts=["example.com"]).get("https://evil.com/")


async def test_an_empty_list_of_hosts_allows_nothing(make_client: ClientFactory, server: Server) -> None:
    with pytest.raises(EgressBlocked, match=r"EgressPolicy\.hosts"):
        await make_client(hosts=[]).get(server.origin)


async def test_a_listed_name_of_the_inside_is_checked_as_all_others(make_client: ClientFactory, server: Server) -> None:
    names = {"billing.internal": ["127.0.0.2"], "other.internal": ["127.0.0.1"]}
    client = make_client(names, hosts=["*.internal"])
    assert (await client.get(f"http://billing.internal:{server.port}/")).status_code == 200
    with pytest.raises(EgressBlocked, match="not public"):
        await client.get(f"http://other.internal:{server.port}/")


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": "example.com"},
        {"hosts": ["exa mple.com"]},
        {"hosts": ["*"]},
        {"hosts": ["https://example.com"]},
        {"hosts": ["*.*.com"]},
        {"schemes": ["ftp"]},
        {"exempt_networks": ["10.0.0.1/8"]},
        {"total_seconds": 0},
        {"total_seconds": float("inf")},
        {"max_response_bytes": 0},
        {"max_redirects": -1},
        {"max_bytes": 1},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_a_config_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EgressPolicy(**wrong)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("*.com", "covers names that anyone can register, below com;"),
        ("*.COM.", "below com;"),
        ("*.co.uk", "below co.uk;"),
        ("*.github.io", "below github.io;"),
        ("*.compute.amazonaws.com", "covers names that anyone can register, below"),
        ("*.amazonaws.com", "covers names that anyone can register, below"),
        ("*.ck", "below ck;"),
        ("*.kobe.jp", "below kobe.jp;"),
        ("*.unheardof", "below unheardof;"),
        ("*.рф", "below xn--p1ai;"),
        ("*.xn--p1ai", "below xn--p1ai;"),
        ("*", "a * must be the whole first label"),
        ("*.*", "a * must be the whole first label"),
        ("a*.example.com", "a * must be the whole first label"),
        ("*example.com", "a * must be the whole first label"),
        ("example.*", "a * must be the whole first label"),
        ("10.0.0.*", "a * must be the whole first label"),
        ("*.", "is neither a host nor"),
        ("", "is neither a host nor"),
        (".example.com", "is neither a host nor"),
        ("*..example.com", "is neither a host nor"),
        ("api..example.com", "is neither a host nor"),
        ("exa mple.com", "is neither a host nor"),
        ("a\u2024b.\u200b", "is neither a host nor"),
        ("*.10.0.0.1", "has a * before an address"),
        ("*.1.2.3", "has a * before an address"),
        ("*.0x7f000001", "has a * before an address"),
        ("*.[::1]", "has a * before an address"),
        ("https://example.com", "must be a host only"),
        ("https://*.example.com", "must be a host only"),
        ("example.com:443", "must be a host only"),
        ("[::1]:443", "must be a host only"),
        ("example.com/path", "must be a host only"),
        ("10.0.0.0/8", "must be a host only"),
        (7, "is not a name"),
    ],
)
def test_a_pattern_that_is_none_or_covers_too_much_is_refused_when_the_policy_is_made(pattern: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        EgressPolicy(hosts=[pattern])
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        ("*.example.com", "https://api.example.com/"),
        ("*.EXAMPLE.com.", "https://a.b.example.com/"),
        ("*.example.co.uk", "https://www.example.co.uk/"),
        ("*.octocat.github.io", "https://x.octocat.github.io/"),
        ("*.www.ck", "https://x.www.ck/"),
        ("*.city.kobe.jp", "https://x.city.kobe.jp/"),
        ("bücher.example.org", "https://bücher.example.org/"),
        ("*.BÜCHER.example.org", "https://a.xn--bcher-kva.example.org/"),
        ("com", "https://com/"),
        ("github.io", "https://github.io/"),
        ("*.svc", "https://billing.svc/"),
        ("*.corp.internal", "https://billing.corp.internal/"),
        ("2606:4700::1111", "https://[2606:4700:0::1111]/"),
    ],
)
def test_patterns_are_compared_as_urls_are_read(pattern: str, asked: str) -> None:
    url = httpx.URL(asked)
    assert EgressPolicy(hosts=[pattern]).objection(url.scheme, url.raw_host.decode(), url.port) is None


# --- the client


@pytest.mark.parametrize(
    "option", "proxy mounts transport trust_env http1 http2 limits max_redirects cert uds app network_backend".split()
)
def test_what_would_lead_around_the_guard_is_a_config_error(option: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(ConfigError, match=f"no parameter '{option}'"):
        SafeClient(**options)


async def test_the_environment_has_no_say(
    make_client: ClientFactory,
    server: Server,
    canary: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "netrc").write_text("machine name.example login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, canary.origin)
        monkeypatch.setenv(name.lower(), canary.origin)
    client = make_client({"name.example": ["127.0.0.2"]}, verify=True)
    assert not client.trust_env
    received = (await client.get(f"http://name.example:{server.port}/")).json()
    assert received["host"] == f"name.example:{server.port}"
    assert "authorization" not in received


@pytest.mark.parametrize("header", [{"Host": "other.example"}, {"Host": ""}], ids=str)
async def test_a_host_header_of_another_host_is_blocked(
    header: dict[str, str], make_client: ClientFactory, server: Server
) -> None:
    with pytest.raises(EgressBlocked, match="Host header"):
        await make_client().get(server.origin, headers=header)
    assert server.connections == 0


async def test_the_name_that_tls_checks_cannot_be_changed(make_client: ClientFactory, server: Server) -> None:
    """`sni_hostname` is an extension of httpcore that would lead to another host behind the same address."""
    extensions = {"sni_hostname": "other.example", "target": b"http://other.example/"}
    received = (await make_client().get(f"{server.origin}/a", extensions=extensions)).json()
    assert received["target"] == "/a"


SECRETS = {"authorization", "x-api-key", "proxy-authorization", "cookie", "x-made-up", "referer"}


def redirected(*urls: str) -> str:
    """A URL of the first server that leads through the others to the last one."""
    *before, end = urls
    for url in reversed(before):
        end = f"{url}/redirect?{urlencode({'to': end})}"
    return end


@both_loops
@pytest.mark.parametrize("by_hand", [False, True], ids=["followed", "by hand"])
async def test_nothing_that_may_be_a_secret_follows_to_another_origin_or_back(
    make_client: ClientFactory, server: Server, *, by_hand: bool
) -> None:
    headers = dict.fromkeys(SECRETS - {"authorization", "cookie"}, "secret")
    plain = {
        "accept": "text/x",
        "accept-language": "no",
        "user-agent": "me",
        "range": "bytes=0-9",
        "content-type": "a/b",
    }
    options: dict[str, Any] = {"headers": headers, "auth": ("me", "secret"), "cookies": {"session": "secret"}}
    async with serve("127.0.0.3", server.port) as other:
        client = make_client(follow_redirects=not by_hand, **options)
        there = redirected(server.origin, server.origin, other.origin, f"{server.origin}/end")
        response = await client.get(there, headers=plain)
        while response.next_request is not None:
            response = await client.send(response.next_request)
    [first, within, back] = [received for _, received in server.requests]
    [away] = [received for _, received in other.requests]
    assert SECRETS - {*first} == SECRETS - {*within} == set()
    for received in (away, back):
        assert {name: received[name] for name in plain} == plain
        assert {*received} <= {*plain, "host", "accept-encoding"}
    assert response.json()["target"] == "/end"


async def test_a_body_is_framed_as_before_when_it_goes_to_another_origin(
    make_client: ClientFactory, server: Server
) -> None:
    async with serve("127.0.0.3", server.port) as other:
        client = make_client(follow_redirects=True)
        url = f"{server.origin}/moved?{urlencode({'to': f'{other.origin}/end'})}"
        response = await client.post(url, json={"a": 1}, headers={"X-Api-Key": "secret"})
    assert response.json()["content-length"] == str(len('{"a":1}'))
    assert response.json()["content-type"] == "application/json"
    assert "x-api-key" not in response.json()


@pytest.mark.parametrize(
    ("asked", "url", "left"),
    [
        ("http://a.example/", "http://A.example:80/b", False),
        ("http://a.example/", "https://a.example/", False),
        ("https://a.example/", "http://a.example/", True),
        ("http://a.example/", "https://a.example:8443/", True),
        ("http://a.example:8080/", "https://a.example:8080/", True),
        ("https://a.example/", "https://a.example:8443/", True),
        ("https://a.example/", "https://b.a.example/", True),
        ("https://a.example/", "https://a.example./", True),
    ],
)
def test_an_origin_is_scheme_host_and_port(asked: str, url: str, *, left: bool) -> None:
    assert _has_left(httpx.URL(asked), httpx.URL(url)) is left


async def test_redirects_are_followed_only_if_asked_for(make_client: ClientFactory, server: Server) -> None:
    response = await make_client().get(f"{server.origin}/redirect?to=/end")
    assert (response.status_code, len(server.requests)) == (302, 1)


@pytest.mark.parametrize("cookies", [None, {"mine": "1"}], ids=str)
async def test_cookies_are_kept_only_if_some_were_given(
    cookies: dict[str, str] | None, make_client: ClientFactory, server: Server
) -> None:
    client = make_client({"name.example": ["127.0.0.2"]}, **({} if cookies is None else {"cookies": cookies}))
    await client.get(f"http://name.example:{server.port}/cookie")
    received = (await client.get(f"http://name.example:{server.port}/")).json().get("cookie", "")
    assert set(http.cookies.SimpleCookie(received)) == (set() if cookies is None else {"mine", "a"})


@both_loops
async def test_a_response_that_switches_protocols_is_blocked(make_client: ClientFactory, server: Server) -> None:
    upgrade = {"Connection": "upgrade", "Upgrade": "websocket"}
    with pytest.raises(EgressBlocked, match="protocol"):
        await make_client().get(f"{server.origin}/switch", headers=upgrade)
    await server.left.wait()


async def test_a_closed_port_is_an_error_of_httpx(make_client: ClientFactory, server: Server) -> None:
    with pytest.raises(httpx.ConnectError):
        await make_client().get(f"http://127.0.0.3:{server.port}/")


def test_without_httpx_the_extra_is_named() -> None:
    program = "import sys; sys.modules['httpx'] = None; import corral.egress"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingExtra: corral.egress needs the module httpx: pip install 'corral[egress]'" in done.stderr
