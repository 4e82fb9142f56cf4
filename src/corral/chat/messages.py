"""Assembly of an assistant message from the parts of a stream, and the stream of an assembled message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from corral.chat.turn import Message, Part

_TEXTS = ("text", "reasoning")
_MOST_PARTS = 2_000
_MOST_CHARS = 2_000_000
_GROWING = ("delta", "inputTextDelta", "input", "output", "errorText")
_PASSED_ON = frozenset({"start-step", "finish-step", "source-url", "source-document", "file"})


class AssembledMessage:
    """Assistant message that grows with each part of the stream."""

    def __init__(self, message_id: str) -> None:
        self.message: Message = {"id": message_id, "role": "assistant", "parts": []}
        self._open: dict[tuple[str, str], dict[str, Any]] = {}
        """Parts that grow, by kind and id."""
        self._chars = 0

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.message["parts"]

    @property
    def is_full(self) -> bool:
        return self._chars > _MOST_CHARS or len(self.parts) > _MOST_PARTS

    def fits(self, part: Part) -> bool:
        """Returns False for a part of a text or tool call that has not begun: clients would end the stream."""
        kind = str(part.get("type"))
        family, _, step = kind.rpartition("-")
        if family in _TEXTS:
            return step == "start" or (family, str(part.get("id"))) in self._open
        if kind.startswith(("tool-output", "tool-input-delta")):
            return ("tool", str(part.get("toolCallId"))) in self._open
        return True

    def add(self, part: Part) -> None:
        """Applies one part of the stream that `fits`. Parts of unknown types change nothing."""
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
        """Marks texts as complete and tools without an output as failed: nothing more comes."""
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
    """Makes the stream that leads to a message, with its unfinished parts left open."""
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
