"""Finds the program in a model's answer: in Markdown fences, tags or inline code, or between lines of prose.

The program keeps its lines and columns; everything else becomes spaces. The language's own parser decides whether a
text is a program.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter

from corral.errors import ProgramRejected
from corral.programs.edits import Places, blanked
from corral.types import Diagnostic

_FENCE = re.compile(
    r"(?P<margin>(?:\*[ \t])?[ \t]*(?:(?:>|[-+]|\d{1,3}[.)])[ \t]*)*)(?P<run>`{3,}|~{3,})(?P<info>[^`]*)$"
)
_QUOTE_MARK = re.compile(r"[ \t]*(?:>[ \t]?)+")
_LABEL = re.compile(r"[{.\s]*(?:lang(?:uage)?-)?([\w+#-]*)")
_TAG = re.compile(r"<([A-Za-z][\w-]*)(?:\s[^<>]*)?>")
_WORD_LINE = re.compile(r"\s*([A-Za-z]+)[ \t]*(:[ \t]*)?\r?\n(?=\s*\S)")
_SHEBANG = re.compile(r"\s*#![^\r\n]*")
_CLOSING_TAG = re.compile(r"</[A-Za-z][\w-]*>")
_THOUGHT = re.compile(
    r"^[ \t]*<(/?)(think|thinking|thought|thoughts|reasoning|reflection|scratchpad)>", re.MULTILINE | re.IGNORECASE
)
"""Tag around a model's reasoning."""
_TOKEN = re.compile(r"(?:\A\s*|^[ \t]*)(?:<[|｜][\w▁]+[|｜]>)+|(?<![|｜]>)(?:<[|｜][\w▁]+[|｜]>)+\s*\Z", re.MULTILINE)
"""Special token of a model's template, such as `<|python_tag|>`."""
_INLINE_CODE = re.compile(r"\s*(`+)(\w+\s)?([^`](?:.*[^`])?)\1\s*", re.DOTALL)

_MARKUP_LINE = re.compile(r"\s*(?:#{1,6}\s|[-*_]{3,}\s*$|[-*+]\s+[\w*`]|\d{1,3}[.)]\s+[\w*`]|\*\*\S|>\s)")
_SENTENCE = re.compile(r"\s*[\"'“‘(]?[^\W\d][\w'’-]*(?:[,:.!?…]+\s*$|[,:.!?…]*\s+\S)")
_CODE_SIGN = re.compile(r"[;{}=]|=>|[,()\[\]]\s*$|[\w)\]] (?:[+*/%<>|&^]|- (?=\d))")
_INLINE_SPAN = re.compile(r"`[^`]*`")
_CODE_WORD = re.compile(
    r"\s*(?:assert|async|await|break|case|class|const|continue|debugger|def|default|del|delete|do|elif|else|enum|except|export"
    r"|extends|finally|for|from|function|global|if|implements|import|interface|lambda|let|namespace|new|nonlocal|pass"
    r"|raise|return|static|super|switch|throw|try|type|typeof|var|void|while|with|yield)\b"
)
_MARKDOWN = frozenset({"markdown", "md"})
_MAX_ENDS = 8
"""Maximum number of possible ends tried for one fence."""
_MAX_TRIES = 100
"""Maximum number of ranges tried as blocks. Beyond it, each block ends at the first fence that can close it."""
_MAX_TRIED = 50_000
"""Maximum total size of these ranges in characters, in addition to the length of the source."""
_MAX_BLOCKS = 40
"""Number of blocks above which each block ends at the first fence that can close it."""
_MAX_TAGS = 4
"""Maximum number of tags tried."""


