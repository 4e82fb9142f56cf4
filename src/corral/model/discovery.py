"""`tools.search` and `tools.describe`: the tools by which a program looks through the others.

They are always there, in no registry and in no list, and see the tools of this very moment.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar
from pydantic_core import to_json

from corral.concurrency.cached_property import cached_property
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ToolNotFound
from corral.jail.workers import WorkerError, run_in_worker
from corral.languages import LANGUAGES
from corral.model.learnt import LearntResults
from corral.model.printing.printers import comment_lines, declare_in_depth, declare_short, one_line
from corral.model.printing.signatures import ToolOutline
from corral.model.shapes.descriptions import summary
from corral.rendering.lists import first_few
from corral.tools import Tool, ToolCall, ToolRegistry
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.json_schema.problems import quoted
from corral.tools.schema import ANYTHING
from corral.types import ExecutionContext, JsonSchema, Language, ToolName

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


_MOST_FOUND = 50
_FOUND_BY_DEFAULT = 10
_MOST_DESCRIBED = 20
_MOST_NAMESPACES = 20
_MAX_DEPTH = 20
"""Levels of objects in a result."""

_PREFIX = re.compile(r"(tools|codemode)\.")

_QUESTION: JsonSchema = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "namespace": {"type": ["string", "null"], "default": None},
        "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": _FOUND_BY_DEFAULT},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
    },
    "additionalProperties": False,
}
_FOUND: JsonSchema = {
    "$ref": "#/$defs/ToolsFound",
    "$defs": {
        "ToolsFound": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/ToolFound"}},
                "total": {"type": "integer"},
                "remaining": {"type": "integer"},
                "next_offset": {"type": ["integer", "null"]},
                "hint": {"type": "string"},
            },
            "required": ["items", "total", "remaining", "next_offset"],
        },
        "ToolFound": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "description": {"type": "string"},
                "signature": {"type": "string"},
            },
            "required": ["name", "description", "signature"],
        },
    },
}
_NAMES: JsonSchema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": _MOST_DESCRIBED}
_NAMED: JsonSchema = {
    "type": "object",
    "properties": {
        "name": {"anyOf": [{"type": "string"}, _NAMES]},
        "depth": {"type": "integer", "minimum": 1, "maximum": _MAX_DEPTH},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_DESCRIBED: JsonSchema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "declaration": {"type": "string"}},
    "required": ["name", "declaration"],
}


class _Input:
    """An object, whose first member may stand for it in these forms."""

    runs_code = False

    def __init__(self, schema: JsonSchema, owner: str, *first: JsonSchema) -> None:
        self.json_schema: JsonSchema | None = {"anyOf": [*first, schema]}
        self._first = next(iter(schema["properties"]))
        self._object, self._owner = schema, owner

    @cached_property
    def _schema(self) -> DocumentSchema:
        return DocumentSchema(self._object, owner=self._owner)

    def load(self, raw: object) -> object:
        return self._schema.load(cast("object", raw) if isinstance(raw, dict) else {self._first: raw})


class _Output:
    def __init__(self, declared: JsonSchema) -> None:
        self.json_schema: JsonSchema | None = declared

    def dump(self, value: object) -> object:
        return ANYTHING.dump(value)


_SEARCH_INPUT = _Input(_QUESTION, "tools.search", {"type": "string"})
_SEARCH_OUTPUT = _Output(_FOUND)
_DESCRIBE_INPUT = _Input(_NAMED, "tools.describe", {"type": "string"}, _NAMES)
_DESCRIBE_OUTPUT = _Output(_DESCRIBED)


def checked_discovery(tools: ToolRegistry, language: Language) -> Mapping[ToolName, Tool]:
    """The two as programs are checked against them. Whether `tools.describe` gives a list depends on its input, which a
    declaration cannot say."""
    found = discovery_tools(tools, language)
    name = ToolName(None, "describe")
    return {**found, name: replace(found[name], output=ANYTHING)}


def discovery_tools(
    tools: ToolRegistry, language: Language, learnt: LearntResults | None = None
) -> Mapping[ToolName, Tool]:
    """The two for programs in a language, over tools that may change at any time."""
    discovery = _Discovery(tools, language, learnt)
    found = (
        Tool(
            name="search",
            description="Finds tools by words, best first; without a query, lists them.",
            read_only=True,
            idempotent=True,
            input=_SEARCH_INPUT,
            output=_SEARCH_OUTPUT,
            function=discovery.search,
            bind=_bind,
        ),
        Tool(
            name="describe",
            description="Declares a tool of that name, its result to two levels or `depth`; of a list, gives a list.",
            read_only=True,
            idempotent=True,
            input=_DESCRIBE_INPUT,
            output=_DESCRIBE_OUTPUT,
            function=discovery.describe,
            bind=_bind,
        ),
    )
    discovery.own = MappingProxyType({ToolName(None, tool.name): tool for tool in found})
    return discovery.own


def _bind(value: Any, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
    return [call.context], value


class _Discovery:
    own: Mapping[ToolName, Tool]

    def __init__(self, tools: ToolRegistry, language: Language, learnt: LearntResults | None) -> None:
        self._tools = tools
        self._learnt = learnt
        self._language: Language = language
        self._texts = TextCache(language)

    async def search(
        self,
        context: ExecutionContext,
        query: str = "",
        namespace: str | None = None,
        limit: float = _FOUND_BY_DEFAULT,
        offset: float = 0,
    ) -> dict[str, object]:
        begin = int(offset)  # 5.0 is an integer too
        search = partial(self._tools.search, query, namespace=namespace, limit=int(limit), offset=begin)
        async with one_at_a_time(context):
            tools, total = await run_in_own_thread(search, abandon_on_cancel=True)
        end = min(begin + len(tools), total)
        found: dict[str, object] = {
            "items": [
                {
                    "name": str(name),
                    "description": summary(tool.description),
                    "signature": self._with_learnt(await self._texts.of("line", name, tool, context), tool, context),
                }
                for name, tool in tools
            ],
            "total": total,
            "remaining": total - end if tools else 0,
            "next_offset": end if tools and end < total else None,
        }
        return found if tools else {**found, "hint": self._hint(query, namespace, total)}

    async def describe(
        self, context: ExecutionContext, name: str | list[str], depth: float | None = None
    ) -> dict[str, str] | list[dict[str, str]]:
        form: Form = "usual" if depth is None else int(depth)
        if isinstance(name, str):
            return await self._described(name, form, context)
        return [await self._described_or_not(each, form, context) for each in name]

    async def _described_or_not(self, asked: str, form: Form, context: ExecutionContext) -> dict[str, str]:
        """One of several: what is unknown must not cost the others their answer."""
        try:
            return await self._described(asked, form, context)
        except ToolNotFound as error:
            return {"name": _path(asked), "declaration": comment_lines(str(error), self._language), "error": str(error)}

    async def _described(self, asked: str, form: Form, context: ExecutionContext) -> dict[str, str]:
        path = _path(asked)
        name = ToolName.parse(path)
        tool = self.own.get(name) or self._resolve(path)
        declared = await self._texts.of(form, name, tool, context)
        if told := self._told(tool, context):
            declared = comment_lines(f"Result of {name}, {told}", self._language) + declared
        return {"name": path, "declaration": declared}

    def _told(self, tool: Tool, context: ExecutionContext) -> str:
        return "" if self._learnt is None else self._learnt.told(tool, context, self._language)

    def _with_learnt(self, signature: str, tool: Tool, context: ExecutionContext) -> str:
        told = self._told(tool, context)
        return f"{signature}  {LANGUAGES[self._language].comment} {told}" if told else signature

    def _resolve(self, path: str) -> Tool:
        if path in self._tools.namespaces():
            raise ToolNotFound(f"{quoted(path)} is a namespace; {self._call(namespace=path)} lists its tools")
        return self._tools.resolve(path)

    def _hint(self, query: str, namespace: str | None, total: int) -> str:
        """Directions when there is nothing to show."""
        spaces = self._tools.namespaces()
        if not len(self._tools):
            return "there are no tools"
        if total:
            return f"there is nothing from this offset on; total is {total}"
        if namespace is not None and namespace not in spaces:
            return f"there is no namespace {quoted(namespace)}; {_listed(spaces)}"
        if namespace is not None:
            return f"nothing in {namespace} matches; leave the namespace or the query out"
        near = self._tools.near(query)
        similar = f"; names that look like it: {', '.join(near)}" if near else ""
        browse = f"{self._call(namespace=spaces[0])} lists a namespace; " if spaces else ""
        return (
            f"no tool has these words{similar}; try others; {browse}{self._call()} lists all tools; {_listed(spaces)}"
        )

    def _call(self, namespace: str | None = None) -> str:
        """A program's call of search without words."""
        if namespace is None:
            return "tools.search()"
        return f"tools.search({LANGUAGES[self._language].named_argument('namespace', quoted(namespace))})"


def _path(asked: str) -> str:
    return _PREFIX.sub("", asked, count=1) if _PREFIX.match(asked) else asked


def _listed(namespaces: tuple[str, ...]) -> str:
    if not namespaces:
        return "there are no namespaces"
    return f"namespaces: {', '.join(first_few(namespaces, _MOST_NAMESPACES))}"
