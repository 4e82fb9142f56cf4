"""Code mode for agents of pydantic-ai: `Agent(model, capabilities=[CodeMode(corral)])`."""

from corral.integrations.pydantic_ai.code_mode import (
    RUN_CONTEXT,
    CodeMode,
    ProgramCallEvent,
    ProgramOutputEvent,
    ProgramProgressEvent,
    ProgramResultEvent,
    ToolsetSource,
    run_context,
    tools_of,
)

__all__ = [
    "RUN_CONTEXT",
    "CodeMode",
    "ProgramCallEvent",
    "ProgramOutputEvent",
    "ProgramProgressEvent",
    "ProgramResultEvent",
    "ToolsetSource",
    "run_context",
    "tools_of",
]
