"""Servers that others have written, in Python and in TypeScript, called by programs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from deno import find_deno_bin
from typing_extensions import override

from corral import Corral
from corral.sources.mcp import mcp_servers
from corral.sources.mcp import server as connection
from tests.foreign import OLD_SERVERS, deno_arguments, deno_environment
from tests.ports import held_port
from tests.until import until

pytestmark = pytest.mark.anyio

BIN = Path(sys.executable).parent
ALL = (
    "time", "git", "database", "calculator", "duck", "fetch",
    "files", "everything", "remote", "memory", "thinking", "tasks",
)  # fmt: skip
DENO = find_deno_bin()
EVERYTHING = "@modelcontextprotocol/server-everything"

USING_ALL = """\
await tools.database.create_table({ query: "CREATE TABLE stock (product TEXT, number INTEGER)" });
await tools.database.write_query({ query: "INSERT INTO stock VALUES ('tent', 2), ('stove', 30)" });
await tools.duck.query({ query: "CREATE TABLE numbers AS SELECT range AS n FROM range(5)" });
await tools.memory.create_entities({
  entities: [{ name: "Ada", entityType: "person", observations: ["writes programs"] }],
});
const thought = { thought: "so it is", thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false };
const [log, now, listed, sum, remote, stock, power, total, page, known, step, plan] = await Promise.all([
  tools.git.git_log({ repo_path: folder, max_count: 1 }),
  tools.time.get_current_time({ timezone: "Asia/Kolkata" }),
  tools.files.list_directory({ path: folder }),
  tools.everything.get_sum({ a: 1, b: 2 }),
  tools.remote.get_structured_content({ location: "New York" }),
  tools.database.read_query({ query: "SELECT product FROM stock WHERE number > 10" }),
  tools.calculator.calculate({ expression: "2 ** 10 + 1" }),
  tools.duck.query({ query: "SELECT sum(n) FROM numbers" }),
  tools.fetch.fetch({ url: page_url }),
  tools.memory.search_nodes({ query: "Ada" }),
  tools.thinking.sequentialthinking(thought),
  tools.tasks.request_planning({ originalRequest: "tea", tasks: [{ title: "boil", description: "the water" }] }),
]);
return {
  log, stock, total, page, plan, power, remote, sum,
  zone: now.timezone, summer: now.is_dst, listed: listed.content,
  known: known.entities[0].observations, thoughts: step.thoughtHistoryLength,
};
"""


class EverythingOverHttp:
    """The server `everything`, on a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        environment = {**os.environ, **deno_environment(), "PORT": str(self.port)}
        command = [DENO, *deno_arguments(EVERYTHING), "streamableHttp"]
        devnull = subprocess.DEVNULL
        self._process = subprocess.Popen(command, env=environment, stdout=devnull, stderr=devnull)
        await until(self._listens)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class Servers:
    def __init__(self, corral: Corral, folder: Path, http: EverythingOverHttp) -> None:
        self.corral = corral
        self.folder = folder
        self.http = http

    async def run(self, program: str, **options: Any) -> Any:
        return (await self.corral.execute(program, **options)).raise_for_error().value


@asynccontextmanager
async def opened(folder: Path, *names: str) -> AsyncGenerator[Servers]:
    """Starts those of these names in a folder with a repository and a note."""
    (folder / "note.txt").write_text("remember the milk")
    identity = {f"GIT_{who}_{what}": "ada@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the first note"]):
        subprocess.run(["git", *command], cwd=folder, env={**os.environ, **identity}, check=True)

    def of_npm(package: str, *arguments: str, **environment: str) -> dict[str, Any]:
        return {
            "command": DENO,
            "args": [*deno_arguments(package), *arguments],
            "env": {**deno_environment(), **environment},
        }

    with held_port() as port:
        config: Mapping[str, Any] = {
            "time": {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "Europe/Oslo"]},
            "git": {"command": str(BIN / "mcp-server-git"), "args": ["--repository", str(folder)]},
            "database": {
                "command": str(OLD_SERVERS / "mcp-server-sqlite"),
                "args": ["--db-path", str(folder / "shop.db")],
            },
            "calculator": {"command": str(OLD_SERVERS / "mcp-server-calculator")},
            "duck": {"command": str(OLD_SERVERS / "mcp-server-duckdb"), "args": ["--db-path", str(folder / "duck.db")]},
            "fetch": {
                "command": str(OLD_SERVERS / "mcp-server-fetch"),
                "args": ["--ignore-robots-txt", "--allow-private-ips"],
            },
            "files": of_npm("@modelcontextprotocol/server-filesystem", str(folder)),
            "everything": of_npm(EVERYTHING, "stdio"),
            "memory": of_npm("@modelcontextprotocol/server-memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
            "thinking": of_npm("@modelcontextprotocol/server-sequential-thinking", DISABLE_THOUGHT_LOGGING="true"),
            "tasks": of_npm("@kazuph/mcp-taskmanager", TASK_MANAGER_FILE_PATH=str(folder / "tasks.json")),
            "remote": {"url": f"http://127.0.0.1:{port}/mcp"},
        }
        file = folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {name: config[name] for name in names}}))
        http = EverythingOverHttp(port)
        await http.start()
        try:
            async with Corral(mcp_servers(file)) as corral:
                yield Servers(corral, folder, http)
        finally:
            http.kill()


