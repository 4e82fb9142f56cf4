"""Files of the host that a Python interpreter needs: the standard library, shared libraries and allowed packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import NamedTuple

from corral.errors import ConfigError, StartFailed
from corral.jail import Engine, Mount

PACKAGES = "/packages"
"""Folder of packages, in namespaces."""
OWN_PACKAGES = "/python/packages"
"""Folder of packages of a session or a Corral, in namespaces."""
_HOME = "/python"
"""Folder of the interpreter and its library, which it locates relative to itself."""
_ZONES = Path("/usr/share/zoneinfo")
"""Folder of time zones for `zoneinfo`, which otherwise uses the package `tzdata`, if installed."""
_SECONDS = 60
_HIDDEN = ("site-packages", "dist-packages")
"""Folders in the standard library's directory that contain packages installed on the host."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LIBRARIES = """
    libatomic.so.1 libdl.so.2 libexpat.so.1 libgcc_s.so.1 libm.so.6 libmvec.so.1 libpthread.so.0 libresolv.so.2
    librt.so.1 libstdc++.so.6 libutil.so.1 libz.so.1
""".split()
"""System libraries that wheels can expect on any Linux: PEP 513 and its successors."""
_PROBE = """
import ctypes, importlib, json, os, sys
modules, folders, libraries = json.loads(sys.argv[1])
sys.path += folders
here = next((each for each in sys.path if each.endswith("lib-dynload")), None)
skipped = ("_test", "xx", "_tkinter", "readline", "_curses", "_gdbm", "_dbm", "_ctypes_test", "nis")
for name in sorted(os.listdir(here)) if here and os.path.isdir(here) else ():
    if not name.startswith(skipped):
        try:
            ctypes.CDLL(os.path.join(here, name))
        except OSError:
            pass
for name in libraries:
    try:
        ctypes.CDLL(name)
    except OSError:
        pass
for name in modules:
    importlib.import_module(name)
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
loaded = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def note(info, size, data):
    loaded.append(os.fsdecode(info.contents.name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(json.dumps(loaded))
"""
"""Loads everything that a guest can load, and lists the shared objects by the names under which the loader found them:
dl_iterate_phdr(3)."""


class _HostPackages(NamedTuple):
    """Packages of the host that a guest can see."""

    modules: tuple[str, ...]
    """Modules to import in advance."""
    entries: tuple[tuple[str, Path], ...]
    """Files and folders, by their import names."""
    versions: tuple[str, ...]
    """Names and versions of the packages."""


class _Installation(NamedTuple):
    engine: Engine
    packages: _HostPackages


@cache
def find_packages(names: tuple[str, ...]) -> _HostPackages:
    """Finds packages, and all their dependencies, by name, as for pip or for `import`.

    Raises:
        ConfigError: a package is not installed, or only as an editable install.
    """
    entries: dict[str, Path] = {}
    modules: list[str] = []
    versions: list[str] = []
    pending = [*((name, True) for name in names), ("tzdata", False)]
    seen: set[str] = set()
    while pending:
        name, requested = pending.pop(0)
        package = _distribution(name, by_import=requested)
        if package is None:
            if requested:
                raise ConfigError(f"packages={name!r}: it is not installed in this environment; pip install {name}")
            continue  # a requirement for another system or Python version
        if package.name in seen:
            continue
        seen.add(package.name)
        versions.append(f"{package.name} {package.version}")
        own = _entries(package)
        if requested and not own:
            raise ConfigError(f"packages={name!r}: editable installs are not supported; install a regular wheel")
        entries |= own
        if requested:
            modules += modules_of(package)
        pending += [(each, False) for each in _requirements(package)]
    return _HostPackages(tuple(modules), tuple(sorted(entries.items())), tuple(sorted(versions)))


@cache
def installation(names: tuple[str, ...]) -> _Installation:
    """Returns this interpreter as a guest's engine, with the packages of these names. Blocks.

    Raises:
        ConfigError: see `find_packages`. StartFailed: the interpreter does not run on its own.
    """
    packages = find_packages(names)
    executable = Path(sys._base_executable).resolve()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    inside = f"{_HOME}/{sys.platlibdir}/python{sysconfig.get_python_version()}"
    library = Path(sysconfig.get_path("stdlib", vars=base | {"installed_base": sys.base_prefix}))
    mounts = [Mount(library, inside, _HIDDEN)]
    mounts += [Mount(path, f"{PACKAGES}/{name}") for name, path in packages.entries]
    mounts += [Mount(_ZONES, str(_ZONES))] if _ZONES.is_dir() else []
    mounts += [Mount(path, str(path)) for path in _zones()]
    folders = sorted({str(path.parent) for _, path in packages.entries})
    try:
        done = subprocess.run(
            [executable, "-I", "-S", "-c", _PROBE, json.dumps([packages.modules, folders, _LIBRARIES])],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        loaded = [Path(name) for name in json.loads(done.stdout)]
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise StartFailed(f"{executable} cannot load what programs may import: {reason[0]}") from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StartFailed(f"{executable} does not run by itself: {error}") from error
    shown = [mount.path.resolve() for mount in mounts]
    libraries = tuple(
        path for path in loaded if path.is_file() and not any(path.resolve().is_relative_to(each) for each in shown)
    )
    engine = Engine(executable, f"{_HOME}/bin/{executable.name}", libraries, tuple(mounts), syscall_profile="server")
    return _Installation(engine, packages)


def _zones() -> list[Path]:
    """Returns the folder of the system's time zones that `zoneinfo` uses."""
    names: str = sysconfig.get_config_var("TZPATH") or ""
    return [Path(name) for name in names.split(":") if name.startswith("/") and Path(name).is_dir()][:1]


def _distribution(name: str, *, by_import: bool) -> Distribution | None:
    with suppress(PackageNotFoundError):
        return distribution(name)
    for each in packages_distributions().get(name, ()) if by_import else ():  # reads the metadata of all packages
        with suppress(PackageNotFoundError):
            return distribution(each)
    return None


def _entries(package: Distribution) -> dict[str, Path]:
    """Returns a distribution's top-level folders and modules, including its metadata."""
    entries: dict[str, Path] = {}
    for file in package.files or ():
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not top.endswith(".pth") and not top.startswith("/"):
            entries[top] = Path(str(package.locate_file(top)))
    return entries


def modules_of(package: Distribution) -> tuple[str, ...]:
    """Returns the import names of a distribution."""
    names = [each.partition(".")[0] if each.endswith((".py", ".so")) else each for each in _entries(package)]
    return tuple(name for name in names if name.isidentifier())


def _requirements(package: Distribution) -> list[str]:
    """Returns the names of a distribution's dependencies, except those of extras."""
    requirements = [each for each in package.requires or () if "extra ==" not in each]
    return [match[0] for each in requirements if (match := _NAME.match(each))]
