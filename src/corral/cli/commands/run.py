"""`corral run`: runs one program and shows its calls, output and result."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from corral import Corral, ExecutionResult, Session
from corral.cli.commands.executions import paused_line
from corral.cli.options import add_caller, add_tools, caller, interruptible
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import Progress
from corral.cli.report import call_lines, error_lines, exit_code, note_lines
from corral.cli.run_options import GivenProgram, add_program, add_running, add_workspace, given_program, mounts, running
from corral.cli.screen import Screen, printable, screen
from corral.cli.tool_loading import load_tools
from corral.events import ConsoleOutput, Event
from corral.rendering.full_text import escape_hidden, full_text
from corral.rendering.preview import json_text
from corral.types import ApprovalRequest, Approve

if TYPE_CHECKING or sys.platform != "win32":
    import termios
    import tty

_SHOWN_CHARS = 4_000
"""Maximum characters of an input. Longer ones are denied, so that only text that was shown is approved."""

_HELP = """\
Runs a program against tools, in a sandbox.

examples:
  corral run program.ts --tools app.tools
  cat answer.md | corral run - --tools app/tools.py:registry --calls 20

Standard output has the program's console.log, info and debug, followed by its result: strings unchanged, other values
as JSON, nothing for null. Everything else goes to standard error. --quiet prints only the result and errors. corral
doctor shows whether programs can be type-checked here.

exit codes: 0 succeeded, 1 failed or timed out, 2 wrong usage or set-up, 3 paused, 130 cancelled
"""


def add_run(commands: Commands) -> None:
    parser = add_command(commands, "run", _run, _HELP, takes="PROGRAM")
    add_program(parser)
    add_tools(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print only the whole result, as JSON")
    output.add_argument("--quiet", action="store_true", help="print only the result and errors")
    output.add_argument("--progress", action="store_true", help="print a line per tool call, even without a terminal")
    parser.add_argument(
        "--ledger",
        metavar="PATH|URL",
        help="a SQLite or PostgreSQL database that makes it durable: it pauses for approvals",
    )
    context = add_caller(parser)
    context.add_argument(
        "--approve",
        choices=("ask", "all", "none"),
        default="ask",
        help="for calls that require approval; ask, the default, denies them without a terminal",
    )
    add_workspace(parser)
    add_running(parser)


def _run(arguments: argparse.Namespace) -> int:
    program = given_program(arguments)
    with screen() as view, _keyboard() as terminal:
        progress = Progress(view, "starting") if _wants_progress(arguments, view) else None
        with nullcontext() if progress is None else progress.turning():
            corral = Corral(
                load_tools(arguments.tools, arguments.mcp_configs),
                **running(arguments, program.language, pool_size=0),  # a single program needs no pool
                audit=arguments.audit,
                ledger=arguments.ledger,
                policy=arguments.policies or None,
                hide_denied=arguments.hide_denied or None,
                approve=_approve(arguments.approve, view, terminal),
            )
            result = asyncio.run(_execute(corral, program, arguments, view, progress))
        _show(result, program, arguments, view)
    return exit_code(result)


def _approve(how: str, view: Screen, terminal: int | None) -> Approve | None:
    if how == "all":
        return lambda _: True
    return _Asker(view, terminal).approve if how == "ask" and terminal is not None and view.live else None


async def _execute(
    corral: Corral, program: GivenProgram, arguments: argparse.Namespace, view: Screen, progress: Progress | None
) -> ExecutionResult:
    console = not (arguments.json or arguments.quiet)
    source, language, _, env = program
    context = caller(arguments)
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(corral)
        session: Session | None = None
        if arguments.workspace is not None or arguments.skills:  # both require a session
            files = mounts(arguments.workspace)
            session = await opened.enter_async_context(corral.session(context=context, files=files))
        durable = arguments.ledger is not None
        started = corral.start(source, language=language, context=context, env=env, session=session, durable=durable)
        run = await opened.enter_async_context(started)
        with interruptible(run.cancel):
            async for event in run:
                if progress is not None:
                    progress.see(event)
                if console:
                    _print(event, view)
            return await run.result()


def _wants_progress(arguments: argparse.Namespace, view: Screen) -> bool:
    return bool(arguments.progress) or (view.live and not arguments.quiet)


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
    tools_given = bool(arguments.tools or arguments.mcp_configs)
    for line in error_lines(result, program.source, program.file, view, tools_given=tools_given):
        view.err(line)
    if result.status == "paused":
        view.err(paused_line(result, arguments.ledger))
    if not (result.success or _wants_progress(arguments, view)):
        for line in call_lines(result, view):
            view.err(line)


# --- approvals on the terminal


@contextmanager
def _keyboard() -> Generator[int | None]:
    """Yields the descriptor of a terminal from which keys can be read; None if there is no terminal."""
    if sys.platform == "win32":
        yield None  # its consoles have no readers of descriptors
        return
    if sys.stdin.isatty():
        yield sys.stdin.fileno()
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


class _Asker:
    """Asks about one call at a time. A single key answers; only `y` and `a` mean yes."""

    def __init__(self, screen: Screen, terminal: int) -> None:
        self._screen = screen
        self._terminal = terminal
        self._one_at_a_time = asyncio.Lock()
        self._always: set[str] = set()

    async def approve(self, request: ApprovalRequest) -> bool:
        """Decides on a call, for `Corral(approve=...)`."""
        async with self._one_at_a_time:
            if request.tool in self._always:
                return True
            tool = f"tools.{escape_hidden(request.tool)}"
            input = full_text(request.input, _SHOWN_CHARS, long_first=True)  # so that the end is next to the question
            # Output is held, or the program could print a forged question below this one.
            with self._keys() as pressed, self._screen.holding() as say:
                say(
                    f"{self._screen.paint('?', 'yellow')} {tool}({input})\n  needs your approval: y = yes, "
                    f"a = yes to every call of {escape_hidden(request.tool)}, any other key = no"
                )
                key = await pressed
                if key == "a":
                    self._always.add(request.tool)
                allowed = key in ("y", "a")
                answer = self._screen.paint("allowed" if allowed else "denied", "green" if allowed else "red")
                say(f"  {answer}: {tool}")
            return allowed

    @contextmanager
    def _keys(self) -> Generator[asyncio.Future[str]]:
        """Yields a future for the next key that is pressed during the block. Earlier keys are discarded."""
        loop = asyncio.get_running_loop()
        pressed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not pressed.done():
                pressed.set_result(os.read(self._terminal, 16).decode("utf-8", "replace").lower())

        before = termios.tcgetattr(self._terminal)
        tty.setcbreak(self._terminal, termios.TCSAFLUSH)
        loop.add_reader(self._terminal, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(self._terminal)
            termios.tcsetattr(self._terminal, termios.TCSAFLUSH, before)
