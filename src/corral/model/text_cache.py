"""Texts of single tools, made on first use and cached.

What a text costs is for its schema to say, and that may be anybody's. So it is made in a thread or, of a large schema,
in a worker, and for each user one text at a time; when nobody waits for it any more, it is not made to its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import anyio
from anyio.lowlevel import RunVar
from pydantic_core import to_json

from corral.concurrency.threads import run_in_own_thread
from corral.jail.workers import WorkerError, run_in_worker
from corral.model.printing.printers import comment_lines, declare_in_depth, declare_short, one_line
from corral.model.printing.signatures import ToolOutline
from corral.tools import Tool
from corral.types import ExecutionContext, Language, ToolName

T = TypeVar("T")

Form: TypeAlias = Literal["usual", "line"] | int
"""A declaration, with so many levels of the result; or how a tool is called, in one line."""

_MAX_SECOND_LEVEL = 3_000
"""Characters of the second level of objects in a result, if no depth is asked for; it is left out if it has more."""
_MAX_DECLARATION_CHARACTERS = 40_000
"""A longer declaration is made short."""
_MOST_KEPT_CHARACTERS = 2_000_000
_LARGE_BYTES = 32_000
"""Schemas of more bytes are read in a worker; one of so many takes up to a tenth of a second."""
_SECONDS = 5.0
"""Of processor time, for one text."""


class TextCache:
    """The texts of tools in one language; the last ones are kept."""

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._kept: OrderedDict[tuple[Form, ToolName], tuple[Tool, str]] = OrderedDict()
        self._characters = 0

    async def of(self, form: Form, name: ToolName, tool: Tool, context: ExecutionContext) -> str:
        known = self._known(form, name, tool)
        if known is not None:
            return known
        async with one_at_a_time(context):
            known = self._known(form, name, tool)  # others may have waited for it too
            return (
                known
                if known is not None
                else self._keep(form, name, tool, await self._made(form, name, tool, context))
            )

    def _known(self, form: Form, name: ToolName, tool: Tool) -> str | None:
        made_of, text = self._kept.get((form, name), (None, ""))
        return text if made_of is tool else None

    def _keep(self, form: Form, name: ToolName, tool: Tool, text: str) -> str:
        _, before = self._kept.pop((form, name), (None, ""))
        self._kept[form, name] = tool, text
        self._characters += len(text) - len(before)
        while self._characters > _MOST_KEPT_CHARACTERS:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._characters -= len(oldest)
        return text

    async def _made(self, form: Form, name: ToolName, tool: Tool, context: ExecutionContext) -> str:
        approval = tool.needs_approval if isinstance(tool.needs_approval, bool) else "depends"
        shape = ToolOutline(
            tool.description,
            tool.input_schema,
            tool.output_schema,
            approval,
            tool.stream,
            tool.rate_limit,
            tool.returns_bytes,
        )
        if not _is_large(shape):
            return await run_in_own_thread(make_text, form, name, shape, self._language, abandon_on_cancel=True)
        try:
            return await run_in_worker(
                make_text, form, name, shape, self._language, seconds=_SECONDS, tenant=context.trust_domain
            )
        except WorkerError:
            if form == "line":
                return f"tools.{name}"
            return comment_lines("Its schema is too large to be declared.", self._language)


def make_text(form: Form, name: ToolName, shape: ToolOutline, language: Language) -> str:
    """The text of a tool, made here and now."""
    if form == "line":
        return one_line(name, shape, language)
    text = declare_in_depth(name, shape, language, 2 if form == "usual" else form)
    if form == "usual" and len(text) > _MAX_SECOND_LEVEL:
        less = declare_in_depth(name, shape, language, 1)
        text = less if len(text) - len(less) > _MAX_SECOND_LEVEL else text
    if len(text) <= _MAX_DECLARATION_CHARACTERS:
        return text
    remark = f"Shortened: the whole declaration has {len(text)} characters."
    return comment_lines(remark, language) + declare_short({name: shape}, language)


def _is_large(shape: ToolOutline) -> bool:
    try:
        return len(to_json((shape.description, shape.input_schema, shape.output_schema))) > _LARGE_BYTES
    except ValueError:  # nested so deeply that most of it is cut off
        return False


# --- in turns ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Turn:
    lock: anyio.Lock
    users: int = 0


_turns: RunVar[dict[tuple[str | None, str], _Turn]] = RunVar("corral_turns_of_texts")


@asynccontextmanager
async def one_at_a_time(context: ExecutionContext) -> AsyncGenerator[None]:
    """A block in which an event loop does one thing at a time for a user."""
    try:
        turns = _turns.get()
    except LookupError:
        _turns.set(turns := {})
    tenant = context.trust_domain
    turn = turns.setdefault(tenant, _Turn(anyio.Lock()))
    turn.users += 1
    try:
        async with turn.lock:
            yield
    finally:
        turn.users -= 1
        if not turn.users:
            del turns[tenant]
