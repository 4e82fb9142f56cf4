"""Messages between the host and a worker: a length of eight bytes, then a pickle.

The host's own pickles are trusted. A worker reads hostile texts with parsers written in C, so what it sends is not:
`read_reply` makes objects of corral's own data classes and of plain types, and calls nothing else.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import struct
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, cast

__all__ = ["HEADER", "MAX_REPLY_BYTES", "Failed", "Request", "framed", "read_reply", "read_request"]

HEADER = struct.Struct(">Q")
MAX_REPLY_BYTES = 64 << 20
_BUILTINS = frozenset({"bytearray", "complex", "frozenset", "set", "slice"})


class Request(NamedTuple):
    """A function by its module and name, and its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...]


class Failed(NamedTuple):
    """The exception that a function has raised, or its text if it is none of corral's own."""

    error: BaseException | None
    text: str


def framed(message: object) -> bytes:
    """A message as it is sent.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: part of it cannot be pickled.
    """
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(data)) + data


def read_request(data: bytes) -> Request:
    """The host's message."""
    request = pickle.loads(data)  # noqa: S301  # the worker is the host's own process
    assert isinstance(request, Request)
    return request


def read_reply(data: bytes) -> Any:
    """The message in a worker's pickle.

    Raises:
        pickle.UnpicklingError, or what a broken pickle makes the reader raise.
    """
    return _Reader(io.BytesIO(data)).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Callable[..., Any]:
        if module_name == "builtins" and global_name in _BUILTINS:
            return super().find_class(module_name, global_name)
        if module_name.startswith("corral.") and "." not in global_name:
            found = super().find_class(module_name, global_name)
            if isinstance(found, type) and _is_plain(cast("type[object]", found)):
                return cast("type[object]", found)
        raise pickle.UnpicklingError(f"a worker's reply names {module_name}.{global_name}")


def _is_plain(kind: type[object]) -> bool:
    """True if making an instance has no effect."""
    return dataclasses.is_dataclass(kind) or issubclass(kind, Exception | Enum) or hasattr(kind, "_fields")