_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def well_formed(source: str) -> tuple[str, list[Diagnostic]]:
    """Returns the source as valid Unicode, and a warning if a lone surrogate was replaced.

    Raises ProgramRejected for a NUL character.
    """
    diagnostics: list[Diagnostic] = []
    if _LONE_SURROGATE.search(source):
        replaced = source.count("\ufffd")
        source = source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if source.count("\ufffd") > replaced:
            message = "The source contains half of a surrogate pair, which was replaced by U+FFFD."
            diagnostics.append(Diagnostic(severity="warning", code="lone_surrogate", message=message))
    if "\0" in source:
        message = "The source has a NUL character at {place}. Write `\\0` in a string."
        raise Places(source.encode()).rejected(message, len(source[: source.index("\0")].encode()))
    return source, diagnostics


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Facts about a language that recovery needs."""

    labels: frozenset[str]
    """Names for the language on fences, in lower case. The first line of an answer can also be one of them."""
    label: str
    """Name that error messages recommend."""
    parses: Callable[[str], bool]
    """True if a text is a program."""
    separator: str = ";"
    """Separator between two blocks, on the line between them."""
    margin: str = " "
    """White space that does not count as indentation."""
    foreign: str = "#"
    """A character that programs contain only in comments and strings."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A program's text, with each character at its position in the source."""

    text: str
    blocks: tuple[int, ...] = ()
    """First lines of the blocks, from 0, if the program came in several fences."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block: the lines from `first` to before `end` are its content."""

    label: str
    run: str
    quoted: bool
    first: int
    end: int


def recover(source: str, dialect: Dialect) -> Recovered:
    """Returns the program in `source`, whose lines end in LF or CRLF.

    Raises ProgramRejected if every fence is labelled as another language and no text around them is a program.
    """
    if "<" in source and (_THOUGHT.match(source.lstrip()) or not dialect.parses(source)):
        source = without_thoughts(source, dialect.margin)
    lines = source.split("\n")
    fences: dict[int, re.Match[str]] = {}
    if "```" in source or "~~~" in source:
        fences = {number: fence for number, line in enumerate(lines) if (fence := _FENCE.match(line))}
    if fences and not _only_in_comments(source, lines, fences, dialect):
        return _Markdown(lines, fences, dialect).recover()
    text = _without_preamble(source, dialect)
    if not text.lstrip().startswith("`") and dialect.parses(text):
        return Recovered(text)
    candidates = chain(_from_markup(text, dialect.labels), _without_prose(text))
    program = next((each for each in candidates if dialect.parses(each)), text)
    return Recovered(_without_preamble(program, dialect))


def without_thoughts(source: str, margin: str = " ") -> str:
    """Blanks a model's reasoning before its program, and special tokens of its template.

    Some templates omit the opening tag of the reasoning.
    """
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    end = 0
    for tag in _THOUGHT.finditer(source):
        name = tag[2]
        if tag.start() < end or name in unclosed:
            continue
        if tag[1]:
            spans, end = [(0, tag.end())], tag.end()
        elif (closing := source.find(f"</{name}>", tag.end())) >= 0:
            end = closing + len(name) + 3
            spans.append((tag.start(), end))
        else:
            unclosed.add(name)
    parts: list[str] = []
    at = 0
    for start, end in sorted([*spans, *(each.span() for each in _TOKEN.finditer(source))]):
        if start < end and start >= at:
            blank = blanked(source[start:end])
            parts += (source[at:start], blank[:-1], margin if blank.endswith(" ") else blank[-1:])
            at = end
    return "".join(parts) + source[at:]


def _only_in_comments(source: str, lines: list[str], fences: dict[int, re.Match[str]], dialect: Dialect) -> bool:
    """True if the whole source is a program with fences only in comments or strings.

    Elsewhere, backticks could still parse as tagged templates, but a foreign character cannot.
    """
    if min(fences) == next(number for number, line in enumerate(lines) if line.strip()):
        return False
    masked = list(lines)
    for number, fence in fences.items():
        start, end = fence.span("run")
        masked[number] = lines[number][:start] + dialect.foreign * (end - start) + lines[number][end:]
    return dialect.parses("\n".join(masked)) and dialect.parses(source)


