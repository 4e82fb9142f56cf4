"""Results of executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from pydantic_core import from_json

from corral.concurrency.cached_property import cached_property
from corral.containment import ContainmentKind
from corral.errors import (
    ApprovalDenied,
    CallBudgetExceeded,
    MemoryExceeded,
    OutputExceeded,
    PolicyDenied,
    ProgramFailed,
    ProgramRejected,
    ProgramTimeout,
    ScopeDenied,
    ToolError,
    ToolNotFound,
    error_class,
)
from corral.logs import get_logger
from corral.rendering.html import text_html, value_html
from corral.rendering.images import Picture, pictures_in, without_pictures
from corral.rendering.preview import json_text, preview_json, preview_text, short_repr, text_of
from corral.rendering.redaction import redacted
from corral.types import (
    ApprovalRequest,
    Approved,
    CallError,
    CallState,
    Denied,
    Diagnostic,
    ExecutionError,
    Language,
    LogEntry,
    Status,
    Unawaited,
)

__all__ = [
    "CallRecord",
    "Diagnostic",
    "ExecutionError",
    "ExecutionResult",
    "FileChanges",
    "JsonData",
    "LogEntry",
    "ProgramCapabilities",
    "Unawaited",
    "Unread",
]

logger = get_logger("corral")

_ENDED: Mapping[Status, str] = {
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "rejected": "was rejected",
}
_REMEDIES = {
    ProgramTimeout.code: "Do less in one program, and make independent calls concurrently.",
    MemoryExceeded.code: "Process less data at a time, and keep only the parts you need.",
    OutputExceeded.code: "Return less: only the parts or totals you need.",
    CallBudgetExceeded.code: "Make fewer calls in one program; do the rest in another.",
    ToolNotFound.code: 'Use names as they are declared; await tools.search("words") finds them.',
    PolicyDenied.code: "The rules are the same for every program: do without this call, or make it as the rule allows.",
    ScopeDenied.code: "This caller may not use it in any way: do without it.",
    ApprovalDenied.code: "Do not call it again unless you are asked to.",
}
"""Advice to a model after an error, by its code, for messages that have none."""
_PAUSED = "The program is paused until people have decided on its calls, and then continues. Do not run it again."
_DEADLOCK_REMEDY = "Await only tool calls, timers, and promises that the program itself settles."
_GUESSES_SHOWN = 5
_CALLS_SHOWN = 20
"""Maximum number of calls per list that are shown with their inputs. The others are counted."""
_INPUT_CHARS = 200
_LONGEST = 1_000_000
"""Maximum characters of an input that is parsed for shortening."""
_UNAWAITED = "Calls that took effect although the program did not wait for them; do not repeat them"
_CALLS_CHARS = 3_000
"""Maximum characters of each list of calls."""
_FAILED_CONSOLE_CHARS = 2_500
"""Maximum characters of a failed program's console; mostly its end, which usually has the reason."""
_READ_BYTES = 1_000_000
"""Maximum bytes of encoded inputs that are decoded for one text."""


class Unread(NamedTuple):
    """Value kept encoded: as objects it would take many times the memory."""

    read: Callable[[], object]
    size: int
    """Bytes of the encoded value."""


