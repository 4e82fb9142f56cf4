"""Conformance suites of bridge protocols: calls, streams, and malformed messages."""

from corral.testing.bridges.messages import BridgeMessageSuite, SendMessage
from corral.testing.bridges.streams import BridgeStreamSuite
from corral.testing.bridges.suite import BridgeSuite
from corral.testing.bridges.world import CallTool

__all__ = ["BridgeMessageSuite", "BridgeStreamSuite", "BridgeSuite", "CallTool", "SendMessage"]
