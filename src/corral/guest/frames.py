"""Host's half of the frames over the guest's standard input and output.

A guest's output is hostile: a length is checked against the limit of its kind before the payload is read. The nonce,
which only the guest runtime knows, distinguishes its frames from bytes that the program managed to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from corral.errors import BridgeError, MalformedMessage, MessageTooLarge
from corral.guest.python.frames import HEADER, HEADER_BYTES, LEAST_LENGTH, FrameKind

_TAGGED = 1


class Frame(NamedTuple):
    """One received frame. `payload` is not parsed yet."""

    kind: int
    tagged: bool
    payload: bytes


class FrameReader:
    """Splits a guest's output into frames.

    `bounds` has the maximum bytes of the payload of each expected kind; any other kind is malformed. The buffer never
    exceeds one frame of the largest size plus one read.
    """

    def __init__(self, nonce: bytes, bounds: Mapping[int, int]) -> None:
        self._nonce = nonce
        self._bounds = bounds
        self._buffer = bytearray()
        self._needed = HEADER_BYTES  # bytes to wait for before parsing the buffer again

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that `data` completes.

        Raises:
            MalformedMessage: an unexpected kind, a wrong nonce or unknown flags.
            MessageTooLarge: a length above the limit of its kind; its payload was not read.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        frames: list[Frame] = []
        at = 0
        size = len(data)
        self._needed = HEADER_BYTES
        while size - at >= HEADER_BYTES:
            length, kind, flags, nonce = HEADER.unpack_from(data, at)
            if (
                nonce != self._nonce
                or not LEAST_LENGTH <= length <= self._bounds.get(kind, -1) + LEAST_LENGTH
                or flags > _TAGGED
            ):
                raise self._violation(length, kind, nonce)
            end = at + 4 + length
            if size < end:
                self._needed = end - at
                break
            frames.append(Frame(kind, flags == _TAGGED, data[at + HEADER_BYTES : end]))
            at = end
        if at < size:
            self._buffer += data[at:]
        return frames

    def _violation(self, length: int, kind: int, nonce: bytes) -> BridgeError:
        bound = self._bounds.get(kind)
        if nonce != self._nonce or bound is None or length <= bound + LEAST_LENGTH:
            return MalformedMessage("the sandbox wrote something that is not a frame of this execution")
        size = length - LEAST_LENGTH
        return MessageTooLarge(f"the sandbox announced a {FrameKind(kind).name} of {size} bytes; {bound} are allowed")
