"""Bounds on the calls and bytes in memory of one execution over HTTP."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_core import from_json

from corral.bridges.base import Receive
from corral.bridges.web.request_filter import RequestHead
from corral.calls.grants import Grant
from corral.concurrency.fairness import Capacity, owner_active
from corral.concurrency.garbage import gc_disabled
from corral.errors import CallBudgetExceeded, MalformedMessage, MessageTooLarge

MAX_CALLS = 64
"""Maximum number of calls in one request."""
_BODY_BYTES = 8_000_000
"""Maximum bytes of concurrent bodies, as received. As Python objects they can be 25 times as large."""
_LEAST_BODY_BYTES = 1_000_000
"""Maximum input bytes of a batch from a runtime, unless a single call has more."""
_BESIDE_INPUT_BYTES = 100_000
_LONG_BYTES = 10_000


def most_body_bytes(grant: Grant) -> int:
    """Returns the maximum size in bytes of a body that contains calls."""
    return max(_LEAST_BODY_BYTES, grant.limits.tool_input_bytes) + _BESIDE_INPUT_BYTES


class RequestLoad:
    """Counts the calls and bytes of one execution's requests. For a pipe, `GuestSession` sets the same bounds."""

    def __init__(self, grant: Grant) -> None:
        self._most_calls = grant.limits.calls + MAX_CALLS
        self._calls = 0
        self.room = Capacity(_BODY_BYTES)
        """Bounds the bytes of the bodies in memory."""

    def count(self, calls: int) -> int:
        """Counts calls on arrival; returns the number of the first.

        Raises:
            CallBudgetExceeded: the budget is exceeded by so much that the calls are refused without a record.
        """
        self._calls += calls
        if self._calls > self._most_calls:
            raise CallBudgetExceeded("the execution far exceeded its budget of tool calls")
        return self._calls - calls + 1


class Body:
    """Context manager that reserves memory for a body and reads it. Entering it raises the errors of `read_body`.

    `expands`: the body is compressed, so memory for `most_bytes` is reserved.
    """

    def __init__(
        self, head: RequestHead, receive: Receive, most_bytes: int, grant: Grant, *, expands: bool = False
    ) -> None:
        self._head = head
        self._receive = receive
        self._most_bytes = most_bytes
        self._size = most_bytes if head.length is None or expands else min(most_bytes, head.length)
        self._room = load_of(grant).room
        self._active = owner_active(grant.context.owner)

    async def __aenter__(self) -> bytes:
        if not self._room.try_acquire(self._size):
            await self._room.acquire(self._size)
        try:
            body = await read_body(self._head, self._receive, self._most_bytes)
        except BaseException:
            self._room.release(self._size)
            raise
        self._active.__enter__()
        return body

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._active.__exit__(None, None, None)
        self._room.release(self._size)


_load: WeakKeyDictionary[Grant, RequestLoad] = WeakKeyDictionary()


def load_of(grant: Grant) -> RequestLoad:
    """Returns the load of an execution; it lives from the first request to the end of the execution."""
    load = _load.get(grant)
    if load is None:
        load = _load[grant] = RequestLoad(grant)
    return load


async def read_body(head: RequestHead, receive: Receive, most_bytes: int) -> bytes:
    """Reads the body of a request.

    Raises:
        MessageTooLarge: the body has more than `most_bytes`; reading stops there.
        MalformedMessage: the body ends too soon.
    """
    if (head.length or 0) > most_bytes:
        raise MessageTooLarge(f"the request announces {head.length} bytes; {most_bytes} are allowed")
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedMessage("the request ended before its body was complete")
        chunk: bytes = message.get("body", b"")
        body = body + chunk if body else chunk
        if len(body) > most_bytes:
            raise MessageTooLarge(f"the request has more than {most_bytes} bytes")
        more = message.get("more_body", False)
    return body


def parse_json(body: bytes) -> Any:
    """Parses a body as JSON; an empty one is `{}`.

    Raises:
        MalformedMessage: the body is not JSON, or is nested too deeply.
    """
    try:
        if len(body) <= _LONG_BYTES:
            return from_json(body, allow_inf_nan=False) if body else {}
        with gc_disabled():
            return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedMessage("the request's body is not JSON") from error
