"""Code mode for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.integrations.openai_agents.code_mode import CodeMode
    from corral.integrations.openai_agents.tools import RUN_CONTEXT, tools_of
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"corral.integrations.openai_agents needs the module {error.name}: pip install 'corral[openai-agents]'"
    ) from error

__all__ = ["RUN_CONTEXT", "CodeMode", "tools_of"]
