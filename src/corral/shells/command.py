"""`corral shell`: opens a prompt in a session's jail, or runs one command there."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, get_args

import anyio

from corral import Corral
from corral.cli.options import interruptible
from corral.cli.parsing import Commands, add_command
from corral.cli.run_options import add_workspace, mounts
from corral.concurrency.task_groups import plain_task_group
from corral.containment import TIERS
from corral.sessions.shell import ShellLimitName
from corral.shells import Process, Shell, ShellLimits

_HELP = """\
Opens bash in the jail of a session, with programs' files.

examples:
  corral shell                             a prompt; files are gone afterwards
  corral shell --workspace data            with ./data as /workspace, for reading and writing
  corral shell -c 'python3 --version'      one command
  corral shell < script.sh                 a script

Commands see /usr, /workspace and /tmp, have no network, and end with the prompt. Ctrl-C ends the running command and
starts a new bash; Ctrl-D or `exit` leaves.
"""
_AT_A_PROMPT = r"""
exec 3>&2 2>/dev/null
exec bash --noprofile --noediting --rcfile /dev/fd/4 -i 4<<<"PS1='sandbox:\$PWD\\\$ '; exec 2>&3 3>&- 4<&-"
"""
"""Suppresses bash's first message, which says that it has no terminal."""
_INTERRUPTED = 130
_PIECE = 1 << 16


def add_shell(commands: Commands) -> None:
    parser = add_command(commands, "shell", _run, _HELP)
    parser.add_argument("-c", "--command", dest="line", metavar="TEXT", help="run this command, and exit with its code")
    add_workspace(parser)
    parser.add_argument(
        "--tier", choices=("auto", *TIERS[1:]), default="auto", help="the jail; default: the best available"
    )
    parser.add_argument(
        "--accept-unenforced",
        choices=get_args(ShellLimitName),
        action="append",
        default=[],
        metavar="LIMIT",
        help="accept that the jail cannot enforce this limit here (disk, locks, processes); can be repeated",
    )


def _run(arguments: argparse.Namespace) -> int:
    limits = ShellLimits(tier=arguments.tier, accept_unenforced=arguments.accept_unenforced)
    return anyio.run(_session, arguments.line, arguments.workspace, limits)


async def _session(line: str | None, workspace: Path | None, limits: ShellLimits) -> int:
    async with (
        Corral() as corral,
        # no programs run in it
        corral.session(files=mounts(workspace), languages=(), shell=limits) as session,
    ):
        if unenforced := session.shell.capabilities.unenforced:
            print(f"not limited in this jail: {', '.join(sorted(unenforced))}", file=sys.stderr)
        if line is not None or not sys.stdin.isatty():
            return await _followed(session.shell, "exec bash" if line is None else line, reads=line is None)
        print(f"{session.shell.description}\nCtrl-D leaves.", file=sys.stderr)
        while (code := await _followed(session.shell, _AT_A_PROMPT, reads=True)) == _INTERRUPTED:
            print("\n[interrupted: this is a new bash]", file=sys.stderr)
        return code


async def _followed(shell: Shell, command: str, *, reads: bool) -> int:
    """Runs a command with this process's standard streams. Returns its exit code, which is 130 after Ctrl-C."""
    code = _INTERRUPTED
    with anyio.CancelScope() as scope, interruptible(scope.cancel):
        async with await shell.spawn(command, stdin=reads) as process, plain_task_group() as tasks:
            if reads:
                tasks.start_soon(_feed, process)
            async with anyio.create_task_group() as outputs:
                outputs.start_soon(_show, process.stdout, sys.stdout.buffer)
                outputs.start_soon(_show, process.stderr, sys.stderr.buffer)
            code = await process.wait()
            tasks.cancel_scope.cancel()
    return code


async def _feed(process: Process) -> None:
    source = sys.stdin.fileno()
    while True:
        with suppress(PermissionError):  # regular files are always ready
            await anyio.wait_readable(source)
        if not (data := os.read(source, _PIECE)):
            break
        await process.write(data)
    await process.close_stdin()


async def _show(pieces: AsyncIterator[bytes], out: BinaryIO) -> None:
    async for piece in pieces:
        out.write(piece)
        out.flush()
