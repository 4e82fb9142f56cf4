"""The contract of a bridge protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, TypeAlias

from corral.bridges.calls import Handler
from corral.bridges.grants import Grant, Grants
from corral.errors import ConfigError
from corral.types import Endpoint

__all__ = ["ASGIApp", "BridgeProtocol"]

ASGIApp: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]


class BridgeProtocol(ABC):
    """Transport of calls. One object may serve many executions at the same time.

    `handler` is the whole pipeline of guards. A protocol turns each message into a `CallRequest`, passes it on in a
    `Call`, and sends the `Reply` back. The call carries the `grant` if the channel belongs to one execution, else the
    `token` of the message.
    """

    name: ClassVar[str]

    @abstractmethod
    def serve(self, handler: Handler, grant: Grant, grants: Grants) -> AbstractAsyncContextManager[Endpoint]:
        """Makes `handler` reachable for one execution; yields the endpoint that the guest needs."""

    def asgi_app(self, handler: Handler, grants: Grants) -> ASGIApp:  # noqa: ARG002
        """Returns the app that a web server mounts.

        Raises:
            ConfigError: this protocol is not mounted in a web server.
        """
        raise ConfigError(f"bridge {self.name!r} has no ASGI app; use `asgi_app(HttpBridge())`")
