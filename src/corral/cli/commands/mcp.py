"""`corral mcp`: serves tools, including those of MCP servers, as one MCP server."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, redirect_stdout
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO, get_args

import anyio
import anyio.to_thread
from pydantic_core import to_json

from corral import Corral, ExecutionContext
from corral.cli.http_server import Drainable, http_server, is_loopback, listening, url_of
from corral.cli.options import add_address, add_caller, add_drain, add_repeatable, add_tools, caller, interruptible
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.run_options import add_env, add_running, env_of, running
from corral.cli.screen import Screen, counted, screen
from corral.cli.tool_loading import load_tools
from corral.errors import ConfigError, MissingExtra
from corral.ledger import MemoryLedger
from corral.sessions import Sessions
from corral.types import Approve, Language

_MEMBER = r'"(?:jsonrpc|method)"\s*:\s*"[\w./-]{1,100}"\s*'
_ID = r'"id"\s*:\s*(0|[1-9]\d{0,17}|"[\w.:/ +-]{1,100}")\s*'
_REQUEST = re.compile(rf"\s*\{{\s*(?:{_MEMBER},\s*){{0,2}}{_ID},")
_REQUEST_ENDS = re.compile(rf",\s*(?:{_MEMBER},\s*)?{_ID}(?:,\s*{_MEMBER})?\}}\s*\Z")
"""Id of a request, before or after its parameters. Any other `"id"` could be part of its data."""

_PATH = "/mcp"
_TOKEN_VARIABLE = "CORRAL_MCP_TOKEN"  # noqa: S105  # its name
_PORT = 8_789
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MESSAGE_BYTES = 2_000_000
"""Maximum bytes of a client's message: the longest program has 256,000 bytes, each of which can take six in JSON."""
_KEEP_DAYS = 1 / 24
"""Days for which a ledger in memory keeps the results of programs that have paused."""
_EXPIRES_SECONDS = 86_400.0
"""Seconds for which programs in a ledger in memory wait for their clients."""
_HEAD_CHARS = 300
"""Bytes kept from the start and end of an overlong line, in which its request id is searched."""
_SESSIONS = 1_000
"""Maximum number of open HTTP sessions. Each takes about 40 kB, and is closed after half an hour without requests."""
_SHUTDOWN_SECONDS = 1
"""Maximum seconds to write pending output after the input has ended."""
_HELP = """\
Serves tools, including those of MCP servers, as one MCP server whose clients write programs.

An MCP client starts it with a configuration such as

  {"mcpServers": {"corral": {"command": "corral", "args": ["mcp", "--mcp-config", "servers.json"]}}}

and finds three tools: execute_code, search_tools and describe_tools. Programs can call all tools of the servers in
servers.json, and those of --tools. Log output goes to standard error; standard output is for the protocol only.

--http serves at http://HOST:PORT/mcp. With CORRAL_MCP_TOKEN in the environment, clients need this bearer token; with
--oauth-issuer, access tokens of that issuer. With neither, everyone who can connect may run programs. GET /healthz
and GET /readyz answer probes. SIGTERM refuses new programs, waits for running ones, and then ends the server; a
second signal ends it at once.

exit codes: 0 it was ended, 2 wrong usage or set-up
"""


def add_mcp(commands: Commands) -> None:
    parser = add_command(commands, "mcp", _mcp, _HELP)
    add_tools(parser)
    parser.add_argument("--language", choices=get_args(Language), default="typescript", help="default: typescript")
    parser.add_argument(
        "--budget", type=int, default=4_000, metavar="TOKENS", help="for declarations of tools; default: 4000"
    )
    parser.add_argument("--list", action="store_true", help="print the token counts of the tool lists, and exit")
    http = parser.add_argument_group("over HTTP, instead of standard input and output")
    http.add_argument("--http", action="store_true", help="serve at a URL")
    add_address(http, default_port=_PORT)
    add_drain(http)
    http.add_argument("--oauth-issuer", metavar="URL", help="only accept access tokens of this OAuth issuer")
    http.add_argument("--oauth-resource", metavar="URL", help="audience (aud) of those tokens; default: the served URL")
    add_repeatable(http, "--oauth-scope", "SCOPE", "required in those tokens", dest="oauth_scopes")
    add_env(parser)
    context = add_caller(parser)
    context.add_argument(
        "--approve",
        choices=("ask", "all", "none"),
        default="ask",
        help="for calls that require approval; ask, the default, asks by elicitation",
    )
    parser.add_argument(
        "--ledger",
        metavar="PATH|URL",
        help="keeps programs while their clients answer questions: a SQLite database, or a postgresql:// URL; "
        "default: in memory",
    )
    add_running(parser)


