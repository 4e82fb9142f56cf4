"""Sandbox provider whose guests are on other machines."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, cast
from weakref import WeakKeyDictionary

from typing_extensions import override

from corral.arguments import checked
from corral.cluster.fleet import Discover, Fleet, Node, Ticket
from corral.cluster.wire import (
    SECONDS,
    VERSION,
    Kind,
    Peer,
    WireError,
    checked_secret,
    engine_version,
    guest_digest,
    json_record,
    parsed,
    record,
    records,
    release,
    split_address,
)
from corral.concurrency.event_loop import asyncio_loop
from corral.containment import TIERS, ContainmentKind, Tier
from corral.errors import ConfigError, StartFailed
from corral.guest.python.frames import PROTOCOL
from corral.jail.spaces import SpaceHost
from corral.sandboxes import FramedProvider, GuestChannel, GuestFiles, PostMortem, Sandbox, SandboxProvider
from corral.types import Capabilities, Language, LimitName, SandboxConfig

_OPEN_SECONDS = 35.0
_CLOSE_SECONDS = 5.0
_MOST_AFTER_CLOSE = 4 << 20
"""Maximum bytes that a worker may send between CLOSE and CLOSED."""
_REPORTS = 40
"""Maximum number of CPU and ALIVE records at once; then 20 a second. A worker sends four."""
_STDERR_CHARS = 16_384
_TEXT_CHARS = 400
_TRIES = 8


class _RefusedError(Exception):
    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


class _StaleError(ConnectionError):
    """A kept connection was lost before the worker answered. That says nothing about the worker."""


@checked
class WorkerSandbox(FramedProvider):
    """Runs programs on other machines, on which `corral worker` runs. Tools stay here.

    `workers` are addresses, host:port. `discover` finds them instead, or in addition: `dns:name:port`, or an async
    function that returns addresses. `secret` is shared by hosts and workers, by default the environment variable
    CORRAL_WORKER_SECRET. `tls` is a context with this host's certificate, in place of a secret or in addition;
    `server_name` is the name in the workers' certificates, if it is not the address. `containment` is your knowledge of
    the workers, and is shown by results; workers of a lower tier are not used. A start waits up to `wait_seconds` while
    all workers are full. `local` runs executions with session files on this machine, by language; without it they are
    refused.

    Raises:
        ConfigError: an argument has an invalid value.
    """

    name: ClassVar[str] = "workers"
    languages = frozenset[Language]({"typescript", "python"})
    enforces = frozenset[LimitName]({"cpu_seconds", "memory_mb"})

    def __init__(
        self,
        workers: Iterable[str] = (),
        *,
        discover: Discover | None = None,
        secret: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        containment: Tier | ContainmentKind = "namespaces",
        wait_seconds: float = 30.0,
        local: Mapping[Language, SandboxProvider] | None = None,
    ) -> None:
        self._workers = tuple(workers)
        for address in self._workers:
            split_address(address)
        if not self._workers and discover is None:
            raise ConfigError("WorkerSandbox has no workers: pass workers=[...] or discover=...")
        if isinstance(discover, str):
            if not discover.startswith("dns:"):
                raise ConfigError(f"discover={discover!r} is neither a function nor dns:name:port")
            split_address(discover.removeprefix("dns:"))
        if not 0 <= wait_seconds < math.inf:
            raise ConfigError(f"wait_seconds={wait_seconds} is not a number of seconds")
        self._discover = discover
        self._secret = checked_secret(secret, has_tls=tls is not None)
        self._owner_key = self._secret or secrets.token_bytes(32)
        self._tls = tls
        self._server_name = server_name
        self._wait_seconds = wait_seconds
        self._local = dict(local or {})
        self._tier: Tier = cast("Tier", str(containment)) if containment in TIERS else "none"
        self.containment = (
            containment if isinstance(containment, ContainmentKind) else ContainmentKind.of_tier(containment)
        )
        self.start_timeout_seconds = wait_seconds + _OPEN_SECONDS
        self._fleets: WeakKeyDictionary[asyncio.AbstractEventLoop, Fleet] = WeakKeyDictionary()

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, durable=True)

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        """Returns the version of this host's engine. Durable executions run only on workers with the same one."""
        return engine_version(config.language)

    async def warm(self, config: SandboxConfig) -> None:
        await super().warm(config)
        fleet = await self._fleet()
        fleet.expect_any()

    async def start(self, config: SandboxConfig) -> Sandbox:
        if config.space is not None:
            local = self._local.get(config.language)
            if local is None:
                raise StartFailed(_NO_FILES)
            return await local.start(config)
        return await super().start(config)

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:
        local = self._local.get(config.language)
        if local is None:
            raise StartFailed(_NO_FILES)
        return await local.space_host(config)

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        del guest  # the worker has it; its digest is compared
        fleet = await self._fleet()
        ticket = Ticket(config, self._tier)
        opening = json_record(Kind.OPEN, self._opening(config))
        failure = ""
        for _ in range(_TRIES):
            try:
                node = await fleet.place(ticket, self._wait_seconds)
            except StartFailed as error:
                raise StartFailed(f"{failure}; then {error}" if failure else str(error)) from None
            try:
                return await _opened(fleet, node, opening)
            except _RefusedError as refusal:
                failure = f"worker {node.address} refused: {refusal}"
                if refusal.why == "full":
                    node.others = max(node.others, node.capacity - node.mine)
                elif refusal.why == "draining":
                    node.draining = True
                else:
                    ticket.excluded.add(node.address)
                    if ticket.excluded >= fleet.nodes.keys():
                        raise StartFailed(failure) from None
            except (OSError, TimeoutError, WireError) as error:
                failure = f"worker {node.address}: {str(error) or type(error).__name__}"
                if not isinstance(error, _StaleError):
                    ticket.excluded.add(node.address)
                    if ticket.excluded >= fleet.nodes.keys():
                        ticket.excluded.clear()  # a busy worker, or a busy host, can miss the time for a handshake
            ticket.place = asyncio.get_running_loop().create_future()
        raise StartFailed(failure)

    def nodes(self) -> list[Node]:
        """Returns the workers that the running event loop is connected to."""
        loop = asyncio_loop()
        fleet = None if loop is None else self._fleets.get(loop)
        return [] if fleet is None else list(fleet.nodes.values())

    async def aclose(self) -> None:
        loop = asyncio_loop()
        fleet = None if loop is None else self._fleets.pop(loop, None)
        if fleet is not None:
            fleet.close()
        for local in self._local.values():
            await local.aclose()

    async def _fleet(self) -> Fleet:
        loop = asyncio_loop()
        if loop is None:
            raise StartFailed("sandbox 'workers' needs asyncio; the running event loop belongs to another library")
        fleet = self._fleets.get(loop)
        if fleet is None:
            fleet = self._fleets[loop] = Fleet(
                self._workers, self._discover, secret=self._secret, tls=self._tls, server_name=self._server_name
            )
        await fleet.open()
        return fleet

    def _opening(self, config: SandboxConfig) -> dict[str, object]:
        owner = None
        if config.owner is not None:  # the worker does not learn who its guests are for
            owner = hmac.digest(self._owner_key, b"owner" + json.dumps(config.owner).encode(), "sha256").hex()
        return {
            "version": VERSION,
            "protocol": PROTOCOL,
            "guest": guest_digest(config.language),
            "release": release(),
            "language": config.language,
            "memory_mb": config.memory_mb,
            "tier": self._tier,
            "owner": owner,
            **({"durable": True} if config.durable else {}),
        }


