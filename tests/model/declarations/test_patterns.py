"""What a template can say of the keys that a regular expression matches."""

from __future__ import annotations

import pytest

from corral.model.shapes.reader import key_pattern
from corral.model.shapes.shape import ANY_KEY, KeyPattern


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("^x-", KeyPattern("x-", "")),
        ("^x-.*$", KeyPattern("x-", "")),
        ("_id$", KeyPattern("", "_id")),
        ("^.*_id$", KeyPattern("", "_id")),
        ("^a.+b$", KeyPattern("a", "b")),
        (r"^\$\{", KeyPattern("${", "")),
        ("", KeyPattern("", "")),
        (".*", KeyPattern("", "")),
        ("^name$", "name"),
        ("^$", ""),
        (r"^v\d+$", KeyPattern("v", "", "number", exact=False)),
        ("^[0-9]+px$", KeyPattern("", "px", "number", exact=False)),
        ("^x-[a-z]+$", KeyPattern("x-", "", exact=False)),
        ("^x-(a|b)c$", KeyPattern("x-", "c", exact=False)),
        (r"^x([)\]]q)?z$", KeyPattern("x", "z", exact=False)),
        ("^ab?c", KeyPattern("a", "", exact=False)),
        ("^ab{2}c$", KeyPattern("a", "c", exact=False)),
        (r"^a\b", KeyPattern("a", "", exact=False)),
        ("^x-|^y-", ANY_KEY),
        ("middle", ANY_KEY),
        (r"^\w+$", ANY_KEY),
        ("[", ANY_KEY),
        ("(((", ANY_KEY),
        ("a{2", ANY_KEY),
        ("\\", ANY_KEY),
    ],
)
def test_expressions_become_templates(expression: str, expected: KeyPattern | str) -> None:
    assert key_pattern(expression) == expected


def test_a_template_covers_keys_and_narrower_templates() -> None:
    template = KeyPattern("x-", "-y")
    assert template.covers("x-a-y")
    assert template.covers("x--y")
    assert not template.covers("x-y")
    assert template.covers(KeyPattern("x-a-", "-y"))
    assert not KeyPattern("x-a-", "-y").covers(template)
    assert KeyPattern("v", "", "number").covers("v12")
    assert not KeyPattern("v", "", "number").covers("va")
