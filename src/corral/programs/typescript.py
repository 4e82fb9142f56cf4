"""A model's TypeScript, made runnable: recovered, parsed once, its types erased, its imports and value redirected.

What runs is an expression, an async function of `(load, entry)`:

- `load(specifier)` gives the namespace of a module, and has the program's `import.meta` as `load.meta`;
- `entry(value, plain)` calls `value` with the tools if it is a function, as a plain object if `plain`, and gives its
  result; any other value it gives back.

Around the program stands a labelled block that ends with a `break` to that label. The program cannot spell the label,
so a source that closed the block and opened another one does not compile. The declaration before the `break` cannot be
the body of an unfinished `if (…)` either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from tree_sitter import Node, Tree

from corral.programs.brackets import check_brackets
from corral.programs.commonjs import COMMONJS_PREFIX, rewrite_commonjs
from corral.programs.edits import Edits
from corral.programs.grammar import parse
from corral.programs.modules import Names, guard_words, rewrite_modules
from corral.programs.readable import well_formed
from corral.programs.recover import Dialect, recover
from corral.programs.redeclare import redeclare
from corral.programs.references import find_references
from corral.programs.results import give_result, named
from corral.programs.strip import Findings, erase_types
from corral.types import Diagnostic, Program

__all__ = ["TypedProgram", "prepare_typescript", "typed_typescript"]


_TYPESCRIPT = {"typescript", "ts", "mts", "cts", "tsx"}
_JAVASCRIPT = {"javascript", "js", "mjs", "cjs", "jsx", "es6", "ecmascript"}
_ENGINES = {"node", "nodejs", "deno", "bun"}
_LABELS = frozenset(_TYPESCRIPT | _JAVASCRIPT | _ENGINES)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_FOREIGN_SPACE = re.compile("\x85|\u180e|\u200b|\u2060".encode())
_HTML_COMMENT = re.compile(rb"<(?=!--)|--(?=>)")
"""What may open a comment for the engine. A space where the match ends makes it two operators."""
_MAX_PARSED_BYTES = 500_000
"""How much text is parsed in search of a program. What is over it counts as not parsing."""
_REMEMBERED_CHARS = 8_000


def prepare_typescript(source: str) -> Program:
    """The program in a model's answer.

    Raises ProgramRejected, with the place in the source, for what cannot be a program.
    """
    recovered = _recovered(source)
    root, found = recovered.root, recovered.erased.findings
    edits = recovered.erased.edits.copy()
    names = Names.avoiding(edits.text)
    redeclared = redeclare(root, recovered.blocks, edits)
    imports, entry = rewrite_modules(root, found, edits, names, redeclared)
    commonjs = rewrite_commonjs(root, edits) if entry is None else None
    ending = give_result(root, edits, names, entry or commonjs, found.returns)
    guard_words(root, edits)
    module = root.has_error or found.needs_compiler
    opening, closing = ("export default (", ")") if module else ("(", ")")
    declared = COMMONJS_PREFIX if commonjs else ""
    prefix = f'{opening}async function ({names.load}, {names.entry}) {{"use strict"; {declared}{names.label}: {{'
    suffix = f"\nconst {names.label} = 0; {ending.code} break {names.label}; }} }}{closing}"
    code, positions = edits.apply(prefix.encode(), suffix.encode())
    return Program(
        language="typescript",
        source=source,
        code=code.decode(),
        form="module" if module else "script",
        locate=positions.locate,
        diagnostics=(*recovered.diagnostics, *ending.diagnostics),
        imports=imports,
        references=find_references(root, edits, ending.entered),
    )


def typed_typescript(source: str) -> TypedProgram | None:
    """What a type checker reads of a program: what was recovered, its types left in. None: it cannot be parsed.

    Raises ProgramRejected as `prepare_typescript` does.
    """
    recovered = _recovered(source)
    root, found = recovered.root, recovered.erased.findings
    if root.has_error:
        return None
    scratch = recovered.erased.edits.copy()
    types = scratch.replaced()
    names = Names.avoiding(scratch.text)
    _, entry = rewrite_modules(root, found, scratch, names, frozenset())
    edits = recovered.edits()
    redeclare(root, recovered.blocks, edits)
    commonjs = rewrite_commonjs(root, edits) if entry is None else None
    ending = give_result(root, scratch, names, entry or commonjs, found.returns)
    return TypedProgram(root, edits, types, named(root, ending.entered), commonjs is not None, names.entry)


class TypedProgram(NamedTuple):
    """A program as a type checker is to read it."""

    root: Node
    edits: Edits
    """What is to be edited of it at any rate."""
    types: list[tuple[int, int]]
    """Stretches that are gone when it runs: its own types."""
    entered: list[Node]
    """The functions of its own that are called with the tools."""
    commonjs: bool
    """Whether it exports as CommonJS does."""
    unused: str
    """A name that it does not have."""


class _Erased(NamedTuple):
    """The edits that erase a program's types, and what was met on the way."""

    edits: Edits
    findings: Findings


