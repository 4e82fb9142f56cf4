"""A model's Python, made runnable: recovered, repaired, parsed, its value kept where engines find it.

What runs is a module with top-level `await`; its value is what the global `_corral_result` holds at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.python.awaits import (
    NotAwaited,
    await_coroutines,
    await_futures,
    check_calls,
    run_where_it_stands,
    starts_tasks,
)
from corral.programs.python.completion_value import awaited_result, give_result
from corral.programs.python.functions import Functions, tools_parameter
from corral.programs.python.generators import list_generators
from corral.programs.python.imports import Imports, rewrite_imports
from corral.programs.python.lines import Reader, is_indented
from corral.programs.python.missing_imports import Forgotten, add_imports, free_classes
from corral.programs.python.names import Names
from corral.programs.python.positions import Places
from corral.programs.python.references import UNKNOWN, tool_uses
from corral.programs.python.repairs import LINE_END, Repaired, repaired
from corral.programs.python.wrapping import wrap_in_function
from corral.programs.recover import Dialect, Recovered, recover
from corral.programs.syntax.parsing import PARSE_SECONDS, parsing_within
from corral.programs.syntax.python import FUNCTIONS, kind_id, parse
from corral.programs.syntax.typescript import parse as parse_typescript
from corral.programs.typescript.normalize import well_formed
from corral.texts import TypedText
from corral.types import Diagnostic, Program

_LABELS = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3", "pycon", "python-repl", "pyi"})
_MAX_PARSED_BYTES = 500_000
"""Most characters parsed in search of a program. Anything over it counts as not parsing."""
_TYPESCRIPT = re.compile(
    rb"^[ \t]*(?:export[ \t]+)?(?:const|let|var|function|async[ \t]+function|interface|enum)[ \t]+[\w${\[]"
    rb"|^[ \t]*type[ \t]+\w+[ \t]*=[ \t]*[{|\"'\w]|=>|\bconsole\.\w+\(|\bnew[ \t]+[A-Z]\w*\(|[;{}][ \t]*$|^[ \t]*//",
    re.MULTILINE,
)
_MAX_PARSED_AGAIN = 30_000
"""A source that is longer is not parsed again."""
_MAX_DEPTH = 700
"""Levels of a syntax tree. CPython's compiler takes at least 1,000 levels of any construct."""

_CLOSED = frozenset(map(kind_id, FUNCTIONS))
_RETURN, _YIELD, _AWAIT = kind_id("return_statement"), kind_id("yield"), kind_id("await")
_IMPORT, _IMPORT_FROM = kind_id("import_statement"), kind_id("import_from_statement")
_STRING, _COMMENT = kind_id("string"), kind_id("comment")


def prepare_python(source: str) -> Program:
    """The program in a model's answer.

    Raises ProgramRejected, with the place in the source, for what cannot be a program.
    """
    recovered = _recovered(source)
    repair = recovered.repair
    if recovered.root is not None:
        return _prepared(source, recovered.root, _Surveyed.of(recovered, recovered.root), recovered)
    if recovered.too_deep is not None:
        raise recovered.places.rejected("The program is nested too deeply at {place}.", recovered.too_deep)
    _refuse_typescript(repair.text, recovered.places)
    return Program(
        language="python",
        source=source,
        code=repair.text.decode(),
        positions=repair.positions,
        diagnostics=(*recovered.diagnostics, *repair.diagnostics),
        references=UNKNOWN,
    )


def _refuse_typescript(text: bytes, places: Places) -> None:
    """Raises ProgramRejected for a text that is no Python but TypeScript."""
    sign = _TYPESCRIPT.search(text) if len(text) <= _MAX_PARSED_AGAIN else None
    if sign is not None and not parse_typescript(text).root_node.has_error:
        message = "This is TypeScript; programs here are in Python: `x = await tools.name(key=value)`, and the last"
        start = len(text) - len(text.lstrip())
        raise places.rejected(f"{message} expression is the result.", start)


