"""The program's `tools`: each awaited call becomes a CALL, and each REPLY settles one future."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from types import CodeType
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from corral.guest.python.failures import CorralError, call_failure
from corral.guest.python.values import Encoded, TooLarge, UnencodableValue, encode

PROGRAM = "corral:program.py"
"""Name of the program's code, which identifies its frames."""
CELL = "corral:cell_"
"""Beginning of the name of a notebook's cell."""
OWN = PROGRAM, CELL
_MAX_PATH = 200
"""Maximum length of a tool's path as JSON, which has to fit in a CALL."""
_MAX_SHOWN = 50


class CallLimits(NamedTuple):
    """Limits on all calls of a program together. `plain`: inputs are written as JSON without extensions."""

    calls: float
    in_flight: float
    input_bytes: float
    plain: bool = False
    services: frozenset[str] = frozenset()  # of the host, which are not tools


class Site(NamedTuple):
    """Position of a call in the program: code, and the offset of its instruction."""

    code: CodeType
    instruction: int


class Send(Protocol):
    """Function that sends a call: its number, the tool's path as JSON, its input."""

    def __call__(self, sequence: int, path: str, input: Encoded, /) -> None: ...


class Tell(Protocol):
    """Function that sends a message about an open stream: the requested part was read, or the program stopped
    reading."""

    def __call__(self, message: Literal["credit", "cancel"], sequence: int, /) -> None: ...


class Caller(Protocol):
    """Starts calls, and keeps track of those that are not awaited yet."""

    unstarted: dict[PendingCall, None]

    def start(self, tool: str, path: str, input: object, site: Site) -> asyncio.Future[Any]:
        """Makes a call. Raises at once, before anything is sent, if the call itself is wrong."""
        ...


_STARTED = object()
BY_POSITION = {"search": "query", "describe": "name"}
"""Names of the first parameter of two of Corral's own tools, which they also take by position."""


class NotAwaited(TypeError, AttributeError):
    """A call was used as if it were the tool's result."""


class PendingCall(Coroutine[Any, Any, Any]):
    """One call, as returned by `tools.x(...)`: a coroutine, which starts when it is awaited or scheduled.

    If it returns a stream, it can be iterated without being awaited.

    Any other use is a forgotten `await`, and raises an error to that effect.
    """

    __slots__ = ("_calls", "_input", "_path", "_steps", "_stream", "number", "site", "tool")

    def __init__(self, calls: Caller, tool: str, path: str, input: object) -> None:
        self._calls = calls
        self._path = path
        self._input = input
        self._steps: Generator[Any, Any, Any] | None = None
        self._stream: ToolStream | None = None
        self.tool = tool
        self.site = _site()
        calls.unstarted[self] = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._calls.unstarted.pop(self, _STARTED) is _STARTED:
            raise RuntimeError(f"this tools.{self.tool}(...) was already awaited; call it again for another result")
        return self._calls.start(self.tool, self._path, self._input, self.site).__await__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._open() if self._stream is None else self._stream.__anext__()

    async def _open(self) -> Any:
        try:
            stream = await self
            if not isinstance(stream, ToolStream):
                raise NotAwaited(self.not_awaited)
            self._stream = stream
            first = stream.__anext__()
            del stream
        finally:
            del self  # an error's traceback would keep the stream open
        return await first

    async def aclose(self) -> None:
        """Makes the host close the tool's iterator, for `contextlib.aclosing`."""
        self.close()
        if self._stream is not None:
            await self._stream.aclose()

    def send(self, value: Any, /) -> Any:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, error: Any, /, *rest: Any) -> Any:
        if self._steps is None:
            self.close()
            raise error
        return self._steps.throw(error, *rest)

    def close(self) -> None:
        self._calls.unstarted.pop(self, None)

    @property
    def not_awaited(self) -> str:
        return f"tools.{self.tool}(...) was not awaited: write `await tools.{self.tool}(...)`"

    def _forgotten(self, *_: Any) -> NoReturn:
        raise NotAwaited(self.not_awaited)

    def __getattr__(self, name: str) -> NoReturn:
        self._forgotten()

    def __repr__(self) -> str:
        return f"<tools.{self.tool}(...), not awaited>"

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, PendingCall) else self._forgotten()

    def __bool__(self) -> bool:
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        # From Python 3.12 on, the repr of a task calls this.
        return caller.f_globals.get("__name__") == "asyncio.base_tasks" or self._forgotten()

    __hash__ = object.__hash__
    __str__ = __format__ = __len__ = __int__ = __float__ = __index__ = _forgotten
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __call__ = _forgotten
    __lt__ = __le__ = __gt__ = __ge__ = _forgotten
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _forgotten
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = _forgotten
    __or__ = __ror__ = __and__ = __rand__ = __xor__ = __rxor__ = _forgotten


