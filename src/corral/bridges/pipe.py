"""Bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import ClassVar

from corral.bridges.base import BridgeProtocol
from corral.bridges.grants import Grant, Grants
from corral.types import Call, Endpoint, Handler, PipeEndpoint, Reply

__all__ = ["PipeBridge"]


class PipeBridge(BridgeProtocol):
    """Calls from an execution's own pipe belong to that execution, so they need no token."""

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, handler: Handler, grant: Grant, grants: Grants) -> AsyncGenerator[Endpoint]:  # noqa: ARG002
        def take(call: Call) -> Awaitable[Reply]:
            call.grant = grant
            return handler(call)

        yield PipeEndpoint(handler=take)
