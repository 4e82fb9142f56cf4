"""Suites of tools that agents are measured with, as tools of Corral, and the tokenizer to count with.

`bench/suites/setup` installs them. Nothing of theirs is run but the definitions of tools.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from corral import Tool, define_tool, tool

__all__ = ["INSTALLED", "suites", "tokenizer"]

INSTALLED = Path(".venv/bench-suites")
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
"""How the Berkeley leaderboard calls types, and JSON Schema does."""


def suites() -> dict[str, list[Tool]]:
    _make_importable()
    return {
        "tau2 retail": _tau2("retail"),
        "tau2 airline": _tau2("airline"),
        "BFCL travel": _bfcl("travel_booking"),
        "BFCL tickets and trading": _bfcl("ticket_api", "trading_bot"),
    }


def tokenizer() -> Callable[[str], int]:
    """Counts tokens as OpenAI's models do, with o200k_base."""
    _make_importable()
    encoding = import_module("bpe_openai").get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


def _make_importable() -> None:
    if str(INSTALLED) not in sys.path:
        sys.path.append(str(INSTALLED))


def _tau2(domain: str) -> list[Tool]:
    """The tools of a domain of tau2. They are functions, whose types and docstrings say everything."""
    toolkit = getattr(import_module(f"tau2.domains.{domain}.tools"), f"{domain.capitalize()}Tools")(None)
    return [tool(getattr(toolkit, name)) for name in toolkit.get_tools()]


def _bfcl(*apis: str) -> list[Tool]:
    """The tools of APIs of the leaderboard's multi-turn part. It has schemas of their results too."""
    documents = files("bfcl_eval").joinpath("data/multi_turn_func_doc")
    lines = [line for api in apis for line in documents.joinpath(f"{api}.json").read_text("utf-8").splitlines()]
    return [
        define_tool(
            name=each["name"],
            description=each["description"],
            input_schema=_as_json_schema(each["parameters"]),
            output_schema=_as_json_schema(each["response"]),
            execute=partial(_nothing),
        )
        for each in map(json.loads, lines)
    ]


def _as_json_schema(schema: Any) -> Any:
    match schema:
        case dict():
            members = cast("dict[str, Any]", schema).items()
            found = {key: _as_json_schema(each) for key, each in members}
            named = found.get("type")
            renamed = _TYPES.get(named, named) if isinstance(named, str) else named
            return {key: renamed if key == "type" else each for key, each in found.items() if key != "type" or renamed}
        case list():
            return [_as_json_schema(each) for each in cast("list[Any]", schema)]
        case _:
            return schema


def _nothing(input: Any) -> Any:
    return input
