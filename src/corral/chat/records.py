"""Record of an execution for the page, built from its events: bounded, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConsoleOutput,
    Event,
    ExecutionFinished,
    ExecutionStarted,
    ProgramChecked,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from corral.rendering.preview import json_text, preview, preview_text
from corral.rendering.redaction import redacted
from corral.results import CallRecord
from corral.types import ExecutionContext

_VALUE_CHARS = 20_000
"""Maximum for an input, an output or a result in the full record."""
_SHORT_CHARS = 400
"""The same for a part of a stream."""
_SHORT_SOURCE = 20_000
_MOST_CALLS = 2_000
_SHORT_CALLS = 100
_GROUPED_FROM = 12
"""Number of calls of a tool that makes a group."""
_MOST_GROUPS = 50
_SPANS = 40
"""Number of spans in a group's density."""
_SHORTEST_SPAN_SECONDS = 0.005
_MOST_LOG_CHARS = 250_000
_SHORT_LOG_CHARS = 12_000
_DIAGNOSTICS = 20
_IMAGES = 4
_IMAGE_BYTES = 300_000
_RUNNING = ("running", "waiting")


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who owns conversations and executions."""

    organization_id: str | None
    user_id: str

    def __str__(self) -> str:
        return json.dumps([self.organization_id, self.user_id])


def owner_of(context: ExecutionContext | ExecutionStarted) -> Owner:
    return Owner(context.organization_id, context.user_id)


class ExecutionRecord:
    """State of an execution. `data` is plain JSON data, for the page."""

    def __init__(self, started: ExecutionStarted) -> None:
        self.owner = owner_of(started)
        self.session_id = started.session_id or ""
        self._began = started.time
        self._calls: dict[int, dict[str, Any]] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._log_chars = 0
        self.data: dict[str, Any] = {
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

    @property
    def finished(self) -> bool:
        return self.data["status"] not in _RUNNING

    def see(self, event: Event) -> None:
        """Applies an event."""
        data = self.data
        match event:
            case ExecutionStarted():
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
                    shown = _plain(event.input) if event.shown is not None else None
                    call_data["approval"] = {
                        "state": "waiting",
                        "at": event.time - self._began,
                        "input": shown,
                        "shown": event.shown,
                        "description": event.description,
                        "readOnly": event.read_only,
                    }
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

    def short(self) -> dict[str, Any]:
        """Returns data for a part of a stream: the most important calls and console lines, with shortened values."""
        data = self.data
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

    def _start(self, call: CallRecord) -> None:
        self.data["callCount"] += 1
        self._count(call.name, max(0.0, call.started - self._began))
        if len(self._calls) >= _MOST_CALLS:
            return
        shown = {"n": call.sequence, "tool": call.name, "input": _redacted(call.input, call)}
        self._calls[call.sequence] = {**shown, "started": max(0.0, call.started - self._began)}
        self.data["calls"].append(self._calls[call.sequence])

    def _count(self, tool: str, started: float) -> None:
        """Counts a call of a tool. The length of the group's spans doubles once they are all used."""
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
        for call in self._calls.values():
            if call.get("approval", {}).get("state") == "waiting":
                call["approval"] = {"state": "expired", "at": call["approval"]["at"]}
        self.data |= {
            "status": result.status,
            "duration": result.duration_ms / 1000,
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
        if result.error is not None:
            error = result.error
            self.data["error"] = {
                "code": error.code,
                "name": error.name,
                "message": preview_text(error.message, 4_000),
                "line": error.line,
                "column": error.column,
            }
        else:
            self.data["value"] = _plain(redacted(result.value, text_chars=_VALUE_CHARS))
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


def expired(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the data of an execution that is not running any more; interrupted, unless it had ended."""
    if data.get("status") not in _RUNNING:
        return data
    calls = [
        {**call, "approval": {"state": "expired", "at": call["approval"]["at"]}}
        if call.get("approval", {}).get("state") == "waiting"
        else call
        for call in data["calls"]
    ]
    return {**data, "status": "interrupted", "calls": calls}


def _short_values(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: preview(call[name], _SHORT_CHARS) for name in ("input", "output") if name in call}


def _redacted(value: object, call: CallRecord) -> Any:
    return _plain(redacted(value, names=call.masked, text_chars=_VALUE_CHARS))


def _plain(value: object) -> Any:
    return json.loads(json_text(preview(value, _VALUE_CHARS)))
