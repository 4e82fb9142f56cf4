"""`NpmPackages`: npm packages that programs may import. Each is bundled once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import tempfile
import threading
from collections.abc import Collection, Generator, Iterable, Mapping
from copy import copy
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from corral.arguments import checked, did_you_mean
from corral.concurrency.forks import ProcessOwner
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ConfigError, StartFailed
from corral.jail.jail import deno_path
from corral.jail.temporary import user_cache, write_whole
from corral.logs import get_logger
from corral.npm import ModuleTexts, NpmModules
from corral.packages.bundler import BUILT_INS, FORMAT, Bundle, BundleFailed, Bundler, BundleRequest
from corral.sessions.skills import SkillSet
from corral.types import Program

logger = get_logger("corral.packages")

_CALL = re.compile(r"""(?:\brequire|\$load\w*)\s*\(\s*(["'`])((?:(?!\1)[^\\\n])+)\1\s*[,)]""")
"""A `require` or `import()` of a literal name, which may be a template without substitutions."""
_SPECIFIER = re.compile(r"(@[\w.~-]+/[\w.~-]+|[A-Za-z0-9~-][\w.~-]*)(?:/[\w.@~+-]+)*", re.ASCII)
_MOST_MODULES = 100
"""Maximum number of modules for one program; further ones are ignored."""


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
        environment = {**os.environ, "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        try:
            command = [deno_path(), "install", "--quiet", "--config", str(self._settings), *options]
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
        raise ConfigError(f"{path} is not a JSON object; restore it, or delete it and add the packages again")
    return cast("dict[str, Any]", content)


@checked
class NpmPackages:
    """npm packages that TypeScript programs may import: `Corral(packages=NpmPackages("corral-packages"))`.

    `corral packages add` creates the `folder`. `allow` lists the packages that programs may import; None allows all
    added ones. `preload` lists allowed packages, or modules of them such as "lodash/chunk", that a session's server
    evaluates before it forks processes for programs; docs/packages.md describes the effects. The folder is read once,
    by the constructor.

    Raises:
        ConfigError: the packages are not installed, or `allow` or `preload` names another package.
    """

    def __init__(
        self, folder: str | Path, *, allow: Collection[str] | None = None, preload: Collection[str] = ()
    ) -> None:
        self._folder = PackageFolder(folder)
        packages = self._folder.require_installed()
        for name in packages if allow is None else allow:
            if name not in packages:
                raise ConfigError(
                    f"allow: there is no package {name!r} in {self._folder.path}; "
                    f"{did_you_mean(name, packages)}its packages: {', '.join(sorted(packages))}"
                )
        self.allowed: tuple[str, ...] = tuple(sorted(packages if allow is None else set(allow)))
        self._packages = {name: packages[name] for name in self.allowed}
        for name in preload:
            if self._owner(name) is None:
                raise ConfigError(
                    f"preload: {name!r} is not a package that programs may import; "
                    f"{did_you_mean(name, self.allowed)}they may import: {', '.join(self.allowed)}"
                )
        self.preloads: NpmModules | None = NpmModules(tuple(dict.fromkeys(preload)), self._texts) if preload else None
        self._bundler = Bundler(self._folder.bundler(), self._folder.modules)
        self._digest = self._folder.digest()
        self._lock = threading.Lock()
        self._process = ProcessOwner()
        self._made: dict[str, Bundle | BundleFailed] = {}
        self._skills = SkillSet()
        self._of_skills: dict[str, Bundle | BundleFailed] = {}

    def __repr__(self) -> str:
        preload = f", preload={list(self.preloads.names)}" if self.preloads else ""
        return f"NpmPackages({str(self._folder.path)!r}, allow={list(self.allowed)}{preload})"

    @property
    def not_preloaded(self) -> Mapping[str, str]:
        """Packages of `preload` that each process evaluates itself instead, with the reasons.

        The first server that loads a package finds out.
        """
        trials = {} if self.preloads is None else self.preloads.trials
        return {name: "; ".join(trial.reasons) for name, trial in [*trials.items()] if trial.reasons}

    @property
    def node_modules(self) -> Path:
        """Folder that contains the packages and their types."""
        return self._folder.modules

    async def texts_for(self, program: Program) -> ModuleTexts:
        """Returns the bundles of the packages that a program names, and of everything they require."""
        named = _named(program)
        modules = {name: module for name in named if (module := self._skills.module(name)) is not None}
        if modules.keys() - self._of_skills.keys():
            await run_in_own_thread(self._bundle_skills, modules, abandon_on_cancel=True)
        of_skills = {name: self._of_skills[name] for name in modules}
        required = [name for each in of_skills.values() if isinstance(each, Bundle) for name in each.requires]
        return await self._texts([name for name in (*named, *required) if self._owner(name) is not None], of_skills)

    async def _texts(
        self, names: Collection[str], more: Mapping[str, Bundle | BundleFailed] = MappingProxyType({})
    ) -> ModuleTexts:
        made = self._known(names)
        if made is None:
            made = await run_in_own_thread(self._make, names, abandon_on_cancel=True)
        made |= more
        return ModuleTexts(
            allowed=(*self.allowed, *(f"skills/{name}" for name in self._skills.skills)),
            texts={name: each.code for name, each in made.items() if isinstance(each, Bundle)},
            failures={name: str(each) for name, each in made.items() if isinstance(each, BundleFailed)},
        )

    def with_skills(self, skills: SkillSet) -> NpmPackages:
        """Returns a copy for programs that may also import modules of these skills."""
        other = copy(self)
        vars(other).update(_skills=skills, _of_skills={})
        return other

    def _bundle_skills(self, modules: Mapping[str, str]) -> None:
        """Bundles modules of skills, under the names that programs use. All packages stay external."""
        bundler = Bundler(self._folder.bundler(), self._skills.node_modules())
        requests = [BundleRequest(module, self.allowed) for module in modules.values()]
        try:
            self._of_skills.update(zip(modules, bundler.bundle(requests), strict=True))
        except StartFailed as error:
            logger.error("skills cannot be bundled: %s", error)
            for name in modules:
                self._of_skills.setdefault(name, BundleFailed("the bundler does not start"))

    def _owner(self, specifier: str) -> Pinned | None:
        """Returns the allowed package to which a specifier belongs."""
        match = _SPECIFIER.fullmatch(specifier)
        return None if match is None or ".." in specifier else self._packages.get(match[1])

    def _known(self, names: Iterable[str]) -> dict[str, Bundle | BundleFailed] | None:
        """Returns these modules and everything they require; None if one has not been bundled yet."""
        bundles: dict[str, Bundle | BundleFailed] = {}
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name in bundles:
                continue
            made = self._made.get(name)
            if made is None:
                return None
            bundles[name] = made
            if isinstance(made, Bundle):
                waiting += [each for each in made.requires if self._owner(each) is not None]
        return bundles

    def _make(self, names: Collection[str]) -> dict[str, Bundle | BundleFailed]:
        """Like `_known`, but first reads missing bundles from the cache, or makes them."""
        if self._process.take_over():
            self._lock = threading.Lock()  # a fork may have inherited it locked
        with self._lock:
            waiting = {*names}
            while waiting:
                self._bundle(sorted(waiting - self._made.keys()))
                required = {each for made in self._made.values() if isinstance(made, Bundle) for each in made.requires}
                waiting = {each for each in required if self._owner(each) is not None} - self._made.keys()
            bundles = self._known(names)
            assert bundles is not None
            return bundles

    def _bundle(self, specifiers: Iterable[str]) -> None:
        missing: list[BundleRequest] = []
        for specifier in specifiers:
            request = self._wanted(specifier)
            kept = _read_kept(self._place(request))
            if kept is None:
                missing.append(request)
            else:
                self._made[specifier] = kept
        if not missing:
            return
        try:
            for request, bundle in zip(missing, self._bundler.bundle(missing), strict=True):
                self._made[request.specifier] = bundle
                if isinstance(bundle, Bundle):
                    _keep(self._place(request), bundle)
                else:
                    logger.warning("package %r cannot be bundled: %s", request.specifier, bundle)
        except StartFailed as error:
            logger.error("packages cannot be bundled: %s", error)
            for request in missing:
                self._made.setdefault(request.specifier, BundleFailed("the bundler does not start"))

    def _wanted(self, specifier: str) -> BundleRequest:
        """Makes the request for a module. Other allowed packages are external if the module depends on the same
        version."""
        package = self._owner(specifier)
        assert package is not None
        beneath = self._folder.versions_beneath(package)
        external = [name for name, each in self._packages.items() if beneath.get(name) == {each.version}]
        return BundleRequest(specifier, tuple(external), package.browser)

    def _place(self, request: BundleRequest) -> Path:
        key = json.dumps([FORMAT, self._digest, *request])
        return user_cache("packages") / f"{sha256(key.encode()).hexdigest()}.json"


def _named(program: Program) -> list[str]:
    """Returns the modules that a program imports or requires by a literal name."""
    called = (match[2] for match in _CALL.finditer(program.code))
    names = dict.fromkeys(name for name in (*program.imports, *called) if name.partition(":")[0] not in ("node", "npm"))
    return [name for name in names if name.partition("/")[0] not in BUILT_INS][:_MOST_MODULES]


def _read_kept(path: Path) -> Bundle | None:
    try:
        kept: Mapping[str, object] = json.loads(path.read_bytes())
        code, requires = kept["code"], kept["requires"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if not isinstance(code, str) or not isinstance(requires, list):
        return None
    return Bundle(code, tuple(map(str, cast("list[object]", requires))))


def _keep(path: Path, bundle: Bundle) -> None:
    """Writes a bundle to the cache, atomically. Failures are ignored."""
    content = json.dumps({"code": bundle.code, "requires": bundle.requires})
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content)
