"""A sandbox provider of one's own: programs run in plain processes of this machine, without a jail."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import cast

import anyio
import deno
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from corral.containment import ContainmentKind
from corral.sandboxes import FramedProvider, GuestChannel, GuestFiles, PostMortem
from corral.types import SandboxConfig


class PlainSandbox(FramedProvider):
    name = "plain"
    languages = frozenset({"typescript", "python"})
    containment = ContainmentKind("plain", "process")  # a process, and nothing around it

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        engine = deno.find_deno_bin() if config.language == "typescript" else sys.executable
        folder = TemporaryDirectory(prefix="plain-")
        try:
            for name, content in guest.files.items():
                await anyio.Path(folder.name, name).write_bytes(content)
            process = await anyio.open_process(guest.command(engine, folder.name), env=guest.environment)
        except BaseException:
            folder.cleanup()
            raise
        return PlainChannel(process, folder)


class PlainChannel(GuestChannel):
    def __init__(self, process: Process, folder: TemporaryDirectory[str]) -> None:
        self._process, self._folder = process, folder

    async def send(self, data: bytes) -> None:
        await cast("ByteSendStream", self._process.stdin).send(data)

    async def received(self) -> AsyncIterator[bytes]:
        async for data in cast("ByteReceiveStream", self._process.stdout):
            yield data

    async def post_mortem(self) -> PostMortem:
        errors = b"".join([data async for data in cast("ByteReceiveStream", self._process.stderr)])
        return PostMortem(status=await self._process.wait(), stderr=errors.decode(errors="replace"))

    async def aclose(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.aclose()
        self._folder.cleanup()
