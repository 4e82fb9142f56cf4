"""Conditions on members that closed results do not have: they are told, and reject loops that nothing else ends."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from corral import tool
from corral.checking import Checker
from corral.tools import ToolRegistry
from corral.types import Language
from tests.checking.corpora import checked


class Order(BaseModel):
    id: int
    status: str


@tool(namespace="shop")
def place(n: int = 1) -> Order:
    return Order(id=n, status="open")


@tool(namespace="shop", read_only=True)
def find(n: int = 1) -> list[Order]:
    return [Order(id=n, status="open")]


TOOLS = ToolRegistry(place, find)
TYPESCRIPT = {
    "for (let i = 0; i < 3; i++) { const r = await tools.shop.place({}); if (r.success) return r; }": True,
    "let o = null; while (!o) { const r = await tools.shop.place({}); if (r.ok) o = r; }": True,
    "let r; do { r = await tools.shop.place({}) } while (!r.success);": True,
    "while (true) { const r = await tools.shop.place({}); if (!r.ok) continue; return r }": True,
    "for (let i = 0; i < 3; i++) { try { const r = await tools.shop.place({}); if (!r.ok) throw 1; return r } catch {} }": True,
    "const r = await tools.shop.place({}); if (r && r.error) throw new Error('no');": False,
    "for (const n of [1, 2]) { const r = await tools.shop.place({ n }); if (r.error) break; }": False,
    "for (let i = 0; i < 3; i++) { const r = await tools.shop.place({ n: i }); if (r.error) break; }": False,
    "for (let i = 0; i < 3; i++) { const r = await tools.shop.place({}); if (r.error) continue; return r }": False,
    "while (true) { const [r] = await tools.shop.find({}); if (r.done) break; }": False,
    "return (await tools.shop.find({})).filter((o) => !o.deleted)": False,
}
PYTHON = {
    "for _ in range(3):\n    r = await tools.shop.place()\n    if r.get('success'):\n        return r": True,
    "o = None\nwhile o is None:\n    r = await tools.shop.place()\n    if 'ok' in r:\n        o = r": True,
    "while True:\n    r = await tools.shop.place()\n    if not r.get('ok', False):\n        continue\n    break": True,
    "r = await tools.shop.place()\nif r.get('error'):\n    raise ValueError(r['error'])": False,
    "for n in [1, 2]:\n    r = await tools.shop.place(n=n)\n    if r.get('error'):\n        break": False,
    "for i in range(3):\n    print(i)\n    for o in await tools.shop.find():\n        if o.get('gone') is not None:\n            break": False,
}
SILENT = (
    "const r = (await tools.shop.place({})) as any; if (r.error) return 1",
    "const r = await tools.shop.place({}); r.error = 1; if (r.error) return 1",
    "r: Any = await tools.shop.place()\nif r.get('error'):\n    pass",
    "r = await tools.shop.place()\nr['error'] = 1\nif r.get('error'):\n    pass",
    "r = await tools.shop.place()\nif r.get('status', 'open'):\n    pass",
)


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_a_condition_that_never_changes_is_told_and_rejects_a_loop_without_an_end(
    checker: Checker, language: Language
) -> None:
    programs = TYPESCRIPT if language == "typescript" else PYTHON
    verdicts = {each: checked(checker, each, language, TOOLS, env=False, must=True) for each in programs}
    assert {each: verdict.rejection is not None for each, verdict in verdicts.items()} == programs
    told = {
        each: [one for one in verdict.diagnostics if "(it has id, status)" in one.message]
        for each, verdict in verdicts.items()
    }
    assert [each for each, found in told.items() if len(found) != 1] == []
    assert {found[0].show for each, found in told.items() if not programs[each]} == {"always"}


def test_a_member_that_the_program_sets_or_may_have_is_not_told_of(checker: Checker) -> None:
    for program in SILENT:
        language: Language = "typescript" if program.startswith("const") else "python"
        verdict = checked(checker, program, language, TOOLS, env=False, must=True)
        assert "condition" not in str(verdict), program
