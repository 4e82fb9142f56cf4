"""Messages between the host and a worker: a length of eight bytes, then a pickle to the worker, and JSON back.

The host's pickles are trusted. Replies are not, because a worker reads hostile texts with parsers written in C: a reply
is parsed as its function's annotated return type, or as one of corral's own errors.
"""

from __future__ import annotations

import base64
import json
import pickle
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast, get_type_hints

from pydantic import TypeAdapter

from corral.errors import CorralError, error_class

HEADER = struct.Struct(">Q")
MAX_REPLY_BYTES = 64 << 20
_BYTES = "$bytes"


class Request(NamedTuple):
    """Module and name of a function, and its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...]


class Failed(NamedTuple):
    """The exception that a function raised, or its text if it is not one of corral's own."""

    error: BaseException | None
    text: str


def framed(request: Request) -> bytes:
    """Encodes a request.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: part of the request cannot be pickled.
    """
    return _framed(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))


def read_request(data: bytes) -> Request:
    """Decodes a request."""
    request = pickle.loads(data)  # noqa: S301  # the worker is the host's own process
    assert isinstance(request, Request)
    return request


def reply_to(function: Callable[..., object], answer: object) -> bytes:
    """Encodes a function's result, or the exception in a `Failed`."""
    match answer:
        case Failed(error=CorralError() as error, text=text):
            members = {name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)}
            message: dict[str, object] = {"error": error.code, "text": text, "members": members}
        case Failed(text=text):
            message = {"failed": text}
        case _:
            message = {"answer": _adapter(function).dump_python(answer)}
    return _framed(json.dumps(message, default=_plain, separators=(",", ":")).encode())


def read_reply(data: bytes, function: Callable[..., object]) -> object:
    """Decodes the function's result, or a `Failed`.

    Raises:
        ValueError: it is neither.
    """
    message = json.loads(data, object_hook=_revived)
    match message:
        case {"answer": answer}:
            return _adapter(function).validate_python(answer)
        case {"error": str() as code, "text": str() as text}:
            kind = error_class(code)
            error = kind.__new__(kind, text)
            vars(error).update(_MEMBERS.validate_python(message.get("members")))
            return Failed(error, text)
        case {"failed": str() as text}:
            return Failed(None, text)
        case _:
            raise ValueError("it is not a reply")


_PLAIN = (bool, int, float, str, type(None))
_MEMBERS = TypeAdapter(dict[str, bool | int | float | str | None])
"""Attributes of an error."""


@cache
def _adapter(function: Callable[..., object]) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(function)["return"])


def _framed(data: bytes) -> bytes:
    return HEADER.pack(len(data)) + data


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, frozenset):
        return [*cast("frozenset[object]", value)]
    raise TypeError(f"a worker's reply contains a {type(value).__name__}")


def _revived(data: dict[str, Any]) -> object:
    return base64.b64decode(data[_BYTES], validate=True) if data.keys() == {_BYTES} else data
