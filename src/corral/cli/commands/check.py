"""`corral check`: says what is wrong with a program, without running it."""

from __future__ import annotations

import argparse
import asyncio

from corral import CheckResult, Corral
from corral.cli.options import add_tools
from corral.cli.parsing import Commands, add_command
from corral.cli.program import GivenProgram, add_program, given_program
from corral.cli.progress import moving
from corral.cli.report import NO_TOOLS, help_line, names_tools, remark_lines
from corral.cli.screen import Screen, screen
from corral.cli.text import counted, printable
from corral.cli.tool_loading import load_tools
from corral.doctor.language_servers import find_server, install_command
from corral.rendering.preview import json_text

__all__ = ["add_check"]

_REJECTED = 1
_UNCHECKED = 3
_EPILOG = """\
What is found is on standard error; standard output has one line that says what came of it, or JSON.

exit codes: 0 the program would run, 1 it would be rejected, 2 wrong usage or set-up, 3 it could not be type-checked
"""


def add_check(commands: Commands) -> None:
    parser = add_command(
        commands,
        "check",
        _check,
        takes="PROGRAM",
        help="type-check a program",
        description="Type-checks a program against tools, without running it.",
        epilog=_EPILOG,
    )
    add_program(parser)
    add_tools(parser)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON, and nothing else")


def _check(arguments: argparse.Namespace) -> int:
    program = given_program(arguments)
    with screen() as view:
        with moving(view, "checking"):
            result = asyncio.run(_result(Corral(load_tools(arguments.tools, arguments.mcp_configs)), program))
        if arguments.json:
            view.out(_json(result))
        else:
            _show(result, program, view)
            if not (result.passed or arguments.tools or arguments.mcp_configs) and names_tools(program.source):
                view.err(help_line(NO_TOOLS, view))
    if not result.passed:
        return _REJECTED
    return 0 if result.checked else _UNCHECKED


async def _result(corral: Corral, program: GivenProgram) -> CheckResult:
    async with corral.connected():
        try:
            return await corral.check(program.source, program.language, env=program.env is not None)
        finally:
            await corral.aclose()


def _json(result: CheckResult) -> str:
    found = {"passed": result.passed, "checked": result.checked, "language": result.language}
    return json_text(found | {"diagnostics": result.diagnostics}, indent=2)


def _show(result: CheckResult, program: GivenProgram, view: Screen) -> None:
    for remark in result.diagnostics:
        for line in remark_lines(remark, program.source, program.file, view):
            view.err(line)
    errors = sum(each.severity == "error" for each in result.diagnostics)
    file = printable(program.file)
    if errors:
        view.out(f"{file} would not run: {counted(errors, 'error')}")
    elif result.checked:
        view.out(f"{file} fits the declarations")
    elif find_server(program.language) is None:
        view.out(f"{file} was not type-checked: there is no language server for {program.language}")
        view.err(help_line(install_command(program.language), view))
    else:
        view.out(f"{file} was not type-checked: {result.unchecked}")
        view.err(help_line("corral run tries whether it runs, corral doctor whether the server does", view))
