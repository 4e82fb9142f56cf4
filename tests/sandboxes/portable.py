"""Runs programs as on another system: its name for the platform, without the modules and calls of Linux.

`python -m tests.sandboxes.portable darwin|win32` prints the findings as JSON. The engine's process is still Linux's, so this
shows that nothing of Linux is needed, and not that the other system has everything.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio._backends._asyncio  # pyright: ignore[reportUnusedImport]

import corral.checking  # pyright: ignore[reportUnusedImport]
import corral.cli.dispatch
import corral.sandboxes.monty  # pyright: ignore[reportUnusedImport]

LINUX = {
    os: (
        "eventfd",
        "eventfd_read",
        "eventfd_write",
        "pidfd_open",
        "memfd_create",
        "EFD_CLOEXEC",
        "EFD_NONBLOCK",
        "O_PATH",
    ),
    signal: ("pidfd_send_signal",),
}
"""Attributes that only Linux has."""
POSIX = {
    os: (
        "fork",
        "geteuid",
        "getuid",
        "getegid",
        "killpg",
        "register_at_fork",
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
    ),
    signal: ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGXCPU", "SIGTRAP", "SIGBUS", "SIGALRM", "SIGPIPE"),
    select: ("poll",),
    time: ("clock_gettime",),
}
"""Attributes that Windows does not have, as far as this system's own subprocesses do without."""
NOT_ON_WINDOWS = frozenset({"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"})


class Absent(MetaPathFinder):
    """Makes modules impossible to import."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name in NOT_ON_WINDOWS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def pretend(platform: str) -> None:
    """Takes away what `platform` does not have. Libraries are loaded already, as this system has them; Corral is not."""
    asyncio.run(asyncio.sleep(0))
    for name in [name for name in sys.modules if name.partition(".")[0] == "corral"]:
        del sys.modules[name]
    absent = [LINUX, POSIX] if platform == "win32" else [LINUX]
    for module, names in [pair for each in absent for pair in each.items()]:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    if platform == "win32":
        for name in NOT_ON_WINDOWS & sys.modules.keys():
            del sys.modules[name]
        sys.meta_path.insert(0, Absent())
        windows: Any = SimpleNamespace(NeedCurrentDirectoryForExePath=bool)  # which `which` asks, from Python 3.12 on
        shutil.__dict__["_winapi"] = windows
    else:
        resource: Any = importlib.import_module("resource")
        del resource.prlimit

    def no_descriptors(*_: object) -> None:
        raise NotImplementedError("the event loop has no readers of descriptors")

    for name in ("add_reader", "add_writer"):  # as Windows' proactor loop
        setattr(asyncio.SelectorEventLoop, name, no_descriptors)
    sys.platform = platform


async def examine() -> dict[str, Any]:
    corral: Any = importlib.import_module("corral")
    errors: Any = importlib.import_module("corral.errors")

    @corral.tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @corral.tool
    async def hang() -> None:
        """Never ends."""
        await anyio.sleep_forever()

    tools, outcomes = [add, hang], dict[str, Any]()
    programs = {
        "value": "console.log('hello'); return await tools.add({ a: 1, b: 2 })",
        "error": "const x = 1;\nthrow new RangeError('no')",
        "files": "return typeof Deno",
        "timeout": "for (;;);",
        "waiting": "await tools.hang({})",
    }
    limits, short = corral.Limits(wall_seconds=20), corral.Limits(wall_seconds=0.5)
    accepted = {"cpu_seconds", "memory_mb"}
    async with corral.Corral(tools, containment=corral.Containment.development(), limits=limits, check=False) as opened:
        for name, program in programs.items():
            ends = name not in ("timeout", "waiting")
            result = await opened.execute(program, limits=limits if ends else short)
            error = result.error and [result.error.code, result.error.line]
            outcomes[name] = [
                result.status,
                result.value,
                error,
                [entry.text for entry in result.logs],
                result.containment,
            ]
        result = await opened.execute("await tools.add(a=1, b=2)", language="python")
        outcomes["python"] = [result.status, result.value, None, [], result.containment]
        long = await opened.execute(f"// {'x' * 20_000}\nreturn 7")
        outcomes["long"] = long.value
        checked = await opened.execute("return await tools.add({ a: 1, b: 2 })", check=True)
        outcomes["checked"] = [checked.value, checked.checked]
    for name, options in {
        "unaccepted": {"containment": "none"},
        "tier": {"containment": corral.Containment(accept_unenforced=accepted)},
    }.items():
        try:
            await corral.Corral(tools, check=False, **options).execute("return 1")
        except errors.CorralError as error:
            outcomes[name] = [type(error).__name__, str(error)]
    return outcomes


def main(platform: str) -> None:
    assert corral.cli.dispatch
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        pretend(platform)
        outcomes = anyio.run(examine)
        importlib.import_module("corral.cli.dispatch")
        outcomes["doctor"] = asdict(importlib.import_module("corral.doctor.report").examine())
        outcomes["left"] = [path.name for path in Path(folder).iterdir()]
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1])
