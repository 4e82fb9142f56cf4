"""How calls get from a guest to the tools: `Call -> Reply`, through guards that `guards.pipeline` puts in order."""

from corral.bridges.base import BridgeProtocol
from corral.bridges.guards import pipeline
from corral.bridges.pipe import PipeBridge
from corral.bridges.records import CallRecorder

__all__ = ["BridgeProtocol", "CallRecorder", "PipeBridge", "pipeline"]
