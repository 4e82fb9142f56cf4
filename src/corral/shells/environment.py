"""Checks the environment of a command."""

from __future__ import annotations

from collections.abc import Mapping

from corral.errors import ConfigError

__all__ = ["checked_environment"]


def checked_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the variables.

    Raises:
        ConfigError: a name is none, or there is a NUL.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r} is no name of a variable, or its value has a NUL")
    return dict(env)
