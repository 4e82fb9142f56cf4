"""Replies in progress. They outlive their readers' connections."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

from corral import Corral
from corral.chat.records import ExecutionRecord, Owner
from corral.chat.turn import TURN, ChatAgent, ChatTurn, Message, Part, text_of_message
from corral.events import Event, ExecutionStarted
from corral.logs import get_logger
from corral.rendering.preview import json_text

_TEXTS = ("text", "reasoning")
_MOST_PARTS = 2_000
_MOST_CHARS = 2_000_000
_GROWING = ("delta", "inputTextDelta", "input", "output", "errorText")
_PASSED_ON = frozenset({"start-step", "finish-step", "source-url", "source-document", "file"})


class AssembledMessage:
    """Assistant message, built from the parts of a stream."""

    def __init__(self, message_id: str) -> None:
        self.message: Message = {"id": message_id, "role": "assistant", "parts": []}
        self._open: dict[tuple[str, str], dict[str, Any]] = {}
        """Unfinished parts, by kind and id."""
        self._chars = 0

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.message["parts"]

    @property
    def is_full(self) -> bool:
        return self._chars > _MOST_CHARS or len(self.parts) > _MOST_PARTS

    def fits(self, part: Part) -> bool:
        """Returns False for a part of a text or tool call that has not begun, since clients would end the stream."""
        kind = str(part.get("type"))
        family, _, step = kind.rpartition("-")
        if family in _TEXTS:
            return step == "start" or (family, str(part.get("id"))) in self._open
        if kind.startswith(("tool-output", "tool-input-delta")):
            return ("tool", str(part.get("toolCallId"))) in self._open
        return True

    def add(self, part: Part) -> None:
        """Applies a part of the stream that `fits`. Parts of unknown types are ignored."""
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


logger = get_logger("corral")

_INTERVAL_SECONDS = 0.05
_SECONDS_PER_CHAR = 1e-6
"""Additional interval for large records: the time for a page to parse and draw one."""
_MOST_CHARS_WAITING = 8_000_000
"""Maximum of unread encoded parts of a slow reader, which must then resume."""
_HEARTBEAT_SECONDS = 15.0
_QUESTION_CHARS = 300
_EXECUTIONS_KEPT = 200
"""Maximum number of kept records, of running and of the latest executions of a server."""


class Reader:
    """Stream of a connection. Of parts that replace each other only the latest waits."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[object, str] = OrderedDict()
        self._chars = 0
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, part: Part, key: object = None) -> None:
        """Adds a part; replaces a waiting part with the same `key` in place."""
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
    """An assistant message in progress: a task of the server, which readers join and leave."""

    def __init__(
        self,
        turn: ChatTurn,
        owner: Owner,
        agent: ChatAgent,
        *,
        seconds: float,
        save: Callable[[Message | None], Awaitable[None]],
    ) -> None:
        self.owner = owner
        self.turn = turn
        self.assembled = AssembledMessage(f"msg-{secrets.token_hex(8)}")
        self.stopped = False
        self._replying = False
        """True while the agent replies. A task that is cancelled before would store nothing."""
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
        """Ends the reply, even while its agent cleans up. A reply that is being stored is still stored."""
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
            part: dict[str, Any] = {"type": "data-execution", "id": execution_id, "data": record.short()}
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
                            self._flush()  # the program's end comes before its output
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
        self._replies: dict[tuple[Owner, str], Reply] = {}
        self._records: OrderedDict[str, ExecutionRecord] = OrderedDict()
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
    ) -> Reply:
        """Begins a reply."""
        key = owner, turn.conversation_id
        reply = self._replies[key] = Reply(turn, owner, agent, seconds=seconds, save=save)
        reply.task.add_done_callback(lambda task: self._ended(key, reply, task))
        return reply

    def record(self, owner: Owner, execution_id: str) -> ExecutionRecord | None:
        record = self._records.get(execution_id)
        return record if record is not None and record.owner == owner else None

    async def aclose(self) -> None:
        """Cancels all replies, and waits until they and their executions are stored."""
        replies = [*self._replies.values()]
        for reply in replies:
            reply.cancel()
        await asyncio.gather(*(reply.task for reply in replies), return_exceptions=True)
        self._observation.close()  # last, so that replies are stored with their programs' ends
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
        if record.finished:
            keeping = asyncio.ensure_future(self._keep(record))
            self._keeping.add(keeping)
            keeping.add_done_callback(self._kept)
        reply = self._replies.get((record.owner, record.session_id))
        if reply is not None:
            reply.see(record)

    def _begin(self, event: ExecutionStarted) -> None:
        record = self._records[event.execution_id] = ExecutionRecord(event)
        self._prune()
        reply = self._replies.get((record.owner, record.session_id))
        if reply is not None:
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
