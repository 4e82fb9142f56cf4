"""Runs the generator, zensical, on the prepared pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs_src.site.navigation import Problem
from docs_src.site.pages import ROOT, stage

__all__ = ["build"]


def build(folder: Path, root: Path = ROOT) -> Path:
    """Builds the site in a folder that is deleted first, and returns the folder with the pages.

    Raises:
        Problem: A page is in no group, or the generator reports a warning, such as a dead link.
    """
    shutil.rmtree(folder, ignore_errors=True)
    site = stage(folder, root)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    environment = {**os.environ, "NO_COLOR": "1"}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    if built.returncode:
        report = re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)
        raise Problem(report.partition("Traceback")[0])
    site.write_texts(folder / "site")
    return folder / "site"
