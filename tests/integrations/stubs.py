"""APIs of models on loopback, as the SDKs speak to them: each request is answered by the next turn of a script.

A script is a generator: it yields what the model does, and is sent what the model then reads of its calls.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, TypeAlias

from tests.integrations.scenario import ANSWER, RIGHT, WRONG, Scenario

__all__ = ["Call", "Script", "Stub", "Turn", "calling", "mending", "stub", "turns"]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


Turn: TypeAlias = str | Sequence[Call]
Script: TypeAlias = Generator[Turn, list[str], None]


def mending(scenario: Scenario, tool: str = "execute_code") -> Script:
    """The script of `tests.integrations.scenario`."""
    [text] = yield [Call(tool, {"code": WRONG})]
    scenario.after_wrong(text)
    [text] = yield [Call(tool, {"code": RIGHT})]
    scenario.after_right(text)
    yield ANSWER


def calling(*calls: Call, read: list[str] | None = None) -> Script:
    """Makes some calls in one turn, and is done; `read` gets what came of them."""
    texts = yield calls
    if read is not None:
        read += texts
    yield "Done."


def turns(*turns: Turn | Call) -> Script:
    """Takes these turns, the last one again and again."""
    for turn in turns:
        yield [turn] if isinstance(turn, Call) else turn
    while True:
        yield [turns[-1]] if isinstance(turns[-1], Call) else turns[-1]


@dataclass
class Stub:
    """A model's API. `failure` is what its script raised, at the end of the block raised again."""

    script: Script
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    failure: BaseException | None = None
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def turn(self, read: list[str]) -> Turn:
        return self.script.send(read) if len(self.requests) > 1 else next(self.script)


