"""corral: Code Mode for Python agents.

A model writes one program against the typed API of your tools. It runs in a sandbox, and every `await tools.x(...)`
runs the tool in your process.

    async with Corral(tools=[...]) as corral:
        result = await corral.execute(source)

Importing this package starts nothing and loads only this file. Each public name loads its module on first use, so that
a program which only mentions corral does not wait for pydantic's models and a parser.
"""

from typing import TYPE_CHECKING, Any

from corral.concurrency.garbage import import_uncollected

if TYPE_CHECKING:
    from corral.audit import AuditEvent, AuditLog
    from corral.calls import RateLimits, RemoteExecution
    from corral.checking import CheckResult
    from corral.errors import AccessDenied, BridgeError, ConfigError, CorralError, ProgramError, SandboxError, ToolError
    from corral.events import (
        ApprovalDecided,
        ApprovalRequested,
        ConsoleOutput,
        Event,
        EventContext,
        ExecutionFinished,
        ExecutionStarted,
        Observation,
        ProgramChecked,
        ToolCallFinished,
        ToolCallProgress,
        ToolCallStarted,
    )
    from corral.model import Catalog, LearntResults, LearntTool
    from corral.model.model_tools import ModelTool
    from corral.results import CallRecord, ExecutionResult, FileChanges, ProgramCapabilities
    from corral.running import ExecutionRequest, Run
    from corral.running.corral import Corral
    from corral.running.session import Session
    from corral.sessions import Directory, Mount, Scratch
    from corral.sessions.skills import Skill
    from corral.sources.conversion import tools_from
    from corral.tools import Tool, ToolCall, ToolRegistry, ToolSource, define_tool, tool
    from corral.types import (
        ApprovalRequest,
        Approve,
        Approved,
        Containment,
        Denied,
        Diagnostic,
        ExecutionContext,
        ExecutionError,
        Language,
        Later,
        Limits,
        LogEntry,
        ToolName,
        Unawaited,
    )

__all__ = [
    "AccessDenied",
    "ApprovalDecided",
    "ApprovalRequest",
    "ApprovalRequested",
    "Approve",
    "Approved",
    "AuditEvent",
    "AuditLog",
    "BridgeError",
    "CallRecord",
    "Catalog",
    "CheckResult",
    "ConfigError",
    "ConsoleOutput",
    "Containment",
    "Corral",
    "CorralError",
    "Denied",
    "Diagnostic",
    "Directory",
    "Event",
    "EventContext",
    "ExecutionContext",
    "ExecutionError",
    "ExecutionFinished",
    "ExecutionRequest",
    "ExecutionResult",
    "ExecutionStarted",
    "FileChanges",
    "Language",
    "Later",
    "LearntResults",
    "LearntTool",
    "Limits",
    "LogEntry",
    "ModelTool",
    "Mount",
    "Observation",
    "ProgramCapabilities",
    "ProgramChecked",
    "ProgramError",
    "RateLimits",
    "RemoteExecution",
    "Run",
    "SandboxError",
    "Scratch",
    "Session",
    "Skill",
    "Tool",
    "ToolCall",
    "ToolCallFinished",
    "ToolCallProgress",
    "ToolCallStarted",
    "ToolError",
    "ToolName",
    "ToolRegistry",
    "ToolSource",
    "Unawaited",
    "define_tool",
    "tool",
    "tools_from",
]

_HOMES = {
    "corral.audit": "AuditEvent AuditLog",
    "corral.calls": "RemoteExecution RateLimits",
    "corral.checking": "CheckResult",
    "corral.running.corral": "Corral",
    "corral.model": "Catalog LearntResults LearntTool",
    "corral.errors": "AccessDenied BridgeError ConfigError CorralError ProgramError SandboxError ToolError",
    "corral.events": "ApprovalDecided ApprovalRequested ConsoleOutput Event EventContext ExecutionFinished "
    "ExecutionStarted Observation ProgramChecked ToolCallFinished ToolCallProgress ToolCallStarted",
    "corral.running.session": "Session",
    "corral.sessions": "Directory Mount Scratch",
    "corral.sessions.skills": "Skill",
    "corral.running": "ExecutionRequest Run",
    "corral.model.model_tools": "ModelTool",
    "corral.sources.conversion": "tools_from",
    "corral.tools": "Tool ToolCall ToolRegistry ToolSource define_tool tool",
    "corral.results": "CallRecord ExecutionResult FileChanges ProgramCapabilities",
    "corral.types": "ApprovalRequest Approve Approved Containment Denied Diagnostic ExecutionContext ExecutionError "
    "Language Later Limits LogEntry ToolName Unawaited",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'corral' has no attribute {name!r}")
    value = getattr(import_uncollected(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
