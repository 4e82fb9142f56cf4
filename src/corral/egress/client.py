"""Client: httpx with a transport that checks every request, including redirects, and limits every response."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeAlias, TypedDict, cast

import anyio
import httpcore
import httpx
import idna
from typing_extensions import Unpack

from corral.arguments import checked
from corral.egress.connections import BoundedStream, GuardedBackend, Resolver, SystemResolver
from corral.egress.policy import EgressPolicy, blocked, too_large, too_late
from corral.errors import EgressBlocked, ToolError

Decode: TypeAlias = Callable[[bytes], Iterator[bytes]]
"""Decodes the next bytes of a body, in pieces. `b""` as input ends the body."""

_PIECE_BYTES = 65_536
_EITHER = zlib.MAX_WBITS | 32  # detects gzip or zlib format


def unanswered(request: str, error: httpx.HTTPError, *, reads: bool = False) -> ToolError:
    """Makes the error of a tool whose request got no response. It warns of possible effects, unless it only `reads`."""
    text = f"{request} was not answered: {type(error).__name__} {error}".rstrip()
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return ToolError(text if unsent or reads else f"{text}; it may have taken effect", outcome_known=unsent)


def _inflates(encoding: str) -> bool:
    """True if `decoder` can undo a Content-Encoding."""
    return encoding in {"gzip", "x-gzip", "deflate"}


def decoder(encoding: str) -> Decode:
    """Returns the decoder for a Content-Encoding. Unless that is gzip or deflate, it raises `httpx.DecodingError`."""
    if encoding in {"", "identity"}:
        return _unchanged
    return _inflater() if _inflates(encoding) else _refuse


def _unchanged(data: bytes) -> Iterator[bytes]:
    yield data


def _refuse(data: bytes) -> Iterator[bytes]:
    if data:
        raise httpx.DecodingError("the body has a Content-Encoding that was not requested")
    yield data


def _inflater() -> Decode:
    stream = zlib.decompressobj(_EITHER)

    def inflate(data: bytes) -> Iterator[bytes]:
        try:
            if not data:
                yield stream.flush()
            while data and not stream.eof:
                yield stream.decompress(data, _PIECE_BYTES)
                data = stream.unconsumed_tail
        except zlib.error as error:
            raise httpx.DecodingError(f"the body does not match its Content-Encoding: {error}") from error

    return inflate


_DEADLINE = "corral.deadline"
_REQUESTED_URL = "corral.requested_url"
"""The URL before any redirects."""
SAFE_HEADERS = frozenset({
    "accept", "accept-charset", "accept-encoding", "accept-language", "content-encoding", "content-language",
    "content-length", "content-type", "host", "range", "transfer-encoding", "user-agent",
})  # fmt: skip
"""Headers kept on a redirect to another origin. Any other could be a secret for the first one."""
_IDLE_SECONDS = 5.0
"""Seconds for which an idle connection is kept: httpx's default."""
_LOOKUPS_PER_CONNECTION = 2
"""Two: a lookup that is awaited, and an abandoned one that has not ended yet."""


class ClientOptions(TypedDict, total=False):
    """Options of `httpx.AsyncClient` that `SafeClient` supports."""

    auth: httpx.Auth | tuple[str, str] | None
    params: Mapping[str, str | int | float | bool | None]
    headers: Mapping[str, str]
    cookies: dict[str, str] | httpx.Cookies | CookieJar
    timeout: httpx.Timeout | float | None
    follow_redirects: bool
    event_hooks: Mapping[str, list[Callable[..., Any]]]
    base_url: httpx.URL | str
    default_encoding: str | Callable[[bytes], str]


@checked
class SafeClient(httpx.AsyncClient):
    """`httpx.AsyncClient` for URLs from programs: it only reaches targets that its policy allows.

    It ignores the environment (proxies, netrc, certificates), and keeps no cookies without `cookies`. Redirects are
    followed with `follow_redirects`, as in httpx. Responses are always decoded, and have no Content-Encoding.

    Requests and reads raise `EgressBlocked` if the policy forbids them. Other failures are httpx's errors.

    Raises:
        ConfigError: an option is unknown, or would bypass the policy.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: Resolver | None = None,
        verify: ssl.SSLContext | bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.policy = policy or EgressPolicy()
        options.setdefault("cookies", CookieJar(DefaultCookiePolicy(allowed_domains=())))
        if verify is True and "https" not in self.policy.schemes:  # loading certificates would take 0.1 s
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context = httpx.create_ssl_context(verify=verify, trust_env=False)
        resolver = resolver or SystemResolver(_LOOKUPS_PER_CONNECTION * self.policy.max_connections)
        super().__init__(
            **options,
            transport=_GuardedTransport(self.policy, resolver, context),
            max_redirects=self.policy.max_redirects,
            trust_env=False,
        )
        if "accept-encoding" not in httpx.Headers(options.get("headers")):
            self.headers["Accept-Encoding"] = "gzip"

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """Like httpx's, but blocks a URL that cannot be parsed."""
        try:
            return super().build_request(method, url, **options)
        except (httpx.InvalidURL, idna.IDNAError) as error:
            raise EgressBlocked(f"egress blocked: {str(error)[:200]}") from error

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Like httpx's, within `max_redirects` and `total_seconds`."""
        deadline = anyio.current_time() + self.policy.total_seconds
        request.extensions = {_REQUESTED_URL: request.url, **request.extensions, _DEADLINE: deadline}
        try:
            with anyio.CancelScope(deadline=deadline):
                return await super().send(request, **options)
        except httpx.TooManyRedirects as error:
            reason = f"more redirects than max_redirects={self.policy.max_redirects}"
            raise blocked(host_of(request), reason) from error
        except (httpx.InvalidURL, idna.IDNAError) as error:
            raise blocked(host_of(request), "it redirects to an invalid URL") from error
        raise too_late(host_of(request), self.policy)


