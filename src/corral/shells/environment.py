"""Checks of commands and their environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from corral.errors import ConfigError

MARK = "_CORRAL_SHELL_COMMAND"
"""Variable by which a command's descendants are found, where no namespace or group contains them."""


def expect_command(command: str, cwd: str | None) -> None:
    """Raises ConfigError if a command or its folder contains a NUL."""
    if "\0" in command or "\0" in (cwd or ""):
        raise ConfigError("a command and its folder cannot contain a NUL")


def checked_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the variables.

    Raises:
        ConfigError: a name is invalid, or a value contains a NUL.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r} is not a valid variable name, or its value contains a NUL")
    return dict(env)
