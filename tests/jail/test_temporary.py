"""Temporary folders: whose they are, and that they go however their process ends, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.guest import RuntimeDirectory
from corral.jail import temporary
from corral.jail.temporary import TemporaryFolder

MAKER = """
import sys
from corral.jail.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "code.js").write_text("x")
(folder.path / "link").symlink_to(sys.argv[1])
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@contextmanager
def maker(place: Path, target: Path) -> Generator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder, with a link to `target` in it."""
    command = [sys.executable, "-c", MAKER, str(target)]
    environment = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_others_may_read_a_folder_but_not_list_its_neighbours(place: Path) -> None:
    folder = TemporaryFolder()
    assert folder.path.parent == folder.home
    assert [path.stat().st_mode & 0o777 for path in (folder.path, folder.path.parent)] == [0o755, 0o711]
    folder.close()


def test_all_of_a_process_are_in_one_which_goes_with_the_last(place: Path) -> None:
    first, second = TemporaryFolder(), TemporaryFolder()
    assert [first.home] == [second.home] == [*place.iterdir()]
    first.close()
    first.close()
    assert second.path.is_dir()
    del second
    assert [*place.iterdir()] == []


def test_a_folder_is_made_anew_where_somebody_has_removed_all(place: Path) -> None:
    first = TemporaryFolder()
    first.path.rmdir()
    (first.path.parent / ".held").unlink()
    first.path.parent.rmdir()
    second = TemporaryFolder()
    assert second.path.is_dir()
    first.close()
    assert second.path.is_dir()
    second.close()
    assert [*place.iterdir()] == []


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.matrix("nothing handles it, so it ends as by SIGKILL")),
    ],
)
def test_what_a_process_left_that_was_killed_goes_when_the_next_one_makes_its_first(
    place: Path, tmp_path: Path, number: signal.Signals
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine", encoding="utf-8")
    with maker(place, kept) as (killed, left), maker(place, kept) as (_, living):
        killed.send_signal(number)
        killed.wait()
        assert left.is_dir()
        folder = TemporaryFolder()
        assert not left.parent.exists()
        assert living.is_dir()
        assert (living / "link" / "file").read_text(encoding="utf-8") == "mine"
        folder.close()


def test_nothing_is_cleared_that_is_not_provably_left(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for folder in (elsewhere, place / "corral-mine", place / "corral-pipe", place / "corral-link"):
        folder.mkdir()
        (folder / "file").write_text("mine", encoding="utf-8")
    (elsewhere / ".held").touch()
    (place / "corral-to-elsewhere").symlink_to(elsewhere)
    os.mkfifo(place / "corral-pipe" / ".held")
    (place / "corral-link" / ".held").symlink_to(elsewhere / ".held")
    (place / "corral-file").touch()
    (place / "other").mkdir()
    (place / "other" / ".held").touch()
    before = sorted(tmp_path.rglob("*"))
    TemporaryFolder().close()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")
def test_nothing_of_another_user_is_cleared(place: Path) -> None:
    for name, of_folder, of_file in (("corral-a", 65534, 0), ("corral-b", 0, 65534)):
        (place / name).mkdir()
        (place / name / ".held").touch()
        os.chown(place / name, of_folder, -1)
        os.chown(place / name / ".held", of_file, -1)
    TemporaryFolder().close()
    assert sorted(path.name for path in place.iterdir()) == ["corral-a", "corral-b"]


def test_a_process_that_is_forked_off_leaves_its_parents_alone_and_has_its_own(place: Path) -> None:
    folder = TemporaryFolder()
    child = os.fork()
    if child == 0:
        own = TemporaryFolder()
        good = folder.home is None and own.home not in (None, folder.path.parent)
        own.close()
        folder.close()
        os._exit(0 if good and not own.path.exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder.path.is_dir()
    folder.close()


def test_code_that_cannot_be_written_leaves_nothing(place: Path) -> None:
    directory = RuntimeDirectory(lambda: {"good.js": "1", "no/such/folder.js": "2"})
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            directory.prepare()
    assert [*place.iterdir()] == []


def test_no_place_is_an_error_that_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(OSError, match="/nowhere"):
        TemporaryFolder()
    assert "/nowhere" not in temporary._homes  # pyright: ignore[reportPrivateUsage]
