"""Code Mode for Python agents.

A model writes one program against the typed API of your tools. It runs in a sandbox, and every `await tools.x(...)`
runs the tool in your process.

    async with Corral(tools=[...]) as corral:
        result = await corral.execute(source)

Importing this package starts nothing and loads only this file. Each public name loads its module on first use, so
importing corral does not wait for pydantic's models and a parser.
"""

from typing import TYPE_CHECKING, Any

from corral.concurrency.garbage import import_uncollected

if TYPE_CHECKING:
    from corral.audit import AuditLog
    from corral.calls import RateLimits
    from corral.errors import ConfigError, CorralError, ToolError
    from corral.packages import NpmPackages, PythonPackages
    from corral.results import ExecutionResult
    from corral.running import ExecutionRequest, Run
    from corral.running.corral import Corral
    from corral.running.session import Session
    from corral.running.sync import SyncCorral
    from corral.sessions import Sessions
    from corral.sessions.skills import Skill
    from corral.sources.conversion import tools_from
    from corral.tools import Tool, ToolCall, define_tool, tool
    from corral.types import ApprovalRequest, Approved, Containment, Denied, ExecutionContext, Later, Limits

__all__ = [
    "ApprovalRequest",
    "Approved",
    "AuditLog",
    "ConfigError",
    "Containment",
    "Corral",
    "CorralError",
    "Denied",
    "ExecutionContext",
    "ExecutionRequest",
    "ExecutionResult",
    "Later",
    "Limits",
    "NpmPackages",
    "PythonPackages",
    "RateLimits",
    "Run",
    "Session",
    "Sessions",
    "Skill",
    "SyncCorral",
    "Tool",
    "ToolCall",
    "ToolError",
    "define_tool",
    "tool",
    "tools_from",
]

_HOMES = {
    "corral.running.corral": "Corral",
    "corral.running.sync": "SyncCorral",
    "corral.running": "ExecutionRequest Run",
    "corral.running.session": "Session",
    "corral.tools": "Tool ToolCall define_tool tool",
    "corral.sources.conversion": "tools_from",
    "corral.types": "ApprovalRequest Approved Containment Denied ExecutionContext Later Limits",
    "corral.results": "ExecutionResult",
    "corral.packages": "NpmPackages PythonPackages",
    "corral.sessions": "Sessions",
    "corral.sessions.skills": "Skill",
    "corral.calls": "RateLimits",
    "corral.audit": "AuditLog",
    "corral.errors": "ConfigError CorralError ToolError",
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
