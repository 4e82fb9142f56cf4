"""A release has everything that it needs, is refused where it is wrong, and can be rehearsed from start to end."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from release import Refused, check_packages, rehearse, release, set_version

ROOT = Path(__file__).parents[1]
DATE = datetime.date(2026, 11, 30)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with the files that a release changes."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_a_release_sets_the_version_and_the_date_of_the_change_log(project: Path) -> None:
    set_version(project, "0.1.5", DATE, placeholders=True)
    assert tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["version"] == "0.1.5"
    log = (project / "CHANGELOG.md").read_text("utf-8")
    assert "\n## 0.1.5 (2026-11-30)\n" in log
    assert "(unreleased)" not in log
    with pytest.raises(Refused, match=r"needs one heading such as '## 0\.2\.0 \(unreleased\)'"):
        set_version(project, "0.1.6", DATE, placeholders=True)


@pytest.mark.parametrize(
    ("version", "message"), [("1.0-beta1", "write 1.0b1"), ("v1.0", "write 1.0"), ("one", "not a version")]
)
def test_versions_that_are_not_normal_are_refused(project: Path, version: str, message: str) -> None:
    before = (project / "pyproject.toml").read_text("utf-8")
    with pytest.raises(Refused, match=message):
        set_version(project, version, DATE, placeholders=True)
    assert (project / "pyproject.toml").read_text("utf-8") == before


def test_a_release_with_example_addresses_is_refused(project: Path) -> None:
    with pytest.raises(Refused, match=r"Homepage, .*Repository.* are examples; set \[project.urls\]"):
        set_version(project, "0.1.5", DATE, placeholders=False)


def test_a_release_needs_a_clean_checkout_and_a_later_version(project: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)

    git("init")
    with pytest.raises(Refused, match="has changes"):
        release(project, "0.1.5")
    git("add", ".")
    git("commit", "--message", "First")
    git("tag", "v0.2.0")
    with pytest.raises(Refused, match=r"v0\.2\.0 exists"):
        release(project, "0.2.0")
    with pytest.raises(Refused, match=r"0\.1\.5 is not later than 0\.2\.0"):
        release(project, "0.1.5")
    with pytest.raises(Refused, match="'later' is not a version"):
        release(project, "later")
    with pytest.raises(Refused, match="hatchling build failed"):
        release(project, "0.3.0", placeholders=True)
    assert 'version = "0.3.0"' not in (project / "pyproject.toml").read_text("utf-8")


def test_dependencies_for_development_are_locked_without_addresses() -> None:
    lock = (ROOT / "requirements-dev.txt").read_text("utf-8")
    locked = {*re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE)}
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras: dict[str, list[str]] = content["project"]["optional-dependencies"]
    direct: list[str] = [*content["project"]["dependencies"], *content["dependency-groups"]["dev"]]
    direct += [each for extra in extras.values() for each in extra]
    names = {re.split(r"[\[<>=;! ]", each)[0].lower() for each in direct} - {"corral"}
    assert names - locked == set()
    assert "://" not in lock


def test_every_package_of_the_page_has_its_licence_in_the_wheel() -> None:
    lock = json.loads((ROOT / "web/package-lock.json").read_text("utf-8"))
    text = (ROOT / "src/corral/chat/static/licenses.txt").read_text("utf-8")
    packages = {
        f"{path.rpartition('node_modules/')[2]} {each['version']}"
        for path, each in lock["packages"].items()
        if path and not each.get("dev")
    }
    assert {each for each in packages if f"{each} (" not in text} == set()
    assert len(packages) > 30


def test_issue_forms_are_valid_and_ask_for_what_is_needed() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*")}
    assert {*forms} == {"bug", "config", "documentation", "idea"}
    for name in {*forms} - {"config"}:
        assert {"name", "description", "body"} <= {*forms[name]}
        ids = [field["id"] for field in forms[name]["body"]]
        assert len(ids) == len({*ids})
        assert any(field.get("validations", {}).get("required") for field in forms[name]["body"])


@pytest.mark.matrix(
    "the gate checks each refusal; the whole release of a copy of the last commit, which takes a minute"
)
def test_a_release_can_be_rehearsed(tmp_path: Path) -> None:
    packages = rehearse(ROOT, "99.0.0", tmp_path / "packages")
    [wheel] = packages.glob("corral-99.0.0-*.whl")
    bill = json.loads((packages / "corral-99.0.0.cdx.json").read_text("utf-8"))
    assert {"pydantic", "deno", "anyio", "shiki", "react"} <= {each["name"] for each in bill["components"]}
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("corral", "99.0.0")
    with tarfile.open(packages / "corral-99.0.0.tar.gz") as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    assert {"CONTRIBUTING.md", "SECURITY.md", "web/package.json", "bench/__main__.py", "docs/README.md"} <= names
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("corral/superfluous.py", "")
    with pytest.raises(Refused, match=r"the wheel and src/corral differ: corral/superfluous\.py"):
        check_packages(ROOT, packages, "99.0.0")
