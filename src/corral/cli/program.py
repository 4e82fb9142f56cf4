"""The program of a command, from a file or standard input, and its options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from corral.cli.run_options import add_env, env_of
from corral.errors import ConfigError
from corral.languages import LANGUAGES, language_of_file
from corral.types import Language


class GivenProgram(NamedTuple):
    source: str
    language: Language
    file: str
    """Name to show with places in the program."""
    env: dict[str, str] | None


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `given_program`."""
    parser.add_argument("program", metavar="PROGRAM", help="file with the program, or - for standard input")
    parser.add_argument("--language", choices=tuple(LANGUAGES), help="default: by the file's name")
    add_env(parser)


def given_program(arguments: argparse.Namespace) -> GivenProgram:
    """Reads the program that the options name.

    Raises:
        ConfigError: it cannot be read.
    """
    program: str = arguments.program
    return GivenProgram(
        source=_read(program),
        language=arguments.language or language_of_file(program),
        file="<stdin>" if program == "-" else program,
        env=env_of(arguments),
    )


def _read(program: str) -> str:
    if program == "-" and sys.stdin.isatty():
        print("reading the program from this terminal; end it with Ctrl-D on an empty line", file=sys.stderr)
    try:
        content = sys.stdin.buffer.read() if program == "-" else Path(program).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {program}: {error.strerror}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{program} is not UTF-8: byte {error.start + 1} is {content[error.start]:#04x}") from None
