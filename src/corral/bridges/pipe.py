"""Bridge on one machine: calls travel over the sandbox's own control channel, so there is nothing to serve."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

from corral.bridges.base import BridgeProtocol
from corral.bridges.calls import Call, Handler
from corral.bridges.grants import Grant, Grants
from corral.types import Endpoint, PipeEndpoint

__all__ = ["PipeBridge"]


class PipeBridge(BridgeProtocol):
    """Calls from an execution's own pipe belong to that execution, so they need no token."""

    name: ClassVar[str] = "pipe"

    @asynccontextmanager
    async def serve(self, handler: Handler, grant: Grant, grants: Grants) -> AsyncGenerator[Endpoint]:  # noqa: ARG002
        yield PipeEndpoint(handler=lambda request: handler(Call(request, grant)), must_finish=grant.must_finish)
