"""The public surface, pinned: a name that appears or goes is a decision, and stands in the change log."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import corral
import corral.errors

ERRORS = Path(__file__).parents[1] / "docs" / "errors.md"
PUBLIC = """
    ApprovalRequest Approved AuditLog ConfigError Containment Corral CorralError Denied ExecutionContext
    ExecutionRequest ExecutionResult Later Limits NpmPackages PythonPackages RateLimits Run Session Sessions Skill
    SyncCorral Tool ToolCall ToolError define_tool tool tools_from
""".split()


of_check = pytest.mark.matrix("`scripts/check` runs it each time; here once more with all tests")


@of_check
def test_the_package_exports_exactly_the_public_names() -> None:
    assert sorted(corral.__all__) == PUBLIC
    assert all(hasattr(corral, name) for name in PUBLIC)


@of_check
def test_every_declared_name_exists() -> None:
    for module in pkgutil.walk_packages(corral.__path__, "corral."):
        if module.name.startswith("corral.integrations."):  # frameworks take seconds; their own tests load them
            continue
        loaded = importlib.import_module(module.name)
        assert all(hasattr(loaded, name) for name in getattr(loaded, "__all__", ())), module.name


def test_the_code_of_every_error_is_documented_and_finds_its_class() -> None:
    rows = re.findall(r"^\| (?:— )*`(\w+)` \| `([a-z_]+)` \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(set(corral.errors.__all__) - {"error_class"})
    for name, code in rows:
        assert corral.errors.error_class(code).__name__ == name


IMPORT = """
import sys, threading, json
before = {name.split(".")[0] for name in sys.modules}
%s
print(json.dumps({"new": sorted({name.split(".")[0] for name in sys.modules} - before),
                  "threads": threading.active_count()}))
"""


def what_it_loads(statement: str) -> set[str]:
    command = [sys.executable, "-c", IMPORT % statement]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["threads"] == 1
    return {name for name in found["new"] if name not in sys.stdlib_module_names and not name.startswith("_")}


def test_importing_corral_loads_nothing_else_and_starts_nothing() -> None:
    assert what_it_loads("import corral") == {"corral"}


@of_check
def test_using_corral_loads_no_optional_dependency() -> None:
    loaded = what_it_loads("from corral import *")
    own = {
        "anyio",
        "corral",
        "deno",
        "pydantic",
        "pydantic_core",
        "tree_sitter",
        "tree_sitter_python",
        "tree_sitter_typescript",
    }
    of_those = {"annotated_types", "idna", "sniffio", "typing_extensions", "typing_inspection"}
    assert loaded <= own | of_those