class _Values:
    """Base of classes that keep large attributes encoded: each access decodes the value."""

    __slots__ = ("_unread",)

    _unread: dict[str, Unread]

    def keep(self, name: str, value: object) -> None:
        """Sets an attribute to a value, which can be `Unread`."""
        if type(value) is Unread:
            self._unread = {**self.unread, name: value}
            delattr(self, name)
        else:
            setattr(self, name, value)

    @property
    def unread(self) -> Mapping[str, Unread]:
        """Encoded attributes, by name."""
        try:
            return object.__getattribute__(self, "_unread")
        except AttributeError:
            return {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if (value := self.unread.get(name)) is not None:
                return value.read()
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class JsonData:
    """Base of dataclasses with a JSON form and a short `repr`."""

    __slots__ = ()

    @property
    def computed(self) -> dict[str, object]:
        """Computed members that the JSON has after the fields."""
        return {}

    def to_json(self, *, indent: int | None = None) -> str:
        """Serialises all fields as JSON: bytes as base64, NaN and the infinities as strings."""
        return json_text(_members(self), indent=indent)

    def to_dict(self) -> dict[str, Any]:
        """Returns `to_json` as plain data: dicts, lists, strings, numbers, booleans and None."""
        return from_json(self.to_json())

    def __repr__(self) -> str:
        return short_repr(self)


def _members(data: JsonData) -> dict[str, object]:
    own = {field.name: getattr(data, field.name) for field in fields(cast("Any", data))}
    return {name: _members(each) if isinstance(each, JsonData) else each for name, each in own.items()} | data.computed


@dataclass(slots=True, kw_only=True, repr=False)
class CallRecord(_Values, JsonData):
    """One call of an execution. `error` is set if the call failed; `duration_ms` is None while it runs.

    A large `input` or `output` is kept as JSON and decoded at each access. Beyond the memory limit, a string with the
    size replaces it.
    """

    name: str
    sequence: int
    input: object
    started: float
    """Seconds since the Unix epoch."""
    output: object = None
    error: CallError | None = None
    duration_ms: float | None = None
    state: CallState = "waiting"
    """State of the tool, whatever the reply was."""
    read_only: bool = False
    """True if the tool is declared read-only. Set only if the execution failed or left a call unawaited."""
    remark: str | None = None
    """Difference between the output and its declaration."""
    decision: Approved | Denied | None = None
    """Decision on a call that required approval."""
    replayed: bool = False
    """True if the reply came from the record, so the tool did not run."""
    masked: frozenset[str] = frozenset()
    """Secret members of the input, according to the tool's schema. Set whenever `read_only` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCapabilities:
    """Capabilities that a program can use, according to its source.

    `tools` are the tools that it names, `scopes` the scopes that these require. `any_tool` is True if it computes tool
    names or passes `tools` on, so that it could call any other tool too.
    """

    tools: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    any_tool: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileChanges(JsonData):
    """Paths of files that were created, changed and deleted, sorted."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unlisted: int = 0
    """Number of paths omitted after the first 1,000 of each list."""

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.deleted)


