"""Options that several commands share (tools, callers, addresses), and the handling of Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import ssl
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from corral import ExecutionContext
from corral.errors import ConfigError

_DRAIN_SECONDS = 30.0


def add_repeatable(
    group: argparse._ActionsContainer,  # pyright: ignore[reportPrivateUsage]
    option: str,
    metavar: str,
    text: str,
    **settings: Any,
) -> None:
    """Adds an option whose values become a list; `text` is its help."""
    settings = {"default": [], "metavar": metavar, "help": f"{text}; can be repeated", **settings}
    group.add_argument(option, action="append", **settings)


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `load_tools`."""
    add_repeatable(parser, "--tools", "PLACE", "module, module:name or file.py[:name]")
    text = "JSON file with mcpServers, whose tools are added"
    add_repeatable(parser, "--mcp-config", "FILE", text, dest="mcp_configs", type=Path)


def add_caller(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:  # pyright: ignore[reportPrivateUsage]
    """Adds a group with the options of `caller` and `--audit`."""
    group = parser.add_argument_group("caller")
    group.add_argument("--user", dest="user_id", metavar="ID")
    group.add_argument("--organization", dest="organization_id", metavar="ID")
    group.add_argument("--session", dest="session_id", metavar="ID")
    group.add_argument("--scope", dest="scopes", action="append", metavar="SCOPE", help="can be repeated")
    add_repeatable(group, "--policy", "FILE", "a policy file, with rules about calls", dest="policies")
    group.add_argument("--hide-denied", action="store_true", help="hide tools that the caller may not call")
    group.add_argument(
        "--audit",
        type=_audit_place,
        metavar="PLACE",
        help="write an audit log: a .jsonl or .sqlite file, or a postgresql:// URL",
    )
    return group


def _audit_place(text: str) -> str:
    folder = Path(text).parent
    if "://" not in text and not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {folder}")
    return text


def existing_ledger(place: str) -> str:
    """Returns the path or URL of a ledger. Raises ConfigError if there is no such file."""
    if "://" not in place and not Path(place).is_file():
        raise ConfigError(f"the ledger {place} does not exist; pass the file of `corral run --ledger`")
    return place


def add_address(group: argparse._ArgumentGroup, *, default_port: int) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds options for a server's address, and the hosts and origins that it accepts."""
    group.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    group.add_argument(
        "--port", type=int, default=default_port, metavar="N", help=f"0 chooses a free port; default: {default_port}"
    )
    text = "a host name that requests may use, besides this machine's"
    add_repeatable(group, "--allow-host", "NAME", text, dest="allowed_hosts")
    text = "a site whose pages may send requests, such as https://app.example"
    add_repeatable(group, "--allow-origin", "URL", text, dest="allowed_origins")


def add_drain(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds the option for the waiting time after SIGTERM."""
    parser.add_argument(
        "--drain-seconds",
        type=_not_negative,
        default=_DRAIN_SECONDS,
        metavar="N",
        help=f"after SIGTERM, refuse new work and wait this long for running work; default: {_DRAIN_SECONDS:n}",
    )


def add_certificates(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds the options of `mutual_tls`."""
    for option, text in (("--cert", "this side's certificate"), ("--key", "its key"), ("--ca", "CA of the other side")):
        parser.add_argument(option, type=Path, metavar="FILE", help=text)


def mutual_tls(arguments: argparse.Namespace, *, is_server: bool) -> ssl.SSLContext | None:
    """Returns a context of TLS 1.3 in which both sides show a certificate; None without the options.

    Raises:
        ConfigError: some of the options are missing, or a file cannot be used.
    """
    files = arguments.cert, arguments.key, arguments.ca
    if not any(files):
        return None
    if not all(files):
        raise ConfigError("TLS needs --cert, --key and --ca together")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(arguments.cert, arguments.key)
        context.load_verify_locations(arguments.ca)
    except OSError as error:
        raise ConfigError(f"cannot use the certificates {', '.join(map(str, files))}: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def caller(arguments: argparse.Namespace) -> ExecutionContext:
    """Returns the context that the options describe."""
    return ExecutionContext(**passed_options(arguments, "user_id", "organization_id", "session_id", "scopes"))


def passed_options(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Returns those of the named options that were passed."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


@contextmanager
def interruptible(
    stop: Callable[[], object], drain: Callable[[], Coroutine[Any, Any, object]] | None = None
) -> Generator[None]:
    """During the block, makes Ctrl-C and SIGTERM call `stop` in the event loop. A second signal ends the process.

    On SIGTERM, awaits `drain` first, if passed.

    The handlers are Python's, not the event loop's, so that the second signal works while a tool blocks the loop. The
    loop also has handlers, without effect, which wake it up for a signal that the kernel delivered to another thread.
    """
    loop = asyncio.get_running_loop()
    stopping = False
    draining: asyncio.Task[None] | None = None

    async def drained(first: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            await first()
        finally:
            stop()

    def start(first: Callable[[], Coroutine[Any, Any, object]]) -> None:
        nonlocal draining
        draining = loop.create_task(drained(first))

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            os._exit(128 + number)
        stopping = True
        if number == signal.SIGTERM and drain is not None:
            loop.call_soon_threadsafe(start, drain)
        else:
            loop.call_soon_threadsafe(stop)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        if sys.platform != "win32":  # there, the loop wakes by itself
            loop.add_signal_handler(number, lambda: None)
        signal.signal(number, handle)
    try:
        yield
    finally:
        if draining is not None:
            draining.cancel()
        for number, handler in before.items():
            if sys.platform != "win32":
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
