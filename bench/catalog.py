"""`python -m bench.catalog`: what it costs to look through two thousand tools, and what is found.

The floors cannot be faster in Python: `split` takes the texts of all tools apart at white space, as an index has to in
some way; `scan` looks for one text in all of them, as a search without an index has to.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from statistics import median

from tests.model.catalog.google import google_tools
from tests.model.catalog.queries import QUERIES
from tree_sitter import Language as Grammar
from tree_sitter import Parser
from tree_sitter_python import language as python_grammar
from tree_sitter_typescript import language_typescript as typescript_grammar

from bench.host import describe_host
from bench.options import positive
from corral import Tool
from corral.model import Catalog
from corral.model.printing.printers import DegreePrinter, one_line
from corral.tools import ToolName, ToolRegistry
from corral.types import Language

_LANGUAGES: tuple[Language, ...] = ("typescript", "python")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--rounds", metavar="N", type=positive, default=5, help="how many rounds (default: 5)")
    rounds = parser.parse_args().rounds
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}; rounds: {rounds}\n")
    tools = google_tools()
    texts = [_text(tool) for tool in tools]
    split = median(_seconds(lambda: [text.split() for text in texts]) for _ in range(rounds))
    scan = median(_seconds(lambda: ["zebra" in text for text in texts]) for _ in range(rounds))
    index = median(_seconds(_indexed, tools) for _ in range(rounds))
    registry = _indexed(tools)
    searches = [_seconds(registry.search, query) for _ in range(rounds) for query in QUERIES]
    near = median(_seconds(registry.near, "gmail.users_message_send") for _ in range(rounds))
    _row("floor: split", split)
    _row("floor: scan", scan)
    _row("building the index", index, split)
    _row("a search, median", median(searches), scan)
    _row("a search, slowest", max(searches), scan)
    _row("near names", near, scan)
    for language in _LANGUAGES:
        _row(f"a catalog of 4,000 tokens, {language}", _seconds(Catalog, registry, language))
        _describe_all(registry, language)
    ranks = [_rank(registry, query, wanted) for query, wanted in QUERIES.items()]
    print(
        f"\n{len(ranks)} queries: {sum(rank == 1 for rank in ranks)} found first, {sum(r <= 5 for r in ranks)} in five"
    )


def _describe_all(registry: ToolRegistry, language: Language) -> None:
    """Declares every tool, and looks whether that is well formed."""
    parser = Parser(Grammar(python_grammar() if language == "python" else typescript_grammar()))
    declaring: list[float] = []
    shortening: list[float] = []
    broken: list[ToolName] = []
    for name, tool in registry.snapshot().items():
        printer = DegreePrinter({name: tool}, language)
        declaring.append(_seconds(printer.declare_whole))
        shortening.append(_seconds(one_line, name, tool, language))
        if parser.parse(printer.declare_whole().encode()).root_node.has_error:
            broken.append(name)
    _row(f"a declaration, median, {language}", median(declaring))
    _row(f"a declaration, slowest, {language}", max(declaring))
    _row(f"a signature, median, {language}", median(shortening))
    print(f"  {len(declaring) - len(broken)} of {len(declaring)} declarations parse")


def _indexed(tools: Iterable[Tool]) -> ToolRegistry:
    registry = ToolRegistry(*tools)
    registry.search("anything")
    return registry


def _rank(registry: ToolRegistry, query: str, wanted: set[str]) -> int:
    found = [str(name) for name, _ in registry.search(query, limit=len(registry)).tools]
    return min(found.index(name) for name in wanted) + 1


def _text(tool: Tool) -> str:
    """What of a tool an index takes in."""
    properties = (tool.input_schema or {}).get("properties", {})
    said = [f"{name} {schema.get('description', '')}" for name, schema in properties.items()]
    return " ".join([tool.name, tool.namespace or "", tool.description, *said])


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def _row(what: str, seconds: float, floor: float | None = None) -> None:
    ratio = "" if floor is None else f"  {seconds / floor:8.1f} x floor"
    print(f"{what:40} {seconds * 1e3:10.2f} ms{ratio}")


if __name__ == "__main__":
    main()
