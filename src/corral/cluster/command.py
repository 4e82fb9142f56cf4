"""`corral worker`: serves guests of this machine to Corral hosts."""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path

import anyio

from corral.cli.http_server import check_port
from corral.cli.options import add_certificates, add_drain, interruptible, mutual_tls
from corral.cli.parsing import Commands, add_command
from corral.cluster.wire import checked_secret
from corral.cluster.worker import Worker
from corral.concurrency.event_loop import asyncio_loop
from corral.containment import TIERS
from corral.errors import ConfigError, MissingExtra
from corral.jail import privileges

_HELP = """\
Serves jailed guests of this machine to Corral hosts. It runs no tools.

examples:
  CORRAL_WORKER_SECRET=... corral worker --host 10.0.0.7 --port 7000 --capacity 64
  corral worker --cert worker.pem --key worker.key --ca ca.pem

Hosts use it as Corral(sandbox=WorkerSandbox(["10.0.0.7:7000"])). The secret has at least 16 bytes; with --cert, both
sides show certificates, and a secret is optional. Without TLS, use it only in a network that nobody else can read.
SIGTERM refuses new programs, tells the hosts, and waits for running ones; a second signal ends it at once. GET /health
and GET /metrics answer at --probe-port.

exit codes: 0 ended by SIGTERM, 1 no program runs here, 2 wrong usage
"""


def add_worker(commands: Commands) -> None:
    parser = add_command(commands, "worker", _worker, _HELP)
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=7000, metavar="N", help="0 chooses a free port; default: 7000")
    parser.add_argument("--probe-port", type=int, metavar="N", help="serve /health and /metrics over HTTP here")
    parser.add_argument("--capacity", type=int, default=64, metavar="N", help="programs at once; default: 64")
    parser.add_argument(
        "--memory-mb",
        type=int,
        default=64,
        metavar="N",
        help="most memory of a program, for which guests are kept ready; default: 64",
    )
    parser.add_argument("--tier", choices=("auto", *TIERS), default="auto", help="the jail; default: the best")
    parser.add_argument(
        "--warm", choices=("typescript", "python"), action="append", metavar="LANGUAGE", help="default: both languages"
    )
    parser.add_argument(
        "--one-owner",
        action="store_true",
        help="serve only the owner whose program comes first, from that host; one program if it has no owner",
    )
    add_certificates(parser)
    parser.add_argument("--lifeline", type=int, metavar="FD", help="end once this descriptor is at its end")
    add_drain(parser)


def _worker(arguments: argparse.Namespace) -> int:
    if arguments.capacity < 1 or arguments.memory_mb < 1:
        raise ConfigError("--capacity and --memory-mb are at least 1")
    check_port(arguments.port, "--port")
    check_port(arguments.probe_port or 0, "--probe-port")
    tls = mutual_tls(arguments, is_server=True)
    secret = checked_secret(None, has_tls=tls is not None)
    if arguments.one_owner:  # its guests can be without a jail, as the same user
        privileges.hide()
    try:
        return anyio.run(_serve, arguments, secret, tls, backend_options={"use_uvloop": True})
    except ModuleNotFoundError as error:
        raise MissingExtra("corral worker needs uvloop: pip install 'corral[worker]'") from error


async def _serve(arguments: argparse.Namespace, secret: bytes, tls: ssl.SSLContext | None) -> int:
    worker = Worker(
        secret=secret,
        capacity=arguments.capacity,
        memory_mb=arguments.memory_mb,
        tier=arguments.tier,
        languages=tuple(arguments.warm or ("typescript", "python")),
        tls=tls,
        certificate=None if tls is None else ssl.PEM_cert_to_DER_cert(first_certificate(arguments.cert)),
        one_owner=arguments.one_owner,
    )
    stopped = asyncio.Event()
    try:
        await worker.warm()
        port = await worker.listen(arguments.host, arguments.port)
        print(f"corral worker at {arguments.host}:{port}", flush=True)
        if arguments.probe_port is not None:
            probe_port = await worker.listen_for_probes(arguments.host, arguments.probe_port)
            print(f"probes at http://{arguments.host}:{probe_port}/health", flush=True)
        loop = asyncio_loop()
        if arguments.lifeline is not None and loop is not None:
            loop.add_reader(arguments.lifeline, _listen_to_lifeline, arguments.lifeline, stopped)

        async def drain() -> None:
            await worker.drain(arguments.drain_seconds)

        with interruptible(stopped.set, drain):
            await stopped.wait()
    finally:
        await worker.aclose()
    return 0


def _listen_to_lifeline(descriptor: int, stopped: asyncio.Event) -> None:
    with suppress(OSError):
        if os.read(descriptor, 1):
            return
    stopped.set()
    asyncio.get_running_loop().remove_reader(descriptor)


def first_certificate(path: Path) -> str:
    """Returns the first certificate of a PEM file, without comments, which can be in any encoding."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    _, _, rest = path.read_text(encoding="latin-1").partition(begin)
    return f"{begin}{rest.partition(end)[0]}{end}\n"
