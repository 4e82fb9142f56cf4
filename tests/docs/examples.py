"""Runs the files that the documentation shows, as the main module of this process.

They share two sandboxes and the language servers, whose start is most of what a file by itself takes.
"""

from __future__ import annotations

import asyncio
import logging
import runpy
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corral.checking import checker
from corral.checking.servers.language_server import LanguageServer
from corral.sandboxes import SandboxProvider, selection


@contextmanager
def shared_engines(deno: SandboxProvider, cpython: SandboxProvider) -> Generator[None]:
    """Has Corrals that name one of these sandboxes, or none, take it; and all have the same language servers."""
    load_by_name = selection.load_by_name
    sandboxes = {"deno": deno, "cpython": cpython}
    servers: dict[str, LanguageServer] = {}

    class SharedServer(LanguageServer):
        def close(self) -> None:
            """It is open until the last Corral is closed."""

    def load(group: str, name: str) -> Any:
        return sandboxes.get(name) or load_by_name(group, name)

    def server(kind: Any, engine: Any, packages: Path | None = None) -> LanguageServer:
        key = f"{kind.name} {packages}"
        if key not in servers:
            servers[key] = SharedServer(kind, engine, packages)
        return servers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "load_by_name", load)
        patch.setattr(checker, "LanguageServer", server)
        yield
    for each in servers.values():
        LanguageServer.close(each)


def run_as_main(file: Path) -> str:
    """Runs a file with the arguments and the path that it would have by itself; returns the traceback of its end, or "".

    What it has imported from its own folder is imported anew by the next.
    """
    before = {*sys.modules}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # or the synchronous methods of pydantic-ai make one that nobody closes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(file)])
        patch.setattr(sys, "path", [str(file.parent), *sys.path])
        patch.setattr(logging.root, "handlers", [])  # as in a process of its own, warnings go to standard error
        patch.setattr(logging.root, "level", logging.WARNING)
        try:
            runpy.run_path(str(file), run_name="__main__")
        except BaseException:
            return traceback.format_exc()
        finally:
            logging.disable(logging.NOTSET)
            asyncio.set_event_loop(None)
            loop.close()
            for name in {*sys.modules} - before:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == file.parent:
                    del sys.modules[name]
    return ""
