"""Conformance suites for extensions of Corral.

A suite is a class of asynchronous tests for pytest. Subclass it in a test module under a name that pytest collects,
implement its factory, and mark it with `pytest.mark.anyio`. Nothing here imports pytest.
"""

from corral.testing.bridges import BridgeSuite, CallTool

__all__ = ["BridgeSuite", "CallTool"]
