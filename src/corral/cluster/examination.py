"""Examination of one worker from a host, for `corral doctor --worker`."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from importlib.metadata import version

import anyio

from corral import Corral, CorralError
from corral.cluster.fleet import Node
from corral.cluster.provider import WorkerSandbox
from corral.cluster.wire import guest_digest
from corral.types import Language, Limits

_PROGRAMS: dict[Language, str] = {"typescript": "return 6 * 7", "python": "6 * 7"}
Finding = tuple[bool, str, str]
"""True if it is well, the name of the examined part, and details."""


def examine_worker(address: str, tls: ssl.SSLContext | None, server_name: str | None) -> list[Finding]:
    """Connects to a worker, compares its release and guests with this host's, and runs a program in each language."""
    return anyio.run(_examine, address, tls, server_name)


async def _examine(address: str, tls: ssl.SSLContext | None, server_name: str | None) -> list[Finding]:
    provider = WorkerSandbox([address], tls=tls, server_name=server_name, containment="none", wait_seconds=5)
    try:
        async with Corral(sandbox=provider, containment="none", check=False) as corral:
            (node,) = provider.nodes()
            findings = list(_state(node, "mutual TLS" if tls is not None else "the secret, without TLS"))
            for language, source in _PROGRAMS.items():
                if language not in node.guests:
                    findings.append((True, language, "not served"))
                    continue
                try:
                    result = await corral.execute(source, language=language, limits=Limits(wall_seconds=20))
                    right = result.value == 42
                    detail = f"a program runs in tier {node.guests[language][1]}" if right else f"{result.error}"
                except CorralError as error:
                    right, detail = False, str(error)
                findings.append((right, language, detail))
            return findings
    except CorralError as error:
        return [(False, address, str(error))]


def _state(node: Node, proof: str) -> Iterator[Finding]:
    yield True, node.address, f"reached; both sides proved themselves by {proof}"
    fits = all(
        digest == guest_digest(language) for language, (digest, *_) in node.guests.items() if language in _PROGRAMS
    )
    guests = "the same guests" if fits else "other guests: update it or this host"
    yield fits, "release", f"corral {node.release} there, {version('corral')} here, {guests}"
    state = "draining" if node.draining else f"{node.others} taken by other hosts"
    yield not node.draining, "places", f"{node.capacity}, {state}"
