"""`corral packages`: adding, listing, removing and installing, with the registry of the environment."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corral import ConfigError
from corral.cli.dispatch import run
from corral.packages import NpmPackages, PackageFolder
from tests.foreign import PACKAGES

INEXACT = "is not exact: a range or a tag can mean different code tomorrow; write a version with three numbers, as in jszip@1.2.3"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)

    def corral(*arguments: str) -> tuple[int, str, str]:
        code = run(["packages", *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    return corral


def test_packages_are_added_listed_and_removed(command: Command, tmp_path: Path) -> None:
    code, out, told = command("add", "uuid@11.1.0", "marked")  # the newest one, which is written down exactly
    marked = out.removeprefix("added uuid@11.1.0\nadded ").strip()
    assert (code, bool(re.fullmatch(r"marked@\d+\.\d+\.\d+", marked))) == (0, True)
    assert told == f"looking for the newest versions\ninstalling uuid@11.1.0, {marked}\n"
    told = "installing papaparse@5.5.3\n"
    assert command("add", "papaparse@5.5.3", "--browser") == (0, "added papaparse@5.5.3\n", told)
    assert command("list") == (0, f"{marked}\npapaparse@5.5.3 (browser)\nuuid@11.1.0\n", "")
    folder = tmp_path / "corral-packages"
    locked = json.loads((folder / "deno.lock").read_text())["npm"]
    assert all(each["integrity"].startswith("sha512-") for each in locked.values())
    assert {"uuid@11.1.0", "esbuild@0.25.12", "@esbuild/linux-x64@0.25.12", "@esbuild/linux-arm64@0.25.12"} < set(
        locked
    )
    assert (folder / ".gitignore").read_text() == "node_modules/\n"
    assert NpmPackages("corral-packages").allowed == ("marked", "papaparse", "uuid")
    assert command("remove", "marked") == (0, "removed marked\n", "")
    assert command("list") == (0, "papaparse@5.5.3 (browser)\nuuid@11.1.0\n", "")
    assert not [key for key in json.loads((folder / "deno.lock").read_text())["npm"] if key.startswith("marked@")]


def test_a_folder_is_installed_from_its_lock_and_nothing_else(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("add", "uuid@11.1.0", "--folder", "there")
    kept, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    for name in ("deno.json", "deno.lock"):
        shutil.copy(kept / name, here)
    with pytest.raises(ConfigError, match=r"uuid@11\.1\.0 is not installed in .*; corral packages install --folder"):
        NpmPackages(here)
    assert command("install", "--folder", "here") == (0, "installed 1 package\n", "installing the locked packages\n")
    assert NpmPackages(here).allowed == ("uuid",)
    before = (here / "deno.lock").read_text()
    (here / "deno.lock").write_text(re.sub(r'("uuid@11.1.0": \{\s+"integrity": "sha512-)....', r"\1AAAA", before))
    shutil.rmtree(here / "node_modules")
    monkeypatch.setenv("DENO_DIR", str(tmp_path / "empty"))  # what is fetched is held against the lock
    code, _, said = command("install", "--folder", "here")
    assert code == 2
    assert "cannot install the packages" in said
    assert "Actual: " in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add"], "`corral packages add` needs a name, such as jszip@3.10.1"),
        *(
            (["add", f"jszip@{version}"], f"jszip@{version} {INEXACT}")
            for version in ("^3.10.1", "3.x", "3", ">=3", "latest", "*")
        ),
        (["add", "a b@1.0.0"], "'a b@1.0.0' is not NAME@VERSION, such as jszip@3.10.1"),
        (["add", "../x@1.0.0"], "'../x@1.0.0' is not NAME@VERSION, such as jszip@3.10.1"),
        (["remove", "nope"], "there is no package 'nope' in {folder}; its packages: none"),
        (["install"], "there is no {folder}/deno.lock; corral packages add NAME@VERSION makes it"),
        (["install", "uuid"], "`corral packages install` takes no names: it installs all locked packages"),
    ],
)
def test_wrong_usage_is_said_with_the_remedy(command: Command, tmp_path: Path, arguments: list[str], said: str) -> None:
    folder = tmp_path / "corral-packages"
    code, out, error = command(*arguments)
    assert (code, out, error.removeprefix("installing the locked packages\n")) == (
        2,
        "",
        f"error: {said.format(folder=folder)}\n",
    )
    assert not folder.exists()


def test_a_version_that_does_not_exist_leaves_the_folder_as_it_was(command: Command, tmp_path: Path) -> None:
    command("add", "uuid@11.1.0")
    folder = tmp_path / "corral-packages"
    before = {name: (folder / name).read_bytes() for name in ("deno.json", "deno.lock")}
    code, _, said = command("add", "uuid@0.0.999")
    assert code == 2
    assert f"error: Deno cannot install the packages of {folder}: " in said
    assert "uuid" in said
    assert "backtrace" not in said
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_folder_without_packages_is_wrong_set_up(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there are no packages in .*; corral packages add NAME@VERSION --folder"):
        NpmPackages(tmp_path)


def test_versions_of_what_a_package_needs_are_read_off_the_lock() -> None:
    folder = PackageFolder(PACKAGES)
    packages = folder.packages()
    beneath = folder.versions_beneath(packages["exceljs"])
    assert beneath["uuid"] == {"8.3.2"}
    assert beneath["jszip"] == {packages["jszip"].version}
    assert folder.versions_beneath(packages["uuid"]) == {}
