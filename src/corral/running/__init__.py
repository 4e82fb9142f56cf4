"""One execution: a request goes in, an `ExecutionResult` comes out."""

from corral.running.execution import Execution
from corral.running.request import Check, CheckMode, ExecutionRequest, check_mode
from corral.running.run import Run
from corral.running.runtime import Runtime, prepare

__all__ = ["Check", "CheckMode", "Execution", "ExecutionRequest", "Run", "Runtime", "check_mode", "prepare"]