class _GuardedTransport(httpx.AsyncBaseTransport):
    """Checks each request, sends it over a guarded connection, and limits the response."""

    def __init__(self, policy: EgressPolicy, resolver: Resolver, ssl_context: ssl.SSLContext) -> None:
        self._policy = policy
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=policy.max_connections,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=GuardedBackend(policy, resolver),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = host_of(request)
        if objection := objection_to(request, self._policy):
            raise blocked(host, objection)
        if _has_left(request.extensions.get(_REQUESTED_URL, request.url), request.url):
            request.extensions[_REQUESTED_URL] = httpx.URL()  # so that no later redirect counts as a return
            request.headers = httpx.Headers([each for each in request.headers.multi_items() if each[0] in SAFE_HEADERS])
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        extensions = {"timeout": request.extensions.get("timeout", {})}
        with _as_httpx():
            response = await self._pool.handle_async_request(
                httpcore.Request(
                    request.method, url, headers=request.headers.raw, content=request.stream, extensions=extensions
                )
            )
        answer = cast("dict[str, Any]", response.extensions)
        connection = answer["network_stream"]
        if not isinstance(connection, BoundedStream):
            await response.aclose()
            raise blocked(host, "it switches to another protocol")
        connection.expect_body(request.extensions.get(_DEADLINE, anyio.current_time() + self._policy.total_seconds))
        headers = httpx.Headers(response.headers)
        encoding = headers.get("content-encoding", "").strip().lower()
        if _inflates(encoding) and request.method != "HEAD":
            del headers["content-encoding"]
            headers.pop("content-length", None)
        return httpx.Response(
            response.status,
            headers=headers,
            stream=_Body(
                response, connection, decoder(encoding), self._policy.max_response_bytes, too_large(host, self._policy)
            ),
            extensions={key: answer[key] for key in ("http_version", "reason_phrase")},
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    """Decoded body of a response, up to its limit."""

    def __init__(
        self, response: httpcore.Response, connection: BoundedStream, decode: Decode, left: int, over: Exception
    ) -> None:
        self._response = response
        self._connection = connection
        self._decode = decode
        self._left = left
        self._over = over

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failure: Exception | None = None
        with _as_httpx():
            async for data in self._response.aiter_stream():
                try:
                    for piece in self._pieces(data):
                        yield piece
                except (EgressBlocked, httpx.DecodingError) as error:
                    failure = error
                    self._connection.fail(error)
        if failure is not None:
            raise failure
        for piece in self._pieces(b""):
            yield piece

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        for piece in self._decode(data):
            self._left -= len(piece)
            if self._left < 0:
                raise self._over
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


def host_of(request: httpx.Request) -> str:
    """Returns the host of a request as sent on the wire."""
    return request.url.raw_host.decode("ascii")


def objection_to(request: httpx.Request, policy: EgressPolicy) -> str | None:
    """Returns the reason to refuse a request, or None to allow it. Looks nothing up."""
    url = request.url
    if objection := policy.objection(url.scheme, host_of(request), url.port):
        return objection
    if url.userinfo:
        return "the URL contains a user name or a password"
    if request.headers.get("host") != url.netloc.decode("ascii"):
        return "its Host header does not match the URL"
    return None


def _has_left(requested: httpx.URL, url: httpx.URL) -> bool:
    """True if `url` has another origin. An upgrade from http to https at the default ports counts as the same origin,
    as in httpx."""
    upgraded = (requested.scheme, url.scheme) == ("http", "https") and requested.port is None
    same_scheme = requested.scheme == url.scheme or upgraded
    return not (same_scheme and (requested.raw_host, requested.port) == (url.raw_host, url.port))


@contextmanager
def _as_httpx() -> Generator[None]:
    """Converts httpcore's errors to httpx's, which have the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
