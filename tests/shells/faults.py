"""Faults that servers of stubs have when a test says so, and their life."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from starlette.applications import Starlette

from tests.bridges.http.serving import Server

__all__ = ["Faults", "close_pipes", "end_group", "served"]


@dataclass
class Faults:
    """`refuse`: status for requests for new computers; `cut` ends each output; `silent`: nothing arrives any more."""

    refuse: int | None = None
    cut: bool = False
    silent: bool = False
    delay_seconds: float = 0.0
    """Before a command starts, or gets input."""

    def mend(self) -> None:
        """Has no faults from now on."""
        self.refuse, self.cut, self.silent, self.delay_seconds = None, False, False, 0.0

    async def delayed(self) -> None:
        await asyncio.sleep(self.delay_seconds)
        await self.silence()

    async def silence(self) -> None:
        while self.silent:
            await asyncio.sleep(0.05)


def end_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    close_pipes(process)


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Closes its pipes, which stay open while there is output that nobody reads."""
    cast("Any", process)._transport.close()


@contextmanager
def served(app: Starlette) -> Generator[str]:
    """Serves on loopback in a thread, and yields the URL."""
    with Server(app, ws="wsproto") as server:
        yield server.url
