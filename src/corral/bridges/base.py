"""The contract of a bridge protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, TypeAlias

from corral.bridges.grants import Grant, Grants
from corral.errors import ConfigError
from corral.types import Endpoint, Handler

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
    """How calls travel. One object may serve many executions, at the same time.

    `handler` is the whole pipeline of guards. A protocol makes a `Call` of what arrives, with the `grant` if the way it
    came says whose it is, else with its `token`, and sends the `Reply` back.
    """

    name: ClassVar[str]

    @abstractmethod
    def serve(self, handler: Handler, grant: Grant, grants: Grants) -> AbstractAsyncContextManager[Endpoint]:
        """Makes `handler` reachable for one execution; what a guest needs to reach it is the endpoint."""

    def asgi_app(self, handler: Handler, grants: Grants) -> ASGIApp:  # noqa: ARG002
        """The app that a web server mounts, for protocols that have one.

        Raises:
            ConfigError: this protocol has none.
        """
        raise ConfigError(f"bridge {self.name!r} is not mounted in a web server; 'http' is")
