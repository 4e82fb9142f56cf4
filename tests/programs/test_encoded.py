"""Programs that came encoded once too often run as they were meant; what only looks so is left alone."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping

import pytest

from corral.programs import read_program
from corral.types import Language

PROGRAMS: dict[Language, str] = {
    "typescript": (
        'const found = await tools.find({ name: "ø" });\nif (found.length > 0 && found.length < 3) {\n  return found;\n}\n'
        "return `none\\n`;"
    ),
    "python": 'found = await tools.find(name="ø")\nif len(found) > 0 and len(found) < 3:\n    print("some\\n")\nfound',
}
FORMS: Mapping[str, Callable[[str], str]] = {
    "object": lambda text: json.dumps({"code": text}),
    "labelled object": lambda text: json.dumps({"language": "python", "program": text}, indent=2),
    "fenced object": lambda text: f"```json\n{json.dumps({'code': text})}\n```",
    "call": lambda text: json.dumps({"name": "execute", "arguments": {"code": text}}),
    "text": json.dumps,
    "escapes": lambda text: json.dumps(text)[1:-1],
    "HTML": html.escape,
}


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_an_encoded_program_is_decoded(language: Language) -> None:
    meant = read_program(PROGRAMS[language], language)
    wrong: dict[str, str] = {}
    for name, form in FORMS.items():
        program = read_program(form(PROGRAMS[language]), language)
        if program.code != meant.code:
            wrong[name] = program.code
        assert [each.code for each in program.diagnostics] == ["encoded_source"]
    assert wrong == {}
    assert meant.diagnostics == ()


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("python", '{"code": "abc"}'),
        ("python", '{"name": "tools"}'),
        ("python", '"no program"'),
        ("python", "x = '&amp; a\\nb'; x"),
        ("typescript", '"hello"'),
        ("typescript", "return '&lt;a\\nb'"),
        ("typescript", "return /\\n/.test('&amp;')"),
    ],
)
def test_a_program_that_runs_as_it_is_stays_as_it_is(language: Language, source: str) -> None:
    program = read_program(source, language)
    assert (program.source, program.diagnostics) == (source, ())
