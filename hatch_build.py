"""Makes the README that a package index shows: there its links to files of the repository have to be whole URLs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["ReadmeHook"]

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?=[^)\s]+\))")
"""The start of a link to a file of the repository."""
_IMAGE = re.compile(r"""((?:src|srcset)="|!\[[^\]]*\]\()(?![a-z]+:)(?=[^)"\s]+[)"])""")
"""The start of an image, up to its file."""


class ReadmeHook(MetadataHookInterface):
    """Fills in `readme`. The repository's address is that of `[project.urls]` in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata["urls"]["Repository"]
        text = _IMAGE.sub(rf"\g<1>{repository}/raw/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(f"{repository}/blob/main/", text)}
