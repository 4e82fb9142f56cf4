"""Rows of a ledger, both as the host reads them and as a store keeps them."""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple, TypeAlias

from corral.errors import LedgerDamaged
from corral.types import EncodedValue

CallStatus: TypeAlias = Literal["started", "pending", "uncertain", "done", "undoing", "undone"]
"""`started`: a tool that changes something was about to run. `pending`: the call needs an approval. `uncertain`: it had
started when its host was lost. `done`: it has its reply. `undoing`: its undo has started or has failed."""
ExecutionStatus: TypeAlias = Literal[
    "running", "paused", "succeeded", "failed", "timed_out", "cancelled", "rejected", "rolled_back"
]

_BODY = struct.Struct(">ddd16s?HHI")


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

    @property
    def size(self) -> int:
        """Number of bytes that count for `Limits.journal_bytes`."""
        return len(self.input.text) + len(self.reply) + _ROW_BYTES


_ROW_BYTES = 200


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


def pack_call(row: CallRow) -> bytes:
    """Encodes the parts of a row that have no column."""
    tool, by = row.tool.encode(), (row.by or "").encode()
    clocks, sizes = (row.wall, row.active, row.duration), (len(tool), len(by), len(row.input.text))
    head = _BODY.pack(*clocks, row.digest, row.input.tagged, *sizes)
    return b"".join((head, tool, by, row.input.text, row.reply))


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
