"""The HTTP guest for Python, in processes that have nothing but its file, against a small real bridge.

The same as for TypeScript; what a program cannot see there and can here, event loops, threads and TLS, is at the end.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import ast
import asyncio
import datetime
import ipaddress
import json
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.responses import JSONResponse, Response

from corral.guest.python import client
from corral.guest.python.calls import CallLimits
from corral.guest.python.transports import http
from corral.guest.runtime import http_runtime
from tests.guest.serving import FROM_GUEST, FROM_HOST, TAGGED, Bridge, Server, token
from tests.until import LIMIT_SECONDS

PRELUDE = """
import asyncio, json, math, sys, time, urllib.request
sys.path.insert(0, {folder!r})
from corral_tools import ArrayBuffer, connect, connect_from_environment

def show(value):
    print(json.dumps(value), flush=True)

async def caught(call):
    try:
        return ["no error", await call]
    except Exception as error:
        return [type(error).__name__, error.code, str(error), error.retry_after_seconds]

async def all_caught(*calls):
    return await asyncio.gather(*map(caught, calls))

async def main():
"""
CONNECTED = "connection = connect_from_environment(); tools = connection.tools"


class Python:
    """Runs programs as processes, which have to end by themselves without warnings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(
        self,
        bridge: Bridge,
        program: str,
        connect: str = CONNECTED,
        *,
        after: str = "asyncio.run(main())",
        environment: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """What a program prints, each time as JSON. It is the body of an async function."""
        done = self.start(bridge, program, connect, after=after, environment=environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(
        self,
        bridge: Bridge,
        program: str,
        connect: str = CONNECTED,
        *,
        after: str = "asyncio.run(main())",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        path = self._folder / "program.py"
        body = textwrap.indent(textwrap.dedent(program), "    ")
        prelude = PRELUDE.format(folder=str(self._folder)).replace("async def main", f"{connect}\n\nasync def main")
        path.write_text(f"{prelude}{body}\n    pass\n\n{after}\n", encoding="utf-8")
        variables = {"CORRAL_URL": bridge.url, "CORRAL_TOKEN": bridge.token, "PYTHONUTF8": "1", **(environment or {})}
        return subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-W", "error", str(path)],
            env=variables,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=LIMIT_SECONDS,
        )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    folder = tmp_path_factory.mktemp("http")
    (folder / "corral_tools.py").write_text(http_runtime("python"), encoding="utf-8")
    return Python(folder)


def test_the_file_knows_the_standard_library_only() -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(http_runtime("python"))):
        if isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_a_call_travels_with_its_token_and_comes_back(python: Python, bridge: Bridge) -> None:
    program = """
    show(await tools.echo(text="ü\\ud800"))
    show(await tools.space.echo([1]))
    show(await tools["nothing"]())
    for number in range(50):
        await tools.echo(number=number)
    """
    assert python.run(bridge, program) == [{"text": "ü\ufffd"}, [1], None]
    assert bridge.bodies[:3] == [
        {"calls": [{"sequence": 1, "tool": "echo", "input": {"text": "ü\ufffd"}}], "stream": True},
        {"calls": [{"sequence": 2, "tool": "space.echo", "input": [1]}], "stream": True},
        {"calls": [{"sequence": 3, "tool": "nothing", "input": {}}], "stream": True},
    ]
    assert set(bridge.tokens) == {bridge.token}
    assert len(bridge.bodies) == 53
    assert len(bridge.connections) == 1


def test_the_calls_of_one_turn_leave_in_few_requests(python: Python, bridge: Bridge) -> None:
    program = """
    replies = await asyncio.gather(*(tools.echo(number=number) for number in range(100)))
    show(replies == [{"number": number} for number in range(100)])
    await asyncio.gather(tools.echo("x" * 600_000), tools.echo("ü" * 100_000), tools.echo("y" * 250_000))
    """
    assert python.run(bridge, program) == [True]
    sizes = [len(body["calls"]) for body in bridge.bodies]
    assert [sorted(sizes[:2]), sorted(sizes[2:])] == [[36, 64], [1, 2]]


def test_calls_over_those_in_flight_wait(python: Python, bridge: Bridge) -> None:
    assert python.run(bridge, "await asyncio.gather(*(tools.gather(calls=128) for _ in range(300)))") == []
    assert sorted(call["sequence"] for call in bridge.calls) == list(range(1, 301))
    assert bridge.most_running == 128


def test_a_fast_call_settles_before_a_slow_one_of_its_batch(python: Python, bridge: Bridge) -> None:
    # If the reply were not read as it streams in, the call that releases the slow one would never be made.
    program = """
    async def told(call, name):
        await call
        show(name)
    slow = asyncio.create_task(told(tools.slow(), "slow"))
    await asyncio.create_task(told(tools.echo(), "fast"))
    await tools.release()
    await slow
    """
    assert python.run(bridge, program) == ["fast", "slow"]
    assert [len(body["calls"]) for body in bridge.bodies] == [2, 1]


def test_values_travel_as_their_vectors_in_plain_json(python: Python, bridge: Bridge) -> None:
    values = ", ".join(vector["python"] for vector in FROM_GUEST)
    program = f"""
    for index in range({len(FROM_HOST)}):
        show(repr(await tools.vector(index=index)))
    for value in [{values}]:
        await tools.take(value=value)
    """
    well_formed = [
        vector["python"].replace("\\ud800", "\ufffd").replace("(1, [2])", "[1, [2]]") for vector in FROM_HOST
    ]
    names = {"ArrayBuffer": bytes, "float": float}  # an ArrayBuffer shows itself as the bytes that it is
    expected = [repr(eval(text, names)) for text in well_formed]  # noqa: S307 - our own vectors
    assert python.run(bridge, program) == expected
    for call, vector in zip(bridge.calls[len(FROM_HOST) :], FROM_GUEST, strict=True):
        wire = vector["wire"].replace("$buffer", "$bytes")  # which a program in Python rarely has
        value = call["input"].get("value")
        if wire in TAGGED:
            assert (value, call["tagged"]) == (TAGGED[wire], True)
        else:
            assert (repr(value), call.get("tagged", False)) == (repr(json.loads(wire)), vector["tagged"])


def test_values_that_json_lacks_survive_the_way_there_and_back(python: Python, bridge: Bridge) -> None:
    program = """
    data = bytes(range(256)) * 40
    value = [math.nan, math.inf, -math.inf, -0.0, 2**70, -1, 2**53 - 1, -(2**53), {"$number": "NaN"}, data, ArrayBuffer(data)]
    back = await tools.echo(value)
    show([repr(back) == repr(value), type(back[-1]) is ArrayBuffer, type(back[-2]) is bytes])
    show(await caught(tools.echo([1, 10**4300])))
    show(await caught(tools.echo(lambda: 1)))
    later = tools.slow()
    show(await caught(tools.echo({"later": later})))
    later.close()
    """
    same, long, function, forgotten = python.run(bridge, program)
    assert same == [True] * 3
    assert long[:2] == ["InvalidArguments", "invalid_arguments"]
    assert long[2] == "tools.echo: input[1]: an integer of more than 4300 digits is too long"
    assert function[1] == "invalid_arguments"
    assert "tools.slow(...) was not awaited: write `await tools.slow(...)`" in forgotten[2]


def test_an_error_of_a_call_is_that_of_the_host(python: Python, bridge: Bridge) -> None:
    program = """
    show(await caught(tools.fail(code="tool_failed", name="ToolFailed", message="no")))
    show(await caught(tools.fail(code="rate_limited", name="RateLimited", message="wait", retryAfterSeconds=1.5)))
    from corral_tools import AccessDenied, InvalidArguments, RateLimited, ToolError
    try:
        await tools.fail(code="rate_limited", name="RateLimited", message="wait", retryAfterSeconds=1.5)
    except RateLimited as error:
        show([isinstance(error, AccessDenied), error.__traceback__.tb_lineno])
    try:
        await tools.fail(code="invalid_arguments", name="InvalidArguments", message="no")
    except ValueError as error:
        show([type(error) is InvalidArguments, isinstance(error, ToolError)])
    show(await caught(tools.fail(code="of_a_later_release", name="Newer", message="no")))
    try:
        from corral_tools import RateLimit
    except ImportError as error:
        show(error.name)
    """
    first, second, classes, invalid, newer, absent = python.run(bridge, program)
    assert first == ["ToolFailed", "tool_failed", "no", None]
    assert second == ["RateLimited", "rate_limited", "wait", 1.5]
    assert classes[0] is True
    assert invalid == [True, True]
    assert newer == ["Newer", "of_a_later_release", "no", None]
    assert absent == "corral_tools"


def test_an_input_over_the_bound_is_refused_before_it_is_sent(python: Python, bridge: Bridge) -> None:
    connect = "tools = connect_from_environment(max_input_bytes=1000).tools"
    [outcome] = python.run(bridge, "show(await caught(tools.echo('x' * 1000)))", connect)
    assert outcome[:3] == [
        "MessageTooLarge",
        "message_too_large",
        "tools.echo: input has 1002 bytes; 1000 are allowed",
    ]
    assert bridge.bodies == []


def test_a_refused_request_fails_all_its_calls_with_its_error(python: Python, bridge: Bridge) -> None:
    program = """
    async def refused(status, body):
        body = body if isinstance(body, str) else json.dumps(body)
        show(await all_caught(tools.refuse(status=status, body=body), tools.echo()))
    await refused(401, {"error": {"code": "invalid_token", "name": "InvalidToken", "message": "expired"}})
    await refused(429, {"error": {"code": "rate_limited", "name": "RateLimited", "message": "wait", "retryAfterSeconds": 2}})
    await refused(502, "<html>Bad gateway</html>")
    await refused(503, "x" * 200_000)
    await refused(500, {"error": {"code": 1}})
    await refused(204, "")
    show(await tools.echo("still there"))
    """
    status = "the bridge at {}/calls answered with the status {}"
    assert python.run(bridge, program) == [
        [["InvalidToken", "invalid_token", "expired", None]] * 2,
        [["RateLimited", "rate_limited", "wait", 2]] * 2,
        *(
            [["BridgeError", "bridge_error", status.format(bridge.url, number), None]] * 2
            for number in (502, 503, 500, 204)
        ),
        "still there",
    ]


def test_a_reply_that_ends_early_fails_only_the_calls_without_an_answer(python: Python, bridge: Bridge) -> None:
    program = """
    show(await all_caught(tools.echo(1), tools.raw(text=""), tools.echo(2)))
    show(await all_caught(tools.break_off(), tools.slow(), tools.slow()))
    show(await tools.echo("still there"))
    """
    [clean, broken, last] = python.run(bridge, program)
    assert [clean[0], clean[2]] == [["no error", 1], ["no error", 2]]
    assert clean[1][1:3] == [
        "bridge_error",
        f"the bridge at {bridge.url} ended its reply without an answer to this call",
    ]
    assert [outcome[0] for outcome in broken] == ["no error", "BridgeError", "BridgeError"]
    assert broken[1][1] == broken[2][1] == "bridge_error"
    assert f"the bridge at {bridge.url} failed: " in broken[1][2]
    assert last == "still there"


GARBAGE = {
    "<html>\n": "a line that is not a reply",
    "null\n": "a line that is not a reply",
    "[" * 900 + "\n": "a line that is not a reply",
    '{"sequence": SEQUENCE, "error": {"code": "x"}}\n': "a line that is not a reply",
    '{"sequence": SEQUENCE, "error": {"code": "x", "name": "not a name", "message": ""}}\n': "a line that is not a reply",
    '{"sequence": SEQUENCE, "tagged": true, "value": {"$bigint": "x"}}\n': "a line that is not a reply",
    '{"sequence": 1000}\n': "answered a call that was not made",
    '{"sequence": [1]}\n': "answered a call that was not made",
    '{"sequence": true}\n': "answered a call that was not made",
    "{}\n": "answered a call that was not made",
    "x" * 2000: "a line of its reply is longer than 1000 bytes",
    '{"sequence": SEQUENCE}': "without an answer",
    '\n\n{"sequence": SEQUENCE, "value": 1}\n\n': "1",
    '{"sequence": SEQUENCE, "value": 2}\n{"sequence": SEQUENCE}\n': "2",
}


def test_garbage_in_a_reply_is_an_error_of_the_bridge(python: Python, bridge: Bridge) -> None:
    connect = "tools = connect_from_environment(max_output_bytes=1000).tools"
    program = f"for text in {list(GARBAGE)!r}: show(await caught(tools.raw(text=text)))"
    for outcome, expected in zip(python.run(bridge, program, connect), GARBAGE.values(), strict=True):
        if outcome[0] == "no error":
            assert str(outcome[1]) == expected
        else:
            assert outcome[1] == "bridge_error"
            assert expected in outcome[2]


def test_a_bridge_that_is_not_there_or_elsewhere_is_said(python: Python, bridge: Bridge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    program = f"""
    show(await caught(connect("http://127.0.0.1:{port}/x/", "t").tools.echo()))
    show(await caught(connect("{bridge.url.rsplit("/", 1)[0]}/redirect", "t").tools.echo()))
    for url, token in [("nonsense", "t"), ("file:///etc", "t"), ("http://a@127.0.0.1", "t"), ("http://127.0.0.1", ""), ("http://127.0.0.1", "a\\r\\nb: c")]:
        try:
            connect(url, token)
        except ValueError as error:
            show(str(error))
    """
    nowhere, redirected, *wrong = python.run(bridge, program, connect="")
    assert nowhere[:2] == redirected[:2] == ["BridgeError", "bridge_error"]
    assert nowhere[2].startswith(f"the bridge at http://127.0.0.1:{port}/x failed: ")
    assert "redirect" in redirected[2]
    assert [text.partition(":")[0] for text in wrong] == ["url"] * 3 + ["token"] * 2
    assert bridge.bodies == []


def test_after_close_nothing_is_sent_and_what_was_under_way_fails(python: Python, bridge: Bridge) -> None:
    program = """
    async with connection:
        slow = asyncio.create_task(caught(tools.slow()))
        await tools.echo()
    show(await slow)
    show(await caught(tools.echo()))
    """
    closed = ["BridgeError", "bridge_error", "the connection to the bridge was closed", None]
    assert python.run(bridge, program) == [closed, closed]
    assert len(bridge.calls) == 2


def test_a_program_that_only_computes_keeps_its_token(python: Python, bridge: Bridge) -> None:
    bridge.token = token(0.4)
    second = token(0.4, "second")
    last = token(300, "last")
    bridge.renewals = [JSONResponse({"token": each, "expires": 0}) for each in (second, last)]
    # The event loop stands still meanwhile.
    python.run(bridge, f"urllib.request.urlopen('{bridge.url}/renewed/2').close(); await tools.echo()")
    assert bridge.tokens[:2] == [bridge.token, second]
    assert bridge.tokens[-1] in {second, last}  # the reply of the second renewal may still be on its way
    assert bridge.renewed == 2


@pytest.mark.parametrize(
    "status",
    [
        401,
        *(
            pytest.param(each, marks=pytest.mark.matrix("401 is refused in the gate by the same code"))
            for each in (403, 404)
        ),
    ],
)
def test_a_renewal_that_is_refused_is_not_asked_for_again(python: Python, bridge: Bridge, status: int) -> None:
    bridge.token = token(0.3)
    bridge.renewals = [JSONResponse({}, status)]
    program = f"""
    urllib.request.urlopen('{bridge.url}/renewed/1').close()
    await asyncio.sleep(0.2)
    show(await tools.echo("with the old one"))
    """
    assert python.run(bridge, program) == ["with the old one"]
    assert bridge.tokens == [bridge.token] * 2
    assert bridge.renewed == 1


def test_a_renewal_that_fails_is_tried_again(python: Python, bridge: Bridge) -> None:
    bridge.token = token(0.4)
    bridge.renewals = [
        JSONResponse({}, 503),
        Response("garbage"),
        JSONResponse({"token": 1}),
        JSONResponse({"token": "two\nlines"}),
        JSONResponse({"token": token(300)}),
    ]
    python.run(bridge, f"urllib.request.urlopen('{bridge.url}/renewed/5').close()")
    assert bridge.renewed == 5


def test_a_token_that_says_nothing_of_itself_is_used_as_it_is(python: Python, bridge: Bridge) -> None:
    bridge.token = "opaque"
    assert python.run(bridge, "show(await tools.echo(1))") == [1]
    assert bridge.tokens == ["opaque"]


def test_without_its_variables_the_environment_is_blamed(python: Python, bridge: Bridge) -> None:
    bridge.token = ""
    program = """
    try:
        connect_from_environment()
    except ValueError as error:
        show(str(error))
    """
    assert python.run(bridge, program, connect="") == ["the environment variable CORRAL_TOKEN is not set"]


# --- only in Python


def test_calls_are_made_from_one_event_loop_after_another_and_in_threads(python: Python, bridge: Bridge) -> None:
    after = """
import threading
async def cut_short():
    try:
        await asyncio.wait_for(tools.slow(), 0.05)
    except TimeoutError:
        show("too late")
show(asyncio.run(tools.echo("a call is a coroutine")))
asyncio.run(cut_short())
threads = [threading.Thread(target=lambda: show(asyncio.run(tools.gather(calls=4)))) for _ in range(2)]
for each in threads: each.start()
show(asyncio.run(tools.gather(calls=4)))
for each in threads: each.join()
abandoned = asyncio.new_event_loop()
abandoned.create_task(tools.slow())
abandoned.run_until_complete(tools.echo())
asyncio.run(tools.release())  # whose reply meets a loop that does not run
show(asyncio.run(tools.echo("still there")))
abandoned.run_until_complete(tools.echo())
abandoned.close()
"""
    outcome = python.run(bridge, "", after=after)
    assert outcome == ["a call is a coroutine", "too late", None, None, None, "still there"]


def test_a_call_that_nobody_awaited_is_warned_of_at_its_line(python: Python, bridge: Bridge) -> None:
    done = python.start(
        bridge, "tools.echo(1)", after="import warnings; warnings.simplefilter('default')\nasyncio.run(main())"
    )
    line = next(i for i, text in enumerate(Path(done.args[-1]).read_text().splitlines(), 1) if "    tools.echo" in text)
    assert (
        f"program.py:{line}: RuntimeWarning: tools.echo(...) was not awaited: write `await tools.echo(...)`"
        in done.stderr
    )
    assert bridge.bodies == []


def test_names_that_are_given_are_shown(python: Python, bridge: Bridge) -> None:
    program = """
    show([dir(tools), dir(tools.files), "echo" in tools, "files" in tools])
    show(await tools.files.read(path="a"))
    """
    connect = "tools = connect_from_environment(['echo', 'files.read', 'files.write']).tools"
    assert python.run(bridge, program, connect) == [[["echo", "files"], ["read", "write"], True, True], None]
    assert [call["tool"] for call in bridge.calls] == ["files.read"]


def test_a_bridge_that_says_nothing_is_taken_for_dead(python: Python, bridge: Bridge) -> None:
    program = "import corral_tools; corral_tools._SILENCE_SECONDS = 0.1; show(await caught(tools.slow()))"
    [outcome] = python.run(bridge, program)
    assert outcome[1:3] == ["bridge_error", f"the bridge at {bridge.url} failed: timed out"]


def test_proxies_of_the_environment_are_not_used(python: Python, bridge: Bridge) -> None:
    environment: dict[str, str] = dict.fromkeys(
        ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"), "http://127.0.0.1:1"
    )
    assert python.run(bridge, "show(await tools.echo(1))", environment=environment) == [1]


REPLIES = {
    "nothing": b"",
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a header that does not end": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
    "a chunk without its end": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nabc",
    "a chunk that is none": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    "fewer bytes than announced": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
    "a page": b"HTTP/1.0 200 OK\r\ncontent-type: text/html\r\n\r\n<html>\n<body>\n",
}


@pytest.fixture
def liar() -> Iterator[int]:
    """A port on which each connection in turn gets one of the REPLIES, and its end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for reply in REPLIES.values():
                connection, _ = listener.accept()
                with connection, suppress(OSError):  # ENOTCONN too, if the guest was quicker
                    connection.recv(65_536)
                    connection.sendall(reply)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_what_is_not_a_bridge_fails_calls_and_nothing_else(python: Python, bridge: Bridge, liar: int) -> None:
    program = f"""
    other = connect("http://127.0.0.1:{liar}", "t").tools
    for _ in range({len(REPLIES)}):
        show(await caught(other.echo()))
    show(await tools.echo("still there"))
    """
    *failed, last = python.run(bridge, program)
    assert [outcome[:2] for outcome in failed] == [["BridgeError", "bridge_error"]] * len(REPLIES)
    assert all(outcome[2].startswith(f"the bridge at http://127.0.0.1:{liar} ") for outcome in failed)
    assert last == "still there"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and the same with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bridge")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, both = folder / "public.pem", folder / "both.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(secret + public.read_bytes())
    return public, both


def test_over_tls_the_bridge_has_to_prove_who_it_is(python: Python, tmp_path: Path) -> None:
    public, both = certificate(tmp_path)
    server = Server(both)
    try:
        bridge = server.bridge()
        program = "for size in [1, 100_000] * 10: show(await caught(tools.echo('x' * size)))"
        known = python.run(bridge, program, environment={"SSL_CERT_FILE": str(public)})
        assert known == [["no error", "x"], ["no error", "x" * 100_000]] * 10
        assert len(bridge.connections) == 1
        [unknown] = python.run(bridge, "show(await caught(tools.echo(1)))")
        assert unknown[1] == "bridge_error"
        assert "certificate verify failed" in unknown[2]
        assert len(bridge.bodies) == 20
        slow = (
            "slow = asyncio.create_task(caught(tools.slow())); await tools.echo(); connection.close(); show(await slow)"
        )
        [closed] = python.run(bridge, slow, environment={"SSL_CERT_FILE": str(public)})
        assert closed[2] == "the connection to the bridge was closed"
    finally:
        server.close()


@pytest.mark.anyio
async def test_items_that_come_after_a_program_has_left_their_stream_end_the_request() -> None:
    """The connection is full then, so that the tool waits until the request is ended."""
    bridge = client._HttpBridge("http://127.0.0.1:9", "token", http._HttpTransport(), 1_000)
    turns = client._Turns(asyncio.get_running_loop(), bridge, CallLimits(1, 1, 1))
    reading = client.Reading()
    reading.tell("cancel")
    with pytest.raises(ConnectionAbortedError):
        turns._deliver(reading, 1, [1])
