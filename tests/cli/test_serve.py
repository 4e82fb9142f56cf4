"""`corral serve` as a user meets it: a process that says where it is, answers, and ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import grpc
import httpx
import pytest

from corral.cli.commands.serve import write_private
from corral.errors import ConfigError
from corral.protocols.grpc.methods import CallMessage as CallRequest
from corral.protocols.grpc.methods import CallReply
from tests.bridges.http.engines import NODE
from tests.cli.terminal import Here, Project, corral_after, without
from tests.foreign import graphiql_packages
from tests.forks import CORRAL, ForkedProcess
from tests.until import LIMIT_SECONDS, until_sync

MORE = """
import time
from pathlib import Path

import anyio

from corral import tool


@tool
async def hold() -> None:
    Path("started").write_text("hold")
    await anyio.sleep_forever()


@tool
def hold_in_a_thread() -> None:
    Path("started").write_text("hold_in_a_thread")
    time.sleep(600)


@tool(needs_approval=True)
async def pay(euros: int) -> int:
    return euros


@tool(scopes={"mail:send"})
async def send() -> str:
    return "sent"
"""


class Serving:
    """A running `corral serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = [self._line(process.stdout), self._line(process.stdout)]
        self.url, self.token = (line.split("=", 1)[1] for line in self.first)
        self.client = httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {self.token}"}, timeout=LIMIT_SECONDS
        )

    @staticmethod
    def _line(stream: IO[str] | None) -> str:
        assert stream is not None
        return stream.readline().rstrip("\n")

    def call(self, tool: str, **input: Any) -> httpx.Response:
        return self.client.post(f"/tools/{tool}", json=input)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])))

    def request(self, path: str, body: str) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.token}\r\n"
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """The exit code, and the rest of standard output and error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def serve(project: Project) -> Any:
    project.write("app/more.py", MORE)

    @contextmanager
    def serve(*options: str) -> Generator[Serving]:
        port = () if options[:2] == ("--protocol", "grpc") else ("--port", "0")
        command = [CORRAL, "serve", "--tools", "app.tools", "--tools", "app.more", *port, *options]
        pipe = subprocess.PIPE
        with ForkedProcess(command, stdout=pipe, stderr=pipe, cwd=project.directory) as process:
            try:
                serving = Serving(process)
                with serving.client:
                    yield serving
            finally:
                if process.poll() is None:
                    process.kill()

    return serve


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.matrix("it ends in the gate by SIGINT; by the same handler")),
    ],
)
def test_it_says_where_it_is_serves_and_ends_quietly(serve: Any, number: signal.Signals) -> None:
    with serve("--user", "ada", "--organization", "acme", "--session", "s", "--scope", "b", "--scope", "a") as serving:
        assert re.fullmatch(r"CORRAL_URL=http://127\.0\.0\.1:\d+", serving.first[0])
        assert re.fullmatch(r"CORRAL_TOKEN=[\w.-]+", serving.first[1])
        assert serving.call("who").json() == ["ada", "acme", "s", "a", "b"]
        renewed = serving.client.post("/token", json={}).json()["token"]
        assert renewed != serving.token
        # The connection of these requests is still open.
        code, out, err = serving.end(number)
    assert (code, out, err) == (0, "", f"13 tools at {serving.url}\n")


def test_it_ends_soon_while_calls_run(serve: Any, project: Project) -> None:
    started = project.directory / "started"
    os.mkfifo(started)
    with serve() as serving, ExitStack() as connections:
        for tool in ("hold", "hold_in_a_thread"):
            connection = connections.enter_context(serving.connect())
            connection.sendall(serving.request(f"/tools/{tool}", "{}"))
            assert started.read_text() == tool  # once the tool has begun
        half = connections.enter_context(serving.connect())
        half.sendall(serving.request("/calls", "{")[:-1])
        code, out, err = serving.end(signal.SIGINT)
    assert (code, out, len(err.splitlines())) == (0, "", 1)


def test_it_drains_before_it_ends_and_its_probes_say_so(serve: Any, project: Project) -> None:
    pipe = project.directory / "pipe"
    os.mkfifo(pipe)
    with serve() as serving, serving.connect() as connection:
        elsewhere = {"host": "10.0.0.7:8787"}  # as a probe of Kubernetes names it
        assert [serving.client.get(path, headers=elsewhere).status_code for path in ("/healthz", "/readyz")] == [
            200,
            200,
        ]
        connection.sendall(serving.request("/tools/held", json.dumps({"name": str(pipe)})))
        with pipe.open("wb", buffering=0) as held:  # once the tool has begun
            serving.process.send_signal(signal.SIGTERM)
            until_sync(lambda: serving.client.get("/readyz").status_code == 503)
            assert serving.client.get("/readyz").json() == {"status": "unavailable", "reason": "draining"}
            assert serving.client.get("/healthz").json() == {"status": "ok"}
            assert serving.call("who").status_code == 503
            held.write(b".")
        assert b"200 OK" in connection.recv(65_536)
        out, err = serving.process.communicate(timeout=LIMIT_SECONDS)
    assert (serving.process.returncode, out, len(err.splitlines())) == (0, "", 1)


def test_a_drain_has_an_end(serve: Any, project: Project) -> None:
    started = project.directory / "started"
    os.mkfifo(started)
    with serve("--drain-seconds", "0") as serving, serving.connect() as connection:
        connection.sendall(serving.request("/tools/hold", "{}"))
        assert started.read_text() == "hold"
        assert serving.end(signal.SIGTERM)[0] == 0


def test_a_second_signal_ends_it_while_a_tool_blocks_the_event_loop(serve: Any) -> None:
    with serve() as serving, serving.connect() as connection:
        connection.sendall(serving.request("/tools/block_the_loop_while_interrupted", '{"times": 2}'))
        serving.process.communicate(timeout=LIMIT_SECONDS)
        assert serving.process.returncode == 130


def test_a_program_runs_against_what_it_printed(serve: Any, project: Project) -> None:
    program = project.write(
        "program.mjs",
        'import { connectFromEnvironment } from "./corral.mjs";\n'
        "const { tools } = connectFromEnvironment();\n"
        'console.log(JSON.stringify(await tools.get_weather({ city: "Oslo" })));\n',
    )
    with serve() as serving:
        project.write("corral.mjs", serving.client.get("/corral.mjs").text)
        project.write("bridge.env", "\n".join(serving.first))
        script = f'set -a; . ./bridge.env; exec "$0" {program}'
        found = subprocess.run(
            ["sh", "-c", script, NODE], cwd=project.directory, capture_output=True, text=True, check=True
        )
    assert found.stdout == '{"city":"Oslo","sky":"clear"}\n'


def test_approvals_scopes_and_limits_hold_and_all_is_on_record(serve: Any, project: Project) -> None:
    with serve("--audit", "audit.jsonl", "--calls", "3") as serving:
        found = [serving.call("pay", euros=1), serving.call("send"), *(serving.call("who") for _ in range(3))]
        assert [each.status_code for each in found] == [403, 403, 200, 200, 429]
        serving.end(signal.SIGTERM)
    events = [json.loads(line) for line in (project.directory / "audit.jsonl").read_text().splitlines()]
    assert [(each["protocol"], each["code"]) for each in events] == [
        ("http", "approval_denied"),
        ("http", "scope_denied"),
        ("http", None),
        ("http", None),
        ("http", "call_budget_exceeded"),
    ]
    with serve("--approve", "all", "--scope", "mail:send") as serving:
        assert [serving.call("pay", euros=1).json(), serving.call("send").json()] == [1, "sent"]


def test_several_protocols_are_served_beside_each_other(serve: Any, tmp_path: Path) -> None:
    packages = graphiql_packages(tmp_path)
    protocols = ("http", "trpc", "graphql", "connect", "grpc")
    options = [option for name in protocols for option in ("--protocol", name)]
    with serve(*options, "--grpc-port", "0", "--graphiql", str(packages)) as serving:
        assert serving.url.endswith("/http")
        caller = serving.call("who").json()
        root = serving.url.removesuffix("/http")
        assert serving.client.post(f"{root}/trpc/who", json={}).json() == {"result": {"data": caller}}
        answer = serving.client.post(f"{root}/graphql", json={"query": "mutation { who }"}).json()
        assert answer == {"data": {"who": caller}}
        connect = serving.client.post(f"{root}/connect/corral.tools.Tools/who", json={})
        assert connect.json() == {"result": caller}
        assert "<title>GraphiQL</title>" in serving.client.get(f"{root}/graphql/graphiql").text
        assert serving.client.get(f"{root}/graphql/graphiql/page.js").status_code == 200
        _, _, err = serving.end(signal.SIGTERM)
    page, err = err.split("\n", 1)
    assert page == f"GraphiQL at {root}/graphql/graphiql"
    assert re.fullmatch(r"13 tools at http://127\.0\.0\.1:\d+/http, over gRPC at 127\.0\.0\.1:\d+\n", err)


def test_grpc_is_served_alone(serve: Any) -> None:
    with serve("--protocol", "grpc", "--grpc-port", "0", "--user", "ada") as serving:
        with grpc.insecure_channel(serving.url.removeprefix("http://")) as channel:
            call = channel.unary_unary("/corral.v1.Bridge/Call", CallRequest.SerializeToString, CallReply.FromString)
            reply = call(CallRequest(tool="who"), metadata=(("authorization", f"Bearer {serving.token}"),))
            assert json.loads(reply.value)[0] == "ada"
        code, out, err = serving.end(signal.SIGINT)
    assert (code, out, err) == (0, "", f"13 tools at {serving.url}\n")


def test_all_addresses_are_warned_of(serve: Any) -> None:
    with serve("--host", "0.0.0.0") as serving:  # noqa: S104
        assert serving.url.startswith("http://127.0.0.1:")
        assert serving.call("who").status_code == 200
        _, _, err = serving.end(signal.SIGINT)
    assert [line.split(":")[0] for line in err.splitlines()] == ["warning", "13 tools at http"]


def test_names_and_origins_are_taken_if_they_are_allowed(serve: Any) -> None:
    names = ("--allow-host", "localhost", "--allow-host", "tools.example")
    with serve("--host", "0.0.0.0", *names, "--allow-origin", "https://app.example") as serving:  # noqa: S104
        assert serving.url.startswith("http://localhost:")
        asked = [
            {"host": "tools.example"},
            {"host": "attacker.example"},
            {"origin": "https://app.example"},
            {"origin": "https://attacker.example"},
        ]
        found = [serving.client.get("/health", headers=headers).status_code for headers in asked]
        _, _, err = serving.end(signal.SIGINT)
    assert found == [200, 421, 200, 403]
    assert "warning" not in err


def test_what_cannot_be_is_one_line(here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        wrong = {
            ("--port", port): f"error: cannot listen on port {port} of 127.0.0.1: Address already in use",
            ("--port", "65536"): "error: --port 65536 is not between 0 and 65535",
            ("--protocol", "grpc", "--grpc-port", port): f"error: cannot listen on port {port} of 127.0.0.1",
            ("--protocol", "grpc", "--grpc-port", "-1"): "error: --grpc-port -1 is not between 0 and 65535",
            ("--protocol", "grpc", "--host", "0.0.0.0"): "error: --protocol grpc on 0.0.0.0 would send tokens",  # noqa: S104
            (
                "--graphiql",
                ".",
            ): "error: --graphiql has no effect on --protocol http; leave it out, or add --protocol graphql",
            ("--protocol", "trpc", "--protocol", "connect", "--grpc-port", "0"): (
                "error: --grpc-port has no effect on --protocol trpc, connect; leave it out, or add --protocol grpc"
            ),
            ("--protocol", "grpc", "--allow-origin", "https://app.example"): (
                "error: --allow-origin has no effect on --protocol grpc; leave it out, or add --protocol http, connect, "
                "graphql or trpc"
            ),
            (
                "--protocol",
                "grpc",
                "--allow-host",
                "tools.example",
            ): "error: --allow-host has no effect on --protocol grpc;",
            ("--protocol", "grpc", "--port", "8787"): "error: --port has no effect on --protocol grpc;",
            ("--port", "0", "--protocol", "graphql", "--graphiql", "."): "error: graphiql: react/umd/",
            ("--port", "0", "--scope", "a b"): "error: the scope 'a b' cannot be in a token",
        }
        for options, message in wrong.items():
            done = here.main("serve", "--tools", "app.tools", *options)
            assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
            assert done.stderr.startswith(message)


@pytest.mark.parametrize("missing", ["uvicorn", "jwt"])
def test_without_the_extra_it_is_named(project: Project, missing: str) -> None:
    command = corral_after(
        without(missing, "corral.bridges.http", "corral.calls.tokens"), "serve", "--tools", "app.tools", "--port", "0"
    )
    done = project.python(command, env=os.environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'corral[http]'" in done.stderr


def test_a_token_is_not_written_into_a_file_that_somebody_else_made(tmp_path: Path) -> None:
    elsewhere, foreign = tmp_path / "elsewhere", tmp_path / f".bridge.env.{os.getpid()}"
    path = tmp_path / "bridge.env"
    for each in (elsewhere, foreign):
        each.touch(mode=0o666)
    path.symlink_to(elsewhere)
    for text in ("CORRAL_TOKEN=1\n", "CORRAL_TOKEN=2\n"):
        write_private(path, text)
    assert (path.read_text(), path.is_symlink(), path.stat().st_mode & 0o777) == (text, False, 0o600)
    assert (elsewhere.read_text(), foreign.read_text()) == ("", "")
    assert {each.name for each in tmp_path.iterdir()} == {"bridge.env", "elsewhere", foreign.name}
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot write"):
        write_private(path, text)
    assert {each.name for each in tmp_path.iterdir()} == {"bridge.env", "elsewhere", foreign.name}


def test_a_file_has_the_address_and_a_token_and_is_nobody_elses(serve: Any, project: Project) -> None:
    with serve("--env-file", "bridge.env") as server:
        path = project.directory / "bridge.env"
        variables = dict(line.split("=", 1) for line in path.read_text().splitlines())
        assert path.stat().st_mode & 0o777 == 0o600
        assert variables["CORRAL_URL"] == server.url
        headers = {"authorization": f"Bearer {variables['CORRAL_TOKEN']}"}
        assert httpx.get(f"{server.url}/openapi.json", headers=headers, timeout=LIMIT_SECONDS).status_code == 200
