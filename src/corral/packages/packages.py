"""`NpmPackages`: npm packages that programs may import. Each is bundled once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import cast

from corral.arguments import checked, did_you_mean
from corral.concurrency.forks import ProcessOwner
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ConfigError, StartFailed
from corral.jail.temporary import write_whole
from corral.logs import get_logger
from corral.npm import ModuleTexts, NpmModules
from corral.packages.bundler import BUILT_INS, FORMAT, Bundle, BundleFailed, Bundler, BundleRequest
from corral.packages.folder import PackageFolder, Pinned
from corral.sessions.skills import SkillSet
from corral.types import Program

logger = get_logger("corral.packages")

_CALL = re.compile(r"""(?:\brequire|\$load\w*)\s*\(\s*(["'`])((?:(?!\1)[^\\\n])+)\1\s*[,)]""")
"""A `require` or `import()` of a literal name, which may be a template without substitutions."""
_SPECIFIER = re.compile(r"(@[\w.~-]+/[\w.~-]+|[A-Za-z0-9~-][\w.~-]*)(?:/[\w.@~+-]+)*", re.ASCII)
_MOST_MODULES = 100
"""Maximum number of modules for one program; further ones are ignored."""


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
        return _cache() / f"{sha256(key.encode()).hexdigest()}.json"


def _named(program: Program) -> list[str]:
    """Returns the modules that a program imports or requires by a literal name."""
    called = (match[2] for match in _CALL.finditer(program.code))
    names = dict.fromkeys(name for name in (*program.imports, *called) if name.partition(":")[0] not in ("node", "npm"))
    return [name for name in names if name.partition("/")[0] not in BUILT_INS][:_MOST_MODULES]


def _cache() -> Path:
    """Returns the user's cache folder for bundles."""
    configured = os.environ.get("XDG_CACHE_HOME")
    home = Path(configured) if configured else Path.home() / ".cache"
    return home / "corral" / "packages"


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
