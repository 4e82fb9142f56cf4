"""Quotas of directories that the host looks at."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral import ExecutionContext
from corral.sessions import OpenSession
from corral.sessions.quota import Quota
from corral.sessions.tree import FileTree, Usage
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


async def test_what_a_program_writes_at_once_counts_against_the_quota(tmp_path: Path) -> None:
    tree = FileTree(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    space: Any = SimpleNamespace(space=SimpleNamespace(home="/workspace", file_bytes=1_000))
    session = OpenSession(ExecutionContext(), space, [], [], {}, [Quota("/workspace", tree, Usage(10, 10))])
    exceeded = anyio.Event()
    async with session.enter(lambda _: exceeded.set()):
        (tmp_path / "a").write_bytes(b"x" * 100)  # before any other task has a turn
        with anyio.fail_after(LIMIT_SECONDS):
            await exceeded.wait()
    tree.close()
