"""Replies in progress, which outlive the connections of their readers, and the records of their executions for the
page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from corral import Corral
from corral.chat.turn import TURN, ChatAgent, ChatTurn, Message, Part, text_of_message
from corral.errors import ApprovalDenied
from corral.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConsoleOutput,
    Event,
    ExecutionFinished,
    ExecutionPaused,
    ExecutionResumed,
    ExecutionStarted,
    ProgramChecked,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from corral.logs import get_logger
from corral.rendering.preview import json_text, preview, preview_text
from corral.rendering.redaction import redacted
from corral.results import CallRecord
from corral.types import TRANSCRIPT, ApprovalRequest, ExecutionContext, ExecutionError

logger = get_logger("corral")

# --- records of executions: built from events, bounded, and without secrets

_VALUE_CHARS = 20_000
"""Maximum characters of an input, an output or a result in the full record."""
_SHORT_CHARS = 400
"""The same in a part of a stream."""
_SHORT_SOURCE = 20_000
_MOST_CALLS = 2_000
_SHORT_CALLS = 100
_GROUPED_FROM = 12
"""Minimum number of calls to one tool that form a group."""
_MOST_GROUPS = 50
_SPANS = 40
"""Number of time spans in a group's density."""
_SHORTEST_SPAN_SECONDS = 0.005
_MOST_LOG_CHARS = 250_000
_SHORT_LOG_CHARS = 12_000
_DIAGNOSTICS = 20
_IMAGES = 4
_IMAGE_BYTES = 300_000
_RUNNING = ("running", "waiting")


@dataclass(frozen=True, slots=True)
class Owner:
    """User who owns conversations and executions."""

    organization_id: str | None
    user_id: str

    def __str__(self) -> str:
        return json.dumps([self.organization_id, self.user_id])


def owner_of(context: ExecutionContext | ExecutionStarted) -> Owner:
    return Owner(context.organization_id, context.user_id)