def _mcp(arguments: argparse.Namespace) -> int:
    served = import_module("corral.integrations.mcp")
    elsewhere = arguments.port != _PORT or arguments.allowed_hosts or arguments.allowed_origins
    if elsewhere and not arguments.http:
        raise ConfigError("--port, --allow-host and --allow-origin require --http")
    if not arguments.http and (arguments.oauth_issuer or arguments.oauth_resource or arguments.oauth_scopes):
        raise ConfigError("--oauth-issuer, --oauth-resource and --oauth-scope require --http")
    if not arguments.oauth_issuer and (arguments.oauth_resource or arguments.oauth_scopes):
        raise ConfigError("--oauth-resource and --oauth-scope require --oauth-issuer")
    with ExitStack() as stack:
        wire = stack.enter_context(_wire()) if not (arguments.http or arguments.list) else None
        view = stack.enter_context(screen())
        with moving(view, "loading tools"):
            corral = Corral(
                load_tools(arguments.tools, arguments.mcp_configs, required=True),
                **running(arguments, arguments.language),
                audit=arguments.audit,
                policy=arguments.policies or None,
                hide_denied=arguments.hide_denied or None,
                sessions=Sessions() if arguments.skills else None,
                approve=_approve(arguments.approve, served),
                ledger=arguments.ledger or MemoryLedger(keep_days=_KEEP_DAYS, expires_seconds=_EXPIRES_SECONDS),
            )
        server = served.mcp_server(
            corral,
            language=arguments.language,
            budget_tokens=arguments.budget,
            context=_context(arguments, served),
            env=env_of(arguments),
        )
        if arguments.list:
            asyncio.run(_list(corral, server, view))
        elif wire is not None:
            asyncio.run(_serve_wire(corral, server, wire, view))
        else:
            listener = stack.enter_context(listening(arguments.host, arguments.port))
            asyncio.run(_serve_http(corral, server, listener, arguments, view))
    return 0


def _approve(how: str, served: Any) -> Approve | None:
    if how == "all":
        return lambda _: True
    return served.ask_client if how == "ask" else None


def _context(arguments: argparse.Namespace, served: Any) -> Any:
    """Returns the caller that the options describe. With an OAuth token, the user and scopes are the token's.

    Each MCP session is a session of the caller, unless the options name one.
    """
    from_options = caller(arguments)
    if arguments.skills and from_options.session_id is None:  # session files; a client on a pipe names no session
        from_options = from_options.model_copy(update={"session_id": secrets.token_hex(8)})
    token_of = _authorization().access_token_of if arguments.oauth_issuer else None

    def context(request: Any) -> ExecutionContext:
        from_request: dict[str, Any] = {}
        token = None if token_of is None else token_of(request)
        if token is not None:
            from_request = {"user_id": token.subject, "scopes": frozenset(token.scopes)}
        session = served.session_of(request)
        if session is not None and arguments.session_id is None:
            from_request["session_id"] = session
        return from_options.model_copy(update=from_request) if from_request else from_options

    return context


