"""Rows of a ledger, both as the host reads them and as a store keeps them."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

from pydantic_core import from_json, to_json

from corral.errors import LedgerDamaged
from corral.types import CallError, EncodedValue, Owner, Reply

CallStatus: TypeAlias = Literal["started", "pending", "uncertain", "done", "undoing", "undone"]
"""`started`: a tool that changes something was about to run. `pending`: the call needs an approval. `uncertain`: it had
started when its host was lost. `done`: it has its reply. `undoing`: its undo has started, and the
effect of that is unknown."""
ExecutionStatus: TypeAlias = Literal[
    "running", "paused", "succeeded", "failed", "timed_out", "cancelled", "rejected", "rolled_back"
]

_BODY = struct.Struct(">ddd16s?HHI")
_ROW_BYTES = 200
NOT_KEPT = b"-"
"""Recorded reply of a tool with `journal=False`."""
SAVED = -1
"""Number of the row with the saved guest. It is not a call; its reply is empty once the guest is no longer needed."""


class CallRow(NamedTuple):
    """One call or timer of a durable execution. Number 0 is the end of the grace period."""

    sequence: int
    tool: str
    digest: bytes
    """Digest of the tool's name and the input: 16 bytes."""
    input: EncodedValue
    status: CallStatus = "done"
    place: int | None = None
    """Position of its reply among all replies of the execution."""
    reply: bytes = b""
    """Encoded reply if it is `done`; otherwise the request for an approval, if any."""
    wall: float = 0.0
    active: float = 0.0
    """Clocks of the program after it received the reply, in milliseconds."""
    by: str | None = None
    """Person who decided on it."""
    duration: float = 0.0
    """Milliseconds that its last host took for it, with its guards."""

    @classmethod
    def saved(cls, guest: bytes) -> CallRow:
        """Returns the row with a saved guest, or with `b""` once that is no longer needed."""
        return cls(SAVED, "", bytes(16), EncodedValue(b"", tagged=False), reply=guest)

    @property
    def size(self) -> int:
        """Number of bytes that count for `Limits.journal_bytes`."""
        return len(self.input.text) + len(self.reply) + _ROW_BYTES

    @property
    def has_failed(self) -> bool:
        """True if the reply is an error."""
        return self.reply[:1] == b"e"

    @property
    def is_uncertain(self) -> bool:
        """True if the effect of the call is unknown."""
        return self.status in ("started", "uncertain") or (self.has_failed and bool(from_json(self.reply[1:])[5]))

    @property
    def is_stream(self) -> bool:
        """True if the program gets the recorded list item by item."""
        return self.reply[:1] in (b"s", b"S")

    def recorded_reply(self) -> Reply:
        """Returns the reply of a call that is `done`."""
        kind, text, stamp = self.reply[:1], self.reply[1:], (self.wall, self.active)
        if kind == b"e":
            code, name, message, retry, correlation, _ = from_json(text)
            error = CallError(
                code=code, name=name, message=message, retry_after_seconds=retry, correlation_id=correlation
            )
            return Reply(error=error, stamp=stamp)
        if kind in (b"n", NOT_KEPT):
            return Reply(nothing=True, stamp=stamp)
        return Reply(encoded=EncodedValue(text, kind in (b"t", b"S")), stamp=stamp)


class Query(NamedTuple):
    """Executions to look for: those that match all criteria. None stands for every user, organization or time."""

    user_id: str | None = None
    organization_id: str | None = None
    statuses: Collection[ExecutionStatus] = ()
    """Empty for all of them."""
    since: float | None = None
    """Time of the last update in seconds since the Unix epoch, or earlier."""
    limit: int = 1_000
    """Maximum number of rows."""

    def includes(self, owner: Owner) -> bool:
        """Returns True if it is for executions of this owner, or of everyone."""
        return self.user_id in (None, owner.user_id) and self.organization_id in (None, owner.organization_id)


class StoredExecution(NamedTuple):
    """One durable execution in a store."""

    execution_id: str
    organization_id: str | None
    user_id: str
    status: ExecutionStatus
    created: float
    updated: float
    claim: int
    """Number of hosts that have run it so far. Writes of earlier hosts are refused."""
    lease: float
    """End of the host's lease, in seconds since the Unix epoch."""
    head: bytes
    """Sealed request, and everything else with which its program started."""
    result: bytes | None = None
    """Sealed result, or state when it paused."""


class StoredCall(NamedTuple):
    """One call in a store."""

    execution_id: str
    sequence: int
    """Number of the call; -1 for a saved guest."""
    status: CallStatus
    place: int | None
    body: bytes
    """Sealed encoding of the other parts."""


class StoredDecision(NamedTuple):
    """Decision on a call in a store. For each call and binding, the first one holds."""

    execution_id: str
    sequence: int
    binding: bytes
    """Digest of the tool, its schemas and settings, and the input that were decided on."""
    body: bytes
    """Sealed decision."""


class StoredSession(NamedTuple):
    """Data flow of one session in a store."""

    key: str
    """Digest of its organization, user and id."""
    is_exposed: bool
    version: int
    """Number of times that it was written."""
    updated: float
    body: bytes | None
    """Sealed state; None if it was deleted for its age, which leaves only that the session was exposed."""


def pack_reply(reply: Reply, *, stream: bool, unclear: bool) -> bytes:
    """Encodes a reply: one letter for its kind, then its text.

    `stream`: the program gets the list item by item. `unclear`: the effect of the call, which has failed, is unknown.
    """
    if (error := reply.error) is not None:
        fields = (error.code, error.name, error.message, error.retry_after_seconds, error.correlation_id, unclear)
        return b"e" + to_json(fields)
    if reply.nothing or reply.encoded is None:
        return b"n"
    text, tagged = reply.encoded
    return (b"S" if tagged else b"s") + text if stream else (b"t" if tagged else b"v") + text


def pack_call(row: CallRow) -> bytes:
    """Encodes the parts of a row that have no column."""
    _, name, digest, (text, tagged), _, _, reply, wall, active, decided_by, duration = row
    tool, by = name.encode(), b"" if decided_by is None else decided_by.encode()
    head = _BODY.pack(wall, active, duration, digest, tagged, len(tool), len(by), len(text))
    return b"".join((head, tool, by, text, reply))


def unpack_call(stored: StoredCall, body: bytes) -> CallRow:
    """Decodes a row.

    Raises:
        LedgerDamaged: the data is not the encoding of a row.
    """
    try:
        wall, active, duration, digest, tagged, tool_size, by_size, input_size = _BODY.unpack_from(body)
        by_at = _BODY.size + tool_size
        input_at = by_at + by_size
        reply_at = input_at + input_size
        if reply_at > len(body):
            raise ValueError(reply_at)
        return CallRow(
            stored.sequence,
            body[_BODY.size : by_at].decode(),
            digest,
            EncodedValue(body[input_at:reply_at], tagged),
            stored.status,
            stored.place,
            body[reply_at:],
            wall,
            active,
            body[by_at:input_at].decode() or None,
            duration,
        )
    except (struct.error, ValueError) as error:
        raise LedgerDamaged(f"call {stored.sequence} of {stored.execution_id} in the ledger cannot be read") from error
