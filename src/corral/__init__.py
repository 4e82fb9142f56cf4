"""corral: Code Mode for Python agents.

A model writes one program against the typed API of your tools; it runs in a sandbox, and every `await tools.x(...)` in
it comes back to your process, where the tool runs.

    async with Corral(tools=[...]) as corral:
        result = await corral.execute(source)

Importing this package imports no optional dependency and starts nothing.
"""

from corral.corral import Corral
from corral.errors import (
    AccessDenied,
    BridgeError,
    ConfigError,
    CorralError,
    ProgramError,
    SandboxError,
    ToolError,
)
from corral.execution import Run
from corral.tools import Tool, ToolRegistry, define_tool, tool
from corral.types import (
    ConsoleOutput,
    Diagnostic,
    Event,
    ExecutionContext,
    ExecutionError,
    ExecutionFinished,
    ExecutionResult,
    ExecutionStarted,
    Limits,
    LogEntry,
    ToolCallFinished,
    ToolCallRecord,
    ToolCallStarted,
    ToolName,
    Unawaited,
)

__all__ = [
    "AccessDenied",
    "BridgeError",
    "ConfigError",
    "ConsoleOutput",
    "Corral",
    "CorralError",
    "Diagnostic",
    "Event",
    "ExecutionContext",
    "ExecutionError",
    "ExecutionFinished",
    "ExecutionResult",
    "ExecutionStarted",
    "Limits",
    "LogEntry",
    "ProgramError",
    "Run",
    "SandboxError",
    "Tool",
    "ToolCallFinished",
    "ToolCallRecord",
    "ToolCallStarted",
    "ToolError",
    "ToolName",
    "ToolRegistry",
    "Unawaited",
    "define_tool",
    "tool",
]
