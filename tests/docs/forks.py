"""Runs Python files in forks of one interpreter that has imported what they import: `python -m tests.docs.forks FILES`.

A file by itself spends most of its time on them. Each line of the output is the JSON of one file's
`[exit code, stdout, stderr]`, in the order of the arguments.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import json
import os
import runpy
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import corral
from tests.forks import EarlyEnd

__all__: list[str] = []


def modules(file: str) -> list[str]:
    """The modules that a file imports, but its neighbours."""
    found: list[str] = []
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.append(node.module)
    return [each for each in found if not (Path(file).parent / f"{each.split('.')[0]}.py").exists()]


def run(file: str, end: EarlyEnd) -> tuple[int, str, str]:
    """Runs a file as the main module of a child, with the arguments and the path that it would have by itself."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            sys.argv, sys.path[0] = [file], str(Path(file).parent)
            end.run(partial(runpy.run_path, file, run_name="__main__"))
            sys.exit()
        _, status = os.waitpid(child, 0)
        for each in (stdout, stderr):
            each.seek(0)
        return os.waitstatus_to_exitcode(status), stdout.read().decode(), stderr.read().decode()


@corral.tool
def half(n: float) -> float:
    """Half of a number."""
    return n / 2


async def warm_up() -> None:
    """Runs a program in each language, so that forks need not import and look up what that takes."""
    async with corral.Corral([half]) as opened:
        await opened.execute("return await tools.half({ n: 2 })")
        await opened.execute("await tools.half(n=2)", language="python")


def main(files: list[str]) -> None:
    end = EarlyEnd()
    for name in dict.fromkeys(name for file in files for name in modules(file)):
        importlib.import_module(name)
    asyncio.run(warm_up())
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()
    assert threading.active_count() == 1, "a fork has none of the threads"
    gc.freeze()
    for file in files:
        sys.stdout.write(json.dumps(run(file, end)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
