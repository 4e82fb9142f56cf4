"""`corral types`: prints what a model is told about tools."""

from __future__ import annotations

import argparse

from corral import Corral
from corral.cli.loading import load_tools
from corral.cli.options import Commands, add_command, add_tools
from corral.cli.screen import screen

__all__ = ["add_types"]


def add_types(commands: Commands) -> None:
    """Adds the command to `corral`."""
    parser = add_command(
        commands,
        "types",
        _types,
        help="print the declarations of tools",
        description="Prints the declarations of tools, as a model is shown them.",
    )
    add_tools(parser, required=True)
    parser.add_argument("--language", choices=("typescript", "python"), default="typescript")


def _types(arguments: argparse.Namespace) -> int:
    with screen() as view:
        view.out(Corral(load_tools(arguments.tools)).declarations(arguments.language).rstrip("\n"))
    return 0
