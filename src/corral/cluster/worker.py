"""Server of guests. It parses nothing that a guest writes, and runs no tool: it passes bytes, a clock and how a guest
ended."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import ssl
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from pydantic import ValidationError

from corral.cluster.wire import (
    HANDSHAKE_SECONDS,
    HIGH_BYTES,
    MAX_BEFORE_PROOF,
    MAX_RECORD,
    MAX_TLS_HANDSHAKE,
    NONCE_BYTES,
    PROOF_BYTES,
    SECONDS,
    VERSION,
    Kind,
    Peer,
    WireError,
    engine_version,
    guest_digest,
    json_record,
    nonce,
    proof,
    record,
    records,
    release,
)
from corral.containment import Tier, reaches
from corral.errors import StartFailed
from corral.guest import FrameKind, encode_frame
from corral.guest.python.frames import NO_NONCE, PROTOCOL
from corral.logs import get_logger
from corral.sandboxes import CPythonSandbox, DenoSandbox, JailedProvider, LocalGuest
from corral.types import Frozen, Language, Owner, SandboxConfig

logger = get_logger("corral.cluster")

BEAT_SECONDS = 0.25
"""Time between two STATE records, and between two looks at the processor clocks. Hosts give a worker up after four."""
_LEAST_CPU_SECONDS = 0.02
_ALIVE_BEATS = 20
"""Number of beats between two ALIVE records on the connection of a guest. Only a write shows that its host has gone
while the connection is not read."""
_MAX_THREADS = 64
_OPEN_SECONDS = 30.0
_MAX_UNPROVED = 1024
_STDERR_CHARS = 16_384
_TEXT_CHARS = 400
_HTTP_SECONDS = 5.0
_READY = encode_frame(FrameKind.READY, json.dumps([PROTOCOL]).encode(), NO_NONCE)


class Opening(Frozen):
    """Payload of OPEN: the guest that a host asks for."""

    version: int
    protocol: int
    guest: str
    """Digest of the language's guest at the host."""
    release: str
    language: Language
    memory_mb: int
    tier: Tier
    owner: str | None = None
    """Keyed digest of the owner. A fork server serves only one."""
    durable: bool = False


class _RefusedError(Exception):
    def __init__(self, why: Literal["full", "draining", "skew", "tier", "failed"], text: str) -> None:
        super().__init__(text)
        self.why = why


