"""Makes a model's TypeScript runnable: recovers it, parses it once, erases types, and rewrites imports and value.

The result is an expression, an async function of `(load, entry)`:

- `load(specifier, unused)` returns the namespace of a module; an `unused` one can be missing. `load.meta` is the
  program's `import.meta`;
- `entry(value, plain)` calls a function with the tools, as a plain object if `plain`, and returns its result; any other
  value is returned unchanged.

The program is in a labelled block that ends with a `break` to that label. The program cannot spell the label, so a
source that closes the block and opens another one does not compile. The declaration before the `break` cannot be the
body of an unfinished `if (…)` either.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tree_sitter import Node, Tree

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.programs.edits import Edits, NotAwaited, Places
from corral.programs.recover import Dialect, recover, well_formed
from corral.programs.syntax import python as python_grammar
from corral.programs.syntax.parsing import PARSE_SECONDS, parsing_within, part
from corral.programs.syntax.typescript import (
    CLASSES,
    DECLARED_FUNCTIONS,
    MAX_DEPTH,
    VARIABLES,
    child_of_type,
    declaration_of,
    declared_names,
    first_jsx,
    imported_names,
    parse,
    statements,
    text_of,
    walk,
)
from corral.programs.typescript.cells import Shared, share_variables
from corral.programs.typescript.commonjs import COMMONJS_PREFIX, rewrite_commonjs
from corral.programs.typescript.completion_value import give_result, named
from corral.programs.typescript.lower import rejected
from corral.programs.typescript.modules import guard_words, rewrite_modules
from corral.programs.typescript.names import Names
from corral.programs.typescript.references import find_references
from corral.programs.typescript.strip import Findings, Misread, erase_types
from corral.programs.typescript.tool_imports import own_tools, rewrite_tool_imports
from corral.programs.typography import plain_characters, typographic
from corral.texts import PositionMap, TypedText
from corral.types import Diagnostic, Program

_CLOSER_OF = {"(": ")", "[": "]", "{": "}", "${": "}"}
_CLOSERS = frozenset(_CLOSER_OF.values())
_NAMES = {
    "(": "parenthesis `(`",
    "[": "bracket `[`",
    "{": "brace `{`",
    "${": "template substitution `${`",
    "`": "template literal",
}

_MAX_SKIPPED = 250
"""Maximum number of tokens that the parser skipped, because these can nest to any depth."""


class _Open(NamedTuple):
    sign: str
    offset: int


def _check_brackets(root: Node, text: bytes) -> None:
    """Raises ProgramRejected for an unmatched or unclosed bracket, template or comment.

    Also raises it if so many tokens were skipped that the depth is unknown.
    """
    opened, places = list[_Open](), Places(text)
    skipped = root.child_count if root.is_error else 0
    for node in walk(root):
        skipped += node.child_count if node.is_error else 0
        if node.child_count or node.is_missing:
            continue
        sign = (node.text or b"").decode(errors="replace") if node.is_error else node.type
        if sign == "`" and opened and opened[-1].sign == "`":
            opened.pop()
        elif sign in _NAMES:
            opened.append(_Open(sign, node.start_byte))
        elif sign in _CLOSERS:
            _close(opened, sign, places, node.start_byte)
        if len(opened) > MAX_DEPTH:
            raise places.rejected("The program is nested too deeply at {place}.", node.start_byte)
    _check_comments(root, text, places)
    if opened:
        sign, offset = opened[-1]
        close = f"`{_CLOSER_OF[sign]}`" if sign in _CLOSER_OF else "backtick"
        raise places.rejected(f"The {_NAMES[sign]} at {{place}} is never closed. Add the missing {close}.", offset)
    if skipped > _MAX_SKIPPED:
        error = next((node for node in walk(root) if node.is_error or node.is_missing), root)
        raise places.rejected("The program has a syntax error at {place} or before it.", error.start_byte)


def _close(opened: list[_Open], sign: str, places: Places, offset: int) -> None:
    if not opened:
        message = f"The `{sign}` at {{place}} closes nothing. Remove it, or add what it should close."
        raise places.rejected(message, offset)
    if _CLOSER_OF.get(opened[-1].sign) != sign:
        place = places.at(opened[-1].offset)
        where = f"the {_NAMES[opened[-1].sign]} at line {place.line}, column {place.column}"
        raise places.rejected(f"The `{sign}` at {{place}} does not close {where}.", offset)
    opened.pop()


def _check_comments(root: Node, text: bytes, places: Places) -> None:
    at = text.find(b"/*")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 2)
        if node is None or node.child_count or node.is_error:
            raise places.rejected("The comment `/*` at {place} is never closed. Add the missing `*/`.", at)
        at = text.find(b"/*", max(at + 2, node.end_byte))


_TYPESCRIPT = {"typescript", "ts", "mts", "cts", "tsx"}
_JAVASCRIPT = {"javascript", "js", "mjs", "cjs", "jsx", "es6", "ecmascript"}
_ENGINES = {"node", "nodejs", "deno", "bun"}
_LABELS = frozenset(_TYPESCRIPT | _JAVASCRIPT | _ENGINES)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_FOREIGN_SPACE = re.compile("\x85|\u180e|\u200b|\u2060".encode())
_HTML_COMMENT = re.compile(rb"<(?=!--)|--(?=>)")
"""Operators that the engine would read as a comment, unless a space after the match separates them."""
_ODD = re.compile("[\u2010-\u201f\u2212\u00d7\u00f7\uff01-\uff5e]")
"""Typographic characters that have an ASCII replacement."""
_TYPOGRAPHIC = typographic(
    r""""(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?|//[^\n]*|/\*.*?(?:\*/|\Z)"""
)
_MAX_PARSED_BYTES = 500_000
"""Maximum number of bytes parsed in search of a program. Texts beyond it count as invalid."""
_MAX_ROUNDS = 3
"""Maximum number of times that a misread source is parsed again."""
_MAX_ODD = 200
_PYTHON = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+\w+"
    r"|(?:if|elif|else|for|while|try|except|with|async[ \t]+(?:for|with)|class)\b[^\n{]*:[ \t]*(?:#[^\n]*)?$)"
    r"|\bprint\(|\b(?:None|True|False|not|elif|lambda)\b|\bf[\"']",
    re.MULTILINE,
)
_MAX_BYTES = 30_000
"""A longer source is not parsed again as another language."""
_REDECLARED = DECLARED_FUNCTIONS | CLASSES | VARIABLES


