"""Workers as one host sees them: who is there, how loaded they are, and which one runs the next program."""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import hmac
import json
import random
import ssl
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, cast

from corral.cluster.wire import (
    HANDSHAKE_SECONDS,
    MAX_BEFORE_PROOF,
    MAX_RECORD,
    NONCE_BYTES,
    PROOF_BYTES,
    VERSION,
    Kind,
    Peer,
    WireError,
    engine_version,
    guest_digest,
    nonce,
    parsed,
    proof,
    record,
    split_address,
)
from corral.containment import TIERS, Tier, reaches
from corral.errors import StartFailed
from corral.logs import get_logger
from corral.sandboxes import ChannelLost
from corral.types import Language, Owner, SandboxConfig

logger = get_logger("corral.cluster")

Discover: TypeAlias = str | Callable[[], Awaitable[Iterable[str]]]
"""`dns:name:port`, or a function that returns the addresses of all workers."""

SILENT_SECONDS = 1.0
"""Time without a STATE after which a worker counts as lost. Workers send four in that time."""
_TICK_SECONDS = SILENT_SECONDS / 4
_AGAIN_SECONDS = 1.0
_DISCOVER_SECONDS = 5.0
_IDLE_CONNECTIONS = 64
_HANDSHAKES = 32
"""Maximum number of connections to a worker that this host opens at the same time. A worker bounds those of all."""
_RANKED = 8
"""Number of workers that an owner returns to, best first."""
_POINTS = 32
"""Number of points of a worker on the hash ring."""
_POINT_BYTES = 8
_MOST_WAITING = 10_000
_MOST_STATES = 250
"""Maximum number of STATEs between two ticks."""
_OVERLOAD = 1.25
"""Factor of the mean load up to which an owner returns to the same worker."""
_CANDIDATES = 8
_ENGINE_CHARS = 100
_SUM_SECONDS = 0.1


_Lane: TypeAlias = tuple[Owner | str | None, Language, bool, frozenset[str]]


