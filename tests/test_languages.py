"""Each table that a language needs an entry in has one for every language."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from corral.languages import LANGUAGES, language_of_file
from corral.types import Language
from tests.test_architecture import MODULES, SOURCE, parsed


def tables() -> Iterator[tuple[str, set[str]]]:
    """The tables by language: annotated `Mapping[Language, ...]` and written as a dict."""
    for module in MODULES:
        for node in ast.walk(parsed(module)):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.value, ast.Dict)
                and ast.unparse(node.annotation).startswith(("Mapping[Language,", "dict[Language,"))
                and node.value.keys
            ):
                keys = {each.value for each in node.value.keys if isinstance(each, ast.Constant)}
                yield f"{module.relative_to(SOURCE)}: {ast.unparse(node.target)}", {str(each) for each in keys}


def test_every_table_knows_every_language() -> None:
    found = dict(tables())
    assert len(found) >= 6
    assert {name: keys for name, keys in found.items() if keys != {*get_args(Language)}} == {}
    assert {*LANGUAGES} == {*get_args(Language)}


def test_nothing_branches_on_the_name_of_a_language() -> None:
    """A third language fills tables in; it must not have to find conditions."""
    branches = [
        f"{module.relative_to(SOURCE)}:{node.lineno}"
        for module in MODULES
        if not {"guest", "cli"} & {*Path(module.relative_to(SOURCE)).parts}
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.Compare)
        and any(isinstance(each, ast.Constant) and each.value in get_args(Language) for each in node.comparators)
    ]
    assert branches == []


def test_the_language_of_a_file_is_told_by_its_name() -> None:
    assert [language_of_file(name) for name in ("a.py", "a.ts", "a.mjs", "-")] == [
        "python",
        "typescript",
        "typescript",
        "typescript",
    ]
