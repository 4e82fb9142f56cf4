"""The reference of the public names, made from their signatures and docstrings.

`scripts/reference` writes it. Nothing of corral is imported for it, so that no extra has to be installed.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from docs_src.reference.markdown import section
from docs_src.reference.names import MODULES, Found, found_in
from docs_src.reference.shells import table_of_shells

__all__ = ["FOLDER", "documented", "pages"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"

_HEAD = """\
# Reference

The public names, a page for each module, made from the signatures and docstrings of the source by `scripts/reference`.
Errors have [a page of their own](../errors.md).
"""


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    package = _package()
    found = {module: found_in(package, module) for module in MODULES}
    index = [_HEAD]
    for module, names in found.items():
        links = ", ".join(f"[`{each.name}`]({module}.md#{each.anchor})" for each in names)
        index.append(f"- [`{module}`]({module}.md): {links}")
    index.append("- [Shells](shells.md): the calls that each shell can make")
    return {
        "README.md": "\n".join(index) + "\n",
        **{f"{module}.md": _page(module, names) for module, names in found.items()},
        "shells.md": table_of_shells(),
    }


def documented() -> list[Found]:
    """All names of the pages, and their methods."""
    package = _package()
    names = [each for module in MODULES for each in found_in(package, module)]
    return [each for name in names for each in (name, *name.methods())]


def _page(module: str, names: list[Found]) -> str:
    source = _package()[module.partition(".")[2]] if "." in module else _package()
    purpose = " ".join(source.docstring.value.partition("\n\n")[0].split())
    purpose = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", purpose)
    lines = [f"# Module {module}", "", f"{purpose} [All modules](README.md)."]
    for each in names:
        lines += ["", *section(each)]
    return "\n".join(lines) + "\n"


@cache
def _package() -> Any:
    return griffe.load("corral", search_paths=[ROOT / "src"], docstring_parser="google")
