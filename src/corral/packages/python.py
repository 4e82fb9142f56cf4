"""Python packages for programs: a folder of locked wheels, which the host itself never imports."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple, cast

from corral.arguments import checked, did_you_mean
from corral.errors import ConfigError
from corral.sandboxes.jailed.python_runtime import modules_of
from corral.types import PythonModules

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_EXACT = re.compile(rf"({_NAME.pattern})==([0-9][\w.!+-]*)", re.ASCII)
_LOCKED = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+) --hash=sha256:[0-9a-f]{64}(?P<named>  # named)?", re.ASCII)
_ADD = "corral packages add NAME==VERSION --python"
_INSTALL = "corral packages install --python"
_MESSAGE_CHARS = 2000
_FONT_CACHE = ".matplotlib"
"""Name of the folder with matplotlib's font list; guest/python/zygote.py uses the same name."""
_FONT_LIST = re.compile(r"fontlist-[\w.+-]{1,40}\.json", re.ASCII)
_MAX_FONT_LIST = 4_000_000


class Wheel(NamedTuple):
    """A package with an exact version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


class PythonFolder:
    """The part `python` of the user's packages folder.

    For each Python version and system it has a lock, which belongs in version control, and a folder of the same name
    with the installed packages, which does not.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._python = self.path / "python"
        self._tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"

    @property
    def modules(self) -> Path:
        """Folder to put on the module path of programs."""
        return self._python / self._tag

    @property
    def lock(self) -> Path:
        return self._python / f"{self._tag}.lock"

    def parse(self, text: str) -> Wheel:
        """Reads `NAME==VERSION`.

        Raises:
            ConfigError: the text is not a name with an exact version.
        """
        match = _EXACT.fullmatch(text)
        if match is None:
            raise ConfigError(f"{text!r} is not NAME==VERSION: write a name and an exact version, as in pandas==2.2.3")
        return Wheel(_normal(match[1]), match[2])

    def newest(self, name: str) -> Wheel:
        """Asks the registry for the newest version of a package that has a wheel for this Python and system.

        Raises:
            ConfigError: it is not a package name, or pip finds no wheel.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a package name, such as pandas")
        installs = _report(name)
        return next(
            Wheel(_normal(name), each["metadata"]["version"])
            for each in installs
            if _normal(each["metadata"]["name"]) == _normal(name)
        )

    def packages(self) -> dict[str, Wheel]:
        """Returns the packages that the user named; empty if there is no lock for this Python.

        Raises:
            ConfigError: `corral packages` has not written the lock.
        """
        return {name: wheel for name, (wheel, named) in self._locked().items() if named}

    def add(self, packages: Iterable[Wheel]) -> None:
        """Installs these packages in addition to those present. If that fails, the folder is unchanged.

        Raises:
            ConfigError: pip finds no compatible wheels, or cannot install them.
        """
        self._change(self.packages() | {each.name: each for each in packages})

    def remove(self, names: Iterable[str]) -> None:
        """Removes packages from the folder, with dependencies that no other package needs.

        Raises:
            ConfigError: one of them is not in it, or pip cannot install the others.
        """
        packages = self.packages()
        for name in names:
            if packages.pop(_normal(name), None) is None:
                raise ConfigError(f"there is no package {name!r} in {self._python}; its packages: {_listed(packages)}")
        self._change(packages)

    def install(self) -> None:
        """Installs exactly the locked packages.

        Raises:
            ConfigError: there is no lock for this Python, or pip cannot install it.
        """
        if not self.lock.exists():
            raise ConfigError(f"there is no {self.lock}, the lock for this Python and system; {_ADD} makes it")
        self._locked()
        self._replace(self.lock.read_text(encoding="utf-8"))

    @property
    def has_matplotlib(self) -> bool:
        return "matplotlib" in self._locked()

    def keep_fonts(self, made: object) -> None:
        """Stores the name and text of the font list that matplotlib made in a jail.

        Raises:
            ConfigError: it is not a font list.
        """
        match made:
            case [str() as name, str() as text] if _FONT_LIST.fullmatch(name) and len(text) <= _MAX_FONT_LIST:
                folder = self.modules / _FONT_CACHE
                folder.mkdir(mode=0o755, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            case _:
                raise ConfigError("matplotlib did not make a font list")

    def require_installed(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the modules of each package that the user named.

        Raises:
            ConfigError: there are no packages, or one is not installed.
        """
        locked = self._locked()
        if not locked:
            there = ", ".join(sorted(each.stem for each in self._python.glob("*.lock"))) or "no other"
            raise ConfigError(
                f"there are no Python packages for {self._tag} in {self._python} (there are some for: {there}); "
                f"{_ADD} --folder {self.path} adds one"
            )
        installed = {_normal(each.name): each for each in distributions(path=[str(self.modules)])}
        for name, (wheel, _) in locked.items():
            if name not in installed or installed[name].version != wheel.version:
                raise ConfigError(f"{wheel} is not installed in {self._python}; {_INSTALL} --folder {self.path}")
        return {name: modules_of(installed[name]) for name, (_, named) in locked.items() if named}

    def digest(self) -> str:
        """Returns a digest of the lock."""
        return sha256(self.lock.read_bytes()).hexdigest()

    def _locked(self) -> dict[str, tuple[Wheel, bool]]:
        """Returns the locked packages, each with whether the user named it."""
        lines = self.lock.read_text(encoding="utf-8").splitlines() if self.lock.exists() else []
        wheels: dict[str, tuple[Wheel, bool]] = {}
        for line in lines:
            match = _LOCKED.fullmatch(line)
            if match is None:
                raise ConfigError(f"{self.lock} is not from `corral packages`: {line[:100]!r}")
            wheels[_normal(match["name"])] = Wheel(_normal(match["name"]), match["version"]), match["named"] is not None
        return wheels

    def _change(self, packages: Mapping[str, Wheel]) -> None:
        self._python.mkdir(parents=True, exist_ok=True)
        lock = "".join(f"{line}\n" for line in _resolved(packages)) if packages else ""
        self._replace(lock)
        self.lock.write_text(lock, encoding="utf-8")
        ignored = self._python / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*/\n", encoding="utf-8")

    def _replace(self, lock: str) -> None:
        """Replaces the installed modules with the packages of a lock."""
        with tempfile.TemporaryDirectory(dir=self._python) as scratch:
            made, requirements = Path(scratch) / "made", Path(scratch) / "requirements.txt"
            made.mkdir(mode=0o755)
            requirements.write_text(lock, encoding="utf-8")
            if lock:
                _pip("--no-deps", "--require-hashes", "--target", str(made), "--requirement", str(requirements))
            with contextlib.suppress(FileNotFoundError):
                self.modules.rename(Path(scratch) / "old")
            made.rename(self.modules)