_NO_FILES = (
    "executions with session files run on the host's own machine, not on workers; pass "
    "WorkerSandbox(local={'typescript': DenoSandbox(), 'python': CPythonSandbox()})"
)


async def _opened(fleet: Fleet, node: Node, opening: bytes) -> GuestChannel:
    """Starts a guest in a place of this worker, which the channel frees. Frees it now if it fails."""
    kept = fleet.kept_connection(node)
    try:
        peer = kept or await fleet.connect_guest(node)
    except BaseException:
        fleet.release(node)
        raise
    channel = _WorkerChannel(fleet, node, peer)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            peer.write(opening)
            await channel.opened
    except _RefusedError:
        channel.leave(reusable=True)
        raise
    except ConnectionError as error:
        channel.leave(reusable=False)
        if kept is not None and node.lost is None:
            fleet.drop_connections(node)
            raise _StaleError(str(error)) from error
        raise
    except BaseException:
        channel.leave(reusable=False)
        raise
    return channel


class _WorkerChannel(GuestChannel):
    """Guest at a worker. Everything that arrives is hostile: bounded, of few kinds, in order."""

    def __init__(self, fleet: Fleet, node: Node, peer: Peer) -> None:
        self._fleet = fleet
        self._node = node
        self._peer = peer
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._early: list[bytes] = []
        self._receive: Callable[[bytes], None] = self._early.append
        self._end: Callable[[Exception | None], None] | None = None
        self._on_cpu: Callable[[float], None] = lambda _: None
        self._traces: PostMortem | None = None
        self._cpu = 0.0
        self._reports = 0
        self._since = fleet.now()
        self._closed = False
        self._after_close = 0
        self._timer: asyncio.TimerHandle | None = None
        self._left = False
        node.live.add(peer)
        peer.take, peer.lost = self._take, self._gone

    # --- the contract of a channel

    def attach(
        self,
        receive: Callable[[bytes], None],
        ended: Callable[[Exception | None], None],
        on_cpu: Callable[[float], None],
    ) -> bool:
        self._receive, self._end, self._on_cpu = receive, ended, on_cpu
        for data in self._early:
            receive(data)
        self._early = []
        if self._peer.over:
            self._gone(None)
        elif self._traces is not None:
            ended(None)
        return True

    def send_now(self, data: bytes | bytearray) -> int:
        peer = self._peer
        if peer.full or peer.over:
            return 0
        self._write(records(Kind.DATA, data))
        return len(data)

    async def send(self, data: bytes) -> None:
        await self._peer.drained()
        self._write(records(Kind.DATA, data))

    def limit_cpu(self, seconds: float) -> None:
        self._write(record(Kind.LIMIT, SECONDS.pack(seconds)))

    async def post_mortem(self) -> PostMortem:
        return self._traces or PostMortem()

    async def aclose(self) -> None:
        """Has the worker end the guest. Does not wait; the connection is kept once the worker has confirmed the end."""
        if self._closed or self._left:
            return
        self._closed = True
        self._end = None
        self._peer.write(record(Kind.CLOSE))
        self._timer = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._peer.abort)

    def leave(self, *, reusable: bool) -> None:
        """Frees the place. Idempotent."""
        if self._left:
            return
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
        self._node.live.discard(self._peer)
        if reusable:
            self._fleet.keep_connection(self._node, self._peer)
        else:
            self._peer.take, self._peer.lost = lambda _kind, _payload: None, lambda _: None
            self._peer.abort()
        self._fleet.release(self._node)

    def _write(self, data: bytes) -> None:
        if not self._closed:  # afterwards, the connection can have another guest
            self._peer.write(data)

    # --- records of the worker

    def _take(self, kind: int, payload: bytes) -> None:
        if not self.opened.done():
            self._take_answer(kind, payload)
        elif kind == Kind.CLOSED:
            if not self._closed:
                raise WireError("CLOSED without CLOSE")
            self.leave(reusable=True)
        elif self._closed:
            self._after_close += len(payload) + 1
            if self._after_close > _MOST_AFTER_CLOSE:
                raise WireError("it did not stop after CLOSE")
        elif kind == Kind.ALIVE:
            self._count_report()
        elif self._traces is not None:
            raise WireError("a record after END")
        elif kind == Kind.OUTPUT:
            if not payload:
                raise WireError("an empty OUTPUT")
            self._receive(payload)
        elif kind == Kind.CPU:
            self._count_report()
            self._take_cpu(payload)
        elif kind == Kind.END:
            self._traces = _traces(payload)
            if self._end is not None:
                self._end(None)
        else:
            raise WireError(f"a record of kind {kind}")

    def _take_answer(self, kind: int, payload: bytes) -> None:
        if len(payload) > 4 * _TEXT_CHARS + 100:
            raise WireError("an answer that is too long")
        match kind, parsed(payload):
            case Kind.OPENED, {"tier": str() as tier} if tier in TIERS:
                self.opened.set_result(None)
            case Kind.REFUSED, {"why": str() as why, "text": str() as text}:
                self.opened.set_exception(_RefusedError(why, text[:_TEXT_CHARS]))
            case _:
                raise WireError("a malformed answer to OPEN")

    def _count_report(self) -> None:
        self._reports += 1
        if self._reports > _REPORTS + 20 * (self._fleet.now() - self._since):
            raise WireError("too many reports")

    def _take_cpu(self, payload: bytes) -> None:
        if len(payload) != SECONDS.size:
            raise WireError("a report of processor time that is not a number")
        (seconds,) = SECONDS.unpack(payload)
        if not self._cpu < seconds < 1e9:
            raise WireError("a processor clock that does not grow")
        self._cpu = seconds
        self._on_cpu(seconds)

    def _gone(self, error: Exception | None) -> None:
        end, self._end = self._end, None
        self.leave(reusable=False)
        if not self.opened.done():
            self.opened.set_exception(error if isinstance(error, WireError) else ConnectionResetError("it hung up"))
            self.opened.exception()  # the caller may be gone
        elif not self._closed:
            lost = self._fleet.lost_guest(self._node, error)
            if end is not None:
                end(lost)


def _traces(payload: bytes) -> PostMortem:
    if len(payload) > 8 * _STDERR_CHARS:
        raise WireError("an END that is too long")
    match parsed(payload):
        case {"status": int() | None as status, "oom": bool() as oom, "stderr": str() as stderr}:
            return PostMortem(status=status, out_of_memory=oom, stderr=stderr[-_STDERR_CHARS:])
        case _:
            raise WireError("a malformed END")
