"""What workers of the tests are asked to do."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import cast

from corral.errors import ProgramRejected
from corral.types import Program

WORKER_IMPORTS = ("corral.programs",)
"""Of which programs have parts; a worker imports nothing later."""


def add(left: int, right: int) -> int:
    return left + right


def number() -> int:
    """Of this process, as it sees itself."""
    return os.getpid()


def compute() -> None:
    while True:
        pass


def fill() -> None:
    kept: list[bytes] = []
    while True:
        kept.append(b"x" * (64 << 20))


def end() -> None:
    os._exit(3)


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def write(path: str) -> None:
    Path(path).write_text("x", encoding="utf-8")


def connect() -> None:
    socket.socket()


def fork() -> None:
    os.fork()


def reject() -> None:
    raise ProgramRejected("no", line=2, column=3)


def fail() -> None:
    raise ValueError("no such thing")


def strange() -> int:
    return cast("int", "not a number")


def long(size: int) -> bytes:
    return b"x" * size


def same(program: Program) -> Program:
    return program


_kept: list[bytes] = []


def keep(size: int) -> None:
    _kept.append(bytes(size))
