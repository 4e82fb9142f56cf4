"""A folder with a package of these tests' own, beside the bundler that is installed for them."""

from __future__ import annotations

import json
from pathlib import Path

from corral.packages import NpmPackages
from tests.foreign import PACKAGES

__all__ = ["folder_of", "packages_of"]


def folder_of(folder: Path, **packages: str) -> Path:
    """A folder as `corral packages add` would leave it, with packages of one file each."""
    imports = {"corral:bundler": json.loads((PACKAGES / "deno.json").read_text())["imports"]["corral:bundler"]}
    for name, code in packages.items():
        home = folder / "node_modules" / name
        home.mkdir(parents=True)
        (home / "package.json").write_text(json.dumps({"name": name, "version": "1.0.0", "main": "index.js"}))
        (home / "index.js").write_text(code)
        imports[name] = f"npm:{name}@1.0.0"
    (folder / "deno.json").write_text(json.dumps({"imports": imports}))
    (folder / "deno.lock").write_text(json.dumps({"npm": {}, "packages": packages}))
    (folder / "node_modules" / ".deno").symlink_to(PACKAGES / "node_modules" / ".deno")
    return folder


def packages_of(folder: Path, **packages: str) -> NpmPackages:
    """The packages of such a folder."""
    return NpmPackages(folder_of(folder, **packages))
