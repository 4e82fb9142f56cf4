"""Argument parser that also reads options from environment variables, and whose errors are one line with a
suggestion."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from corral.rendering.lists import either
from corral.rendering.suggestions import NearNames

Commands: TypeAlias = "argparse._SubParsersAction[CommandLine]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

_WRONG_USAGE = 2
_TELLING_CHARS = 3
"""Minimum length of a word for suggestions."""
_LIMITS = "wall-seconds, cpu-seconds, memory-mb, calls"
_ELSEWHERE = {
    "limit": _LIMITS,
    "limits": _LIMITS,
    "max-calls": "calls",
    "python": "language python",
    "timeout": "wall-seconds",
    "typescript": "language typescript",
}
"""Options of other programs, with the corresponding options here."""

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_OF_KUBERNETES = re.compile(r"(?:tcp|udp|sctp)://\S+")
"""Value that Kubernetes gives CORRAL_PORT in pods whose namespace has a service called corral."""
_VARIABLES = """
An option that is not passed is read from a variable, such as --drain-seconds from CORRAL_DRAIN_SECONDS. For options
that can be repeated, it has several values, split as by a shell; for flags, it is 1 or 0.
"""
_TAKE_FILES = {".py": "--tools", ".json": "--mcp-config"}


class CommandLine(argparse.ArgumentParser):
    """Parser for `corral` or one of its commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        self._read = set[str]()
        """Options that can be set by environment variables."""

    @cached_property
    def commands(self) -> Commands:
        """Group of the commands, each a parser of this class."""
        return self.add_subparsers(prog=self.prog, metavar="COMMAND", required=True, parser_class=CommandLine)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # its overloads are about the namespace
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Rejects unknown options and arguments here; argparse would leave that to the parser of all commands."""
        arguments = sys.argv[1:] if args is None else list(args)
        for each in arguments:
            if self._has_commands and not each.startswith("-"):
                self._require_command(each)
                break
            if each == "--":
                break
            if _is_option(each):
                self._require_option(each.partition("=")[0])
        if not self._has_commands:
            arguments = [*self._of_variables(arguments), *arguments]
        known, unknown = super().parse_known_args(arguments, namespace)
        if unknown:
            self.error(f"{unknown[0]!r} is an unexpected argument{self._as_option(unknown[0])}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Exits with a line about the error and a line of help."""
        option = re.match(r"argument (?:-\w/)?(--[\w-]+):", message)
        if option is not None and option[1] in self._read:
            message = f"{message} (of {_variable(option[1])})"
        self.exit(_WRONG_USAGE, f"error: {message}\nhelp: {self.prog} --help lists the options\n")

    def format_help(self) -> str:
        """Adds help on environment variables."""
        return super().format_help() + ("" if self._has_commands else _VARIABLES)

    def _of_variables(self, arguments: list[str]) -> Iterator[str]:
        """Yields the options set by environment variables, unless an option for the same setting is passed."""
        words = arguments[: arguments.index("--")] if "--" in arguments else arguments
        options = {each.partition("=")[0] if each.startswith("--") else each[:2] for each in words}
        actions = self._option_string_actions
        settings = {actions[each].dest for each in options if each in actions}
        if "help" in settings:
            return
        for option, action in actions.items():
            value = os.environ.get(_variable(option), "") if option.startswith("--") else ""
            if not value or action.dest in settings or option == "--help" or _OF_KUBERNETES.fullmatch(value):
                continue
            settings.add(action.dest)
            self._read.add(option)
            if action.nargs == 0:
                if value.lower() not in (*_YES, *_NO):
                    self.error(f"argument {option}: {value!r} is not 1 or 0")
                yield from [option] if value.lower() in _YES else []
            elif isinstance(action, argparse._AppendAction):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                try:
                    values = shlex.split(value)
                except ValueError as error:
                    self.error(f"argument {option}: {error}")
                yield from (f"{option}={each}" for each in values)
            else:
                yield f"{option}={value}"

    @property
    def _has_commands(self) -> bool:
        return "commands" in self.__dict__

    def _require_command(self, name: str) -> None:
        names: Collection[str] = self.commands.choices
        if name in names:
            return
        if Path(name).is_file():
            suggestion = f"; did you mean {self.prog} run {name}?"
        elif near := NearNames(names).of(name):
            suggestion = f"; did you mean {self.prog} {near[0]}?"
        else:
            suggestion = f"; known: {', '.join(names)}"
        self.error(f"unknown command {name!r}{suggestion}")

    def _as_option(self, file: str) -> str:
        option = _TAKE_FILES.get(Path(file).suffix)
        return f"; did you mean {option} {file}?" if option in self._option_string_actions else ""

    def _require_option(self, option: str) -> None:
        if option in self._option_string_actions:
            return
        of_commands = self.commands.choices.items() if self._has_commands else ()
        takers = [name for name, parser in of_commands if option in parser._option_string_actions]  # noqa: SLF001
        if takers:
            self.error(f"{option} comes after the command, as in {self.prog} {takers[0]} {option}")
        suggestion = _meant(option, [each for each in self._option_string_actions if each.startswith("--")])
        self.error(f"{self.prog} has no option {option}{f'; did you mean {suggestion}?' if suggestion else ''}")


def _variable(option: str) -> str:
    return f"CORRAL_{option.removeprefix('--').replace('-', '_').upper()}"


def _is_option(argument: str) -> bool:
    """True if argparse takes the argument for an option."""
    return len(argument) > 1 and argument[0] == "-" and " " not in argument and not argument[1].isdigit()


def _meant(option: str, options: Collection[str]) -> str | None:
    """Suggests the probable meaning of an unknown option, as text."""
    word = option.lstrip("-").replace("_", "-")
    if word in _ELSEWHERE:
        options_here = [f"--{each}" for each in _ELSEWHERE[word].split(", ")]
        return either([each for each in options_here if each.partition(" ")[0] in options])
    if len(word) < _TELLING_CHARS:
        return None
    near = NearNames(options).of(f"--{word}", likeness=0.75)
    return either(near or [each for each in options if word in each])


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], text: str, *, takes: str = ""
) -> argparse.ArgumentParser:
    """Adds a command and returns its parser. `run` returns the exit code. `text` is the help: a paragraph, whose first
    sentence is listed by `corral --help`, and further ones. `takes` is the command's argument in the usage."""
    usage = f"corral {name} {takes} [OPTIONS]" if takes else f"corral {name} [OPTIONS]"
    description, _, epilog = text.partition("\n\n")
    listed = description.partition(".")[0].replace("\n", " ")
    parser = commands.add_parser(name, usage=usage, help=listed, description=description, epilog=epilog)
    parser.set_defaults(command=run)
    return parser
