"""Frames between host and guest: the half that both sides share. docs/frames.md specifies the format.

    u32 length | u8 kind | u8 flags | nonce, 16 bytes | payload: a JSON array as UTF-8

`length` counts everything after it; integers are big endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum

PROTOCOL = 1
NONCE_BYTES = 16
NO_NONCE = bytes(NONCE_BYTES)
"""Nonce of READY, because the guest does not know its nonce yet."""
HEADER = struct.Struct(f">IBB{NONCE_BYTES}s")
HEADER_BYTES = HEADER.size
LEAST_LENGTH = HEADER_BYTES - 4
"""Length of a frame without a payload."""


class FrameKind(IntEnum):
    """Kinds of frames. Those below 16 are sent to the guest, the others by the guest."""

    START = 1
    REPLY = 2
    FINISH = 4
    CHUNK = 5
    PING = 6
    SAVE = 7
    RESTORE = 8
    READY = 16
    CALL = 17
    LOG = 18
    EXIT = 19
    OUTCOME = 20
    CREDIT = 21
    CANCEL = 22
    PONG = 23
    SAVED = 24


def encode_frame(kind: FrameKind, payload: bytes, nonce: bytes, *, tagged: bool = False) -> bytes:
    """Encodes one frame. `payload` is a JSON array; `tagged` is true if it contains tags of the value codec."""
    return HEADER.pack(LEAST_LENGTH + len(payload), kind, tagged, nonce) + payload
