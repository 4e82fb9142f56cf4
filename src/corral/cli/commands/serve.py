"""`corral serve`: serves tools to programs elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import socket
import tempfile
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import anyio

from corral import Corral
from corral.calls import RemoteExecution
from corral.cli.http_server import Drainable, http_server, is_loopback, listening, url_of
from corral.cli.options import add_address, add_caller, add_drain, add_tools, caller, interruptible
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.run_options import add_limits, limits_of
from corral.cli.screen import Screen, counted, screen
from corral.cli.tool_loading import load_tools
from corral.errors import ConfigError, requires_extra
from corral.plugins import load_by_name

_LIMITS = {"calls": 10_000, "calls_in_flight": 128, "tool_input_bytes": 1_000_000, "tool_output_bytes": 4_000_000}
"""Limits on calls, with their defaults here. All programs that use one server share them."""
_WEB_PROTOCOLS = ("http", "connect", "graphql", "trpc")
_PROTOCOLS = (*_WEB_PROTOCOLS, "grpc")
_PORT = 8_787
_GRPC_PORT = 50_051
_OPTIONS = {
    "--port": ("port", _WEB_PROTOCOLS),
    "--allow-host": ("allowed_hosts", _WEB_PROTOCOLS),
    "--allow-origin": ("allowed_origins", _WEB_PROTOCOLS),
    "--grpc-port": ("grpc_port", ("grpc",)),
    "--graphiql": ("graphiql", ("graphql",)),
}
"""Options that only some protocols have: their argument, and the protocols."""
_FRESH_SECONDS = 60.0
"""Maximum age in seconds of the token in --env-file."""
_HELP = """\
Serves tools to programs elsewhere, over HTTP or another protocol.

Standard output has two lines for a shell, CORRAL_URL=... and CORRAL_TOKEN=..., for the runtime's connectFromEnvironment
or, in Python, connect_from_environment. GET /corral.mjs returns that runtime, GET /corral_tools.py the one for Python.
A token is valid for five minutes, and its holder can renew it while the server runs; --env-file has the same lines
with a fresh token. All programs make calls on behalf of the same user.

  corral serve --tools app.tools --env-file bridge.env &
  set -a; . ./bridge.env; node program.mjs

GET /healthz and GET /readyz answer probes. Ctrl-C cancels running calls and ends the server. SIGTERM refuses new calls,
waits for running ones, and then ends the server; a second signal ends it at once.

