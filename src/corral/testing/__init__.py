"""Conformance suites for extensions of Corral, and fakes for tests of hosts.

A suite is a class of async tests for pytest. Subclass it in a test module under a name that pytest collects, implement
its factory methods, and mark it with `pytest.mark.anyio`. Nothing here imports pytest.
"""

from corral.testing.bridge_world import CallTool
from corral.testing.bridges import BridgeMessageSuite, BridgeStreamSuite, BridgeSuite, SendMessage
from corral.testing.extensions import SandboxSuite, SinkSuite, SourceSuite
from corral.testing.fakes import CallFailed, FakeGuest, FakeProgram, FakeSandbox, ScriptedModel
from corral.testing.ledgers import LedgerSuite
from corral.testing.replays import RecordedExecution, replays
from corral.testing.shells import FilesSuite, ShellSuite

__all__ = [
    "BridgeMessageSuite",
    "BridgeStreamSuite",
    "BridgeSuite",
    "CallFailed",
    "CallTool",
    "FakeGuest",
    "FakeProgram",
    "FakeSandbox",
    "FilesSuite",
    "LedgerSuite",
    "RecordedExecution",
    "SandboxSuite",
    "ScriptedModel",
    "SendMessage",
    "ShellSuite",
    "SinkSuite",
    "SourceSuite",
    "replays",
]