def prepare_typescript(source: str, bound: frozenset[str] | None = None) -> Program:
    """Returns the program in a model's answer, prepared to run. `bound`: for a cell, variables of earlier cells.

    Raises ProgramRejected, with the position in the source, if there is no valid program.
    """
    recovered = _recovered(source)
    root, findings = recovered.root, recovered.erased.findings
    edits = recovered.erased.edits.copy()
    names = recovered.names
    if findings.broken is not None:
        raise _syntax_error(findings.broken, edits.text)
    if (own := own_tools(root)) is not None:
        raise rejected("`tools` is a global; do not define it: call the tools as they are declared", edits.text, own)
    erased = len(edits.made)
    types = tuple(edits.replaced())
    redeclared = _redeclare(root, recovered.blocks, edits)
    after_redeclared = len(edits.made)
    top_level = [each for each in findings.imports if each.parent == root]
    of_tools, rewritten = rewrite_tool_imports(top_level, edits, redeclared)
    made = [*edits.made[: recovered.erased.before], *edits.made[erased:]]
    findings = replace(findings, imports=[each for each in findings.imports if each.start_byte not in rewritten])
    imports, entry = rewrite_modules(root, findings, edits, names, redeclared, types, keeps_all=bound is not None)
    rewritten_to = len(edits.made)
    commonjs = rewrite_commonjs(root, edits) if entry is None else None
    made += edits.made[rewritten_to:]
    shared = Shared((), "", "")
    if bound is not None:
        edits = Edits(edits.text, made=(*edits.made[:erased], *edits.made[after_redeclared:]))
        shared = share_variables(root, edits, names)
    ending = give_result(root, edits, names, entry or commonjs, findings.returns, is_cell=bound is not None)
    guard_words(root, edits)
    declared = COMMONJS_PREFIX if commonjs else ""
    parameters = f"{names.load}, {names.entry}"
    prefix = f'{shared.script}(async function ({parameters}) {{"use strict"; {declared}{names.label}: {{{shared.first}'
    suffix = f"\nconst {names.label} = 0; {ending.code} break {names.label}; }} }})"
    code, positions = edits.apply(prefix.encode(), suffix.encode())
    program = Program(
        language="typescript",
        source=source,
        code=code.decode(),
        positions=(positions,),
        diagnostics=(*recovered.diagnostics, *ending.diagnostics),
        imports=imports,
        references=find_references(root, edits, ending.entered, of_tools),
        typed=None
        if root.has_error
        else TypedText(
            text=recovered.text,
            parsed=recovered.parsed,
            edits=tuple(made),
            entered=tuple((each.start_byte, each.end_byte) for each in named(root, ending.entered)),
            types=types,
            commonjs=commonjs is not None,
            nodes=root.descendant_count,
        ),
        binds=shared.names,
    )
    if findings.stray_await is not None:
        error = _stray_await(findings.stray_await, edits.text)
        error.program = program
        raise error
    return program


