"""What tests run that cannot be installed beside corral: packages of npm, and servers that need an older mcp.

`python -m tests.foreign` fetches all of it, once; `scripts/test` does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from deno import find_deno_bin

from corral.packages import PackageFolder
from corral.sandboxes.wasm_image import image_folder

__all__ = [
    "CHROMIUM",
    "COFFEESCRIPT",
    "HTTP_CLIENTS",
    "OLD_SERVERS",
    "PACKAGES",
    "deno_arguments",
    "deno_environment",
    "graphiql_packages",
    "npm_folder",
    "npm_imports",
    "ray_folder",
    "run_deno",
]

_NPM: Mapping[str, str] = {
    "@bufbuild/protobuf": "2.17.0",
    "@connectrpc/connect": "2.2.0",
    "@connectrpc/connect-node": "2.2.0",
    "@graphql-codegen/core": "6.2.1",
    "@graphql-codegen/typescript-operations": "6.1.9",
    "@grpc/grpc-js": "1.14.3",
    "@grpc/proto-loader": "0.8.0",
    "@kazuph/mcp-taskmanager": "1.1.1",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking": "2026.8.31",
    "@octokit/graphql-schema": "15.26.1",
    "@octokit/openapi": "2.2.1",  # later ones are over 400 MB
    "@readme/oas-examples": "8.2.2",
    "@sparticuz/chromium": "147.0.0",  # a headless Chromium in a package, with the libraries that it needs
    "@trpc/client": "11.25.2",
    "@trpc/server": "11.25.2",
    "@urql/core": "6.0.3",
    "@zereight/mcp-gitlab": "2.1.64",
    "ai": "6.0.326",
    "axe-core": "4.14.1",
    "graphiql": "3.9.0",  # graphiql 5 and react 19 have no builds for a page
    "graphql": "16.15.0",
    "graphql-request": "7.4.0",
    "graphql-sse": "2.6.1",
    "kubernetes-client": "9.0.0",  # for its documents in Swagger 2.0
    "react": "18.3.1",
    "react-dom": "18.3.1",
    "superjson": "2.2.6",
}
_CACHE = Path(sys.prefix) / "deno"
_OLD_MCP = Path(sys.prefix) / "mcp1"
_OF_OLD_MCP = (
    "mcp==1.30.0",
    "mcp-server-calculator==0.2.0",
    "mcp-server-duckdb==1.1.0",
    "mcp-server-fetch==2026.10.10",
    "mcp-server-sqlite==2025.4.25",
)

_UNBROTLI = """
import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";
await pipeline(createReadStream(Deno.args[0]), createBrotliDecompress(), createWriteStream(Deno.args[1]));
"""

PACKAGES = Path(sys.prefix) / "packages"
"""The folder of `corral packages` whose lock is in tests/packages/twelve."""
COFFEESCRIPT = Path(sys.prefix) / "coffeescript"
"""The same for tests/packages/coffeescript."""
HTTP_CLIENTS = Path(sys.prefix) / "http-clients"
"""The same for tests/packages/http: packages that send requests by node's `http`."""
_LOCKED = {PACKAGES: "twelve", COFFEESCRIPT: "coffeescript", HTTP_CLIENTS: "http"}

OLD_SERVERS = _OLD_MCP / "bin"
"""Servers that need mcp 1, in an environment of their own, as programs that start servers make one."""


CHROMIUM = Path(sys.prefix) / "chromium"
"""The folder of a headless Chromium: `chromium`, its libraries in `lib`, and fonts."""


def ray_folder() -> Path:
    """Returns a folder with Ray and what it needs beside this environment. Only the matrix installs it: 240 MB."""
    folder = Path(sys.prefix) / "ray"
    if not folder.exists():
        locked = Path("requirements-dev.txt").read_text(encoding="utf-8").splitlines()
        packages = [line for line in locked if line.startswith(("ray==", "msgpack=="))]
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
        subprocess.run([*pip, *packages], check=True)
        part.rename(folder)
    return folder


