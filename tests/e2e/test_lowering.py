"""Errors in programs with what TypeScript adds to JavaScript: the same text and place in every tier, forked or not.

One sandbox runs each kind of program with each end; the others run each kind, and each end once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from corral import Corral
from corral.sandboxes import DenoSandbox
from tests.conftest import TOOLS

pytestmark = pytest.mark.anyio

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
    "decorator": "const d = (f, c) => f;\nclass D { @d b() { return 1 } } if (new D().b()) { console.log(new D().b()); }\n",
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


@pytest.fixture(scope="module")
async def corrals() -> AsyncIterator[dict[str, Corral]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                Corral(TOOLS, sandbox=DenoSandbox(pool_size=1, **options), required_tier="none", check=False)
            )
            for name, options in SANDBOXES.items()
        }


@pytest.mark.parametrize("head", HEADS)
async def test_an_error_is_told_alike_everywhere(corrals: dict[str, Corral], head: str) -> None:
    mine = [*HEADS].index(head)
    for name, corral in corrals.items():
        ends = [*ENDS.items()] if name == "namespaces" else [*ENDS.items()][mine :: len(HEADS)]
        for end, (value, error) in ends:
            result = await corral.execute(HEADS[head] + end)
            found = result.error and (result.error.name, result.error.message, result.error.column)
            assert (result.value, found) == (value, error), (name, end)
            assert error is None or (result.error and result.error.line) == 3, (name, end)
            assert result.output.startswith("1\n") is (result.status != "rejected"), (name, end)