@contextmanager
def stub(script: Script) -> Generator[Stub]:
    """Serves the Responses API, chat completions and Anthropic's messages."""
    model = Stub(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.requests.append(body)
            api = _APIS[self.path.partition("?")[0]]
            try:
                turn = model.turn(api.read(body))
            except BaseException as error:
                model.failure = error
                self._send(400, "application/json", b'{"error": {"message": "the script has failed"}}')
                return
            answer = api.answer(turn, model.numbers)
            if body.get("stream"):
                lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in api.events(answer)]
                self._send(200, "text/event-stream", "".join(lines).encode())
            else:
                self._send(200, "application/json", json.dumps(answer).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is to be read of it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield model
    except BaseException:
        if model.failure is not None:
            raise model.failure from None
        raise
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert model.failure is None, model.failure


# --- the Responses API --------------------------------------------------------------------------------------


class _Responses:
    @staticmethod
    def read(request: dict[str, Any]) -> list[str]:
        """The outputs of the calls that the model made last."""
        items: list[dict[str, Any]] = [] if isinstance(request["input"], str) else request["input"]
        made = max((number for number, item in enumerate(items) if item.get("type") == "function_call"), default=0)
        return [item["output"] for item in items[made:] if item.get("type") == "function_call_output"]

    @staticmethod
    def answer(turn: Turn, numbers: Iterator[int]) -> dict[str, Any]:
        number = next(numbers)
        if isinstance(turn, str):
            text: dict[str, Any] = {"type": "output_text", "text": turn, "annotations": []}
            output: list[dict[str, Any]] = [
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "status": "completed",
                    "role": "assistant",
                    "content": [text],
                }
            ]
        else:
            output = [
                {
                    "type": "function_call",
                    "id": f"fc_{number}_{place}",
                    "call_id": f"call_{number}_{place}",
                    "name": call.name,
                    "arguments": json.dumps(call.arguments),
                    "status": "completed",
                }
                for place, call in enumerate(turn)
            ]
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 0,
            "model": "scripted",
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }

    @staticmethod
    def events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        numbers = count()
        begun: dict[str, Any] = {**answer, "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "sequence_number": next(numbers), "response": begun}
        for place, item in enumerate(answer["output"]):
            at = {"output_index": place, "item_id": item["id"]}
            added: dict[str, Any] = {**item, "status": "in_progress"}
            added |= {"content": []} if "content" in item else {"arguments": ""}
            yield {
                "type": "response.output_item.added",
                "sequence_number": next(numbers),
                "output_index": place,
                "item": added,
            }
            if "content" in item:
                [part] = item["content"]
                empty = {**part, "text": ""}
                inside = {**at, "content_index": 0}
                yield {
                    "type": "response.content_part.added",
                    "sequence_number": next(numbers),
                    "part": empty,
                    **inside,
                }
                for delta in _pieces(part["text"]):
                    yield {
                        "type": "response.output_text.delta",
                        "sequence_number": next(numbers),
                        "delta": delta,
                        "logprobs": [],
                        **inside,
                    }
                yield {
                    "type": "response.output_text.done",
                    "sequence_number": next(numbers),
                    "text": part["text"],
                    "logprobs": [],
                    **inside,
                }
                yield {"type": "response.content_part.done", "sequence_number": next(numbers), "part": part, **inside}
            else:
                for delta in _pieces(item["arguments"]):
                    yield {
                        "type": "response.function_call_arguments.delta",
                        "sequence_number": next(numbers),
                        "delta": delta,
                        **at,
                    }
                yield {
                    "type": "response.function_call_arguments.done",
                    "sequence_number": next(numbers),
                    "name": item["name"],
                    "arguments": item["arguments"],
                    **at,
                }
            yield {
                "type": "response.output_item.done",
                "sequence_number": next(numbers),
                "output_index": place,
                "item": item,
            }
        yield {"type": "response.completed", "sequence_number": next(numbers), "response": answer}


# --- chat completions ---------------------------------------------------------------------------------------


class _Chat:
    @staticmethod
    def read(request: dict[str, Any]) -> list[str]:
        messages = request["messages"]
        made = max((number for number, each in enumerate(messages) if each["role"] == "assistant"), default=0)
        return [each["content"] for each in messages[made:] if each["role"] == "tool"]

    @staticmethod
    def answer(turn: Turn, numbers: Iterator[int]) -> dict[str, Any]:
        number = next(numbers)
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(turn, str):
            message["content"] = turn
        else:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{place}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for place, call in enumerate(turn)
            ]
        reason = "stop" if isinstance(turn, str) else "tool_calls"
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        }

    @staticmethod
    def events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError


# --- Anthropic's messages -----------------------------------------------------------------------------------


class _Messages:
    @staticmethod
    def read(request: dict[str, Any]) -> list[str]:
        """An error is marked as one."""
        content = request["messages"][-1]["content"]
        if isinstance(content, str):
            return []
        return [
            f"{'is_error: ' if block.get('is_error') else ''}{_text_of(block['content'])}"
            for block in content
            if block["type"] == "tool_result"
        ]

    @staticmethod
    def answer(turn: Turn, numbers: Iterator[int]) -> dict[str, Any]:
        number = next(numbers)
        content: list[dict[str, Any]]
        if isinstance(turn, str):
            content = [{"type": "text", "text": turn}]
        else:
            content = [
                {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": call.name, "input": call.arguments}
                for place, call in enumerate(turn)
            ]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    @staticmethod
    def events(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}
        for place, block in enumerate(answer["content"]):
            start: dict[str, Any]
            if block["type"] == "text":
                start = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            else:
                start = {**block, "input": {}}
                pieces = _pieces(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            yield {"type": "content_block_start", "index": place, "content_block": start}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": place, "delta": delta}
            yield {"type": "content_block_stop", "index": place}
        stopped = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}


def _text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _pieces(text: str) -> list[str]:
    return [text[start : start + 20] for start in range(0, len(text), 20)]


_APIS: dict[str, Any] = {
    "/v1/responses": _Responses,
    "/v1/chat/completions": _Chat,
    "/v1/messages": _Messages,
}
