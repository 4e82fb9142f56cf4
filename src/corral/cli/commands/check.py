"""`corral check`: reports errors in a program without running it."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from corral import Corral, ExecutionContext
from corral.checking import CheckResult
from corral.cli.options import add_tools
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.report import NO_TOOLS, help_line, names_tools, remark_lines
from corral.cli.run_options import (
    GivenProgram,
    add_program,
    add_surroundings,
    add_workspace,
    given_program,
    mounts,
    surroundings,
)
from corral.cli.screen import Screen, counted, printable, screen
from corral.cli.tool_loading import load_tools
from corral.doctor.language_servers import find_server, install_command
from corral.errors import ConfigError
from corral.packages.bundler import BUILT_INS
from corral.rendering.preview import json_text
from corral.results import Diagnostic
from corral.running import prepare
from corral.sandboxes import CPythonSandbox
from corral.sessions import Sessions

_REJECTED = 1
_UNCHECKED = 3
_NO_MODULE = re.compile(r"imported module `(\w+)[\w.]*`")
_LOADED = re.compile(r"""\$load\w*\(\s*["']([^"']+)["']\s*\)""")
"""Module from which the program uses something in code that runs."""
_PYTHON_PACKAGES = "--packages FOLDER or --python-package NAME adds Python packages"
_NPM_PACKAGES = "--packages FOLDER adds npm packages"
_HELP = """\
Type-checks a program against tools, without running it.

Findings go to standard error; standard output has one line with the verdict, or JSON.

exit codes: 0 the program would run, 1 it would be rejected, 2 wrong usage or set-up, 3 it could not be type-checked
"""


def add_check(commands: Commands) -> None:
    parser = add_command(commands, "check", _check, _HELP, takes="PROGRAM")
    add_program(parser)
    add_tools(parser)
    add_workspace(parser)
    add_surroundings(parser)
    parser.add_argument("--json", action="store_true", help="print only the findings, as JSON")


def _check(arguments: argparse.Namespace) -> int:
    program = given_program(arguments)
    with screen() as view:
        with moving(view, "checking"):
            result = asyncio.run(_result(_corral(arguments, program), program, arguments))
        if arguments.json:
            view.out(_json(result))
        else:
            _show(result, program, view)
            if not (result.passed or arguments.tools or arguments.mcp_configs) and names_tools(program.source):
                view.err(help_line(NO_TOOLS, view))
    if not result.passed:
        return _REJECTED
    return 0 if result.checked else _UNCHECKED


def _corral(arguments: argparse.Namespace, program: GivenProgram) -> Corral:
    if arguments.python_packages and program.language != "python":
        raise ConfigError("--python-package applies only to Python programs")
    return Corral(
        load_tools(arguments.tools, arguments.mcp_configs),
        sandbox=CPythonSandbox(packages=arguments.python_packages) if arguments.python_packages else "auto",
        sessions=Sessions(files=mounts(arguments.workspace)) if _in_session(arguments) else None,
        **surroundings(arguments),
    )


async def _result(corral: Corral, program: GivenProgram, arguments: argparse.Namespace) -> CheckResult:
    context = ExecutionContext(session_id="check") if _in_session(arguments) else ExecutionContext()
    async with corral.connected():
        try:
            result = await corral.check(program.source, program.language, env=program.env is not None, context=context)
            if not result.passed:
                return result
            if program.language == "python":
                return replace(result, diagnostics=tuple(_imported(corral, program, result, arguments)))
            missing = [each async for each in _missing(corral, program, arguments)]
        finally:
            await corral.aclose()
    places = {(each.line, each.column) for each in missing}
    others = [each for each in result.diagnostics if (each.line, each.column) not in places]
    return replace(result, diagnostics=(*missing, *others))


def _in_session(arguments: argparse.Namespace) -> bool:
    return arguments.workspace is not None or bool(arguments.skills)


# --- modules that are not there


def _imported(
    corral: Corral, program: GivenProgram, result: CheckResult, arguments: argparse.Namespace
) -> Iterator[Diagnostic]:
    """Yields the diagnostics. A missing module is an error, unless the program only tries to import it.

    The language server sees neither packages nor the workspace.
    """
    packages = corral.model.surroundings("python").packages
    lines = program.source.splitlines()
    for each in result.diagnostics:
        names = _NO_MODULE.findall(each.message) if each.code == "ty:import-not-found" else []
        if not names or each.line is None:
            yield each
            continue
        here = arguments.workspace is not None and any(arguments.workspace.glob(f"{names[0]}*"))
        here = here or (names[0] == "skills" and bool(arguments.skills))
        if not (here or names[0] in packages):
            tried = lines[each.line - 1][:1].isspace()
            yield each if tried else replace(each, severity="error", message=_absent(names[0], _PYTHON_PACKAGES))


async def _missing(corral: Corral, program: GivenProgram, arguments: argparse.Namespace) -> AsyncIterator[Diagnostic]:
    """Yields an error for each module that a TypeScript program uses but cannot load."""
    packages = corral.model.surroundings("typescript").packages
    prepared = await prepare(program.source, program.language, corral.limits, None, corral.tools)
    loads = bool(arguments.packages) or _in_session(arguments)
    for name in dict.fromkeys(_LOADED.findall(prepared.code)):
        package = "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
        own = name.startswith((".", "/", "node:", "skills/")) or package in BUILT_INS
        if not (loads and (own or package in packages)):
            before = program.source.partition(name)[0]
            line = before.count("\n") + 1
            column = len(before) - before.rfind("\n") - 1  # column of the quotation mark
            message = _absent(name, _NPM_PACKAGES)
            yield Diagnostic(severity="error", message=message, code="import", line=line, column=column)


def _absent(name: str, remedy: str) -> str:
    return f"module {name!r} is not available to programs; {remedy}"


def _json(result: CheckResult) -> str:
    content = {"passed": result.passed, "checked": result.checked, "language": result.language}
    return json_text(content | {"diagnostics": result.diagnostics}, indent=2)


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
        view.err(help_line("corral run runs the program, corral doctor tests the language server", view))
