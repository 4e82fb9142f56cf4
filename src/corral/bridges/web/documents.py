"""Cache of documents that describe tools, shared by callers with the same tools."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import RunVar

from corral.calls.grants import Grant
from corral.concurrency.garbage import gc_disabled
from corral.concurrency.threads import run_in_own_thread
from corral.tools import Tool
from corral.types import ToolName

T = TypeVar("T")
_MOST_BYTES = 64_000_000
"""Maximum bytes of cached documents; the newest is kept even if it is larger."""


class DocumentCache(Generic[T]):
    """Cached documents of one protocol; `size_of` returns a document's size in bytes.

    They are created one at a time, in a thread outside the tools' pool.
    """

    def __init__(self, make: Callable[[Mapping[ToolName, Tool]], T], size_of: Callable[[T], int] = len) -> None:  # pyright: ignore[reportArgumentType]
        self._make = make
        self._size_of = size_of
        self._kept: OrderedDict[int, tuple[Mapping[ToolName, Tool], T]] = OrderedDict()
        """Documents by the identity of their tools."""
        self._bytes = 0
        self._making: RunVar[anyio.Lock] = RunVar("making")

    async def of(self, grant: Grant) -> T:
        """Returns the document of the tools that a grant's scopes allow."""
        tools = grant.tools.visible_to(grant.scopes).snapshot()
        cached = self._known(tools)
        if cached is not None:
            return cached
        try:
            lock = self._making.get()
        except LookupError:
            self._making.set(lock := anyio.Lock())
        async with lock:
            cached = self._known(tools)  # another task may have made it meanwhile
            return cached if cached is not None else self._keep(tools, await self._made(tools))

    def _known(self, tools: Mapping[ToolName, Tool]) -> T | None:
        shown, text = self._kept.get(id(tools), (None, None))
        return text if shown is tools else None

    async def _made(self, tools: Mapping[ToolName, Tool]) -> T:
        def make() -> T:
            with gc_disabled():
                return self._make(tools)

        return await run_in_own_thread(make, abandon_on_cancel=True)

    def _keep(self, tools: Mapping[ToolName, Tool], text: T) -> T:
        replaced = self._kept.pop(id(tools), None)
        self._kept[id(tools)] = tools, text
        self._bytes += self._size_of(text) - (0 if replaced is None else self._size_of(replaced[1]))
        while self._bytes > _MOST_BYTES and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= self._size_of(oldest)
        return text
