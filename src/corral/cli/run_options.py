"""Options of commands that run programs: sandbox, limits, check and environment."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict, TypeVar

from corral import Directory, Language, Limits, Mount
from corral.cli.options import given
from corral.errors import ConfigError
from corral.plugins import load_by_name
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.types import LIMITS_OF_SANDBOXES, TIERS, LimitName, Tier

__all__ = [
    "Running",
    "add_env",
    "add_limits",
    "add_running",
    "add_workspace",
    "env_of",
    "limits_of",
    "mounts",
    "running",
]

Number = TypeVar("Number", int, float)

_SANDBOX = "CORRAL_SANDBOX"
_CHECKS: Mapping[str, Literal["required"] | bool] = {"auto": True, "required": "required", "off": False}


class Running(TypedDict):
    """The arguments of `Corral` that the options of `add_running` set."""

    sandbox: SandboxProvider
    limits: Limits
    required_tier: Tier
    accept_unenforced: Sequence[LimitName]
    check: Literal["required"] | bool


def add_running(parser: argparse.ArgumentParser) -> None:
    """Adds what `running` reads."""
    checking = parser.add_mutually_exclusive_group()
    checking.add_argument(
        "--check",
        choices=tuple(_CHECKS),
        default="auto",
        help="type-check programs first, where that can be had; or refuse them where not; or never; default: auto",
    )
    checking.add_argument("--no-check", dest="check", action="store_const", const="off", help="the same as --check off")
    isolation = parser.add_argument_group("isolation")
    isolation.add_argument(
        "--sandbox",
        default=os.environ.get(_SANDBOX) or "auto",
        metavar="NAME",
        help=f"deno, cpython, monty, e2b, daytona, vercel, or that of a package; default: {_SANDBOX}, or what works",
    )
    isolation.add_argument(
        "--engine", choices=("auto", "cpython", "monty"), default="auto", help="for Python; default: what works here"
    )
    isolation.add_argument(
        "--package", action="append", default=[], metavar="NAME", help="that Python may import; may be repeated"
    )
    isolation.add_argument(
        "--tier",
        choices=("auto", *TIERS),
        default="auto",
        help="the jail around the sandbox; default: the best there is",
    )
    isolation.add_argument(
        "--required-tier", choices=TIERS, default="landlock", help="do not run in a lower one; default: landlock"
    )
    isolation.add_argument(
        "--accept-unenforced",
        choices=sorted(LIMITS_OF_SANDBOXES),
        action="append",
        default=[],
        metavar="LIMIT",
        help="run even if the sandbox does not enforce this limit here; may be repeated",
    )
    add_limits(parser, {name: field.default for name, field in Limits.model_fields.items()})


def add_limits(parser: argparse.ArgumentParser, defaults: Mapping[str, int | float]) -> None:
    """Adds these limits, which `limits_of` reads."""
    group = parser.add_argument_group("limits")
    for name, default in defaults.items():
        kind = _seconds if Limits.model_fields[name].annotation is float else _count
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=kind, default=default, metavar="N", help=f"default: {default:n}")


def add_workspace(parser: argparse.ArgumentParser) -> None:
    """Adds what `mounts` takes."""
    parser.add_argument(
        "--workspace",
        type=_folder,
        metavar="FOLDER",
        help="a folder that is /workspace in there, for reading and writing",
    )


def mounts(workspace: Path | None) -> list[Mount]:
    """The directories of a session: the folder as /workspace, or an empty one."""
    return [Mount("/workspace")] if workspace is None else [Mount("/workspace", Directory(workspace), write=True)]


def add_env(parser: argparse.ArgumentParser) -> None:
    """Adds what `env_of` reads."""
    parser.add_argument(
        "--env",
        action="append",
        type=_variable,
        metavar="NAME=VALUE",
        help="what a program finds in process.env, in Python os.environ; may be repeated",
    )


def running(arguments: argparse.Namespace, language: Language, *, pool_size: int | None = None) -> Running:
    """The settings for programs in this language; `pool_size` sandboxes are kept ready for them.

    Raises:
        ConfigError: the options do not fit together.
    """
    return {
        "sandbox": _sandbox(arguments, language, pool_size),
        "limits": limits_of(arguments),
        "required_tier": arguments.required_tier,
        "accept_unenforced": arguments.accept_unenforced,
        "check": _CHECKS[arguments.check],
    }


def limits_of(arguments: argparse.Namespace) -> Limits:
    """The limits that the options name."""
    return Limits(**given(arguments, *(name for name in Limits.model_fields if name in arguments)))


def env_of(arguments: argparse.Namespace) -> dict[str, str] | None:
    """The environment that the options name."""
    return None if arguments.env is None else dict(arguments.env)


def _sandbox(arguments: argparse.Namespace, language: Language, pool_size: int | None) -> SandboxProvider:
    engine, packages = arguments.engine, arguments.package
    if arguments.sandbox != "auto":
        if packages or engine != "auto" or arguments.tier != "auto":
            raise ConfigError(f"--engine, --package and --tier do not go with --sandbox {arguments.sandbox}")
        return load_by_name("corral.sandboxes", arguments.sandbox)
    if language == "typescript":
        if packages or engine != "auto":
            raise ConfigError("--engine and --package are for Python programs")
        isolation = "process" if pool_size == 0 else "auto"  # a server that forks takes several times as long to start
        return DenoSandbox(tier=arguments.tier, isolation=isolation, pool_size=pool_size)
    if engine == "monty" or (engine == "auto" and not packages and arguments.tier == "auto"):
        if packages or arguments.tier != "auto":
            raise ConfigError("Monty has no packages and no tiers; use --engine cpython")
        return load_by_name("corral.sandboxes", "monty" if engine == "monty" else "python")
    return CPythonSandbox(packages=packages, tier=arguments.tier, pool_size=pool_size)


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
