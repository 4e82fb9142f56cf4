"""The cells of a notebook as one text, for the check of the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tree_sitter import Tree

from corral.programs.edits import Edits
from corral.programs.syntax import python, typescript
from corral.programs.syntax.parsing import TooLongToParse
from corral.texts import LINE_END, Edit, PositionMap, TypedText
from corral.types import Language, Program, References

_MAX_BYTES = 24_000
"""Maximum size of the text of earlier cells that is checked again with each cell."""
_CLOSED = frozenset({"function_definition", "class_definition", "lambda"})


class _Form(NamedTuple):
    """Facts about a language."""

    parse: Callable[[bytes], Tree]
    line_end: bytes
    separator: bytes
    declares_once: bool
    """True if a checker refuses a second declaration of a name."""


_FORMS: Mapping[Language, _Form] = {
    "python": _Form(python.parse, rb"\n", b"\n", declares_once=False),
    "typescript": _Form(typescript.parse, LINE_END, b"\n;\n", declares_once=True),
}


@dataclass(frozen=True, slots=True)
class EarlierCell:
    """A cell as the check of later ones needs it: its variables and, if their types are known, its text."""

    binds: tuple[str, ...]
    typed: TypedText | None = None
    references: References = References()  # noqa: RUF009  # a tuple


def earlier_cell(program: Program, *, is_complete: bool) -> EarlierCell:
    """Returns a cell that has run. If it failed before its end, the types of its variables are unknown."""
    typed = program.typed
    if not is_complete or typed is None or len(typed.text) > _MAX_BYTES:
        return EarlierCell(program.binds)
    try:
        edits = _without_returns(program, typed)
    except TooLongToParse:
        return EarlierCell(program.binds)
    return EarlierCell(program.binds, replace(typed, edits=edits, positions=()), program.references or References())


def _without_returns(program: Program, typed: TypedText) -> tuple[Edit, ...]:
    """Returns the cell's edits, with more for a top-level `return`, after which a checker would see nothing."""
    form, edits = _FORMS[program.language], Edits(typed.text, made=typed.edits)
    pending = [form.parse(typed.parsed).root_node] if b"return" in typed.text else []
    while pending:
        node = pending.pop()
        if node.type == "return_statement":
            word = node.children[0]
            if form.declares_once:
                edits.insert(word.start_byte, b"if (Math.random()) ")
            else:
                edits.replace(word.start_byte, word.end_byte, b"not   " if node.named_children else b"pass  ")
        elif node.parent is None or not form.declares_once:
            pending += [each for each in node.named_children if each.type not in _CLOSED]
    return edits.made


def without_old_texts(cells: Sequence[EarlierCell]) -> list[EarlierCell]:
    """Returns the cells. Old ones lose their texts, for which the next check has no room."""
    kept, room = list[EarlierCell](), 2 * _MAX_BYTES  # cells whose names were bound again take no room in a check
    for cell in reversed(cells):
        room -= 0 if cell.typed is None else len(cell.typed.text)
        kept.append(cell if room >= 0 or cell.typed is None else EarlierCell(cell.binds))
    return kept[::-1]


def joined(earlier: Sequence[EarlierCell], program: Program) -> Program:
    """Returns the program behind the earlier cells, as far as there is room for them, for a type checker."""
    last = program.typed
    if last is None:
        return program
    form = _FORMS[program.language]
    shown: list[tuple[EarlierCell, TypedText]] = []
    unknown: dict[str, None] = {}
    again = set(program.binds) if form.declares_once else set[str]()
    room = _MAX_BYTES
    for cell in reversed(earlier):
        is_known = again.isdisjoint(cell.binds) and unknown.keys().isdisjoint(cell.binds)
        if is_known and cell.typed is not None and len(cell.typed.text) <= room:
            room -= len(cell.typed.text)
            shown.append((cell, cell.typed))
        else:
            unknown.update(dict.fromkeys(cell.binds))
        if form.declares_once:
            again.update(cell.binds)
    shown.reverse()
    texts = [*(typed for _, typed in shown), last]
    starts = [0]
    for each in texts[:-1]:
        starts.append(starts[-1] + len(each.text) + len(form.separator))
    text = form.separator.join(each.text for each in texts)
    bound = {name for cell in earlier for name in cell.binds}
    here = PositionMap(last.text, text, starts[-1], (), form.line_end)
    typed = TypedText(
        text=text,
        parsed=form.separator.join(each.parsed for each in texts),
        edits=tuple(_moved(edit, start) for each, start in zip(texts, starts, strict=True) for edit in each.edits),
        entered=_spans(starts, (each.entered for each in texts)),
        positions=(here, *last.positions),
        types=_spans(starts, (each.types for each in texts)),
        free=tuple(dict.fromkeys(name for each in texts for name in each.free if name not in bound)),
        commonjs=last.commonjs,
        nodes=sum(each.nodes for each in texts),
        start=starts[-1],
        unknown=tuple(name for name in unknown if not form.declares_once or name not in program.binds),
    )
    return replace(program, typed=typed, references=_merged([cell.references for cell, _ in shown], program.references))


def _moved(edit: Edit, by: int) -> Edit:
    nesting = edit.nesting - by if edit.nesting else 0
    return edit._replace(start=edit.start + by, end=edit.end + by, nesting=nesting)


def _spans(starts: Sequence[int], spans: Iterable[Iterable[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    return tuple((start + by, end + by) for by, each in zip(starts, spans, strict=True) for start, end in each)


def _merged(earlier: Sequence[References], last: References | None) -> References | None:
    """Returns the tools that any of the cells refers to."""
    if last is None:
        return None
    named = {each.path: each for references in (*earlier, last) for each in references.named}
    return References(tuple(named.values()), any(each.computed for each in (*earlier, last)))
