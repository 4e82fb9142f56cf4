"""Packages that programs may import, by a lock: of npm, bundled once and given as text; of Python, as wheels."""

from corral.packages.folder import PackageFolder, Pinned, parse_package
from corral.packages.packages import Packages
from corral.packages.python import PythonFolder, PythonPackages, Wheel

__all__ = ["PackageFolder", "Packages", "Pinned", "PythonFolder", "PythonPackages", "Wheel", "parse_package"]
