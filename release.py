"""Makes a release: version, change log, packages, checks, bill of materials and tag. Uploads nothing.

`scripts/release VERSION` runs it. `--rehearse` does everything in a copy of the last commit, and leaves the packages in
build/release.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

__all__ = ["Refused", "check_packages", "main", "rehearse", "release", "set_version"]

ROOT = Path(__file__).parent
_UNRELEASED = re.compile(r"^## (\S+) \(unreleased\)$", re.MULTILINE)
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_LICENCES = ("LICENSE", "licenses.txt")


class Refused(Exception):
    """The release cannot be made. The message says why, and what to do."""


def release(root: Path, version: str, *, placeholders: bool = False) -> Path:
    """Releases the checkout `root`: commits, tags, and returns the folder with packages and bill of materials.

    Args:
        root: A clean checkout, which is changed.
        version: As in PEP 440, later than the version that was released last.
        placeholders: True to accept the example addresses of pyproject.toml.

    Raises:
        Refused: A check fails. Nothing is committed or tagged.
    """
    if _run(root, "git", "status", "--porcelain"):
        raise Refused("the checkout has changes; commit or discard them first")
    number = _parse_version(version)
    tags = _run(root, "git", "tag", "--list").split()
    if f"v{version}" in tags:
        raise Refused(f"the tag v{version} exists; choose a later version")
    earlier = [Version(tag[1:]) for tag in tags if re.fullmatch(r"v\d+(\.\d+)*\w*", tag)]
    if earlier and number <= max(earlier):
        raise Refused(f"{version} is not later than {max(earlier)}, which was released")
    start = _run(root, "git", "rev-parse", "HEAD").strip()
    set_version(root, version, datetime.datetime.now(datetime.UTC).date(), placeholders=placeholders)
    try:
        packages = root / "dist"
        shutil.rmtree(packages, ignore_errors=True)
        environment = {"SOURCE_DATE_EPOCH": _run(root, "git", "log", "-1", "--format=%ct").strip()}
        _run(root, sys.executable, "-m", "hatchling", "build", **environment)
        check_packages(root, packages, version)
        _install_and_describe(root, packages, version)
        _run(root, "git", "commit", "--quiet", "--message", f"Release {version}", "pyproject.toml", "CHANGELOG.md")
        _run(root, "git", "tag", "--annotate", f"v{version}", "--message", f"Corral {version}")
    except BaseException:
        _run(root, "git", "reset", "--quiet", "--hard", start)
        raise
    return packages


def set_version(root: Path, version: str, date: datetime.date, *, placeholders: bool) -> None:
    """Writes the version to pyproject.toml and the change log.

    Raises:
        Refused: The version is not valid, the change log has no unreleased section, or an address is an example.
    """
    _parse_version(version)
    project_file, log_file = root / "pyproject.toml", root / "CHANGELOG.md"
    project = project_file.read_text(encoding="utf-8")
    urls: Mapping[str, str] = tomllib.loads(project)["project"]["urls"]
    if not placeholders and (examples := [name for name, url in urls.items() if "//example." in url]):
        raise Refused(f"the addresses of {', '.join(examples)} in pyproject.toml are examples; set [project.urls]")
    log = log_file.read_text(encoding="utf-8")
    if len(_UNRELEASED.findall(log)) != 1:
        raise Refused("CHANGELOG.md needs one heading such as '## 0.2.0 (unreleased)'")
    log_file.write_text(_UNRELEASED.sub(f"## {version} ({date})", log), encoding="utf-8")
    project_file.write_text(_VERSION.sub(f'version = "{version}"', project, count=1), encoding="utf-8")


def _parse_version(version: str) -> Version:
    try:
        number = Version(version)
    except InvalidVersion:
        raise Refused(f"{version!r} is not a version as in PEP 440") from None
    if str(number) != version:
        raise Refused(f"{version!r} is not a version as in PEP 440; write {number}")
    return number


def check_packages(root: Path, packages: Path, version: str) -> None:
    """Checks that the wheel has all files of the package and the licences, and that the sdist makes the same wheel.

    Raises:
        Refused: A file is missing or superfluous, or the metadata are wrong.
    """
    [wheel] = packages.glob("*.whl")
    [sdist] = packages.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        contents = {each.filename: archive.read(each) for each in archive.infolist()}
    tracked = _run(root, "git", "ls-files", "src/corral").splitlines()
    expected = {each.removeprefix("src/") for each in tracked}
    extra = {name for name in contents if not name.startswith(f"corral-{version}.dist-info/")}
    if expected != extra:
        raise Refused(f"the wheel and src/corral differ: {', '.join(sorted(expected ^ extra)[:5])}")
    licences = [name for name in contents if "/licenses/" in name]
    if missing := [name for name in _LICENCES if not any(each.endswith(name) for each in licences)]:
        raise Refused(f"the wheel lacks the licences {', '.join(missing)}; see license-files in pyproject.toml")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        [source] = Path(folder).iterdir()
        _run(source, sys.executable, "-m", "hatchling", "build", "--target", "wheel")
        [again] = source.glob("dist/*.whl")
        with zipfile.ZipFile(again) as archive:
            if {each.filename: archive.read(each) for each in archive.infolist()} != contents:
                raise Refused("the wheel made from the sdist differs from the wheel")
    _run(root, sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)


def _install_and_describe(root: Path, packages: Path, version: str) -> None:
    """Installs the wheel into a new environment, runs the first example there, and writes the bill of materials."""
    [wheel] = packages.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        _run(root, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        shutil.copy(root / "examples" / "quickstart.py", folder)
        printed = _run(Path(folder), python, "quickstart.py")
        if "'coldest': -6.5" not in printed:
            raise Refused(f"the first example prints {printed!r} with the wheel")
        _run(root, python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")
        bill = packages / f"corral-{version}.cdx.json"
        options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--mc-type", "library", "--of", "JSON"]
        _run(root, sys.executable, "-m", "cyclonedx_py", "environment", *options, "--output-file", bill, python)
    _add_bundled(root, bill)


def _add_bundled(root: Path, bill: Path) -> None:
    """Adds the packages of npm that the chat page is built from."""
    lock = json.loads((root / "web" / "package-lock.json").read_text(encoding="utf-8"))
    content = json.loads(bill.read_text(encoding="utf-8"))
    bundled = [
        {
            "type": "library",
            "bom-ref": f"npm:{name}@{each['version']}",
            "name": name,
            "version": each["version"],
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{each['version']}",
            "licenses": [{"expression": each["license"]}],
        }
        for path, each in sorted(lock["packages"].items())
        if path and not each.get("dev")
        for name in [path.rpartition("node_modules/")[2]]
    ]
    content["components"] += bundled
    bill.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def rehearse(root: Path, version: str, target: Path) -> Path:
    """Releases a copy of the last commit of `root`, and returns `target` with the packages and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "corral")
        _run(root, "git", "clone", "--quiet", root, copy)
        for key in ("user.name", "user.email"):
            _run(copy, "git", "config", key, "rehearsal")
        packages = release(copy, version, placeholders=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(packages, target)
    return target


def _run(folder: Path, *command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command[:4]))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Releases, or rehearses, as the arguments say."""
    parser = argparse.ArgumentParser(prog="scripts/release", description="Makes a release; uploads nothing.")
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--rehearse", action="store_true", help="in a copy; the packages go to build/release")
    options = parser.parse_args(arguments)
    try:
        if options.rehearse:
            print(f"rehearsed: {rehearse(ROOT, options.version, ROOT / 'build' / 'release')}")
            return
        packages = release(ROOT, options.version)
    except Refused as refused:
        sys.exit(f"error: {refused}")
    print(
        f"{packages} has the packages of v{options.version}. To publish them: git push --follow-tags, and upload dist/*"
    )


if __name__ == "__main__":
    main()