class _Markdown:
    """A source with fences."""

    def __init__(self, lines: list[str], fences: dict[int, re.Match[str]], dialect: Dialect) -> None:
        self._lines = lines
        self._blank_lines = [blanked(line) for line in lines]
        self._fences = fences
        self._numbers = sorted(fences)
        self._dialect = dialect
        self._tries_left = _MAX_TRIES
        self._characters_left = _MAX_TRIED + sum(map(len, lines))

    def recover(self) -> Recovered:
        blocks = list(self._blocks(self._first_end))
        chosen = self._of_language(blocks)
        if not chosen:
            return self._around(blocks)
        joined = self._joined(chosen)
        if len(blocks) > _MAX_BLOCKS or self._dialect.parses(joined.text):
            return joined
        chosen = self._of_language(list(self._blocks(self._parsing_end)))
        if not chosen[0].label:
            chosen = [block for block in chosen if self._is_program(block)] or chosen
        return joined if self._exhausted else self._joined(chosen)

    def _blocks(self, end_of: Callable[[_Block], _Block]) -> Iterator[_Block]:
        outer: list[str] = []
        at = 0
        while at < len(self._lines):
            fence = self._fences.get(at)
            at += 1
            if fence is None:
                continue
            run, label = fence["run"], _label(fence)
            if outer and not fence["info"].strip() and run.startswith(outer[-1]):
                outer.pop()
            elif label in _MARKDOWN:
                outer.append(run)
            else:
                block = end_of(_Block(label, run, ">" in fence["margin"], at, len(self._lines)))
                yield block
                at = block.end + (block.end in self._fences and not self._fences[block.end]["info"].strip())

    def _first_end(self, block: _Block) -> _Block:
        return next(self._closed(block))

    def _parsing_end(self, block: _Block) -> _Block:
        """Returns the block up to the first end that makes it a program.

        An unclosed block can end where the next block in the language begins.
        """
        other_language = block.label and block.label not in self._dialect.labels
        if other_language or self._exhausted:
            return self._first_end(block)
        labelled = (_ending(block, number) for number in self._after(block) if self._in_language(number))
        closed = list(islice(self._closed(block), _MAX_ENDS))
        ends = sorted([*closed, *islice(labelled, _MAX_ENDS)], key=attrgetter("end"))
        return next((end for end in ends if self._is_program(end)), closed[0])

    def _is_program(self, block: _Block) -> bool:
        """True if a block alone is a program. False once the tries are used up."""
        text = "\n".join(self._content(block))
        self._tries_left -= 1
        self._characters_left -= len(text)
        return not self._exhausted and self._dialect.parses(text)

    @property
    def _exhausted(self) -> bool:
        return self._tries_left < 0 or self._characters_left < 0

    def _closed(self, block: _Block) -> Iterator[_Block]:
        """Yields the block with each possible end: bare fences of its kind that are at least as long, then the end of
        the text."""
        for number in self._after(block):
            fence = self._fences[number]
            if not fence["info"].strip() and fence["run"].startswith(block.run):
                yield _ending(block, number)
        yield block

    def _after(self, block: _Block) -> Iterator[int]:
        """Returns the line numbers of the fences after a block's opening fence."""
        return (self._numbers[index] for index in range(bisect_left(self._numbers, block.first), len(self._numbers)))

    def _in_language(self, number: int) -> bool:
        return _label(self._fences[number]) in self._dialect.labels

    def _of_language(self, blocks: list[_Block]) -> list[_Block]:
        labelled = [block for block in blocks if block.label in self._dialect.labels]
        return labelled or [block for block in blocks if not block.label]

    def _joined(self, blocks: list[_Block]) -> Recovered:
        text = _without_preamble(self._text(blocks), self._dialect)
        return Recovered(text, tuple(block.first for block in blocks) if len(blocks) > 1 else ())

    def _text(self, blocks: list[_Block]) -> str:
        """Returns the content of the blocks in place, with separators between them."""
        kept = list(self._blank_lines)
        for number, block in enumerate(blocks):
            kept[block.first : block.end] = self._content(block)
            if number:
                separator = self._dialect.separator
                kept[block.first - 1] = separator + kept[block.first - 1][len(separator) :]
        return "\n".join(kept)

    def _content(self, block: _Block) -> list[str]:
        """Returns the lines of a block, without quote marks."""
        content = self._lines[block.first : block.end]
        if block.quoted:
            content = [_QUOTE_MARK.sub(lambda mark: " " * len(mark[0]), line, count=1) for line in content]
        return _without_run(content, block.run) if content and block.end == len(self._lines) else content

    def _around(self, blocks: list[_Block]) -> Recovered:
        """Returns the program around fences in other languages."""
        lines = list(self._lines)
        for block in blocks:
            for number in range(block.first - 1, min(block.end + 1, len(lines))):
                lines[number] = blanked(lines[number])
        rest = "\n".join(lines)
        for candidate in (*_without_prose(rest), rest):
            if candidate.strip() and self._dialect.parses(candidate):
                return Recovered(_without_preamble(candidate, self._dialect))
        labels = ", ".join(sorted({block.label for block in blocks}))
        raise ProgramRejected(
            f"The source contains no program, only fenced blocks labelled {labels or 'markdown'}."
            f" Put the program in a fence labelled {self._dialect.label}."
        )


