"""A directory in which somebody hostile works at the same time, read and changed from outside."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from corral.sessions import tree as tree_module
from corral.sessions.tree import FileTree

SECRET = b"secret of the host"


@pytest.fixture(params=["openat2", "by steps"])
def tree(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileTree]:
    if request.param == "by steps":
        monkeypatch.setattr(tree_module, "_has_openat2", lambda: False)
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    opened = FileTree(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    yield opened
    opened.close()


def outcome(act: Callable[[], object]) -> object:
    """What it returns, or the number of its error."""
    try:
        return act()
    except OSError as error:
        return error.errno


def test_a_file_is_written_with_its_folders_read_and_removed(tree: FileTree) -> None:
    tree.write(["a", "b", "c.txt"], [b"one", b"two"])
    assert tree.read(["a", "b", "c.txt"], 100) == b"onetwo"
    assert [each.path for each in tree.list([], recursive=True, max_entries=10) or ()] == ["a", "a/b", "a/b/c.txt"]
    assert tree.remove(["a"])
    assert not tree.remove(["a"])
    assert tree.read(["a", "b", "c.txt"], 100) is None
    assert tree.list(["a"], recursive=False, max_entries=10) is None


def test_a_file_is_replaced_at_once_or_not_at_all(tree: FileTree, tmp_path: Path) -> None:
    tree.write(["a.txt"], [b"before"])

    def pieces() -> Iterator[bytes]:
        yield b"half of "
        raise ValueError("the source broke off")

    with pytest.raises(ValueError, match="broke off"):
        tree.write(["a.txt"], pieces())
    assert tree.read(["a.txt"], 100) == b"before"
    assert [each.name for each in (tmp_path / "root").iterdir()] == ["a.txt"]


LINKS: dict[str, Callable[[Path, Path], object]] = {
    "to a file": lambda root, outside: (root / "trap").symlink_to(outside / "secret.txt"),
    "to a folder": lambda root, outside: (root / "trap").symlink_to(outside),
    "to nothing": lambda root, outside: (root / "trap").symlink_to(outside / "nothing"),
    "to the root": lambda root, _: (root / "trap").symlink_to("/"),
    "by ..": lambda root, _: (root / "trap").symlink_to("../outside"),
    "to a link": lambda root, outside: [
        each.symlink_to(to) for each, to in ((root / "one", outside), (root / "trap", "one"))
    ],
    "to a descriptor": lambda root, _: (root / "trap").symlink_to("/proc/self/fd/1"),
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_no_link_is_followed(tree: FileTree, tmp_path: Path, link: Callable[[Path, Path], object]) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    link(root, outside)
    for path in (["trap"], ["trap", "secret.txt"], ["trap", "outside", "secret.txt"]):
        assert outcome(lambda path=path: tree.read(path, 1000)) in (None, errno.ELOOP, errno.ENOTDIR)
    assert outcome(lambda: tree.write(["trap", "new.txt"], [b"x"])) in (errno.ELOOP, errno.ENOTDIR)
    found = tree.stat(["trap"])
    assert found is not None
    assert found.kind == "link"
    tree.write(["trap"], [b"in its place"])
    assert tree.read(["trap"], 100) == b"in its place"
    assert sorted(each.name for each in outside.iterdir()) == ["secret.txt"]
    assert (outside / "secret.txt").read_bytes() == SECRET


def test_removing_a_folder_removes_links_and_not_what_they_lead_to(tree: FileTree, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "deep" / "link").symlink_to(tmp_path / "outside" / "secret.txt")
    assert tree.remove(["folder"])
    assert list((tmp_path / "root").iterdir()) == []
    assert (tmp_path / "outside" / "secret.txt").read_bytes() == SECRET


def _special(root: Path, kind: str) -> None:
    match kind:
        case "fifo":
            os.mkfifo(root / "trap")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(root / "trap"))
        case _:
            (root / "trap").mkdir()


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder"])
def test_what_is_no_file_is_refused_and_holds_nobody_up(tree: FileTree, tmp_path: Path, kind: str) -> None:
    _special(tmp_path / "root", kind)
    for read in (lambda: tree.read(["trap"], 10), lambda: tree.pieces(["trap"])):
        assert outcome(read) in (errno.EINVAL, errno.EISDIR, errno.ENXIO)
    assert tree.remove(["trap"])


def test_a_large_file_is_refused_before_it_is_read(tree: FileTree, tmp_path: Path) -> None:
    with (tmp_path / "root" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert outcome(lambda: tree.read(["sparse"], 1_000_000)) == errno.EFBIG


def test_a_tree_deeper_than_a_path_may_be_long_is_listed_in_part_and_removed(tree: FileTree, tmp_path: Path) -> None:
    current = os.open(tmp_path / "root", os.O_RDONLY)
    for _ in range(1100):  # more than Python recurses, and with these names longer than PATH_MAX
        os.mkdir("dddd", dir_fd=current)
        below = os.open("dddd", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    assert len(tree.list([], recursive=True, max_entries=10_000) or ()) == 100
    assert tree.remove(["dddd"])
    assert list((tmp_path / "root").iterdir()) == []


def test_folders_that_are_closed_to_their_owner_are_removed(tree: FileTree, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "closed"
    (folder / "below" / "deep").mkdir(parents=True)
    (folder / "below" / "file").write_text("x")
    for each in (folder / "below" / "deep", folder / "below", folder):
        each.chmod(0)
    assert tree.remove(["closed"])
    assert list((tmp_path / "root").iterdir()) == []


def test_names_that_are_no_text_are_listed_and_read(tree: FileTree, tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path / "root") + b"/\xff\xfe\n"))).write_bytes(b"found")
    entries = tree.list([], recursive=False, max_entries=10) or []
    assert [tree.read([entry.path], 10) for entry in entries] == [b"found"]


def test_more_files_than_asked_for_are_refused(tree: FileTree) -> None:
    for number in range(5):
        tree.write([f"{number}.txt"], [b""])
    with pytest.raises(OSError, match="more than 4 files"):
        tree.list([], recursive=True, max_entries=4)


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tree: FileTree, tmp_path: Path) -> None:
    """One thread swaps a folder for a link to the outside, another reads, writes and removes through it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "real").mkdir()
    (root / "real" / "secret.txt").write_bytes(b"inside")
    (root / "link").symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            for name in ("real", "link"):
                with suppress(OSError):  # the host has made a folder there meanwhile
                    (root / name).rename(root / "x")
                    (root / "x").rename(root / name)
            with suppress(OSError):
                (root / "x").rename(root / f"made by the host {number}")
            if ended.is_set():
                return

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes | None] = set()
    try:
        for _ in range(500):
            for act in (
                lambda: seen.add(tree.read(["x", "secret.txt"], 100)),
                lambda: tree.write(["x", "written.txt"], [b"w"]),
                lambda: tree.remove(["x", "secret.txt.none"]),
                lambda: tree.remove(["x", "written.txt"]),
            ):
                assert outcome(act) in (None, True, False, errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EEXIST)
    finally:
        ended.set()
        thread.join()
    assert SECRET not in seen
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_bytes() == SECRET
