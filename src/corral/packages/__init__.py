"""Locked packages for programs: npm packages, bundled once into text, and Python wheels."""

from corral.packages.folder import PackageFolder, Pinned, parse_package
from corral.packages.packages import Packages
from corral.packages.python import PythonFolder, PythonPackages, Wheel

__all__ = ["PackageFolder", "Packages", "Pinned", "PythonFolder", "PythonPackages", "Wheel", "parse_package"]
