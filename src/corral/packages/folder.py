"""A folder of packages: its `deno.json`, its lock, and `deno install`, which fills its `node_modules`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import deno

from corral.errors import ConfigError

_BUNDLER = "corral:bundler"
"""Key of the bundler among the imports. A colon is in no name of a package."""
_BUNDLER_VERSION = "0.25.12"
_BUNDLER_PLACE = ".deno/@esbuild+*@{version}/node_modules/@esbuild/*/bin/esbuild"
_PACKAGE = re.compile(r"(?P<name>(?:@[\w.~-]+/)?[A-Za-z0-9~-][\w.~-]*)(?:@(?P<version>.*))?", re.ASCII)
_EXACT = re.compile(r"\d+\.\d+\.\d+(?:-[\w.-]+)?(?:\+[\w.-]+)?", re.ASCII)
_ADD = "corral packages add NAME@VERSION"
_INSTALL = "corral packages install"
_SAID_CHARS = 2000


class Pinned(NamedTuple):
    """A package of exactly one version. `browser`: its build for browsers is bundled."""

    name: str
    version: str
    browser: bool = False

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def parse_package(text: str, *, browser: bool = False) -> Pinned:
    """Reads `NAME@VERSION`.

    Raises:
        ConfigError: it is not a name with an exact version.
    """
    found = _PACKAGE.fullmatch(text.removeprefix("npm:"))
    if found is None:
        raise ConfigError(f"{text!r} is not NAME@VERSION, such as jszip@3.10.1")
    name, version = found["name"], found["version"]
    if not version:
        raise ConfigError(f"{name} has no version: write one exactly, as in {name}@1.2.3")
    if not _EXACT.fullmatch(version):
        raise ConfigError(
            f"{name}@{version} is not exact: a range or a tag may stand for other code tomorrow; write a "
            f"version with three numbers, as in {name}@1.2.3"
        )
    return Pinned(name, version, browser)


class PackageFolder:
    """The user's folder: `deno.json` and `deno.lock` are to be kept with the user's code, `node_modules` is not."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    @property
    def modules(self) -> Path:
        return self.path / "node_modules"

    @property
    def lock(self) -> Path:
        return self.path / "deno.lock"

    @property
    def _settings(self) -> Path:
        return self.path / "deno.json"

    def packages(self) -> dict[str, Pinned]:
        """The packages by their names. None, if there is no folder.

        Raises:
            ConfigError: its `deno.json` is not one that `corral packages` has written.
        """
        settings = _read_json(self._settings) if self._settings.exists() else {}
        imports, own = settings.get("imports", {}), settings.get("corral", {})
        if not isinstance(imports, dict) or not isinstance(own, dict):
            raise ConfigError(f"{self._settings} is not of `corral packages`: it has no object of imports")
        browser = cast("dict[str, Any]", own).get("browser", [])
        found: dict[str, Pinned] = {}
        for name, specifier in cast("dict[str, object]", imports).items():
            if name == _BUNDLER:
                continue
            package = parse_package(str(specifier), browser=name in browser)
            if package.name != name:
                raise ConfigError(f"{self._settings} imports {package} as {name!r}; packages have no other names here")
            found[name] = package
        return found

    def newest(self, name: str, *, browser: bool = False) -> Pinned:
        """Asks the registry for the version of a package that is the latest now.

        Raises:
            ConfigError: it is not the name of a package, or Deno does not find it.
        """
        found = _PACKAGE.fullmatch(name)
        if found is None or found["version"] is not None:
            raise ConfigError(f"{name!r} is not the name of a package, such as jszip")
        with tempfile.TemporaryDirectory() as scratch:
            there = PackageFolder(scratch)
            there._settings.write_text(json.dumps({"imports": {name: f"npm:{name}@latest"}}), encoding="utf-8")
            there._deno("--lockfile-only")
            specifiers: dict[str, str] = _read_json(there.lock).get("specifiers", {})
        return Pinned(name, _split(f"{name}@{specifiers[f'npm:{name}@latest']}")[1], browser)

    def add(self, packages: Iterable[Pinned]) -> None:
        """Installs these packages beside those that are there. If that fails, the folder is as before.

        Raises:
            ConfigError: Deno does not install them.
        """
        self._change(self.packages() | {each.name: each for each in packages})

    def remove(self, names: Iterable[str]) -> None:
        """Takes packages out of the folder.

        Raises:
            ConfigError: one of them is not there, or Deno does not install the others.
        """
        packages = self.packages()
        for name in names:
            if name not in packages:
                raise ConfigError(f"there is no package {name!r} in {self.path}; there are: {_listed(packages)}")
            del packages[name]
        self._change(packages)

    def install(self) -> None:
        """Fills `node_modules` with exactly what the lock says.

        Raises:
            ConfigError: there is no lock, it does not fit `deno.json`, or Deno does not install it.
        """
        if not self.lock.exists():
            raise ConfigError(f"there is no {self.lock}; {_ADD} makes it")
        self._deno("--frozen")

    def require_installed(self) -> dict[str, Pinned]:
        """The packages, all of which are installed.

        Raises:
            ConfigError: there are none, or they are not installed.
        """
        packages = self.packages()
        if not packages or not self.lock.exists():
            raise ConfigError(f"there are no packages in {self.path}; {_ADD} --folder {self.path} adds one")
        for package in packages.values():
            try:
                installed = _read_json(self.modules / package.name / "package.json").get("version")
            except ConfigError:
                installed = None
            if installed != package.version:
                raise ConfigError(f"{package} is not installed in {self.path}; {_INSTALL} --folder {self.path}")
        return packages

    def bundler(self) -> Path:
        """The executable of the bundler.

        Raises:
            ConfigError: it is not installed.
        """
        for found in self.modules.glob(_BUNDLER_PLACE.format(version=_BUNDLER_VERSION)):
            return found.resolve()
        raise ConfigError(
            f"esbuild {_BUNDLER_VERSION} is not installed in {self.path}; {_INSTALL} --folder {self.path}"
        )

    def digest(self) -> str:
        """A digest of all that decides what is installed."""
        return sha256(self.lock.read_bytes()).hexdigest()

    def versions_beneath(self, package: Pinned) -> Mapping[str, set[str]]:
        """Versions by name, of all packages that one needs, directly or not."""
        locked: dict[str, dict[str, Any]] = _read_json(self.lock).get("npm", {})
        by_name: dict[str, list[str]] = {}
        for key in locked:
            by_name.setdefault(_split(key)[0], []).append(key)
        found: dict[str, set[str]] = {}
        waiting = [key for key in by_name.get(package.name, ()) if _split(key)[1] == package.version]
        seen = set(waiting)
        while waiting:
            entry = locked[waiting.pop()]
            for kind in ("dependencies", "optionalDependencies", "optionalPeers"):
                for named in entry.get(kind, ()):
                    name, version = _split(named.partition("npm:")[2] or named)
                    for key in by_name.get(name, ()):
                        if version in ("", _split(key)[1]):
                            found.setdefault(name, set()).add(_split(key)[1])
                            waiting += {key} - seen
                            seen.add(key)
        return found

    def _change(self, packages: Mapping[str, Pinned]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._restored_on_failure():
            imports = {name: f"npm:{package}" for name, package in sorted(packages.items())}
            settings = {
                "imports": {**imports, _BUNDLER: f"npm:esbuild@{_BUNDLER_VERSION}"},
                "nodeModulesDir": "manual",
                "corral": {"browser": sorted(each.name for each in packages.values() if each.browser)},
            }
            self._settings.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
            self._deno()
        ignored = self.path / ".gitignore"
        if not ignored.exists():
            ignored.write_text("node_modules/\n", encoding="utf-8")

    @contextlib.contextmanager
    def _restored_on_failure(self) -> Generator[None]:
        before = {path: path.read_bytes() if path.exists() else None for path in (self._settings, self.lock)}
        try:
            yield
        except BaseException:
            for path, content in before.items():
                if content is not None:
                    path.write_bytes(content)
                else:
                    path.unlink(missing_ok=True)
            raise

    def _deno(self, *options: str) -> None:
        """Runs `deno install`, which runs no script of a package. Registry and credentials are the environment's."""
        command = [deno.find_deno_bin(), "install", "--quiet", "--config", str(self._settings), *options]
        environment = {**os.environ, "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        try:
            done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"cannot start Deno, which installs packages: {error}; pip install deno") from error
        if done.returncode != 0:
            said = done.stderr.partition("Stack backtrace:")[0].strip()[:_SAID_CHARS]
            raise ConfigError(f"Deno does not install the packages of {self.path}: {said}")
        self._make_readable()

    def _make_readable(self) -> None:
        """Lets everybody read the packages, as the bundler's user has to: some are packed for their makers alone."""
        for parent, _, names in os.walk(self.modules):
            for name in names:
                path = Path(parent) / name
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) and mode & 0o044 != 0o044:
                    path.chmod(stat.S_IMODE(mode) | 0o044)


def _split(key: str) -> tuple[str, str]:
    """Name and version of a key of the lock, without the packages that it has for peers."""
    at = key.find("@", 1)
    return (key, "") if at < 0 else (key[:at], key[at + 1 :].partition("_")[0])


def _listed(packages: Mapping[str, Pinned]) -> str:
    return ", ".join(sorted(packages)) or "none"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", content)
