"""`corral chat`: a chat page in the browser, for an agent or for the demo."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import importlib
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio

from corral import Corral
from corral.cli.http_server import Drainable, http_server, is_loopback, listening, url_of
from corral.cli.options import add_drain, interruptible
from corral.cli.parsing import Commands, add_command
from corral.cli.screen import Screen, screen
from corral.errors import ConfigError, MissingExtra, requires_extra
from corral.rendering.suggestions import NearNames
from corral.types import ExecutionContext

_HELP = """\
Shows a chat page for an agent, with its programs' calls and output.

AGENT is module:name: a ChatAgent, or an agent of pydantic-ai, LangChain, openai-agents or google-adk. The module must
also have the Corral of its programs, as `corral`, unless a pydantic-ai agent has it in its CodeMode; calls wait for a
click if it has approve=lambda _: Later().
AGENT can also be a Corral. Then, and for the demo's tools without an AGENT, the first key of ANTHROPIC_API_KEY,
OPENAI_API_KEY and GOOGLE_GENERATIVE_AI_API_KEY chooses the model, by pydantic-ai.

  corral chat --demo
  corral chat app:agent --store chats.db
  corral chat app:corral

Only the browser that opens the printed address first can use the page. GET /healthz and GET /readyz answer probes.
Ctrl-C ends the server. SIGTERM refuses new messages, waits for programs and for replies that a page follows, and then
ends it; a second signal ends it at once.

exit codes: 0 ended by a signal, 2 wrong usage or set-up
"""


def add_chat(commands: Commands) -> None:
    parser = add_command(commands, "chat", _chat, _HELP, takes="AGENT")
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="module:name")
    parser.add_argument("--demo", action="store_true", help="a scripted model and demo tools; needs no key")
    parser.add_argument("--host", default="127.0.0.1", help="an address of this machine; default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8788, metavar="N", help="0 takes a free one; default: 8788")
    parser.add_argument(
        "--store", metavar="STORE", help="keep conversations in a SQLite file, or at a postgresql:// URL"
    )
    parser.add_argument(
        "--ledger",
        metavar="LEDGER",
        help="programs that wait for approvals pause, and survive the server; for the demo",
    )
    add_drain(parser)


def _chat(arguments: argparse.Namespace) -> int:
    uvicorn, chat = _loaded("uvicorn"), _loaded("corral.chat")
    if arguments.demo and arguments.agent is not None:
        raise ConfigError("name the agent, module:name, or use --demo, not both")
    if not is_loopback(arguments.host):
        raise ConfigError(
            f"--host {arguments.host} is not a loopback address; to serve others, mount corral.chat.chat_app"
        )
    if arguments.ledger is not None and arguments.agent is not None:
        raise ConfigError("--ledger is for the demo; make the agent's Corral with Corral(ledger=...)")
    with screen() as view:
        suggestions: tuple[str, ...] = ()
        if arguments.agent is None:
            demo = _loaded("corral.chat.demo")
            durable = arguments.ledger is not None
            corral, suggestions = demo.demo_corral(arguments.ledger), demo.SUGGESTIONS
            agent = demo.DemoAgent(corral, durable=durable) if arguments.demo else _by_environment(corral)
        else:
            corral, agent = _found(arguments.agent)
        store = chat.MemoryChats() if arguments.store is None else _store(chat, arguments.store)
        with listening(arguments.host, arguments.port) as listener:
            port = listener.getsockname()[1]
            login = chat.OneTimeLogin(ExecutionContext(user_id=getpass.getuser()), port)
            app = chat.chat_app(
                corral,
                agent,
                authenticate=login.authenticate,
                store=store,
                suggestions=suggestions,
            )
            drainable = Drainable(login.guard(app), _is_message, corral.unready)
            server = http_server(uvicorn, drainable, lifespan="on")
            address = f"{url_of(arguments.host, port, [])}/?code={login.code}"

            async def drain() -> None:
                with anyio.move_on_after(arguments.drain_seconds):
                    await drainable.drain(arguments.drain_seconds)
                    await corral.drain(arguments.drain_seconds)

            asyncio.run(_serve(corral, store, server, listener, address, view, drain))
    return 0


def _is_message(method: str, path: str) -> bool:
    """True for a request whose response lasts until the end of an agent's reply."""
    return method == "POST" and path == "/api/chat"


async def _serve(
    corral: Any,
    store: Any,
    server: Any,
    listener: socket.socket,
    address: str,
    view: Screen,
    drain: Callable[[], Coroutine[Any, Any, object]] | None = None,
) -> None:
    await store.open()
    async with corral:

        def stop() -> None:
            server.should_exit = True
            server.force_exit = True  # streams of pages do not end on their own

        with interruptible(stop, drain):
            view.err("open this address in a browser; it works once:")
            view.out(address)
            await server.serve([listener])
            await server.lifespan.shutdown()  # stores replies, which `force_exit` skips


def _store(chat: Any, place: str) -> Any:
    if place.startswith(("postgresql://", "postgres://")):
        return chat.PostgresChats(place)
    return chat.SqliteChats(place)


def _loaded(name: str) -> ModuleType:
    with requires_extra("corral chat", "chat"):
        return importlib.import_module(name)


def _found(place: str) -> tuple[Any, Any]:
    """Imports an agent and its Corral."""
    module_name, colon, name = place.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{place!r} does not name an agent; write module:name, such as app:agent")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        is_file = module_name.endswith(".py") and Path(module_name).exists()
        if not f"{module_name}.".startswith(f"{error.name}."):
            remedy = f"install {error.name}"
        elif is_file:
            remedy = f"write {module_name.removesuffix('.py')}:{name}"
        else:
            remedy = f"start it in the folder of {module_name}"
        raise ConfigError(f"{module_name} cannot be imported: there is no module {error.name!r}; {remedy}") from error
    if not hasattr(module, name):
        near = NearNames(vars(module)).of(name)
        hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise ConfigError(f"{module_name} has no {name!r}{hint}")
    target, corral = getattr(module, name), getattr(module, "corral", None)
    if isinstance(target, Corral):
        return target, _by_environment(target)
    agent = _loaded("corral.chat.agents").chat_agent_of(target)
    if not isinstance(corral, Corral):
        capability = getattr(target, "root_capability", None)  # pydantic-ai
        corrals = [each.corrals for each in getattr(capability, "capabilities", ()) if hasattr(each, "corrals")]
        if not corrals or not isinstance(corral := corrals[0], Corral):
            raise ConfigError(
                f"{module_name} has no Corral named 'corral', and {name} has no capability CodeMode with one; the page "
                "needs it to show programs"
            )
    return corral, agent


def _by_environment(corral: Corral) -> Any:
    """Makes an agent with the model whose API key is set."""
    try:
        environment = importlib.import_module("corral.chat.agents.environment")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"a chat without an agent needs the module {error.name}: pip install 'corral[pydantic-ai]'; "
            "or use --demo, which needs no key"
        ) from error
    return environment.chat_agent_by_environment(corral)
