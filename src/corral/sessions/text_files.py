"""Text encoding and decoding for the files of sessions and shells."""

from __future__ import annotations

import io

from corral.concurrency.threads import run_in_own_thread
from corral.errors import FileError

MAX_READ_BYTES = 100_000_000
"""Maximum bytes of a file that is read whole, unless the caller says otherwise."""


_DECODED_HERE_BYTES = 64_000
_PIECE_CHARS = 1 << 20


async def decode_text(path: str, data: bytes, encoding: str, lines: tuple[int, int | None] | None) -> str:
    """Decodes a file, or a range of its lines: first and last, counted from 1; None as the last line stands for the
    end.

    A large file is decoded in a thread, in pieces, so that the event loop keeps running.

    Raises:
        FileError: the file is not text in this encoding, or the encoding is unknown.
    """
    try:
        if len(data) <= _DECODED_HERE_BYTES:
            return _decoded(data, encoding, lines)
        return await run_in_own_thread(_decoded, data, encoding, lines, abandon_on_cancel=True)
    except (UnicodeDecodeError, LookupError) as error:
        raise FileError(f"{path}: {error}") from error


def _decoded(data: bytes, encoding: str, lines: tuple[int, int | None] | None) -> str:
    kept: list[str] = []
    with io.TextIOWrapper(io.BytesIO(data), encoding, newline="") as file:
        if lines is None:
            while piece := file.read(_PIECE_CHARS):
                kept.append(piece)
        else:
            first, last = lines
            for number, line in enumerate(file, 1):
                if last is not None and number > last:
                    break
                if number >= first:
                    kept.append(line)
    return "".join(kept)


def encode_text(path: str, text: str, encoding: str) -> bytes:
    """Encodes a text.

    Raises:
        FileError: the encoding cannot represent it, or is unknown.
    """
    try:
        return text.encode(encoding)
    except (UnicodeEncodeError, LookupError) as error:
        raise FileError(f"{path}: {error}") from error
