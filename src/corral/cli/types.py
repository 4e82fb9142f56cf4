"""`corral types`: prints what a model is told about tools."""

from __future__ import annotations

import argparse

from corral import Corral
from corral.cli.loading import load_tools
from corral.cli.screen import screen

__all__ = ["add_types"]


def add_types(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Adds the command to `corral`."""
    parser = commands.add_parser(
        "types",
        help="print the declarations of tools",
        description="Prints the declarations of tools, as a model is shown them.",
        allow_abbrev=False,
    )
    parser.set_defaults(command=_types)
    parser.add_argument(
        "--tools",
        action="append",
        required=True,
        metavar="PLACE",
        help="module, module:name or file.py[:name]; may be repeated",
    )
    parser.add_argument("--language", choices=("typescript", "python"), default="typescript")


def _types(arguments: argparse.Namespace) -> int:
    with screen() as view:
        view.out(Corral(load_tools(arguments.tools)).declarations(arguments.language).rstrip("\n"))
    return 0
