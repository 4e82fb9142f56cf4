"""`tools.search` and `tools.describe`: tools with which a program finds other tools.

They are always available, are in no registry or list, and see the current tools.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
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
"""Declaration with this many levels of the result, or a one-line signature."""

_MAX_SECOND_LEVEL = 3_000
"""Maximum characters of a declaration with the second level of a result's objects, if no depth is requested."""
_MAX_DECLARATION_CHARACTERS = 40_000
"""Maximum characters of a declaration, before it is shortened."""
_MOST_KEPT_CHARACTERS = 2_000_000
_LARGE_BYTES = 32_000
"""Bytes above which a schema is read in a worker. Reading one of this size takes up to 0.1 s."""
_SECONDS = 5.0
"""Maximum seconds of processor time for one text."""


class _TextCache:
    """Cache of the most recent texts about tools in one language."""

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._kept: OrderedDict[tuple[Form, ToolName], tuple[Tool, str]] = OrderedDict()
        self._characters = 0

    async def of(self, form: Form, name: ToolName, tool: Tool, context: ExecutionContext) -> str:
        known = self._known(form, name, tool)
        if known is not None:
            return known
        async with _one_at_a_time(context):
            known = self._known(form, name, tool)  # another waiting task may have made it
            if known is not None:
                return known
            return self._keep(form, name, tool, await self._make(form, name, tool, context))

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

    async def _make(self, form: Form, name: ToolName, tool: Tool, context: ExecutionContext) -> str:
        approval = tool.needs_approval if isinstance(tool.needs_approval, bool) else "depends"
        shape = ToolOutline.of(tool)._replace(needs_approval=approval)
        if not _is_large(shape):
            return await run_in_own_thread(make_text, form, name, shape, self._language, abandon_on_cancel=True)
        try:
            return await run_in_worker(
                make_text, form, name, shape, self._language, seconds=_SECONDS, owner=context.owner
            )
        except WorkerError:
            if form == "line":
                return f"tools.{name}"
            return comment_lines("Its schema is too large to declare.", self._language)


def make_text(form: Form, name: ToolName, shape: ToolOutline, language: Language) -> str:
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
    except ValueError:  # too deep: most of it is cut off
        return False


# --- in turns ---------------------------------------------------------------------------------------------------


_turns: RunVar[dict[tuple[str | None, str], anyio.Lock]] = RunVar("corral_turns_of_texts")


@asynccontextmanager
async def _one_at_a_time(context: ExecutionContext) -> AsyncGenerator[None]:
    """Makes an event loop do one such piece of work at a time for each user."""
    try:
        turns = _turns.get()
    except LookupError:
        _turns.set(turns := {})
    owner = context.owner
    lock = turns.setdefault(owner, anyio.Lock())
    try:
        async with lock:
            yield
    finally:
        if not lock.locked():  # nor does anyone wait
            turns.pop(owner, None)


_MOST_FOUND = 50
_FOUND_BY_DEFAULT = 10
_MOST_DESCRIBED = 20
_MOST_NAMESPACES = 20
_MAX_DEPTH = 20
"""Number of levels of objects to show in a result."""

_PREFIX = re.compile(r"(tools|codemode)\.")

QUESTION: JsonSchema = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "namespace": {"type": ["string", "null"], "default": None},
        "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": _FOUND_BY_DEFAULT},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
    },
    "additionalProperties": False,
}
"""Input of `tools.search`."""
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
NAMED: JsonSchema = {
    "type": "object",
    "properties": {
        "name": {"anyOf": [{"type": "string"}, _NAMES]},
        "depth": {"type": "integer", "minimum": 1, "maximum": _MAX_DEPTH},
    },
    "required": ["name"],
    "additionalProperties": False,
}
"""Input of `tools.describe`."""
_DESCRIBED: JsonSchema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "declaration": {"type": "string"}},
    "required": ["name", "declaration"],
}


class _Input:
    """Schema for an object, or for its first member alone in one of these forms."""

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


_SEARCH_INPUT = _Input(QUESTION, "tools.search", {"type": "string"})
_SEARCH_OUTPUT = _Output(_FOUND)
_DESCRIBE_INPUT = _Input(NAMED, "tools.describe", {"type": "string"}, _NAMES)
_DESCRIBE_OUTPUT = _Output(_DESCRIBED)


def checked_discovery(tools: ToolRegistry, language: Language) -> Mapping[ToolName, Tool]:
    """The two tools in the form in which programs are checked against them: whether `tools.describe` returns a list
    depends on its input, which a declaration cannot express."""
    discovery = discovery_tools(tools, language)
    name = ToolName(None, "describe")
    return {**discovery, name: replace(discovery[name], output=ANYTHING)}


