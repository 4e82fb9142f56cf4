"""Options of commands that run programs: the program, its sandbox, limits, check, environment and resources."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, get_args

from corral import Limits
from corral.cli.options import add_repeatable, passed_options
from corral.containment import TIERS
from corral.errors import ConfigError
from corral.languages import LANGUAGES, language_of_file
from corral.packages import AnyPackages, packages_in
from corral.plugins import load_by_name
from corral.running import CheckMode
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sandboxes.automatic import TypeScriptSandbox
from corral.sessions import Directory, Mount
from corral.types import LIMITS_OF_SANDBOXES, Containment, Language

Number = TypeVar("Number", int, float)

_KEYS: Mapping[str, tuple[str, ...]] = {
    "daytona": ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"),
    "e2b": ("E2B_API_KEY",),
    "vercel": ("VERCEL_OIDC_TOKEN", "VERCEL_TOKEN"),
}
"""Environment variables of which a cloud's SDK needs one, unless it finds its own configuration file."""


class Surroundings(TypedDict):
    """Arguments of `Corral` from the options of `add_surroundings`."""

    network: Any
    """A `Network`, whose module needs an extra; or None."""
    packages: Sequence[AnyPackages]
    skills: Sequence[Path]


class Running(Surroundings):
    """Arguments of `Corral` from the options of `add_running`."""

    sandbox: SandboxProvider
    limits: Limits
    containment: Containment
    check: CheckMode


class GivenProgram(NamedTuple):
    source: str
    language: Language
    file: str
    """Name to show with positions in the program."""
    env: dict[str, str] | None


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `given_program`."""
    parser.add_argument("program", metavar="PROGRAM", help="file with the program, or - for standard input")
    parser.add_argument("--language", choices=tuple(LANGUAGES), help="default: by the file's name")
    add_env(parser)


def given_program(arguments: argparse.Namespace) -> GivenProgram:
    """Reads the program that the options name.

    Raises:
        ConfigError: the program cannot be read.
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


def add_running(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `running`."""
    checking = parser.add_mutually_exclusive_group()
    checking.add_argument(
        "--check",
        choices=get_args(CheckMode),
        default="auto",
        help="type-check programs first if a checker is available; or require it; or never; default: auto",
    )
    checking.add_argument("--no-check", dest="check", action="store_const", const="off", help="the same as --check off")
    containment = parser.add_argument_group("containment")
    containment.add_argument(
        "--sandbox",
        default="auto",
        metavar="NAME",
        help="deno, cpython, wasm, monty, e2b, daytona, vercel, or a package's; default: the one that works here",
    )
    containment.add_argument(
        "--tier",
        choices=("auto", *TIERS),
        default="auto",
        help="the jail around the sandbox; default: the strongest available",
    )
    containment.add_argument(
        "--containment", choices=TIERS, default="landlock", help="refuse to run in a lower tier; default: landlock"
    )
    text = "run even if the sandbox does not enforce this limit here"
    add_repeatable(containment, "--accept-unenforced", "LIMIT", text, choices=sorted(LIMITS_OF_SANDBOXES))
    add_surroundings(parser)
    add_limits(parser, {name: field.default for name, field in Limits.model_fields.items()})


def add_surroundings(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `surroundings`, and `--python-package`."""
    group = parser.add_argument_group("resources of programs")
    text = "an origin that they may request, such as https://api.example.com"
    add_repeatable(group, "--network", "ORIGIN", text)
    text = "npm or Python packages: a folder of `corral packages add`"
    add_repeatable(group, "--packages", "FOLDER", text, type=_folder)
    text = "a Python package that is installed beside corral"
    add_repeatable(group, "--python-package", "NAME", text, dest="python_packages")
    add_repeatable(group, "--skill", "FOLDER", "with SKILL.md", dest="skills", type=_folder)


def add_limits(parser: argparse.ArgumentParser, defaults: Mapping[str, int | float]) -> None:
    """Adds options for these limits, for `limits_of`."""
    group = parser.add_argument_group("limits")
    for name, default in defaults.items():
        kind = _seconds if Limits.model_fields[name].annotation is float else _count
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=kind, default=default, metavar="N", help=f"default: {default:n}")


