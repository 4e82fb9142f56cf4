"""Calls in the format of corral's tRPC bridge.

The calls of a batch are a subscription by POST, whose events have lines of the HTTP bridge. POST {url}/corral/token
returns a fresh token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from corral.guest.python.client import BridgeRequest, Failure, ReplyReader, bridge_transport
from corral.guest.python.transports.lines import Lines, encode_call, read_failure, read_reply

_REPLY = b'data: {"'


class _TrpcTransport:
    batch_calls = 64
    encode = staticmethod(encode_call)
    renewal_path = "/corral/token"

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        return BridgeRequest("/corral/calls", b'{"calls":[%b],"stream":true}' % b",".join(calls))

    def reader(self, _sequences: Sequence[int], max_bytes: int, /) -> ReplyReader:
        return Lines(max_bytes, lambda line: (read_reply(line[6:]),) if line.startswith(_REPLY) else ())

    def refusal(self, body: bytes, /) -> Failure:
        error = json.loads(body)["error"]
        error = error.get("json", error)  # from a bridge with the transformer superjson
        return read_failure({**error["data"]["corral"], "message": error["message"]})


connect, connect_from_environment = bridge_transport(_TrpcTransport())
