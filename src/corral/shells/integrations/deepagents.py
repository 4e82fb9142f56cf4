"""Shell as the backend of agents of deepagents. Requires the extra `deepagents`."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from typing_extensions import override

from corral.errors import ConfigError, CorralError, requires_extra
from corral.shells import Shell

with requires_extra("corral.shells.integrations.deepagents", "deepagents"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

__all__ = ["ShellBackend"]

T = TypeVar("T")

_SECONDS = 120
_MOST_SECONDS = 3_600
_OUTPUT_BYTES = 1_000_000


class ShellBackend(BaseSandbox):
    """Backend for `create_deep_agent(backend=...)`: commands, and files by paths of the shell.

    The framework finds, reads and edits files with commands that need python3 in the shell. Synchronous methods must be
    called from anyio's threads, in which a synchronous agent runs the framework's tools.

    Raises:
        ConfigError: the shell does not run programs of an operating system.
    """

    def __init__(self, shell: Shell) -> None:
        if not shell.capabilities.real_processes:
            raise ConfigError("deepagents needs python3 in the shell, and this one has no programs; use another shell")
        self._shell = shell.restricted()
        self._id = f"corral-{secrets.token_hex(8)}"

    @property
    @override
    def id(self) -> str:
        """Unique name of this backend."""
        return self._id

    @override
    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command for up to `timeout` seconds: 120 by default, an hour at most. Exit code 124 means a
        time-out."""
        seconds = min(timeout or _SECONDS, _MOST_SECONDS)
        try:
            done = await self._shell.run(command, timeout_seconds=seconds, output_bytes=_OUTPUT_BYTES)
        except CorralError as error:
            return ExecuteResponse(output=str(error), exit_code=126)
        output = done.stdout + done.stderr
        if done.timed_out:
            return ExecuteResponse(output=f"{output}\n[ended after {seconds} seconds]", exit_code=124)
        return ExecuteResponse(output=output, exit_code=done.exit_code, truncated=done.truncated)

    @override
    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files; each response has its own error."""
        return [FileUploadResponse(path, await self._upload(path, data)) for path, data in files]

    @override
    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files; each response has its own error."""
        return [await self._download(path) for path in paths]

    @override
    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Does the same as `aexecute`, from an anyio thread."""
        return _waited(partial(self.aexecute, command, timeout=timeout))

    @override
    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Does the same as `aupload_files`, from an anyio thread."""
        return _waited(partial(self.aupload_files, files))

    @override
    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Does the same as `adownload_files`, from an anyio thread."""
        return _waited(partial(self.adownload_files, paths))

    async def _upload(self, path: str, data: bytes) -> str | None:
        if _wrong(path):
            return "invalid_path"
        try:
            info = await self._shell.files.stat(path)
            if info is not None and info.kind == "directory":
                return "is_directory"
            await self._shell.files.write_bytes(path, data)
        except CorralError as error:
            return _reason(error)
        return None

    async def _download(self, path: str) -> FileDownloadResponse:
        if _wrong(path):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            info = await self._shell.files.stat(path)
            if info is not None and info.kind == "directory":
                return FileDownloadResponse(path, error="is_directory")
            data = await self._shell.files.read_bytes(path)
        except CorralError as error:
            return FileDownloadResponse(path, error=_reason(error))
        return FileDownloadResponse(path, data, None if data is not None else "file_not_found")


def _wrong(path: str) -> bool:
    return "\0" in path or posixpath.normpath(path) in {".", "/"}


def _reason(error: CorralError) -> str:
    text = str(error)
    return "permission_denied" if "permission denied" in text.lower() else text


def _waited(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine in the event loop that started this thread.

    Raises:
        ConfigError: no event loop started this thread.
    """
    try:
        return anyio.from_thread.run(call)
    except RuntimeError as error:
        raise ConfigError(
            "a shell belongs to an event loop: await the agent (`ainvoke`), or call this in anyio.to_thread.run_sync"
        ) from error
