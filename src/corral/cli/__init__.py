"""The command line: `corral run`, `corral check`, `corral types` and others. Each command is one file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from importlib.metadata import version

from corral import CorralError
from corral.cli.audit import add_audit
from corral.cli.check import add_check
from corral.cli.doctor import add_doctor
from corral.cli.mcp import add_mcp
from corral.cli.run import add_run
from corral.cli.serve import add_serve
from corral.cli.types import add_types
from corral.errors import ConfigError

__all__ = ["main"]

_WRONG_USAGE = 2
_THREAD_SECONDS = 0.2
"""How long a thread that has nothing more to do may take to end."""
_EXAMPLES = """\
examples:
  corral run program.ts --tools app.tools              the tools of a module
  corral run program.ts --tools app/tools.py:registry  one name of a file
  cat answer.md | corral run - --tools app.tools       a model's answer, fences and all
  corral run program.ts --tools app.tools --json       the whole result
  corral check program.ts --tools app.tools            whether it fits the tools, without running it
  corral types --tools app.tools                       what a model is told about the tools
  corral serve --tools app.tools                       calls over HTTP, for programs that run elsewhere
  corral mcp --mcp-config servers.json                 MCP servers, as one that runs programs against their tools
  corral audit audit.jsonl --outcome denied            who was denied what
  corral doctor                                        which isolation is in force on this machine
"""


def main() -> int:
    """Runs the command that the arguments name; returns its exit code."""
    exit_code = _run(_parser().parse_args())
    _leave_threads_behind(exit_code)
    return exit_code


def _run(arguments: argparse.Namespace) -> int:
    try:
        return arguments.command(arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG_USAGE
    except CorralError as error:
        print(f"error[{error.code}]: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Nobody reads any more; what is still in Python's buffers must not be tried again on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return 128 + signal.SIGPIPE


def _leave_threads_behind(exit_code: int) -> None:
    """Exits here if tools still run in their threads: their run is over, and Python would wait until they return."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(_THREAD_SECONDS)
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="corral",
        description="Runs programs that models write against typed tools, in a sandbox.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"corral {version('corral')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_run(commands)
    add_check(commands)
    add_types(commands)
    add_serve(commands)
    add_mcp(commands)
    add_audit(commands)
    add_doctor(commands)
    return parser
