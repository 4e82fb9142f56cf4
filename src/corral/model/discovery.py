"""`tools.search` and `tools.describe`: the tools by which a program looks through the others.

They are always there, in no registry and in no list, and see the tools of this very moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from corral.concurrency.cached_property import cached_property
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ToolNotFound
from corral.languages import LANGUAGES
from corral.model.learnt import LearntResults
from corral.model.printing.printers import comment_lines
from corral.model.shapes.descriptions import summary
from corral.model.text_cache import Form, TextCache, one_at_a_time
from corral.rendering.lists import first_few
from corral.tools import Tool, ToolCall, ToolRegistry
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.json_schema.problems import quoted
from corral.tools.schema import ANYTHING
from corral.types import ExecutionContext, JsonSchema, Language, ToolName

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
