"""Attempts of commands to get more out of their proxy than the network allows."""

from __future__ import annotations

import json
import sys

import pytest

from corral.shells import JailedShell, Shell
from tests.shells.test_network import SECRET, said, sites, world

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

# Sends each of the texts in a file over a connection of its own, and prints what comes back as JSON.
TALK = r"""
import errno, json, socket, sys
answers = []
for text in json.load(open("texts.json")):
    with socket.create_connection(("127.0.0.1", 3128), 10) as connection:
        try:
            connection.sendall(text.encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:  # the proxy may refuse a text before its end
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        answers.append(answer.decode("latin-1"))
print(json.dumps(answers))
"""


async def talk(shell: Shell, *texts: str) -> list[str]:
    """Answers of the proxy to texts, each over a connection of its own."""
    await shell.files.write_text("talk.py", TALK)
    await shell.files.write_text("texts.json", json.dumps(texts))
    done = await shell.run("/usr/bin/python3 talk.py", check=True, output_bytes=1_000_000)
    return json.loads(done.stdout)


def status(answer: str) -> int:
    return int(answer.split()[1]) if answer else 0


async def test_no_spelling_of_an_address_of_the_inside_is_reached() -> None:
    async with world() as found:
        port = found.inside.port
        hosts = """
            127.0.0.1 127.1 2130706433 0x7f000001 0177.0.0.1 0x7f.1 localhost localhost. LOCALHOST [::1] [::ffff:127.0.0.1]
            [::ffff:7f00:1] [::] 0.0.0.0 0 [64:ff9b::7f00:1] [2002:7f00:1::] 169.254.169.254 [fe80::1%25lo] 10.0.0.1
            metadata.google.internal inside.example.com api.example.com@127.0.0.1 127.0.0.1#api.example.com
            api.example.com.127.0.0.1 127%2e0%2e0%2e1 [::1%lo] api.example.com:80@localhost 127.0.0.1\\api.example.com
        """.split()
        texts = [
            f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n" for host in hosts
        ]
        texts += [f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n" for host in hosts]
        answers = await talk(found.shell, *texts)
        wrong = [
            (text, answer[:80])
            for text, answer in zip(texts, answers, strict=True)
            # A tunnel is a place within the proxy: nothing is asked of the host before a request comes through it.
            if status(answer) not in (400, 403) and not (text.startswith("CONNECT inside") and status(answer) == 200)
        ]
        assert wrong == []
        through = f"CONNECT inside.example.com:{port} HTTP/1.1\r\nHost: x\r\n\r\n"
        [answer] = await talk(found.shell, through + "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer == "HTTP/1.1 200 Connection established\r\n\r\n"
        shown = await said(found.shell, f"curl -sS -p http://inside.example.com:{port}/")
        assert "an address that is not public" in shown
        assert (found.safe.requests, found.plain.requests) == ([], [])


async def test_other_ports_schemes_and_methods_are_refused() -> None:
    async with world() as found:
        host, port = "api.example.com", found.safe.port
        answers = await talk(
            found.shell,
            f"CONNECT {host}:22 HTTP/1.1\r\nHost: {host}:22\r\n\r\n",
            f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"CONNECT {host}:99999 HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"CONNECT {host}:{port}/x HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"CONNECT user@{host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n",
            f"GET https://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n",
            f"GET ftp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
            "GET /etc/passwd HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n",
            f"TRACE {found.plain_url}/ HTTP/1.1\r\nHost: plain.example.com:{found.plain.port}\r\n\r\n",
            f"GET http://me:pw@plain.example.com:{found.plain.port}/ HTTP/1.1\r\n"
            f"Host: plain.example.com:{found.plain.port}\r\n\r\n",
            f"GET {found.plain_url}/ HTTP/1.1\r\nHost: plain.example.com:{found.plain.port}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        assert [status(each) for each in answers] == [403, 403, 400, 400, 400, 400, 403, 400, 400, 400, 403, 403, 400]
        assert "malformed WebSocket request" in answers[-1]
        assert (found.safe.requests, found.plain.requests) == ([], [])


async def test_one_request_is_never_taken_for_two_or_for_another_hosts() -> None:
    async with world() as found:
        name = f"plain.example.com:{found.plain.port}"
        start = f"POST http://{name}/mirror HTTP/1.1\r\n"
        inner = f"GET http://{name}/smuggled HTTP/1.1\r\nHost: {name}\r\n\r\n"
        answers = await talk(
            found.shell,
            f"{start}Host: {name}\r\nContent-Length: {len(inner) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
            f"{start}Host: {name}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            f"{start}Host: {name}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            f"{start}Host: {name}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            f"{start}Host: {name}\r\nContent-Length: +5\r\n\r\nabcde",
            f"{start}Host: {name}\r\nHost: evil.example.com\r\n\r\n",
            f"{start}Host: api.example.com:{found.safe.port}\r\nContent-Length: 0\r\n\r\n",
            f"{start}Host: {name}\r\nX: a\rGET / HTTP/1.1\r\n\r\n",
            f"{start}Host: {name}\r\n X-Folded: {SECRET}\r\nX\r\n\r\n",
            f"{start}Host: {name}\r\nX: {'a' * 200_000}\r\n\r\n",
            f"{start}Host: {name}\r\n" + "X: a\r\n" * 20_000 + "\r\n",
            f"GET {'/' * 200_000} HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\0" * 100,
        )
        assert {*map(status, answers)} <= {0, 400, 413, 431, 501}, [each[:100] for each in answers]
        assert found.plain.requests == []
        # Within a tunnel its own host counts, whatever the Host header says, and a body is what its length says.
        tls = f"curl -sS -w ' %{{http_code}}' {found.url}/mirror"
        assert (await said(found.shell, f"{tls} -H 'Host: plain.example.com'")).endswith("request's host\n 400")
        body = f"0\\r\\n\\r\\nGET /smuggled HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n"
        assert (await said(found.shell, f"printf '{body}' | {tls} --data-binary @-")).endswith(" 200")
        assert [path for path, _ in found.safe.requests] == ["/mirror"]


async def test_silent_slow_and_many_connections_hold_up_nobody_but_their_own_shell() -> None:
    program = r"""
import os, socket, sys
held = []
for _ in range(4):  # descriptors of one process are bounded
    if os.fork() == 0:
        break
for _ in range(200):
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", 3128))
    try:
        connection.send(b"GET http://a")
    except OSError:
        pass
    held.append(connection)
print(len(held), flush=True)
sys.stdin.read()
os._exit(0)
"""
    async with (
        sites() as (network, _, plain, _),
        JailedShell(network=network) as bad,
        JailedShell(network=network) as good,
    ):
        await bad.files.write_text("many.py", program)
        url = f"http://plain.example.com:{plain.port}/status/200"
        async with await bad.spawn("/usr/bin/python3 many.py", stdin=True) as process:
            said_so = b""
            async for piece in process.stdout:
                said_so += piece
                if said_so.count(b"200\n") == 5:
                    break
            assert await said(good, f"curl -sS {url}") == "200"
            held = await bad.run(f"curl -sS -m 1 {url}")
            assert held.exit_code == 28  # all places are taken
        assert await said(bad, f"curl -sS {url}") == "200"


async def test_a_head_that_comes_too_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.shells.proxy.proxy._IDLE_SECONDS", 0.3)
    program = r"""
import select, socket
connection = socket.create_connection(("127.0.0.1", 3128))
rest = iter(b"GET http://a/ HTTP/1.1\r\nX: ")
try:
    while not select.select([connection], [], [], 0.02)[0]:
        connection.send(bytes([next(rest, ord("x"))]))
    print(connection.recv(1000))
except ConnectionError:  # a byte was on its way
    print(b"")
"""
    async with world() as found:
        await found.shell.files.write_text("slow.py", program)
        assert await said(found.shell, "/usr/bin/python3 slow.py") == "b''\n"


async def test_nothing_is_reached_beside_the_proxy() -> None:
    async with world() as found:
        direct = "curl -sS -m 60 --noproxy '*'"
        for url in (
            f"http://127.0.0.1:{found.inside.port}/",
            f"http://127.0.0.2:{found.plain.port}/",
            "http://169.254.169.254/",
        ):
            assert "curl: (7)" in await said(found.shell, f"{direct} {url}")
        assert await said(found.shell, "cat /proc/net/route | wc -l; ls /sys/class/net 2>&1") != ""
        interfaces = await said(found.shell, "tail -n +3 /proc/net/dev | cut -d: -f1")
        assert interfaces.split() == ["lo"]
        # The port is taken for as long as the shell lives, and its namespace can be changed by nobody in it.
        taken = "import socket; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', 3128)); s.listen()"
        assert "Address already in use" in await said(found.shell, f'/usr/bin/python3 -c "{taken}"')