class TypedPython(NamedTuple):
    """A program as a type checker is to read it."""

    root: Node
    edits: Edits
    """Edits that are needed in any case."""
    free: tuple[str, ...]
    """See `TypedText`."""
    parameters: list[Node]
    """Parameters through which the program's own functions take the tools."""
    names: Names
    places: Places


def typed_python(typed: TypedText) -> TypedPython:
    """The program as a type checker reads it.

    Raises TooLongToParse.
    """
    text = typed.text
    root = parse(text).root_node
    entered = [root.named_descendant_for_byte_range(*span) for span in typed.entered]
    parameters = [each for function in entered if function is not None and (each := tools_parameter(function))]
    edits = Edits(text, LINE_END, typed.edits)
    return TypedPython(root, edits, typed.free, parameters, Names(root, text), Places(text, typed.positions))


@dataclass(frozen=True, slots=True)
class _Recovered:
    """A program found in an answer, and its tree if it parses."""

    repair: Repaired
    root: Node | None
    too_deep: int | None
    """The place where it is nested too deeply, if any."""
    places: Places
    diagnostics: list[Diagnostic]


@parsing_within(PARSE_SECONDS)
def _recovered(source: str) -> _Recovered:
    text, diagnostics = _readable(source)
    trees = _Trees()
    dialect = Dialect(labels=_LABELS, label="python", parses=trees.recovers, separator="", margin="\f", foreign="?")
    repair = _placed(recover(text, dialect), trees, has_mark=source.startswith("\ufeff"))
    root = trees.of(repair.text)
    too_deep = trees.reader.read(repair.text).too_deep if root is None else None
    return _Recovered(repair, root, too_deep, Places(repair.text, repair.positions), diagnostics)


class _Surveyed(NamedTuple):
    """Facts about a program that parses, and the edits that make it run in place."""

    found: _Survey
    edits: Edits
    names: Names
    functions: Functions
    imports: Imports
    forgotten: Forgotten

    @classmethod
    def of(cls, recovered: _Recovered, root: Node) -> _Surveyed:
        text = recovered.repair.text
        found = _survey(root, recovered.places)
        edits, names = Edits(text, LINE_END), Names(root, text)
        functions = Functions(root, names)
        run_where_it_stands(root, edits)
        await_coroutines(root, functions, names, edits)
        await_futures(root, edits)
        list_generators(root, names, edits)
        forgotten = add_imports(root, text, edits, recovered.places)
        imports = rewrite_imports(found.imports, edits, root, names, forgotten.names, recovered.places)
        return cls(found, edits, names, functions, imports, forgotten)


def _prepared(source: str, root: Node, surveyed: _Surveyed, recovered: _Recovered) -> Program:
    found, edits, names, functions, imports, forgotten = surveyed
    repair, places, text = recovered.repair, recovered.places, recovered.repair.text
    made = edits.made
    ending = give_result(root, edits, names, functions, places, found.returns)
    uses = tool_uses(root, text, names, imports, ending.entered, places)
    code = [*ending.code, *(awaited_result() if starts_tasks(text) else ())]
    if not found.yields and any(each.start_byte not in ending.returns for each in found.returns):
        code = wrap_in_function(root, found.returns, found.strings, edits, code)
    suffix = "".join(f"\n{line}" for line in code)
    edited, positions = edits.apply(suffix=suffix.encode())
    program = Program(
        language="python",
        source=source,
        code=edited.decode(),
        positions=(positions, *repair.positions),
        diagnostics=(*recovered.diagnostics, *repair.diagnostics, *forgotten.remarks, *ending.diagnostics),
        imports=(*forgotten.modules, *imports.modules),
        references=uses.references,
        typed=TypedText(
            text=text,
            parsed=text,
            edits=made,
            entered=tuple((each.start_byte, each.end_byte) for each in ending.entered),
            positions=repair.positions,
            nodes=root.descendant_count,
            free=free_classes(root, text, forgotten.names, [each.path for each in imports.tools]),
        ),
    )
    try:
        check_calls(uses.calls, names, places)
    except NotAwaited as error:
        error.program = program
        raise
    return program


