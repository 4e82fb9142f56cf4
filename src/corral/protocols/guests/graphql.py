"""Calls in the format of corral's GraphQL bridge.

The calls of a batch are one subscription to `_calls`, whose events have lines of the HTTP bridge. POST {url}/token
returns a fresh token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial

from corral.guest.python.client import (
    BridgeReply,
    BridgeRequest,
    Failure,
    Items,
    ReplyReader,
    WrongReply,
    bridge_transport,
)
from corral.guest.python.transports.lines import Lines, encode_call, read_failure, read_reply

_OPERATION = b"subscription($calls:[JSON!]!){_calls(calls:$calls)}"
_EVENT = b"data: "
_LINE = b'data: {"data":{"_calls":'


class _GraphqlTransport:
    batch_calls = 64
    encode = staticmethod(encode_call)
    renewal_path = "/token"

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        return BridgeRequest("", b'{"query":"%b","variables":{"calls":[%b]}}' % (_OPERATION, b",".join(calls)))

    def reader(self, sequences: Sequence[int], max_bytes: int, /) -> ReplyReader:
        return Lines(max_bytes, partial(_read_event, dict.fromkeys(sequences)))

    def refusal(self, body: bytes, /) -> Failure:
        return _read_errors(body)


def _read_event(unanswered: dict[int, None], line: bytes) -> list[BridgeReply]:
    """Reads a line of an event. Errors outside calls apply to all unanswered calls."""
    if line.startswith(_LINE):
        reply = read_reply(line[len(_LINE) : -2])
        if not isinstance(reply[2], Items):
            unanswered.pop(reply[0], None)
        return [reply]
    if not line.startswith(_EVENT):  # type of an event, or a comment
        return []
    try:
        failure = _read_errors(line[len(_EVENT) :])
    except Exception:
        raise WrongReply("it sent an event that is not a reply") from None
    return [(sequence, failure, None) for sequence in unanswered]


def _read_errors(body: bytes) -> Failure:
    error = json.loads(body)["errors"][0]
    return read_failure({**error["extensions"], "message": error["message"]})


connect, connect_from_environment = bridge_transport(_GraphqlTransport())