PendingCall.__name__ = PendingCall.__qualname__ = "un-awaited tool call"  # as in Python's own errors


class _Misused(TypeError, AttributeError):
    """A stream was used as if it were a list."""


_Misused.__name__ = _Misused.__qualname__ = "NotAList"


class ToolStream:
    """Items that a tool yields, as they arrive. Closed when it is no longer referenced, as after a `break`."""

    __slots__ = ("_state",)

    def __init__(self, state: _Stream) -> None:
        self._state = state

    def __aiter__(self) -> ToolStream:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._state.next()

    async def aclose(self) -> None:
        """Makes the host close the tool's iterator."""
        self._state.cancel()

    def __del__(self) -> None:
        self._state.cancel()

    def _misused(self, *_: Any) -> NoReturn:
        call = f"tools.{self._state.tool}(...)"
        raise _Misused(
            f"{call} is a stream, not a list: read it with `async for item in {call}`, "
            f"or collect it with `[item async for item in {call}]`"
        )

    def __getattr__(self, name: str) -> NoReturn:
        self._misused()

    def __repr__(self) -> str:
        return f"<stream of tools.{self._state.tool}(...)>"

    __iter__ = __next__ = __len__ = __getitem__ = __contains__ = __reversed__ = __add__ = _misused


ToolStream.__name__ = ToolStream.__qualname__ = "stream"


