"""Several hosts behind one address: a request goes to the host of its execution. docs/hosts.md describes it.

Needs the extra `hosts`.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from hashlib import sha256
from urllib.parse import quote, urlsplit

import anyio
from anyio.lowlevel import RunVar

from corral.arguments import checked
from corral.bridges.base import ASGIApp, PeerHandler, Receive, Scope, Send
from corral.bridges.web.request_filter import FORWARDED, PEER_PATH, RequestHead
from corral.bridges.web.request_load import read_body
from corral.bridges.web.request_watch import BODY_SECONDS, late
from corral.bridges.web.responses import Response, failed, status_of
from corral.concurrency.kept import Lease
from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import thread_safe_callback
from corral.errors import (
    AccessDenied,
    BridgeError,
    ConfigError,
    CorralError,
    HostLost,
    MalformedMessage,
    error_class,
    requires_extra,
)
from corral.logs import get_logger
from corral.types import CallError, ExecutionContext

with requires_extra("corral.bridges.peers", "hosts"):
    import httpcore

__all__ = ["Peers"]

logger = get_logger("corral.hosts")

_FROM_ENVIRONMENT = "TOOL_BRIDGE_SECRET"
_MIN_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_PROOF = re.compile(rb"1 ([A-Za-z0-9._-]{1,63}) ([0-9]{1,15}) ([0-9a-f]{64})")
_PROOF_SECONDS = 60.0
"""Maximum age of a proof, and by how much two hosts' clocks may differ."""
_CONNECT_SECONDS = 2.0
_WRITE_SECONDS = 30.0
_IDLE_SECONDS = 1.0
"""Seconds for which an idle connection is kept: less than any common server does, because a request on a connection
that the server is closing would fail, and must not be sent twice."""
_IDLE = 128
_TCP_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000}
_SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), n) for name, n in _TCP_OPTIONS.items() if hasattr(socket, name)),
]
"""A machine that disappears without a word is noticed after 11 s, however long a call takes."""
_HOP_BY_HOP = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
"""Headers of one connection: RFC 9110, section 7.6.1."""
_CLIENT_HEADERS = {b"x-corral-host": b"host", b"x-corral-origin": b"origin"}
"""Headers that carry the client's Host and Origin to a peer's app, for its own checks."""
_NOT_SENT = _HOP_BY_HOP | {b"host", b"origin", FORWARDED, *_CLIENT_HEADERS}
_SENDER = "corral.sender"
"""Key in the ASGI scope of a forwarded request."""
_MESSAGES = "messages"
"""Name of the app that answers messages of peers."""
_DIGEST = b"Digest "
"""Authorization scheme of a message: the SHA-256 of its body. The proof covers this header."""
_ASK_SECONDS = 5.0
_MAX_MESSAGE_BYTES = 4_000_000
"""Maximum bytes of a message between hosts, and of its answer."""
_NOT_RETURNED = _HOP_BY_HOP | {b"date", b"server"}


class _ClientGone(Exception):
    """The client disconnected before its body was complete."""


