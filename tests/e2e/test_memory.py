"""64 MB means: a program that holds 60 works, whatever they are made of, and one that wants 200 fails, and only it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from corral import Corral, Limits
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio

# Each holds `MB` megabytes at the end, and has written to all of them.
KINDS = {
    "numbers": "const a = []; for (let i = 0; i < MB; i++) a.push(new Array(131072).fill(i + 0.5)); return a.length",
    "objects": "const a = []; for (let i = 0; i < MB * 20000; i++) a.push({ x: i, y: i }); return a.length / 20000",
    "strings": (  # to ask for a character has the engine join what it has been repeated from
        "const a = []; for (let i = 0; i < MB; i++) { const s = String.fromCharCode(97 + i % 26).repeat(2 ** 20);"
        " s.charCodeAt(i); a.push(s); } return a.length"
    ),
    "one buffer": "const b = new Uint8Array(MB * 2 ** 20); b.fill(7); return b.length / 2 ** 20",
    "buffers": (
        "const a = []; for (let i = 0; i < MB; i++) { const b = new Uint8Array(2 ** 20); b.fill(i); a.push(b) }"
        " return a.length"
    ),
    "map": "const m = new Map(); for (let i = 0; i < MB * 16000; i++) m.set(i, i + 0.5); return m.size / 16000",
    "wasm": "const m = new WebAssembly.Memory({ initial: MB * 16 }); new Uint8Array(m.buffer).fill(7); return MB",
}
LIMITS = Limits(wall_seconds=300, cpu_seconds=100)
"""So that it is memory that ends a program on a busy machine too."""


OTHERS = pytest.mark.matrix(
    "the gate fills memory with a buffer in `process`, and with objects in `fork`; here other memory"
)
KINDS_AND_ISOLATION = [
    pytest.param(
        isolation, kind, marks=[] if (isolation, kind) in (("process", "one buffer"), ("fork", "objects")) else OTHERS
    )
    for isolation in ("process", "fork")
    for kind in KINDS
]


@pytest.fixture(scope="module")
async def corral(request: pytest.FixtureRequest) -> AsyncIterator[Corral]:
    """One for all: what a program holds is nothing to the next one."""
    sandbox = DenoSandbox(isolation=request.param, allow_wasm=True)
    async with Corral(sandbox=sandbox, limits=LIMITS, check=False) as corral:
        yield corral


@pytest.mark.parametrize(("corral", "kind"), KINDS_AND_ISOLATION, indirect=["corral"])
async def test_sixty_megabytes_work(corral: Corral, kind: str) -> None:
    result = await corral.execute(KINDS[kind].replace("MB", "60"))
    assert (result.status, result.value) == ("succeeded", 60), result.error


@pytest.mark.parametrize(("corral", "kind"), KINDS_AND_ISOLATION, indirect=["corral"])
async def test_two_hundred_fail_and_the_next_one_works(corral: Corral, kind: str) -> None:
    result = await corral.execute(KINDS[kind].replace("MB", "200"))
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code in {"memory_exceeded", "program_failed"}, result.error
    if result.error.code == "program_failed":
        assert result.error.name == "RangeError"
    assert (await corral.execute("return 2")).value == 2
