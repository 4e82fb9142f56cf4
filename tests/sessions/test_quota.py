"""Quotas of directories that the host looks at."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral import ExecutionContext
from corral.sessions import OpenSession, quota
from corral.sessions import tree as tree_module
from corral.sessions.files import Tree
from corral.sessions.tree import FileTree, Usage
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


async def test_what_a_program_writes_at_once_counts_against_the_quota(tmp_path: Path) -> None:
    tree = FileTree(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    space: Any = SimpleNamespace(space=SimpleNamespace(home="/workspace", file_bytes=1_000))
    mount = Tree("/workspace", tree, host_writes=True, program_writes=True, own=False, most=Usage(10, 10))
    session = OpenSession(ExecutionContext(), space, [mount], [], {})
    exceeded = anyio.Event()
    async with session.enter(lambda _: exceeded.set()):
        (tmp_path / "a").write_bytes(b"x" * 100)  # before any other task has a turn
        with anyio.fail_after(LIMIT_SECONDS):
            await exceeded.wait()
    tree.close()


async def test_no_program_starts_where_there_is_far_more_than_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_EXCESS", Usage(0, 0))
    tree = FileTree(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    space: Any = SimpleNamespace(space=SimpleNamespace(home="/workspace", file_bytes=1_000))
    mount = Tree("/workspace", tree, host_writes=True, program_writes=True, own=False, most=Usage(10, 10))
    session = OpenSession(ExecutionContext(), space, [mount], [], {})
    for size, reasons in ((20, 0), (21, 1)):
        (tmp_path / "a").write_bytes(b"x" * size)
        over: list[str] = []
        async with session.enter(over.append):
            assert len(over) == reasons
    tree.close()


def test_folders_are_measured_at_any_depth_even_if_their_paths_are_too_long(tmp_path: Path) -> None:
    tree = FileTree(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    for depth in range(300):
        os.mkdir("d" * 100, dir_fd=folder)
        file = os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
        os.write(file, b"x" * depth)
        os.close(file)
        inner = os.open("d" * 100, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    assert tree.measure(Usage(1 << 30, 10_000)) == Usage(sum(range(300)), 600)
    assert tree.measure(Usage(100, 10_000)).bytes > 100
    tree.close()


def test_a_folder_that_is_moved_while_it_is_measured_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "root" / name / "moved" for name in ("a", "b")]
    for place in places:
        place.parent.mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"x" * 1000)
    places[0].mkdir()
    go = tree_module._moved_on  # pyright: ignore[reportPrivateUsage]

    def moved_on(folder: int, name: str) -> int:
        found = go(folder, name)
        if name == "moved":
            here = next(place for place in places if place.exists())
            here.rename(next(place for place in places if place != here))
        return found

    monkeypatch.setattr(tree_module, "_moved_on", moved_on)
    tree = FileTree(os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY))
    with pytest.raises(OSError, match="folders were moved"):
        tree.measure(Usage(1 << 30, 10_000))
    tree.close()