def discovery_tools(
    tools: ToolRegistry, language: Language, learnt: LearntResults | None = None
) -> Mapping[ToolName, Tool]:
    """The two tools for programs in one language. `tools` can change at any time."""
    discovery = _Discovery(tools, language, learnt)
    both = (
        Tool(
            name="search",
            description="Finds tools by words, best first; without a query, lists all.",
            read_only=True,
            idempotent=True,
            input=_SEARCH_INPUT,
            output=_SEARCH_OUTPUT,
            function=discovery.search,
            bind=_bind,
        ),
        Tool(
            name="describe",
            description="Returns the declaration of a tool, with two result levels or `depth`; of a list, a list.",
            read_only=True,
            idempotent=True,
            input=_DESCRIBE_INPUT,
            output=_DESCRIBE_OUTPUT,
            function=discovery.describe,
            bind=_bind,
        ),
    )
    discovery.own = MappingProxyType({ToolName(None, tool.name): tool for tool in both})
    return discovery.own


def _bind(value: Any, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
    return [call.context], value


class _Discovery:
    own: Mapping[ToolName, Tool]

    def __init__(self, tools: ToolRegistry, language: Language, learnt: LearntResults | None) -> None:
        self._tools = tools
        self._learnt = learnt
        self._language: Language = language
        self._texts = _TextCache(language)

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
        async with _one_at_a_time(context):
            tools, total = await run_in_own_thread(search, abandon_on_cancel=True)
        end = min(begin + len(tools), total)
        page: dict[str, object] = {
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
        return page if tools else {**page, "hint": self._hint(query, namespace, total)}

    async def describe(
        self, context: ExecutionContext, name: str | list[str], depth: float | None = None
    ) -> dict[str, str] | list[dict[str, str]]:
        form: Form = "usual" if depth is None else int(depth)
        if isinstance(name, str):
            return await self._describe(name, form, context)
        return [await self._describe_or_explain(each, form, context) for each in name]

    async def _describe_or_explain(self, asked: str, form: Form, context: ExecutionContext) -> dict[str, str]:
        """Describes one of several tools. An unknown name must not make the whole call fail."""
        try:
            return await self._describe(asked, form, context)
        except ToolNotFound as error:
            return {"name": _path(asked), "declaration": comment_lines(str(error), self._language), "error": str(error)}

    async def _describe(self, asked: str, form: Form, context: ExecutionContext) -> dict[str, str]:
        path = _path(asked)
        name = ToolName.parse(path)
        tool = self.own.get(name) or self._resolve(path)
        declared = await self._texts.of(form, name, tool, context)
        if remark := self._result_remark(tool, context):
            declared = comment_lines(f"Result of {name}, {remark}", self._language) + declared
        return {"name": path, "declaration": declared}

    def _result_remark(self, tool: Tool, context: ExecutionContext) -> str:
        return "" if self._learnt is None else self._learnt.told(tool, context, self._language)

    def _with_learnt(self, signature: str, tool: Tool, context: ExecutionContext) -> str:
        remark = self._result_remark(tool, context)
        return f"{signature}  {LANGUAGES[self._language].comment} {remark}" if remark else signature

    def _resolve(self, path: str) -> Tool:
        if path in self._tools.namespaces():
            raise ToolNotFound(f"{quoted(path)} is a namespace; {self._call(namespace=path)} lists its tools")
        return self._tools.resolve(path)

    def _hint(self, query: str, namespace: str | None, total: int) -> str:
        """Explains an empty result and suggests the next search."""
        spaces = self._tools.namespaces()
        if not len(self._tools):
            return "there are no tools"
        if total:
            return f"nothing at this offset; total is {total}"
        if namespace is not None and namespace not in spaces:
            return f"there is no namespace {quoted(namespace)}; {_listing(spaces)}"
        if namespace is not None:
            return f"nothing in {namespace} matches; leave the namespace or the query out"
        near = self._tools.near(query)
        similar = f"; similar names: {', '.join(near)}" if near else ""
        browse = f"{self._call(namespace=spaces[0])} lists a namespace; " if spaces else ""
        return f"no tool matches these words{similar}; try others; {browse}{self._call()} lists all; {_listing(spaces)}"

    def _call(self, namespace: str | None = None) -> str:
        """Returns source code that calls search without words."""
        if namespace is None:
            return "tools.search()"
        return f"tools.search({LANGUAGES[self._language].named_argument('namespace', quoted(namespace))})"


def _path(asked: str) -> str:
    return _PREFIX.sub("", asked, count=1) if _PREFIX.match(asked) else asked


def _listing(namespaces: tuple[str, ...]) -> str:
    if not namespaces:
        return "there are no namespaces"
    return f"namespaces: {', '.join(first_few(namespaces, _MOST_NAMESPACES))}"
