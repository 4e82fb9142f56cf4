"""The ways to show tools that both languages have: whole, short, and as one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

from corral.declarations import languages
from corral.declarations.python import print_python, python_call
from corral.declarations.short import Depth, shortened
from corral.declarations.signatures import Signature, ToolShape, read_signatures
from corral.declarations.typescript import print_typescript, typescript_call
from corral.types import Language, ToolName

__all__ = ["comment_lines", "declare", "declare_short", "one_line"]


class _Printer(NamedTuple):
    language: languages.Language
    declare: Callable[[Mapping[ToolName, Signature]], str]
    declare_short: Callable[[Mapping[ToolName, Signature]], str]
    call: Callable[[ToolName, Signature], str | None]
    depths: tuple[Depth, ...]
    comment: str


_PRINTERS: Mapping[Language, _Printer] = {
    "typescript": _Printer(
        languages.TYPESCRIPT,
        print_typescript,
        partial(print_typescript, line_characters=inf),
        typescript_call,
        (Depth(2, 2), Depth(2, 1), Depth(1, 1), Depth(1, 0), Depth(0, 0)),
        "//",
    ),
    "python": _Printer(  # an object within another one would be a class
        languages.PYTHON,
        print_python,
        partial(print_python, line_characters=inf),
        python_call,
        (Depth(1, 0), Depth(0, 0)),
        "#",
    ),
}


def declare(tools: Mapping[ToolName, ToolShape], language: Language) -> str:
    """`tools`, and the types that it mentions."""
    printer = _PRINTERS[language]
    return printer.declare(read_signatures(tools, printer.language))


def declare_short(
    tools: Mapping[ToolName, ToolShape],
    language: Language,
    *,
    whole: Mapping[ToolName, ToolShape] | None = None,
    known: dict[ToolName, Signature] | None = None,
) -> str:
    """The same without texts, one line for each tool and no other types; `whole` are declared besides as they are.

    `known` keeps what was read, for the next time.
    """
    printer, short = _PRINTERS[language], {} if known is None else known
    for name, tool in tools.items():
        if name not in short:
            short[name] = _shortened(printer, name, tool)
    shown = {name: short[name] for name in tools}
    return printer.declare_short({**read_signatures(whole or {}, printer.language), **shown})


def one_line(name: ToolName, tool: ToolShape, language: Language) -> str:
    """How the tool is called, without texts, in at most some 250 characters if its name is short."""
    printer = _PRINTERS[language]
    return printer.call(name, _shortened(printer, name, tool)) or f"tools.{name}"


def comment_lines(text: str, language: Language) -> str:
    """The lines of the text as comments."""
    return "".join(f"{_PRINTERS[language].comment} {line}\n" for line in text.splitlines())


def _shortened(printer: _Printer, name: ToolName, tool: ToolShape) -> Signature:
    [signature] = read_signatures({name: tool}, printer.language).values()
    return shortened(signature, printer.depths, partial(printer.call, name))