def typed_typescript(typed: TypedText) -> TypedProgram:
    """Parses a program for a type checker. Raises TooLongToParse."""
    root = parse(typed.parsed).root_node
    entered = [root.named_descendant_for_byte_range(*span) for span in typed.entered]
    return TypedProgram(
        root,
        Edits(typed.text, made=typed.edits),
        typed.types,
        [each for each in entered if each is not None],
        typed.commonjs,
        Names.avoiding(typed.text).entry,
        typed.positions,
        typed.start,
        typed.unknown,
    )


class TypedProgram(NamedTuple):
    """A program, prepared for a type checker."""

    root: Node
    edits: Edits
    """Edits that every check needs."""
    types: Sequence[tuple[int, int]]
    """Erased ranges: the program's own types."""
    entered: list[Node]
    """The program's functions that are called with the tools."""
    commonjs: bool
    """True for exports in the style of CommonJS."""
    unused: str
    """A name that the program does not use."""
    positions: tuple[PositionMap, ...] = ()
    """The map back to the model's source, if that was repaired."""
    start: int = -1
    """See `TypedText`."""
    unknown: tuple[str, ...] = ()
    """See `TypedText`."""


class _Erased(NamedTuple):
    """The edits that erase a program's types, and the findings of the walk."""

    edits: Edits
    before: int
    """Number of the edits that do not erase types."""
    findings: Findings


@dataclass(frozen=True)
class _Recovered:
    """A program recovered from an answer. `blocks` are the first lines of its blocks."""

    root: Node
    text: bytes
    blocks: tuple[int, ...]
    diagnostics: list[Diagnostic]
    parsed: bytes
    """The text that was parsed."""
    misread: tuple[Misread, ...] = ()
    """Ranges that were replaced for the parser."""

    @cached_property
    def names(self) -> Names:
        """Names for added code."""
        return Names.avoiding(self.text)

    @cached_property
    def erased(self) -> _Erased:
        """Raises ProgramRejected for constructs that are nested too deeply or cannot be lowered."""
        edits = Edits(self.text)
        _blank_foreign_spaces(self.root, edits)
        _part_html_comments(self.root, edits)
        before = len(edits.made)
        for each in self.misread:
            if each.erased:
                edits.blank(each.start, each.end, first=b";" if each.shown.startswith(b";") else b"")
        return _Erased(edits, before, erase_types(self.root, edits, self.names))

    def read_again(self) -> _Recovered:
        """Parses again until the parser misreads nothing."""
        program, misread, rounds = self, list[Misread](), 0
        while more := program.erased.findings.misread:
            misread += more
            rounds += 1
            if rounds > _MAX_ROUNDS:
                raise rejected("An assertion with `as` cannot be read. Put it in parentheses", self.text, program.root)
            shown = bytearray(self.text)
            for each in misread:
                shown[each.start : each.end] = each.shown
            parsed = bytes(shown)
            program = replace(self, root=parse(parsed).root_node, parsed=parsed, misread=tuple(misread))
        return program


