"""Code that runs inside a sandbox, and the host's half of its codec. Nothing else runs there.

`typescript/` and `python/` contain the guests. `frames` and `values` communicate with them. `docs/frames.md` specifies
the format, and `tests/guest/vectors.json` has the golden vectors with which both halves are tested.
"""

from corral.guest.frames import Frame, FrameKind, FrameReader
from corral.guest.python.frames import encode_frame
from corral.guest.python.values import ArrayBuffer, UnencodableValue
from corral.guest.runtime import (
    RuntimeDirectory,
    Transport,
    client_runtime,
    elsewhere_guest,
    http_runtime,
    http_transport,
    node_guest,
    platform_script,
    python_guest,
    python_server,
    typescript_guest,
    typescript_server,
    wasm_guest,
    wasm_server,
)
from corral.guest.values import decode_value, encode_by_size, encode_value, plain_json, revive_value

__all__ = [
    "ArrayBuffer",
    "Frame",
    "FrameKind",
    "FrameReader",
    "RuntimeDirectory",
    "Transport",
    "UnencodableValue",
    "client_runtime",
    "decode_value",
    "elsewhere_guest",
    "encode_by_size",
    "encode_frame",
    "encode_value",
    "http_runtime",
    "http_transport",
    "node_guest",
    "plain_json",
    "platform_script",
    "python_guest",
    "python_server",
    "revive_value",
    "typescript_guest",
    "typescript_server",
    "wasm_guest",
    "wasm_server",
]
