"""The guest's modules as JavaScript: cached beside the sources, and recompiled whenever their inputs have changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from corral.guest import runtime
from corral.programs import strip_types

SOURCE = "export const one: number = 1;\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of our own in place of the guest's, and no result of another test."""
    (tmp_path / "typescript").mkdir()
    (tmp_path / "typescript" / "one.ts").write_text(SOURCE)

    def files(_package: str) -> Path:
        return tmp_path

    monkeypatch.setattr(runtime, "files", files)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    runtime.guest_javascript.cache_clear()
    return tmp_path / "typescript"


def anew(name: str = "one") -> str:
    runtime.guest_javascript.cache_clear()
    return runtime.guest_javascript(name)


def kept(folder: Path) -> list[Path]:
    return [*(folder / "__pycache__").glob("*")]


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    runtime.guest_javascript.cache_clear()


def test_a_result_is_kept_and_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert anew() == strip_types(SOURCE)
    assert [path.name for path in kept(folder)] == [f"one.{sys.implementation.cache_tag}.erased"]
    monkeypatch.delattr(runtime, "strip_types")
    assert anew() == strip_types(SOURCE)


def test_a_changed_source_is_erased_again(folder: Path) -> None:
    anew()
    (folder / "one.ts").write_text("export const one: string = '';\n")
    assert anew() == strip_types("export const one: string = '';\n")
    (place,) = kept(folder)
    place.write_text("// of another version\nexport const one = 2;\n")
    assert "2" not in anew()
    anew()
    place.write_bytes(place.read_bytes()[:-2])
    assert anew() == strip_types("export const one: string = '';\n")
    place.write_bytes(b"\xff\xfe")
    assert "2" not in anew()


def test_it_follows_the_rules_of_bytecode(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert anew() == strip_types(SOURCE)
    assert kept(folder) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    assert anew() == strip_types(SOURCE)
    assert kept(folder) == []
    assert len([*(tmp_path / "elsewhere").rglob("one.*.erased")]) == 1


def test_a_folder_that_cannot_be_written_to_is_none_of_the_hosts_trouble(folder: Path) -> None:
    (folder / "__pycache__").write_text("")  # a file in its place: root may write to any folder
    assert anew() == strip_types(SOURCE)
