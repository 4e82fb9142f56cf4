"""Code mode for agents of LangChain: `create_agent(model, tools, middleware=[CodeMode()])`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.integrations.langchain.code_mode import CodeMode
    from corral.integrations.langchain.tools import RUNTIME, runtime_of, tools_of
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"corral.integrations.langchain needs the module {error.name}: pip install 'corral[langchain]'"
    ) from error

__all__ = ["RUNTIME", "CodeMode", "runtime_of", "tools_of"]
