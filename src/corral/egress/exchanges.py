"""HTTP requests of a program, as calls of two services: `$fetch` takes their parts, `$http` the raw bytes of a library.

Both take `{"do": ..., "id": ...}`, where `id` is a number that the program chooses. `write` adds to a body. `open`
sends the request and returns the response's head, with its body if that is short. `read` returns the next piece.
`close` ends the request at any time.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
import h11
import httpx

from corral.audit import AuditEvent, AuditLog, Outcome, new_event_id
from corral.egress.addresses import read_host
from corral.egress.client import SafeClient
from corral.egress.connections import Resolver
from corral.egress.policy import EgressPolicy, blocked
from corral.errors import (
    AccessDenied,
    CallBudgetExceeded,
    CorralError,
    ExecutionCancelled,
    InvalidArguments,
    ToolFailed,
)
from corral.logs import get_logger
from corral.rendering.masking import Mask
from corral.types import ExecutionContext

logger = get_logger("corral.egress")

_PIECE_BYTES = 65_536
_HEADS_BYTES = 1_000_000
_MOST_OPEN = 256
"""Maximum number of open requests."""
_MOST_UNREAD = 16
"""Maximum number of responses with unread bodies. It is lower than a policy's default number of connections."""
_NEVER_SENT = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_NEVER_RETURNED = frozenset({"connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade"})
_MOST_HEADERS = 100
_MOST_HEAD_BYTES = 64_000
_HEAD_END = re.compile(rb"\n\r?\n")
_EXCHANGE = "corral.exchange"
_REFUSED = frozenset({"CONNECT", "TRACE"})


class Caller(Protocol):
    """Execution that makes the requests."""

    @property
    def execution_id(self) -> str: ...
    @property
    def context(self) -> ExecutionContext: ...


class Rules(Protocol):
    """Part of a `Network` that requests need."""

    methods: tuple[str, ...] | None
    requests: int
    request_bytes: int
    response_bytes: int
    websockets: int
    resolver: Resolver | None

    @property
    def policy(self) -> EgressPolicy: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def tls(self) -> Any: ...