exit codes: 0 it was ended, 2 wrong usage or set-up
"""


def add_serve(commands: Commands) -> None:
    parser = add_command(commands, "serve", _serve, _HELP)
    add_tools(parser)
    address = parser.add_argument_group("address")
    add_address(address, default_port=_PORT)
    parser.set_defaults(port=None)
    address.add_argument(
        "--protocol",
        dest="protocols",
        action="append",
        choices=_PROTOCOLS,
        help="protocol to serve; can be repeated: several are at /http, /trpc and so on, gRPC on a separate port; "
        "default: http",
    )
    address.add_argument(
        "--grpc-port",
        type=int,
        metavar="N",
        help=f"port of --protocol grpc; 0 chooses a free port; default: {_GRPC_PORT}",
    )
    address.add_argument(
        "--graphiql",
        type=Path,
        metavar="FOLDER",
        help="with --protocol graphql, serve GraphiQL from a node_modules with graphiql@3, react@18 and react-dom@18",
    )
    address.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="keep the address and a fresh token in FILE, readable only by you",
    )
    add_drain(parser)
    context = add_caller(parser)
    context.add_argument(
        "--approve", choices=("all", "none"), default="none", help="for calls that require approval; default: none"
    )
    add_limits(parser, _LIMITS)


def _serve(arguments: argparse.Namespace) -> int:
    uvicorn = _uvicorn()
    protocols = [*dict.fromkeys(arguments.protocols or _PROTOCOLS[:1])]
    _refuse_ignored(arguments, protocols)
    with screen() as view:
        with moving(view, "loading tools"):
            grpc = _grpc(arguments) if "grpc" in protocols else None
            corral = Corral(
                load_tools(arguments.tools, arguments.mcp_configs, required=True),
                bridge="pipe" if grpc is None else ["pipe", grpc],
                limits=limits_of(arguments),
                audit=arguments.audit,
                policy=arguments.policies or None,
                hide_denied=arguments.hide_denied or None,
                approve=(lambda _: True) if arguments.approve == "all" else None,
            )
        if protocols == ["grpc"]:
            asyncio.run(_until_stopped(_Serving(corral, None, grpc, arguments), view))
            return 0
        with listening(arguments.host, _PORT if arguments.port is None else arguments.port) as listener:
            root = url_of(arguments.host, listener.getsockname()[1], arguments.allowed_hosts)
            names = [each for each in protocols if each != "grpc"]
            app, url = _app(corral, root, names, arguments)
            if arguments.graphiql is not None:
                view.err(f"GraphiQL at {root if len(names) == 1 else f'{root}/graphql'}/graphiql")
            drainable = Drainable(app, lambda _method, _path: True)
            server = http_server(uvicorn, drainable, lifespan="off")
            if not (is_loopback(arguments.host) or arguments.allowed_hosts):
                view.err(f"warning: only requests to {url} or this machine are accepted; allow others by --allow-host")
            web = _Web(server, listener, url, drainable)
            asyncio.run(_until_stopped(_Serving(corral, web, grpc, arguments), view))
    return 0


def _refuse_ignored(arguments: argparse.Namespace, protocols: list[str]) -> None:
    """Raises ConfigError for an option that no selected protocol uses."""
    for option, (name, having) in _OPTIONS.items():
        if getattr(arguments, name) not in (None, []) and not set(having) & set(protocols):
            needed = " or ".join(filter(None, (", ".join(having[:-1]), having[-1])))
            raise ConfigError(
                f"{option} has no effect on --protocol {', '.join(protocols)}; leave it out, or add --protocol {needed}"
            )


class _Web(NamedTuple):
    """HTTP server, and the address of the first protocol."""

    server: Any
    listener: socket.socket
    url: str
    app: Drainable


class _Serving(NamedTuple):
    """Servers of a Corral: HTTP, gRPC, or both."""

    corral: Corral
    web: _Web | None
    grpc: Any
    arguments: argparse.Namespace

    @property
    def url(self) -> str:
        """Address for CORRAL_URL. With gRPC alone, it is known once the server is listening."""
        return f"http://{self.grpc.address}" if self.web is None else self.web.url


def _grpc(arguments: argparse.Namespace) -> Any:
    """Creates the gRPC bridge.

    Raises:
        ConfigError: tokens would be sent in plaintext, or the port is taken.
    """
    if not is_loopback(arguments.host):
        raise ConfigError(
            f"--protocol grpc on {arguments.host} would send tokens in plaintext; leave out --host, and put a "
            "proxy with a certificate in front of it"
        )
    port = _GRPC_PORT if arguments.grpc_port is None else arguments.grpc_port
    with listening(arguments.host, port, "--grpc-port"):  # gRPC itself only prints the error to stderr
        pass
    return load_by_name("corral.bridges", "grpc", host=arguments.host, port=port)


def _app(corral: Corral, url: str, protocols: list[str], arguments: argparse.Namespace) -> tuple[Any, str]:
    """Returns the app of all selected protocols over HTTP, and the address of the first."""
    alone = len(protocols) == 1
    apps: dict[str, Any] = {}
    for name in protocols:
        bridge = load_by_name(
            "corral.bridges",
            name,
            url=url if alone else f"{url}/{name}",
            allowed_hosts=arguments.allowed_hosts,
            allowed_origins=arguments.allowed_origins,
            **({"graphiql": arguments.graphiql} if name == "graphql" else {}),
        )
        apps[name] = corral.remote.asgi_app(bridge)
    if alone:
        return apps[protocols[0]], url
    routing = import_module("starlette.routing")
    routes = [
        each for name, app in apps.items() for each in (routing.Route(f"/{name}", app), routing.Mount(f"/{name}", app))
    ]
    return routing.Router(routes, redirect_slashes=False), f"{url}/{protocols[0]}"


def _uvicorn() -> ModuleType:
    with requires_extra("corral serve", "http"):
        return import_module("uvicorn")


async def _until_stopped(serving: _Serving, view: Screen) -> None:
    async with AsyncExitStack() as stack:
        with moving(view, "starting"):
            await stack.enter_async_context(serving.corral.connected(bridges=True))
        await _served(serving, view)


async def _served(serving: _Serving, view: Screen) -> None:
    corral, web, grpc, arguments = serving
    try:
        with corral.remote.grant(caller(arguments)) as execution:
            stopped = asyncio.Event()

            def stop() -> None:
                execution.end()
                stopped.set()
                if web is not None:
                    web.server.should_exit = True

            async def drain() -> None:
                async with anyio.create_task_group() as tasks:
                    for each in (grpc, None if web is None else web.app):
                        if each is not None:
                            tasks.start_soon(each.drain, arguments.drain_seconds)

            url = serving.url
            variables = _variables(url, execution)  # first, because it raises if the extra is missing
            with interruptible(stop, drain):
                keeping: asyncio.Task[None] | None = None
                if (path := arguments.env_file) is not None:
                    write_private(path, variables)
                    keeping = asyncio.create_task(_keep_fresh(path, url, execution))
                beside = "" if grpc is None or web is None else f", over gRPC at {grpc.address}"
                view.err(f"{counted(len(corral.tools.snapshot()), 'tool')} at {url}{beside}")
                view.out(variables.rstrip())
                await (stopped.wait() if web is None else web.server.serve([web.listener]))
                if keeping is not None:
                    keeping.cancel()
    finally:
        await corral.aclose()


def _variables(url: str, execution: RemoteExecution) -> str:
    return f"CORRAL_URL={shlex.quote(url)}\nCORRAL_TOKEN={shlex.quote(execution.token())}\n"


async def _keep_fresh(path: Path, url: str, execution: RemoteExecution) -> None:
    """Writes a new token to the file, while the previous one is still valid for some minutes."""
    while True:
        await asyncio.sleep(_FRESH_SECONDS)
        write_private(path, _variables(url, execution))


def write_private(path: Path, text: str) -> None:
    """Writes a file atomically, readable only by its owner: under a unique name, which then replaces the file."""
    try:
        file, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(file, "w", encoding="utf-8") as opened:
                opened.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
