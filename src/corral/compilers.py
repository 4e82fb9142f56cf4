"""Compilers from npm packages, run in a sandbox."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection
from typing import NotRequired

import anyio
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, override

from corral import Corral, ExecutionResult, Limits
from corral.errors import ConfigError, ProgramRejected
from corral.packages import NpmPackages
from corral.programs.compiled import CompiledProgram, Compiler

__all__ = ["CompiledProgram", "Compiler", "PackageCompiler", "coffeescript"]

_LIMITS = Limits(wall_seconds=15, cpu_seconds=10, memory_mb=128, source_bytes=2_000_000, value_bytes=4_000_000)
_REMEMBERED = 64
_REMEMBERED_CHARS = 100_000

_COFFEESCRIPT = """\
import CoffeeScript from "coffeescript";
export default () => {
  try {
    const { js, v3SourceMap } = CoffeeScript.compile(source, { bare: true, sourceMap: true });
    return { code: js, source_map: v3SourceMap };
  } catch (error) {
    const place = error.location;
    return { message: error.message, line: place && place.first_line + 1, column: place && place.first_column + 1 };
  }
};
"""


class _Answer(TypedDict):
    code: NotRequired[str]
    source_map: NotRequired[str | None]
    message: NotRequired[str]
    line: NotRequired[int | None]
    column: NotRequired[int | None]


_answer = TypeAdapter(_Answer)


class PackageCompiler(Compiler):
    """Compiler from an npm package. It runs in a separate sandbox without tools, files or network.

    `program` imports the package and compiles the constant `source`. It returns an object with `code` and `source_map`,
    or with `message`, `line` and `column` (from 1) if the source is rejected. `labels` are further names for Markdown
    code fences.
    """

    def __init__(
        self, packages: NpmPackages, program: str, *, labels: Collection[str] = (), limits: Limits = _LIMITS
    ) -> None:
        self.labels = frozenset(labels)
        self._program = program
        self._corral = Corral(packages=packages, check=False, limits=limits)
        self._holders = 0
        self._opening = anyio.Lock()
        self._recent: OrderedDict[str, CompiledProgram] = OrderedDict()

    @override
    async def open(self) -> None:
        self._holders += 1

    @override
    async def compile(self, source: str) -> CompiledProgram:
        if source in self._recent:
            self._recent.move_to_end(source)
            return self._recent[source]
        if self._holders:  # else nothing would close it
            async with self._opening:
                if not self._corral.is_open:
                    await self._corral.__aenter__()
        compiled = _compiled(await self._corral.execute(f"const source = {json.dumps(source)};\n{self._program}"))
        if len(source) <= _REMEMBERED_CHARS:
            self._recent[source] = compiled
            if len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return compiled

    @override
    async def aclose(self) -> None:
        self._holders = max(0, self._holders - 1)
        if not self._holders:
            await self._corral.aclose()


def _compiled(result: ExecutionResult) -> CompiledProgram:
    if result.error is not None:
        raise ProgramRejected(f"the compiler failed: {result.error.message[:500]}")
    try:
        answer = _answer.validate_python(result.value)
    except ValidationError as error:
        raise ConfigError("a compiler returns {code, source_map}, or {message, line, column}") from error
    if "code" not in answer:
        message = answer.get("message", "it does not compile")
        raise ProgramRejected(message[:2_000], line=answer.get("line"), column=answer.get("column"))
    return CompiledProgram(answer["code"], answer.get("source_map"))


def coffeescript(packages: NpmPackages) -> PackageCompiler:
    """Returns a CoffeeScript compiler from the package `coffeescript` in `packages`.

    Raises:
        ConfigError: the package is missing.
    """
    if not (packages.node_modules / "coffeescript").is_dir():
        raise ConfigError("coffeescript is not in this folder of packages; run: corral packages add coffeescript@2.7.0")
    return PackageCompiler(packages, _COFFEESCRIPT, labels=("coffee", "coffeescript", "cs"))