class Exchanges:
    """Open requests of a program, and the budgets of all its requests."""

    def __init__(self, rules: Any, caller: Caller, audit: AuditLog | None, *, protocol: str = "pipe") -> None:
        self.rules: Rules = rules
        self._protocol = protocol
        self._numbers = itertools.count()
        self._caller = caller
        self._audit = audit
        self._client: SafeClient | None = None
        self._open: dict[int, Exchange] = {}
        self._requests = rules.requests
        self._request_bytes = rules.request_bytes
        self._response_bytes = rules.response_bytes
        self._held_bytes = 0
        self._unsent = 0
        """Number of requests that ended before they were sent. The budget of requests does not include them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            for exchange in tuple(self._open.values()):
                await exchange.aclose()
            await self._record_rest()
            if self._client is not None:
                await self._client.aclose()

    @property
    def client(self) -> SafeClient:
        if self._client is None:
            rules = self.rules
            hooks = {"request": [self._hop]}
            self._client = SafeClient(
                rules.policy, resolver=rules.resolver, verify=rules.tls, timeout=None, event_hooks=hooks
            )
        return self._client

    async def fetch(self, call: object) -> object:
        """Answers `$fetch`."""
        match call:
            case {"do": "open", "id": int() as number, "url": str() as url, "method": str() as method}:
                members = cast("dict[str, Any]", call)
                exchange = self._exchange(number)
                exchange.add(members.get("body") or b"")
                redirect = members.get("redirect", "follow")
                if redirect not in ("follow", "manual", "error"):
                    raise InvalidArguments("redirect must be follow, manual or error")
                response = await exchange.send(
                    method, url, pairs(members.get("headers", [])), follow=redirect == "follow"
                )
                if redirect == "error" and response.has_redirect_location:
                    await exchange.aclose()
                    raise ToolFailed("the request was redirected, and redirect is 'error'")
                data, done = await exchange.beginning()
                return {
                    "status": response.status_code,
                    "statusText": self.rules.mask.text(response.reason_phrase),
                    "headers": exchange.shown_headers,
                    "url": self.rules.mask.text(str(response.url)),
                    "redirected": bool(response.history),
                    "data": data,
                    "done": done,
                }
            case _:
                return await self._other(call)

    async def http(self, call: object) -> object:
        """Answers `$http`."""
        match call:
            case {
                "do": "open", "id": int() as number, "host": str() as host, "port": int() as port, "tls": bool() as tls,
            }:  # fmt: skip
                exchange = self._exchange(number)
                raw = exchange.take() + _data(cast("dict[str, Any]", call).get("raw", b""))
                method, target, headers, body = _parsed(raw)
                exchange.add(body)
                shown = f"[{host}]" if ":" in host else host
                url = f"{'https' if tls else 'http'}://{shown}:{port}{target}"
                response = await exchange.send(method, url, headers, follow=False)
                data, done = await exchange.beginning()
                lines = [f"HTTP/1.1 {response.status_code} {self.rules.mask.text(response.reason_phrase)}"]
                lines += [f"{name}: {value}" for name, value in exchange.shown_headers]
                if method == "HEAD":
                    lines += [f"content-length: {response.headers.get('content-length', 0)}"]
                elif done:
                    lines += [f"content-length: {len(data)}"]
                head = "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1", "replace")
                return {"data": head + data, "done": done}
            case _:
                return await self._other(call)

    async def _other(self, call: object) -> object:
        match call:
            case {"do": "write", "id": int() as number, "data": bytes() as data}:
                self._exchange(number).add(data)
                return None
            case {"do": "read", "id": int() as number} if number in self._open:
                data, done = await self._open[number].read()
                return {"data": data, "done": done}
            case {"do": "read"}:
                return {"data": b"", "done": True}
            case {"do": "close", "id": int() as number}:
                if (exchange := self._open.get(number)) is not None:
                    await exchange.aclose()
                return None
            case _:
                raise InvalidArguments("malformed request")

    def begin(self) -> Exchange:
        """Begins a request under a number that the host chooses."""
        return self._exchange(next(self._numbers))

    def _exchange(self, number: int) -> Exchange:
        exchange = self._open.get(number)
        if exchange is None:
            if len(self._open) >= _MOST_OPEN:
                raise CallBudgetExceeded(f"{_MOST_OPEN} requests are open, the maximum; end some of them first")
            exchange = self._open[number] = Exchange(self, number)
        return exchange

    def hold(self, size: int) -> None:
        """Counts the bytes of unsent requests, heads included."""
        if size > 0 and self._held_bytes + size > self.rules.request_bytes + _HEADS_BYTES:
            raise CallBudgetExceeded(f"unsent requests exceed Network(request_bytes={self.rules.request_bytes})")
        self._held_bytes += size

    async def keep_unread(self, exchange: Exchange) -> None:
        """Counts a response with an unread body.

        Raises:
            CallBudgetExceeded: there are too many, so this one was closed.
        """
        exchange.is_unread = True
        if sum(each.is_unread for each in self._open.values()) > _MOST_UNREAD:
            await exchange.aclose()
            raise CallBudgetExceeded(
                f"{_MOST_UNREAD} responses are unread, the maximum; read their bodies to the end, or cancel them"
            )

    def forget(self, number: int) -> None:
        """Removes an ended request."""
        self._open.pop(number, None)

    # --- budgets

    def spend_request_bytes(self, size: int) -> None:
        """Charges a part of a request's body. Raises CallBudgetExceeded beyond the budget."""
        if size > self._request_bytes:
            raise CallBudgetExceeded(
                f"the program has sent more than Network(request_bytes={self.rules.request_bytes})"
            )
        self._request_bytes -= size

    def spend_response_bytes(self, size: int) -> None:
        """Charges a part of a response's body. Raises CallBudgetExceeded beyond the budget."""
        self._response_bytes -= size
        if self._response_bytes < 0:
            raise CallBudgetExceeded(
                f"the program has received more than Network(response_bytes={self.rules.response_bytes})"
            )

    def check_audit(self) -> None:
        """Raises AccessDenied while the audit log cannot record requests."""
        if self._audit is not None:
            self._audit.check()

    async def _hop(self, request: httpx.Request) -> None:
        """Checks a request before it is sent, and each of its redirects."""
        exchange: Exchange = request.extensions[_EXCHANGE]
        hop = await exchange.begin_hop(request)
        self.spend_request(request)
        hop.sent = True

    def spend_request(self, request: httpx.Request) -> None:
        """Checks the method of a request, and charges it to the budget."""
        self._requests -= 1
        if self._requests < 0:
            raise CallBudgetExceeded(f"the program has made all its requests: Network(requests={self.rules.requests})")
        allowed = self.rules.methods
        if request.method in _REFUSED or (allowed is not None and request.method not in allowed):
            host = request.url.raw_host.decode("ascii")
            raise blocked(host, f"the method {request.method[:20]} is not in Network(methods=[...])")

    def build_request(
        self,
        method: str,
        url: httpx.URL | str,
        headers: list[tuple[str, str]],
        *,
        size: int | None = None,
        **options: Any,
    ) -> httpx.Request:
        """Makes a request to an allowed origin. The credential of its host replaces the program's header.

        `size` is that of a streamed body, if known.
        """
        sent = [(name, value) for name, value in headers if name.lower() not in _NEVER_SENT]
        sized = {} if size is None else {"Content-Length": str(size)}
        request = self.client.build_request(method, url, headers=sized, **options)
        host = request.url.raw_host.decode("ascii")
        if (objection := self.rules.policy.objection(request.url.scheme, host, request.url.port)) is not None:
            raise blocked(host, objection)
        credential = self.rules.headers.get(str(read_host(host)))
        if credential is not None:
            sent = [pair for pair in sent if pair[0].lower() != credential.name.lower()]
        names = {name.lower() for name, _ in sent}
        kept = [pair for pair in request.headers.multi_items() if pair[0].lower() not in names]
        if credential is not None:
            kept = [pair for pair in kept if pair[0].lower() != credential.name.lower()]
            sent.append((credential.name, credential.value))
        request.headers = httpx.Headers([*kept, *sent])
        return request

    async def record(self, hop: Hop, outcome: Outcome, error: CorralError | None = None) -> None:
        """Writes the audit event of a hop. For a denial, this happens before the program gets the error.

        Up to `requests` unsent hops get their own event; `_record_rest` counts the others.
        """
        if not hop.sent:
            self._unsent += 1
            if self._unsent > self.rules.requests:
                return
        reason = str(error) if error is not None and outcome == "denied" else None
        await self._record(hop, outcome, reason, error and error.code)

    async def _record_rest(self) -> None:
        """Writes one event for all unsent requests without their own."""
        left = self._unsent - self.rules.requests
        if left > 0:
            hop = Hop("", "", "")
            await self._record(hop, "denied", f"{left} more requests ended before they were sent", None)

    async def _record(self, hop: Hop, outcome: Outcome, reason: str | None, code: str | None) -> None:
        if self._audit is None:
            return
        caller, context = self._caller, self._caller.context
        mask = self.rules.mask
        seen: dict[str, object] = {
            "method": hop.method,
            "host": mask.text(hop.host),
            "path": mask.text(hop.path),
            "status": hop.status,
            "bytes": hop.size,
        }
        event = AuditEvent(
            id=new_event_id(hop.began),
            time=hop.began,
            kind="request",
            outcome=outcome,
            duration_ms=(time.perf_counter() - hop.started) * 1000,
            protocol=self._protocol,
            code=code,
            reason=None if reason is None else mask.text(reason),
            execution_id=caller.execution_id or None,
            user_id=context.user_id,
            organization_id=context.organization_id,
            session_id=context.session_id,
            arguments=seen,
        )
        if outcome != "denied":
            await self._audit.record(event)
            return
        try:
            await self._audit.record_durably(event)
        except AccessDenied:
            logger.critical("a denial could not be recorded: %s", event.to_json())


