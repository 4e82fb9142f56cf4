"""Programs in languages that the host compiles to JavaScript."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple

from corral.errors import ProgramRejected
from corral.programs.edits import relocated
from corral.programs.recover import Dialect, recover
from corral.texts import SourceMap
from corral.types import Program


class CompiledProgram(NamedTuple):
    """JavaScript, with its source map (version 3, as JSON) if the compiler makes one.

    Without a map, positions refer to the JavaScript.
    """

    code: str
    source_map: str | None = None


class Compiler(ABC):
    """Compiler of one language into JavaScript: statements, or a module with a default export."""

    labels: frozenset[str] = frozenset()
    """Names for the language on Markdown fences, in lower case, besides the compiler's name in the Corral."""

    @abstractmethod
    async def compile(self, source: str) -> CompiledProgram:
        """Compiles a program. Models write programs, so treat `source` as hostile.

        Raises:
            ProgramRejected: the source is not in this language, or too large. `line` and `column` refer to `source`.
        """

    async def open(self) -> None:
        """Called when a Corral with this compiler opens. `compile` can also be called without it."""

    async def aclose(self) -> None:
        """Called when a Corral with this compiler closes."""


class Compiled(NamedTuple):
    """Code, the compiler's source map, and the number of columns removed from the source's margin."""

    code: str
    source_map: str | None
    margin: int


async def compiled_code(source: str, name: str, compiler: Compiler) -> Compiled:
    """Compiles the program in a model's answer.

    Raises:
        ProgramRejected: the answer contains no program in the language.
    """
    dialect = Dialect(
        labels=compiler.labels | {name}, label=name, parses=lambda text: "```" not in text and "~~~" not in text
    )
    text = recover(source.replace("\r\n", "\n"), dialect).text.rstrip()
    dedented = textwrap.dedent(text)
    lines = zip(text.split("\n"), dedented.split("\n"), strict=True)
    margin = next((len(before) - len(after) for before, after in lines if after.strip()), 0)
    try:
        compiled = await compiler.compile(dedented)
    except ProgramRejected as error:
        column = None if error.column is None else error.column + margin
        raise ProgramRejected(str(error), line=error.line, column=column) from error
    return Compiled(compiled.code, compiled.source_map, margin)


def with_source(program: Program, source: str, source_map: SourceMap | None) -> Program:
    """Returns a prepared program: compiled code with the text and positions of its source, without type checks."""
    if source_map is not None:
        program = replace(relocated(program, source_map), positions=(*program.positions, source_map))
    return replace(program, source=source, typed=None)
