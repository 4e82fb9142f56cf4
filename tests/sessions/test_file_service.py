"""Files that a program asks the host for: what a request can cost the host, and other programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from corral.guest import encode_value
from corral.sessions import files as files_module
from corral.sessions.files import FileService, ProgramFiles, Tree
from corral.sessions.tree import FileTree
from corral.types import EncodedValue
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ProgramFiles]:
    tree = FileTree(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    yield ProgramFiles([Tree("/w", tree, host_writes=True, program_writes=True, own=False)], "/w", 1 << 20)
    tree.close()


async def test_a_request_needs_no_thread_of_the_pool_that_sync_tools_fill(files: ProgramFiles) -> None:
    pool = anyio.to_thread.current_default_thread_limiter()
    tools = [object() for _ in range(int(pool.available_tokens))]
    for tool in tools:
        pool.acquire_on_behalf_of_nowait(tool)
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            answer = await FileService(files, 10, encode_value).answer(["stat", "/w"])
    finally:
        for tool in tools:
            pool.release_on_behalf_of(tool)
    assert b'"directory"' in answer.text


async def test_a_list_that_is_too_long_for_an_answer_is_never_complete(
    files: ProgramFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_ANSWER_BYTES", 1000)
    encoded: list[Any] = []

    def encode(value: object) -> EncodedValue:
        encoded.append(value)
        return encode_value(value)

    service = FileService(files, 10, encode)
    for name in "abc":
        (tmp_path / f"{name * 200}").touch()
    assert b"value" in (await service.answer(["list", "/w", False])).text
    for name in "def":
        (tmp_path / f"{name * 200}").touch()
    encoded.clear()
    assert b"E2BIG" in (await service.answer(["list", "/w", False])).text
    assert [[*each] for each in encoded] == [["error"]]
