"""`corral snippets`: exports a recorded program that succeeded as a skill's folder, for code review."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic_core import to_json

from corral import ConfigError, Corral, ExecutionResult
from corral.cli.options import add_tools, existing_ledger
from corral.cli.parsing import Commands, add_command
from corral.cli.screen import Screen, counted, printable, screen
from corral.cli.tool_loading import load_tools
from corral.errors import CorralError
from corral.ledger import Records, SqliteLedger, as_ledger
from corral.programs.parameters import ProgramFunction, as_function, is_variable
from corral.running.request import ExecutionRequest
from corral.tools import Tool
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ExecutionContext

_MANIFEST = "snippet.json"
_RECORD = "recorded.db"
_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_PARTS = ("status", "value", "console")
"""Parts of a result in which a program and its function have to agree."""
_HELP = """\
Exports a recorded program that succeeded as a skill's folder, and checks such folders.

examples:
  corral snippets export execution-1f0c9a7b2d3e4f50 --name report --input days=7 --tools app.tools --ledger runs.db
  corral snippets check skills/report --tools app.tools

exit codes: 0 done, 1 a tool's schemas or the program have changed, 2 wrong usage or set-up
"""
_SKILL = """\
---
name: {name}
description: {description}
---
`{program}` is a program that succeeded. It calls {tools}.
"""
_USE = """
```
{use}
```
"""
_DRAFT = """
This is a draft: {reason}. Read the program, and what it sends where. Rename this file to `SKILL.md` once it
has been reviewed.
"""
_TEST = '''\
"""Replays the recorded run of this program offline, with the inputs that it had."""

from pathlib import Path

import pytest

from corral.testing import RecordedExecution, replays

HERE = Path(__file__).parent
CALL = {call}


@pytest.mark.anyio
@pytest.mark.parametrize("run", replays(HERE / "recorded.db", keys={{}}), ids=str)
async def test_the_program_does_what_it_did(run: RecordedExecution) -> None:
    program = (HERE / "{program}").read_text(encoding="utf-8")
    await run.check(source=f"{{program}}\\n{{CALL}}")
'''


def add_snippets(commands: Commands) -> None:
    parser = add_command(commands, "snippets", _snippets, _HELP, takes="export|check")
    parser.add_argument("action", choices=("export", "check"), metavar="ACTION", help="export, check")
    parser.add_argument("subject", metavar="ID|FOLDER", help="for export the execution, for check the folder")
    parser.add_argument("--ledger", metavar="PATH|URL", help="for export: the ledger that has the execution")
    parser.add_argument("--name", metavar="NAME", help="for export: name of the skill, and of its folder")
    parser.add_argument("--description", default="Exported program.", metavar="TEXT", help="for export: one sentence")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for export: a text, number or truth value of the program that becomes a parameter; can be repeated",
    )
    parser.add_argument("--to", default="skills", type=Path, metavar="FOLDER", help="for export: default skills")
    add_tools(parser)


def _snippets(arguments: argparse.Namespace) -> int:
    with screen() as view:
        return (_export if arguments.action == "export" else _check)(arguments, view)


class _Snippet(NamedTuple):
    source: str
    program: str
    """Name of its file."""
    function: ProgramFunction | None
    """None if the source is as it ran."""
    tools: dict[str, str]
    """Digests of the schemas of the tools that it has called."""
    draft: str
    """Reason why it is a draft; empty if it is not."""


def _export(arguments: argparse.Namespace, view: Screen) -> int:
    name, description = arguments.name or "", " ".join(arguments.description.split())
    if arguments.ledger is None or not _NAME.fullmatch(name) or not 0 < len(description) <= 1_024:
        raise ConfigError("`corral snippets export` needs --ledger, --name of a-z, 0-9, - and _, and a --description")
    existing_ledger(arguments.ledger)
    folder: Path = arguments.to / name
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose another --name, or delete it")
    with TemporaryDirectory() as scratch:
        snippet = asyncio.run(_read(arguments, Path(scratch) / _RECORD))
        folder.mkdir(parents=True)
        shutil.copy(Path(scratch) / _RECORD, folder)
    (folder / snippet.program).write_bytes(snippet.source.encode())  # with its line ends, which the digest covers
    function = snippet.function
    test = _TEST.format(program=snippet.program, call=json.dumps("" if function is None else function.call))
    (folder / f"test_{name.replace('-', '_')}.py").write_text(test, encoding="utf-8")
    manifest = {"program": _digest(snippet.source), "file": snippet.program, "tools": snippet.tools}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    tools = ", ".join(f"`tools.{each}`" for each in snippet.tools) or "no tools"
    text = _SKILL.format(name=name, description=description, program=snippet.program, tools=tools)
    text += "" if function is None else _USE.format(use=_use(name, snippet.program, function))
    text += _DRAFT.format(reason=snippet.draft) if snippet.draft else ""
    (folder / ("DRAFT.md" if snippet.draft else "SKILL.md")).write_text(text, encoding="utf-8")
    view.out(f"{printable(str(folder))} is written{f', as a draft: {snippet.draft}' if snippet.draft else ''}")
    if function is None:
        view.out(f"{snippet.program} is the source as it ran, because as a function it would do something else")
    view.out(f"{_RECORD} has inputs and results of its calls in plain text; read it before you commit it")
    return 0


async def _read(arguments: argparse.Namespace, copied: Path) -> _Snippet:
    """Reads the execution and its tools, and copies its record to a new ledger."""
    records = Records(as_ledger(arguments.ledger))
    try:
        async with Corral(ledger=records.ledger, check=False) as corral:
            record = await corral.executions.get(arguments.subject)
        if record.status != "succeeded" or record.request is None or record.result is None:
            raise ConfigError(f"{arguments.subject} is {record.status}; only a program that succeeded can be exported")
        if record.request.language == "python" and not is_variable(arguments.name):
            raise ConfigError(f"--name {arguments.name}: programs in Python cannot import it; use a-z, 0-9 and _")
        used = sorted({call.name for call in record.result.tool_calls} - RESERVED_ROOT_NAMES)
        digests = await _digests(arguments)
        if missing := [each for each in used if each not in digests]:
            raise ConfigError(f"the program calls {', '.join(missing)}; pass its tools with --tools or --mcp-config")
        reason = await _draft_reason(records, record.request.context)
        copy = SqliteLedger(copied, keys={})
        try:
            await records.copy(arguments.subject, copy)
            function = await _function(arguments, copy, record.request, record.result)
        finally:
            copy.close()
    finally:
        await records.writer.aclose()
    program = "program.py" if record.request.language == "python" else "program.ts"
    source = record.request.source if function is None else function.source
    return _Snippet(source, program, function, {each: digests[each] for each in used}, reason)


async def _function(
    arguments: argparse.Namespace, ledger: SqliteLedger, request: ExecutionRequest, recorded: ExecutionResult
) -> ProgramFunction | None:
    """Returns the program as a function whose replay ends as the record does, if there is one.

    Raises:
        ConfigError: it cannot be one with these inputs.
    """
    inputs: dict[str, str] = {}
    for text in arguments.input:
        name, is_pair, value = text.partition("=")
        if not is_pair or not is_variable(name) or name in inputs:
            raise ConfigError(f"--input {text[:80]!r}: write NAME=VALUE, with the name of a variable, once for each")
        inputs[name] = value
    try:
        function = as_function(request.source, request.language, arguments.name, inputs)
        async with Corral(ledger=ledger, check=False) as corral:
            result = await corral.executions.replay(arguments.subject, source=f"{function.source}\n{function.call}")
        before, after = recorded.to_dict(), result.to_dict()
        if request.compiler or any(before[each] != after[each] for each in _PARTS):
            raise ConfigError("as a function it does something else, as some do that do not end with their value")
    except CorralError as error:
        if inputs:
            raise ConfigError(f"the program cannot have --input: {error}") from None
        return None
    return function


def _use(name: str, program: str, function: ProgramFunction) -> str:
    if program.endswith(".py"):
        return f"from skills.{name}.program import {function.name}\n{function.call}"
    return f'import {{ {function.name} }} from "skills/{name}/{program}";\n{function.call};'


async def _draft_reason(records: Records, context: ExecutionContext) -> str:
    """Returns the reason why a program is a draft; empty if its session has read no untrusted text."""
    is_exposed = await records.is_exposed((context.organization_id, context.user_id, context.session_id))
    if is_exposed is None:
        return "what its session has read is unknown"
    return "its session has read text that others wrote" if is_exposed else ""


def _check(arguments: argparse.Namespace, view: Screen) -> int:
    folder = Path(arguments.subject)
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        program = (folder / manifest["file"]).read_bytes().decode()
        expected, tools = manifest["program"], dict[str, str](manifest["tools"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder} is not a folder of `corral snippets export`: {error}") from None
    digests = asyncio.run(_digests(arguments))
    lines = [
        f"tools.{each} {'has changed its schemas' if each in digests else 'is missing'}"
        for each, digest in tools.items()
        if digests.get(each) != digest
    ]
    if _digest(program) != expected:
        lines.append(f"{manifest['file']} was changed, so its recorded run belongs to another program")
    for each in lines:
        view.out(printable(each))
    view.out(f"{counted(len(tools), 'tool')}, {counted(len(lines), 'problem')}")
    return 1 if lines else 0


async def _digests(arguments: argparse.Namespace) -> dict[str, str]:
    corral = Corral(load_tools(arguments.tools, arguments.mcp_configs), check=False)
    async with corral.connected():
        return {str(name): _tool_digest(tool) for name, tool in corral.tools.snapshot().items()}


def _tool_digest(tool: Tool) -> str:
    return _digest(to_json([tool.input_schema, tool.output_schema, tool.stream]).decode())


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
