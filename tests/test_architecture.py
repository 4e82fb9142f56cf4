"""The arrow of the pipeline can be read off the imports: they point one way, and none hides in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "corral"
MODULES = sorted(SOURCE.rglob("*.py"))

# What each part of corral may import, besides itself. "corral" is the public API.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "garbage": set(),
    "preview": set(),
    "types": {"errors", "preview"},
    "redaction": {"types", "preview", "secrecy"},
    "pictures": set(),
    "results": {"errors", "types", "pictures", "preview", "redaction"},
    "catalog": {"errors"},
    "tools": {"errors", "types", "garbage", "workers"},
    "declarations": {"errors", "types", "secrecy", "tools"},
    "programs": {"errors", "types"},
    "guest": {"errors", "types", "garbage", "programs"},
    "sandboxes": {"errors", "types", "catalog", "guest"},
    "secrecy": set(),
    "clock": set(),
    "egress": {"errors", "types"},
    "audit": {"errors", "types", "preview", "redaction"},
    "workers": {"errors", "sandboxes"},
    "bridges": {"errors", "types", "redaction", "results", "clock", "tools", "guest", "audit"},
    "checking": {"errors", "types", "preview", "clock", "tools", "declarations", "programs", "guest", "sandboxes"},
    "presentation": {"errors", "types", "tools", "declarations", "bridges", "connections"},
    "model": {"errors", "types", "results", "tools", "declarations"},
    "execution": {
        "errors",
        "types",
        "results",
        "clock",
        "tools",
        "programs",
        "checking",
        "sandboxes",
        "audit",
        "bridges",
        "workers",
    },
    "corral": {
        "errors",
        "types",
        "results",
        "catalog",
        "tools",
        "declarations",
        "programs",
        "checking",
        "sandboxes",
        "audit",
        "bridges",
        "model",
        "connections",
        "presentation",
        "providers",
        "execution",
    },
    "__init__": {
        "errors",
        "types",
        "results",
        "tools",
        "declarations",
        "checking",
        "audit",
        "bridges",
        "model",
        "sources",
        "corral",
        "execution",
    },
    "held": set(),
    "providers": {"errors", "types", "catalog", "sandboxes"},
    "connections": {"errors", "held", "tools"},
    "sources": {"errors", "types", "secrecy", "catalog", "tools", "egress"},
    "integrations": {"__init__", "errors", "types", "pictures", "preview", "tools", "sources", "model"},
    "cli": {"__init__", "errors", "types", "catalog", "checking", "sandboxes", "audit", "sources", "integrations"},
}


def part_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "corral":
            yield from ("__init__" for _ in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corral."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("corral."))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_imports_point_downwards_only(module: Path) -> None:
    part = part_of(module)
    wrong = set(imported_parts(module)) - ALLOWED[part] - {part}
    assert not wrong, f"{part} may not import {', '.join(sorted(wrong))}"


def test_the_allowed_imports_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {part for part, below in ALLOWED.items() if part not in done and below <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_no_import_of_our_own_hides_in_a_function(module: Path) -> None:
    for function in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            hidden = [
                ast.unparse(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Import | ast.ImportFrom) and "corral" in ast.unparse(node)
            ]
            assert not hidden, f"{function.name} hides {hidden}"


def test_no_module_has_grown_past_one_idea() -> None:
    lengths = {str(module.relative_to(SOURCE)): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}