class Worker:
    """Serves guests of this machine to hosts that know the secret, or have a certificate, until `drain` or `aclose`."""

    def __init__(
        self,
        *,
        secret: bytes,
        capacity: int,
        memory_mb: int = 64,
        tier: Tier | Literal["auto"] = "auto",
        languages: Sequence[Language] = ("typescript", "python"),
        tls: ssl.SSLContext | None = None,
        certificate: bytes | None = None,
        one_owner: bool = False,
    ) -> None:
        self.secret = secret
        self.certificate = certificate
        self.capacity = capacity
        self.memory_mb = memory_mb
        self.draining = False
        self.live = 0
        self._one_owner = one_owner
        self._bound: tuple[bytes, str | None] | None = None
        """Host and owner of the first guest, if it serves only one owner."""
        self.of_hosts: Counter[bytes] = Counter()
        self.served = 0
        self.refused: Counter[str] = Counter()
        self.controls: set[_Connection] = set()
        self.connections: set[_Connection] = set()
        self.unproved = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._languages = languages
        self._tls = tls
        self._idle = asyncio.Event()
        self._idle.set()
        self._tiers: dict[Language, Tier] = {}
        self._providers: dict[Language, JailedProvider] = {
            "typescript": DenoSandbox(tier=tier),
            "python": CPythonSandbox(tier=tier),
        }
        self._servers: list[asyncio.Server] = []
        self._beats: asyncio.Task[None] | None = None
        self._telling = False

    async def warm(self) -> None:
        """Starts a guest of each language, which measures the tier.

        Raises:
            StartFailed: none starts.
        """
        for language in self._languages:
            provider = self._providers[language]
            config = SandboxConfig(language=language, memory_mb=self.memory_mb)
            self._tiers[language] = tier = await provider.placement(config)
            await provider.warm(config.model_copy(update={"required_tier": tier}))
            if isinstance(provider, DenoSandbox):
                await provider.settled()

    async def listen(self, host: str, port: int) -> int:
        """Accepts hosts. Returns the port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self, self._tls), host, port, backlog=1024)
        self._servers.append(server)
        self._beats = loop.create_task(self._beat())
        return server.sockets[0].getsockname()[1]

    async def listen_for_probes(self, host: str, port: int) -> int:
        """Serves `/health` and `/metrics` over HTTP. Returns the port."""
        server = await asyncio.start_server(self._probe, host, port, limit=MAX_BEFORE_PROOF)
        self._servers.append(server)
        return server.sockets[0].getsockname()[1]

    async def drain(self, seconds: float) -> None:
        """Refuses new guests, tells the hosts, and waits for the living guests."""
        self.draining = True
        self.tell()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def aclose(self) -> None:
        for server in self._servers:
            server.close()
        if self._beats is not None:
            self._beats.cancel()
        for connection in tuple(self.connections):
            connection.abort()
        for task in tuple(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        for provider in self._providers.values():
            await provider.aclose()

    async def open(self, opening: Opening, host: bytes) -> LocalGuest:
        """Starts a guest in a place, which `release` frees.

        Raises:
            _RefusedError: all places are taken, or the guest does not start.
        """
        config = self._config_of(opening)
        if self._one_owner:
            if self._bound is not None and (opening.owner is None or self._bound != (host, opening.owner)):
                raise _RefusedError("failed", "the worker serves one owner of one host (--one-owner), and has another")
            self._bound = host, opening.owner
        self.live += 1
        self.of_hosts[host] += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return await self._providers[opening.language].guest(config)
        except BaseException as error:
            self.release(host)
            if isinstance(error, StartFailed):
                raise _RefusedError("failed", str(error)) from error
            if isinstance(error, TimeoutError):
                raise _RefusedError("failed", f"no guest started within {_OPEN_SECONDS:g} s") from error
            raise

    def release(self, host: bytes) -> None:
        self.live -= 1
        self.of_hosts[host] -= 1
        if not self.of_hosts[host]:
            del self.of_hosts[host]
        if self.live == 0:
            self._idle.set()
        if self.live == self.capacity - 1 or self.draining:
            self.tell()

    def state(self, host: bytes) -> bytes:
        others = self.live - self.of_hosts[host]
        state: dict[str, object] = {"others": others, "capacity": self.capacity, "draining": self.draining}
        state["release"] = release()
        state["guests"] = {
            language: [guest_digest(language), tier, engine_version(language)] for language, tier in self._tiers.items()
        }
        return json_record(Kind.STATE, state)

    def tell(self) -> None:
        """Sends STATE to all hosts, once in this turn of the event loop."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        for control in self.controls:
            if not control.full:  # a host that does not read gets no more
                control.write(self.state(control.host))

    def _config_of(self, opening: Opening) -> SandboxConfig:
        if (
            opening.version != VERSION
            or opening.protocol != PROTOCOL
            or opening.guest != guest_digest(opening.language)
        ):
            raise _RefusedError("skew", f"the worker has corral {release()}, the host {opening.release[:40]}")
        if self.draining:
            raise _RefusedError("draining", "the worker is draining, and takes no new programs")
        tier = self._tiers.get(opening.language)
        if tier is None:
            raise _RefusedError("failed", f"the worker does not run {opening.language}")
        if not reaches(tier, opening.tier):
            raise _RefusedError("tier", f"the worker's --tier is {tier!r}, below {opening.tier!r}; raise it")
        if not 0 < opening.memory_mb <= self.memory_mb:
            text = f"memory_mb={opening.memory_mb} is above the worker's --memory-mb {self.memory_mb}"
            raise _RefusedError("failed", text)
        if self.live >= self.capacity:
            raise _RefusedError("full", f"all {self.capacity} places are taken")
        owner = None if opening.owner is None else Owner(None, opening.owner)
        return SandboxConfig(
            language=opening.language,
            memory_mb=opening.memory_mb,
            required_tier=tier,
            owner=owner,
            durable=opening.durable,
        )

    async def _beat(self) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(BEAT_SECONDS)
            self._tell()
            for connection in tuple(self.connections):
                connection.measure()
                if number % _ALIVE_BEATS == 0:
                    connection.show_life()

    async def _probe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HTTP_SECONDS):
                request = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                status, content = "404 Not Found", "use /health or /metrics\n"
                if request[:2] == [b"GET", b"/health"]:
                    status, content = ("503 Service Unavailable", "draining\n") if self.draining else ("200 OK", "ok\n")
                elif request[:2] == [b"GET", b"/metrics"]:
                    status, content = "200 OK", self._metrics()
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                writer.write(f"{head}Content-Length: {len(content.encode())}\r\n\r\n{content}".encode())
                await writer.drain()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _metrics(self) -> str:
        gauges = {
            "live": self.live,
            "capacity": self.capacity,
            "draining": int(self.draining),
            "hosts": len(self.controls),
            "connections": len(self.connections),
        }
        lines = [f"# TYPE corral_worker_{name} gauge\ncorral_worker_{name} {value}" for name, value in gauges.items()]
        lines.append(f"# TYPE corral_worker_guests_total counter\ncorral_worker_guests_total {self.served}")
        lines.append("# TYPE corral_worker_refused_total counter")
        lines += [f'corral_worker_refused_total{{why="{why}"}} {count}' for why, count in self.refused.items()]
        return "\n".join(lines) + "\n"


