"""The groups of the site, read from the headings and tables of docs/README.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

__all__ = ["Entry", "Group", "Problem", "index_of", "linked_pages", "navigation"]

_HEADING = re.compile(r"^(#{2,3}) (.+)$")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")


class Problem(Exception):
    """The pages and the index do not match. Each line of the message is one page."""


@dataclass
class Group:
    """A title with pages and smaller groups, in the order of the index."""

    title: str
    entries: list[Entry] = field(default_factory=list["Entry"])


Entry: TypeAlias = "tuple[str, Path] | Group"


def linked_pages(line: str, folder: Path) -> list[tuple[str, Path]]:
    """The titles and files of the links in a line of a page in `folder`."""
    return [(title, (folder / target).resolve()) for title, target in _LINK.findall(line)]


def index_of(page: Path) -> list[tuple[str, Path]]:
    """The pages in the folder of an index: those that it lists, in its order, then the others."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = [each for line in lines if line.startswith("- ") for each in linked_pages(line, page.parent)[:1]]
    listed = {target: title.strip("`") for title, target in found if target.parent == page.parent}
    others = sorted({*page.parent.glob("*.md")} - {*listed, page})
    titles = {each: each.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for each in others}
    return [(title, target) for target, title in {**listed, **titles}.items()]


def navigation(index: Path, docs: Path) -> list[Group]:
    """Returns the groups of the index.

    Raises:
        Problem: A page of `docs` is in no group, a page is in two, or a listed page does not exist.
    """
    groups: list[Group] = []
    parent: Group | None = None
    for line in index.read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            group = Group(heading[2])
            if heading[1] == "##":
                groups.append(group)
                parent = group
            else:
                groups[-1].entries.append(group)
                parent = group
        elif parent is not None and line.startswith("| ["):
            for title, page in linked_pages(line.split("|")[1], index.parent):
                parent.entries.append(_entry(title, page))
    _check([page for group in groups for page in files(group)], index, docs)
    return groups


def files(group: Group) -> Iterator[Path]:
    """All pages of a group."""
    for entry in group.entries:
        if isinstance(entry, Group):
            yield from files(entry)
        else:
            yield entry[1]


def _entry(title: str, page: Path) -> Entry:
    pages = index_of(page) if page.name == "README.md" and page.exists() else []
    return Group(title, [("Overview", page), *pages]) if pages else (title, page)


def _check(listed: list[Path], index: Path, docs: Path) -> None:
    pages = {page.resolve() for page in docs.rglob("*.md")} - {index.resolve()}
    problems = [f"{page}: is in no group; add it to a table of {index}" for page in sorted(pages - {*listed})]
    problems += [f"{page}: is in {count} groups of {index}" for page, count in Counter(listed).items() if count > 1]
    problems += [f"{page}: does not exist; {index} lists it" for page in listed if not page.exists()]
    if problems:
        raise Problem("\n".join(problems))
