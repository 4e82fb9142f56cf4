"""`corral types`: prints what a model is told about tools."""

from __future__ import annotations

import argparse
import asyncio
from typing import get_args

from corral import Corral, Language
from corral.cli.options import add_tools
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import screen
from corral.cli.tool_loading import load_tools

__all__ = ["add_types"]


def add_types(commands: Commands) -> None:
    parser = add_command(
        commands,
        "types",
        _types,
        help="print the declarations of tools",
        description="Prints the declarations of tools, as a model is shown them.",
    )
    add_tools(parser)
    parser.add_argument("--language", choices=get_args(Language), default="typescript", help="default: typescript")
    parser.add_argument(
        "--budget", type=int, metavar="N", help="print what a model is told within N tokens: all, or less of each tool"
    )


def _types(arguments: argparse.Namespace) -> int:
    with screen() as view:
        with moving(view, "loading tools"):
            corral = Corral(load_tools(arguments.tools, arguments.mcp_configs, required=True))
            text = asyncio.run(_text(corral, arguments.language, arguments.budget))
        view.out(text.rstrip("\n"))
    return 0


async def _text(corral: Corral, language: Language, budget: int | None) -> str:
    async with corral.connected():
        if budget is None:
            return corral.declarations(language)
        return corral.catalog(language, budget_tokens=budget).text
