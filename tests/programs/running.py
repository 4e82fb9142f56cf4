"""Runs prepared Python programs in this process, as the contract of the engines says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import CodeType
from typing import Any

from corral.programs import prepare_python
from corral.types import Position, Program

__all__ = ["Ran", "failures", "run_python"]


@dataclass(frozen=True)
class Ran:
    """How a source fared."""

    program: Program
    value: Any = None
    error: BaseException | None = None
    position: Position | None = None
    """Where in the source the error was raised."""
    printed: str = ""


class Tools:
    """Tools that are there under any name: `answer` gives 42, others what they were called with."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __getattr__(self, name: str) -> Tools:
        return Tools(f"{self._path}.{name}" if self._path else name)

    async def __call__(self, *positional: Any, **named: Any) -> Any:
        if self._path == "answer":
            return 42
        if self._path == "fail":
            raise ValueError("it failed")
        return positional[0] if positional else named or self._path


def run_python(source: str) -> Ran:
    """Prepares and runs a source; the value is what it leaves in `_corral_result`."""
    program = prepare_python(source)
    printed = StringIO()
    tools = Tools()
    scope: dict[str, Any] = {"__name__": "__main__", "tools": tools, "codemode": tools, "_corral_result": None}
    try:
        with redirect_stdout(printed):
            code = compile(program.code, "program.py", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            value = asyncio.run(_value(code, scope))
    except SyntaxError as error:
        place = program.locate(error.lineno or 1, _column(program.code, error.lineno or 1, (error.offset or 1) - 1))
        return Ran(program, error=error, position=place)
    except BaseException as error:
        return Ran(program, error=error, position=_position(program, error), printed=printed.getvalue())
    return Ran(program, value=value, printed=printed.getvalue())


def failures(values: Mapping[str, object]) -> dict[str, Ran]:
    """How those sources fared, of all that are given, that do not have the value beside them, or one of another type."""
    found = {source: run_python(source) for source in values}
    return {
        source: ran
        for source, ran in found.items()
        if ran.error is not None or ran.value != values[source] or type(ran.value) is not type(values[source])
    }


async def _value(code: CodeType, scope: dict[str, Any]) -> Any:
    running: object = eval(code, scope)  # noqa: S307
    if inspect.iscoroutine(running):
        await running
    value: object = scope["_corral_result"]
    return await value if inspect.iscoroutine(value) else value


def _position(program: Program, error: BaseException) -> Position | None:
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == "program.py"]
    if not frames or frames[-1].lineno is None:
        return None
    line, column = frames[-1].lineno, (frames[-1].colno or 0)
    text = program.code.split("\n")[line - 1].encode()[:column].decode()
    return program.locate(line, _column(text, 1, len(text)))


def _column(code: str, line: int, characters: int) -> int:
    """The column in UTF-16 units, from 1, behind so many characters of a line."""
    return len(code.split("\n")[line - 1][:characters].encode("utf-16-le")) // 2 + 1
