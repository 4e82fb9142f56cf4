"""The only code that runs inside a sandbox, and the host's half of the same codec.

`typescript/` holds the guest itself. `frames` and `values` speak to it; `docs/frames.md` is the written format and
`tests/guest/vectors.json` the golden vectors that both halves are tested with.
"""

from corral.guest.frames import Frame, FrameKind, FrameReader, encode_frame
from corral.guest.runtime import (
    WEB_PROTOCOLS,
    RuntimeDirectory,
    WebProtocol,
    bridge_runtime,
    client_runtime,
    elsewhere_guest,
    graphql_runtime,
    http_runtime,
    node_guest,
    platform_script,
    python_guest,
    python_server,
    typescript_guest,
    typescript_server,
)
from corral.guest.values import (
    ArrayBuffer,
    UnencodableValue,
    decode_value,
    encode_by_size,
    encode_value,
    plain_json,
    revive_value,
)

__all__ = [
    "WEB_PROTOCOLS",
    "ArrayBuffer",
    "Frame",
    "FrameKind",
    "FrameReader",
    "RuntimeDirectory",
    "UnencodableValue",
    "WebProtocol",
    "bridge_runtime",
    "client_runtime",
    "decode_value",
    "elsewhere_guest",
    "encode_by_size",
    "encode_frame",
    "encode_value",
    "graphql_runtime",
    "http_runtime",
    "node_guest",
    "plain_json",
    "platform_script",
    "python_guest",
    "python_server",
    "revive_value",
    "typescript_guest",
    "typescript_server",
]
