"""Network of commands: real tools through the proxy of their shell, and attempts to get around it."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from corral import Corral
from corral.audit import AuditEvent, CallbackSink
from corral.egress import Header, Network
from corral.sandboxes import DenoSandbox
from corral.shells import JailedShell, Shell, ShellLimits
from corral.shells.proxy.proxy import Authority
from tests.egress.site import Site, site
from tests.processes import descendants
from tests.until import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

DENIED = "egress to 'evil.example.com' blocked: it is not in Network(allow=[...])"
SECRET = "s3cret-token"
KEY = Header("Authorization", f"Bearer {SECRET}")


class World(NamedTuple):
    """A shell, the sites that it may reach, with TLS and without, and one of the inside that it must not."""

    shell: Shell
    safe: Site
    plain: Site
    inside: Site

    @property
    def url(self) -> str:
        return f"https://api.example.com:{self.safe.port}"

    @property
    def plain_url(self) -> str:
        return f"http://plain.example.com:{self.plain.port}"


async def resolver(host: str) -> Sequence[str]:
    return ["127.0.0.1" if host.startswith("inside") else "127.0.0.2"]


@asynccontextmanager
async def sites(files: Path | None = None, **options: Any) -> AsyncGenerator[tuple[Network, Site, Site, Site]]:
    authority = Authority()
    tls = await authority.context("api.example.com")
    async with (
        site("127.0.0.2", tls=tls, files=files) as safe,
        site("127.0.0.2") as plain,
        site("127.0.0.1") as inside,
    ):
        network = Network(
            allow=[
                f"https://api.example.com:{safe.port}",
                f"http://plain.example.com:{plain.port}",
                f"http://inside.example.com:{inside.port}",
            ],
            credentials={"api.example.com": KEY},
            exempt_networks=["127.0.0.2/32"],
            resolver=resolver,
            verify=ssl.create_default_context(cadata=authority.certificate.decode()),
            **options,
        )
        yield network, safe, plain, inside


@asynccontextmanager
async def world(files: Path | None = None, **options: Any) -> AsyncGenerator[World]:
    async with sites(files, **options) as (network, *found), JailedShell(network=network) as shell:
        yield World(shell, *found)
        assert found[-1].requests == []


async def said(shell: Shell, command: str) -> str:
    """Both outputs of a command."""
    done = await shell.run(command, timeout_seconds=LIMIT_SECONDS)
    return done.stdout + done.stderr


async def test_curl_reaches_what_is_allowed_over_tls_and_hears_of_what_is_not() -> None:
    async with world() as found:
        assert found.shell.capabilities.network == "allowed"
        assert f"{found.url}" in found.shell.description
        done = await found.shell.run(f"curl -sS -w '%{{http_code}}' {found.url}/mirror -d hello", check=True)
        assert done.stdout == "hello200"
        assert "200" in await said(found.shell, f"curl -sSI {found.url}/binary?size=100 | head -1")
        bare = "env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS --cacert /etc/ssl/certs/ca-certificates.crt"
        assert await said(found.shell, f"{bare} {found.url}/status/200") == "200"
        denied = await found.shell.run("curl -sS -w '%{http_code}' http://evil.example.com/")
        assert denied.stdout == f"{DENIED}\n403"
        assert "CONNECT tunnel failed, response 403" in await said(found.shell, "curl -sS https://evil.example.com/")


async def test_a_credential_is_set_for_its_host_and_masked_in_what_comes_back() -> None:
    async with world() as found:
        ask = "curl -sS -i -H 'Authorization: Bearer mine'"
        shown = await said(found.shell, f"{ask} {found.url}/say-headers")
        assert "<Bearer [redacted]> [redacted]" in shown.replace("<[redacted]>", "<Bearer [redacted]>")
        assert SECRET not in shown
        assert found.safe.requests[-1][1]["authorization"] == KEY.value
        assert "Bearer mine" in await said(found.shell, f"{ask} {found.plain_url}/say-headers")
        assert SECRET not in await said(found.shell, "env; cat /etc/session-ca.pem; cat /proc/*/environ")


async def test_git_clones_over_https(tmp_path: Path) -> None:
    work, bare = tmp_path / "work", tmp_path / "site" / "repo.git"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (
        ["init", "-q", str(work)],
        ["-C", str(work), "commit", "-q", "--allow-empty", "-m", "first words"],
        ["clone", "-q", "--bare", str(work), str(bare)],
        ["-C", str(bare), "update-server-info"],
    ):
        subprocess.run([*git, *command], check=True, capture_output=True)
    async with world(tmp_path / "site") as found:
        done = await found.shell.run(f"git clone -q {found.url}/repo.git here && git -C here log --format=%s")
        assert (done.stdout, done.stderr) == ("first words\n", "")


@pytest.mark.matrix("curl and git pass bodies in the gate; here Python does, and large ones")
async def test_python_and_large_bodies_in_both_directions() -> None:
    program = """