class ExecutionRecord:
    """State of an execution. `data` is plain JSON data, for the page."""

    def __init__(self, started: ExecutionStarted, paused: dict[str, Any] | None = None) -> None:
        """`paused`: data of the execution when it paused; its time has stood still since then."""
        self.owner = owner_of(started)
        self.session_id = started.session_id or ""
        self.storing = asyncio.Lock()
        """Held while it is stored, because a store can reorder concurrent writes."""
        self.context: ExecutionContext | None = None
        """Caller of the reply in which it runs."""
        self._began = started.time - (0.0 if paused is None else paused.get("duration", 0.0))
        self.data: dict[str, Any] = paused or {
            "id": started.execution_id,
            "toolCallId": started.tool_call_id,
            "session": started.session_id,
            "status": "running",
            "language": started.language,
            "source": started.source,
            "began": started.time,
            "calls": [],
            "callCount": 0,
            "groups": [],
            "logs": [],
            "logsDropped": 0,
        }
        self.data["status"] = "running"
        self.data.pop("halted", None)
        self._calls: dict[int, dict[str, Any]] = {call["n"]: call for call in self.data["calls"]}
        self._tools: dict[str, dict[str, Any]] = {group["tool"]: group for group in self.data["groups"]}
        self._log_chars = sum(len(text) for _, text, _ in self.data["logs"])

    @property
    def finished(self) -> bool:
        return self.data["status"] not in _RUNNING

    def see(self, event: Event) -> None:
        """Applies an event."""
        data = self.data
        match event:
            case ExecutionStarted() | ExecutionPaused() | ExecutionResumed():
                pass
            case ProgramChecked():
                data["check"] = {"verdict": event.verdict, "reason": event.reason}
                data["diagnostics"] = [
                    {"severity": each.severity, "message": each.message, "line": each.line}
                    for each in event.diagnostics[:_DIAGNOSTICS]
                ]
            case ToolCallStarted(call=call):
                self._start(call)
            case ApprovalRequested():
                if call_data := self._calls.get(event.sequence):
                    call_data["approval"] = _asked(event, event.shown, event.time - self._began)
                self._show_waiting()
            case ApprovalDecided():
                if call_data := self._calls.get(event.sequence):
                    approval = call_data.get("approval", {})
                    call_data["approval"] = {
                        "state": event.decision.type,
                        "at": approval.get("at", 0.0),
                        "until": event.time - self._began,
                        "by": event.decision.by,
                        "reason": getattr(event.decision, "reason", None),
                    }
                self._show_waiting()
            case ToolCallProgress():
                if call_data := self._calls.get(event.sequence):
                    call_data["progress"] = {"done": event.done, "total": event.total, "message": event.message}
            case ToolCallFinished(call=call):
                self._finish(call)
            case ConsoleOutput(entry=entry):
                self._log(entry.level, entry.text, entry.time - self._began)
            case ExecutionFinished():
                self._conclude(event)

    def _start(self, call: CallRecord) -> None:
        if call.sequence in self._calls:  # it waited for a decision while its program was paused
            return
        self.data["callCount"] += 1
        self._count(call.name, max(0.0, call.started - self._began))
        if len(self._calls) >= _MOST_CALLS:
            return
        shown = {"n": call.sequence, "tool": call.name, "input": _redacted(call.input, call)}
        self._calls[call.sequence] = {**shown, "started": max(0.0, call.started - self._began)}
        self.data["calls"].append(self._calls[call.sequence])

    def _count(self, tool: str, started: float) -> None:
        """Counts a call to a tool. Once all of the group's spans are used, their length doubles."""
        if tool not in self._tools and len(self._tools) >= _MOST_CALLS:
            return
        counted = {"tool": tool, "count": 0, "failed": 0, "shortest": None, "longest": 0.0, "started": started}
        group = self._tools.setdefault(tool, {**counted, "seconds": _SHORTEST_SPAN_SECONDS, "density": [0] * _SPANS})
        while started >= group["seconds"] * _SPANS:
            density = group["density"]
            group["seconds"] *= 2
            group["density"] = [a + b for a, b in zip(density[::2], density[1::2], strict=True)] + [0] * (_SPANS // 2)
        group["density"][int(started / group["seconds"])] += 1
        group["count"] += 1
        if group["count"] == _GROUPED_FROM and len(self.data["groups"]) < _MOST_GROUPS:
            self.data["groups"].append(group)

    def _finish(self, call: CallRecord) -> None:
        if (group := self._tools.get(call.name)) is not None:
            seconds = (call.duration_ms or 0.0) / 1000
            group["failed"] += call.error is not None
            group["shortest"] = seconds if group["shortest"] is None else min(group["shortest"], seconds)
            group["longest"] = max(group["longest"], seconds)
        data = self._calls.get(call.sequence)
        if data is None:
            return
        data.pop("progress", None)
        data["duration"] = (call.duration_ms or 0.0) / 1000
        if call.error is not None:
            data["error"] = {"code": call.error.code, "message": preview_text(call.error.message, 2_000)}
        else:
            data["output"] = _redacted(call.output, call)
        if data.get("approval", {}).get("state") == "waiting":
            data["approval"] = {"state": "expired", "at": data["approval"]["at"]}
            self._show_waiting()

    def _log(self, level: str, text: str, at: float) -> None:
        self._log_chars += len(text)
        if self._log_chars > _MOST_LOG_CHARS:
            self.data["logsDropped"] += 1
        else:
            self.data["logs"].append([level, text, max(0.0, at)])

    def _show_waiting(self) -> None:
        if not self.finished:
            waits = any(each.get("approval", {}).get("state") == "waiting" for each in self._calls.values())
            self.data["status"] = "waiting" if waits else "running"

    def _conclude(self, event: ExecutionFinished) -> None:
        result = event.result
        self.data |= {
            "status": result.status,
            "duration": max(0.0, event.time - self._began),
            "calls": _with_pending(self.data["calls"], result.pending),
            "checked": result.checked,
            "containment": None
            if result.containment is None
            else {"kind": str(result.containment), "strength": result.containment.strength},
            "truncated": list(result.truncated),
            "diagnostics": [
                {"severity": each.severity, "message": each.message, "line": each.line}
                for each in result.diagnostics[:_DIAGNOSTICS]
                if each.severity != "info"
            ],
        }
        self.data |= _outcome(result.value, result.error)
        if result.error is None:
            self.data["images"] = [
                f"data:{each.media_type};base64,{each.base64}"
                for each in result.images[:_IMAGES]
                if each.is_common and len(each.data) <= _IMAGE_BYTES
            ]
        if result.files:
            self.data["files"] = {
                "created": list(result.files.created[:50]),
                "changed": list(result.files.changed[:50]),
                "deleted": list(result.files.deleted[:50]),
            }


def short(data: dict[str, Any]) -> dict[str, Any]:
    """Returns data for a part of a stream: the most important calls and console lines, with shortened values."""
    calls: list[dict[str, Any]] = data["calls"]
    if len(calls) > _SHORT_CALLS:
        open_calls = [each for each in calls if each.get("approval", {}).get("state") == "waiting"][:_SHORT_CALLS]
        latest = calls[-(_SHORT_CALLS - len(open_calls)) :] if len(open_calls) < _SHORT_CALLS else []
        calls = sorted({each["n"]: each for each in (*open_calls, *latest)}.values(), key=lambda each: each["n"])
    logs: list[list[Any]] = []
    room = _SHORT_LOG_CHARS
    for level, text, at in reversed(data["logs"]):
        shown = preview_text(text, max(200, min(room, 4_000)))
        room -= len(shown)
        if room < 0:
            break
        logs.append([level, shown, at])
    shortened = {
        **data,
        "source": preview_text(data["source"], _SHORT_SOURCE),
        "calls": [{**each, **_short_values(each)} for each in calls],
        "groups": [{**each, "density": [*each["density"]]} for each in data["groups"]],
        "logs": logs[::-1],
        "logsDropped": data["logsDropped"] + len(data["logs"]) - len(logs),
    }
    if "value" in data:
        shortened["value"] = preview(data["value"], 4_000)
    shortened["whole"] = len(calls) == len(data["calls"]) and len(logs) == len(data["logs"])
    return shortened


def is_open(data: Mapping[str, Any]) -> bool:
    """True if an execution had not ended when this was stored."""
    return data.get("status") in (*_RUNNING, "paused") or "halted" in data


def as_recorded(data: dict[str, Any], recorded: Any) -> dict[str, Any]:
    """Returns the data of an execution that does not run here any more, as the ledger has it: interrupted, unless it
    has ended or is paused."""
    if not is_open(data):
        return data
    status = data["status"] if "halted" in data else "interrupted"
    pending, others = tuple[ApprovalRequest, ...](), "expired"
    if recorded is not None and recorded.status != "running":
        status, others = recorded.status, "decided"
        pending = tuple(each for each in recorded.pending if each.sequence not in recorded.decided)
        data = {**data, **_outcome(recorded.value, recorded.error)}
    return {**data, "status": status, "calls": _with_pending(data["calls"], pending, others)}


def _with_pending(
    calls: list[dict[str, Any]], pending: Iterable[ApprovalRequest], others: str = "expired"
) -> list[dict[str, Any]]:
    """Returns calls of which these wait for decisions, and `others`, which have waited before, have that state."""
    asked, updated = {each.sequence: each for each in pending}, list[dict[str, Any]]()
    for call in calls:
        approval, request = call.get("approval", {}), asked.pop(call["n"], None)
        if request is not None:
            approval = _asked(request, _shown(request), approval.get("at", call["started"]))
        elif approval.get("state") == "waiting":
            approval = {"state": others, "at": approval["at"]}
        updated.append({**call, "approval": approval} if approval else call)
    for number, request in asked.items():
        call = {"n": number, "tool": request.tool, "input": _plain(redacted(request.arguments)), "started": 0.0}
        updated.append({**call, "approval": _asked(request, _shown(request), 0.0)})
    return updated


def _asked(request: ApprovalRequest | ApprovalRequested, shown: str | None, at: float) -> dict[str, Any]:
    return {
        "state": "waiting",
        "at": at,
        "input": None if shown is None else _plain(request.input),
        "shown": shown,
        "description": request.description,
        "readOnly": request.read_only,
        "reason": getattr(request, "reason", None),
        "doubts": [asdict(each) for each in request.doubts],
        "seen": [*request.seen],
        "digest": request.digest,
    }


def _shown(request: ApprovalRequest) -> str | None:
    try:
        return request.shown()
    except ApprovalDenied:
        return None


def _outcome(value: object, error: ExecutionError | None) -> dict[str, Any]:
    if error is None:
        return {"value": _plain(redacted(value, text_chars=_VALUE_CHARS))}
    message = preview_text(error.message, 4_000)
    place = {"line": error.line, "column": error.column}
    return {"error": {"code": error.code, "name": error.name, "message": message, **place}}


def _short_values(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: preview(call[name], _SHORT_CHARS) for name in ("input", "output") if name in call}


def _redacted(value: object, call: CallRecord) -> Any:
    return _plain(redacted(value, names=call.masked, text_chars=_VALUE_CHARS))


def _plain(value: object) -> Any:
    return json.loads(json_text(preview(value, _VALUE_CHARS)))


# --- messages

_TEXTS = ("text", "reasoning")
_MOST_PARTS = 2_000
_MOST_CHARS = 2_000_000
_GROWING = ("delta", "inputTextDelta", "input", "output", "errorText")
_PASSED_ON = frozenset({"start-step", "finish-step", "source-url", "source-document", "file"})


class AssembledMessage:
    """Assistant message, built from the parts of a stream."""

    def __init__(self, earlier: Message | None = None) -> None:
        self.message: Message = earlier or {"id": f"msg-{secrets.token_hex(8)}", "role": "assistant", "parts": []}
        self._open: dict[tuple[str, str], dict[str, Any]] = {}
        """Unfinished parts, by kind and id."""
        for part in self.parts:
            if part["type"].startswith("data-"):
                self._open[part["type"], str(part["id"])] = part
            elif "toolCallId" in part:
                self._open["tool", str(part["toolCallId"])] = part
        self._chars = 0

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.message["parts"]

    @property
    def is_full(self) -> bool:
        return self._chars > _MOST_CHARS or len(self.parts) > _MOST_PARTS

    def fits(self, part: Part) -> bool:
        """Returns False for a part of a text or tool call that has not begun, because clients would end the stream."""
        kind = str(part.get("type"))
        family, _, step = kind.rpartition("-")
        if family in _TEXTS:
            return step == "start" or (family, str(part.get("id"))) in self._open
        if kind.startswith(("tool-output", "tool-input-delta")):
            return ("tool", str(part.get("toolCallId"))) in self._open
        return True

    def add(self, part: Part) -> None:
        """Applies a part of the stream that `fits`. Ignores parts of unknown types."""
        kind = str(part.get("type"))
        family, _, step = kind.rpartition("-")
        self._chars += sum(len(str(part[key])) for key in _GROWING if key in part)
        if family in _TEXTS:
            self._text(family, step, part)
        elif kind.startswith("tool-"):
            self._tool(kind, part)
        elif kind.startswith("data-"):
            if not part.get("transient"):
                self._data(kind, part)
        elif kind in _PASSED_ON and kind != "finish-step":
            self.parts.append({**part, "type": "step-start"} if kind == "start-step" else dict(part))

    def close(self) -> None:
        """Ends the message: marks texts as complete, and tools without an output as failed."""
        for part in self.parts:
            if part.get("state") == "streaming":
                part["state"] = "done"
            elif part.get("state") in ("input-streaming", "input-available"):
                part |= {"state": "output-error", "errorText": "it was stopped", "input": part.get("input")}
            part.pop("inputText", None)
        self._open.clear()

    def _text(self, family: str, step: str, part: Part) -> None:
        key = family, str(part["id"])
        if step == "start":
            self._open[key] = {"type": family, "text": "", "state": "streaming", "id": part["id"]}
            self.parts.append(self._open[key])
        elif key in self._open and step == "delta":
            self._open[key]["text"] += part["delta"]
        elif key in self._open:
            self._open.pop(key)["state"] = "done"

    def _tool(self, kind: str, part: Part) -> None:
        key = "tool", str(part["toolCallId"])
        tool = self._open.get(key)
        if tool is None:
            name = str(part.get("toolName", "tool"))
            own = {"type": "dynamic-tool", "toolName": name} if part.get("dynamic") else {"type": f"tool-{name}"}
            tool = self._open[key] = {**own, "toolCallId": part["toolCallId"], "state": "input-streaming"}
            self.parts.append(tool)
        match kind:
            case "tool-input-delta":
                tool["inputText"] = tool.get("inputText", "") + part["inputTextDelta"]
            case "tool-input-available":
                tool.pop("inputText", None)
                tool |= {"state": "input-available", "input": part.get("input")}
            case "tool-input-error":
                tool.pop("inputText", None)
                tool |= {"state": "output-error", "input": part.get("input"), "errorText": part["errorText"]}
            case "tool-output-available":
                tool.pop("errorText", None)  # of a pause: an agent's framework refuses a call that has both
                tool |= {"state": "output-available", "output": part.get("output")}
            case "tool-output-error":
                tool |= {"state": "output-error", "errorText": part["errorText"]}
            case _:
                pass

    def _data(self, kind: str, part: Part) -> None:
        key = kind, str(part.get("id"))
        if part.get("id") is None or key not in self._open:
            self._open[key] = {"type": kind, "id": part.get("id"), "data": part.get("data")}
            self.parts.append(self._open[key])
        else:
            self._open[key]["data"] = part.get("data")


def replayed(message: Message) -> Iterator[dict[str, Any]]:
    """Yields a stream that builds a message, with its unfinished parts left open."""
    for part in cast("list[dict[str, Any]]", message["parts"]):
        kind: str = part["type"]
        if kind in _TEXTS:
            yield {"type": f"{kind}-start", "id": part["id"]}
            yield {"type": f"{kind}-delta", "id": part["id"], "delta": part["text"]}
            if part["state"] == "done":
                yield {"type": f"{kind}-end", "id": part["id"]}
        elif kind == "step-start":
            yield {"type": "start-step"}
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            yield from _tool_parts(kind, part)
        else:
            yield part


def _tool_parts(kind: str, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    call = {"toolCallId": part["toolCallId"]}
    if dynamic := kind == "dynamic-tool":
        call["dynamic"] = True
    named = {**call, "toolName": part["toolName"] if dynamic else kind.removeprefix("tool-")}
    state = part["state"]
    if state == "input-streaming":
        yield {"type": "tool-input-start", **named}
        yield {
            "type": "tool-input-delta",
            "toolCallId": part["toolCallId"],
            "inputTextDelta": part.get("inputText", ""),
        }
        return
    yield {"type": "tool-input-available", **named, "input": part.get("input")}
    if state == "output-available":
        yield {"type": "tool-output-available", **call, "output": part["output"]}
    elif state == "output-error":
        yield {"type": "tool-output-error", **call, "errorText": part["errorText"]}


# --- replies

_INTERVAL_SECONDS = 0.05
_SECONDS_PER_CHAR = 1e-6
"""Additional seconds between updates for large records: the time for a page to parse and draw one."""
_MOST_CHARS_WAITING = 8_000_000
"""Maximum bytes of encoded parts that a slow reader has not read. Beyond it, the reader must resume."""
_HEARTBEAT_SECONDS = 15.0
_QUESTION_CHARS = 300
_EXECUTIONS_KEPT = 200
"""Maximum number of records that a server keeps, of running and of the latest executions."""


class Reader:
    """Stream of a connection. Of parts that replace each other, only the latest waits."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[object, str] = OrderedDict()
        self._chars = 0
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, part: Part, key: object = None) -> None:
        """Adds a part. If a part with the same `key` is waiting, replaces it in place."""
        text = json_text(part)
        place = object() if key is None else key
        self._chars += len(text) - len(self._waiting.get(place, ""))
        self._waiting[place] = text
        if self._chars > _MOST_CHARS_WAITING:
            self._waiting.clear()
            self._ended = True
        self._changed.set()

    def end(self, part: Part) -> None:
        self.put(part)
        self._ended = True
        self._changed.set()

    async def lines(self) -> AsyncIterator[str]:
        """Yields server-sent events, with comments that keep proxies from closing the connection."""
        while True:
            while self._waiting:
                _, text = self._waiting.popitem(last=False)
                self._chars -= len(text)
                yield f"data: {text}\n\n"
            if self._ended:
                yield "data: [DONE]\n\n"
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), _HEARTBEAT_SECONDS)
            except TimeoutError:
                yield ": waiting\n\n"


class Reply:
    """Assistant message in progress: a task of the server, which readers join and leave."""

    def __init__(
        self,
        turn: ChatTurn,
        owner: Owner,
        agent: ChatAgent,
        *,
        seconds: float,
        save: Callable[[Message | None], Awaitable[None]],
        earlier: Message | None = None,
    ) -> None:
        self.owner = owner
        self.turn = turn
        self.assembled = AssembledMessage(earlier)
        self.stopped = False
        self._replying = False
        """True while the agent replies. A task that is cancelled before that would store nothing."""
        self._end: dict[str, Any] | None = None
        """Last part; None while the reply is in progress."""
        self._agent = agent
        self._seconds = seconds
        self.save = save
        self._readers: set[Reader] = set()
        self._changed: dict[str, ExecutionRecord] = {}
        self._sending: asyncio.Task[None] | None = None
        self._saved_waiting: set[str] = set()
        self._saving: asyncio.Future[None] | None = None
        self.task = asyncio.ensure_future(self._run())

    def reader(self) -> Reader:
        """Adds a reader, which first receives the message so far."""
        reader = Reader()
        reader.put({"type": "start", "messageId": self.assembled.message["id"]})
        for part in replayed(self.assembled.message):
            reader.put(part)
        if self._end is None:
            self._readers.add(reader)
        else:
            reader.end(self._end)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def stop(self) -> None:
        """Ends the reply and its agent's programs. A second call has no effect, so that the agent can clean up."""
        if not self.stopped:
            self.cancel()

    def cancel(self) -> None:
        """Ends the reply, even while its agent cleans up. A reply that is already being stored is still stored."""
        self.stopped = True
        if self._replying:
            self.task.cancel()

    def see(self, record: ExecutionRecord) -> None:
        """Schedules sending the state of an execution to the readers."""
        self._changed[record.data["id"]] = record
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_records())

    async def _send_records(self) -> None:
        while self._changed:
            chars = self._flush()
            await asyncio.sleep(_INTERVAL_SECONDS + chars * _SECONDS_PER_CHAR)
        self._sending = None

    def _flush(self) -> int:
        chars = 0
        changed, self._changed = self._changed, {}
        for execution_id, record in changed.items():
            part: dict[str, Any] = {"type": "data-execution", "id": execution_id, "data": short(record.data)}
            chars += sum(len(str(call)) for call in part["data"]["calls"]) + len(part["data"]["source"])
            self._emit(part, ("execution", execution_id))
            if part["data"]["status"] == "waiting" and execution_id not in self._saved_waiting:
                self._saved_waiting.add(execution_id)  # so that a restarted server shows the approval as expired
                self._saving = asyncio.ensure_future(self.save(self.assembled.message))
        return chars

    def _emit(self, part: Part, key: object = None) -> None:
        self.assembled.add(part)
        for reader in self._readers:
            reader.put(part, key)

    async def _run(self) -> None:
        self._replying = True
        TURN.set(self.turn)
        end: dict[str, Any] = {"type": "finish"}
        try:
            if self.stopped:
                raise asyncio.CancelledError
            async with asyncio.timeout(self._seconds):
                async with contextlib.aclosing(_closable(self._agent.reply(self.turn))) as parts:
                    async for part in parts:
                        if not self.assembled.fits(part):
                            logger.warning("an agent's part %r has no matching start", part.get("type"))
                            continue
                        if str(part.get("type")).startswith("tool-output"):
                            self._flush()  # the program's end must come before its output
                        self._emit(part)
                        if self.assembled.is_full:
                            raise ValueError("the reply is too large")
        except asyncio.CancelledError:
            if not self.stopped:  # the event loop ends
                raise
            end = {"type": "abort"}
        except Exception as error:
            correlation = secrets.token_hex(6)
            logger.exception("an agent's reply failed (correlation id %s)", correlation)
            text = "the reply took too long" if isinstance(error, TimeoutError) else "the agent failed"
            self.assembled.parts.append({"type": "data-error", "id": None, "data": f"{text} ({correlation})"})
            end = {"type": "error", "errorText": f"{text} ({correlation})"}
        finally:
            self._replying = False
            self._flush()
            if self._sending is not None:
                self._sending.cancel()
            self.assembled.close()
            try:
                await asyncio.shield(asyncio.ensure_future(self.save(self.assembled.message)))
            finally:
                self._end = end
                for reader in self._readers:
                    reader.end(end)


async def _closable(parts: AsyncIterator[Part]) -> AsyncGenerator[Part]:
    try:
        async for part in parts:
            yield part
    finally:
        if (close := getattr(parts, "aclose", None)) is not None:
            await close()


class Replies:
    """Replies in progress of a server, and the records of their executions."""

    def __init__(self, corral: Corral, keep: Callable[[ExecutionRecord], Awaitable[None]]) -> None:
        self._keep = keep
        self._is_shared = corral.peers is not None
        """True if other hosts look for executions in the store while they run."""
        self._replies: dict[tuple[Owner, str], Reply] = {}
        self._records: OrderedDict[str, ExecutionRecord] = OrderedDict()
        self.paused: dict[str, dict[str, Any]] = {}
        """Data of paused executions that are about to be continued, by id."""
        self._is_closing = False
        self._keeping: set[asyncio.Future[None]] = set()
        self._observation = corral.observe(self._see)

    def find(self, owner: Owner, conversation_id: str) -> Reply | None:
        return self._replies.get((owner, conversation_id))

    def count(self, owner: Owner) -> int:
        return sum(1 for whose, _ in self._replies if whose == owner)

    def start(
        self,
        turn: ChatTurn,
        owner: Owner,
        agent: ChatAgent,
        *,
        seconds: float,
        save: Callable[[Message | None], Awaitable[None]],
        earlier: Message | None = None,
    ) -> Reply:
        """Begins a reply, or continues an `earlier` message."""
        key = owner, turn.conversation_id
        reply = self._replies[key] = Reply(turn, owner, agent, seconds=seconds, save=save, earlier=earlier)
        reply.task.add_done_callback(lambda task: self._ended(key, reply, task))
        return reply

    def record(self, owner: Owner, execution_id: str) -> ExecutionRecord | None:
        record = self._records.get(execution_id)
        return record if record is not None and record.owner == owner else None

    async def aclose(self) -> None:
        """Cancels all replies, and waits until they and their executions are stored."""
        self._is_closing = True
        replies = [*self._replies.values()]
        for reply in replies:
            reply.cancel()
        await asyncio.gather(*(reply.task for reply in replies), return_exceptions=True)
        self._observation.close()  # last, so that replies are stored with the ends of their programs
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def _ended(self, key: tuple[Owner, str], reply: Reply, task: asyncio.Future[None]) -> None:
        if self._replies.get(key) is reply:
            del self._replies[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a reply could not be stored", exc_info=error)

    def _see(self, event: Event) -> None:
        if isinstance(event, ExecutionStarted):
            self._begin(event)
        record = self._records.get(event.execution_id)
        if record is None:
            return
        record.see(event)
        if record.data["status"] == "cancelled" and self._is_closing:
            record.data["halted"] = True  # by the server's end: a durable one can be continued
        if record.finished or (self._is_shared and isinstance(event, ExecutionStarted)):
            keeping = asyncio.ensure_future(self._keep(record))
            self._keeping.add(keeping)
            keeping.add_done_callback(self._kept)
        reply = self._replies.get((record.owner, record.session_id))
        if reply is not None:
            reply.see(record)

    def _begin(self, event: ExecutionStarted) -> None:
        paused = self.paused.pop(event.execution_id, None)
        record = self._records[event.execution_id] = ExecutionRecord(event, paused)
        self._prune()
        reply = self._replies.get((record.owner, record.session_id))
        if reply is not None:
            context = reply.turn.context  # without its conversation, which is large
            local = {key: value for key, value in context.local.items() if key != TRANSCRIPT}
            record.context = context.model_copy(update={"local": local})
        if reply is not None and paused is None:
            first = text_of_message(reply.turn.messages[0])
            record.data |= {"title": first[:_QUESTION_CHARS], "question": reply.turn.text[:_QUESTION_CHARS]}

    def _kept(self, keeping: asyncio.Future[None]) -> None:
        self._keeping.discard(keeping)
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            logger.error("an execution could not be stored", exc_info=error)

    def _prune(self) -> None:
        finished = [execution_id for execution_id, record in self._records.items() if record.finished]
        for execution_id in finished[: max(0, len(self._records) - _EXECUTIONS_KEPT)]:
            del self._records[execution_id]
