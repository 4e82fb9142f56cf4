"""A TypeScript program learns from the frames of its stack nothing of where the host keeps its files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from corral import Corral, tool
from corral.containment import Tier
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio
same = pytest.mark.matrix("each isolation and each tier is in the gate; another pair of them")

PROGRAM = """
const found = new Set(), prepare = Error.prepareStackTrace;
Error.prepareStackTrace = (_, sites) => {
  for (const site of sites)
    for (const name of ["getFileName", "getScriptNameOrSourceURL", "getEvalOrigin", "toString"])
      try { found.add(String(site[name]())) } catch {}
  return "";
};
const look = () => void new Error().stack;
look();
await tools.add({ a: 1 });
look();
await new Promise((done) => setTimeout(() => { look(); done() }, 1));
queueMicrotask(look);
try { await tools.add({ get a() { look(); return 1 } }) } catch {}
console.log({ get a() { look(); return 1 } });
Error.prepareStackTrace = prepare;
try { null.x } catch (error) { found.add(error.stack) }
return [...found];
"""


@tool
async def add(a: int) -> int:
    return a


@pytest.mark.parametrize(
    ("isolation", "tier"),
    [
        ("fork", "namespaces"),
        ("process", "landlock"),
        pytest.param("fork", "landlock", marks=same),
        pytest.param("process", "namespaces", marks=same),
    ],
)
async def test_frames_name_no_place_of_the_host(
    isolation: Literal["process", "fork"], tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place-of-the-host"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    sandbox = DenoSandbox(tier=tier, isolation=isolation, pool_size=0)
    async with Corral([add], sandbox=sandbox, check=False) as corral:
        assert [*place.iterdir()] == [], "nothing is made before it is needed"
        result = await corral.execute(PROGRAM)
        assert [*place.iterdir()] != []
    assert result.error is None
    assert any("corral:program.ts" in each for each in result.value)
    assert [each for each in result.value if "place-of-the-host" in each or "/corral-" in each] == []
