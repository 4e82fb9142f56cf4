"""Paths of a session where its directories are not mounted: the usual functions find them all the same.

In the jail without namespaces a directory stays where the host has it. This is a convenience for programs, and no
boundary: that is what the jail lets this process open.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import io
import os
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

_ONE_PATH = """
    access chdir chmod listdir lstat mkdir open readlink remove rmdir scandir stat statvfs truncate unlink utime
""".split()
_TWO_PATHS = "link rename replace symlink".split()


def offer_skills(folder: str) -> None:
    """Makes `skills` a package whose parts are the folders of this one, unless the host has a package of that name."""
    if importlib.util.find_spec("skills") is None:
        package = types.ModuleType("skills")
        package.__path__ = [folder]
        sys.modules["skills"] = package


def map_paths(places: Sequence[tuple[str, str]], home: str | None) -> None:
    """Has paths within the first of each pair lead to the second, and begins in `home`, which is one of the first."""

    import sqlite3

    def mapped(path: Any) -> Any:
        try:
            text = cast("str | bytes", os.fspath(path))
        except TypeError:  # a descriptor, or what the function itself refuses
            return path
        shown = text if isinstance(text, str) else os.fsdecode(text)
        for place, real in places:
            if shown == place or shown.startswith(f"{place}/"):
                found = real + shown[len(place) :]
                return found if isinstance(text, str) else os.fsencode(found)
        return path

    def wrapped(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return function(*map(mapped, arguments[:count]), *arguments[count:], **named)

        return call

    for names, count in ((_ONE_PATH, 1), (_TWO_PATHS, 2)):
        for name in names:
            setattr(os, name, wrapped(getattr(os, name), count))
    builtins.open = io.open = wrapped(io.open, 1)
    getcwd = os.getcwd

    def shown_directory() -> str:
        here = getcwd()
        for place, real in places:
            if here == real or here.startswith(f"{real}/"):
                return place + here[len(real) :]
        return here

    os.getcwd = shown_directory
    sqlite3.connect = wrapped(sqlite3.connect, 1)
    if home is not None:
        os.chdir(home)
        tempfile.tempdir = mapped(home)  # what it makes is also removed by functions that it has from before
