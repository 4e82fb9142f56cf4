"""Errors in programs with what TypeScript adds to JavaScript: the same text and place in every tier, forked or not.

One sandbox runs each kind of program with each end; the others run each kind, and each end once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import Corral
from corral.sandboxes import DenoSandbox
from tests.conftest import TOOLS

pytestmark = pytest.mark.anyio

ALIKE = pytest.mark.matrix(
    "as in the namespaces tier, where each program runs in the gate; in another one, or not forked"
)
SANDBOXES: dict[str, dict[str, Any]] = {
    "namespaces": {"tier": "namespaces"},
    "landlock": {"tier": "landlock"},
    "none": {"tier": "none"},
    "process": {"isolation": "process"},
}
HEADS = {
    "enum": "enum A { B = 1 }\nif (A.B) { console.log(A.B); }\n",
    "namespace": "namespace N { export const b = 1 }\nif (N.b) { console.log(N.b); }\n",
    "parameter property": "class P { constructor(readonly b = 1) {} }\nif (new P().b) { console.log(new P().b); }\n",
}
# What follows on line 3, and what is to come of it: value, or name, message and column of the error.
ENDS: dict[str, tuple[Any, tuple[str, str, int] | None]] = {
    "try { await tools.fail({ message: 'no' }) } catch (e) { return e.message }": ("no", None),
    "await tools.fail({ message: 'no' })": (None, ("ToolError", "no", 13)),
    "console.log(new Error('x').stack); return 2": (2, None),
    "return new Error('x').stack": ("Error: x\n    at corral:program.ts:3:8", None),
    "[1].map(() => { throw new TypeError('x') })": (None, ("TypeError", "x", 23)),
    "setTimeout(() => { throw new RangeError('x') }, 1); await new Promise(() => {})": (None, ("RangeError", "x", 26)),
    "Promise.reject(new Error('x')); return 3": (3, None),
    "null.x": (None, ("TypeError", "Cannot read properties of null (reading 'x')", 6)),
    "let y = ;": (None, ("SyntaxError", "Unexpected token ';'", 9)),
}


@pytest.fixture(scope="module", params=["namespaces", *(pytest.param(name, marks=ALIKE) for name in [*SANDBOXES][1:])])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Corral]]:
    engine = DenoSandbox(pool_size=1, **SANDBOXES[request.param])
    async with Corral(TOOLS, sandbox=engine, containment="none", check=False) as corral:
        yield request.param, corral


@pytest.mark.parametrize("head", HEADS)
async def test_an_error_is_told_alike_everywhere(sandbox: tuple[str, Corral], head: str) -> None:
    name, corral = sandbox
    mine = [*HEADS].index(head)
    ends = [*ENDS.items()] if name == "namespaces" else [*ENDS.items()][mine :: len(HEADS)]
    for end, (value, error) in ends:
        result = await corral.execute(HEADS[head] + end)
        found = result.error and (result.error.name, result.error.message, result.error.column)
        assert (result.value, found) == (value, error), end
        assert error is None or (result.error and result.error.line) == 3, end
        assert result.console.startswith("1\n") is (result.status != "rejected"), end
