"""Checks of what a command is started with."""

from __future__ import annotations

from collections.abc import Mapping

from corral.errors import ConfigError

MARK = "CORRAL_SHELL_COMMAND"
"""Variable by which what a command has started is found, where nothing else holds it together."""


def expect_command(command: str, cwd: str | None) -> None:
    """Checks the text of a command and the name of its folder.

    Raises:
        ConfigError: there is a NUL.
    """
    if "\0" in command or "\0" in (cwd or ""):
        raise ConfigError("a command and its folder have no NUL")


def checked_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the variables.

    Raises:
        ConfigError: a name is none, or there is a NUL.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r} is no name of a variable, or its value has a NUL")
    return dict(env)
