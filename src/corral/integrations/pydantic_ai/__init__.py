"""Code mode for agents of pydantic-ai: `Agent(model, capabilities=[CodeMode(corral)])`."""

from __future__ import annotations

from corral.errors import requires_extra

with requires_extra("corral.integrations.pydantic_ai", "pydantic-ai"):
    from corral.integrations.pydantic_ai.code_mode import (
        CodeMode,
        ProgramCallEvent,
        ProgramOutputEvent,
        ProgramProgressEvent,
        ProgramResultEvent,
    )
    from corral.integrations.pydantic_ai.tools import RUN_CONTEXT, ToolsetSource, run_context, tools_of

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