@asynccontextmanager
async def _open(corral: Corral, server: Any, view: Screen, where: str) -> AsyncGenerator[None]:
    """Opens the Corral during the block, and prints which tools are served and how many tokens they take and save."""
    async with AsyncExitStack() as stack:
        with moving(view, "starting"):
            await stack.enter_async_context(corral)
            own, each = await _own(server), [declared for _, declared in _each(corral)]
        view.err(f"{counted(len(each), 'tool')} {where}")
        view.err(f"as {counted(len(own), 'tool')} of {_tokens(own):,} tokens, instead of {_tokens(each):,}")
        yield


# --- over standard input and output


@contextmanager
def _wire() -> Generator[tuple[TextIO, io.FileIO]]:
    """Yields standard input and output for the protocol alone: other code reads nothing, and prints to stderr.

    They are not closed, because a thread can be reading or writing, which nothing can interrupt.
    """
    sys.stdout.flush()
    received = io.TextIOWrapper(os.fdopen(os.dup(0), "rb", closefd=False), encoding="utf-8", errors="replace")
    sent = io.FileIO(os.dup(1), "w", closefd=False)
    with redirect_stdout(sys.stderr):
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        try:
            yield received, sent
        finally:
            os.dup2(received.fileno(), 0)
            os.dup2(sent.fileno(), 1)


class _Input(anyio.AsyncFile[str]):
    """Reads lines of a file. The server can end while a read is pending.

    Lines that are too long are skipped; `refuse` is called with a part of each.
    """

    refuse: Callable[[str], Awaitable[None]]

    async def readline(self) -> str:
        while True:
            line, whole = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            if whole:
                return line
            await self.refuse(line)

    def _read(self) -> tuple[str, bool]:
        """Returns a line, or the head and tail of an overlong one, and whether it is complete."""
        line = self.wrapped.readline(_MESSAGE_BYTES)
        if len(line) < _MESSAGE_BYTES or line.endswith("\n"):
            return line, True
        head, more = line[:_HEAD_CHARS], line
        while more and not more.endswith("\n"):
            line, more = more, self.wrapped.readline(_MESSAGE_BYTES)
        return f"{head} … {(line + more)[-_HEAD_CHARS:]}", False


class _Output:
    """Writes to a file without buffering, so that closing it never waits for the reader."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    async def write(self, text: str) -> None:
        await anyio.to_thread.run_sync(self._write, text.encode(), abandon_on_cancel=True)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    async def flush(self) -> None: ...


async def _serve_wire(corral: Corral, server: Any, wire: tuple[TextIO, io.FileIO], view: Screen) -> None:
    stdio_server = import_module("mcp.server.stdio").stdio_server
    received, sent = _Input(wire[0]), _Output(wire[1])
    with anyio.CancelScope() as scope, interruptible(scope.cancel):
        async with _open(corral, server, view, "for a client at standard input"):
            if wire[0].isatty():
                view.err("this is a terminal: let an MCP client start this command, or serve at a URL with --http")
            with anyio.CancelScope() as talk:
                async with stdio_server(received, sent) as (read, write):

                    async def refuse(line: str) -> None:
                        await write.send(_refusal(line))

                    received.refuse = refuse
                    await server.run(read, write, server.create_initialization_options())
                    talk.deadline = anyio.current_time() + _SHUTDOWN_SECONDS


def _refusal(line: str) -> Any:
    """Returns the response to a message that is too long: an error, with the request's id if it can be found."""
    types = import_module("mcp_types")
    match = _REQUEST.match(line) or _REQUEST_ENDS.search(line)
    error = types.ErrorData(
        code=types.INVALID_REQUEST, message=f"the message is longer than {_MESSAGE_BYTES} characters"
    )
    answer = types.JSONRPCError(jsonrpc="2.0", id=None if match is None else json.loads(match[1]), error=error)
    return import_module("mcp.shared.message").SessionMessage(answer)


# --- over HTTP


