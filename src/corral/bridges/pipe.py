"""Bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import ClassVar

from corral.bridges.base import BridgeHost, BridgeProtocol
from corral.bridges.grants import Grant
from corral.types import Call, Endpoint, PipeEndpoint, Reply

__all__ = ["PipeBridge"]


class PipeBridge(BridgeProtocol):
    """Calls from an execution's own pipe belong to that execution, so they need no token."""

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        handle = host.handle

        def take(call: Call) -> Awaitable[Reply]:
            call.grant = grant
            return handle(call)

        yield PipeEndpoint(handler=take)