def add_workspace(parser: argparse.ArgumentParser) -> None:
    """Adds the option for `mounts`."""
    parser.add_argument(
        "--workspace",
        type=_folder,
        metavar="FOLDER",
        help="a folder to mount as /workspace, readable and writable",
    )


def mounts(workspace: Path | None) -> list[Mount]:
    """Returns a session's mounts: the folder as /workspace, or an empty directory."""
    return [Mount("/workspace")] if workspace is None else [Mount("/workspace", Directory(workspace), writable=True)]


def add_env(parser: argparse.ArgumentParser) -> None:
    """Adds the option of `env_of`."""
    text = "a variable for process.env, or os.environ in Python"
    add_repeatable(parser, "--env", "NAME=VALUE", text, default=None, type=_variable)


def surroundings(arguments: argparse.Namespace) -> Surroundings:
    """Returns the network, packages and skills of programs.

    Raises:
        ConfigError: an origin is invalid, or packages are not installed. MissingExtra: the network needs
        `corral[egress]`, which is not installed.
    """
    origins = arguments.network
    return {
        "network": import_module("corral.egress").Network(allow=origins) if origins else None,
        "packages": [packages for folder in arguments.packages for packages in packages_in(folder)],
        "skills": arguments.skills,
    }


def running(arguments: argparse.Namespace, language: Language, *, pool_size: int | None = None) -> Running:
    """Returns the settings for programs in this language, for which `pool_size` sandboxes are kept ready.

    Raises:
        ConfigError: options conflict.
    """
    return {
        "sandbox": _sandbox(arguments, language, pool_size),
        "limits": limits_of(arguments),
        "containment": Containment(required=arguments.containment, accept_unenforced=arguments.accept_unenforced),
        "check": arguments.check,
        **surroundings(arguments),
    }


def limits_of(arguments: argparse.Namespace) -> Limits:
    """Returns the limits that the options set."""
    return Limits(**passed_options(arguments, *(name for name in Limits.model_fields if name in arguments)))


def env_of(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Returns the environment variables that the options set."""
    return None if arguments.env is None else dict(arguments.env)


def _sandbox(arguments: argparse.Namespace, language: Language, pool_size: int | None) -> SandboxProvider:
    name, packages, tier = arguments.sandbox, arguments.python_packages, arguments.tier
    if packages and language == "typescript":
        raise ConfigError("--python-package applies only to Python programs")
    if name not in ("auto", "deno", "cpython") and (packages or tier != "auto"):
        raise ConfigError(f"--python-package and --tier cannot be used with --sandbox {name}")
    if name == "deno" or (name == "auto" and language == "typescript"):
        isolation = "process" if pool_size == 0 else "auto"  # a server that forks takes several times as long to start
        deno = DenoSandbox(tier=tier, isolation=isolation, pool_size=pool_size)
        return TypeScriptSandbox(deno) if name == tier == "auto" else deno
    if name == "cpython" or (name == "auto" and (packages or tier != "auto")):
        return CPythonSandbox(packages=packages, tier=tier, pool_size=pool_size)
    _require_key(name)
    return load_by_name("corral.sandboxes", "python" if name == "auto" else name)


def _require_key(sandbox: str) -> None:
    keys = _KEYS.get(sandbox, ())
    if keys and not any(map(os.environ.get, keys)) and not any(Path.cwd().glob(".env*")):
        raise ConfigError(f"--sandbox {sandbox} needs a key: set {' or '.join(keys)} in the environment")


def _count(text: str) -> int:
    return _positive(text, int, "a whole number")


def _seconds(text: str) -> float:
    return _positive(text, float, "a number")


def _positive(text: str, kind: Callable[[str], Number], what: str) -> Number:
    try:
        number = kind(text)
    except ValueError:
        number = kind("0")
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} above 0")
    return number


def _folder(text: str) -> Path:
    folder = Path(text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return folder


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