@checked
class Peers:
    """Hosts behind one address, with fixed URLs: `Corral(peers=Peers("a", {"a": "http://10.0.0.1:8000", "b": ...}))`.

    `name` is this host, and `urls` the addresses of the others' bridges by name, with the path at which they are
    mounted; this host's own can be among them. Each name stands for one process. `secret`, of at least 32 bytes, proves
    to a peer that a request was forwarded; by default it is derived from the environment variable TOOL_BRIDGE_SECRET.
    `ssl_context` verifies peers with https URLs.

    Raises:
        ConfigError: a name or URL is invalid, or there is no secret.
    """

    def __init__(
        self,
        name: str,
        urls: Mapping[str, str],
        *,
        secret: str | bytes | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        for each in (name, *urls):
            if not _NAME.fullmatch(each):
                raise ConfigError(f"the host name {each!r} must have 1 to 63 letters, digits, '.', '_' or '-'")
        self._name = name
        self._secret = _secret_of(secret)
        self._ssl_context = ssl_context
        self._urls = {each: parse_url(each, url) for each, url in urls.items() if each != name}
        self._pool: RunVar[httpcore.AsyncConnectionPool] = RunVar("corral.peers")
        self._forwarding: dict[str, set[Callable[[], object]]] = {}
        """Functions that end the requests that are being forwarded to each peer."""
        self._handlers: dict[str, PeerHandler] = {}
        self._apps: dict[str, ASGIApp] = {_MESSAGES: self._answer}

    @property
    def name(self) -> str:
        """Name of this host, which is in the tokens that it issues."""
        return self._name

    async def open(self) -> None:
        """Does nothing: fixed peers need no registration."""

    async def aclose(self) -> None:
        """Closes idle connections. Idempotent."""
        pool = self._pool.get(None)
        if pool is not None:
            self._pool.set(self._new_pool())
            await pool.aclose()

    async def knows(self, host: str) -> bool:
        """Returns True if a peer has that name."""
        return host in self._urls

    def has_sent(self, proof: bytes, scope: Scope) -> bool:
        """Returns True if a peer made the proof for this request and this host, in the last minute."""
        parts = _PROOF.fullmatch(proof)
        if parts is None:
            return False
        sender, sent, _ = parts.groups()
        if abs(time.time() - int(sent) / 1000) > _PROOF_SECONDS:
            return False
        return hmac.compare_digest(proof, self._proof(sender, self._name.encode(), sent, scope))

    def _proof(self, sender: bytes, receiver: bytes, sent: bytes, scope: Scope) -> bytes:
        """Returns the header that proves who has forwarded a request, to whom, and when."""
        tokens = [value for name, value in scope["headers"] if name == b"authorization"]
        digest = sha256(b"\0".join(tokens)).hexdigest().encode()
        parts = b"corral-forwarded-1", sender, receiver, sent, scope["method"].encode(), target_of(scope), digest
        return b"1 %b %b %b" % (sender, sent, hmac.digest(self._secret, b"\n".join(parts), "sha256").hex().encode())

    async def forward(self, host: str, scope: Scope, receive: Receive, send: Send, *, app: str | None = None) -> None:
        """Forwards a request to a peer's bridge, or to the `app` that it serves, and streams the response back.

        Raises:
            HostLost: the peer does not answer; nothing has been sent back.
            MalformedMessage: the request's body is late; nothing has been sent back.
        """
        url = self._urls.get(host)
        if url is None:
            raise HostLost(f"the host {host!r} of this execution has ended")
        if app is not None:
            scope = _scope_of_app(scope, app)
        request = _Request(url, host, scope, receive, self._headers(host, scope))
        failure = None
        with self._ends_with(host) as running, anyio.CancelScope() as leaving:
            failure = await request.send(self._connections(), send, leaving)
        if running.cancelled_caught and not request.answered:
            failure = HostLost(f"the host {host!r} of this execution has ended; the call can have taken effect")
        if failure is not None:
            raise failure

    # --- apps of hosts, and messages between them

    def serve(self, name: str, app: ASGIApp) -> str:
        """Serves an app for requests that peers forward. Returns its name, which differs from `name` if that is taken.

        Hosts must make their apps in the same order.
        """
        number, free = 1, name
        while free in self._apps:
            number, free = number + 1, f"{name}-{number + 1}"
        self._apps[free] = app
        return free

    async def receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request from a peer to the app that its path names."""
        head = RequestHead.of(scope)
        name, _, _ = head.path.removeprefix(PEER_PATH).partition("/")
        app = self._apps.get(name)
        sender = _PROOF.fullmatch(head.forwarded or b"")
        if app is None or sender is None:
            await _refusal(BridgeError(f"this host has no app {name!r}; hosts must serve the same apps"), 404)(
                scope, receive, send
            )
            return
        start = f"{PEER_PATH}{name}"
        path = target_of(scope).partition(b"?")[0].removeprefix(start.encode())
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"host", FORWARDED)]
        inner = {
            **scope,
            "path": head.path.removeprefix(start),
            "raw_path": path,
            "root_path": "",
            "headers": [(_CLIENT_HEADERS.get(name, name), value) for name, value in headers],
        }
        inner = {name: value for name, value in inner.items() if not name.startswith("corral.")}
        await app(inner | {_SENDER: sender[1].decode()}, receive, send)

    def sender_of(self, scope: Scope) -> str | None:
        """Returns the peer that has forwarded a request to an app; None if it came from a client."""
        sender: str | None = scope.get(_SENDER)
        return sender

    def answer(self, name: str, handler: PeerHandler) -> None:
        """Registers the handler of peers' messages whose names begin with `name` and a slash."""
        self._handlers[name] = handler

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = RequestHead(scope)
        kind, _, name = head.path.removeprefix("/").partition("/")
        try:
            body = await read_body(head, receive, _MAX_MESSAGE_BYTES)
            if head.authorization != _DIGEST + sha256(body).hexdigest().encode():
                raise AccessDenied("the body does not match its digest; it was changed on the way")
            if (handler := self._handlers.get(kind)) is None:
                raise BridgeError(f"this host does not answer {kind!r}; hosts must have the same options")
            response = Response(await handler(name, body), headers={}, media_type="application/json")
        except CorralError as error:
            response = _refusal(error)
        await response(scope, receive, send)

    async def ask(self, name: str, body: bytes) -> dict[str, bytes | CorralError]:
        """Sends a message to all peers at once. Returns the answer or the error of each host."""
        answers: dict[str, bytes | CorralError] = {}

        async def ask(host: str) -> None:
            answers[host] = await self._ask(host, name, body)

        async with plain_task_group() as tasks:
            for host in [*self._urls]:
                tasks.start_soon(ask, host)
        return answers

    async def _ask(self, host: str, name: str, body: bytes) -> bytes | CorralError:
        authorization = _DIGEST + sha256(body).hexdigest().encode()
        length = b"%d" % len(body)
        message = {
            "method": "POST",
            "path": f"/{name}",
            "headers": [(b"authorization", authorization), (b"content-length", length)],
        }
        scope = _scope_of_app(message, _MESSAGES)
        if (url := self._urls.get(host)) is None:
            return HostLost(f"the host {host!r} has ended")
        answer = bytearray()
        try:
            with anyio.fail_after(_ASK_SECONDS):
                async with self._connections().stream(
                    "POST",
                    _with_target(url, target_of(scope)),
                    headers=self._headers(host, scope),
                    content=body,
                    extensions={"timeout": {"connect": _CONNECT_SECONDS, "write": _WRITE_SECONDS}},
                ) as response:
                    async for data in response.aiter_stream():
                        answer += data
                        if len(answer) > _MAX_MESSAGE_BYTES:
                            return HostLost(f"the host {host!r} answers with more than {_MAX_MESSAGE_BYTES} bytes")
                    return bytes(answer) if response.status == 200 else _error_in(host, bytes(answer))
        except (TimeoutError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return HostLost(f"the host {host!r} does not answer: {type(error).__name__}: {error}".removesuffix(": "))

    # --- leases, which fixed peers do not have

    async def hold(self, context: ExecutionContext, on_lost: Callable[[], object]) -> Lease:
        """Takes the lease of the context's session, which a host can hold several times.

        `on_lost` is called if the lease ends before its `release`. This lease does not exclude other hosts: only
        `RedisPeers` has a store for leases.

        Raises:
            SessionElsewhere: another host holds it.
            StartFailed: no lease can be taken now.
        """
        del context, on_lost
        return _Unshared()

    async def holder(self, context: ExecutionContext) -> str | None:
        """Returns the peer that holds the session of a context; None if it is free, held by this host, or unknown."""
        del context
        return None

    @contextmanager
    def _ends_with(self, host: str) -> Generator[anyio.CancelScope]:
        """Cancels the block if the peer is known to have ended."""
        with anyio.CancelScope() as cancelling:
            end = thread_safe_callback(cancelling.cancel)
            running = self._forwarding.setdefault(host, set())
            running.add(end)
            try:
                yield cancelling
            finally:
                running.discard(end)
                if not running and self._forwarding.get(host) is running:
                    del self._forwarding[host]

    def _headers(self, host: str, scope: Scope) -> list[tuple[bytes, bytes]]:
        listed = b",".join(value for name, value in scope["headers"] if name == b"connection")
        named = {each.strip().lower() for each in listed.split(b",")}
        # Only apps get the headers of `_CLIENT_HEADERS`, and `_scope_of_app` has removed those of the client itself.
        is_app = (scope.get("raw_path") or b"").startswith(PEER_PATH.encode())
        left_out = (_NOT_SENT - _CLIENT_HEADERS.keys()) if is_app else _NOT_SENT
        kept = [(name, value) for name, value in scope["headers"] if name not in left_out and name not in named]
        sent = b"%d" % (time.time() * 1000)
        return [*kept, (FORWARDED, self._proof(self._name.encode(), host.encode(), sent, scope))]

    def _connections(self) -> httpcore.AsyncConnectionPool:
        pool = self._pool.get(None)
        if pool is None:
            pool = self._new_pool()
            self._pool.set(pool)
        return pool

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        # The number of connections needs no limit: each serves one request to this host, which the server bounds.
        return httpcore.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=None,
            max_keepalive_connections=_IDLE,
            keepalive_expiry=_IDLE_SECONDS,
            socket_options=_SOCKET_OPTIONS,
        )


class _Request:
    """Request on its way to a peer."""

    def __init__(
        self, url: httpcore.URL, host: str, scope: Scope, receive: Receive, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self._url = _with_target(url, target_of(scope))
        self._host = host
        self._method: str = scope["method"]
        self._receive = receive
        self._headers = headers
        self._body_ends = anyio.current_time() + BODY_SECONDS
        self._body_received = anyio.Event()
        self.answered = False
        """True once the response has begun."""

    async def send(
        self, pool: httpcore.AsyncConnectionPool, send: Send, leaving: anyio.CancelScope
    ) -> HostLost | MalformedMessage | None:
        """Sends the request and passes its response on. Returns the reason if there is none.

        Cancels `leaving`, which surrounds it, once the client disconnects, so that the peer cancels the calls.
        """
        failures: list[HostLost | MalformedMessage] = []
        async with plain_task_group() as tasks:
            tasks.start_soon(self._watch, leaving)
            try:
                await self._exchange(pool, send)
            except _ClientGone:
                pass
            except TimeoutError:
                failures.append(MalformedMessage(late().message))
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                reason = f"{type(error).__name__}: {error}".removesuffix(": ")
                logger.warning("the host %r does not answer a forwarded request: %s", self._host, reason)
                unsent = isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout)
                effect = "nothing was called" if unsent else "the call can have taken effect"
                if not self.answered:  # else the server ends the connection, because the response is incomplete
                    failures.append(HostLost(f"the host {self._host!r} of this execution does not answer; {effect}"))
            finally:
                tasks.cancel_scope.cancel()
        return failures[0] if failures else None

    async def _exchange(self, pool: httpcore.AsyncConnectionPool, send: Send) -> None:
        timeouts = {"connect": _CONNECT_SECONDS, "write": _WRITE_SECONDS, "read": None, "pool": None}
        has_body = self._method not in ("GET", "HEAD") or any(name == b"content-length" for name, _ in self._headers)
        if not has_body:
            self._body_received.set()
        async with (
            aclosing(self._body()) as body,
            pool.stream(
                self._method,
                self._url,
                headers=self._headers,
                content=body if has_body else None,
                extensions={"timeout": timeouts},
            ) as response,
        ):
            headers = [(name, value) for name, value in response.headers if name.lower() not in _NOT_RETURNED]
            self.answered = True
            self._body_received.set()
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for data in response.aiter_stream():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _body(self) -> AsyncGenerator[bytes]:
        more = True
        while more:
            with anyio.fail_after(max(0, self._body_ends - anyio.current_time())):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            more = message.get("more_body", False)
            if not more:
                self._body_received.set()
            if data := message.get("body", b""):
                yield data

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """Cancels the scope once the client disconnects."""
        await self._body_received.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


class _Unshared:
    """Lease that other hosts do not see."""

    is_held = True

    async def release(self) -> None: ...


def _with_target(url: httpcore.URL, target: bytes) -> httpcore.URL:
    return httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target.rstrip(b"/") + target)