@parsing_within(PARSE_SECONDS)
def _recovered(source: str) -> _Recovered:
    text, diagnostics = _readable(source)
    trees = _Trees()
    recovered = recover(text, Dialect(labels=_LABELS, label="typescript", parses=trees.parses))
    text = _with_common_line_ends(recovered.text, trees.parses)
    if not trees.parses_as_it_is(text) and trees.parses(text):
        diagnostics.append(_typographic(text))
        text = _in_plain_characters(text)
    program, root = text.encode(), trees.of(text).root_node
    if root.has_error:
        _refuse_other_languages(program)
        _check_brackets(root, program)
    return _Recovered(root, program, recovered.blocks, diagnostics, program).read_again()


def _readable(source: str) -> tuple[str, list[Diagnostic]]:
    """Returns the source as valid Unicode with LF or CRLF line ends."""
    text, diagnostics = well_formed(source)
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return _LONE_RETURN.sub("\n", text) if "\r" in text else text, diagnostics


def _with_common_line_ends(text: str, parses: Callable[[str], bool]) -> str:
    """Replaces U+2028 and U+2029 with LF if the text parses only then: the parser does not end statements there."""
    if ("\u2028" in text or "\u2029" in text) and not parses(text):
        common = text.replace("\u2028", "\n").replace("\u2029", "\n")
        return common if parses(common) else text
    return text


def _has_odd_names(root: Node, text: str) -> bool:
    """True if the parser read typographic characters as part of a name."""
    seen = at = 0
    for start, _, _ in islice(plain_characters(text, _TYPOGRAPHIC), _MAX_ODD):
        at, seen = at + len(text[seen:start].encode()), start
        leaf = root.descendant_for_byte_range(at, at + 1)
        if leaf is not None and leaf.type.endswith("identifier"):
            return True
    return False


def _in_plain_characters(text: str) -> str:
    """Replaces typographic characters with ASCII of the same length."""
    plain, taken = list[str](), 0
    for start, end, new in plain_characters(text, _TYPOGRAPHIC):
        if len(new) == end - start:
            plain += (text[taken:start], new)
            taken = end
    return "".join(plain) + text[taken:]


def _typographic(text: str) -> Diagnostic:
    start = next(start for start, _, _ in plain_characters(text, _TYPOGRAPHIC))
    message = f"Typographic characters, such as {text[start]!a}, were replaced with ASCII."
    return Places(text.encode()).remark("warning", "typographic_characters", message, len(text[:start].encode()))


def _blank_foreign_spaces(root: Node, edits: Edits) -> None:
    """Blanks characters that are white space to the parser but not to the engine."""
    for match in _FOREIGN_SPACE.finditer(edits.text):
        node = root.descendant_for_byte_range(*match.span())
        if node is not None and node.child_count:
            edits.blank(*match.span())


def _part_html_comments(root: Node, edits: Edits) -> None:
    """Removes each `<!--` and `-->`, which parser and engine may read differently.

    Comments are blanked; operators are separated by a space.
    """
    blanked_to = 0
    for match in _HTML_COMMENT.finditer(edits.text):
        if match.start() < blanked_to:
            continue
        leaf = root.descendant_for_byte_range(match.start(), match.start() + 1)
        if leaf is None:
            continue
        if leaf.type == "html_comment":
            edits.blank(leaf.start_byte, leaf.end_byte)
            blanked_to = leaf.end_byte
        elif leaf.is_error or not leaf.is_named:
            edits.replace(match.end(), match.end(), b" ")