def _label(fence: re.Match[str]) -> str:
    match = _LABEL.match(fence["info"])
    label = match[1].lower() if match else ""
    return "" if label == "none" else label


def _ending(block: _Block, end: int) -> _Block:
    return _Block(block.label, block.run, block.quoted, block.first, end)


def _without_run(content: list[str], run: str) -> list[str]:
    """Returns the content of an unclosed block, without a fence at the end of its last line."""
    text = "\n".join(content)
    last = len(text.rstrip())
    return f"{text[:last].removesuffix(run)}{text[last:]}".split("\n")


def _without_preamble(text: str, dialect: Dialect) -> str:
    """Blanks a first line that only names the language or introduces the program, and a shebang."""
    word = _WORD_LINE.match(text)
    if word and (word[1].lower() in dialect.labels or (word[1][0].isupper() and word[2] and text.count(word[1]) == 1)):
        text = blanked(text[: word.end()]) + text[word.end() :]
    shebang = _SHEBANG.match(text)
    return blanked(text[: shebang.end()]) + text[shebang.end() :] if shebang else text


def _from_markup(text: str, labels: frozenset[str]) -> Iterator[str]:
    """Yields the content of closed tags, or of backticks around the whole text."""
    for tag in islice(_TAG.finditer(text), _MAX_TAGS):
        end = text.rfind(f"</{tag[1]}>", tag.end())
        around = _TAG.sub("", text[: tag.start()]) + "\n" + _CLOSING_TAG.sub("", text[end:])
        if end >= 0 and all(_is_prose(line) for line in around.split("\n")):
            yield _only(text, tag.end(), end)
    inline = _INLINE_CODE.fullmatch(text)
    if inline and inline[1] not in inline[3] and "${" not in inline[3] and not inline[3].isidentifier():
        start = inline.start(3) if (inline[2] or "").strip().lower() in labels else inline.end(1)
        yield _only(text, start, inline.end(3))
    if text.lstrip().startswith("`"):
        yield text


def _without_prose(text: str) -> Iterator[str]:
    """Yields the text without lines of prose at its start, its end, or both."""
    lines = text.split("\n")
    head = next((number for number, line in enumerate(lines) if not _is_prose(line)), len(lines))
    tail = next((number for number in range(len(lines), head, -1) if not _is_prose(lines[number - 1])), head)
    for first, end in ((head, tail), (head, len(lines)), (0, tail)):
        if first < end and (first, end) != (0, len(lines)):
            yield "\n".join(line if first <= number < end else blanked(line) for number, line in enumerate(lines))


def _is_prose(line: str) -> bool:
    line = _INLINE_SPAN.sub("it", line)
    if not line.strip() or _MARKUP_LINE.match(line):
        return True
    return bool(_SENTENCE.match(line)) and not _CODE_SIGN.search(line) and not _CODE_WORD.match(line)


def _only(text: str, start: int, end: int) -> str:
    return blanked(text[:start]) + text[start:end] + blanked(text[end:])