class _Connection(Peer):
    """Connection of a host: a handshake, then either STATE records, or guests one after another."""

    def __init__(self, worker: Worker, tls: ssl.SSLContext | None) -> None:
        super().__init__(tls)
        self.host = b""
        self._most_before_proof = MAX_BEFORE_PROOF + (MAX_TLS_HANDSHAKE if tls else 0)
        self._worker = worker
        self._received = 0
        self._proved = False
        self._theirs = self._ours = b""
        self._guest: LocalGuest | None = None
        self._told_cpu = 0.0
        self._ended = self._closing = False
        self._wake = asyncio.Event()
        self._unwritten = bytearray()
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        worker = self._worker
        worker.unproved += 1
        worker.connections.add(self)
        self.take, self.lost = self._take_hello, self._gone
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.abort)
        if worker.unproved > _MAX_UNPROVED:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if not self._proved:
            self._received += len(data)
            if self._received > self._most_before_proof:
                self.abort()
                return
        super().data_received(data)

    def show_life(self) -> None:
        if self._guest is not None and not self.full:
            self.write(record(Kind.ALIVE))

    def measure(self) -> None:
        """Reports the processor time of a guest that has used some, and ends one with too many threads."""
        if self._guest is None or self._ended or self._closing:
            return
        process = self._guest.process
        used = process.cpu_time()
        if used - self._told_cpu >= _LEAST_CPU_SECONDS:
            self._told_cpu = used
            self.write(record(Kind.CPU, SECONDS.pack(used)))
            if process.threads() > _MAX_THREADS:
                process.kill()

    def _take_hello(self, kind: int, payload: bytes) -> None:
        if kind != Kind.HELLO or len(payload) != 1 + NONCE_BYTES:
            raise WireError("it does not speak the workers' protocol")
        if payload[0] != VERSION:
            raise WireError(f"its protocol has version {payload[0]}, and this worker's has {VERSION}")
        worker, self._theirs, self._ours = self._worker, payload[1:], nonce()
        made = proof(worker.secret, b"worker", self._ours, self._theirs, worker.certificate)
        self.write(record(Kind.PROOF, self._ours + made))
        self.take = self._take_join

    def _take_join(self, kind: int, payload: bytes) -> None:
        worker = self._worker
        made = proof(worker.secret, b"host", self._theirs, self._ours, worker.certificate)
        if kind != Kind.JOIN or not hmac.compare_digest(payload[:PROOF_BYTES], made):
            raise WireError("its secret is wrong")
        self._prove()
        self.host = payload[PROOF_BYTES : PROOF_BYTES + NONCE_BYTES]
        self.bound = MAX_RECORD
        if payload[PROOF_BYTES + NONCE_BYTES :] == b"control":
            worker.controls.add(self)
            self.take = self._unexpected
            self.write(worker.state(self.host))
        else:
            self.take = self._take_open

    def _peer_name(self) -> object:
        return self.transport and self.transport.get_extra_info("peername")

    def _prove(self) -> None:
        if not self._proved:
            self._proved = True
            self._worker.unproved -= 1
            if self._timer is not None:
                self._timer.cancel()

    def _take_open(self, kind: int, payload: bytes) -> None:
        if kind != Kind.OPEN or len(payload) > MAX_BEFORE_PROOF:
            raise WireError("not an OPEN")
        try:
            opening = Opening.model_validate_json(payload)
        except ValidationError as error:
            raise WireError(f"a malformed OPEN: {error}") from error
        self._ended = self._closing = False
        self._told_cpu = 0.0
        self.take = self._take_live
        task = asyncio.get_running_loop().create_task(self._serve(opening))
        self._worker.tasks.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._worker.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a guest could not be served", exc_info=error)
            self.abort()

    def _take_live(self, kind: int, payload: bytes) -> None:
        guest = self._guest
        if kind == Kind.CLOSE:
            self._closing = True
            self._wake.set()
        elif guest is None:
            raise WireError("a record before OPENED")
        elif kind == Kind.DATA:
            if not self._closing and not self._ended:
                self._feed(guest, payload)
        elif kind == Kind.LIMIT and len(payload) == SECONDS.size:
            (seconds,) = SECONDS.unpack(payload)
            if not 0 < seconds < 1e6:
                raise WireError("a limit that is not a number of seconds")
            guest.process.limit_cpu(seconds)
        else:
            raise WireError(f"a record of kind {kind}")

    def _feed(self, guest: LocalGuest, data: bytes) -> None:
        if self._writing is None:
            written = guest.process.write_now(data)
            if written == len(data):
                return
            data = data[written:]
            self._writing = asyncio.get_running_loop().create_task(self._write_rest(guest))
        self._unwritten += data
        if len(self._unwritten) > HIGH_BYTES:
            self.pause()

    async def _write_rest(self, guest: LocalGuest) -> None:
        while self._unwritten:
            rest = bytes(self._unwritten)
            self._unwritten.clear()
            await guest.process.write(rest)
            self.resume()
        self._writing = None

    async def _serve(self, opening: Opening) -> None:
        worker = self._worker
        try:
            guest = await worker.open(opening, self.host)
        except _RefusedError as refusal:
            worker.refused[refusal.why] += 1
            self.take = self._take_open
            self.write(json_record(Kind.REFUSED, {"why": refusal.why, "text": str(refusal)[:_TEXT_CHARS]}))
            return
        try:
            self._guest = guest
            self.write(json_record(Kind.OPENED, {"tier": guest.tier}) + record(Kind.OUTPUT, _READY))
            await self._pass_output(guest)
            if self._ended and not self._closing and not self.over:
                traces = await guest.process.post_mortem()
                end = {"status": traces.status, "oom": traces.out_of_memory, "stderr": traces.stderr[-_STDERR_CHARS:]}
                self.write(json_record(Kind.END, end))
                while not self._closing and not self.over:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._guest = None
            try:
                if self._writing is not None:
                    self._writing.cancel()
                    await asyncio.wait([self._writing])  # it watches the guest's input: libuv aborts if that is closed
                    self._writing = None
                self._unwritten.clear()
            finally:
                await guest.aclose()
                worker.served += 1
                worker.release(self.host)
        self.take = self._take_open
        self.resume()
        self.write(record(Kind.CLOSED))

    async def _pass_output(self, guest: LocalGuest) -> None:
        while not self._ended and not self._closing and not self.over:
            self._wake.clear()
            async with guest.process.reading(self._pass):
                await self._wake.wait()
            await self.drained()

    def _pass(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._wake.set()
            return
        self.write(records(Kind.OUTPUT, data))
        if self.full:
            self._wake.set()

    def _gone(self, error: Exception | None) -> None:
        if isinstance(error, WireError):
            logger.warning("a host at %s broke the protocol: %s", self._peer_name(), error)
        self._prove()
        self._worker.controls.discard(self)
        self._worker.connections.discard(self)
        self._wake.set()
