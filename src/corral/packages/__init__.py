"""Packages of npm that programs in TypeScript may import: installed exactly, bundled once, given to guests as text."""

from corral.packages.folder import PackageFolder, Pinned, parse_package
from corral.packages.packages import Packages

__all__ = ["PackageFolder", "Packages", "Pinned", "parse_package"]
