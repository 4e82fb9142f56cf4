"""Programs' network access: origins, methods, credentials and budgets, enforced by the host."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast
from urllib.parse import urlsplit

import httpx
from pydantic import BeforeValidator, Field

from corral.audit import AuditLog
from corral.egress.addresses import read_host
from corral.egress.client import SAFE_HEADERS
from corral.egress.connections import Resolver
from corral.egress.exchanges import Caller, Exchanges
from corral.egress.policy import EgressPolicy
from corral.egress.sockets import Sockets
from corral.errors import ConfigError, requires_extra
from corral.rendering.masking import Mask
from corral.types import ExecutionContext, Frozen, Positive, PositiveSeconds

_PORTS = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_PUBLIC = "the address is not public"


class Header(NamedTuple):
    """A header with a secret, which the host adds to requests."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"Header({self.name!r}, ...)"


def _names(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError('must be a collection, such as ["https://api.example.com"]')
    return tuple(cast("Iterable[object]", value))


def _methods(value: object) -> object:
    return None if value is None else tuple(str(each).upper() for each in cast("Iterable[object]", _names(value)))


class Network(Frozen):
    """Programs' network access: `fetch`, `EventSource` and `WebSocket` in TypeScript; HTTP clients in Python.

    Programs have no sockets: each request is a call to the host, which checks it and every redirect, and sends it.
    Budgets are per execution. A denied request is an error that the program can catch, and an audit event.

    Raises:
        ConfigError: an origin, a header or a limit is invalid.
    """

    allow: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    """Allowed origins, such as "https://api.example.com", "https://*.example.org" (without example.org itself) or
    "http://10.1.2.3:8080". Without a port, only the default port of the scheme is allowed. Empty: no network."""
    methods: Annotated[tuple[str, ...] | None, BeforeValidator(_methods)] = None
    """Allowed methods. None: all except CONNECT and TRACE."""
    credentials: Mapping[str, Header] = Field(default_factory=dict, repr=False)
    """By host name, a header that Corral adds to requests to it. Programs never see its value: in responses it is
    replaced by "[redacted]"."""
    requests: Positive = 200
    """Maximum number of requests, redirects included. A WebSocket counts as one."""
    request_bytes: Positive = 1_000_000
    """Maximum total of all request bodies and sent messages."""
    response_bytes: Positive = 10_000_000
    """Maximum total of all decoded response bodies and received messages. Each frame of a message counts 100 bytes
    extra."""
    seconds: PositiveSeconds = 60.0
    """Seconds for a request, up to the last byte of its response. For a WebSocket, to open it and for silences."""
    websockets: Annotated[int, Field(ge=0)] = 4
    """Maximum number of open WebSockets."""
    exempt_networks: tuple[str, ...] = ()
    """Networks that count as public, as in `EgressPolicy`. Other internal addresses are unreachable even if `allow`
    lists them."""
    resolver: Resolver | None = Field(default=None, repr=False)
    verify: ssl.SSLContext | bool = Field(default=True, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            allow: Iterable[str] = ...,
            methods: Iterable[str] | None = ...,
            credentials: Mapping[str, Header] = ...,
            requests: int = ...,
            request_bytes: int = ...,
            response_bytes: int = ...,
            seconds: float = ...,
            websockets: int = ...,
            exempt_networks: Iterable[str] = ...,
            resolver: Resolver | None = ...,
            verify: ssl.SSLContext | bool = ...,
        ) -> None: ...

    def model_post_init(self, context: Any, /) -> None:
        """Validates all options."""
        del context
        _ = self.policy, self.headers, self.mask

    @cached_property
    def policy(self) -> EgressPolicy:
        """Policy that applies to each hop."""
        origins = tuple(self._origin(each) for each in self.allow)
        return _Origins.model_validate(
            {
                "origins": origins,
                "hosts": frozenset[str]().union(*(each.hosts or () for each in origins)),
                "ports": frozenset[int]().union(*(each.ports for each in origins)),
                "schemes": frozenset[str]().union(*(each.schemes for each in origins)),
                "exempt_networks": self.exempt_networks,
                "max_response_bytes": self.response_bytes,
                "total_seconds": self.seconds,
            }
        )

    @cached_property
    def headers(self) -> Mapping[str, Header]:
        """Credentials by normalized host name."""
        headers: dict[str, Header] = {}
        for host, header in self.credentials.items():
            name, value = header
            if not _TOKEN.fullmatch(name) or name.lower() in SAFE_HEADERS:
                raise ConfigError(f"Network: the header {name!r} cannot hold a credential")
            if not value.strip() or not value.isprintable() or not value.isascii():
                raise ConfigError(f"Network: the value of {name!r} for {host!r} is empty, or not valid in a header")
            try:
                key = str(read_host(host.strip("[]")))
            except ValueError as error:
                raise ConfigError(
                    f"Network: credentials for {host!r}: {error}; use a host name without scheme or path"
                ) from None
            objections = {each.objection(scheme, key, port) for each, scheme, port in self._parts()}
            if _NOT_PUBLIC in objections and None not in objections:
                raise ConfigError(
                    f"Network: credentials for {host!r}, an internal address; allow it with exempt_networks=[{key!r}]"
                )
            if None not in objections:
                raise ConfigError(f"Network: credentials for {host!r}, which is not in allow")
            headers[key] = header
        return headers

    @cached_property
    def mask(self) -> Mask:
        """Mask for the secrets in the credentials."""
        return Mask(header.value for header in self.credentials.values())

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """TLS context, cached because loading certificates is slow."""
        return httpx.create_ssl_context(verify=self.verify, trust_env=False)

    @property
    def origins(self) -> tuple[str, ...]:
        """Allowed origins, as passed."""
        return tuple(self.allow)

    @asynccontextmanager
    async def serve(
        self, caller: Caller, audit: AuditLog | None, /
    ) -> AsyncGenerator[Mapping[str, Callable[[object], Awaitable[object]]]]:
        """Opens the services of one execution; its connections end with the block."""
        if not self.allow:
            yield {}
            return
        async with Exchanges(self, caller, audit) as exchanges, Sockets(exchanges) as sockets:
            yield {"$fetch": exchanges.fetch, "$http": exchanges.http, "$socket": sockets.answer}

    @asynccontextmanager
    async def serve_commands(
        self, listener: socket.socket, context: ExecutionContext, audit: AuditLog | None, /
    ) -> AsyncGenerator[bytes]:
        """Serves a proxy for commands on the listener. The same rules apply, with one budget for all its requests.

        Yields the certificate authority that commands must trust, as PEM. Connections end with the block.

        Raises:
            MissingExtra: `cryptography` is not installed.
        """
        with listener:
            with requires_extra("a network for commands", "egress"):
                proxy = import_module("corral.shells.proxy.proxy")
            async with proxy.serve_proxy(self, listener, _Commands("", context), audit) as certificate:
                yield certificate

    def _origin(self, text: str) -> EgressPolicy:
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"Network: {text!r} is not an origin: {error}") from None
        if parts.scheme not in _PORTS or parts.username is not None or parts.query or parts.fragment:
            raise ConfigError(f"Network: {text!r} is not an origin, such as 'https://api.example.com'")
        if parts.path not in {"", "/"} or not parts.hostname:
            raise ConfigError(f"Network: {text!r} has no host, or has a path; an origin is a scheme and a host")
        return EgressPolicy(
            hosts=[parts.hostname],
            schemes=[parts.scheme],
            ports=[_PORTS[parts.scheme] if port is None else port],
            exempt_networks=self.exempt_networks,
        )

    def _parts(self) -> Sequence[tuple[EgressPolicy, str, int]]:
        policy = cast("_Origins", self.policy)
        return [(each, *each.schemes, *each.ports) for each in policy.origins]  # type: ignore[misc]


class _Commands(NamedTuple):
    """Caller on whose behalf a shell's commands make requests."""

    execution_id: str
    context: ExecutionContext


class _Origins(EgressPolicy):
    """Policy that allows a target if one of several policies, each for one origin, does."""

    origins: tuple[EgressPolicy, ...] = ()

    def objection(self, scheme: str, host: str, port: int | None) -> str | None:
        """As in `EgressPolicy`."""
        objections = {each.objection(scheme, host, port) for each in self.origins}
        if None in objections:
            return None
        return _NOT_PUBLIC if _NOT_PUBLIC in objections else "it is not in Network(allow=[...])"