@dataclass(frozen=True)
class _Recovered:
    """A program found in an answer: `blocks` are the lines where its fences begin."""

    root: Node
    text: bytes
    blocks: tuple[int, ...]
    diagnostics: list[Diagnostic]

    def edits(self) -> Edits:
        """Edits of it, those already made that let parser and engine read the same."""
        edits = Edits(self.text)
        _blank_foreign_spaces(self.root, edits)
        _part_html_comments(self.root, edits)
        return edits

    @cached_property
    def erased(self) -> _Erased:
        """Raises ProgramRejected for what is nested too deeply."""
        edits = self.edits()
        return _Erased(edits, erase_types(self.root, edits))


def _recovered(source: str) -> _Recovered:
    """Preparing a program and checking it begin with the same."""
    return _recently(source) if len(source) <= _REMEMBERED_CHARS else _recover(source)


def _recover(source: str) -> _Recovered:
    text, diagnostics = _readable(source)
    trees = _Trees()
    recovered = recover(text, Dialect(labels=_LABELS, label="typescript", parses=trees.parses))
    text = _with_common_line_ends(recovered.text, trees.parses)
    program, root = text.encode(), trees.of(text).root_node
    if root.has_error:
        check_brackets(root, program)
    return _Recovered(root, program, recovered.blocks, diagnostics)


_recently = lru_cache(maxsize=8)(_recover)


def _readable(source: str) -> tuple[str, list[Diagnostic]]:
    """The source as Unicode text with lines that end in LF or CRLF."""
    text, diagnostics = well_formed(source)
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return _LONE_RETURN.sub("\n", text) if "\r" in text else text, diagnostics


def _with_common_line_ends(text: str, parses: Callable[[str], bool]) -> str:
    """The text with U+2028 and U+2029 as LF, if it parses only so: the parser ends no statement at them."""
    if ("\u2028" in text or "\u2029" in text) and not parses(text):
        common = text.replace("\u2028", "\n").replace("\u2029", "\n")
        return common if parses(common) else text
    return text


def _blank_foreign_spaces(root: Node, edits: Edits) -> None:
    """Blanks what the parser takes for white space and the engine does not."""
    for found in _FOREIGN_SPACE.finditer(edits.text):
        node = root.descendant_for_byte_range(*found.span())
        if node is not None and node.child_count:
            edits.blank(*found.span())


def _part_html_comments(root: Node, edits: Edits) -> None:
    """Leaves no `<!--` and no `-->` for which parser and engine could differ over whether a comment begins there.

    Where the parser sees one, it is blanked; where it sees operators, a space comes between them.
    """
    blanked_to = 0
    for found in _HTML_COMMENT.finditer(edits.text):
        if found.start() < blanked_to:
            continue
        leaf = root.descendant_for_byte_range(found.start(), found.start() + 1)
        if leaf is None:
            continue
        if leaf.type == "html_comment":
            edits.blank(leaf.start_byte, leaf.end_byte)
            blanked_to = leaf.end_byte
        elif leaf.is_error or not leaf.is_named:
            edits.replace(found.end(), found.end(), b" ")


class _Trees:
    """Parses texts, each once, and no more than a bounded amount in all."""

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._bytes = 0

    def of(self, text: str) -> Tree:
        if text not in self._trees:
            encoded = text.encode()
            self._bytes += len(encoded)
            self._trees[text] = parse(encoded)
        return self._trees[text]

    def parses(self, text: str) -> bool:
        return self._bytes < _MAX_PARSED_BYTES and not self.of(text).root_node.has_error
