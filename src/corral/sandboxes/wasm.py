"""TypeScript programs in QuickJS, compiled to WebAssembly, in wasmtime: a fresh instance for each execution.

The engine can reach only the memory of its instance, and the functions of its server. The server is a process of one
user of one organization: in a jail, or a plain process where no jail holds. An instance starts in a fraction of a
millisecond, as a copy of an image in which the guest's code has already run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from queue import SimpleQueue
from typing import IO, Any, ClassVar, Literal, TypeVar

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread, thread_safe_scheduler
from corral.containment import TIERS, ContainmentKind, Tier
from corral.errors import ProgramTimeout, StartFailed
from corral.guest import FrameKind, RuntimeDirectory, encode_frame, encode_value, wasm_server
from corral.guest.python.frames import NO_NONCE, PROTOCOL
from corral.guest.wasm.server import CREDIT, DATA, END, MESSAGE, MOST_AT_ONCE, OPEN, PIPES, TOTAL_MB, WINDOW_BYTES
from corral.jail import Mount
from corral.jail.process import can_limit
from corral.logs import get_logger
from corral.rendering.full_text import escape_hidden
from corral.sandboxes.base import Job, Sandbox, below_required_tier
from corral.sandboxes.channel import ChannelLost, GuestChannel, PostMortem
from corral.sandboxes.framed.exits import failed_exit
from corral.sandboxes.framed.link import ChannelLink
from corral.sandboxes.framed.provider import Connected
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.fork_server import ForkServer, request
from corral.sandboxes.jailed.guest_starter import (
    GUEST_FILE,
    MOUNTED,
    NO_JAIL,
    GuestCommand,
    GuestProcess,
    GuestStarter,
    JailRetries,
)
from corral.sandboxes.jailed.provider import LocalGuest
from corral.sandboxes.jailed.python_runtime import installation
from corral.sandboxes.pool import Box, OwnedBoxes, Pool
from corral.sandboxes.wasm_image import engine_parts, image_folder
from corral.sessions.files import FileService
from corral.types import LIMITS_OF_SANDBOXES, CallRequest, Endpoint, Exit, Language, PipeEndpoint, Reply, SandboxConfig

logger = get_logger("corral.sandboxes")
T = TypeVar("T")

_ISOLATED = ("-I", "-S", "-B")
_LIBRARY = "/python/wasmtime"
_IMAGE = "/python/image"
"""Folders of wasmtime's library and of the image, in namespaces."""
_ABSENT = {
    "It has no streams: read a whole body with `await response.text()`, `.json()` or `.arrayBuffer()`.": (
        "ReadableStream ReadableStreamDefaultReader ReadableStreamBYOBReader WritableStream "
        "WritableStreamDefaultWriter TransformStream TextDecoderStream TextEncoderStream ByteLengthQueuingStrategy "
        "CountQueuingStrategy"
    ),
    "Compress with a tool.": "CompressionStream DecompressionStream",
    "Send JSON, text or bytes: a `Blob` has `text()`.": "FormData File FileReader",
    "Programs have one thread: use promises, and pass values.": (
        "Atomics SharedArrayBuffer Worker MessageChannel MessageEvent MessagePort"
    ),
    "`crypto.subtle` has digests only: sign and encrypt with a tool.": "CryptoKey",
    "Use `Date`.": "Temporal",
    "Use `new URL(...)` and a regular expression.": "URLPattern",
    "Write it in TypeScript.": "WebAssembly",
    "It has `Intl.NumberFormat`, `DateTimeFormat` and `Collator` for en-US: write the text yourself.": (
        "Intl.PluralRules Intl.ListFormat Intl.RelativeTimeFormat Intl.Segmenter Intl.Locale Intl.DisplayNames "
        "Intl.DurationFormat Intl.getCanonicalLocales Intl.supportedValuesOf"
    ),
    'Compress with a tool, or run it with sandbox="deno".': "node:zlib",
    'It has no streams: use whole texts and lists, or run it with sandbox="deno".': (
        "node:stream node:stream/consumers node:stream/promises node:stream/web"
    ),
    'Write it without this module, or run it with sandbox="deno".': (
        "node:async_hooks node:diagnostics_channel node:path/win32 node:punycode"
    ),
    "Programs have no sockets: use `fetch` or a tool.": (
        "node:http node:https node:http2 node:net node:tls node:dgram node:dns node:dns/promises"
    ),
    "Programs have no other processes and threads: use promises or a tool.": (
        "node:child_process node:cluster node:worker_threads"
    ),
    "No engine has it: write it without this module, or use a tool.": (
        "node:domain node:inspector node:module node:readline node:readline/promises node:repl node:sqlite node:sys "
        "node:test node:trace_events node:tty node:v8 node:vm node:wasi"
    ),
}
"""Globals and modules that this engine lacks, by the remedy."""
_ABSENT_FUNCTIONS = {
    "node:assert": "Assert CallTracker doesNotMatch doesNotReject doesNotThrow partialDeepStrictEqual rejects",
    "node:buffer": "File SlowBuffer isAscii isUtf8 resolveObjectURL transcode utf8Write",
    "node:crypto": (
        "Certificate Cipheriv Decipheriv DiffieHellman DiffieHellmanGroup ECDH Hash Hmac KeyObject Sign Verify "
        "X509Certificate checkPrime checkPrimeSync createCipheriv createDecipheriv createDiffieHellman "
        "createDiffieHellmanGroup createECDH createHmac createPrivateKey createPublicKey createSecretKey createSign "
        "createVerify diffieHellman generateKey generateKeyPair generateKeyPairSync generateKeySync generatePrime "
        "generatePrimeSync getCipherInfo getCiphers getCurves getDiffieHellman getFips hash hkdf hkdfSync pbkdf2 "
        "pbkdf2Sync privateDecrypt privateEncrypt prng pseudoRandomBytes publicDecrypt publicEncrypt randomFill rng "
        "scrypt scryptSync secureHeapUsed setEngine setFips sign timingSafeEqual verify"
    ),
    "node:events": (
        "EventEmitterAsyncResource addAbortListener getEventListeners getMaxListeners init listenerCount on "
        "setMaxListeners"
    ),
    "node:os": (
        "availableParallelism freemem getPriority loadavg machine networkInterfaces setPriority totalmem uptime "
        "userInfo version"
    ),
    "node:path": "matchesGlob",
    "node:perf_hooks": (
        "PerformanceEntry PerformanceObserver PerformanceObserverEntryList createHistogram eventLoopUtilization "
        "monitorEventLoopDelay timerify"
    ),
    "node:querystring": "unescapeBuffer",
    "node:timers/promises": "setInterval",
    "node:url": (
        "Url domainToASCII domainToUnicode fileURLToPathBuffer format parse resolve resolveObject urlToHttpOptions"
    ),
    "node:util": (
        "MIMEParams MIMEType aborted convertProcessSignalToExitCode debug diff formatWithOptions getCallSites "
        "getSystemErrorMap getSystemErrorMessage getSystemErrorName log parseArgs parseEnv queryObjects "
        "setTraceSigInt styleText toUSVString transferableAbortController transferableAbortSignal"
    ),
    "node:util/types": (
        "isArgumentsObject isBigInt64Array isBigIntObject isBigUint64Array isBooleanObject isCryptoKey isFloat16Array "
        "isFloat32Array isGeneratorObject isInt16Array isInt32Array isInt8Array isKeyObject isMapIterator "
        "isModuleNamespaceObject isNumberObject isProxy isSetIterator isSharedArrayBuffer isStringObject "
        "isSymbolObject isUint16Array isUint32Array isUint8ClampedArray"
    ),
    "node:fs": (
        "ReadStream WriteStream createReadStream createWriteStream glob globSync mkdtempDisposable "
        "mkdtempDisposableSync openAsBlob opendir opendirSync readv readvSync statfs statfsSync watch watchFile "
        "writev writevSync"
    ),
    "node:fs/promises": "glob mkdtempDisposable opendir statfs",
}
"""Functions of V8 that modules of this engine lack."""
_REMEDIES = {
    "node:crypto": 'Hashes and random numbers are all: sign and encrypt with a tool, or run it with sandbox="deno".',
    "node:fs": "It has no streams: read and write whole files, or parts with `openSync` and `readSync`.",
}
_REMEDY = 'Use another part of the module, or run it with sandbox="deno".'
LACKS: Mapping[str, str] = {
    **{name: remedy for remedy, names in _ABSENT.items() for name in names.split()},
    **{
        f"{module}.{name}": _REMEDIES.get(module, _REMEDY)
        for module, names in _ABSENT_FUNCTIONS.items()
        for name in names.split()
    },
}
"""Absent globals, modules and functions, each with the remedy: see `Capabilities.lacks`."""
_PLAIN = ContainmentKind("interpreter", "interpreter")
"""Containment where no jail holds."""
_READY = encode_frame(FrameKind.READY, b"[%d]" % PROTOCOL, NO_NONCE)
_READY_SECONDS = 60.0
_END_SECONDS = 5.0
"""Seconds that a plain process has to end one execution, which takes a tick, before the process is killed."""
_ERRORS_BYTES = 16_384
_VARIABLES = ("SYSTEMROOT",)
"""Environment variables that a plain process gets. Without this one, Python does not start on Windows."""
_MESSAGE_BYTES = 1 << 20
"""Maximum bytes of a message of the server."""
_QUEUE_BYTES = 1 << 20
"""Bytes of one execution that can wait for a plain process to read them."""


