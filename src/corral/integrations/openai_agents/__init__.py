"""Corral for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

from corral.integrations.openai_agents.code_mode import RUN_CONTEXT, AgentParts, code_mode, tools_of

__all__ = ["RUN_CONTEXT", "AgentParts", "code_mode", "tools_of"]
