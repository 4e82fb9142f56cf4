"""WebSockets of commands: real clients through the proxy of their shell, real servers on the loopback."""

from __future__ import annotations

import io
import json
import ssl
import sys
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import websockets
from websockets.asyncio.server import serve

from corral import Corral
from corral.audit import AuditEvent, CallbackSink
from corral.egress import Header, Network
from corral.sandboxes import DenoSandbox
from corral.shells import Shell, ShellLimits
from corral.shells.proxy.proxy import Authority
from tests.egress.test_fetch import SECRET
from tests.egress.test_sockets import Speaker, choose
from tests.shells.test_network import resolver, said
from tests.shells.test_network_attacks import status, talk

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

CLIENT = r"""
import asyncio, json, sys
sys.path.insert(0, "/workspace/websockets.zip")
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

async def one(url, sent):
    got = []
    try:
        async with connect(url, subprotocols=["v2"], compression="deflate", max_size=None) as socket:
            got.append(socket.subprotocol)
            for each in sent:
                await socket.send(bytes(each) if isinstance(each, list) else each)
            while True:
                data = await socket.recv()
                got.append([*data[:5]] if isinstance(data, bytes) else data[:40])
                if len(got) == (len(sent) or 1) + 1 and "/echo" in url or "/parts" in url:
                    await socket.close(4001, "done")
    except ConnectionClosed as error:
        got.append([error.rcvd and error.rcvd.code, error.rcvd and error.rcvd.reason])
    except (WebSocketException, OSError) as error:
        got.append(f"{type(error).__name__}: {error}")
    return got

async def main():
    print(json.dumps(await asyncio.gather(*(one(*each) for each in json.load(sys.stdin)))))

asyncio.run(main())
"""
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = "Sec-WebSocket-Version: 13\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


class World(NamedTuple):
    """A shell, and servers of WebSockets that it may reach, without TLS and with it."""

    shell: Shell
    plain: Speaker
    safe: Speaker
    events: list[AuditEvent]

    async def ask(self, *pairs: tuple[str, list[Any]]) -> list[list[Any]]:
        """Answers that a client in the jail had at these URLs, to these messages."""
        done = await self.shell.run("/usr/bin/python3 client.py", input=json.dumps(pairs), output_bytes=1_000_000)
        assert done.exit_code == 0, done
        return json.loads(done.stdout)

    def url(self, path: str) -> str:
        return f"ws://plain.example.com:{self.plain.port}{path}"

    def safe_url(self, path: str) -> str:
        return f"wss://api.example.com:{self.safe.port}{path}"


@cache
def library() -> bytes:
    """The client's library, which Python imports from one file."""
    data, folder = io.BytesIO(), Path(websockets.__file__).parent
    with zipfile.ZipFile(data, "w") as archive:
        for file in folder.rglob("*.py"):
            archive.write(file, f"websockets/{file.relative_to(folder)}")
    return data.getvalue()


@asynccontextmanager
async def world(sandbox: DenoSandbox, **options: Any) -> AsyncGenerator[World]:
    authority = Authority()
    tls = await authority.context("api.example.com")
    events: list[AuditEvent] = []
    plain, safe = Speaker("127.0.0.2", 0), Speaker("127.0.0.2", 0)
    async with (
        serve(plain.speak, plain.host, 0, select_subprotocol=choose) as plain_server,
        serve(safe.speak, safe.host, 0, select_subprotocol=choose, ssl=tls) as safe_server,
        Corral(sandbox=sandbox, audit=CallbackSink(events.extend), check=False) as corral,
    ):
        for speaker, server in ((plain, plain_server), (safe, safe_server)):
            speaker.port = next(iter(server.sockets)).getsockname()[1]
        network = Network(
            allow=[
                f"http://plain.example.com:{plain.port}",
                f"https://api.example.com:{safe.port}",
                f"http://inside.example.com:{plain.port}",
            ],
            credentials={"api.example.com": Header("Authorization", SECRET)},
            exempt_networks=["127.0.0.2/32"],
            resolver=resolver,
            verify=ssl.create_default_context(cadata=authority.certificate.decode()),
            **options,
        )
        async with corral.session(network=network, shell=ShellLimits()) as session:
            await session.files.write_bytes("websockets.zip", library())
            await session.files.write_text("client.py", CLIENT)
            yield World(session.shell, plain, safe, events)


