"""A Corral with a gRPC bridge in a thread, and a client that knows nothing but its address and a token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import anyio
import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from pydantic import BaseModel

from corral import Corral, Limits, ToolError, tool
from corral.calls import RemoteExecution
from corral.calls.tokens import ExecutionTokens, KeyRing
from corral.protocols.grpc.bridge import GrpcBridge
from tests.bridges.http.serving import CONTEXT, PATIENCE_SECONDS, Audited, Clock, Waiting, approve, tools

__all__ = ["Client", "GrpcServed", "endless_closed", "more_tools"]

T = TypeVar("T")
endless_closed = threading.Semaphore(0)


class Node(BaseModel):
    name: str
    weight: float | None = None
    children: list[Node] = []


@tool(namespace="trees", read_only=True)
async def grow(node: Node) -> Node:
    """Adds a leaf.

    Args:
        node: The tree.
    """
    return Node(name=node.name, weight=node.weight, children=[*node.children, Node(name="leaf")])


@tool
async def everything(
    text: str,
    whole: int,
    share: float,
    flag: bool,
    raw: bytes,
    when: datetime,
    words: list[str],
    counts: dict[str, int],
    colour: Literal["red", "blue"] = "red",
    either: int | str = 3,
    perhaps: list[int] | None = None,
    lists: list[list[int]] = [],  # noqa: B006
    open: dict[str, Any] | None = None,
    class_: int = 7,
) -> str:
    """All of its input, as Python writes it."""
    given = (text, whole, share, flag, raw, when.year, words, counts, colour, either, perhaps, lists, open, class_)
    return repr(given)


@tool
async def maybe(known: bool) -> list[str] | None:
    """An empty list, or none."""
    return [] if known else None


@tool
async def nothing() -> None:
    """Nothing."""


@tool(stream=True)
async def numbers(n: int) -> AsyncIterator[int]:
    """Counts."""
    for number in range(n):
        yield number
    if n > 5:
        raise ToolError("more than five")


@tool(stream=True)
async def wrong() -> AsyncIterator[int]:
    """Numbers, of which the second has no form in protobuf."""
    for item in 1, 2**70:
        yield item


@tool
async def large() -> int:
    """A number that has no form in protobuf."""
    return 2**70


@tool(stream=True)
async def endless() -> AsyncIterator[str]:
    """Texts without an end."""
    try:
        for number in count():
            yield f"{number}".ljust(10_000)
    finally:
        endless_closed.release()


def more_tools() -> list[Any]:
    return [*tools(), grow, everything, maybe, nothing, numbers, endless, wrong, large]


class GrpcServed:
    """The thread. What belongs to its event loop is done by `do`."""

    def __init__(self, given: Sequence[Any] | None = None) -> None:
        self.audit, self.waiting, self.clock = Audited(), Waiting(), Clock()
        self.bridge = GrpcBridge()
        tokens = ExecutionTokens(KeyRing.generate(clock=self.clock))
        given = [*more_tools(), self.waiting.tool] if given is None else given
        bridges = ["pipe", self.bridge]
        self.corral = Corral(given, bridge=bridges, audit=self.audit.log, approve=approve, tokens=tokens, check=False)
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = anyio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    async def _serve(self) -> None:
        try:
            async with self.corral:
                self._stop = anyio.Event()
                self._loop.set_result(asyncio.get_running_loop())
                await self._stop.wait()
        except BaseException as error:
            if not self._loop.done():
                self._loop.set_exception(error)
            raise

    def do(self, what: Callable[[], T]) -> T:
        async def done() -> T:
            return what()

        loop = self._loop.result(PATIENCE_SECONDS)
        return asyncio.run_coroutine_threadsafe(done(), loop).result(PATIENCE_SECONDS)

    def grant(self, **options: Any) -> RemoteExecution:
        options = {"limits": Limits(calls=1_000), **options}
        return self.do(lambda: self.corral.remote.grant(CONTEXT, **options))

    def end(self, execution: RemoteExecution) -> None:
        self.do(execution.end)

    def flush(self) -> None:
        """Waits until the audit has all events."""
        loop = self._loop.result(PATIENCE_SECONDS)
        asyncio.run_coroutine_threadsafe(self.audit.log.flush(), loop).result(PATIENCE_SECONDS)

    def document(self) -> str:
        """The `.proto` for the caller of the tests."""
        made = self.corral.remote.document(self.bridge, scopes=CONTEXT.scopes)
        return asyncio.run_coroutine_threadsafe(made, self._loop.result(PATIENCE_SECONDS)).result(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop.result(PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.do(self._stop.set)
        self._thread.join()


class _Authorized(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to the metadata of each request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def _with_token(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), ("authorization", f"Bearer {self._token}")])

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._with_token(client_call_details), request_iterator)


class Client:
    """Stubs made at run time from the server's reflection."""

    def __init__(self, address: str, token: str | None) -> None:
        self._plain = grpc.insecure_channel(address)
        self.channel: grpc.Channel = (
            self._plain if token is None else grpc.intercept_channel(self._plain, _Authorized(token))
        )
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.database)  # pyright: ignore[reportArgumentType]

    def services(self) -> list[str]:
        return sorted(self.database.get_services())

    def call(self, method: str, *, service: str = "corral.tools.Tools", **fields: Any) -> Any:
        """Calls a method; a list if it streams."""
        described = self.pool.FindServiceByName(service).methods_by_name[method]
        request, response = GetMessageClass(described.input_type), GetMessageClass(described.output_type)
        path = f"/{service}/{method}"
        make: Any = self.channel.unary_stream if described.server_streaming else self.channel.unary_unary
        answer = make(path, request.SerializeToString, response.FromString)(request(**fields), timeout=PATIENCE_SECONDS)
        return list(answer) if described.server_streaming else answer

    def unary(self, path: str) -> Any:
        """A method of bytes."""
        make: Any = self.channel.unary_unary
        return make(path)

    def stream(self, path: str) -> Any:
        make: Any = self.channel.unary_stream
        return make(path)

    def raw(self, path: str, body: bytes = b"") -> bytes:
        return self.unary(path)(body, timeout=PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._plain.close()