def _scope_of_app(scope: Scope, app: str) -> Scope:
    """Converts a client's request to one for a peer's app, with its Host and Origin in separate headers."""
    sent = {value: name for name, value in _CLIENT_HEADERS.items()}
    headers = [(name, value) for name, value in scope["headers"] if name not in _CLIENT_HEADERS]
    copies = [(sent[name], value) for name, value in headers if name in sent]
    path = PEER_PATH.encode() + app.encode() + target_of(scope).partition(b"?")[0]
    return {**scope, "root_path": "", "raw_path": path, "headers": [*headers, *copies]}


def _refusal(error: CorralError, status: int | None = None) -> Response:
    described = CallError.of(error)
    body = json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()
    return failed(body, described, status or status_of(described))


def _error_in(host: str, body: bytes) -> CorralError:
    try:
        error = json.loads(body)["error"]
        return error_class(error["code"])(f"{error['message']} (host {host!r})")
    except (ValueError, KeyError, TypeError):
        return HostLost(f"the host {host!r} refuses messages of its peers: {body[:200].decode(errors='replace')}")


def target_of(scope: Scope) -> bytes:
    """Returns a request's path relative to its app, and its query."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    path = path.removeprefix(quote(scope.get("root_path", "")).encode())
    return path + b"?" + query if query else path


def parse_url(name: str, url: str) -> httpcore.URL:
    """Parses the URL of a host.

    Raises:
        ConfigError: it is not an http or https URL, or has more than an address and a path.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or any(character in url for character in "@?# \\\r\n\t"):
        raise ConfigError(f"the URL of the host {name!r} must be like http://10.0.0.1:8000 or https://a.example/corral")
    return httpcore.URL(url)


def _secret_of(secret: str | bytes | None) -> bytes:
    if secret is None:
        shared = os.environ.get(_FROM_ENVIRONMENT)
        if shared is None:
            raise ConfigError(f"Peers(secret=...) is missing; pass it, or set {_FROM_ENVIRONMENT}, on every host")
        secret = shared
    key = secret.encode() if isinstance(secret, str) else secret
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigError(f"the peers' secret has under {_MIN_SECRET_BYTES} bytes; `openssl rand -hex 32` prints 64")
    return hmac.digest(key, b"corral-peers-1", "sha256")
