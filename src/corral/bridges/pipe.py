"""The bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

from corral.bridges.base import BridgeProtocol
from corral.types import Endpoint, Handler, PipeEndpoint

__all__ = ["PipeBridge"]


class PipeBridge(BridgeProtocol):
    """Hands the handler to the sandbox as it is."""

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, handler: Handler) -> AsyncGenerator[Endpoint]:
        yield PipeEndpoint(handler=handler)
