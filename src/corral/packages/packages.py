"""`NpmPackages`: those of a folder that programs may import, as texts that are made once."""

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
from corral.packages.bundler import BUILT_INS, FORMAT, Bundle, BundleFailed, Bundler, Wanted
from corral.packages.folder import PackageFolder, Pinned
from corral.sessions.skills import SkillSet
from corral.types import Program

logger = get_logger("corral.packages")

_CALL = re.compile(r"""(?:\brequire|\$load\w*)\s*\(\s*(["'`])((?:(?!\1)[^\\\n])+)\1\s*[,)]""")
"""A module that is asked for by a name that is written out, also in a template."""
_SPECIFIER = re.compile(r"(@[\w.~-]+/[\w.~-]+|[A-Za-z0-9~-][\w.~-]*)(?:/[\w.@~+-]+)*", re.ASCII)
_MOST_MODULES = 100
"""Modules that one program may name, beyond which it gets none."""


@checked
class NpmPackages:
    """Packages of npm that programs in TypeScript may import: `Corral(packages=NpmPackages("corral-packages"))`.

    `folder` is one that `corral packages add` has made. `allow` are the packages that programs may import, by name;
    None: all that were added. `preload` are those of them, or modules of theirs such as "lodash/chunk", that the
    server of a session evaluates before it forks processes for programs; docs/packages.md says what that means.
    The folder is read here, and once.

    Raises:
        ConfigError: the packages are not installed, or `allow` or `preload` names others.
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
                    f"{did_you_mean(name, packages)}there are: {', '.join(sorted(packages))}"
                )
        self.allowed: tuple[str, ...] = tuple(sorted(packages if allow is None else set(allow)))
        self._packages = {name: packages[name] for name in self.allowed}
        for name in preload:
            if self._owner(name) is None:
                raise ConfigError(
                    f"preload: there is no package {name!r} among those that programs may import; "
                    f"{did_you_mean(name, self.allowed)}there are: {', '.join(self.allowed)}"
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
        """Reasons why packages of `preload` are evaluated in each process, by their names.

        Found by the first server that loads them.
        """
        trials = {} if self.preloads is None else self.preloads.trials
        return {name: "; ".join(found.reasons) for name, found in [*trials.items()] if found.reasons}

    @property
    def node_modules(self) -> Path:
        """The folder of the packages and their types."""
        return self._folder.modules

    async def texts_for(self, program: Program) -> ModuleTexts:
        """Returns the texts of the packages that a program names, and of those that these require."""
        named = _named(program)
        modules = {name: module for name in named if (module := self._skills.module(name)) is not None}
        if modules.keys() - self._of_skills.keys():
            await run_in_own_thread(self._bundle_skills, modules, abandon_on_cancel=True)
        of_skills = {name: self._of_skills[name] for name in modules}
        required = [name for each in of_skills.values() if isinstance(each, Bundle) for name in each.requires]
        return await self._texts([name for name in (*named, *required) if self._owner(name) is not None], of_skills)

    async def _texts(
        self, wanted: Collection[str], more: Mapping[str, Bundle | BundleFailed] = MappingProxyType({})
    ) -> ModuleTexts:
        made = self._known(wanted)
        if made is None:
            made = await run_in_own_thread(self._make, wanted, abandon_on_cancel=True)
        made |= more
        return ModuleTexts(
            allowed=(*self.allowed, *(f"skills/{name}" for name in self._skills.skills)),
            texts={name: each.code for name, each in made.items() if isinstance(each, Bundle)},
            failures={name: str(each) for name, each in made.items() if isinstance(each, BundleFailed)},
        )

    def with_skills(self, skills: SkillSet) -> NpmPackages:
        """The same packages for programs that may import modules of these skills too."""
        other = copy(self)
        vars(other).update(_skills=skills, _of_skills={})
        return other

    def _bundle_skills(self, modules: Mapping[str, str]) -> None:
        """Bundles modules of skills, whose names are as programs write them. All packages stay outside of the texts."""
        bundler = Bundler(self._folder.bundler(), self._skills.node_modules())
        wanted = [Wanted(module, self.allowed) for module in modules.values()]
        try:
            self._of_skills.update(zip(modules, bundler.bundle(wanted), strict=True))
        except StartFailed as error:
            logger.error("skills cannot be bundled: %s", error)
            for name in modules:
                self._of_skills.setdefault(name, BundleFailed("the bundler does not start"))

    def _owner(self, specifier: str) -> Pinned | None:
        """The allowed package that a specifier is of."""
        found = _SPECIFIER.fullmatch(specifier)
        return None if found is None or ".." in specifier else self._packages.get(found[1])

    def _known(self, wanted: Iterable[str]) -> dict[str, Bundle | BundleFailed] | None:
        """These modules with all that they require; None if one of them has not been made."""
        found: dict[str, Bundle | BundleFailed] = {}
        waiting = [*wanted]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            made = self._made.get(name)
            if made is None:
                return None
            found[name] = made
            if isinstance(made, Bundle):
                waiting += [each for each in made.requires if self._owner(each) is not None]
        return found

    def _make(self, wanted: Collection[str]) -> dict[str, Bundle | BundleFailed]:
        """The same, once what is missing has been taken from the cache, or bundled."""
        if self._process.take_over():
            self._lock = threading.Lock()  # in a fork, the old one may be held for ever
        with self._lock:
            waiting = {*wanted}
            while waiting:
                self._bundle(sorted(waiting - self._made.keys()))
                required = {each for made in self._made.values() if isinstance(made, Bundle) for each in made.requires}
                waiting = {each for each in required if self._owner(each) is not None} - self._made.keys()
            found = self._known(wanted)
            assert found is not None
            return found

    def _bundle(self, specifiers: Iterable[str]) -> None:
        missing: list[Wanted] = []
        for specifier in specifiers:
            wanted = self._wanted(specifier)
            kept = _read_kept(self._place(wanted))
            if kept is None:
                missing.append(wanted)
            else:
                self._made[specifier] = kept
        if not missing:
            return
        try:
            for wanted, bundle in zip(missing, self._bundler.bundle(missing), strict=True):
                self._made[wanted.specifier] = bundle
                if isinstance(bundle, Bundle):
                    _keep(self._place(wanted), bundle)
                else:
                    logger.warning("package %r cannot be bundled: %s", wanted.specifier, bundle)
        except StartFailed as error:
            logger.error("packages cannot be bundled: %s", error)
            for wanted in missing:
                self._made.setdefault(wanted.specifier, BundleFailed("the bundler does not start"))

    def _wanted(self, specifier: str) -> Wanted:
        """A module whose text leaves out the other allowed packages, where its own would be the same version."""
        package = self._owner(specifier)
        assert package is not None
        beneath = self._folder.versions_beneath(package)
        external = [name for name, each in self._packages.items() if beneath.get(name) == {each.version}]
        return Wanted(specifier, tuple(external), package.browser)

    def _place(self, wanted: Wanted) -> Path:
        key = json.dumps([FORMAT, self._digest, *wanted])
        return _cache() / f"{sha256(key.encode()).hexdigest()}.json"


def _named(program: Program) -> list[str]:
    """Modules that a program asks for by names that it spells out."""
    called = (match[2] for match in _CALL.finditer(program.code))
    names = dict.fromkeys(name for name in (*program.imports, *called) if name.partition(":")[0] not in ("node", "npm"))
    return [name for name in names if name.partition("/")[0] not in BUILT_INS][:_MOST_MODULES]


def _cache() -> Path:
    """The user's folder for texts that were made before."""
    given = os.environ.get("XDG_CACHE_HOME")
    home = Path(given) if given else Path.home() / ".cache"
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
    """Writes a text for the next time, in one step. Nothing depends on it."""
    content = json.dumps({"code": bundle.code, "requires": bundle.requires})
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content)
