"""Two thousand tools of real services: they are found, described and shown within a budget."""

from __future__ import annotations

from itertools import islice

import pytest
from tree_sitter import Language as Grammar
from tree_sitter import Parser
from tree_sitter_python import language as python_grammar
from tree_sitter_typescript import language_typescript as typescript_grammar

from corral.model import Catalog
from corral.model.catalog import estimated_tokens
from corral.model.printing.printers import DegreePrinter, one_line
from corral.tools import ToolRegistry
from corral.types import Language
from tests.model.catalog.google import COUNT, google_tools
from tests.model.catalog.queries import QUERIES

pytestmark = pytest.mark.matrix(
    "test_search.py finds tools made for it in the gate; here those of real services are found"
)
PYTHON = pytest.param(
    "python",
    marks=pytest.mark.matrix("in TypeScript in the gate; test_catalog has the budget of smaller catalogs in both"),
)
LEAST_FIRST, LEAST_AMONG_FIVE = 18, 25
"""Of thirty queries; one less than when they were written down."""


@pytest.fixture(scope="module")
def registry() -> ToolRegistry:
    return ToolRegistry(*google_tools())


def rank(registry: ToolRegistry, query: str, wanted: set[str]) -> int:
    found = [str(name) for name, _ in registry.search(query, limit=COUNT).tools]
    return min(found.index(name) for name in wanted) + 1


def test_there_are_exactly_two_thousand(registry: ToolRegistry) -> None:
    assert len(registry) == COUNT == 2000
    assert len(registry.namespaces()) > 30


def test_what_somebody_may_look_for_is_found(registry: ToolRegistry) -> None:
    ranks = {query: rank(registry, query, wanted) for query, wanted in QUERIES.items()}
    assert sum(each == 1 for each in ranks.values()) >= LEAST_FIRST, ranks
    assert sum(each <= 5 for each in ranks.values()) >= LEAST_AMONG_FIVE, ranks


def test_each_tool_is_found_by_its_own_name(registry: ToolRegistry) -> None:
    for name in list(registry)[::20]:
        [(found, _)] = registry.search(str(name), limit=1).tools
        assert found == name


@pytest.mark.parametrize("language", ["typescript", PYTHON])
@pytest.mark.parametrize(("budget", "level"), [(4_000, "namespaces"), (16_000, "names")])
@pytest.mark.matrix("test_catalog has the budget of 2,000 tools in the gate; those of real services")
def test_they_are_shown_within_the_budget(registry: ToolRegistry, language: Language, budget: int, level: str) -> None:
    catalog = Catalog(registry, language, budget_tokens=budget)
    assert catalog.level == level
    assert 0.9 * budget <= estimated_tokens(catalog.text) <= budget


@pytest.mark.parametrize("language", ["typescript", PYTHON])
@pytest.mark.matrix("tests/model/declarations describes each kind of schema; those of real services")
def test_one_in_fifty_can_be_described(registry: ToolRegistry, language: Language) -> None:
    """`python -m bench.catalog` does it with all of them, which takes a while."""
    grammar = python_grammar() if language == "python" else typescript_grammar()
    parser = Parser(Grammar(grammar))
    for name, tool in islice(registry.snapshot().items(), 0, None, 50):
        declared = DegreePrinter({name: tool}, language).declare_whole()
        assert not parser.parse(declared.encode()).root_node.has_error, name
        assert name.name in declared
        line = one_line(name, tool, language)
        assert len(line) <= 300
        assert "\n" not in line
