"""Locked packages for programs: npm packages, each bundled once into one text, and Python wheels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from corral.errors import ConfigError
from corral.packages.packages import NpmPackages, PackageFolder, Pinned, parse_package
from corral.packages.python import PythonFolder, PythonPackages, Wheel

AnyPackages: TypeAlias = NpmPackages | PythonPackages


def split_packages(
    packages: AnyPackages | Iterable[AnyPackages],
) -> tuple[NpmPackages | None, PythonPackages | None]:
    """Returns the npm packages and the Python packages.

    Raises:
        ConfigError: there are two of one kind.
    """
    folders = [packages] if isinstance(packages, NpmPackages | PythonPackages) else [*packages]
    npm = [each for each in folders if isinstance(each, NpmPackages)]
    python = [each for each in folders if isinstance(each, PythonPackages)]
    if len(npm) > 1 or len(python) > 1:
        raise ConfigError("packages has two folders of the same kind; add all packages to one of them")
    return (npm or [None])[0], (python or [None])[0]


def packages_in(folder: str | Path) -> list[AnyPackages]:
    """Returns the packages in a folder of `corral packages add`: npm, Python, or both.

    Raises:
        ConfigError: there are none, or they are not installed.
    """
    python: list[AnyPackages] = [PythonPackages(folder)] if PythonFolder(folder).lock.exists() else []
    return python if python and not PackageFolder(folder).packages() else [NpmPackages(folder), *python]


__all__ = [
    "AnyPackages",
    "NpmPackages",
    "PackageFolder",
    "Pinned",
    "PythonFolder",
    "PythonPackages",
    "Wheel",
    "packages_in",
    "parse_package",
    "split_packages",
]
