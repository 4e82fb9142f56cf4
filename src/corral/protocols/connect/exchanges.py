"""One request by the Connect protocol: its message, and its response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message import DecodeError
from grpc import StatusCode
from pydantic_core import to_json

from corral.bridges.base import Send
from corral.bridges.web.response_stream import ResponseStream
from corral.concurrency.threads import run_in_own_thread
from corral.errors import BridgeError, InvalidToolOutput, MalformedMessage
from corral.protocols.connect.forms import END, Form, envelope, error_json, expanded, opened, refusal, respond
from corral.types import CallError

T = TypeVar("T")
_INLINE_BYTES = 16_384
"""Larger messages are read and written as JSON in a thread: protobuf does it in Python."""
_MOST_REASON = 300
_ENDED = envelope(b"{}", END)
_NOT_WRITTEN = "the tool ran, but its result was withheld: JSON has no form for it; application/proto has"


class ConnectExchange:
    """Messages of one request and its response. `body` is set once it has arrived."""

    def __init__(self, form: Form, send: Send, most_bytes: int, *, compressed: bool) -> None:
        self.body = b""
        self._form = form
        self._send = send
        self._parts = ResponseStream(send, (b"content-type", form.content_type), (b"cache-control", b"no-store"))
        self._most_bytes = most_bytes
        self._compressed = compressed
        self._response: bytes | None = None
        self._ping: Any = None
        self._ended = False

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        if stream is not self._form.stream:
            kind = (
                "application/connect+json or application/connect+proto" if stream else "application/json or .../proto"
            )
            raise BridgeError(f"the method {'streams' if stream else 'does not stream'}; its content-type is {kind}")
        if ping is not None:
            self._ping = ping

    @asynccontextmanager
    async def message(self, kind: Any, *, batch: bool = False) -> AsyncGenerator[tuple[Any, int]]:  # noqa: ARG002
        body = self.body
        if self._form.stream:
            body = opened(body, self._most_bytes, compressed=self._compressed)
        elif self._compressed:
            body = expanded(body, self._most_bytes)
        message = await self._by_size(len(body), lambda: self._parsed(kind, body))
        yield message, len(body)

    def _parsed(self, kind: Any, body: bytes) -> Any:
        try:
            return Parse(body or b"{}", kind()) if self._form.json else kind.FromString(body)
        except DecodeError:
            raise MalformedMessage("the message is not of its type") from None
        except RecursionError:
            raise MalformedMessage("the message is nested too deeply") from None
        except (JsonError, ValueError) as error:
            reason = str(error).partition("\n")[0][:_MOST_REASON]
            raise MalformedMessage(f"the message is not of its type: {reason}") from None

    async def write(self, message: Any, *, last: bool = False) -> None:
        data = await self._by_size(message.ByteSize(), lambda: self._written(message))
        if self._form.stream:
            self._ended = last
            await self._parts.write(envelope(data) + (_ENDED if last else b""), last=last)
        else:
            self._response = data

    def _written(self, message: Any) -> bytes:
        if not self._form.json:
            return message.SerializeToString()
        try:
            return MessageToJson(message, indent=None, ensure_ascii=False).encode()
        except (JsonError, ValueError) as error:
            raise InvalidToolOutput(_NOT_WRITTEN) from error

    async def _by_size(self, size: int, work: Callable[[], T]) -> T:
        if size < _INLINE_BYTES or not self._form.json:
            return work()
        return await run_in_own_thread(work, abandon_on_cancel=True)

    async def heartbeat(self) -> None:
        """Sends an empty message, where the method has one."""
        if self._ping is not None:
            await self._parts.write(envelope(b"{}" if self._form.json else self._ping.SerializeToString()))

    async def end(self) -> None:
        """Ends a response that succeeded, unless its last message has."""
        if self._ended:
            return
        if self._form.stream:
            await self._parts.write(_ENDED, last=True)
        else:
            await respond(self._send, 200, self._form.content_type, self._response or b"")

    async def fail(self, error: CallError, status: int | None = None, code: StatusCode | None = None) -> None:
        """Ends a response with an error, unless it has ended."""
        if self._ended:
            return
        if self._parts.started:
            content = to_json({"error": error_json(error, code)})
            await self._parts.write(envelope(content, END), last=True)
        else:
            await refusal(self._form, error, status, code)({}, _nothing, self._send)


async def _nothing() -> dict[str, Any]:
    return {}
