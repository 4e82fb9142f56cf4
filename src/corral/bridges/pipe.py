"""Bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

from corral.bridges.base import BridgeHost, BridgeProtocol
from corral.bridges.calls import Call
from corral.bridges.grants import Grant
from corral.types import Endpoint, PipeEndpoint

__all__ = ["PipeBridge"]


class PipeBridge(BridgeProtocol):
    """Calls from an execution's own pipe belong to that execution, so they need no token."""

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        handle = host.handler_of(grant)
        yield PipeEndpoint(handler=lambda request: handle(Call(request, grant)), must_finish=grant.must_finish)
