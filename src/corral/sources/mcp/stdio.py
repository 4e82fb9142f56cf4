"""MCP servers as child processes, over their standard input and output.

Replaces mcp's own transport, which buffers lines of any length and lets the server write to our terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, RequestId, jsonrpc_message_adapter

from corral.concurrency.descriptors import reap
from corral.concurrency.threads import run_shielded_in_thread
from corral.sources.mcp.bounded_transport import ListRoom, RateLimiter, readable

_GRACE_SECONDS = 1.0
"""Seconds that a server has to end after its input is closed, and again after SIGTERM."""
_POLL_SECONDS = 0.01
_LINES_PER_SECOND = 20
_HEAD_BYTES = 10_000
_TAIL_BYTES = 300
"""Bytes that are kept of an overlong line, to log it and to find the request that it answers."""

_INVALID = "its answer is not valid, or too deeply nested; it begins with"
_UNKNOWN_BYTES = 100_000
"""Minimum length of an overlong line that counts as a page while a list is read, unless its id is another answer's."""

_VERSION = r'"jsonrpc"\s*:\s*"2\.0"'
_ID = r'"id"\s*:\s*(0|[1-9]\d{0,17}|"[\w.:/ +-]{1,100}")'
_OUTCOME = r'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(rf"\s*\{{\s*(?:{_VERSION}\s*,\s*)?{_ID}\s*,\s*(?:{_VERSION}\s*,\s*)?{_OUTCOME}".encode())
_ID_LAST = re.compile(rf",\s*{_ID}\s*(?:,\s*{_VERSION}\s*)?\}}\s*\Z".encode())
_OUTCOME_FIRST = re.compile(rf"\s*\{{\s*(?:{_VERSION}\s*,\s*)?{_OUTCOME}".encode())
"""Members of an answer, in the orders in which servers write them. Other `"id"`s can be data."""


@asynccontextmanager
async def stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None,
    max_message_bytes: int,
    lists: ListRoom,
    log: Callable[[int, str], None],
    lost: Callable[[str], None],
) -> AsyncGenerator[Any]:
    """Yields a transport to a new process in its own process group, which is killed afterwards.

    The process gets those of our environment variables that mcp considers harmless (PATH, HOME and the like). Its
    stderr, and lines of stdout that are not messages, go to `log`; `lost` is called with the reason why no more
    messages will come. An answer that exceeds `max_message_bytes`, or is invalid, fails its request.

    Raises:
        OSError: the process cannot be started.
        ValueError: the command or the environment contains a NUL.
    """
    process = await _start(command, {**get_default_environment(), **env}, cwd)
    received, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()
    send, sending = anyio.create_memory_object_stream[SessionMessage]()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr

    leaving = cleared = False
    last_words, no_more_words = "", anyio.Event()

    async def read() -> None:
        nonlocal cleared
        limit = RateLimiter(_LINES_PER_SECOND)
        async with received:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for line, whole in _lines(stdout, max_message_bytes):
                    if lists.page is not None and _is_page(line, lists.page) and not lists.take(len(line)):
                        message = _error(lists.page, lists.problem)
                    elif whole:
                        message = _message(line) or _message(readable(line, log))
                        message = message or _failure(line, f"{_INVALID} {_excerpt(line)}")
                    else:
                        message = _failure(
                            line, f"its answer is larger than {max_message_bytes} bytes; ask for less at a time"
                        )
                    if message is not None:
                        await received.send(message)
                    elif limit.take():
                        log(logging.WARNING, f"not a message: {_excerpt(line)}")
            with anyio.move_on_after(_GRACE_SECONDS):
                await _wait(process)
                _signal_group(process, signal.SIGKILL)  # at once, because the number may later be another group's
                cleared = True
                await no_more_words.wait()
            if not leaving:
                if last_words and process.returncode:
                    log(logging.WARNING, f"{_ending(process.returncode)} after it wrote: {last_words}")
                lost(_ending(process.returncode))

    async def write() -> None:
        async with sending:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                async for message in sending:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send(text.encode() + b"\n")

    async def read_errors() -> None:
        nonlocal last_words
        limit = RateLimiter(_LINES_PER_SECOND)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line, _ in _lines(stderr, _HEAD_BYTES):
                last_words = _excerpt(line) or last_words
                if limit.take():
                    log(logging.INFO, f"stderr: {_excerpt(line)}")
        no_more_words.set()

    try:
        async with anyio.create_task_group() as tasks:
            for each in (read, write, read_errors):
                tasks.start_soon(each)
            try:
                yield receive, send
            finally:
                leaving = True
                with anyio.CancelScope(shield=True):
                    receive.close()
                    send.close()
                    if not cleared:
                        await _stop(process)
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _start(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Process:
    try:
        with anyio.CancelScope(shield=True):  # a started process must be returned, so that it can be stopped
            return await anyio.open_process(list(command), env=env, cwd=cwd, start_new_session=True)
    except FileNotFoundError as error:
        program, has_more, _ = command[0].partition(" ")
        if not has_more or error.filename != command[0]:
            raise
        problem = f"{error.strerror}; pass its arguments separately in args"
        raise FileNotFoundError(error.errno, problem, f"{program} …") from None
    raise AssertionError("unreachable: nothing cancels the scope")


async def _lines(stream: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[tuple[bytes, bool]]:
    """Yields lines without their ends, and True if complete. Of an overlong line, yields only its head and tail."""
    line, whole = bytearray(), True
    async for chunk in stream:
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:  # the part before it is complete lines
                yield bytes(line), whole
                line, whole = bytearray(), True
            line += piece
            if not whole or len(line) > max_bytes:
                whole = False
                del line[_HEAD_BYTES:-_TAIL_BYTES]


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _failure(line: bytes, problem: str) -> SessionMessage | None:
    """Makes an error for the request that a line answers, if its id comes before or after the result."""
    answered = _answered_request(line)
    return None if answered is None else _error(answered, problem)


def _error(request: RequestId, problem: str) -> SessionMessage:
    return SessionMessage(
        JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=INTERNAL_ERROR, message=problem))
    )


def _answered_request(line: bytes) -> RequestId | None:
    match = _ID_FIRST.match(line) or (_OUTCOME_FIRST.match(line) and _ID_LAST.search(line[-_TAIL_BYTES:]))
    return None if match is None else json.loads(match[1])


def _is_page(line: bytes, page: RequestId) -> bool:
    """True if a line answers the request for a page, or is overlong and has no known id."""
    answered = _answered_request(line)
    return len(line) > _UNKNOWN_BYTES if answered is None else str(answered) == str(page)


def _excerpt(line: bytes) -> str:
    return line[:_HEAD_BYTES].decode(errors="replace").rstrip()


# --- the end of a process -----------------------------------------------------------------------------------


async def _stop(process: Process) -> None:
    """Ends a process and its children, except children that have left its process group."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError):
        await process.stdin.aclose()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            _signal_group(process, sign)
        with anyio.move_on_after(_GRACE_SECONDS):
            await _wait(process)
            break
    _signal_group(process, signal.SIGKILL)  # children that are still running
    if process.returncode is not None:
        await run_shielded_in_thread(partial(reap, -process.pid))


async def _wait(process: Process) -> None:
    """Waits for the process only. `process.wait()` would also wait for processes that have inherited its pipes."""
    while process.returncode is None:
        await anyio.sleep(_POLL_SECONDS)


def _signal_group(process: Process, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


def _ending(code: int | None) -> str:
    match code:
        case None:
            return "it closed its output"
        case int() if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        case _:
            return f"its process ended with exit code {code}"