def _readable(source: str) -> tuple[str, list[Diagnostic]]:
    """The source as Unicode text with lines that end in LF, as Python reads them."""
    text, diagnostics = well_formed(source)
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return text.replace("\r\n", "\n").replace("\r", "\n"), diagnostics


def _placed(recovered: Recovered, trees: _Trees, *, has_mark: bool) -> Repaired:
    """The recovered text, repaired, without the space that stands for a byte order mark."""
    text = recovered.text.encode()
    if not (has_mark and text[:1] == b" "):
        return repaired(text, recovered.blocks, trees.parses, trees.reader)
    edits = Edits(text, LINE_END)
    edits.replace(0, 1, b"")
    unmarked, positions = edits.apply()
    repair = repaired(unmarked, recovered.blocks, trees.parses, trees.reader)
    return Repaired(repair.text, (*repair.positions, positions), repair.diagnostics)


class _Trees:
    """Parses texts, each once, and no more than a bounded amount in all."""

    def __init__(self) -> None:
        self.reader = Reader()
        self._trees: dict[bytes, Node | None] = {}
        self._sound: dict[bytes, bool] = {}
        self._known: dict[str, bool] = {}
        self._bytes = 0

    def of(self, text: bytes) -> Node | None:
        """The tree of a text that parses."""
        if text not in self._trees:
            self._bytes += len(text)
            lines = self.reader.read(text)
            broken = lines.broken or lines.too_deep is not None
            root = None if broken else parse(text).root_node
            self._trees[text] = None if root is None or root.has_error or _holds_backtick(root, text) else root
        return self._trees[text]

    def parses(self, text: bytes) -> bool:
        """True if a text parses and its indentation is valid."""
        if text not in self._sound:
            root = self.of(text) if self._bytes <= _MAX_PARSED_BYTES else None
            self._sound[text] = root is not None and is_indented(self.reader.read(text).logical)
        return self._sound[text]

    def recovers(self, text: str) -> bool:
        """True if a text parses as it is or repaired."""
        if text not in self._known:
            self._known[text] = self.parses(repaired(text.encode(), (), self.parses, self.reader).text)
        return self._known[text]


def _holds_backtick(root: Node, text: bytes) -> bool:
    """True if a backtick quotes something, which the grammar takes for a string of Python 2."""
    at = text.find(b"`")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 1)
        if (
            node is not None
            and node.type in ("string_start", "string_end", "string")
            and node.end_byte - node.start_byte == 1
        ):
            return True
        at = text.find(b"`", at + 1)
    return False


@dataclass(slots=True)
class _Survey:
    """Findings of the walk."""

    imports: list[Node] = field(default_factory=list[Node])
    returns: list[Node] = field(default_factory=list[Node])
    """Every `return` outside of all functions."""
    yields: bool = False
    """True if a `yield` is outside of all functions."""
    strings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Spans of the outermost strings and comments."""


def _survey(root: Node, places: Places) -> _Survey:
    """Looks at every node once. Raises ProgramRejected over the depth that engines take."""
    found = _Survey()
    cursor = root.walk()
    depth = 0
    closed: list[int] = []
    while (node := cursor.node) is not None:
        kind = node.kind_id
        if kind in (_STRING, _COMMENT):
            found.strings.append((node.start_byte, node.end_byte))
        elif kind in (_IMPORT, _IMPORT_FROM):
            found.imports.append(node)
        elif not closed and kind == _RETURN and node.is_named:
            found.returns.append(node)
        elif not closed and kind == _YIELD and node.is_named:
            found.yields = True
        if cursor.goto_first_child():
            depth += 1
            if kind in _CLOSED:
                closed.append(depth)
            if depth > _MAX_DEPTH:
                raise places.rejected("The program is nested too deeply at {place}.", node.start_byte)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
            if closed and closed[-1] == depth:
                closed.pop()
            depth -= 1
    return found
