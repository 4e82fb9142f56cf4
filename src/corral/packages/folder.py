"""Folder of npm packages: `deno.json`, `deno.lock`, and `node_modules`, which `deno install` fills."""

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
"""Key of the bundler among the imports. It has a colon, which package names cannot have."""
_BUNDLER_VERSION = "0.25.12"
_BUNDLER_PLACE = ".deno/@esbuild+*@{version}/node_modules/@esbuild/*/bin/esbuild"
_PACKAGE = re.compile(r"(?P<name>(?:@[\w.~-]+/)?[A-Za-z0-9~-][\w.~-]*)(?:@(?P<version>.*))?", re.ASCII)
_EXACT = re.compile(r"\d+\.\d+\.\d+(?:-[\w.-]+)?(?:\+[\w.-]+)?", re.ASCII)
_ADD = "corral packages add NAME@VERSION"
_INSTALL = "corral packages install"
_MESSAGE_CHARS = 2000


class Pinned(NamedTuple):
    """Package with an exact version. With `browser`, its build for browsers is bundled."""

    name: str
    version: str
    browser: bool = False

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def parse_package(text: str, *, browser: bool = False) -> Pinned:
    """Reads `NAME@VERSION`.

    Raises:
        ConfigError: the text is not a name with an exact version.
    """
    match = _PACKAGE.fullmatch(text.removeprefix("npm:"))
    if match is None:
        raise ConfigError(f"{text!r} is not NAME@VERSION, such as jszip@3.10.1")
    name, version = match["name"], match["version"]
    if not version:
        raise ConfigError(f"{name} has no version: add an exact one, as in {name}@1.2.3")
    if not _EXACT.fullmatch(version):
        raise ConfigError(
            f"{name}@{version} is not exact: a range or a tag can mean different code tomorrow; write a "
            f"version with three numbers, as in {name}@1.2.3"
        )
    return Pinned(name, version, browser)


class PackageFolder:
    """The user's folder. `deno.json` and `deno.lock` belong in version control; `node_modules` does not."""

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
        """Returns the packages by name; empty if the folder does not exist.

        Raises:
            ConfigError: `corral packages` has not written its `deno.json`.
        """
        settings = _read_json(self._settings) if self._settings.exists() else {}
        imports, own = settings.get("imports", {}), settings.get("corral", {})
        if not isinstance(imports, dict) or not isinstance(own, dict):
            raise ConfigError(f"{self._settings} is not from `corral packages`: `imports` is not an object")
        browser = cast("dict[str, Any]", own).get("browser", [])
        packages: dict[str, Pinned] = {}
        for name, specifier in cast("dict[str, object]", imports).items():
            if name == _BUNDLER:
                continue
            package = parse_package(str(specifier), browser=name in browser)
            if package.name != name:
                raise ConfigError(f"{self._settings} imports {package} as {name!r}; aliases are not supported")
            packages[name] = package
        return packages

    def newest(self, name: str, *, browser: bool = False) -> Pinned:
        """Asks the registry for the latest version of a package.

        Raises:
            ConfigError: it is not a package name, or Deno cannot find it.
        """
        match = _PACKAGE.fullmatch(name)
        if match is None or match["version"] is not None:
            raise ConfigError(f"{name!r} is not a package name, such as jszip")
        with tempfile.TemporaryDirectory() as scratch:
            there = PackageFolder(scratch)
            there._settings.write_text(json.dumps({"imports": {name: f"npm:{name}@latest"}}), encoding="utf-8")
            there._deno("--lockfile-only")
            specifiers: dict[str, str] = _read_json(there.lock).get("specifiers", {})
        return Pinned(name, _split(f"{name}@{specifiers[f'npm:{name}@latest']}")[1], browser)

    def add(self, packages: Iterable[Pinned]) -> None:
        """Installs these packages in addition to those present. If that fails, the folder is unchanged.

        Raises:
            ConfigError: Deno cannot install them.
        """
        self._change(self.packages() | {each.name: each for each in packages})

    def remove(self, names: Iterable[str]) -> None:
        """Removes packages from the folder.

        Raises:
            ConfigError: one of them is not in it, or Deno cannot install the others.
        """
        packages = self.packages()
        for name in names:
            if name not in packages:
                raise ConfigError(f"there is no package {name!r} in {self.path}; its packages: {_listed(packages)}")
            del packages[name]
        self._change(packages)

    def install(self) -> None:
        """Installs exactly the locked packages into `node_modules`.

        Raises:
            ConfigError: the lock is missing or does not match `deno.json`, or Deno cannot install it.
        """
        if not self.lock.exists():
            raise ConfigError(f"there is no {self.lock}; {_ADD} makes it")
        self._deno("--frozen")

    def require_installed(self) -> dict[str, Pinned]:
        """Returns the packages.

        Raises:
            ConfigError: the folder has no packages, or one is not installed.
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
        """Returns the executable of the bundler.

        Raises:
            ConfigError: it is not installed.
        """
        for executable in self.modules.glob(_BUNDLER_PLACE.format(version=_BUNDLER_VERSION)):
            return executable.resolve()
        raise ConfigError(
            f"esbuild {_BUNDLER_VERSION} is not installed in {self.path}; {_INSTALL} --folder {self.path}"
        )

    def digest(self) -> str:
        """Returns a digest of the lock."""
        return sha256(self.lock.read_bytes()).hexdigest()

    def versions_beneath(self, package: Pinned) -> Mapping[str, set[str]]:
        """Returns the versions, by name, of all direct and indirect dependencies of a package."""
        locked: dict[str, dict[str, Any]] = _read_json(self.lock).get("npm", {})
        by_name: dict[str, list[str]] = {}
        for key in locked:
            by_name.setdefault(_split(key)[0], []).append(key)
        versions: dict[str, set[str]] = {}
        waiting = [key for key in by_name.get(package.name, ()) if _split(key)[1] == package.version]
        seen = set(waiting)
        while waiting:
            entry = locked[waiting.pop()]
            for kind in ("dependencies", "optionalDependencies", "optionalPeers"):
                for dependency in entry.get(kind, ()):
                    name, version = _split(dependency.partition("npm:")[2] or dependency)
                    for key in by_name.get(name, ()):
                        if version in ("", _split(key)[1]):
                            versions.setdefault(name, set()).add(_split(key)[1])
                            waiting += {key} - seen
                            seen.add(key)
        return versions

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
        """Runs `deno install`, without packages' scripts. The environment configures registry and credentials."""
        command = [deno.find_deno_bin(), "install", "--quiet", "--config", str(self._settings), *options]
        environment = {**os.environ, "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        try:
            done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"cannot start Deno, which installs packages: {error}; pip install deno") from error
        if done.returncode != 0:
            message = done.stderr.partition("Stack backtrace:")[0].strip()[:_MESSAGE_CHARS]
            raise ConfigError(f"Deno cannot install the packages of {self.path}: {message}")
        self._make_readable()

    def _make_readable(self) -> None:
        """Makes all files readable for the bundler's user, because some packages have files that only their owner can
        read."""
        for parent, _, names in os.walk(self.modules):
            for name in names:
                path = Path(parent) / name
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) and mode & 0o044 != 0o044:
                    path.chmod(stat.S_IMODE(mode) | 0o044)


def _split(key: str) -> tuple[str, str]:
    """Splits a key of the lock into name and version, without its peer dependencies."""
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
