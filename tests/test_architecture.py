"""The arrow of the pipeline can be read off the imports: they point one way, and none hides in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "corral"
MODULES = sorted(SOURCE.rglob("*.py"))

# What each part of corral may import, besides itself. "corral" is the public API.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "logs": set(),
    "preview": set(),
    "shown": {"errors"},
    "types": {"arguments", "errors", "preview"},
    "redaction": {"preview", "secrecy", "types"},
    "pictures": set(),
    "results": {"errors", "memo", "pictures", "preview", "redaction", "types"},
    "catalog": {"arguments", "errors"},
    "tools": {"arguments", "errors", "garbage", "memo", "types", "workers"},
    "declarations": {"arguments", "errors", "memo", "secrecy", "threads", "tools", "types", "workers"},
    "programs": {"errors", "memo", "types"},
    "temporary": set(),
    "guest": {"errors", "garbage", "programs", "temporary", "types"},
    "sandboxes": {"arguments", "catalog", "errors", "guest", "temporary", "threads", "types"},
    "secrecy": set(),
    "clock": set(),
    "egress": {"arguments", "errors", "types"},
    "audit": {"arguments", "errors", "preview", "redaction", "threads", "types"},
    "workers": {"errors", "sandboxes", "threads"},
    "bridges": {
        "arguments",
        "audit",
        "clock",
        "errors",
        "guest",
        "redaction",
        "results",
        "shown",
        "threads",
        "tools",
        "types",
    },
    "checking": {
        "clock",
        "declarations",
        "errors",
        "guest",
        "memo",
        "preview",
        "programs",
        "sandboxes",
        "temporary",
        "threads",
        "tools",
        "types",
    },
    "presentation": {"bridges", "connections", "declarations", "errors", "tools", "types"},
    "model": {"declarations", "errors", "results", "tools", "types"},
    "execution": {
        "audit",
        "bridges",
        "checking",
        "clock",
        "errors",
        "listening",
        "programs",
        "results",
        "sandboxes",
        "tools",
        "types",
        "workers",
    },
    "corral": {
        "arguments",
        "audit",
        "bridges",
        "catalog",
        "checking",
        "connections",
        "declarations",
        "errors",
        "execution",
        "life",
        "listening",
        "model",
        "presentation",
        "programs",
        "providers",
        "results",
        "sandboxes",
        "tools",
        "types",
    },
    "__init__": {
        "audit",
        "bridges",
        "checking",
        "corral",
        "declarations",
        "errors",
        "execution",
        "model",
        "results",
        "sources",
        "tools",
        "types",
    },
    "held": set(),
    "providers": {"catalog", "errors", "sandboxes", "types"},
    "connections": {"errors", "held", "tools"},
    "sources": {"arguments", "catalog", "egress", "errors", "memo", "secrecy", "threads", "tools", "types"},
    "integrations": {
        "__init__",
        "arguments",
        "errors",
        "model",
        "pictures",
        "preview",
        "sources",
        "threads",
        "tools",
        "types",
    },
    "cli": {
        "__init__",
        "audit",
        "catalog",
        "checking",
        "errors",
        "integrations",
        "sandboxes",
        "shown",
        "sources",
        "types",
    },
    "threads": set(),
    "memo": set(),
    "arguments": {"errors"},
    "listening": {"results"},
    "life": {"errors"},
    "garbage": set(),
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


def test_imports_point_downwards_only() -> None:
    wrong = {
        str(module.relative_to(SOURCE)): sorted(above)
        for module in MODULES
        if (above := set(imported_parts(module)) - ALLOWED[part := part_of(module)] - {part, "logs"})
    }
    assert wrong == {}


def test_the_allowed_imports_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {part for part, below in ALLOWED.items() if part not in done and below <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


def test_no_import_of_our_own_hides_in_a_function() -> None:
    hidden = [
        f"{module.relative_to(SOURCE)}: {function.name}: {ast.unparse(node)}"
        for module in MODULES
        for function in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and "corral" in ast.unparse(node)
    ]
    assert hidden == []


def test_no_module_has_grown_past_one_idea() -> None:
    lengths = {str(module.relative_to(SOURCE)): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}