import hashlib, sys, urllib.request as u
data = bytes(range(256)) * 12_000
back = u.urlopen(u.Request(sys.argv[1] + "/mirror", data=data)).read()
print(back == data, len(u.urlopen(sys.argv[1] + "/binary?size=3000000").read()))
print(u.urlopen(sys.argv[1] + "/gzip").read() == b"x" * 1000)
try:
    u.urlopen("https://evil.example.com/")
except u.URLError as error:
    print(error)
"""
    async with world(request_bytes=4_000_000) as found:
        await found.shell.files.write_text("try.py", program)
        assert (await said(found.shell, f"/usr/bin/python3 try.py {found.url}")).splitlines() == [
            "True 3000000",
            "True",
            f"<urlopen error Tunnel connection failed: 403 {DENIED}>",
        ]


async def test_requests_follow_one_another_on_a_connection_and_bodies_without_a_size_work() -> None:
    async with world() as found:
        urls = " ".join(f"{found.url}/status/{code}" for code in (200, 404, 204, 500))
        shown = await said(found.shell, f"curl -sS -w ' %{{num_connects}}\\n' {urls}")
        assert shown.splitlines() == ["200 1", "404 0", " 0", "500 0"]
        sent = await said(found.shell, f"seq 1 1000 | curl -sS -T - -X POST {found.url}/mirror | wc -l")
        assert sent == "1000\n"


async def test_each_request_and_each_denial_is_an_audit_event_of_the_session(warm_deno: DenoSandbox) -> None:
    events: list[AuditEvent] = []
    async with (
        sites() as (network, safe, _, _),
        Corral(sandbox=warm_deno, audit=CallbackSink(events.extend), check=False) as corral,
        corral.session(network=network, shell=ShellLimits()) as session,
        corral.session(shell=ShellLimits()) as other,
    ):
        await session.shell.run(f"curl -sS https://api.example.com:{safe.port}/x?secret=1", check=True)
        await session.shell.run("curl -sS https://evil.example.com/")
        assert other.shell.capabilities.network == "none"
        assert "(7)" in await said(other.shell, "curl -sS -x http://127.0.0.1:3128 http://a.example.com/")
    events = [each for each in events if each.kind == "request"]
    assert [(each.outcome, each.protocol, each.execution_id) for each in events] == [
        ("succeeded", "proxy", None),
        ("denied", "proxy", None),
    ]
    assert [(each.arguments or {})["host"] for each in events] == ["api.example.com", "evil.example.com"]  # type: ignore[index]


async def test_budgets_hold_for_all_commands_of_a_shell_together() -> None:
    async with world(requests=3, request_bytes=1000) as found:
        assert "403" in await said(found.shell, f"head -c 2000 /dev/zero | curl -sSv -T - {found.plain_url}/mirror")
        one = f"curl -s -o /dev/null -w '%{{http_code}} ' {found.plain_url}/x"
        codes = [await said(found.shell, one) for _ in range(3)]
        assert codes == ["200 ", "200 ", "403 "]


async def test_refused_requests_of_commands_fill_no_audit_log(warm_deno: DenoSandbox) -> None:
    """As many have an event as there may be requests, those that were sent always, and one has the number of the rest."""
    events: list[AuditEvent] = []
    async with (
        sites(requests=5) as (network, _, plain, _),
        Corral(sandbox=warm_deno, audit=CallbackSink(events.extend), check=False) as corral,
        corral.session(network=network, shell=ShellLimits()) as session,
    ):
        many = "for i in $(seq 1 20); do echo url=http://evil$i.example.com/; done | curl -s -K -"
        await session.shell.run(f"{many}; curl -s -X 'GET@' http://plain.example.com/; {many}")
        url = f"http://plain.example.com:{plain.port}/status/200"
        sent = await session.shell.run(f"for i in 1 2 3 4 5 6 7; do curl -s -w '\\n' {url}; done")
        assert [line[:3] for line in sent.stdout.split()[:5]] == ["200"] * 5
        assert sent.stdout.count("Network(requests=5)") == 2
    seen = [each for each in events if each.kind == "request"]
    assert [each.outcome for each in seen] == ["denied"] * 5 + ["succeeded"] * 5 + ["denied"]
    assert seen[-1].reason == "37 more requests ended before they were sent"


async def test_the_proxy_ends_with_the_shell() -> None:
    def descriptors() -> list[str]:
        return sorted(
            str(each.readlink()).split(":")[0] for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
        )

    async with sites() as (network, safe, _, _):
        descendants()  # which waits for what sandboxes of earlier tests start
        before: list[str] = []
        for _ in range(2):
            before = before or descriptors()
            safe.go = anyio.Event()
            safe.left.clear()
            async with JailedShell(network=network) as shell:
                command = f"curl -sS --no-buffer https://api.example.com:{safe.port}/ticks"
                async with await shell.spawn(command) as process:
                    assert await anext(aiter(process.stdout)) == b"data: 0\n\n"
            safe.go.set()
            await safe.wait_until_left("/ticks")
    assert len(descriptors()) <= len(before)
