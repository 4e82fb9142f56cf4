"""The ways to show tools that both languages have: whole, short, and as one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from corral.languages import LANGUAGES
from corral.model.printing.named_types import share
from corral.model.printing.python import declare_python, print_python, python_call
from corral.model.printing.schema_weight import outline, reachable_weight
from corral.model.printing.short import in_depth, shortened
from corral.model.printing.signatures import Signature, ToolShape, in_order, read_signature
from corral.model.printing.typescript import declare_typescript, print_typescript, typescript_call
from corral.model.shapes import type_systems
from corral.model.shapes.definitions import Definitions
from corral.model.shapes.descriptions import summary
from corral.model.shapes.shape import Doc
from corral.types import Language, ToolName

_LINE_CHARACTERS = 240
_HEAVY = 2_000
"""Weight of a tool above which a text has room for few. Reading one of so much takes 20 ms."""
_MOST_HEAVY = 20_000
"""Weight of all heavy tools that are read for a text; others are outlined."""


class Degree(IntEnum):
    """Degree of detail for a tool. Each adds to the one before it."""

    COUNTED = 0
    NAMED = 1
    SHORT = 2
    """Its signature, without texts and other types."""
    SUMMED = 3
    """The first line of its description too."""
    GIVEN = 4
    """All that is to be said of it and its input; of its result only what has room on a line."""
    FULL = 5


class _Printer(NamedTuple):
    language: type_systems.TypeSystem
    declare: Callable[[Mapping[ToolName, Signature]], str]
    call: Callable[[ToolName, Signature], str | None]
    declare_all: Callable[..., str]


_PRINTERS: Mapping[Language, _Printer] = {
    "typescript": _Printer(type_systems.TYPESCRIPT, print_typescript, typescript_call, declare_typescript),
    "python": _Printer(type_systems.PYTHON, print_python, python_call, declare_python),
}


def declare_tools(tools: Mapping[ToolName, ToolShape], language: Language, *, checked: bool = False) -> str:
    """Declares all tools in full, for a model, or with `checked` for a type checker."""
    return _PRINTERS[language].declare_all(tools, checked=checked)


class DegreePrinter:
    """The tools of one text, in each degree. Each is read when it is first needed."""

    def __init__(self, tools: Mapping[ToolName, ToolShape], language: Language) -> None:
        self._tools = dict(tools)
        self._printer = _PRINTERS[language]
        self._definitions = Definitions()
        self._whole: dict[ToolName, Signature] = {}
        self._short: dict[ToolName, Signature] = {}
        self._weights: dict[ToolName, tuple[int, int]] = {}
        self._heavy_room = _MOST_HEAVY
        self._last: tuple[Mapping[ToolName, Degree] | None, str] = None, ""

    def add(self, tools: Mapping[ToolName, ToolShape]) -> None:
        """Takes in further tools."""
        self._tools |= tools

    def declare(self, degrees: Mapping[ToolName, Degree]) -> str:
        """`tools`, with those that are to be shown in more than their names, and the types that it mentions."""
        if degrees != self._last[0]:
            self._last = dict(degrees), self._declared(degrees)
        return self._last[1]

    def _declared(self, degrees: Mapping[ToolName, Degree]) -> str:
        shown = in_order(name for name, degree in degrees.items() if degree > Degree.NAMED)
        whole = {name: self._read(name) for name in shown if degrees[name] >= Degree.GIVEN}
        shared = share({name: self._given(name, each, degrees[name]) for name, each in whole.items()}, self._language)
        return self._printer.declare({name: shared.get(name) or self._brief(name, degrees[name]) for name in shown})

    def declare_whole(self) -> str:
        """The declarations of all of them."""
        return self.declare(dict.fromkeys(self._tools, Degree.FULL))

    @property
    def _language(self) -> type_systems.TypeSystem:
        return self._printer.language

    def _read(self, name: ToolName) -> Signature:
        if name not in self._whole:
            tool = self._tools[name]
            if (weight := self.weight(name, Degree.FULL)) > _HEAVY:
                self._heavy_room -= weight
                if self._heavy_room < 0:
                    tool = outline(tool)
            self._whole[name] = read_signature(name, tool, self._language, self._definitions)
        return self._whole[name]

    def weight(self, name: ToolName, degree: Degree) -> int:
        """Weight of the schemas that a tool shows in this degree, besides its signature."""
        if degree < Degree.GIVEN:
            return 0
        if name not in self._weights:
            tool = self._tools[name]
            self._weights[name] = reachable_weight(tool.input_schema), reachable_weight(tool.output_schema)
        given, returned = self._weights[name]
        return given + returned if degree == Degree.FULL else given

    def _given(self, name: ToolName, whole: Signature, degree: Degree) -> Signature:
        if degree == Degree.FULL:
            return whole
        return whole._replace(output=self._brief(name, Degree.SHORT).output, inline_output=True)

    def _brief(self, name: ToolName, degree: Degree) -> Signature:
        if name not in self._short:
            self._short[name] = shortened(self._read(name), partial(self._printer.call, name), _LINE_CHARACTERS)
        doc = Doc(summary(self._tools[name].description) if degree > Degree.SHORT else "")
        return self._short[name]._replace(doc=doc)


def declare(tools: Mapping[ToolName, ToolShape], language: Language) -> str:
    """`tools`, and the types that it mentions."""
    return DegreePrinter(tools, language).declare(dict.fromkeys(tools, Degree.FULL))


def declare_in_depth(name: ToolName, tool: ToolShape, language: Language, depth: int) -> str:
    """`tools` with one tool, of whose result so many levels of objects are shown, and the types that it mentions."""
    printer = _PRINTERS[language]
    whole = read_signature(name, tool, printer.language, Definitions())
    shown, is_cut = in_depth(whole, depth)
    remark = f"Objects in the result are shown {_levels(depth)} deep; describe it with a greater depth to see more.\n"
    declared = printer.declare(share({name: shown}, printer.language))
    return comment_lines(remark, language) + declared if is_cut else declared


def _levels(depth: int) -> str:
    return "1 level" if depth == 1 else f"{depth} levels"


def declare_short(tools: Mapping[ToolName, ToolShape], language: Language) -> str:
    """The same without texts, one line for each tool and no other types."""
    return DegreePrinter(tools, language).declare(dict.fromkeys(tools, Degree.SHORT))


def one_line(name: ToolName, tool: ToolShape, language: Language) -> str:
    """The tool's signature without texts, in about 250 characters at most if its name is short."""
    printer = _PRINTERS[language]
    whole = read_signature(name, tool, printer.language, Definitions())
    short = shortened(whole, partial(printer.call, name), _LINE_CHARACTERS)
    return printer.call(name, short) or f"tools.{name}"


def comment_lines(text: str, language: Language) -> str:
    """The lines of the text as comments."""
    return "".join(f"{LANGUAGES[language].comment} {line}\n" for line in text.splitlines())
