"""Dispatches commands and prints their errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from corral import CorralError
from corral.cli.commands.audit import add_audit
from corral.cli.commands.check import add_check
from corral.cli.commands.doctor import add_doctor
from corral.cli.commands.executions import add_executions
from corral.cli.commands.mcp import add_mcp
from corral.cli.commands.packages import add_packages
from corral.cli.commands.policy import add_policy
from corral.cli.commands.run import add_run
from corral.cli.commands.serve import add_serve
from corral.cli.commands.snippets import add_snippets
from corral.cli.commands.types import add_types
from corral.cli.parsing import CommandLine
from corral.errors import ConfigError, LimitNotEnforceable
from corral.plugins import load_by_name

_WRONG_USAGE = 2
_SIGPIPE = 13
"""Its number, which Windows does not define."""
_ACCEPTED = re.compile(r"\w+\(accept_unenforced=\{(.*?)\}\)")
"""Remedy in the message of a `LimitNotEnforceable`, which is Python code."""
_EXAMPLES = """\
examples:
  corral run program.ts --tools app.tools              the tools of a module
  corral run program.ts --tools app/tools.py:registry  one name in a file
  cat answer.md | corral run - --tools app.tools       a model's answer, fences included
  corral run program.ts --tools app.tools --json       the whole result
  corral check program.ts --tools app.tools            type-check it without running it
  corral types --tools app.tools                       the declarations that models see
  corral serve --tools app.tools                       calls over HTTP, for programs elsewhere
  corral chat --demo                                   a chat page that shows programs as they run
  corral shell                                         a shell in the jail of a session
  corral worker --port 7000                            programs of other hosts, on this machine
  corral mcp --mcp-config servers.json                 one MCP server in front of others, which runs programs
  corral packages add jszip@3.10.1                     an npm package that programs may import
  corral audit audit.jsonl --outcome denied            denied calls
  corral executions list --ledger runs.db              durable executions
  corral policy check policy.toml --tools app.tools    rules about calls
  corral doctor                                        the containment in force on this machine

corral COMMAND --help shows a command's options.
"""


def run(arguments: Sequence[str]) -> int:
    """Runs the command in `arguments`; returns its exit code."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return _WRONG_USAGE
    return _run(parser.parse_args(arguments))


def _run(arguments: argparse.Namespace) -> int:
    try:
        return arguments.command(arguments)
    except LimitNotEnforceable as error:
        print(f"error: {_ACCEPTED.sub(_as_options, str(error))}", file=sys.stderr)
        return _WRONG_USAGE
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG_USAGE
    except CorralError as error:
        print(f"error[{error.code}]: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader is gone; Python must not flush its buffers again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return 128 + _SIGPIPE
    except OSError as error:  # for example, output to a full disk
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        return 1


def _as_options(accepted: re.Match[str]) -> str:
    return " ".join(f"--accept-unenforced {name}" for name in re.findall(r"\w+", accepted[1]))


def _parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="corral",
        usage="corral COMMAND ...",
        description="Runs programs that models write against typed tools, in a sandbox.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"corral {version('corral')}")
    for add in (
        add_run,
        add_check,
        add_types,
        add_serve,
        partial(load_by_name, "corral.commands", "chat"),
        partial(load_by_name, "corral.commands", "shell"),
        partial(load_by_name, "corral.commands", "worker"),
        add_mcp,
        add_packages,
        add_policy,
        add_audit,
        add_executions,
        add_snippets,
        add_doctor,
    ):
        add(commands=parser.commands)
    return parser