def _syntax_error(broken: Node, text: bytes) -> ProgramRejected:
    error = next((each for each in walk(broken) if each.is_error or each.is_missing), broken)
    near = f" near `{shown}`" if (shown := text_of(error)[:20].strip()) else ""
    return rejected(f"The program has a syntax error{near}", text, error)


def _stray_await(node: Node, text: bytes) -> NotAwaited:
    return Places(text).not_awaited(
        "`await` is used in a function that is not async. Make it `async (…) => …` and wait for all its calls with"
        " `await Promise.all(items.map(async (item) => …))`, or use a `for (const item of items)` loop ({place}).",
        node.start_byte,
    )


class _Trees:
    """Parses texts, each once, up to a total size."""

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._bytes = 0

    def of(self, text: str) -> Tree:
        if text not in self._trees:
            encoded = text.encode()
            self._bytes += len(encoded)
            self._trees[text] = parse(encoded)
        return self._trees[text]

    def parses_as_it_is(self, text: str) -> bool:
        if self._bytes >= _MAX_PARSED_BYTES or (root := self.of(text).root_node).has_error:
            return False
        return _ODD.search(text) is None or not _has_odd_names(root, text)

    def parses(self, text: str) -> bool:
        """True if a text is a program, possibly after typographic characters are replaced."""
        if self.parses_as_it_is(text):
            return True
        return (
            _ODD.search(text) is not None
            and (plain := _in_plain_characters(text)) != text
            and self.parses_as_it_is(plain)
        )


def _refuse_other_languages(text: bytes) -> None:
    """Raises ProgramRejected for a text that is Python, or TypeScript with JSX."""
    if len(text) > _MAX_BYTES:
        return
    sign = _PYTHON.search(text.decode())
    if sign is not None and not python_grammar.parse(text).root_node.has_error:
        message = "This is Python. Programs here are in TypeScript: `const x = await tools.name({ … }); return x;`."
        raise Places(text).rejected(message, len(sign.string[: sign.start()].encode()))
    if (b"</" in text or b"/>" in text) and (element := first_jsx(text)) is not None:
        message = "The JSX at {place} cannot run here. Return data, not elements."
        raise Places(text).rejected(message, element.start_byte)


def _redeclare(root: Node, blocks: tuple[int, ...], edits: Edits) -> frozenset[int]:
    """Adds the edits that allow repeated declarations at the top level.

    Functions can share a name anywhere, other declarations only across `blocks`, the lines where blocks begin.
    Returns the offsets of the imports that must become variables.
    """
    declared: defaultdict[str, list[Node]] = defaultdict(list)
    for statement in statements(root):
        declaration = declaration_of(statement)
        clause = child_of_type(declaration, "import_clause")
        names = declared_names(declaration) if declaration.type in _REDECLARED else []
        if clause is not None and child_of_type(declaration, "type") is None:
            names = imported_names(clause)
        for name in names:
            declared[name].append(declaration)
    imports: set[int] = set()
    for declarations in declared.values():
        if len(declarations) == 1:
            continue
        if all(each.type in DECLARED_FUNCTIONS for each in declarations):
            for each in declarations[:-1]:
                edits.blank(each.start_byte, each.end_byte, first=b";")
        elif len({bisect_right(blocks, each.start_point.row) for each in declarations}) > 1:
            for each in declarations:
                _as_variable(each, edits)
                if each.type == "import_statement":
                    imports.add(each.start_byte)
    return frozenset(imports)


def _as_variable(declaration: Node, edits: Edits) -> None:
    if declaration.type == "lexical_declaration":
        word = declaration.children[0]
        edits.replace(word.start_byte, word.end_byte, b"var".ljust(word.end_byte - word.start_byte))
    elif declaration.type in DECLARED_FUNCTIONS | CLASSES:
        name = text_of(part(declaration, "name") or declaration)
        edits.wrap(declaration.start_byte, declaration.end_byte, f"var {name} = ".encode(), b";")
