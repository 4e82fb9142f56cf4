"""Programs in CoffeeScript, by the real package in a sandbox of its own; and a compiler of one's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from typing_extensions import override

from corral import ConfigError, Corral, ExecutionRequest, tool
from corral.compilers import CompiledProgram, Compiler, PackageCompiler, coffeescript
from corral.errors import ProgramRejected
from corral.packages import NpmPackages
from corral.texts import read_source_map
from tests.foreign import COFFEESCRIPT, PACKAGES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.fixture(scope="module")
async def corral() -> AsyncGenerator[Corral]:
    compilers = {"coffeescript": coffeescript(NpmPackages(COFFEESCRIPT))}
    async with Corral([add], compilers=compilers) as opened:
        yield opened


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("sum = await tools.add a: 1, b: 2\nsum", 3),
        ("names = (c for c in ['a', 'b'] when c isnt 'a')\nreturn names", ["b"]),
        ("export default (tools) ->\n  await tools.add {a: 1, b: 2}\n", 3),
        ("In CoffeeScript:\n\n```coffee\nawait tools.add a: 2, b: 2\n```\n\nThat is all.", 4),
        ("- like this:\n\n  ```coffeescript\n  f = (x) ->\n    x * 2\n  f 4\n  ```\n", 8),
    ],
)
async def test_forms_that_models_write_run(corral: Corral, source: str, value: object) -> None:
    result = await corral.execute(source, compiler="coffeescript")
    assert (result.value, result.error) == (value, None)


@pytest.mark.parametrize(
    ("source", "code", "place"),
    [
        ("f = ->\n  y = 2\n\n  throw new Error 'no'\nf()", "program_failed", (4, 9)),
        ("- so:\n\n  ```coffee\n  a = 1\n  throw new Error 'no'\n  ```", "program_failed", (5, 9)),
        ("x = (\n  if", "program_rejected", (1, 5)),
        ("a = 1\nawait tools.add a: 'x', b: 2", "invalid_arguments", (2, 13)),
        ("a = 1\nawait tools.ad a: 1", "tool_not_found", (2, 13)),
    ],
)
async def test_places_are_those_of_what_the_model_wrote(
    corral: Corral, source: str, code: str, place: tuple[int, int]
) -> None:
    error = (await corral.execute(source, compiler="coffeescript")).error
    assert error is not None
    assert (error.code, error.line, error.column) == (code, *place)


async def test_a_compiler_reaches_no_tool_and_ends_in_time(corral: Corral) -> None:
    assert (await corral.execute("return 1", compiler="javascript")).value == 1
    limits = corral.limits.model_copy(update={"source_bytes": 100})
    large = await corral.execute("x = 1\n" * 100, compiler="coffeescript", limits=limits)
    assert large.error is not None
    assert "600 bytes; 100 are allowed" in large.error.message
    hostile = PackageCompiler(NpmPackages(PACKAGES, allow=["uuid"]), "return typeof tools.add + typeof source")
    with pytest.raises(ConfigError, match="a compiler returns"):
        await hostile.compile("x")


async def test_compilers_are_named(corral: Corral) -> None:
    with pytest.raises(ConfigError, match="known: coffeescript, javascript, typescript"):
        await corral.execute("x", compiler="livescript")
    with pytest.raises(ConfigError, match="leave out language='python'"):
        await corral.execute(ExecutionRequest(source="x", language="python", compiler="coffeescript"))
    with pytest.raises(ConfigError, match="corral packages add coffeescript"):
        coffeescript(NpmPackages(PACKAGES, allow=["uuid"]))


class Shouting(Compiler):
    """Turns `SHOUT text` into JavaScript."""

    opened = 0

    @override
    async def open(self) -> None:
        self.opened += 1

    @override
    async def aclose(self) -> None:
        self.opened -= 1

    @override
    async def compile(self, source: str) -> CompiledProgram:
        if not source.startswith("SHOUT "):
            raise ProgramRejected("it does not shout", line=1, column=1)
        return CompiledProgram(f'return "{source.removeprefix("SHOUT ").upper()}"')


async def test_a_compiler_may_be_a_class_of_ones_own() -> None:
    compiler = Shouting()
    corral = Corral(compilers={"shout": compiler}, check=False)
    async with corral:
        assert compiler.opened == 1
        assert (await corral.execute("SHOUT hello", compiler="shout")).value == "HELLO"
        refused = await corral.execute("hello", compiler="shout")
    assert compiler.opened == 0
    assert refused.error is not None
    assert refused.error.message == "it does not shout"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"mappings": 1}', '{"mappings": "!"}', '{"mappings": "gggggggggggA"}', "many lines"]
)
def test_a_source_map_that_is_none_is_refused(text: str) -> None:
    text = text.replace("many lines", f'{{"mappings": "{";" * 100_000}"}}')
    with pytest.raises(ValueError, match=r"mapping|JSON|EOF|expected|too large"):
        read_source_map(text)
