"""Without its framework an integration says which extra to install, in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NEEDS = {
    "corral.integrations.anthropic": ("anthropic", "anthropic"),
    "corral.integrations.google_adk": ("google.adk", "google-adk"),
    "corral.integrations.langchain": ("langchain_core", "langchain"),
    "corral.integrations.mcp": ("mcp", "mcp"),
    "corral.integrations.openai": ("openai", "openai"),
    "corral.integrations.openai_agents": ("agents", "openai-agents"),
    "corral.integrations.pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "corral.integrations.shells.anthropic": ("anthropic", "anthropic"),
    "corral.integrations.shells.deepagents": ("deepagents", "deepagents"),
    "corral.integrations.shells.openai": ("openai", "openai"),
    "corral.sources.mcp": ("mcp", "mcp"),
    "corral.sources.openapi": ("httpx", "openapi"),
}
"""What each needs, and the extra that brings it."""

SCRIPT = """
import importlib, json, sys
needs = json.loads(sys.argv[1])
for package in {package for package, _ in needs.values()}:
    sys.modules[package] = None
said = {}
for module in needs:
    try:
        importlib.import_module(module)
        said[module] = "it was imported"
    except Exception as error:
        said[module] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(NEEDS)], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", NEEDS)
def test_a_module_without_its_framework_names_the_extra(said: dict[str, list[str]], module: str) -> None:
    package, extra = NEEDS[module]
    name, text = said[module]
    assert name == "MissingExtra"
    assert text.endswith(f"pip install 'corral[{extra}]'")
    assert f"needs the module {package}" in text
    assert "\n" not in text
