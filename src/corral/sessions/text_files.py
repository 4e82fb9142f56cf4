"""Files as text, for the files of sessions and of shells."""

from __future__ import annotations

from corral.errors import FileError

__all__ = ["MAX_READ_BYTES", "decode_text", "encode_text"]

MAX_READ_BYTES = 100_000_000
"""Maximum size of a file that is read whole, unless the caller says otherwise."""


def decode_text(path: str, data: bytes, encoding: str, lines: tuple[int, int | None] | None) -> str:
    """Decodes a file, or its lines from the first to the last of a range, counted from 1; None is the end.

    Raises:
        FileError: it is not text in this encoding, or there is no such encoding.
    """
    try:
        text = data.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise FileError(f"{path}: {error}") from error
    if lines is None:
        return text
    first, last = lines
    return "".join(text.splitlines(keepends=True)[max(0, first - 1) : last])


def encode_text(path: str, text: str, encoding: str) -> bytes:
    """Encodes a text.

    Raises:
        FileError: it does not exist in this encoding, or there is no such encoding.
    """
    try:
        return text.encode(encoding)
    except (UnicodeEncodeError, LookupError) as error:
        raise FileError(f"{path}: {error}") from error
