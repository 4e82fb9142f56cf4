"""The TypeScript compiler, as a judge: which lines of a program have type errors."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.checking.servers.specs import SERVERS
from corral.model import declare_typescript
from corral.types import JsonSchema, ToolName

_ERROR = re.compile(r"^program\.ts\((\d+),\d+\): error (TS\d+: .*(?:\n .*)*)$", re.MULTILINE)
_OPTIONS = """
    --noEmit --strict --target esnext --module esnext --moduleDetection force --lib esnext --pretty false
""".split()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A tool, as far as its declaration goes."""

    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    needs_approval: bool = False
    rate_limit: str | None = None
    policy: str = ""
    returns_bytes: bool = False
    stream: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the compiler thinks of the arguments of one tool, in the order they were given."""

    declaration: str
    errors: list[str | None]


def declare(**tools: Shape) -> str:
    """The declarations of tools without a namespace."""
    return declare_typescript({ToolName(None, name): tool for name, tool in tools.items()})


def type_errors(source: str) -> dict[int, str]:
    """The first error of each line that has one. Lines count from 1."""
    return dict(reversed(all_type_errors(source)))


def all_type_errors(source: str, *declarations: Path) -> list[tuple[int, str]]:
    """Line and message of all errors of a program, for which files with declarations hold too."""
    skipped = [] if declarations else ["--skipLibCheck"]  # those of the compiler, which are many
    engine = SERVERS[0].engine()
    assert engine is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.ts").write_text(source, encoding="utf-8")
        command = [engine.executable, *_OPTIONS, *skipped, *declarations, "program.ts"]
        done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, check=False)
    found = [(int(line), message) for line, message in _ERROR.findall(done.stdout)]
    assert bool(found) == (done.returncode != 0), done.stdout + done.stderr
    return found


def judge(schemas: Sequence[JsonSchema], arguments: Sequence[Sequence[Any]]) -> list[Verdict]:
    """Calls a tool of each schema with each of its arguments, all in one program, which must compile otherwise."""
    tools = {f"t{position}": Shape(input_schema=schema) for position, schema in enumerate(schemas)}
    lines = declare(**tools).splitlines()
    declared = len(lines)
    for name, values in zip(tools, arguments, strict=True):
        empty = f"  {name}(): Promise" in "\n".join(lines)
        lines += [f"tools.{name}({'' if empty and value == {} else json.dumps(value)});" for value in values]
    errors = type_errors("\n".join(lines))
    assert not {line: (lines[line - 1], error) for line, error in errors.items() if line <= declared}
    verdicts: list[Verdict] = []
    line = declared
    for schema, values in zip(schemas, arguments, strict=True):
        found = [errors.get(line + position) for position in range(1, len(values) + 1)]
        verdicts.append(Verdict(declare(tool=Shape(input_schema=schema)), found))
        line += len(values)
    return verdicts


def wrong(verdict: Verdict, arguments: Sequence[Any], valid: int) -> Mapping[str, str]:
    """The arguments that are misjudged, if the first `valid` ones are valid and the others are not."""
    return {
        json.dumps(value): error or f"accepted by {verdict.declaration}"
        for position, (value, error) in enumerate(zip(arguments, verdict.errors, strict=True))
        if (error is None) != (position < valid)
    }