async def test_messages_pass_in_both_directions_with_tls_and_without(warm_deno: DenoSandbox) -> None:
    async with world(warm_deno) as found:
        messages = ["héllo", [0, 1, 255], "", "x" * 300_000]
        echoed = ["v2", "héllo", [0, 1, 255], "", "x" * 40]
        answers = await found.ask(
            (found.url("/echo"), messages),
            (found.safe_url("/echo"), messages),
            (found.url("/parts"), []),
            (found.url("/close"), []),
        )
        assert answers[:2] == [[*echoed, [4001, "done"]]] * 2
        assert answers[2][:2] == ["v2", "énd"]
        assert answers[3] == ["v2", [4321, "enough"]]
        [told] = await found.ask((found.safe_url("/secret"), []))
        assert told == ["v2", "<[redacted]> [redacted]", [*b"[reda"], [4000, "[redacted]"]]
        headers = found.safe.headers[-1]
        assert headers["authorization"] == SECRET
        assert (4001, "done") in found.safe.closed
        seen: list[Any] = [each for each in found.events if each.kind == "request"]
        assert {(each.outcome, each.protocol, each.arguments["status"]) for each in seen} == {
            ("succeeded", "proxy", 101)
        }
        assert [each.arguments["path"] for each in seen].count("/echo") == 2
        assert SECRET not in repr(found.events)


@pytest.mark.matrix("budgets of a shell hold for requests in the gate; here for messages of WebSockets")
async def test_budgets_of_websockets_are_those_of_the_shell(warm_deno: DenoSandbox) -> None:
    async with world(warm_deno, response_bytes=2_000_000, websockets=2) as found:
        [big, endless] = await found.ask((found.url("/big"), []), (found.url("/endless"), []))
        assert big[1] == [1008, "egress to 'plain.example.com' blocked: a message is larger than 1000000 bytes"]
        assert endless[-1] == [1008, "the program has received more than Network(response_bytes=2000000)"]
        assert 50 < len(endless) < 200
    async with world(warm_deno, seconds=0.5, websockets=2) as found:
        silent: tuple[str, list[Any]] = (found.url("/silent"), [])
        three = await found.ask(silent, silent, silent)
        assert sum("HTTP 403" in str(each) for each in three) == 1
        assert sum("silent for longer than Network(seconds=0.5)" in str(each) for each in three) == 2
    async with world(warm_deno, request_bytes=1_500_000) as found:
        [large] = await found.ask((found.url("/echo"), ["x" * 1_000_001]))
        assert large[-1] == [1009, "a message is larger than 1000000 bytes"]
        [many] = await found.ask((found.url("/echo"), ["x" * 900_000, "x" * 700_000]))
        assert many[-1] == [1008, "the program has sent more than Network(request_bytes=1500000)"]


async def test_an_upgrade_that_is_none_or_leads_elsewhere_is_refused(warm_deno: DenoSandbox) -> None:
    async with world(warm_deno) as found:
        host = f"plain.example.com:{found.plain.port}"
        start = f"GET http://{host}/echo HTTP/1.1\r\nHost: {host}\r\n"
        whole = f"{UPGRADE}{VERSION}{KEY}"
        inside = f"inside.example.com:{found.plain.port}"
        answers = await talk(
            found.shell,
            f"{start}{UPGRADE}{VERSION}\r\n",
            f"{start}{UPGRADE}{KEY}\r\n",
            f"{start}{UPGRADE}Sec-WebSocket-Version: 8\r\n{KEY}\r\n",
            f"{start}Upgrade: websocket\r\n{VERSION}{KEY}\r\n",
            f"{start.replace('GET', 'POST')}{whole}\r\n",
            f"{start}{whole}Content-Length: 3\r\n\r\nabc",
            f"{start}{whole}\r\n\x81\x85\0\0\0\0smugg",
            f"GET http://{host}/echo HTTP/1.1\r\nHost: evil.example.com\r\n{whole}\r\n",
            f"GET http://evil.example.com/echo HTTP/1.1\r\nHost: evil.example.com\r\n{whole}\r\n",
            f"GET http://{inside}/echo HTTP/1.1\r\nHost: {inside}\r\n{whole}\r\n",
            f"GET ws://{host}/echo HTTP/1.1\r\nHost: {host}\r\n{whole}\r\n",
        )
        assert [status(each) for each in answers] == [400] * 8 + [403, 403, 400], [each[:200] for each in answers]
        assert found.plain.headers == []
        other = await talk(found.shell, f"{start}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert status(other[0]) == 426, other  # asked for as a request like others: the server speaks nothing else
        # What is no frame of a client ends it; no frame of another kind is passed on.
        for frames in ("\x81\x05smugg", "\xf1\x80\0\0\0\0", "\x83\x80\0\0\0\0", "\x88\xfe\x01\0\0\0\0\0"):
            await found.shell.files.write_text("frames", frames, encoding="latin-1")
            program = f"""
import socket
s = socket.create_connection(("127.0.0.1", 3128), 10)
s.sendall({f"{start}{whole}" + chr(13) + chr(10)!r}.encode())
assert b" 101 " in s.recv(10000)
s.sendall(open("frames", "rb").read())
print(s.recv(1000)[2:4])
"""
            await found.shell.files.write_text("hostile.py", program)
            assert await said(found.shell, "/usr/bin/python3 hostile.py") == "b'\\x03\\xea'\n"  # 1002