class _InstanceProcess(GuestProcess):
    """Instance in a server, as the process of one execution. The server enforces its limits, and reports its end."""

    _head = b""
    """Beginning of the connection, sent with the first frame: otherwise the server would wake up for it alone."""

    def limit_cpu(self, seconds: float, *, again: bool = False) -> None:  # noqa: ARG002
        self._head = struct.pack("<d", seconds)

    @override
    def write_now(self, data: bytes | bytearray | memoryview) -> int:
        head, self._head = self._head, b""
        return max(super().write_now(head + data) - len(head), 0) if head else super().write_now(data)

    def cpu_time(self) -> None:  # type: ignore[override]
        """Returns None: the server measures it."""

    def threads(self) -> int:
        return 0

    def kill(self) -> None:
        """Ends the connection. The server notices it within a tick."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.input)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


class _InstanceServer(ForkServer):
    """Server that makes an instance for each request."""

    @override
    def _fork(self) -> GuestProcess | None:
        return request(self._guest, b"{}", _InstanceProcess)


class _PlainProcess:
    """Server without a jail, whose standard streams all executions of its owner share.

    Threads read and write, since the event loops of Windows cannot wait for such pipes. If this process ends, the
    server's input ends, and so does the server.

    Raises:
        StartFailed: it does not start.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        try:
            self._process = process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # so that Ctrl-C does not reach it; Windows ignores this, and has the next
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except (OSError, ValueError) as error:
            raise StartFailed(
                f"cannot start {command[0] or 'Python'} for the engine in WebAssembly: {error}; sys.executable has to "
                "be a Python interpreter that may be started"
            ) from error
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._channels: dict[int, _PipedChannel] = {}
        self._queue: SimpleQueue[tuple[bytes, _PipedChannel | None] | None] = SimpleQueue()
        self._errors = b""
        self._started = threading.Event()
        self._is_ready = False
        self._loss: str | None = None
        """Reason why it has ended, once it has."""
        self._is_closed = False
        streams = (self._write, process.stdin), (self._read, process.stdout)
        threads = [
            threading.Thread(target=work, args=(stream,), name="corral-wasm", daemon=True)
            for work, stream in (*streams, (self._read_errors, process.stderr))
        ]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:
            self.close()
            for thread, stream in zip(threads, (process.stdin, process.stdout, process.stderr), strict=True):
                if thread.ident is None and stream is not None:
                    stream.close()
            raise StartFailed(
                f"cannot start a thread for the engine in WebAssembly ({error}): raise the limit of processes "
                "(ulimit -u, --pids-limit)"
            ) from error
        if not self._started.wait(_READY_SECONDS) or not self._is_ready:
            self.close()
            threads[-1].join(_END_SECONDS)
            reason = self._errors.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise StartFailed(f"the engine in WebAssembly did not start: {(reason or ['it left no reason'])[0][:400]}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._loss is None and self._process.poll() is None

    def open(self) -> _PipedChannel:
        """Returns a channel for one execution of the running event loop."""
        channel = _PipedChannel(self, next(self._numbers))
        with self._lock:
            self._channels[channel.number] = channel
            loss = self._loss
        if loss is not None:
            channel.lose(loss)
        return channel

    def forget(self, channel: _PipedChannel) -> None:
        with self._lock:
            self._channels.pop(channel.number, None)

    def send(self, number: int, kind: int, payload: bytes, channel: _PipedChannel | None = None) -> None:
        """Has the thread write a message, and then notify `channel`."""
        self._queue.put((MESSAGE.pack(number, kind, len(payload)) + payload, channel))

    def kill(self) -> None:
        """Ends it at once, with all of its executions."""
        with contextlib.suppress(OSError):  # on Windows, if it ends at this moment
            self._process.kill()

    def end(self) -> None:
        """Ends it, without waiting for that. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.kill()
        self._queue.put(None)

    def close(self) -> None:
        """Ends it, and waits until it has ended. Idempotent."""
        self.end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)

    def _write(self, stream: IO[bytes]) -> None:
        with stream:
            while (item := self._queue.get()) is not None:
                message, channel = item
                rest = memoryview(message)
                try:
                    while rest:
                        rest = rest[stream.write(rest) :]
                except OSError:  # it has ended, which the reader sees
                    continue
                if channel is not None:
                    channel.written(len(message))

    def _read(self, stream: IO[bytes]) -> None:
        reason = "its process has ended"
        with io.BufferedReader(stream) as reader:  # type: ignore[type-var]
            while len(header := reader.read(MESSAGE.size)) == MESSAGE.size:
                number, kind, size = MESSAGE.unpack(header)
                if size > _MESSAGE_BYTES:
                    reason = "it sent a message that is too long"
                    break
                if len(payload := reader.read(size)) < size:
                    break
                if number == 0:
                    self._is_ready = payload == _READY
                    self._started.set()
                elif (channel := self._channels.get(number)) is not None and not channel.take(kind, payload):
                    reason = "it sent more than its host has room for"
                    break
        loss = f"the server of programs in WebAssembly is lost: {reason}"
        with self._lock:
            self._loss = loss
            channels = list(self._channels.values())
        self.kill()
        self._started.set()
        if channels:
            logger.warning(
                "a server of programs in WebAssembly is lost: %s %s",
                reason,
                escape_hidden(self._errors[-400:].decode("utf-8", "replace")),
            )
        for channel in channels:
            channel.lose(loss)
        self._process.wait()

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            while data := stream.read(_ERRORS_BYTES):
                self._errors = (self._errors + data)[-_ERRORS_BYTES:]


class _PipedChannel(GuestChannel):
    """Channel of one execution to a plain process. Belongs to the event loop in which it is made."""

    def __init__(self, process: _PlainProcess, number: int) -> None:
        self.number = number
        self._process = process
        self._schedule = thread_safe_scheduler()
        self._lock = threading.Lock()
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._unhandled = 0
        self._credit = 0
        self._queued = 0
        self._room: anyio.Event | None = None
        self._end: tuple[int | None, str] = None, ""
        self._lost: str | None = None
        self._over = anyio.Event()
        self._receive: Callable[[bytes], None] = lambda _: None
        self._ended: Callable[[Exception | None], None] = lambda _: None

    # --- called by the threads of its process

    def take(self, kind: int, payload: bytes) -> bool:
        """Takes a message. Returns False if there are more than the process may send."""
        with self._lock:
            self._unhandled += MESSAGE.size + len(payload)
            self._arrived.append((kind, payload))
            is_first = len(self._arrived) == 1
            has_room = self._unhandled <= WINDOW_BYTES + _MESSAGE_BYTES
        if is_first:
            self._soon(self._deliver)
        return has_room

    def written(self, size: int) -> None:
        with self._lock:
            self._queued -= size
            room, self._room = self._room, None
        if room is not None:
            self._soon(room.set)

    def lose(self, reason: str) -> None:
        self._lost = reason
        self._soon(self._deliver)

    def _soon(self, action: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and its executions with it
            self._schedule(action)

    # --- called in the event loop

    def attach(
        self,
        receive: Callable[[bytes], None],
        ended: Callable[[Exception | None], None],
        on_cpu: Callable[[float], None],
    ) -> bool:
        """Pushes output. The process watches the processor time itself."""
        del on_cpu
        self._receive, self._ended = receive, ended
        return True

    def limit_cpu(self, seconds: float) -> None:
        self._process.send(self.number, OPEN, struct.pack("<d", seconds))

    def send_now(self, data: bytes | bytearray) -> int:
        with self._lock:
            if self._queued > _QUEUE_BYTES:
                return 0
            self._queued += MESSAGE.size + len(data)
        self._process.send(self.number, DATA, bytes(data), self)
        return len(data)

    async def send(self, data: bytes) -> None:
        while self._lost is None and not self._over.is_set() and not self.send_now(data):
            with self._lock:
                self._room = room = anyio.Event()
                if self._queued <= _QUEUE_BYTES:  # written meanwhile
                    continue
            await room.wait()

    async def post_mortem(self) -> PostMortem:
        with anyio.move_on_after(_END_SECONDS):
            await self._over.wait()
        status, error = self._end
        return PostMortem(status=status, stderr=error, lost=self._lost or "")

    async def aclose(self) -> None:
        """Ends the execution, or the process if that does not end it."""
        if not self._over.is_set() and self._lost is None:
            self._process.send(self.number, END, b"")
            with anyio.move_on_after(_END_SECONDS):
                await self._over.wait()
            if not self._over.is_set():
                logger.warning("a program in WebAssembly did not end within %g s: its process is killed", _END_SECONDS)
                self._process.kill()
        self._process.forget(self)

    def _deliver(self) -> None:
        with self._lock:
            messages = list(self._arrived)
            self._arrived.clear()
            self._unhandled = 0
        for kind, payload in messages:
            if kind == DATA:
                self._credit += len(payload)
                self._receive(payload)
            elif not self._over.is_set():
                self._end = _parsed(payload)
                self._over.set()
                self._ended(None)
        if self._lost is not None and not self._over.is_set():
            self._over.set()
            self._ended(ChannelLost(self._lost))
        elif self._credit >= WINDOW_BYTES // 4:
            self._process.send(self.number, CREDIT, self._credit.to_bytes(4, "little"))
            self._credit = 0


def _parsed(payload: bytes) -> tuple[int | None, str]:
    """Returns the status and the error of an END."""
    try:
        content: Any = json.loads(payload or b"{}")
        status = content.get("status")
        return status if isinstance(status, int) else None, str(content.get("error", ""))
    except (ValueError, RecursionError, AttributeError):
        return None, "a malformed END"


class _PlainServer(Box["_InPlainServer"]):
    """Plain process as a box of the executions of one owner."""

    def __init__(self, process: _PlainProcess, memory_mb: int) -> None:
        super().__init__(MOST_AT_ONCE)
        self.process = process
        self.memory_mb = memory_mb

    @override
    def enter(self) -> _InPlainServer | None:
        if self.process.alive:
            return _InPlainServer(self)
        self.retire()
        return None

    @override
    def end(self) -> None:
        self.process.end()


class _InPlainServer(Connected):
    """One execution in a plain process."""

    def __init__(self, server: _PlainServer) -> None:
        super().__init__(ChannelLink(server.process.open()), _PLAIN, server.memory_mb)
        self._server: _PlainServer | None = server

    @override
    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            server, self._server = self._server, None
            if server is not None:
                server.leave()


class _WithFiles(Sandbox):
    """Sandbox whose program asks the host for the files of its session."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.containment = sandbox.containment
        self._sandbox = sandbox

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        assert job.files is not None
        handler, seconds = bridge.handler, job.limits.cpu_seconds
        files = FileService(job.files, seconds, encode_value)

        async def handle(request: CallRequest) -> Reply:
            if request.tool == FileService.NAME:
                return Reply(encoded=await files.answer(request.input))
            return await handler(request)

        job = replace(
            job,
            services=(*job.services, FileService.NAME),
            mounts=tuple((path, writable, None) for path, writable, _ in job.mounts),
        )
        exit = await self._sandbox.execute(job, replace(bridge, handler=handle))
        if files.is_out_of_time:
            return failed_exit(ProgramTimeout(f"the program used up its {seconds:g} s of processor time"))
        return exit

    async def aclose(self) -> None:
        await self._sandbox.aclose()


@checked
class WasmSandbox(ForkProvider):
    """Runs programs in QuickJS in WebAssembly, each in a fresh instance.

    It starts programs faster than other engines. Programs compute slower than in V8, and have no streams: docs/wasm.md
    has the whole list.

    `tier` selects the jail of the processes that hold the instances. Each process serves one user of one organization.
    "auto" uses the best one that this system supports, and at least the required one. Where no jail starts, as on macOS
    and Windows, it uses plain processes: their containment is `interpreter`, which is sufficient for the required tier
    `landlock`. `pool_size` is the number of such processes kept ready for new users.

    Raises:
        ConfigError: an argument has an invalid value. MissingExtra: wasmtime or quickjs-rs is not installed.
    """

    name: ClassVar[str] = "wasm"
    language: ClassVar[Language] = "typescript"

    def __init__(self, *, tier: Tier | Literal["auto"] = "auto", pool_size: int | None = None) -> None:
        engine_parts()
        super().__init__(
            tier=tier,
            pool_size=pool_size,
            starter=GuestStarter(
                tier, _command, RuntimeDirectory(wasm_server), {"LC_CTYPE": "C.UTF-8"}, garbage_mb=TOTAL_MB
            ),
        )
        self._capabilities = replace(
            self._capabilities,
            durable=True,
            saves=True,
            enforces=LIMITS_OF_SANDBOXES,  # also without a jail
            modules=True,
            lacks=LACKS,
        )
        self._runtime = RuntimeDirectory(wasm_server)
        self._plain_pool = Pool(self._start_process, self._pool.size)
        self._plain_servers = OwnedBoxes[_InPlainServer]()
        self._retries = JailRetries()
        finalize_in_owner(self, _close_plain, self._plain_servers, self._plain_pool, self._runtime)

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        return f"wasmtime {version('wasmtime')}, quickjs-rs {version('quickjs-rs')}"

    @override
    async def warm(self, config: SandboxConfig) -> None:
        async def plain(config: SandboxConfig) -> None:
            await self._plain_pool.warm(config.unowned)

        await self._in_jail_or_plain(super().warm, plain, config)

    @override
    async def start(self, config: SandboxConfig) -> Sandbox:
        sandbox = await self._in_jail_or_plain(super().start, self._start_plain, _of_programs(config))
        return sandbox if config.space is None else _WithFiles(sandbox)

    @override
    async def guest(self, config: SandboxConfig) -> LocalGuest:
        return await super().guest(_of_programs(config))

    async def _in_jail_or_plain(
        self,
        jailed: Callable[[SandboxConfig], Awaitable[T]],
        plain: Callable[[SandboxConfig], Awaitable[T]],
        config: SandboxConfig,
    ) -> T:
        """Uses a jail if one works here, else a plain process if its containment is sufficient.

        Raises:
            StartFailed: neither starts, or the plain process is not sufficient.
        """
        if self.tier in TIERS[1:] and not can_limit:
            raise StartFailed(f"WasmSandbox(tier={self.tier!r}): {NO_JAIL}; leave out `tier`")
        accepted = self.tier == "auto" or not can_limit
        sufficient = accepted and _PLAIN.reaches(config.required_tier)
        if can_limit and (not sufficient or self._retries.begin()):
            try:
                result = await jailed(config)
            except StartFailed as error:
                if not sufficient or config.required_tier == "none":  # in which a process without a jail has failed
                    raise
                result = await self._instead(plain, config, error)
            else:
                self._retries.reset()
            return result
        if not sufficient:
            raise below_required_tier(self.name, _PLAIN, config.required_tier)
        return await plain(config)

    async def _instead(
        self, plain: Callable[[SandboxConfig], Awaitable[T]], config: SandboxConfig, error: StartFailed
    ) -> T:
        try:
            result = await plain(config)
        except StartFailed as failure:
            raise StartFailed(f"{error}. Without a jail: {failure}") from failure
        if self._retries.fail():
            logger.warning("programs in WebAssembly run without a jail: %s", error)
        return result

    async def _start_plain(self, config: SandboxConfig) -> Sandbox:
        return await self._plain_servers.reserve(config, self._new_plain_server)

    async def _new_plain_server(self, config: SandboxConfig) -> _PlainServer:
        return _PlainServer(await self._plain_pool.take(config.unowned), config.memory_mb)

    def _start_process(self, config: SandboxConfig, _in_advance: bool) -> _PlainProcess:
        library, _ = engine_parts()
        try:
            folder = self._runtime.prepare()
        except OSError as error:
            raise StartFailed(f"cannot write the guest's code to a temporary directory: {error}") from error
        command = [sys.executable, *_ISOLATED, str(folder / "guest.py"), str(folder / "guest.bin")]
        command += [str(library.parent), str(image_folder()), str(config.memory_mb), PIPES]
        return _PlainProcess(command, {name: os.environ[name] for name in _VARIABLES if name in os.environ})

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await run_shielded_in_thread(lambda: _close_plain(self._plain_servers, self._plain_pool, self._runtime))

    @override
    async def placement(self, config: SandboxConfig) -> None:  # type: ignore[override]
        """Returns None: every tier has files, because programs ask the host for them."""

    @override
    async def prepare_space(self, config: SandboxConfig) -> None:
        await self.warm(_of_programs(config))

    @override
    async def _new_server(self, config: SandboxConfig) -> ForkServer:
        return _InstanceServer(await self._new_guest(config))


def _of_programs(config: SandboxConfig) -> SandboxConfig:
    """Returns the settings of a server, which has neither the files nor the packages of its programs."""
    return config.model_copy(update={"space": None, "modules": False, "preloads": None})


def _close_plain(
    servers: OwnedBoxes[_InPlainServer], pool: Pool[SandboxConfig, _PlainProcess], runtime: RuntimeDirectory
) -> None:
    for box in servers.close():
        if isinstance(box, _PlainServer) and box.idle_since is not None:
            box.process.close()
    pool.close()
    runtime.close()


def _command(config: SandboxConfig) -> GuestCommand:
    engine, _ = installation(())
    library, _ = engine_parts()
    mounts = (*engine.mounts, Mount(library.parent, _LIBRARY), Mount(image_folder(), _IMAGE))
    arguments = (*_ISOLATED, f"{GUEST_FILE}guest.py", f"{GUEST_FILE}guest.bin")
    arguments += (f"{MOUNTED}{_LIBRARY}", f"{MOUNTED}{_IMAGE}", str(config.memory_mb))
    return GuestCommand(replace(engine, mounts=mounts), arguments)