@checked
class PythonPackages:
    """Packages that Python programs may import: `Corral(packages=PythonPackages("corral-packages"))`.

    `corral packages add --python` creates the `folder`. `preload` lists modules in it, such as `pandas` or
    `matplotlib.pyplot`, to import before programs start, so that programs do not wait for them. The folder is read
    once, by the constructor.

    Raises:
        ConfigError: the packages are not installed, or `preload` names another module.
    """

    def __init__(self, folder: str | Path, *, preload: Collection[str] = ()) -> None:
        self._folder = PythonFolder(folder)
        self.allowed: tuple[str, ...] = tuple(
            sorted({name for names in self._folder.require_installed().values() for name in names})
        )
        for name in preload:
            if name.partition(".")[0] not in self.allowed:
                raise ConfigError(
                    f"preload: there is no module {name!r} in {self._folder.modules}; "
                    f"{did_you_mean(name, self.allowed)}its modules: {', '.join(self.allowed)}"
                )
        self.modules = PythonModules(self._folder.modules, self._folder.digest(), self.allowed, tuple(preload))

    def __repr__(self) -> str:
        return f"PythonPackages({str(self._folder.modules)!r}, preload={list(self.modules.preloaded)})"


def _resolved(packages: Mapping[str, Wheel]) -> Iterator[str]:
    """Yields the lines of a lock for these packages and their dependencies. Each is a wheel with its hash."""
    for each in _report(*map(str, packages.values())):
        name, version = _normal(each["metadata"]["name"]), each["metadata"]["version"]
        digest = each["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            raise ConfigError(
                f"the registry has no sha256 of {name}=={version}, so it cannot be locked; use another one"
            )
        yield f"{name}=={version} --hash=sha256:{digest}{'  # named' if name in packages else ''}"


def _report(*requirements: str) -> list[dict[str, Any]]:
    """Lists what pip would install for these requirements."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        _pip("--dry-run", "--ignore-installed", "--report", str(report), *requirements)
        return cast("list[dict[str, Any]]", json.loads(report.read_bytes())["install"])


def _pip(*options: str) -> None:
    """Runs `pip install` for wheels only, which runs no code of packages. The environment configures the registry."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--only-binary=:all:", *options], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        messages = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = "; ".join(messages or done.stderr.strip().splitlines()[-1:])[:_MESSAGE_CHARS]
        raise ConfigError(f"pip cannot install Python packages: {reason}")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _listed(packages: Mapping[str, Wheel]) -> str:
    return ", ".join(sorted(packages)) or "none"
