"""A type checker for Python, as a judge: which calls of declared tools have type errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from corral.model import declare_python
from corral.types import JsonSchema, ToolName
from tests.model.declarations.compiler import Shape, Verdict

SETTINGS = {"typeCheckingMode": "standard", "pythonVersion": "3.11"}


def declare(**tools: Shape) -> str:
    """The stubs of tools without a namespace."""
    return declare_python({ToolName(None, name): tool for name, tool in tools.items()})


def errors_of(stubs: str, program: str = "") -> tuple[dict[int, str], dict[int, str]]:
    """The first error of each line that has one, of a stub file and of a program beside it. Lines count from 1."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"stubs.pyi": stubs, "program.py": program, "pyrightconfig.json": json.dumps(SETTINGS)}
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "basedpyright", "--level", "error", "--outputjson", "--project", folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, done.stdout
    found: dict[str, dict[int, str]] = {"stubs.pyi": {}, "program.py": {}}
    for each in report["generalDiagnostics"]:
        found[Path(each["file"]).name].setdefault(each["range"]["start"]["line"] + 1, each["message"])
    return found["stubs.pyi"], found["program.py"]


def judge(schemas: Sequence[JsonSchema], arguments: Sequence[Sequence[Any]]) -> list[Verdict]:
    """Calls a tool of each schema with each of its arguments, in every way that a program may write them.

    All are checked in one run. An argument has an error if it has one whichever way it is written: arrays are lists or
    tuples. The members of an object are keywords unless the declaration says `input`.
    """
    tools = {f"t{position}": Shape(input_schema=schema) for position, schema in enumerate(schemas)}
    stubs = declare(**tools)
    lines, places = ["from stubs import tools"], list[tuple[int, int]]()
    for tool, (name, values) in enumerate(zip(tools, arguments, strict=True)):
        for number, value in enumerate(values):
            keywords = re.search(rf"async def {name}\(\s*input: ", stubs) is None
            for way in dict.fromkeys(_calls(value, keywords=keywords)):
                lines.append(f"async def call{len(lines)}() -> None: await tools.{name}({way})")
                places.append((tool, number))
    in_stubs, in_program = errors_of(stubs, "\n".join(lines))
    assert {stubs.splitlines()[line - 1]: error for line, error in in_stubs.items()} == {}
    accepted = {place for line, place in enumerate(places, 2) if line not in in_program}
    first = {place: in_program[line] for line, place in reversed(list(enumerate(places, 2))) if line in in_program}
    return [
        Verdict(
            declare(tool=Shape(input_schema=schema)),
            [None if (tool, number) in accepted else first[tool, number] for number in range(len(values))],
        )
        for tool, (schema, values) in enumerate(zip(schemas, arguments, strict=True))
    ]


def _calls(value: Any, *, keywords: bool) -> Iterator[str]:
    """The arguments of a call that passes the value."""
    for tuples in range(2 ** _levels_of_arrays(value)):
        if keywords and isinstance(value, dict):
            members = cast("dict[str, Any]", value).items()
            yield ", ".join(f"{name}={_written(each, tuples)}" for name, each in members)
        else:
            yield _written(value, tuples)


def _written(value: Any, tuples: int) -> str:
    """The value as a literal. The bits of `tuples` say on which levels arrays are tuples."""
    match value:
        case list():
            items = "".join(f"{_written(each, tuples >> 1)}, " for each in cast("list[Any]", value))
            return f"({items})" if tuples & 1 else f"[{items}]"
        case dict():
            members = cast("dict[str, Any]", value).items()
            return f"{{{', '.join(f'{name!r}: {_written(each, tuples)}' for name, each in members)}}}"
        case _:
            return repr(value)


def _levels_of_arrays(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(_levels_of_arrays, cast("list[Any]", value)), default=0)
        case dict():
            return max(map(_levels_of_arrays, cast("dict[str, Any]", value).values()), default=0)
        case _:
            return 0
