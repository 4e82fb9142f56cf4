"""Engines that tests share, where it is not their subject how engines start."""

from __future__ import annotations

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
