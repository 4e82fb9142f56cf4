"""Code mode for agents of LangChain: `create_agent(model, **code_mode(corral))`."""

from corral.integrations.langchain.code_mode import RUNTIME, AgentParts, code_mode, runtime_of, tools_of

__all__ = ["RUNTIME", "AgentParts", "code_mode", "runtime_of", "tools_of"]