class _Stream:
    """Open stream, as its call sees it: the items that arrived, and how far they were read."""

    __slots__ = ("_credits", "_tell", "_waiting", "ended", "failure", "items", "sequence", "tool")

    def __init__(self, tool: str, sequence: int, tell: Tell) -> None:
        self.tool = tool
        self.sequence = sequence
        self.items: deque[Any] = deque()
        self.ended = False
        self.failure: CorralError | None = None
        self._tell = tell
        self._credits: deque[int] = deque()
        """For each CREDIT that the host awaits, the number of items after it."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_read(self) -> bool:
        """True while the program waits for an item."""
        return bool(self._waiting)

    def deliver(self, items: list[Any], *, credit: bool) -> None:
        if self.ended:
            return
        self.items.extend(items)
        self._credits = deque(after + len(items) for after in self._credits)
        if credit:
            self._credits.append(0)
        self._wake()

    def end(self, failure: CorralError | None = None) -> None:
        if not self.ended:
            self.ended, self.failure = True, failure
            self._wake()

    def cancel(self) -> None:
        """Stops reading."""
        self.items.clear()
        self.failure = None
        if not self.ended:
            self.ended = True
            self._tell("cancel", self.sequence)
            self._wake()

    async def next(self) -> Any:
        """Waits for the next item.

        Raises:
            StopAsyncIteration: the stream has ended.
            CorralError: the tool failed.
        """
        while not self.items:
            if self.ended:
                failure, self.failure = self.failure, None
                if failure is not None:
                    raise failure
                raise StopAsyncIteration
            await self._wait()
        item = self.items.popleft()
        if self._credits and len(self.items) <= self._credits[0] and not self.ended:
            self._credits.popleft()
            self._tell("credit", self.sequence)
        return item

    async def _wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            self._waiting.remove(future)

    def _wake(self) -> None:
        for future in [*self._waiting]:
            _settle(future)


class Pending:
    """Call without a reply."""

    __slots__ = ("future", "sequence", "site", "stream", "tool")

    def __init__(self, tool: str, site: Site, future: asyncio.Future[Any]) -> None:
        self.tool = tool
        self.site = site
        self.future = future
        self.sequence = 0
        """Number among the calls that were sent; 0 before it is sent."""
        self.stream: _Stream | None = None
        """Stream of the call, once it is open."""

    @property
    def expected(self) -> bool:
        """True while the program may be waiting for the reply, or for an item."""
        return not self.future.cancelled() if self.stream is None else self.stream.is_read


class Calls:
    """All calls of a program, by number."""

    def __init__(self, send: Send, tell: Tell, limits: CallLimits) -> None:
        self._send = send
        self._tell = tell
        self.limits = limits
        self._made = 0
        self._sequence = 0
        self._waiting: deque[tuple[Pending, str, Encoded]] = deque()
        self.unstarted: dict[PendingCall, None] = {}
        """Calls not awaited yet."""
        self.sent: dict[int, Pending] = {}
        """Calls that were sent, and have no reply yet."""
        self.replaced = False
        """True if lone surrogates in an input were replaced."""
        self.late: list[Pending] | None = None
        """Number of calls made by the time the program had its value; None before that."""
        self._closed = False
        self._turn = threading.Lock()
        """Held while a call is sent or ends: threads of the program can call tools too."""
        self._cell: ContextVar[int | None] = ContextVar("cell", default=None)
        """The cell that has started a task; None in threads."""
        self._number = 0
        self._old_threads = False

    def begin(self, limits: CallLimits, cell: int, *, old_threads: bool) -> None:
        """Begins the calls of a program. `old_threads`: threads of earlier cells may still run."""
        self.limits = limits
        self._number, self._old_threads = cell, old_threads
        self._cell.set(cell)
        self._made = self._sequence = 0
        self.unstarted.clear()
        self.replaced, self.late, self._closed = False, None, False

    def end(self) -> None:
        """Ends the calls of a cell. Nothing can wait for them in a later one."""
        self.close()
        for pending in [*self.sent.values()]:
            pending.future.cancel()
            if pending.stream is not None:
                pending.stream.end(call_failure("cancelled", "ExecutionCancelled", "the cell that read it has ended"))
        self.sent.clear()

    @property
    def _is_left_behind(self) -> bool:
        """True for a caller that an earlier cell has started."""
        cell = self._cell.get()
        return self._old_threads if cell is None else cell != self._number

    def close(self) -> None:
        """Stops sending calls, because the program has ended. Only calls already sent are awaited."""
        self._closed = True
        self._waiting.clear()

    @property
    def pending(self) -> list[Pending]:
        """Returns the calls without a reply, whether already sent or waiting for their turn."""
        return [*self.sent.values(), *(pending for pending, _, _ in self._waiting)]

    def start(self, tool: str, path: str, input: object, site: Site) -> asyncio.Future[Any]:
        """Makes a call; `path` is the tool's path as JSON. Raises before it is sent if the call itself is wrong."""
        if tool in self.limits.services:
            return self.service(tool, input, site)
        self._made += 1
        if len(path) - 2 > _MAX_PATH or not tool.isprintable():
            raise call_failure("tool_not_found", "ToolNotFound", f"no tool {path[:_MAX_SHOWN]}")
        if self._made > self.limits.calls:
            shown = f"{self.limits.calls:.0f} tool call{'' if self.limits.calls == 1 else 's'}"
            message = f"the budget of {shown} is used up, so tools.{tool} was not called"
            raise call_failure("call_budget_exceeded", "CallBudgetExceeded", message)
        return self._submit(f"tools.{tool}", tool, path, input, site, None)

    def service(self, name: str, input: object, site: Site | None = None, loop: Any = None) -> asyncio.Future[Any]:
        """Calls a service of the host. This does not count as a tool call."""
        return self._submit(name, name, json.dumps(name), input, site or _site(), loop)

    def _submit(self, shown: str, tool: str, path: str, input: object, site: Site, loop: Any) -> asyncio.Future[Any]:
        if self._closed or self._is_left_behind:
            message = f"{shown[: _MAX_SHOWN + 6]} was not called: the program had ended"
            raise call_failure("cancelled", "ExecutionCancelled", message)
        try:
            encoded = encode(input, "input", self.limits.input_bytes, plain=self.limits.plain)
        except TooLarge as error:
            raise call_failure("message_too_large", "MessageTooLarge", f"{shown}: {error}") from None
        except UnencodableValue as error:
            raise call_failure("invalid_arguments", "InvalidArguments", f"{shown}: {error}") from None
        self.replaced |= encoded.replaced
        future = (loop or asyncio.get_running_loop()).create_future()
        pending = Pending(tool, site, future)
        if self.late is not None:
            self.late.append(pending)
        with self._turn:
            if len(self.sent) < self.limits.in_flight:
                self._leave(pending, path, encoded)
            else:
                self._waiting.append((pending, path, encoded))
        return future

    @property
    def made(self) -> int:
        """Number of calls and timers that were sent."""
        return self._sequence

    def timer(self, service: str, input: Encoded) -> int:
        """Sends the call of a timer in a durable execution, and returns its number."""
        self._sequence += 1
        self._send(self._sequence, f'"{service}"', input)
        return self._sequence

    def settle(self, sequence: int, value: Any) -> None:
        """Settles a call with its result, or ends its stream."""
        if (pending := self._ended(sequence)) is None:
            return
        if pending.stream is not None:
            pending.stream.end()
        else:
            _settle(pending.future, value)

    def deliver(self, sequence: int, items: list[Any], credit: bool = False) -> None:
        """Delivers items of a call's stream. The first ones settle its future."""
        pending = self.sent.get(sequence)
        if pending is None:
            return
        if pending.stream is None:
            pending.stream = _Stream(pending.tool, sequence, self._tell)
            opened, pending.future = pending.future, pending.future.get_loop().create_future()
            pending.future.cancel()  # only the program holds a reference to the stream, so that dropping it closes it
            if opened.done():
                pending.stream.cancel()
            else:
                _settle(opened, ToolStream(pending.stream))
        pending.stream.deliver(items, credit=credit)

    def fail(self, sequence: int, code: str, name: str, message: str, retry_after_seconds: float | None = None) -> None:
        """Settles a call with an error."""
        if (pending := self._ended(sequence)) is None:
            return
        failure = call_failure(code, name, message, retry_after_seconds)
        if pending.stream is not None:
            pending.stream.end(failure)
        else:
            _settle(pending.future, error=failure)

    def _ended(self, sequence: int) -> Pending | None:
        with self._turn:
            ended = self.sent.pop(sequence, None)
            while ended and self._waiting and len(self.sent) < self.limits.in_flight:
                pending, path, input = self._waiting.popleft()
                if not pending.future.cancelled():  # otherwise nothing waits for it any more
                    self._leave(pending, path, input)
        return ended

    def _leave(self, pending: Pending, path: str, input: Encoded) -> None:
        self._sequence = pending.sequence = sequence = self._sequence + 1
        self.sent[sequence] = pending
        self._send(sequence, path, input)


