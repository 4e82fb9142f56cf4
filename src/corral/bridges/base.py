"""The contract of a bridge protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from corral.types import Endpoint, Handler

__all__ = ["BridgeProtocol"]


class BridgeProtocol(ABC):
    """How calls travel. One object may serve many executions, at the same time."""

    name: ClassVar[str]

    @abstractmethod
    def serve(self, handler: Handler) -> AbstractAsyncContextManager[Endpoint]:
        """Makes `handler` reachable for one execution; what a guest needs to reach it is the endpoint."""
