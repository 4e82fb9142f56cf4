"""`corral packages`: installs packages that programs may import, in a folder of the user's project."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from corral import Corral, Limits
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import Screen, counted, screen
from corral.errors import ConfigError
from corral.packages import PackageFolder, Pinned, PythonFolder, PythonPackages, Wheel, parse_package

_Folder: TypeAlias = PackageFolder | PythonFolder

_FOLDER = Path("corral-packages")
_FONTS = """\
import json
from matplotlib import font_manager as fonts

saved = []
fonts.json_dump = lambda data, path: saved.extend([path.name, json.dumps(data, cls=fonts._JSONEncoder)])
fonts._load_fontmanager(try_read_cache=False)
saved
"""
_FONT_LIMITS = Limits(memory_mb=512, wall_seconds=120, cpu_seconds=60, value_bytes=5_000_000)
_HELP = """\
Installs npm and Python packages that programs may import. Hosts pass their folder as
Corral(packages=NpmPackages(FOLDER)), and those of --python as Corral(packages=PythonPackages(FOLDER)).

examples:
  corral packages add jszip@3.10.1 docx@9.5.1   exactly these versions
  corral packages add jszip                     the newest version, which is pinned
  corral packages add exceljs@4.4.0 --browser   the build for browsers
  corral packages list
  corral packages remove docx
  corral packages install                       the locked packages, after a checkout
  corral packages add pandas==2.2.3 --python    Python wheels, with a separate lock

Commit the folder's deno.json, deno.lock and python/*.lock with your code. Scripts of packages are not run.
"""


def add_packages(commands: Commands) -> None:
    parser = add_command(commands, "packages", _packages, _HELP, takes="add|list|remove|install")
    parser.add_argument("action", choices=tuple(_ACTIONS), metavar="ACTION", help="add, list, remove or install")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="to add: NAME@VERSION, in Python NAME==VERSION, or NAME for the newest; to remove: NAME",
    )
    parser.add_argument("--folder", type=Path, default=_FOLDER, metavar="PATH", help=f"default: {_FOLDER}")
    parser.add_argument("--python", action="store_true", help="Python packages: wheels for this Python and system")
    parser.add_argument(
        "--browser", action="store_true", help="for `add`: bundle the build for browsers, which depends less on node"
    )


def _packages(arguments: argparse.Namespace) -> int:
    with screen() as view:
        if arguments.python:
            _ACTIONS[arguments.action](arguments, PythonFolder(arguments.folder), view)
        else:
            _ACTIONS[arguments.action](arguments, PackageFolder(arguments.folder), view)
    return 0


def _add(arguments: argparse.Namespace, folder: _Folder, view: Screen) -> None:
    if isinstance(folder, PythonFolder):
        if arguments.browser:
            raise ConfigError("`corral packages add --python` does not take --browser, which is for npm packages")
        names = _named(arguments, "pandas==2.2.3")
        with moving(view, "looking for the newest versions", lasting=not all("==" in each for each in names)):
            packages = [folder.parse(each) if "==" in each else folder.newest(each) for each in names]
        with moving(view, _installing(packages), lasting=True):
            folder.add(packages)
        _list_fonts(folder, view)
    else:
        names, browser = _named(arguments, "jszip@3.10.1"), bool(arguments.browser)
        exact = [each for each in names if "@" in each[1:]]
        with moving(view, "looking for the newest versions", lasting=exact != names):
            packages = [
                parse_package(each, browser=browser) if each in exact else folder.newest(each, browser=browser)
                for each in names
            ]
        with moving(view, _installing(packages), lasting=True):
            folder.add(packages)
    for package in packages:
        view.out(f"added {package}")


def _list_fonts(folder: _Folder, view: Screen) -> None:
    """Makes matplotlib create its font list once for all programs. Its code runs in a jail."""
    if not isinstance(folder, PythonFolder) or not folder.has_matplotlib:
        return
    with moving(view, "creating matplotlib's font list", lasting=True):
        corral = Corral(packages=PythonPackages(folder.path), limits=_FONT_LIMITS, check=False)
        result = corral.sync.execute(_FONTS, language="python")
    try:
        folder.keep_fonts(result.value)
    except ConfigError:
        reason = "" if result.error is None else f": {result.error.message}"
        view.err(f"matplotlib has no font list, so each program that plots creates one{reason:.300}")


def _installing(packages: Sequence[Pinned | Wheel]) -> str:
    return f"installing {', '.join(map(str, packages))}"


def _list(arguments: argparse.Namespace, folder: _Folder, view: Screen) -> None:
    del arguments
    for _, package in sorted(folder.packages().items()):
        view.out(f"{package}{' (browser)' if getattr(package, 'browser', False) else ''}")


def _remove(arguments: argparse.Namespace, folder: _Folder, view: Screen) -> None:
    names = _named(arguments, "pandas" if arguments.python else "jszip")
    with moving(view, "installing the others"):
        folder.remove(names)
    _list_fonts(folder, view)
    for name in names:
        view.out(f"removed {name}")


def _install(arguments: argparse.Namespace, folder: _Folder, view: Screen) -> None:
    if arguments.names:
        raise ConfigError("`corral packages install` takes no names: it installs all locked packages")
    with moving(view, "installing the locked packages", lasting=True):
        folder.install()
    _list_fonts(folder, view)
    view.out(f"installed {counted(len(folder.packages()), 'package')}")


def _named(arguments: argparse.Namespace, example: str) -> list[str]:
    if not arguments.names:
        raise ConfigError(f"`corral packages {arguments.action}` needs a name, such as {example}")
    return arguments.names


_ACTIONS: dict[str, Callable[[argparse.Namespace, _Folder, Screen], None]] = {
    "add": _add,
    "list": _list,
    "remove": _remove,
    "install": _install,
}
