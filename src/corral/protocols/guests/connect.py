"""Calls in the format of corral's Connect bridge.

The calls of a batch are one request to corral.v1.Bridge/Calls. The only field of its messages contains lines as in the
HTTP bridge. Each message is in an envelope: a byte of flags, and four bytes of length. corral.v1.Bridge/Renew returns a
fresh token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from corral.guest.python.client import BridgeReply, BridgeRequest, Failure, Items, WrongReply, bridge_transport
from corral.guest.python.transports.lines import encode_call, read_failure
from corral.protocols.guests.messages import SERVICE, calls_message, read_message

_HEAD_BYTES = 5
_END = 2
_BESIDE_LINE = 16
"""Bytes of a message in addition to its line."""


class _ConnectTransport:
    batch_calls = 64
    encode = staticmethod(encode_call)
    renewal_path = f"{SERVICE}/Renew"

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        message = calls_message(calls)
        body = b"\0%b%b" % (len(message).to_bytes(4, "big"), message)
        return BridgeRequest(f"{SERVICE}/Calls", body, "application/connect+proto")

    def reader(self, sequences: Sequence[int], max_bytes: int, /) -> _Envelopes:
        return _Envelopes(sequences, max_bytes)

    def refusal(self, body: bytes, /) -> Failure:
        return _read_error(json.loads(body))


class _Envelopes:
    """Splits a reply into messages."""

    def __init__(self, sequences: Sequence[int], max_bytes: int) -> None:
        self._unanswered = dict.fromkeys(sequences)
        self._max_bytes = max_bytes + _BESIDE_LINE
        self._data = bytearray()

    def feed(self, chunk: bytes, /) -> Iterator[BridgeReply]:
        self._data += chunk
        while len(self._data) >= _HEAD_BYTES:
            size = int.from_bytes(self._data[1:_HEAD_BYTES], "big")
            if size > self._max_bytes:
                raise WrongReply(f"a message of its reply is longer than {self._max_bytes} bytes")
            end = _HEAD_BYTES + size
            if len(self._data) < end:
                return
            flags, message = self._data[0], bytes(self._data[_HEAD_BYTES:end])
            del self._data[:end]
            yield from self._read(flags, message)

    def _read(self, flags: int, message: bytes) -> Iterator[BridgeReply]:
        if flags == _END:
            error = json.loads(message).get("error")
            if error is not None:
                failure = _read_error(error)
                yield from [(sequence, failure, None) for sequence in self._unanswered]
        elif flags:
            raise WrongReply("it sent a message that is not a reply")
        elif message:  # an empty message keeps a slow connection alive
            reply = read_message(message)
            if not isinstance(reply[2], Items):
                self._unanswered.pop(reply[0], None)
            yield reply

    def end(self) -> tuple[BridgeReply, ...]:
        return ()


def _read_error(error: dict[str, Any]) -> Failure:
    """Reads an error of the protocol. Its details contain the host's error."""
    details = {each["type"]: each["debug"] for each in error["details"]}
    seconds = details.get("google.rpc.RetryInfo", {}).get("retryDelay")  # such as 1.5s
    return read_failure(
        {
            **details["google.rpc.ErrorInfo"]["metadata"],
            "message": error.get("message", ""),
            "retryAfterSeconds": None if seconds is None else float(seconds[:-1]),
        }
    )


connect, connect_from_environment = bridge_transport(_ConnectTransport())
