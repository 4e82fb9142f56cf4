"""Compilers of further languages, for `Corral(compilers=...)`."""

from corral.compilers.package_compiler import PackageCompiler, coffeescript
from corral.programs.compiled import CompiledProgram, Compiler

__all__ = ["CompiledProgram", "Compiler", "PackageCompiler", "coffeescript"]
