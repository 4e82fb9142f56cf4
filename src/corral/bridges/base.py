"""Interface of bridge protocols, and the part of a Corral that they use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from corral.calls.calls import Call, Handler
from corral.calls.grants import CallGate, Grant, Grants
from corral.calls.services import route_services
from corral.concurrency.kept import Lease
from corral.errors import ConfigError, CorralError, ExecutionEnded, InvalidToken
from corral.guest import Transport, client_runtime
from corral.types import CallError, CallRequest, Endpoint, ExecutionContext, Language, PipeEndpoint, Reply

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Document(NamedTuple):
    """Description of the tools in a protocol's schema language, such as OpenAPI."""

    content: bytes
    media_type: str


PeerHandler: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]
"""Function that answers a peer's message, given its name and body. A `CorralError` that it raises is passed on."""


class PeerHosts(Protocol):
    """Other hosts behind the same address: the methods of `corral.bridges.peers.Peers`, which describes them."""

    @property
    def name(self) -> str: ...
    async def open(self) -> None: ...
    async def aclose(self) -> None: ...
    async def knows(self, host: str, /) -> bool: ...
    def has_sent(self, proof: bytes, scope: Scope, /) -> bool: ...
    async def forward(
        self, host: str, scope: Scope, receive: Receive, send: Send, /, *, app: str | None = None
    ) -> None: ...
    def serve(self, name: str, app: ASGIApp, /) -> str: ...
    def sender_of(self, scope: Scope, /) -> str | None: ...
    async def receive(self, scope: Scope, receive: Receive, send: Send, /) -> None: ...
    def answer(self, name: str, handler: PeerHandler, /) -> None: ...
    async def ask(self, name: str, body: bytes, /) -> Mapping[str, bytes | CorralError]: ...
    async def hold(self, context: ExecutionContext, on_lost: Callable[[], object], /) -> Lease: ...
    async def holder(self, context: ExecutionContext, /) -> str | None: ...


class BridgeHost:
    """Entry point of bridge protocols into one Corral: its pipeline of guards, and the grants behind tokens.

    `peers` are the other hosts behind the same address, if any.
    """

    __slots__ = ("_grants", "_handler", "peers")

    def __init__(self, handler: Handler, grants: Grants, peers: PeerHosts | None = None) -> None:
        self._handler = route_services(handler)
        self._grants = grants
        self.peers = peers

    def handle(self, call: Call) -> Awaitable[Reply]:
        """Passes a call through all guards and returns its reply. Never raises, whatever a guest or a tool does.

        A call from a program that is being checked waits before the guards, and is refused if the check fails. Calls
        pass in order of arrival.
        """
        try:
            grant = call.grant
        except AttributeError:
            grant = self._grant_of(call.token)
        if grant is None or grant.gate is None:
            return self._handler(call)
        return self._handle_checked(call, grant, grant.gate)

    async def _handle_checked(self, call: Call, grant: Grant, gate: CallGate) -> Reply:
        if grant.held or not gate.is_open:
            grant.held += 1
            try:
                with nullcontext() if grant.clock is None else grant.clock.paused():
                    await gate.wait()
            finally:
                grant.held -= 1
            if not gate.is_open:
                return Reply(error=CallError.of(ExecutionEnded("the program did not pass its check")))
        if not grant.held:
            grant.gate = None
        return await self._handler(call)

    def _grant_of(self, token: str | None) -> Grant | None:
        try:
            return self._grants.find(token)
        except InvalidToken:
            return None  # the guards refuse and audit it

    def handler_of(self, grant: Grant) -> Handler:
        """Returns `handle` with this grant set on every call."""
        return self._handler if grant.gate is None else self.handle

    def find(self, token: str | None) -> Grant:
        """Finds the live grant of a token.

        Raises:
            InvalidToken: the token is missing, foreign or expired, or its execution has ended.
        """
        return self._grants.find(token)

    def issue(self, grant: Grant) -> str:
        """Issues a token for a live grant.

        Raises:
            ConfigError: the context does not fit into a token.
        """
        return self._grants.issue(grant)

    def renew(self, grant: Grant) -> tuple[str, float]:
        """Issues a fresh token for a live grant; returns it and its expiry, in seconds since the Unix epoch.

        Raises:
            AccessDenied: the grant has a fixed lifetime.
        """
        return self._grants.renew(grant)


class BridgeProtocol(ABC):
    """Transport of calls. One object can serve many executions concurrently.

    A protocol turns each message into a `CallRequest`, passes it to `host.handle` in a `Call`, and sends back the
    `Reply`. If the protocol knows the grant, it sets the call's `grant`; otherwise it sets the message's `token`.
    """

    name: ClassVar[str]

    async def open(self, host: BridgeHost) -> None:
        """Starts shared resources, such as a server, when the Corral is opened. Does nothing by default.

        A protocol that overrides this belongs to a single Corral, which has to be open while programs run.
        """

    async def aclose(self) -> None:
        """Reverts `open`, even if it failed. Does nothing by default."""

    @abstractmethod
    def serve(self, host: BridgeHost, grant: Grant) -> AbstractAsyncContextManager[Endpoint]:
        """Makes `host` reachable for one execution; yields the endpoint that the guest needs."""

    def asgi_app(self, host: BridgeHost) -> ASGIApp:  # noqa: ARG002
        """Returns the app that a web server mounts.

        Raises:
            ConfigError: this protocol cannot be mounted in a web server.
        """
        raise ConfigError(f"bridge {self.name!r} has no ASGI app; use `asgi_app(HttpBridge())`")

    async def document(self, grant: Grant) -> Document | None:  # noqa: ARG002
        """Describes the tools that a grant's scopes allow. By default returns None, as the protocol has no document."""
        return None

    def guest_transport(self, language: Language) -> Transport:  # noqa: ARG002
        """Returns the client runtime with which programs elsewhere call tools.

        Raises:
            ConfigError: the protocol does not support this language.
        """
        raise ConfigError(f"bridge {self.name!r} has no runtime for programs elsewhere; use HttpBridge")

    def guest_runtime(self, language: Language) -> str:
        """Returns the source of the module with which programs elsewhere call tools.

        Raises:
            ConfigError: the protocol does not support this language.
        """
        return client_runtime(language, self.guest_transport(language))


class PipeBridge(BridgeProtocol):
    """Bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve.

    Calls from an execution's own pipe belong to that execution, so they need no token.
    """

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        handle = host.handler_of(grant)

        def answer(request: CallRequest) -> Awaitable[Reply]:
            return handle(Call(request, grant))

        handler = answer if grant.journal is None else grant.journal.wrap(answer)
        yield PipeEndpoint(handler=handler, must_finish=grant.must_finish)