class Tools:
    """`tools`, or one of its namespaces. Unknown names can also be called, because the host suggests similar ones."""

    def __init__(self, calls: Caller, names: tuple[str, ...] = (), prefix: str = "") -> None:
        members = self.__dict__
        nested: dict[str, list[str]] = {}
        for name in names:
            namespace, dot, rest = name.partition(".")
            if dot:
                nested.setdefault(namespace, []).append(rest)
            else:
                members[name] = _tool(calls, f"{prefix}{name}")
        for namespace, rest in nested.items():
            members[namespace] = Tools(calls, tuple(rest), f"{prefix}{namespace}.")
        members["_answer"] = lambda name: _Unknown(calls, f"{prefix}{name}")  # pyright: ignore[reportUnknownLambdaType]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__["_answer"](name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"tools.{name} cannot be set")

    def __dir__(self) -> list[str]:
        return sorted(name for name in self.__dict__ if name != "_answer")

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dir__())

    def __contains__(self, name: object) -> bool:
        return name in self.__dir__()

    def __repr__(self) -> str:
        return f"<tools: {', '.join(self)}>"


class _Unknown:
    """Tool or namespace that the host did not announce."""

    def __init__(self, calls: Caller, path: str) -> None:
        self._calls = calls
        self._path = path

    def __call__(self, *arguments: Any, **members: Any) -> PendingCall:
        return _tool(self._calls, self._path)(*arguments, **members)

    def __getattr__(self, name: str) -> _Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unknown(self._calls, f"{self._path}.{name}")

    def __repr__(self) -> str:
        return f"<tools.{self._path}>"


def _tool(calls: Caller, path: str) -> Callable[..., PendingCall]:
    quoted = json.dumps(path, ensure_ascii=False)

    def tool(*arguments: Any, **members: Any) -> PendingCall:
        if path in BY_POSITION and len(arguments) == 1 and members:
            members, arguments = {BY_POSITION[path]: arguments[0], **members}, ()
        if not arguments:
            return PendingCall(calls, path, quoted, members)
        if members or len(arguments) > 1:
            message = f"tools.{path} takes keyword arguments, or its whole input as the only argument"
            raise call_failure("invalid_arguments", "InvalidArguments", message)
        return PendingCall(calls, path, quoted, *arguments)

    tool.__name__ = tool.__qualname__ = path
    return tool


def _site() -> Site:
    """Returns the position in the program of the current call or, in a callback, of any caller."""
    frame = called = sys._getframe(3)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if frame.f_code is _Unknown.__call__.__code__ and frame.f_back is not None:
        frame = frame.f_back
    while not called.f_code.co_filename.startswith(OWN) and called.f_back is not None:
        called = called.f_back
    frame = called if called.f_code.co_filename.startswith(OWN) else frame
    return Site(frame.f_code, frame.f_lasti)


def _settle(future: asyncio.Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Settles a future unless it is done. If its loop may run in another thread, settles it there."""
    loop, running = future.get_loop(), asyncio.events._get_running_loop()  # noqa: SLF001
    if running is None or running is loop:
        _end(future, value, error)
    else:
        with suppress(RuntimeError):  # the loop was closed, so nothing waits
            loop.call_soon_threadsafe(_end, future, value, error)


def _end(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
