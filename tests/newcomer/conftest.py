"""Programs of a host, in processes of their own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import run_forked

HANGS_SECONDS = 60
"""A test fails then; each takes about one."""

HOST = """
import asyncio, multiprocessing, os, signal, sys, time
from corral import Corral, ConfigError, define_tool, tool

@tool
def double(n: int) -> int:
    return 2 * n

@tool
def wait() -> int:
    time.sleep(600)

PROGRAM = "return await tools.double({ n: 21 })"

def run(corral):
    print(os.getpid() == HOST, corral.sync.execute(PROGRAM, check=False).value, flush=True)

def forked(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, 1)

HOST = os.getpid()
"""


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., tuple[list[str], str]]:
    """Runs a host's code, and gives the lines that it printed, and its standard error."""

    def run(code: str, *options: str, status: int = 0) -> tuple[list[str], str]:
        path = tmp_path / "host.py"
        path.write_text(HOST + textwrap.dedent(code))
        done = run_forked([sys.executable, *options, str(path)], timeout=HANGS_SECONDS)
        assert done.returncode == status, done.stderr
        return done.stdout.splitlines(), done.stderr

    return run
