"""Encodings of results and of requests for decisions in a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, partial
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from corral.containment import ContainmentKind
from corral.guest import UnencodableValue, decode_value, encode_value
from corral.ledger import CallRow, Recorded
from corral.results import CallRecord, ExecutionResult, ProgramCapabilities, Unread
from corral.sandboxes.base import SavedGuest
from corral.types import (
    ApprovalRequest,
    CallError,
    CallState,
    Diagnostic,
    Doubt,
    EncodedValue,
    ExecutionContext,
    ExecutionError,
    Language,
    LogEntry,
    Status,
    Unawaited,
)


class _ResultParts(TypedDict):
    duration_ms: float
    logs: tuple[LogEntry, ...]
    unawaited: tuple[Unawaited, ...]
    diagnostics: tuple[Diagnostic, ...]
    truncated: tuple[str, ...]
    checked: bool
    capabilities: ProgramCapabilities | None


class _CallFacts(TypedDict):
    name: str
    sequence: int
    started: float
    error: CallError | None
    duration_ms: float | None
    state: CallState
    read_only: bool
    remark: str | None
    masked: frozenset[str]


@cache
def _result_parts() -> tuple[TypeAdapter[_ResultParts], TypeAdapter[list[_CallFacts]]]:
    return TypeAdapter(_ResultParts), TypeAdapter(list[_CallFacts])


def pack_result(result: ExecutionResult) -> dict[str, object]:
    """Returns the parts of a result that are recorded; inputs and outputs of calls are in their rows."""
    value = None if result.value is None else encode_value(result.value)
    return {
        "value": None if value is None else [value.text.decode(), value.tagged],
        "error": result.error and asdict(result.error),
        "containment": result.containment and [result.containment, result.containment.strength],
        "calls": [[getattr(call, name) for name in _CallFacts.__annotations__] for call in result.tool_calls],
        **{name: getattr(result, name) for name in _ResultParts.__annotations__},
    }


def result_of(recorded: Recorded, language: Language, pending: Iterable[ApprovalRequest]) -> ExecutionResult:
    """Returns the result with which an execution ended or paused."""
    body, rows = recorded.result, {row.sequence: row for row in recorded.calls}
    value, error, containment = body["value"], body["error"], body["containment"]
    read_parts, read_calls = _result_parts()
    calls = [dict(zip(_CallFacts.__annotations__, each, strict=True)) for each in body["calls"]]
    return ExecutionResult(
        execution_id=recorded.execution.execution_id,
        status=cast("Status", recorded.execution.status),
        language=language,
        value=None if value is None else decode_value(value[0].encode(), tagged=value[1]),
        error=None if error is None else ExecutionError(**error),
        containment=None if containment is None else ContainmentKind(*containment),
        tool_calls=tuple(_call_of(facts, rows.get(facts["sequence"])) for facts in read_calls.validate_python(calls)),
        pending=tuple(pending),
        **read_parts.validate_python({name: body[name] for name in _ResultParts.__annotations__}),
    )


def _call_of(facts: _CallFacts, row: CallRow | None) -> CallRecord:
    record = CallRecord(**facts, input=None, replayed=True)
    if row is not None:
        record.keep("input", _unread(row.input))
        if row.place is not None and (encoded := row.recorded_reply().encoded) is not None:
            record.keep("output", _unread(encoded))
    return record


def _unread(encoded: EncodedValue) -> Unread:
    return Unread(partial(decode_value, encoded.text, tagged=encoded.tagged), len(encoded.text))


def asked_of(
    row: CallRow, execution_id: str, contexts: dict[str, ExecutionContext] | None = None
) -> tuple[bytes, ApprovalRequest]:
    """Returns the digest to which a decision on a waiting call is bound, and the request. Requests that are read with
    the same `contexts` share equal contexts."""
    arguments = decode_value(row.input.text, tagged=row.input.tagged)
    return unpack_request(
        row.reply,
        tool=row.tool,
        arguments=arguments,
        execution_id=execution_id,
        sequence=row.sequence,
        contexts=contexts,
    )


def unpack_request(
    packed: bytes | str,
    *,
    tool: str,
    arguments: Any,
    execution_id: str,
    sequence: int,
    contexts: dict[str, ExecutionContext] | None = None,
) -> tuple[bytes, ApprovalRequest]:
    """Reads a request from its form in `pack_request`."""
    body: dict[str, Any] = from_json(packed)
    text, tagged = body["input"] or (None, False)
    contexts = {} if contexts is None else contexts
    if (context := contexts.get(body["context"])) is None:
        context = contexts[body["context"]] = ExecutionContext.model_validate_json(body["context"])
    return bytes.fromhex(body["binding"]), ApprovalRequest(
        tool=tool,
        input=arguments if text is None else decode_value(text.encode(), tagged=tagged),
        arguments=arguments,
        description=body["description"],
        read_only=body["read_only"],
        context=context,
        execution_id=execution_id,
        sequence=sequence,
        reason=body["reason"],
        doubts=tuple(Doubt(**each) for each in body.get("doubts", ())),
        seen=tuple(body.get("seen", ())),
        asked_at=body["asked_at"],
    )


def pack_request(asked: ApprovalRequest, binding: bytes) -> bytes:
    """Encodes a request on which a person has to decide, and the digest to which the decision is bound."""
    try:
        text, tagged = encode_value(asked.input)
        shown: list[object] | None = [text.decode(), tagged]
    except UnencodableValue:
        shown = None
    return to_json(
        {
            "binding": binding.hex(),
            "input": shown,
            "description": asked.description,
            "read_only": asked.read_only,
            "context": asked.context.model_dump_json(),
            "reason": asked.reason,
            "doubts": [asdict(each) for each in asked.doubts],
            "seen": asked.seen,
            "asked_at": asked.asked_at,
        }
    )


def pack_saved(guest: SavedGuest, logs: Iterable[LogEntry], replies: int) -> bytes:
    """Encodes a saved guest with the console output so far, and the number of replies that its program has."""
    facts = to_json([replies, guest.session, [[entry.level, entry.text] for entry in logs]])
    return b"%d\n%b%b" % (len(facts), facts, guest.memory)


def unpack_saved(packed: bytes, replies: int) -> tuple[SavedGuest, list[LogEntry]] | None:
    """Reads a saved guest and its console output. Returns None if there is none with that number of replies."""
    size, _, rest = packed.partition(b"\n")
    if not size:
        return None
    facts, memory = rest[: int(size)], rest[int(size) :]
    number, session, logs = from_json(facts)
    if number != replies:
        return None
    return SavedGuest(memory, session), [LogEntry(level=level, text=text) for level, text in logs]
