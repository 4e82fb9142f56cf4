"""Bodies as they are meant, in small steps: httpx would decode a whole bomb at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import httpx

Decode: TypeAlias = Callable[[bytes], Iterator[bytes]]
"""Takes the next bytes of a body, gives what they decode to, in pieces. `b""` is its end."""

_PIECE_BYTES = 65_536
_EITHER = zlib.MAX_WBITS | 32  # zlib tells gzip and its own format apart


def inflates(encoding: str) -> bool:
    """True if `decoder` can undo a Content-Encoding."""
    return encoding in {"gzip", "x-gzip", "deflate"}


def decoder(encoding: str) -> Decode:
    """Decodes one Content-Encoding. All but gzip and deflate, also several at a time, are `httpx.DecodingError`."""
    if encoding in {"", "identity"}:
        return _as_it_is
    return _inflater() if inflates(encoding) else _refuse


def _as_it_is(data: bytes) -> Iterator[bytes]:
    yield data


def _refuse(data: bytes) -> Iterator[bytes]:
    if data:
        raise httpx.DecodingError("the body has a Content-Encoding that was not asked for")
    yield data


def _inflater() -> Decode:
    stream = zlib.decompressobj(_EITHER)

    def inflate(data: bytes) -> Iterator[bytes]:
        try:
            if not data:
                yield stream.flush()
            while data and not stream.eof:
                yield stream.decompress(data, _PIECE_BYTES)
                data = stream.unconsumed_tail
        except zlib.error as error:
            raise httpx.DecodingError(f"the body is not what its Content-Encoding says: {error}") from error

    return inflate
