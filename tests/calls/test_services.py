"""Services of the host: calls that are no tool calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from corral import Corral, Limits
from corral.calls import Service
from corral.errors import ToolFailed

pytestmark = pytest.mark.anyio

CALLS = {
    "typescript": """
      const doubled = await Promise.all([1, 2, 3].map((n) => tools["$double"]({ n })));
      let failure = "";
      try { await tools["$double"]({ n: "x" }); } catch (error) { failure = error.code; }
      return { doubled, failure, names: Object.keys(tools), again: (await tools.plain({})).value };
    """,
    "python": """
import asyncio
doubled = await asyncio.gather(*(tools["$double"](n=n) for n in [1, 2, 3]))
failure = ""
try:
    await tools["$double"](n="x")
except Exception as error:
    failure = error.code
{"doubled": doubled, "failure": failure, "names": list(tools), "again": (await tools.plain())["value"]}
""",
}


class Doubling:
    """Doubles numbers, and knows if it is open."""

    def __init__(self) -> None:
        self.open = 0
        self.calls = 0

    origins: tuple[str, ...] = ()

    @asynccontextmanager
    async def serve(self, _caller: object, _audit: object) -> AsyncGenerator[Mapping[str, Service]]:
        async def double(input: Any) -> object:
            self.calls += 1
            if not isinstance(input["n"], int):
                raise ToolFailed("n is no number")
            return input["n"] * 2

        self.open += 1
        try:
            yield {"$double": double}
        finally:
            self.open -= 1


async def plain() -> dict[str, int]:
    """Answers."""
    return {"value": 7}


def corral_with(warm: Any, *sources: Any, **options: Any) -> Corral:
    corral = Corral([plain], sandbox=warm, check=False, **options)
    corral._runtime.service_sources = sources  # pyright: ignore[reportPrivateUsage]
    return corral


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_calls_of_services_are_no_tool_calls(warm: Any, language: Any) -> None:
    doubling = Doubling()
    async with corral_with(warm, doubling, limits=Limits(calls=1, calls_in_flight=2)) as corral:
        result = await corral.execute(CALLS[language], language=language)
    assert result.error is None
    assert result.value == {"doubled": [2, 4, 6], "failure": "tool_failed", "names": ["plain"], "again": 7}
    assert [call.name for call in result.tool_calls] == ["plain"]
    assert (doubling.calls, doubling.open) == (4, 0)


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_service_that_is_not_granted_is_an_unknown_tool(warm: Any, language: Any) -> None:
    async with corral_with(warm) as corral:
        result = await corral.execute(CALLS[language], language=language)
    assert result.error is not None
    assert result.error.code == "tool_not_found"


async def test_sizes_are_bounded_and_other_errors_stay_in_the_log(warm: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Doubling):
        origins: tuple[str, ...] = ()

        @asynccontextmanager
        async def serve(self, _caller: object, _audit: object) -> AsyncGenerator[Mapping[str, Service]]:
            async def large(_: object) -> object:
                return "x" * 2000

            async def broken(_: object) -> object:
                raise RuntimeError("a secret of the host")

            yield {"$large": large, "$broken": broken}

    program = """
      const codes = [];
      for (const name of ["$large", "$broken"]) await tools[name]({}).catch((error) => codes.push(error.code + error.message));
      return codes;
    """
    async with corral_with(warm, Broken(), limits=Limits(tool_output_bytes=1000)) as corral:
        result = await corral.execute(program)
    large, broken = result.value
    assert large.startswith("message_too_large")
    assert broken.startswith("tool_failed")
    assert "secret" not in broken
    assert "a secret of the host" in caplog.text
