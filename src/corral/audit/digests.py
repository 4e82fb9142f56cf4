"""Digests of values that the audit log does not store."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from corral.rendering.redaction import redacted


def digest(text: str) -> str:
    """Returns `sha256:` and the hexadecimal SHA-256 of a text in UTF-8."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def digest_of(value: object) -> str:
    """Returns the digest of a value's canonical JSON: members sorted by name, no white space, non-ASCII characters
    escaped, bytes as base64. A value without JSON form is digested as its redacted copy."""
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
    """Returns `json.dumps` in canonical form, if possible with a single C encoder: creating one takes longer than
    encoding."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_encodable).encode
    text = json.encoder.encode_basestring_ascii
    parts = make(None, _encodable, text, None, ":", ",", True, False, True)  # sort keys, skip none, allow NaN
    return lambda value: "".join(parts(value, 0))


_canonical = _canonical_encoder()
