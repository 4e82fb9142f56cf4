"""Digests of what the audit log does not hold itself."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from corral.rendering.redaction import redacted


def digest(text: str) -> str:
    """`sha256:` and the hexadecimal SHA-256 of a text in UTF-8."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def digest_of(value: object) -> str:
    """The digest of a value's canonical JSON: members sorted by name, no white space, other characters than ASCII as
    escapes, bytes as base64. What JSON cannot hold is digested as its redacted copy."""
    try:
        text = _canonical(value)
    except (TypeError, ValueError, RecursionError):  # keys of several types; huge integers, cycles; depth
        text = _canonical(redacted(value, None))
    return digest(text)


def _encodable(value: Any) -> object:
    match value:
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case BaseModel():
            return dict(value)
        case _:
            return str(value)


def _canonical_encoder() -> Callable[[object], str]:
    """`json.dumps` in canonical form; where it can, with one encoder of C, as making it takes longer than encoding."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_encodable).encode
    text = json.encoder.encode_basestring_ascii
    parts = make(None, _encodable, text, None, ":", ",", True, False, True)  # sorted, no key skipped, NaN as it is
    return lambda value: "".join(parts(value, 0))


_canonical = _canonical_encoder()
