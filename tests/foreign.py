"""What tests run that cannot be installed beside corral: packages of npm, and a server that needs an older mcp.

`python -m tests.foreign` fetches all of it, once; `scripts/test` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from deno import find_deno_bin

from corral.packages import PackageFolder

__all__ = ["PACKAGES", "SQLITE_SERVER", "deno_arguments", "deno_environment", "npm_folder", "npm_imports"]

_NPM: Mapping[str, str] = {
    "@graphql-codegen/core": "6.2.1",
    "@graphql-codegen/typescript-operations": "6.1.9",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@octokit/graphql-schema": "15.26.1",
    "@octokit/openapi": "2.2.1",  # later ones are over 400 MB
    "@readme/oas-examples": "8.2.2",
    "@urql/core": "6.0.3",
    "@zereight/mcp-gitlab": "2.1.64",
    "graphql": "16.15.0",
    "graphql-request": "7.4.0",
    "graphql-sse": "2.6.1",
}
_CACHE = Path(sys.prefix) / "deno"
_OLD_MCP = Path(sys.prefix) / "mcp1"

PACKAGES = Path(sys.prefix) / "packages"
"""The folder of `corral packages` whose lock is in tests/packages/twelve."""
_LOCKED = Path(__file__).parent / "packages" / "twelve"

SQLITE_SERVER = _OLD_MCP / "bin" / "mcp-server-sqlite"
"""It needs mcp 1, so it has an environment of its own, as programs that start servers make one."""


def deno_environment() -> dict[str, str]:
    """What Deno is to know of its cache."""
    return {"DENO_DIR": str(_CACHE), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}


def deno_arguments(name: str) -> list[str]:
    """Those with which Deno runs a package of npm, without asking the registry."""
    return ["run", "--allow-all", "--cached-only", "--no-lock", "--no-config", "--quiet", _specifier(name)]


def npm_imports() -> dict[str, str]:
    """An import map of these packages, for programs in Deno."""
    return {name: _specifier(name) for name in _NPM}


def npm_folder(name: str) -> Path:
    """Where the files of a package of npm are."""
    [found] = _CACHE.glob(f"npm/*/{name}/{_NPM[name]}")
    return found


def fetch() -> None:
    """Fetches what is not there."""
    command = [find_deno_bin(), "cache", "--quiet", "--no-lock", "--no-config", *map(_specifier, _NPM)]
    subprocess.run(command, check=True, env={**os.environ, **deno_environment()}, cwd=sys.prefix)
    PACKAGES.mkdir(exist_ok=True)
    for file in _LOCKED.iterdir():
        shutil.copy(file, PACKAGES)
    os.environ |= deno_environment()
    PackageFolder(PACKAGES).install()
    if not SQLITE_SERVER.exists():
        venv.create(_OLD_MCP, clear=True, with_pip=True)
        install = [_OLD_MCP / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "mcp<2", "mcp-server-sqlite>=2025.4.25"], check=True)


def _specifier(name: str) -> str:
    return f"npm:{name}@{_NPM[name]}"


if __name__ == "__main__":
    fetch()
