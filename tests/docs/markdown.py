"""What the tests of the documentation ask of Markdown: fenced blocks, tables, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "Block", "anchors", "blocks", "links", "pages", "table"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<run>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=run)[ ]*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_CELL_CODE = re.compile(r"(`+) ?(.*?) ?\1")


@dataclass(frozen=True)
class Block:
    """A fenced block. `heading` is the last one before it, `line` where it begins."""

    page: Path
    line: int
    heading: str
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.strip() else ""

    @property
    def title(self) -> str | None:
        found = _TITLE.search(self.info)
        return found[1] if found else None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README and its companions, and everything in docs."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for fence in _FENCE.finditer(text):
        headings = _HEADING.findall(text[: fence.start()])
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, headings[-1] if headings else "", fence["info"].strip(), fence["text"]))
    return found


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Where the links of a page go."""
    return _LINK.findall(prose(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = _HEADING.findall(prose(page))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the table whose header begins with `heading`; a cell that begins with code is that code."""
    lines = prose(page).split("\n")
    [start] = [number for number, line in enumerate(lines) if line.startswith(f"| {heading} |")]
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([_cell(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def _cell(cell: str) -> str:
    code = _CELL_CODE.match(cell)
    return (code[2] if code else cell).replace("\\|", "|")
