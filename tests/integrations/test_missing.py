"""Without its framework an integration says which extra to install, in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

NEEDS = {
    "corral.integrations.anthropic": ("anthropic", "anthropic"),
    "corral.integrations.google_adk": ("google.adk", "google-adk"),
    "corral.integrations.langchain": ("langchain_core", "langchain"),
    "corral.integrations.mcp": ("mcp", "mcp"),
    "corral.integrations.openai": ("openai", "openai"),
    "corral.integrations.openai_agents": ("agents", "openai-agents"),
    "corral.integrations.pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "corral.shells.integrations.anthropic": ("anthropic", "anthropic"),
    "corral.shells.integrations.deepagents": ("deepagents", "deepagents"),
    "corral.shells.integrations.openai": ("openai", "openai"),
    "corral.sources.mcp": ("mcp", "mcp"),
    "corral.sources.openapi": ("httpx", "openapi"),
}
"""What each needs, and the extra that brings it."""

BLOCKED = """
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
        said[module] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""
USUAL = """
import json, sys, corral, corral.integrations
print(json.dumps([package for package, _ in json.loads(sys.argv[1]).values() if package in sys.modules]))
"""


def run(code: str) -> Any:
    command = [sys.executable, "-c", code, json.dumps(NEEDS)]
    return json.loads(subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout)


def test_a_module_without_its_framework_names_the_extra() -> None:
    said = run(BLOCKED)
    expected = {
        module: rf"MissingExtra: {re.escape(module)}[\w.]* needs the module {package}[\w.]*: pip install 'corral\[{extra}]'"
        for module, (package, extra) in NEEDS.items()
    }
    assert {module: text for module, text in said.items() if not re.fullmatch(expected[module], text)} == {}
    assert [*said] == [*NEEDS]


def test_corral_itself_imports_no_framework() -> None:
    assert run(USUAL) == []