class Node:
    """One worker."""

    def __init__(self, address: str) -> None:
        self.address = address
        digests = (
            hashlib.blake2b(f"{address} {number}".encode(), digest_size=64).digest() for number in range(_POINTS // 8)
        )
        self.points = [digest[at : at + _POINT_BYTES] for digest in digests for at in range(0, 64, _POINT_BYTES)]
        self.control: Peer | None = None
        self.idle: list[Peer] = []
        self.handshakes = asyncio.Semaphore(_HANDSHAKES)
        self.live: set[Peer] = set()
        """Connections with a guest of this host."""
        self.mine = 0
        """Places that this host has taken."""
        self.others = 0
        self.capacity = 0
        self.draining = False
        self.is_named = True
        """False while the discovery of workers leaves it out: it takes no more, and its programs end."""
        self.release = "?"
        self.guests: dict[str, tuple[str, Tier, str]] = {}
        """Digest of the guest, tier of the programs, and version of the engine, by language."""
        self.heard = 0.0
        self.states = 0
        self.hung_up = 0
        """Guests whose connection was lost since the last tick, while the worker was not."""
        self.suspects = 0
        """The same in the time between the two ticks before: the worker's end can take a moment to show."""
        self.lost: str | None = None

    @property
    def load(self) -> int:
        return self.mine + self.others

    @property
    def room(self) -> int:
        can_take = self.lost is None and self.is_named and not self.draining
        return self.capacity - self.mine - self.others if can_take else 0

    @property
    def is_suspect(self) -> bool:
        """True for a moment after it has hung up on a guest, because it may be about to be lost."""
        return self.hung_up > 0 or self.suspects > 0

    def unfit(self, language: Language, required: Tier, *, durable: bool = False) -> str | None:
        """Returns the reason why it cannot run such a program; None if it can."""
        guest = self.guests.get(language)
        if guest is None:
            return f"worker {self.address} does not run {language}"
        if guest[0] != guest_digest(language):
            return f"worker {self.address} has corral {self.release} with another guest; update it or this host"
        if not reaches(guest[1], required):
            return f"worker {self.address} runs {language} in tier {guest[1]!r}, below {required!r}"
        if durable and guest[2] != (engine := engine_version(language)):
            return f"worker {self.address} has {guest[2]}, and durable executions of this host need {engine}"
        return None


class Ticket:
    """Request for a place."""

    __slots__ = ("durable", "excluded", "language", "owner", "place", "tier")

    def __init__(self, config: SandboxConfig, tier: Tier) -> None:
        self.owner: Owner | None = config.owner
        self.language: Language = config.language
        self.tier: Tier = tier
        self.durable = config.durable
        self.excluded: set[str] = set()
        self.place: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

    def accepts(self, node: Node) -> bool:
        return node.address not in self.excluded and self.unfit(node) is None

    def unfit(self, node: Node) -> str | None:
        return node.unfit(self.language, self.tier, durable=self.durable)


class Fleet:
    """All workers, in one event loop."""

    def __init__(
        self,
        addresses: Iterable[str],
        discover: Discover | None,
        *,
        secret: bytes,
        tls: ssl.SSLContext | None,
        server_name: str | None,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.failures: dict[str, str] = {}
        """Reason why a worker cannot be used, by address."""
        self._static = tuple(addresses)
        self._discover = discover
        self._secret = secret
        self._tls = tls
        self._server_name = server_name
        self._me = nonce()
        self._lanes: OrderedDict[_Lane, deque[Ticket]] = OrderedDict()
        """Tickets that wait, by organization or, without one, by user. The lanes take turns. All tickets of a lane
        accept the same workers."""
        self._waiting = 0
        self._ring: list[tuple[bytes, str]] = []
        """Points and addresses of all workers; empty after they have changed."""
        self._all: list[Node] = []
        """All workers, for a random choice; empty after they have changed."""
        self._sum, self._sum_until = 0, 0.0
        self._loop = asyncio.get_running_loop()
        self._tick: asyncio.TimerHandle | None = None
        self._next_tick = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = asyncio.Lock()
        self._closed = False

    # --- workers come and go

    async def open(self) -> None:
        """Connects to all workers, once, and keeps looking for them until `close`."""
        if self._refreshing is None:
            await self.refresh()
            if self._refreshing is None and not self._closed:
                self._refreshing = self._loop.create_task(self._keep_fresh())
                self._next_tick = self._loop.time() + _TICK_SECONDS
                self._tick = self._loop.call_at(self._next_tick, self._watch)

    async def refresh(self) -> None:
        async with self._refreshed:
            addresses = dict.fromkeys(self._static)
            if self._discover is not None:
                try:
                    addresses |= dict.fromkeys(await self._discovered(self._discover))
                except Exception as error:
                    logger.warning("workers cannot be discovered: %s", error)
                    addresses |= dict.fromkeys(self.nodes)
            for address, node in list(self.nodes.items()):
                node.is_named = address in addresses
                self.offer(node)
            for address in self.failures.keys() - addresses.keys():
                del self.failures[address]
            missing = [each for each in addresses if each not in self.nodes]
            await asyncio.gather(*map(self._join, missing))

    async def _discovered(self, discover: Discover) -> list[str]:
        if not isinstance(discover, str):
            return list(await discover())
        name, port = split_address(discover.removeprefix("dns:"))
        entries = await self._loop.getaddrinfo(name, port, type=1)
        return [f"[{each[4][0]}]:{port}" if ":" in str(each[4][0]) else f"{each[4][0]}:{port}" for each in entries]

    async def _join(self, address: str) -> None:
        node = Node(address)
        ready: asyncio.Future[None] = self._loop.create_future()

        def take(kind: int, payload: bytes) -> None:
            self._take_state(node, kind, payload)
            if not ready.done():
                ready.set_result(None)

        def lost(error: Exception | None) -> None:
            if not ready.done():
                ready.set_exception(error or ConnectionResetError("it hung up"))
            self._lose(node, str(error) if isinstance(error, WireError) else "it hung up")

        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                control = node.control = await self.connect(address, b"control")
                control.bound, control.take, control.lost = MAX_BEFORE_PROOF, take, lost
                if control.over:
                    raise ConnectionResetError("it hung up")
                await ready
        except BaseException as error:  # an address that somebody else has chosen can fail in any way
            if node.control is not None:
                node.control.abort()
            if not isinstance(error, Exception):
                raise
            reason = str(error) or type(error).__name__
            if self.failures.get(address) != reason:
                logger.warning("worker %s cannot be used: %s", address, reason)
            self.failures[address] = reason
            return
        if self._closed:
            control.abort()
            return
        self.failures.pop(address, None)
        self.nodes[address] = node
        self._forget_order()
        self.offer(node)

    def _take_state(self, node: Node, kind: int, payload: bytes) -> None:
        node.states += 1
        if kind != Kind.STATE or node.states > _MOST_STATES:
            raise WireError("it sent an unexpected record, or too many states")
        match parsed(payload):
            case {
                "others": int() as others,
                "capacity": int() as capacity,
                "draining": bool() as draining,
                "release": str() as release,
                "guests": guests,
            } if 0 <= others <= 1_000_000 and 0 <= capacity <= 1_000_000:
                node.others, node.capacity, node.draining = others, capacity, node.draining or draining
                node.release, node.guests = release[:40], _guests(guests)
                node.heard = self._loop.time()
            case _:
                raise WireError("it sent a malformed state")
        self.offer(node)

    def _lose(self, node: Node, reason: str) -> None:
        if node.lost is not None:
            return
        node.lost = reason
        if self.nodes.get(node.address) is node:
            del self.nodes[node.address]
            self._forget_order()
            lost = len(node.live) + node.hung_up + node.suspects
            if not self._closed and (lost or (node.is_named and not node.draining)):
                text = f"; its {lost} executions are lost" if lost else ""
                logger.warning("worker %s is lost: %s%s", node.address, reason, text)
        for peer in (*node.live, *node.idle, *([node.control] if node.control else [])):
            peer.abort()

    def _watch(self) -> None:
        """Gives up silent workers. Time in which this process itself was suspended does not count."""
        now = self._loop.time()
        late = max(0.0, now - self._next_tick)
        for node in list(self.nodes.values()):
            node.heard = min(now, node.heard + late)
            node.states = 0
            if now - node.heard > SILENT_SECONDS:
                self._lose(node, f"no word for {now - node.heard:.1f} s")
            elif node.suspects:
                logger.warning("worker %s ended %d guests without a reason", node.address, node.suspects)
            node.suspects, node.hung_up = node.hung_up, 0
        self._next_tick = now + _TICK_SECONDS
        self._tick = self._loop.call_at(self._next_tick, self._watch)

    async def _keep_fresh(self) -> None:
        while True:
            lacks = self._discover is None and len(self.nodes) < len(self._static)
            await asyncio.sleep(_AGAIN_SECONDS if lacks or not self.nodes else _DISCOVER_SECONDS)
            await self.refresh()

    def now(self) -> float:
        return self._loop.time()

    def close(self) -> None:
        self._closed = True
        if self._tick is not None:
            self._tick.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
        for node in list(self.nodes.values()):
            self._lose(node, "this host has closed its workers")
        self.nodes.clear()

    # --- placement

    async def place(self, ticket: Ticket, seconds: float) -> Node:
        """Takes a place, which `release` frees. Waits in order while all workers are full, but at most `seconds`.

        Raises:
            StartFailed: no worker can run the program, or none had a place in time.
        """
        node = self._choice(ticket)  # those who wait have taken all places that they accept
        if node is not None:
            self._take(node, 1)
            return node
        self._expect_some(ticket)
        if self._waiting >= _MOST_WAITING:
            raise StartFailed(f"{self._waiting} executions are already waiting for a worker; add workers")
        self._lanes.setdefault(_lane(ticket), deque()).append(ticket)
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                return await ticket.place
        except TimeoutError:
            self._expect_some(ticket)
            count = len(self.nodes)
            if count == 0:
                raise StartFailed(f"no worker answered for {seconds:g} s: {self._reasons()}") from None
            text = f"all {count} workers were" if count > 1 else "the only worker was"
            raise StartFailed(f"{text} full for {seconds:g} s; add workers, or raise their --capacity") from None
        finally:
            if ticket.place.cancelled() or not ticket.place.done():
                ticket.place.cancel()
                self._leave_lane(ticket)

    def release(self, node: Node) -> None:
        self._take(node, -1)
        self.offer(node)

    def offer(self, node: Node) -> None:
        """Gives a worker's free places to waiting starts."""
        while self._waiting and node.room > 0:
            key = next((key for key, lane in self._lanes.items() if lane[0].accepts(node)), None)
            if key is None:
                return
            lane = self._lanes[key]
            ticket = lane.popleft()
            self._waiting -= 1
            self._lanes.move_to_end(key)
            if not lane:
                del self._lanes[key]
            if not ticket.place.done():
                self._take(node, 1)
                ticket.place.set_result(node)

    def _leave_lane(self, ticket: Ticket) -> None:
        key = _lane(ticket)
        lane = self._lanes.get(key)
        if lane is not None:
            with suppress(ValueError):
                lane.remove(ticket)
                self._waiting -= 1
            if not lane:
                del self._lanes[key]

    def _choice(self, ticket: Ticket) -> Node | None:
        """Returns the owner's usual worker, else the better of two random ones. One that has just hung up on a guest is
        chosen only if there is no other. Comparing 1,000 workers takes a millisecond, so all are compared only if most
        are full.
        """
        if ticket.owner is not None:
            most = max(2.0, _OVERLOAD * (self._total_load() + 1) / max(1, len(self.nodes)))
            for node in self._ranked(ticket.owner):
                if node.load < most and node.room > 0 and not node.is_suspect and ticket.accepts(node):
                    return node
        nodes: list[Node] = []
        if len(self.nodes) > _CANDIDATES:
            self._all = self._all or [*self.nodes.values()]
            nodes = [node for node in random.sample(self._all, _CANDIDATES) if node.room > 0 and ticket.accepts(node)]
        if len(nodes) < 2:
            nodes = [node for node in self.nodes.values() if node.room > 0 and ticket.accepts(node)]
        nodes = [node for node in nodes if not node.is_suspect] or nodes
        return min(random.sample(nodes, min(2, len(nodes))), key=lambda node: node.load, default=None)

    def _total_load(self) -> int:
        """Returns the load of all workers. That of other hosts is up to `_SUM_SECONDS` old."""
        now = self._loop.time()
        if now >= self._sum_until:
            self._sum = sum(node.load for node in self.nodes.values())
            self._sum_until = now + _SUM_SECONDS
        return self._sum

    def _take(self, node: Node, places: int) -> None:
        node.mine += places
        self._sum += places

    def _ranked(self, owner: Owner) -> Iterator[Node]:
        """Yields an owner's workers in order, the same at every host: those that follow the owner on a ring of hashes.
        A worker that comes or goes changes the order of few owners."""
        if not self._ring:
            self._ring = sorted((point, node.address) for node in self.nodes.values() for point in node.points)
        key = hashlib.blake2b(json.dumps(owner).encode(), digest_size=_POINT_BYTES).digest()
        begin = bisect.bisect(self._ring, (key, ""))
        seen: set[str] = set()
        for at in range(begin, begin + min(len(self._ring), _RANKED * _POINTS)):
            address = self._ring[at % len(self._ring)][1]
            if address not in seen:
                seen.add(address)
                yield self.nodes[address]
                if len(seen) == _RANKED:
                    return

    def _forget_order(self) -> None:
        self._ring.clear()
        self._all.clear()
        self._sum_until = 0.0

    def _expect_some(self, ticket: Ticket) -> None:
        """Raises `StartFailed` if all known workers are unfit for the program."""
        reasons = [ticket.unfit(node) for node in self.nodes.values()]
        if reasons and all(reasons):
            raise StartFailed(f"no worker can run the program: {reasons[0]}")

    def _reasons(self) -> str:
        return "; ".join(f"{address}: {reason}" for address, reason in self.failures.items()) or "none is known"

    def expect_any(self) -> None:
        """Raises `StartFailed` if no worker is connected."""
        if not self.nodes:
            raise StartFailed(f"no worker can be used: {self._reasons()}")

    # --- connections

    async def connect(self, address: str, purpose: bytes) -> Peer:
        """Opens a connection, on which both sides have proved who they are.

        Raises:
            OSError, TimeoutError, WireError: the worker does not answer, or the proof is wrong.
        """
        host, port = split_address(address)
        name = (self._server_name or host) if self._tls is not None else None
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            _, peer = await self._loop.create_connection(partial(Peer, self._tls, name), host, port)
            answer: asyncio.Future[bytes] = self._loop.create_future()

            def take(kind: int, payload: bytes) -> None:
                if kind != Kind.PROOF or len(payload) != NONCE_BYTES + PROOF_BYTES or answer.done():
                    raise WireError("it does not speak the workers' protocol")
                answer.set_result(payload)

            def lost(error: Exception | None) -> None:
                if not answer.done():
                    answer.set_exception(error or ConnectionResetError("it hung up: its version or TLS may differ"))

            peer.take, peer.lost = take, lost
            try:
                ours = nonce()
                peer.write(record(Kind.HELLO, bytes([VERSION]) + ours))
                payload = await answer
                theirs, made = payload[:NONCE_BYTES], payload[NONCE_BYTES:]
                certificate = peer.peer_certificate()
                if not hmac.compare_digest(made, proof(self._secret, b"worker", theirs, ours, certificate)):
                    raise WireError("its secret differs from this host's")
                own = proof(self._secret, b"host", ours, theirs, certificate)
                peer.write(record(Kind.JOIN, own + self._me + purpose))
            except BaseException:
                peer.abort()
                raise
        peer.bound = MAX_RECORD
        return peer

    async def connect_guest(self, node: Node) -> Peer:
        """Opens a connection for guests. Raises the errors of `connect`."""
        async with node.handshakes:
            return await self.connect(node.address, b"guest")

    def kept_connection(self, node: Node) -> Peer | None:
        """Takes a connection that an earlier guest has left."""
        while node.idle:
            peer = node.idle.pop()
            if not peer.over:
                return peer
        return None

    def drop_connections(self, node: Node) -> None:
        """Closes the connections without a guest: one of them was lost, so the others may be."""
        idle, node.idle = node.idle, []
        for peer in idle:
            peer.abort()

    def keep_connection(self, node: Node, peer: Peer) -> None:
        """Keeps a connection without a guest for the next one."""
        if peer.over or node.lost is not None or self._closed or len(node.idle) >= _IDLE_CONNECTIONS:
            peer.abort()
            return

        def lost(_: Exception | None) -> None:
            with suppress(ValueError):
                node.idle.remove(peer)

        def unexpected(kind: int, _: bytes) -> None:
            raise WireError(f"a record of kind {kind} without a guest")

        peer.take, peer.lost = unexpected, lost
        node.idle.append(peer)

    def lost_guest(self, node: Node, error: Exception | None) -> ChannelLost:
        """Returns the error for a guest whose connection is lost. Losing a worker is logged once, not per guest."""
        if node.lost is None:
            node.hung_up += 1
        how = f"it broke the protocol: {error}" if isinstance(error, WireError) else node.lost or "it hung up"
        return ChannelLost(f"worker {node.address}: {how}")


def _lane(ticket: Ticket) -> _Lane:
    owner = ticket.owner
    tenant = owner if owner is None or owner.organization_id is None else owner.organization_id
    return tenant, ticket.language, ticket.durable, frozenset(ticket.excluded)


def _guests(content: Any) -> dict[str, tuple[str, Tier, str]]:
    guests: dict[str, tuple[str, Tier, str]] = {}
    if not isinstance(content, dict):
        raise WireError("it sent a malformed state")
    for language, value in list(cast("dict[str, object]", content).items())[:8]:
        match value:
            case [str() as digest, str() as tier, str() as engine] if tier in TIERS:
                guests[language] = digest, tier, engine[:_ENGINE_CHARS]
            case _:
                raise WireError("it sent a malformed state")
    return guests
