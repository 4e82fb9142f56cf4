"""Audit events: one for every call and every execution, whatever its outcome."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from corral.concurrency.forks import after_fork
from corral.rendering.preview import preview_text
from corral.rendering.redaction import redacted

Outcome: TypeAlias = Literal["succeeded", "failed", "denied", "cancelled", "withheld", "unknown", "pending", "undone"]
"""`withheld`: the tool ran, but the program did not receive its result. `unknown`: the tool did not answer in time, so
its outcome is unknown. `pending`: the call is stored until a decision. `undone`: a rollback has undone the call. A
`cancelled` call may have taken effect."""

_FORMAT = 1
_TEXT_CHARS = 1000
_SHORT_BYTES = 500
"""Maximum bytes of fields that readers filter by. PostgreSQL indexes up to 2,704 bytes (a third of a page)."""
_DIGEST_CHARS = 32
_LONG = frozenset({"reason", "arguments", "doubts"})
_LARGEST = 2**63 - 1
"""Largest integer that every database supports."""
_DEPTH = 20
_ids = itertools.count()
_process = secrets.randbits(32)


def new_event_id(time: float) -> str:
    """Returns a unique identifier for an event of this time: 30 hexadecimal digits that sort by time.

    They are microseconds since the epoch (14 digits), a random number of the process (8) and a count (8).
    """
    number = int(time * 1e6) << 64 | _process << 32 | next(_ids) & 0xFFFFFFFF
    return number.to_bytes(15, "big").hex()


def _become_another_process() -> None:
    global _process
    _process = secrets.randbits(32)


after_fork(_become_another_process)


class AuditEvent(NamedTuple):
    """One tool call, or one execution. A named tuple, because every call creates one; construct it with keywords."""

    id: str
    """Unique; sorts by time. See `new_event_id`."""
    time: float
    """Start, in seconds since the Unix epoch."""
    kind: Literal["call", "execution", "request"]
    """`request`: a program's HTTP request by its `Network`; `arguments` has method, host, path, status and bytes."""
    outcome: Outcome
    duration_ms: float
    protocol: str
    """Bridge protocol of the call, such as "pipe" or "http"; "proxy" for a request by a shell command."""
    code: str | None = None
    """Code of its error, if any."""
    reason: str | None = None
    """Reason of a denial, as the program sees it."""
    execution_id: str | None = None
    user_id: str | None = None
    organization_id: str | None = None
    session_id: str | None = None
    tool: str | None = None
    """Tool name as the program wrote it; such a tool may not exist."""
    sequence: int | None = None
    """Number of the call within its execution."""
    arguments: object = None
    """Digest or redacted copy of the input, or None; see `AuditLog.shown`."""
    correlation_id: str | None = None
    """Identifies a failure in the host's log."""
    language: str | None = None
    containment: str | None = None
    calls: int | None = None
    """Number of tool calls in the execution."""
    program: str | None = None
    """Digest of the source."""
    decision: Literal["approved", "denied"] | None = None
    """Decision on a call that required approval."""
    decided_by: str | None = None
    """`by` of the decision."""
    policy: str | None = None
    """Digest of the policy that was asked about the call."""
    verdict: Literal["allow", "limit", "ask", "deny"] | None = None
    """Decision of the policy, also if it only observes."""
    rule: str | None = None
    """Id of the rule that decided."""
    doubts: str | None = None
    """Reasons of the policy to ask a person, without values of the input."""

    def to_json(self) -> str:
        """Returns the event as one line of JSON: its fields, and `"v": 1` for this format. Never raises."""
        return json_of(cleaned(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Inverse of `to_json`.

        Raises:
            ValueError: the text is not an event, or has the format of a later release.
        """
        fields: object = from_json(text)
        if not isinstance(fields, dict) or cast("dict[str, object]", fields).pop("v", None) != _FORMAT:
            raise ValueError("not an audit event in a known format")
        return _adapter(cls).validate_python(fields)


_NAMES = ("v", *AuditEvent._fields)


def json_of(event: AuditEvent) -> bytes:
    """Returns the JSON line of an event that is already clean, such as those passed to sinks."""
    return to_json(dict(zip(_NAMES, (_FORMAT, *event), strict=True)))


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def cleaned(event: AuditEvent) -> AuditEvent:
    """Returns the event in a form that every sink can store: short, well-formed texts without U+0000, and finite 64-bit
    numbers.

    Texts are shortened by `short_text`; `reason` and texts in `arguments` have up to 1,000 characters.
    """
    for value in event:  # most events need no cleaning; `isinstance` would take three times as long
        if type(value) is str:
            clean = len(value) <= _SHORT_BYTES and value.isascii() and "\0" not in value
        elif type(value) is float:
            clean = math.isfinite(value)
        elif type(value) is int:
            clean = -_LARGEST <= value <= _LARGEST
        else:
            clean = value is None
        if not clean:
            fields = zip(AuditEvent._fields, event, strict=True)
            return AuditEvent._make(
                short_text(value) if isinstance(value, str) and name not in _LONG else _clean(value)
                for name, value in fields
            )
    return event


def short_text(text: str) -> str:
    """Returns a text that readers can filter by: well-formed, without U+0000, at most 500 bytes of UTF-8.

    A longer text is cut, and a part of its digest is appended, so that different texts stay different.
    """
    encoded = text.encode("utf-8", "replace").replace(b"\0", b"\xef\xbf\xbd")
    if len(encoded) > _SHORT_BYTES:
        end = f"…{hashlib.sha256(encoded).hexdigest()[:_DIGEST_CHARS]}".encode()
        encoded = encoded[: _SHORT_BYTES - len(end)].decode("utf-8", "ignore").encode() + end
    return encoded.decode()


def _clean(value: object, depth: int = 0) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return preview_text(value, _TEXT_CHARS).encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        case float():
            return value if math.isfinite(value) else 0.0
        case int():
            return max(-_LARGEST, min(value, _LARGEST))
        case Mapping() if depth < _DEPTH:
            members = cast("Mapping[object, object]", value)
            return {_clean(str(key)): _clean(member, depth + 1) for key, member in members.items()}
        case Sequence() | Set() if depth < _DEPTH and not isinstance(value, bytes | bytearray):
            return [_clean(item, depth + 1) for item in cast("Sequence[object]", value)]
        case _:
            return f"[{type(value).__name__}]"


# --- digests of values that the log does not store


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
    """Returns canonical JSON, with a shared C encoder if possible: creating an encoder takes longer than encoding."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_encodable).encode
    text = json.encoder.encode_basestring_ascii
    parts = make(None, _encodable, text, None, ":", ",", True, False, True)  # sort keys, skip none, allow NaN
    return lambda value: "".join(parts(value, 0))


_canonical = _canonical_encoder()
