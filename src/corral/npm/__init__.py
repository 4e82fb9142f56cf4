"""Packages of npm on their way to a guest."""

from corral.npm.modules import ModuleTexts, NpmModules, Trial

__all__ = ["ModuleTexts", "NpmModules", "Trial"]
