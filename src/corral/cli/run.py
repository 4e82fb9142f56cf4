"""`corral run`: runs one program and shows what it does."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import nullcontext

from corral import Approve, ConsoleOutput, Corral, Event, ExecutionResult, Limits, Run
from corral.catalog import load_by_name
from corral.cli.asking import Asker, keyboard
from corral.cli.loading import load_tools
from corral.cli.options import Commands, add_caller, add_command, add_tools, caller, given, interruptible
from corral.cli.program import GivenProgram, add_program, given_program
from corral.cli.progress import Progress
from corral.cli.report import call_lines, error_lines, note_lines
from corral.cli.screen import Screen, screen
from corral.cli.text import json_text, printable
from corral.errors import ConfigError
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.types import TIERS, Language

__all__ = ["add_run"]

_EPILOG = """\
Standard output has what the program logs with console.log, info and debug, and then its result: a text as it is,
anything else as JSON, nothing for null. All else is on standard error. --quiet leaves only the result and errors.

The program is type-checked first if there is a language server for it: corral doctor tells.

exit codes: 0 succeeded, 1 failed, 2 wrong usage or set-up, 124 timed out, 130 cancelled
"""


def add_run(commands: Commands) -> None:
    """Adds the command to `corral`."""
    parser = add_command(
        commands,
        "run",
        _run,
        help="run a program",
        description="Runs a program against tools, in a sandbox.",
        epilog=_EPILOG,
    )
    add_program(parser)
    add_tools(parser)
    parser.add_argument("--no-check", action="store_true", help="run the program whether or not it fits the tools")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the whole result as JSON, and nothing else")
    output.add_argument("--quiet", action="store_true", help="print only the result and errors")
    output.add_argument("--progress", action="store_true", help="a line per tool call, also where there is no terminal")
    context = add_caller(parser)
    parser.add_argument(
        "--engine", choices=("auto", "cpython", "monty"), default="auto", help="for Python; default: what works here"
    )
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="that Python may import; may be repeated",
    )
    isolation = parser.add_argument_group("isolation")
    isolation.add_argument(
        "--tier",
        choices=("auto", *TIERS),
        default="auto",
        help="the jail around the sandbox; default: the best there is",
    )
    isolation.add_argument(
        "--required-tier", choices=TIERS, default="landlock", help="do not run in a lower one; default: landlock"
    )
    context.add_argument(
        "--approve",
        choices=("ask", "all", "none"),
        default="ask",
        help="calls that need an approval; ask, the default, denies them where there is no terminal",
    )
    limits = parser.add_argument_group("limits")
    for name, field in Limits.model_fields.items():
        kind: type[int | float] = float if field.annotation is float else int
        flag = f"--{name.replace('_', '-')}"
        limits.add_argument(flag, type=kind, metavar="N", help=f"default: {field.default:n}")


def _run(arguments: argparse.Namespace) -> int:
    program = given_program(arguments)
    with screen() as view, keyboard() as terminal:
        corral = Corral(
            load_tools(arguments.tools, arguments.mcp_configs),
            sandbox=_sandbox(arguments, program.language),
            limits=Limits(**given(arguments, *Limits.model_fields)),
            required_tier=arguments.required_tier,
            check=not arguments.no_check,
            audit=arguments.audit,
            hide_denied=arguments.hide_denied,
            approve=_approve(arguments.approve, view, terminal),
        )
        result = asyncio.run(_execute(corral, program, arguments, view))
        _show(result, program, arguments, view)
    return result.exit_code


def _approve(how: str, view: Screen, terminal: int | None) -> Approve | None:
    if how == "all":
        return lambda _: True
    return Asker(view, terminal).approve if how == "ask" and terminal is not None and view.live else None


def _sandbox(arguments: argparse.Namespace, language: Language) -> SandboxProvider:
    """For one program, so that none is kept ready.

    Raises:
        ConfigError: the options do not fit together.
    """
    engine, packages = arguments.engine, arguments.package
    if language == "typescript":
        if packages or engine != "auto":
            raise ConfigError("--engine and --package are for Python programs")
        return DenoSandbox(tier=arguments.tier, pool_size=0)
    if engine == "monty" or (engine == "auto" and not packages and arguments.tier == "auto"):
        if packages or arguments.tier != "auto":
            raise ConfigError("Monty has no packages and no tiers; use --engine cpython")
        return load_by_name("corral.sandboxes", "monty" if engine == "monty" else "python")
    return CPythonSandbox(packages=packages, tier=arguments.tier, pool_size=0)


async def _execute(
    corral: Corral, program: GivenProgram, arguments: argparse.Namespace, view: Screen
) -> ExecutionResult:
    progress = Progress(view) if _wants_progress(arguments, view) else None
    source, language, _, env = program
    async with corral, corral.start(source, language=language, context=caller(arguments), env=env) as run:
        with interruptible(run.cancel):
            await _follow(run, progress, view, console=not (arguments.json or arguments.quiet))
            return await run.result()


def _wants_progress(arguments: argparse.Namespace, view: Screen) -> bool:
    return bool(arguments.progress) or (view.live and not arguments.quiet)


async def _follow(run: Run, progress: Progress | None, view: Screen, *, console: bool) -> None:
    async with nullcontext() if progress is None else progress.turning():
        async for event in run:
            if progress is not None:
                progress.see(event)
            if console:
                _print(event, view)


def _print(event: Event, view: Screen) -> None:
    if isinstance(event, ConsoleOutput):
        if event.entry.level in ("warn", "error"):
            view.err(printable(event.entry.text) if view.live else event.entry.text)
        else:
            view.out(event.entry.text)


def _show(result: ExecutionResult, program: GivenProgram, arguments: argparse.Namespace, view: Screen) -> None:
    if arguments.json:
        view.out(result.to_json(indent=2))
        return
    if isinstance(result.value, str):
        view.out(result.value)
    elif result.value is not None:
        view.out(json_text(result.value, indent=2))
    if not arguments.quiet:
        for line in note_lines(result, program.file, view):
            view.err(line)
    for line in error_lines(result, program.source, program.file, view):
        view.err(line)
    if not (result.success or _wants_progress(arguments, view)):
        for line in call_lines(result, view):
            view.err(line)