def deno_environment() -> dict[str, str]:
    """What Deno is to know of its cache."""
    return {"DENO_DIR": str(_CACHE), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}


def deno_arguments(name: str) -> list[str]:
    """Those with which Deno runs a package of npm, without asking the registry."""
    return ["run", "--allow-all", "--cached-only", "--no-lock", "--no-config", "--quiet", _specifier(name)]


def npm_imports() -> dict[str, str]:
    """An import map of these packages, for programs in Deno."""
    return {name: _specifier(name) for name in _NPM}


def run_deno(
    folder: Path, script: Path, *arguments: str, command: Sequence[str] = ("run", "--allow-all"), **imports: str
) -> str:
    """Runs a copy of the script in the folder with these packages, and returns what it printed."""
    config, copy = folder / "deno.json", folder / script.name
    content = {"imports": {**npm_imports(), **imports}, "nodeModulesDir": "none"}
    config.write_text(json.dumps(content), encoding="utf-8")
    shutil.copy(script, copy)
    done = subprocess.run(
        [find_deno_bin(), *command, "--cached-only", "--no-lock", "--quiet", f"--config={config}", copy, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **deno_environment()},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def npm_folder(name: str) -> Path:
    """Where the files of a package of npm are."""
    [found] = _CACHE.glob(f"npm/*/{name}/{_NPM[name]}")
    return found


def graphiql_packages(folder: Path) -> Path:
    """Makes the folder a node_modules of what GraphiQL needs."""
    for name in ("graphiql", "react", "react-dom"):
        folder.joinpath(name).symlink_to(npm_folder(name))
    return folder


def fetch() -> None:
    """Fetches what is not there, and makes the image of programs in WebAssembly, which would be made by each process."""
    image_folder()
    command = [find_deno_bin(), "cache", "--quiet", "--no-lock", "--no-config", *map(_specifier, _NPM)]
    subprocess.run(command, check=True, env={**os.environ, **deno_environment()}, cwd=sys.prefix)
    os.environ |= deno_environment()
    for folder, name in _LOCKED.items():
        folder.mkdir(exist_ok=True)
        for file in (Path(__file__).parent / "packages" / name).iterdir():
            shutil.copy(file, folder)
        PackageFolder(folder).install()
    if not (CHROMIUM / "chromium").exists():
        _unpack_chromium()
    installed = _OLD_MCP / "installed.txt"
    if not installed.exists() or installed.read_text("utf-8").split() != [*_OF_OLD_MCP]:
        venv.create(_OLD_MCP, clear=True, with_pip=True)
        install = [_OLD_MCP / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *_OF_OLD_MCP], check=True)
        installed.write_text("\n".join(_OF_OLD_MCP), encoding="utf-8")


def _unpack_chromium() -> None:
    CHROMIUM.mkdir(exist_ok=True)
    for packed in npm_folder("@sparticuz/chromium").glob("bin/*.br"):
        unpacked = CHROMIUM / f"{packed.stem}.part"
        command = [find_deno_bin(), "eval", "--no-config", "--no-lock", _UNBROTLI, packed, unpacked]
        subprocess.run(command, check=True, env={**os.environ, **deno_environment()})
        if packed.stem.endswith(".tar"):
            with tarfile.open(unpacked) as archive:
                archive.extractall(CHROMIUM, filter="data")
            unpacked.unlink()
        else:
            unpacked.chmod(0o755)
    fonts = f"<fontconfig><dir>{CHROMIUM}/fonts</dir><cachedir>{CHROMIUM}/font-cache</cachedir></fontconfig>"
    (CHROMIUM / "fonts.conf").write_text(fonts, encoding="utf-8")  # its own is for another place
    (CHROMIUM / "chromium.part").rename(CHROMIUM / "chromium")


def _specifier(name: str) -> str:
    return f"npm:{name}@{_NPM[name]}"


if __name__ == "__main__":
    fetch()
