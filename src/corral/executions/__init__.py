"""One execution: a request goes in, an `ExecutionResult` comes out."""

from corral.executions.execution import Execution
from corral.executions.request import Check, ExecutionRequest
from corral.executions.run import Run
from corral.executions.runtime import Runtime, prepare

__all__ = ["Check", "Execution", "ExecutionRequest", "Run", "Runtime", "prepare"]