async def _serve_http(
    corral: Corral, server: Any, listener: socket.socket, arguments: argparse.Namespace, view: Screen
) -> None:
    url = url_of(arguments.host, listener.getsockname()[1], arguments.allowed_hosts)
    authorization = _authorized(arguments, f"{url}{_PATH}")
    app = server.streamable_http_app(
        **authorization,
        streamable_http_path=_PATH,
        max_request_body_size=_MESSAGE_BYTES,
        max_sessions=_SESSIONS,
        transport_security=_security(url, arguments.allowed_hosts, arguments.allowed_origins),
    )
    probed = Drainable(app, lambda _method, _path: False, corral.unready)  # running programs still send requests
    serving = http_server(import_module("uvicorn"), probed, lifespan="on")

    def stop() -> None:
        serving.should_exit = True

    if not (authorization or is_loopback(arguments.host)):
        view.err(
            f"warning: everyone who can connect may run programs; to require tokens, set {_TOKEN_VARIABLE} or"
            " --oauth-issuer"
        )
    async with _open(corral, server, view, f"at {url}{_PATH}"):
        with interruptible(stop, lambda: corral.drain(arguments.drain_seconds)):
            await serving.serve([listener])


def _authorized(arguments: argparse.Namespace, url: str) -> dict[str, Any]:
    """Returns the arguments that make the SDK's app require tokens; empty if everyone can connect."""
    token = os.environ.get(_TOKEN_VARIABLE)
    if arguments.oauth_issuer is not None:
        if token is not None:
            raise ConfigError(f"--oauth-issuer and {_TOKEN_VARIABLE} cannot be used together")
        issued = _authorization().OAuthTokens(arguments.oauth_issuer, arguments.oauth_resource or url)
        return {"token_verifier": issued, "auth": issued.settings(arguments.oauth_scopes)}
    if token is None:
        return {}
    verifier = _authorization().OneToken(token)
    return {"token_verifier": verifier, "auth": verifier.settings(url)}


def _authorization() -> Any:
    try:
        return import_module("corral.integrations.mcp.authorization")
    except ModuleNotFoundError as error:
        reason = f"tokens for corral mcp need the module {error.name}: pip install 'corral[mcp,http,egress]'"
        raise MissingExtra(reason) from error


def _security(url: str, hosts: list[str], origins: list[str]) -> Any:
    """Returns the host names that requests may use, as protection against DNS rebinding."""
    settings = import_module("mcp.server.transport_security").TransportSecuritySettings
    if "*" in hosts:
        return settings(enable_dns_rebinding_protection=False)
    own = url.removeprefix("http://").rpartition(":")[0]
    names = dict.fromkeys((*_LOOPBACK, own, *hosts))
    return settings(
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*(f"http://{name}:*" for name in _LOOPBACK), *origins],
    )


# --- the length of lists


async def _list(corral: Corral, server: Any, view: Screen) -> None:
    async with corral.connected():
        every = _each(corral)
        view.out(_row("this server", await _own(server)))
        view.out(_row("if each tool were listed", [declared for _, declared in every]))
        for place, group in groupby(every, key=lambda each: each[0]):
            view.out(_row(f"  {place}", [declared for _, declared in group]))


async def _own(server: Any) -> list[Any]:
    """Returns the list of tools as clients receive it."""
    async with import_module("mcp").Client(server) as client:
        return [each.model_dump(by_alias=True, exclude_none=True) for each in (await client.list_tools()).tools]


def _each(corral: Corral) -> list[tuple[str, dict[str, Any]]]:
    """Returns all tools as an MCP server would list them, each with its position in the registry."""
    return [
        (
            name.namespace or "--tools",
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                **({} if tool.output_schema is None or tool.stream else {"outputSchema": tool.output_schema}),
            },
        )
        for name, tool in corral.tools.snapshot().items()
    ]


def _row(what: str, tools: Iterable[Any]) -> str:
    listed = list(tools)
    tools = f"{len(listed):>6} tool{' ' if len(listed) == 1 else 's'}"
    return f"{what:<26}{tools} {_tokens(listed):>9,} tokens"


def _tokens(tools: Sequence[Any]) -> int:
    """Estimates tokens, at four bytes each."""
    return -(-len(to_json(tools)) // 4)
