"""Runs the generator, zensical, on the prepared pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docs_src.site.navigation import Problem
from docs_src.site.pages import PROJECT, ROOT, stage
from packaging.version import Version

__all__ = ["build", "publish"]


_CODE_BLOCK = re.compile(r"<pre>.*?</pre>", re.DOTALL)
_MENU = '\n[project.extra.version]\nprovider = "mike" # a menu of the versions in ../versions.json\n'


def build(folder: Path, root: Path = ROOT, *, versions: bool = False) -> Path:
    """Builds the site in a folder that is deleted first, and returns the folder with the pages.

    Args:
        folder: The folder.
        root: The repository.
        versions: True for a site that `publish` will put beside others: its pages have a menu of versions.

    Raises:
        Problem: A page is in no group, or the generator reports a warning, such as a dead link.
    """
    shutil.rmtree(folder, ignore_errors=True)
    site = stage(folder, root)
    if versions:
        with (folder / "zensical.toml").open("a", encoding="utf-8") as configuration:
            configuration.write(_MENU)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    environment = {**os.environ, "NO_COLOR": "1"}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    if built.returncode:
        report = re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)
        raise Problem(report.partition("Traceback")[0])
    site.write_texts(folder / "site")
    _shorten(folder / "site" / "search.json")
    return folder / "site"


def _shorten(index: Path) -> None:
    """Removes code blocks from the search's index. Of a class in the API reference, keeps its first paragraph, and the
    names of its methods as text, so that results are not a list of methods."""
    content = json.loads(index.read_text(encoding="utf-8"))
    sections: list[dict[str, Any]] = []
    for section in content["items"]:
        is_reference = section["location"].startswith("reference/corral")
        if is_reference and section["level"] == 3:
            sections[-1]["text"] += f" {section['title']}"
            continue
        text = _CODE_BLOCK.sub(" ", section["text"])
        sections.append({**section, "text": text.partition("</p>")[0] + "</p>" if is_reference else text})
    content["items"] = sections
    index.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def publish(site: Path, folder: Path) -> Path:
    """Adds a site built with `versions=True` to those in a folder, and returns the folder of the new version.

    A version is the first two numbers of the project's. Its folder is replaced if it exists, the menu of all versions
    lists it, and the folder's first page leads to the latest one.

    Raises:
        Problem: The folder has files but no versions.json, so it is not a folder of versions.
    """
    listing = folder / "versions.json"
    if folder.exists() and any(folder.iterdir()) and not listing.exists():
        raise Problem(f"{folder} has files, but no versions.json; pass an empty folder or one with published versions")
    entries: list[dict[str, str]] = json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else []
    version = ".".join(PROJECT["version"].split(".")[:2])
    numbers = sorted({version, *(entry["version"] for entry in entries)}, key=Version, reverse=True)
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    aliases = {numbers[0]: ["latest"]}
    menu = [{"version": each, "title": each, "aliases": aliases.get(each, [])} for each in numbers]
    listing.write_text(json.dumps(menu, indent=2) + "\n", encoding="utf-8")
    page = f'<!doctype html><title>Corral</title><meta http-equiv="refresh" content="0; url={numbers[0]}/">'
    (folder / "index.html").write_text(f'{page}<a href="{numbers[0]}/">Corral {numbers[0]}</a>\n', encoding="utf-8")
    return folder / version
