"""Deno without a jail, in a process of its own: for systems on which no process can be contained."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import anyio
import deno
from anyio.abc import Process

from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import StartFailed
from corral.guest import RuntimeDirectory
from corral.isolation import Isolation
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.guest_files import deno_options, guest_files
from corral.sandboxes.framed.provider import FramedProvider
from corral.types import Language, SandboxConfig

_ENVIRONMENT = {
    "DENO_DIR": f"{os.devnull}/deno",
    **{key: os.environ[key] for key in ("SystemRoot",) if key in os.environ},
}
"""No cache; and the variable without which Windows does not start every program (subprocess.Popen)."""


class UnjailedDeno(FramedProvider):
    """Starts Deno by the event loop's own means. It bounds V8's heap, but neither all memory nor processor time."""

    name: ClassVar[str] = "deno"
    languages: ClassVar[frozenset[Language]] = frozenset({"typescript"})
    isolation = Isolation.of_tier("none")

    def __init__(self, *, allow_eval: bool, allow_wasm: bool) -> None:
        self._allow_eval = allow_eval
        self._arguments = ["--allow-wasm"] * allow_wasm
        self._runtime = RuntimeDirectory()

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        del config
        try:
            folder = await run_shielded_in_thread(self._runtime.prepare)
            command = guest.command(deno.find_deno_bin(), str(folder))
            process = await anyio.open_process(
                [*command, *self._arguments],
                env={**guest.environment, **_ENVIRONMENT},
                start_new_session=sys.platform != "win32",  # so that Ctrl-C does not reach it
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise StartFailed(f"the Deno engine does not start: {error}; reinstall it: pip install deno") from error
        return _ProcessChannel(process)

    def guest_files(self, config: SandboxConfig) -> GuestFiles:
        options = deno_options(config.memory_mb, allow_eval=self._allow_eval)
        return replace(guest_files(config), options=options)

    async def aclose(self) -> None:
        await run_shielded_in_thread(self._runtime.close)


class _ProcessChannel(GuestChannel):
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr

    async def send(self, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError):  # the end of its output tells the reason
            await self._input.send(data)

    async def received(self) -> AsyncIterator[bytes]:
        async for data in self._output:
            yield data

    async def post_mortem(self) -> PostMortem:
        said = b"".join([data async for data in self._errors])  # no more than the pipe and its buffer held
        return PostMortem(status=await self._process.wait(), stderr=said.decode(errors="replace"))

    async def aclose(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.aclose()
