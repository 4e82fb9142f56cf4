"""`corral types`: prints declarations of tools, for models and for generators of typed clients."""

from __future__ import annotations

import argparse
import asyncio
from typing import get_args

from corral import Corral
from corral.cli.options import add_tools
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import screen
from corral.cli.tool_loading import load_tools
from corral.errors import ConfigError
from corral.types import Language

_CLIENTS = {"graphql": "graphql", "openapi": "http", "proto": "grpc", "trpc": "trpc"}
"""Bridge whose document describes the tools, by kind of client."""


def add_types(commands: Commands) -> None:
    parser = add_command(commands, "types", _types, "Prints the declarations of tools, as models see them.")
    add_tools(parser)
    parser.add_argument("--language", choices=get_args(Language), help="default: typescript")
    parser.add_argument(
        "--budget", type=int, metavar="N", help="print a model's catalog within N tokens, shortened if necessary"
    )
    parser.add_argument("--client", choices=sorted(_CLIENTS), help="print a document for generators of typed clients")
    parser.add_argument(
        "--scope", dest="scopes", action="append", metavar="SCOPE", help="with --client: only tools for these scopes"
    )


def _types(arguments: argparse.Namespace) -> int:
    if arguments.client is None and arguments.scopes:
        raise ConfigError("--scope has no effect without --client; leave it out, or add --client")
    for option, value in ("--language", arguments.language), ("--budget", arguments.budget):
        if arguments.client is not None and value is not None:
            raise ConfigError(f"{option} has no effect with --client; leave one of them out")
    with screen() as view:
        with moving(view, "loading tools"):
            corral = Corral(load_tools(arguments.tools, arguments.mcp_configs, required=True))
            text = asyncio.run(_text(corral, arguments))
        view.out(text.rstrip("\n"))
    return 0


async def _text(corral: Corral, arguments: argparse.Namespace) -> str:
    language: Language = arguments.language or "typescript"
    async with corral.connected():
        if arguments.client is not None:
            return await corral.remote.document(_CLIENTS[arguments.client], scopes=arguments.scopes)
        if arguments.budget is None:
            return corral.model.declarations(language)
        return corral.model.catalog(language, budget_tokens=arguments.budget).text
