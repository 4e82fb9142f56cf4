"""A client for the parts of the Language Server Protocol 3.17 that checks need.

Requests to one server are sequential and block, so they belong in a thread. Answers are untrusted, because a program
might have compromised the server: messages are bounded, and every wait has a deadline.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Mapping
from typing import Any, cast

import anyio

from corral.errors import StartFailed
from corral.jail.process import ContainedProcess

PENDING = object()
"""Marks a result that has not arrived yet."""

_MAX_MESSAGE_BYTES = 2 << 20
"""Maximum bytes of a message, because parsing one blocks the event loop. Typical answers have a few kilobytes."""
_MAX_HEADER_BYTES = 1000
_MAX_UNSENT_BYTES = 64 << 20
_MAX_SECTIONS = 100
_MAX_MESSAGES = 2000
"""Maximum number of messages in answer to one request. tsgo logs about five."""
_MAX_HEARD_BYTES = 8 << 20
"""Maximum total size of these messages."""
_HEADER_END = b"\r\n\r\n"
_CONTENT_LENGTH = b"content-length:"


class ServerLost(Exception):
    """The server exited, did not answer in time, or violated the protocol. Do not use it again."""


class LspClient:
    """Sends requests to a server and waits for each answer. Not thread-safe."""

    def __init__(self, process: ContainedProcess, settings: Mapping[str, Any]) -> None:
        self._process = process
        self._settings = dict(settings)
        """Configuration to return when the server requests it."""
        self._unsent = bytearray()
        self._received = bytearray()
        self._length: int | None = None
        """Body length of the message being received, in bytes."""
        self._number = 0
        self._heard = 0
        """Messages received since the last request."""
        self._heard_bytes = 0
        self._born = False

    async def changed(self) -> None:
        """Waits until `poll` can have something to read."""
        if self._unsent:
            await anyio.wait_writable(self._process.input)
        else:
            await anyio.wait_readable(self._process.output)

    def request(self, method: str, params: Mapping[str, Any], *, deadline: float) -> Any:
        """Sends a request and returns its result. `deadline` is a time of `time.monotonic`.

        Raises:
            ServerLost: no result will come.
        """
        return self.await_result(self.post(method, params), deadline=deadline)

    def await_result(self, number: int, *, deadline: float) -> Any:
        """Waits for the result of a posted request. Raises ServerLost as `request` does."""
        while (result := self.poll(number)) is PENDING:
            if not self._wait(deadline):
                raise ServerLost("it did not answer in time")
        return result

    def post(self, method: str, params: Mapping[str, Any]) -> int:
        """Sends as much of a request as the server accepts at once. Returns its number, for `poll`."""
        self._number += 1
        self._heard = self._heard_bytes = 0
        self._send({"id": self._number, "method": method, "params": params})
        return self._number

    def poll(self, number: int) -> Any:
        """Returns the result of a request, or PENDING. Never blocks. Raises ServerLost as `request` does."""
        while True:
            self._flush()
            message = self._message()
            self._heard += message is not None
            if self._heard > _MAX_MESSAGES or self._heard_bytes > _MAX_HEARD_BYTES:
                raise ServerLost("it sends too many messages")
            if message is None:
                if not self._read():
                    return PENDING
            elif "method" in message:
                if "id" in message:
                    self._send({"id": message["id"], "result": self._answer(message)})
            elif message.get("id") == number:
                self._process.error_tail()  # drained, so that the server never blocks on it
                if "result" not in message:
                    raise ServerLost(str(message.get("error"))[:200])
                return message["result"]

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Queues a notification, which is sent with the next request."""
        self._unsent += _encoded({"method": method, "params": params})

    def _answer(self, message: Mapping[str, Any]) -> object:
        """Answers a request of the server: with its configuration, or None."""
        if message["method"] != "workspace/configuration":
            return None
        try:
            return [self._settings for _ in message["params"]["items"][:_MAX_SECTIONS]]
        except (LookupError, TypeError) as error:
            raise ServerLost("its request for configuration is malformed") from error

    def _send(self, message: Mapping[str, Any]) -> None:
        self._unsent += _encoded(message)
        if len(self._unsent) > _MAX_UNSENT_BYTES:
            raise ServerLost("it does not read its requests")
        self._flush()

    def _flush(self) -> None:
        while self._unsent and (written := self._process.write_now(self._unsent)):
            del self._unsent[:written]

    def _message(self) -> dict[str, Any] | None:
        """Takes a message from the input; returns None if it is incomplete."""
        if self._length is None:
            self._length = self._header()
        if self._length is None or len(self._received) < self._length:
            return None
        body = bytes(self._received[: self._length])
        del self._received[: self._length]
        self._length = None
        try:
            message: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ServerLost(f"a message is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise ServerLost("a message is not an object")
        return cast("dict[str, Any]", message)

    def _header(self) -> int | None:
        """Takes a header from the input and returns the body length in bytes; returns None if it is incomplete."""
        end = self._received.find(_HEADER_END)
        if end < 0 and len(self._received) <= _MAX_HEADER_BYTES:
            return None
        header = bytes(self._received[: max(end, 0)]).lower()
        del self._received[: end + len(_HEADER_END)]
        for line in header.splitlines():
            if line.startswith(_CONTENT_LENGTH):
                digits = line.removeprefix(_CONTENT_LENGTH).strip()
                if digits.isdigit() and len(digits) < 10 and int(digits) <= _MAX_MESSAGE_BYTES:
                    return int(digits)
        raise ServerLost("a header has no length within bounds")

    def _read(self) -> bool:
        """Reads available output; returns False if there is none."""
        if not self._born:
            return False
        data = self._process.read_now()
        if data == b"":
            raise ServerLost(f"it ended: {self._process.last_words()}")
        self._received += data or b""
        self._heard_bytes += len(data or b"")
        return data is not None

    def _listen(self, seconds: float) -> bool:
        """Waits for the first output, which shows that the process has started."""
        try:
            self._received += self._process.await_output(seconds)
        except StartFailed as error:
            raise ServerLost(str(error)) from error
        self._born = True
        return True

    def _wait(self, deadline: float) -> bool:
        """Waits until there is input to read or room to send. Returns False at the deadline."""
        if not self._born and not self._unsent:
            return self._listen(max(deadline - time.monotonic(), 0))
        poll = select.poll()
        if self._born:
            poll.register(self._process.output, select.POLLIN)
        if self._unsent:
            poll.register(self._process.input, select.POLLOUT)
        return bool(poll.poll(max(deadline - time.monotonic(), 0) * 1000))


def _encoded(message: Mapping[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
