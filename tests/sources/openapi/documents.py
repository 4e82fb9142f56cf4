"""Documents of real services, from packages of npm, which Deno keeps in its own folder once it has fetched them."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from deno import find_deno_bin

__all__ = ["EXAMPLES", "github", "package"]

ROOT = Path(__file__).parents[3]
_FOLDER = ROOT / ".venv" / "deno"
_GITHUB = ("@octokit/openapi", "2.2.1")
"""An early version: later ones are over 400 MB when unpacked."""
EXAMPLES = ("@readme/oas-examples", "8.2.2")
"""Small documents about one feature each, in JSON and YAML."""


@cache
def package(name: str, version: str) -> Path:
    """The folder of a package."""
    command = [find_deno_bin(), "cache", "--quiet", "--no-lock", "--no-config", f"npm:{name}@{version}"]
    environment = {**os.environ, "DENO_DIR": str(_FOLDER)}  # where the registry is, and whom to trust, is said there
    subprocess.run(command, check=True, env=environment, timeout=120, cwd=_FOLDER.parent)
    [folder] = _FOLDER.glob(f"npm/*/{name}/{version}")
    return folder


@cache
def github() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((package(*_GITHUB) / "generated" / "api.github.com.json").read_bytes())
    return document
