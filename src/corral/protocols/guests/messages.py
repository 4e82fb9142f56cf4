"""Messages of corral.v1.Bridge/Calls, which Connect and gRPC share. Their only field contains lines as in the HTTP
bridge."""

from __future__ import annotations

from collections.abc import Iterable

from corral.guest.python.client import BridgeReply, WrongReply
from corral.guest.python.transports.lines import read_reply

SERVICE = "/corral.v1.Bridge"
_FIELD = b"\x0a"
"""Tag of the field in both messages."""


def calls_message(calls: Iterable[bytes]) -> bytes:
    """Makes the message of a batch of calls."""
    data = b'{"calls":[%b],"stream":true}' % b",".join(calls)
    length = bytearray()
    rest = len(data)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return b"%b%b%b" % (_FIELD, length, data)


def read_message(message: bytes) -> BridgeReply:
    """Reads the reply in a non-empty message."""
    if not message.startswith(_FIELD):
        raise WrongReply("it sent a message that is not a reply")
    start = 1
    while message[start : start + 1] > b"\x7f":  # length of the line, which is all that follows
        start += 1
    return read_reply(message[start + 1 :])
