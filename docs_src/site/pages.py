"""Prepares the pages for the generator, which needs one folder whose links stay inside it."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docs_src.site.navigation import Entry, Group, Problem, files, navigation

__all__ = ["ROOT", "Site", "stage"]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS: Mapping[str, str] = PROJECT["urls"]
_FENCE = re.compile(r"^(?P<run>`{3,})[^\n]*\n.*?^(?P=run)[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"""(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(|\b(?:src|srcset)=")([^)"\s]+)(?=[)"])""")
"""The beginning and the target of a link or an image in Markdown, and of an image in HTML."""
_FRAGMENT = re.compile(r"^(`{3,}\w+) fragment$", re.MULTILINE)
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->\n", re.MULTILINE | re.DOTALL)
_TAB = re.compile(r"^<!-- tab: (.+) -->\n", re.MULTILINE)
_IMAGES = {".svg", ".png", ".jpg"}


@dataclass(frozen=True)
class Site:
    """The prepared pages: the file of the repository and the path in the site, in the order of the navigation."""

    root: Path
    groups: Sequence[Group]
    paths: Mapping[Path, str]

    def write_texts(self, built: Path) -> None:
        """Adds `llms.txt`, and the Markdown of each page, to the built site."""
        for source, path in self.paths.items():
            target = built / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.text(source), encoding="utf-8")
        (built / "llms.txt").write_text(self._llms(), encoding="utf-8")

    def text(self, page: Path) -> str:
        """The Markdown of a page, with links for its place in the site.

        Raises:
            Problem: A link leads to a file that does not exist.
        """
        parts = _parts(page.read_text(encoding="utf-8"))
        return "".join(part if fenced else _LINK.sub(partial(self._link, page), part) for fenced, part in parts)

    def _link(self, page: Path, link: re.Match[str]) -> str:
        target, mark, anchor = link[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        here = Path(self.paths[page]).parent
        file = (page.parent / target).resolve()
        if not file.exists():
            raise Problem(f"{page}: links to {target}, which does not exist")
        if file in self.paths:
            return f"{link[1]}{os.path.relpath(self.paths[file], here)}{mark}{anchor}"
        if file.suffix in _IMAGES and file.is_relative_to(self.root / "docs"):
            return f"{link[1]}{os.path.relpath(file.relative_to(self.root / 'docs'), here)}"
        kind = "tree" if file.is_dir() else "blob"
        return f"{link[1]}{URLS['Repository']}/{kind}/main/{file.relative_to(self.root)}{mark}{anchor}"

    def _llms(self) -> str:
        lines = [f"# {PROJECT['name']}", "", f"> {PROJECT['description']}", ""]
        for group in self.groups:
            lines += [f"## {group.title}", ""]
            lines += [
                f"- [{_title(page)}]({URLS['Documentation']}{self.paths[page]}): {_first_sentence(page)}"
                for page in files(group)
            ]
            lines.append("")
        return "\n".join(lines)


def stage(folder: Path, root: Path = ROOT) -> Site:
    """Writes the pages of a repository and the generator's configuration to an empty folder.

    Links to files that are not pages of the site become links to the repository, whose address is in pyproject.toml.

    Raises:
        Problem: The index does not list each page once, or a link leads to a file that does not exist.
    """
    docs = root / "docs"
    groups = navigation(docs / "README.md", docs)
    listed = [page for group in groups for page in files(group)]
    home = {root / "README.md": "index.md", docs / "README.md": "pages.md"}
    site = Site(root, groups, {**home, **{page: _path(page, root) for page in listed}})
    for source, path in site.paths.items():
        target = folder / "docs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_for_generator(site.text(source)), encoding="utf-8")
    for image in (each for each in docs.rglob("*") if each.suffix in _IMAGES):
        target = folder / "docs" / image.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, target)
    shutil.copytree(Path(__file__).parent / "assets", folder / "docs" / "assets")
    (folder / "zensical.toml").write_text(_configuration(groups, site.paths), encoding="utf-8")
    return site


def _path(page: Path, root: Path) -> str:
    """The path in the site of a file of the repository."""
    docs = root / "docs"
    if not page.is_relative_to(docs):
        path = page.relative_to(root)
        return f"{path.parent}.md" if path.name == "README.md" else f"project/{path.name.lower()}"
    path = page.relative_to(docs)
    return str(path.with_name("index.md")) if path.name == "README.md" else str(path)


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Splits a page into prose and fenced blocks: pairs of True for a block, and the text."""
    end = 0
    for fence in _FENCE.finditer(text):
        yield False, text[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, text[end:]


def _for_generator(text: str) -> str:
    """Translates what GitHub shows as well into the generator's own syntax: marks of fragments, and tabs."""
    return _TABS.sub(_tabs, _FRAGMENT.sub(r"\1", text))


def _tabs(match: re.Match[str]) -> str:
    _, *rest = _TAB.split(match[1])
    tabs = zip(rest[::2], rest[1::2], strict=True)
    return "\n".join(f'=== "{title}"\n\n{textwrap.indent(text.strip(), "    ")}\n' for title, text in tabs)


def _configuration(groups: Sequence[Group], paths: Mapping[Path, str]) -> str:
    template = (Path(__file__).parent / "zensical.toml").read_text(encoding="utf-8")
    entries = ['{ "Corral" = ["index.md", { "All pages" = "pages.md" }] }', *(_toml(group, paths) for group in groups)]
    values = {"NAV": f"[{', '.join(entries)}]", "DESCRIPTION": PROJECT["description"], **URLS}
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], template)


def _toml(entry: Entry, paths: Mapping[Path, str]) -> str:
    if isinstance(entry, Group):
        inside = ", ".join(_toml(each, paths) for each in entry.entries)
        return f'{{ "{entry.title}" = [{inside}] }}'
    title, page = entry
    return f'{{ "{title}" = "{paths[page]}" }}'


def _title(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ")


def _first_sentence(page: Path) -> str:
    """The beginning of a page's first paragraph, without links."""
    prose = "".join(part for fenced, part in _parts(page.read_text(encoding="utf-8")) if not fenced)
    paragraphs = (
        each for each in prose.split("\n\n")[1:] if each.strip() and not each.strip().startswith(("#", "|", "<", "!["))
    )
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(next(paragraphs, "").split()))
    return re.split(r"(?<=[.:]) (?=[A-Z`])", plain)[0]