@pytest.fixture(scope="module")
async def servers(anyio_backend: object, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Servers]:
    async with opened(tmp_path_factory.mktemp("mcp").resolve(), "time", "files", "remote") as servers:
        yield servers


@contextmanager
def page_over_http(folder: Path) -> Generator[str]:
    """The URL of a page on this machine."""
    folder.joinpath("page.html").write_text("<h1>Opening hours</h1><p>From nine to five.</p>", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/page.html"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.mark.matrix("twelve servers of eight makers; the gate has servers in Python, of npm and over HTTP")
async def test_one_program_uses_all(tmp_path: Path) -> None:
    with page_over_http(tmp_path) as url:
        async with opened(tmp_path, *ALL) as servers:
            assert servers.corral.tools.problems == {}
            known = f"const folder = {json.dumps(str(servers.folder))}, page_url = {json.dumps(url)};"
            result = await servers.corral.execute(f"{known}\n{USING_ALL}")
            assert "git_log(input: {" in servers.corral.model.declarations()
    value: Any = result.raise_for_error().value
    assert result.checked
    assert "the first note" in value.pop("log")
    assert "[FILE] note.txt" in value.pop("listed")
    assert value.pop("remote").keys() == {"temperature", "conditions", "humidity"}
    assert "stove" in str(value.pop("stock"))
    assert "10" in str(value.pop("total"))
    assert "From nine to five." in value.pop("page")
    assert value.pop("plan")["status"] == "planned"
    assert value == {
        "power": "1025",
        "zone": "Asia/Kolkata",
        "summer": False,
        "sum": "The sum of 1 and 2 is 3.",
        "known": ["writes programs"],
        "thoughts": 1,
    }


async def test_what_they_say_of_results_is_declared(servers: Servers) -> None:
    declared = servers.corral.model.declarations()
    for part in ("is_dst: boolean", "temperature: number"):
        assert part in declared


async def test_annotations_are_kept(servers: Servers) -> None:
    tools = servers.corral.tools
    read, write = tools.resolve("files.read_text_file"), tools.resolve("files.write_file")
    assert (read.read_only, read.needs_approval) == (True, False)
    assert (write.read_only, write.idempotent, write.needs_approval) == (False, True, True)


async def test_a_destructive_tool_is_held_until_somebody_approves(servers: Servers) -> None:
    path = servers.folder / "new.txt"
    result = await servers.corral.execute(f'await tools.files.write_file({{ path: "{path}", content: "x" }});')
    assert result.error is not None
    assert result.error.code == "approval_denied"
    assert not path.exists()


async def test_content_that_is_not_text_is_kept_whole(servers: Servers) -> None:
    program = """
    const { content } = await tools.remote.get_tiny_image();
    return content.map((each: any) => [each.type, each.mimeType ?? null, (each.data ?? each.text).slice(0, 10)]);
    """
    assert await servers.run(program) == [
        ["text", None, "Here's the"],
        ["image", "image/png", "iVBORw0KGg"],
        ["text", None, "The image "],
    ]


async def test_what_a_server_says_is_wrong_reaches_the_program(servers: Servers) -> None:
    program = """
    const attempt = (call: Promise<unknown>) => call.then(() => "fine", (error) => error.message);
    return await Promise.all([
      attempt(tools.time.get_current_time({ timezone: "Nowhere/Land" })),
      attempt(tools.files.read_text_file({ path: "/etc/passwd" })),
      attempt(tools.remote.get_sum({ a: "one", b: 2 } as any)),
    ]);
    """
    zone, file, sum = await servers.run(program)
    assert "Nowhere/Land" in zone
    assert "Access denied" in file
    assert sum == 'tool "remote.get_sum": a: expected number, got string "one"'


@pytest.mark.matrix("in the gate a small server goes and comes back, in test_http.py; this one is of another maker")
async def test_a_server_over_http_may_end_and_come_back(
    servers: Servers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)
    caplog.set_level("CRITICAL", "mcp")
    program = """
    const remote = await tools.remote.echo({ message: "here" }).catch((error) => error.message);
    return [remote, (await tools.time.get_current_time({ timezone: "Asia/Kolkata" })).timezone];
    """
    assert await servers.run(program) == ["Echo: here", "Asia/Kolkata"]
    servers.http.kill()
    remote, other = await servers.run(program)
    assert remote.startswith("the MCP server 'remote' ")
    assert other == "Asia/Kolkata"
    await until(lambda: servers.corral.tools.problems)
    await servers.http.start()
    await until(lambda: servers.corral.tools.problems == {})
    assert await servers.run(program) == ["Echo: here", "Asia/Kolkata"]
