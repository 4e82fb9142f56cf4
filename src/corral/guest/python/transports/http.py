"""Calls for corral's HTTP bridge.

POST {url}/calls sends a batch of calls as JSON. The reply is a stream of lines, one for each call, in the order in
which the calls end. A call that streams is alone in its request, and its items come in earlier lines. POST {url}/token
returns a fresh token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from corral.guest.python.client import BridgeRequest, Failure, ReplyReader, bridge_transport
from corral.guest.python.transports.lines import Lines, encode_call, read_failure, read_reply


class _HttpTransport:
    batch_calls = 64
    encode = staticmethod(encode_call)
    renewal_path = "/token"

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        return BridgeRequest("/calls", b'{"calls":[%b],"stream":true}' % b",".join(calls))

    def reader(self, _sequences: Sequence[int], max_bytes: int, /) -> ReplyReader:
        return Lines(max_bytes, lambda line: (read_reply(line),))

    def refusal(self, body: bytes, /) -> Failure:
        return read_failure(json.loads(body)["error"])


connect, connect_from_environment = bridge_transport(_HttpTransport())