class Hop:
    """One request on the wire, for the audit log."""

    def __init__(self, method: str, host: str, path: str) -> None:
        self.method, self.host, self.path = method[:20], host[:300], path[:1000]
        self.began, self.started = time.time(), time.perf_counter()
        self.status: int | None = None
        self.size = 0
        self.sent = False


class Exchange:
    """One request of a program, with its redirects and its response."""

    def __init__(self, owner: Exchanges, number: int) -> None:
        self._owner = owner
        self._number = number
        self._body = bytearray()
        self._scopes: set[anyio.CancelScope] = set()
        self._turn = anyio.Lock()
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._held = b""
        self.is_unread = False
        self._hop: Hop | None = None

    def add(self, data: object) -> None:
        """Adds to the body of the request."""
        part = _data(data)
        self._owner.hold(len(part))
        self._body += part

    def take(self) -> bytes:
        """Returns the body so far, and removes it."""
        data = bytes(self._body)
        self._owner.hold(-len(data))
        self._body.clear()
        return data

    @property
    def shown_headers(self) -> list[list[str]]:
        """Headers of the response for the program, except those whose name contains a secret."""
        assert self._response is not None
        mask = self._owner.rules.mask
        headers = self._response.headers.multi_items()
        return [
            [name, mask.text(value)]
            for name, value in headers
            if name.lower() not in _NEVER_RETURNED and mask.text(name) == name
        ]

    async def send(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        *,
        follow: bool,
        body: AsyncIterator[bytes] | None = None,
        size: int | None = None,
    ) -> httpx.Response:
        """Sends the request, and returns the head of its response.

        `body` is sent instead of added data, and is charged as it is read. `size` is its total size, if known.

        Raises:
            CorralError: it is not allowed, exceeds a budget, or failed.
        """
        owner = self._owner
        try:
            owner.check_audit()
            owner.spend_request_bytes(len(self._body))
            try:
                content = self.take() or None if body is None else self._counted(body)
                request = self._request(method.upper(), url, headers, content, size)
            except (UnicodeError, ValueError) as error:
                raise InvalidArguments(f"malformed request: {str(error)[:200]}") from error
            response: httpx.Response = await self._until_closed(self._respond(request, follow=follow))
        except BaseException as error:
            await self._fail(error)
            raise
        assert self._hop is not None
        self._hop.status = response.status_code
        sized = "content-length" in response.headers  # else pieces are forwarded as they arrive
        self._pieces = response.aiter_bytes(_PIECE_BYTES if sized else None)
        return response

    async def _respond(self, request: httpx.Request, *, follow: bool) -> httpx.Response:
        self._response = await self._owner.client.send(request, stream=True, follow_redirects=follow)
        return self._response

    async def _counted(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for data in body:
            self._owner.spend_request_bytes(len(data))
            yield data

    def _request(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        content: bytes | AsyncIterator[bytes] | None,
        size: int | None,
    ) -> httpx.Request:
        owner = self._owner
        self._hop = Hop(method, *place_of(url))
        return owner.build_request(method, url, headers, size=size, content=content, extensions={_EXCHANGE: self})

    async def begin_hop(self, request: httpx.Request) -> Hop:
        """Begins a hop of this request. If there was one before it, that was a redirect."""
        last, url = self._hop, request.url
        path = url.raw_path.decode("ascii").partition("?")[0]
        hop = self._hop = Hop(request.method, url.raw_host.decode("ascii"), path)
        if last is not None and last.status is None and request.extensions.get(_EXCHANGE + ".sent"):
            await self._owner.record(last, "succeeded")
        request.extensions[_EXCHANGE + ".sent"] = True
        return hop

    async def beginning(self) -> tuple[bytes, bool]:
        """Returns the body and True if its size is known and small; else no bytes and False."""
        assert self._response is not None
        size = self._response.headers.get("content-length", "")
        without = self._response.request.method == "HEAD" or self._response.status_code in {204, 304}
        if not without and not (size.isdigit() and int(size) <= _PIECE_BYTES):
            await self._owner.keep_unread(self)
            return b"", False
        parts: list[bytes] = []
        done = False
        while not done:
            data, done = await self.read()
            parts.append(data)
        return b"".join(parts), True

    async def read(self) -> tuple[bytes, bool]:
        """Returns the next piece of the body, and True after the last one."""
        async with self._turn:
            if self._pieces is None:
                return b"", True
            try:
                data = await self._until_closed(anext(self._pieces, None))
                if data is not None:
                    self._owner.spend_response_bytes(len(data))
                    assert self._hop is not None
                    self._hop.size += len(data)
            except BaseException as error:
                await self._fail(error)
                raise
            mask = self._owner.rules.mask
            if data is None:
                rest, self._held = self._held, b""
                await self._end("succeeded")
                return mask.data(rest), True
            if mask:
                data, self._held = mask.split(self._held + data)
            return data, False

    async def aclose(self) -> None:
        """Ends the request at once. Idempotent."""
        for scope in self._scopes:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._end("succeeded" if self._response is not None else "cancelled")

    async def _until_closed(self, waiting: Any) -> Any:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                result = await waiting
                await anyio.lowlevel.checkpoint_if_cancelled()  # it may be closed just as the result arrives
                return result
            except httpx.HTTPError as error:
                host = "" if self._hop is None else self._hop.host
                reason = self._owner.rules.mask.text(f"{type(error).__name__}: {str(error)[:200]}")
                raise ToolFailed(f"the request to {host!r} failed: {reason}", outcome_known=False) from error
            except (httpx.InvalidURL, httpx.CookieConflict, UnicodeError, ValueError) as error:
                raise InvalidArguments(f"malformed request: {str(error)[:200]}") from error
            finally:
                self._scopes.discard(scope)
        raise ExecutionCancelled("the request was aborted")

    async def _fail(self, error: BaseException) -> None:
        """Records a failure."""
        denied = isinstance(error, AccessDenied | CallBudgetExceeded)
        known = error if isinstance(error, CorralError) else None
        if known is not None:
            mask = self._owner.rules.mask
            known.args = tuple(mask.text(each) if isinstance(each, str) else each for each in known.args)
        cancelled = known is None or isinstance(known, ExecutionCancelled)
        with anyio.CancelScope(shield=True):
            await self._end("denied" if denied else "cancelled" if cancelled else "failed", known)

    async def _end(self, outcome: Outcome, error: CorralError | None = None) -> None:
        self._owner.forget(self._number)
        self.take()
        hop, self._hop = self._hop, None
        self._pieces = None
        if self._response is not None:
            await self._response.aclose()
        if hop is not None:
            await self._owner.record(hop, outcome, error)


def place_of(url: str) -> tuple[str, str]:
    """Returns the host and path of a URL, which may be invalid."""
    try:
        read = httpx.URL(url)
        return read.raw_host.decode("ascii"), read.raw_path.decode("ascii").partition("?")[0]
    except Exception:
        return url[:100], ""


def _data(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if not isinstance(value, bytes | bytearray):
        raise InvalidArguments("a body must be bytes or text")
    return bytes(value)


def pairs(value: object) -> list[tuple[str, str]]:
    """Validates the headers of a program."""
    headers: list[tuple[str, str]] = []
    size = 0
    for pair in cast("list[object]", value) if isinstance(value, list) else [None]:
        match pair:
            case [str() as name, str() as text]:
                headers.append((name, text))
                size += len(name) + len(text)
            case _:
                raise InvalidArguments("headers must be pairs of strings")
        _expect_head(len(headers), size)
    return headers


def _expect_head(headers: int, size: int) -> None:
    """Refuses a large head, because parsing it would block the event loop."""
    if headers > _MOST_HEADERS or size > _MOST_HEAD_BYTES:
        raise InvalidArguments(
            f"a request can have at most {_MOST_HEADERS} headers, of {_MOST_HEAD_BYTES:,} bytes in all"
        )


def _parsed(raw: bytes) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """Parses a request as sent over a connection: method, target, headers and body."""
    end = _HEAD_END.search(raw, 0, _MOST_HEAD_BYTES + 1)
    size = len(raw) if end is None else end.start()
    _expect_head(raw.count(b"\n", 0, size), size)
    connection = h11.Connection(h11.SERVER)
    body = bytearray()
    try:
        connection.receive_data(raw)
        connection.receive_data(b"")
        request = connection.next_event()
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError as error:
        raise InvalidArguments(f"malformed request: {error}") from None
    if not isinstance(request, h11.Request) or not isinstance(event, h11.EndOfMessage):
        raise InvalidArguments("the request is not complete")
    target = request.target.decode("ascii")
    if not target.startswith("/"):
        raise InvalidArguments("the target of a request must begin with /")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return request.method.decode("ascii"), target, headers, bytes(body)