@dataclass(frozen=True, kw_only=True, repr=False)
class ExecutionResult(JsonData):
    """Result of an execution, successful or not.

    `console` is the console as text, `logs` the same as entries. `tool_calls` lists every call, also after a failure.
    `truncated` describes omissions because of size. `checked` is True if the program was type-checked before its first
    call. `capabilities` has the tools that it refers to; None if they were not analysed. `files` lists the changes in
    its session's directories since the last execution, or since the session was opened; None without a session.
    `pending` has the calls of a paused execution that wait for decisions.
    """

    execution_id: str
    status: Status
    language: Language
    value: Any = None
    logs: tuple[LogEntry, ...] = ()
    error: ExecutionError | None = None
    duration_ms: float = 0.0
    tool_calls: tuple[CallRecord, ...] = ()
    unawaited: tuple[Unawaited, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    truncated: tuple[str, ...] = ()
    containment: ContainmentKind | None = None
    checked: bool = False
    capabilities: ProgramCapabilities | None = None
    files: FileChanges | None = None
    pending: tuple[ApprovalRequest, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            remedy = "; use `value` (returned) or `console` (printed)" if name == "output" else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{remedy}")

    @property
    def success(self) -> bool:
        return self.status == "succeeded"

    @property
    def console(self) -> str:
        return "".join(f"{entry.text}\n" for entry in self.logs)

    @cached_property
    def images(self) -> tuple[Picture, ...]:
        """Pictures anywhere in the value, 20 at most. `model_text` has a short note in their place."""
        return pictures_in(self.value)[1]

    def raise_for_error(self) -> Self:
        """Raises the execution's error as a class of `corral.errors`; returns the result if it succeeded."""
        if self.error is None:
            return self
        place = f" (line {self.error.line}, column {self.error.column})" if self.error.line is not None else ""
        message = f"{self.error.name}: {self.error.message}{place}"
        kind = error_class(self.error.code)
        if issubclass(kind, ProgramRejected):
            raise kind(message, line=self.error.line, column=self.error.column)
        raise kind(message)

    def model_text(self, max_chars: int = 50_000, *, transform: Callable[[Any], object] | None = None) -> str:
        """Formats the result for a model: value or error, calls made before an error, console, notes.

        Parts longer than `max_chars` are shortened, with a remark. `transform` can change the value before it is shown;
        if it raises, the original value is shown.
        """
        return _model_text(self, max_chars, transform)

    def _repr_html_(self) -> str:
        """Shows the result in a notebook: the value (a list of objects as a table), its pictures, and the console."""
        if self.error is not None:
            return text_html(self.model_text())
        return "\n".join([value_html(self.value), *([text_html(self.console)] if self.logs else [])])

    @property
    def computed(self) -> dict[str, object]:
        return {"success": self.success, "console": self.console}


def _model_text(result: ExecutionResult, max_chars: int, transform: Callable[[Any], object] | None) -> str:
    """See `ExecutionResult.model_text`."""
    parts: list[str] = []
    console = without_pictures(text_of(result.console)).rstrip() if result.logs else ""
    if result.error is not None or result.status == "paused":
        room = min(max_chars, _FAILED_CONSOLE_CHARS)
        console = preview_text(console, room, tail=room * 4 // 5)
        text = _PAUSED if result.error is None else _error_text(result.error, result.status)
        parts.append(preview_text(without_pictures(text), max_chars))
        if calls := "\n".join(_call_lines(result.tool_calls)):
            parts.append(calls)
    else:
        console = preview_text(console, max_chars)
        if not (console and _has_no_result(result)):
            value, _ = pictures_in(_transformed(result.value, transform))
            parts.append(_value_text(value, max_chars))
        if left := _left_effects(result):
            parts.append(f"{_UNAWAITED}: {calls_text(left)}")
    if console:
        parts.append(f"Console:\n{console}")
    if notes := _notes(result, printed=bool(console)):
        parts.append(preview_text("\n- ".join(("Notes:", *notes)), max_chars))
    return "\n\n".join(parts).encode("utf-8", "replace").decode()


def _has_no_result(result: ExecutionResult) -> bool:
    """True if the program has no result; False if its result is null."""
    return result.value is None and any(each.code == "no_result" for each in result.diagnostics)


def _transformed(value: Any, transform: Callable[[Any], object] | None) -> Any:
    if transform is None:
        return value
    try:
        return transform(value)
    except Exception:
        logger.warning("transforming a result for the model failed; it is shown unchanged", exc_info=True)
        return value


def _value_text(value: Any, max_chars: int) -> str:
    """Formats a value as JSON; a multi-line or JSON string stays unchanged."""
    if isinstance(value, str) and "\n" in value:
        whole, shown = value, f"\n{preview_text(value.rstrip(), max_chars)}"
    elif isinstance(value, str) and (held := _json_in(value)) is not None:
        whole, shown = value, f" {value if len(value) <= max_chars else preview_json(held, max_chars)}"
    else:
        whole = json_text(value)
        shown = f" {whole if len(whole) <= max_chars else preview_json(value, max_chars)}"
    shortened = f", shortened from {len(whole)} characters" if len(whole) > max_chars else ""
    return f"Result{shortened}:{shown}"


def _json_in(text: str) -> object:
    """Parses a string that is a JSON object or array; None for other strings."""
    if text[:1] not in ("{", "[") or text[-1] not in ("}", "]"):
        return None
    try:
        return from_json(text)
    except (ValueError, TypeError):  # a lone surrogate raises TypeError
        return None


def _error_text(error: ExecutionError, status: Status) -> str:
    refused_call = status == "rejected" and issubclass(error_class(error.code), ToolError)
    what = "call" if refused_call else "program"
    place = "" if error.line is None else f" at line {error.line}, column {error.column}"
    nothing = "; nothing ran" if status == "rejected" else ""
    lines = [f"The {what} {_ENDED.get(status, status)}{place}{nothing}.", f"{error.name}: {error.message}"]
    frames = [line for line in (error.stack or "").splitlines() if line.startswith(("    at ", "  File "))]
    if len(frames) > 1:  # a single frame would repeat the position above
        lines += frames
    if error.cause is not None:
        lines.append(f"Caused by: {error.cause}")
    remedy = _DEADLOCK_REMEDY if _is_deadlock(error) else _REMEDIES.get(error.code)
    return "\n".join([*lines, remedy] if remedy else lines)


def _is_deadlock(error: ExecutionError) -> bool:
    return error.name == "Deadlock" and error.code == ProgramFailed.code


def _call_lines(calls: Sequence[CallRecord]) -> Iterator[str]:
    """Lists the calls of a program that failed, so that the next program does not repeat them."""
    kinds: dict[str, list[CallRecord]] = {
        "Calls that took effect; do not repeat them": [],
        "Calls that only read": [],
        "Calls that ran, but whose results were withheld; do not repeat them": [],
        "Calls that may have taken effect before they were cut short": [],
        "Calls that failed": [],
        "Calls that did not run": [],
        "Calls waiting for a decision, which have not run": [],
    }
    ran, read, withheld, cut, failed, refused, parked = kinds.values()
    for call in calls:
        if call.error is None and call.state == "waiting":
            parked.append(call)
        elif call.error is None:
            (read if call.read_only else ran).append(call)
        elif call.state == "returned":
            withheld.append(call)
        elif call.state == "started":
            cut.append(call)
        elif call.state == "raised":
            failed.append(call)
        else:
            refused.append(call)
    for title, group in kinds.items():
        if group:
            yield f"{title}: {preview_text(_counted(group), _CALLS_CHARS) if group is read else calls_text(group)}"


def _left_effects(result: ExecutionResult) -> list[CallRecord]:
    """Lists the calls that took effect although the program did not await them."""
    unawaited = {call.sequence for call in result.unawaited if call.sequence}
    records = [record for record in result.tool_calls if unawaited and record.sequence in unawaited]
    return [record for record in records if record.error is None and not record.read_only]


def calls_text(calls: Sequence[CallRecord]) -> str:
    """Lists calls by tool, with the last inputs, which are the likeliest to be repeated. Secrets are `masked`."""
    inputs: dict[str, list[str]] = {call.name: [] for call in calls}
    room = _READ_BYTES
    for call in calls[-_CALLS_SHOWN:]:
        room -= (size := call.unread["input"].size if "input" in call.unread else 0)
        inputs[call.name].append(_input_text(call) if room >= 0 else f"… {size} bytes")
    lines: list[str] = []
    for name, count in Counter(call.name for call in calls).items():
        shown = inputs[name] if len(inputs[name]) == count else ["…", *inputs[name]]
        lines.append(f"{name} {shown[0]}" if count == 1 else f"{name} ×{count}: {', '.join(shown)}")
    return preview_text("; ".join(lines), _CALLS_CHARS)


def _input_text(call: CallRecord) -> str:
    return preview_json(redacted(call.input, names=call.masked, text_chars=_LONGEST), _INPUT_CHARS)


def _counted(calls: Sequence[CallRecord]) -> str:
    counts = Counter(call.name for call in calls)
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items())


def _notes(result: ExecutionResult, *, printed: bool) -> list[str]:
    notes = [
        each.message
        for each in result.diagnostics
        if each.show == "always" and not (printed and each.code == "no_result")
    ]
    if result.status == "failed" and result.error is not None:
        line = result.error.line
        guesses = [each for each in result.diagnostics if each.show == "on_failure"]
        nearest = sorted(guesses, key=lambda each: each.line != line)[:_GUESSES_SHOWN]
        notes += [each.message if each.line is None else f"line {each.line}: {each.message}" for each in nearest]
    effects = {record.sequence for record in _left_effects(result)} if result.error is None else set[int]()
    for call in result.unawaited:
        if call.late or call.sequence in effects:
            continue
        place = "" if call.line is None else f" at line {call.line}"
        outcome = "" if call.error is None else f"; it failed: {call.error}"
        notes.append(f"tools.{call.tool} was called{place} and never awaited{outcome}")
    return [*notes, *result.truncated]
