"""Converts the tools of an MCP server. Their descriptions and schemas are untrusted: limited in size, and used if
possible."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import mcp_types as types
from mcp import Client
from pydantic_core import to_json

from corral.errors import ToolDefinitionError
from corral.sources.mcp.tool_results import Unwrapping
from corral.tools import Tool, define_tool
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.json_schema.problems import cut
from corral.tools.schema import ANYTHING, OutputSchema
from corral.tools.tool import ToolSettings
from corral.types import ExecutionContext, JsonSchema

_MAX_TOOLS = 1_000
_MAX_PAGES = 100
_MAX_NAME_CHARACTERS = 128
_MAX_DESCRIPTION_CHARACTERS = 4_000
_MAX_SCHEMA_BYTES = 100_000
_MAX_ALL_SCHEMAS_BYTES = 2_000_000
"""Maximum bytes of schemas per server. Making validators for 1,900,000 bytes of plain schemas took 0.5 s."""

CallTool: TypeAlias = Callable[[str, Any, ExecutionContext], Awaitable[object]]
"""Function that calls a tool, and returns the result as `as_sent` does."""
Log: TypeAlias = Callable[[int, str], None]


async def listed_tools(client: Client, log: Log) -> list[types.Tool]:
    """Lists a server's tools, page by page, at most 1,000. Omits tools that need tasks if the server does not support
    tasks.

    Raises:
        MCPError: the server does not list them.
        ValidationError: the answer is not a list of tools.
    """
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len({tool.name for tool in tools}) > _MAX_TOOLS:
            break
    if not _has_tasks(client.server_capabilities):
        for tool in filter(needs_task, tools):
            log(logging.WARNING, f"tool {cut(tool.name)!r} is omitted: the server lacks the tasks that it needs")
        tools = [tool for tool in tools if not needs_task(tool)]
    return distinct_tools(tools, log, has_more=bool(cursor))


def needs_task(tool: types.Tool) -> bool:
    """True if a tool runs only as a task."""
    return tool.execution is not None and tool.execution.task_support == "required"


def _has_tasks(server: types.ServerCapabilities) -> bool:
    requests = server.tasks and server.tasks.requests
    return bool(requests and requests.tools and requests.tools.call is not None)


def distinct_tools(listed: Iterable[types.Tool], log: Log, *, has_more: bool = False) -> list[types.Tool]:
    """Returns the first tool of each name, at most 1,000. Logs omitted tools."""
    tools: dict[str, types.Tool] = {}
    for tool in listed:
        if tools.setdefault(tool.name, tool) is not tool:
            log(logging.WARNING, f"two tools are called {cut(tool.name)!r}; the second is omitted")
    if has_more or len(tools) > _MAX_TOOLS:
        log(logging.WARNING, f"has too many tools; only the first {min(len(tools), _MAX_TOOLS)} are offered")
    return list(tools.values())[:_MAX_TOOLS]


def made(
    listed: Iterable[types.Tool],
    *,
    owner: str,
    call: CallTool,
    settings: Callable[[types.Tool], ToolSettings],
    log: Log,
) -> Sequence[Tool]:
    """Makes tools that call `call`. Omits tools with unusable names, and loosens unusable schemas."""
    tools: list[Tool] = []
    left, without = _MAX_ALL_SCHEMAS_BYTES, 0
    for each in listed:
        size = len(to_json([each.input_schema, each.output_schema]))
        if size > left:
            tool = each.model_copy(update={"input_schema": {"type": "object"}, "output_schema": None})
            without += 1
        else:
            tool = each
            left -= size
        try:
            if len(each.name) > _MAX_NAME_CHARACTERS:
                raise ToolDefinitionError(f"its name is longer than {_MAX_NAME_CHARACTERS} characters")
            tools.append(_make_tool(tool, owner, call, settings(each), log))
        except ToolDefinitionError as error:
            log(logging.WARNING, f"tool {cut(each.name)!r} is omitted: {error}")
    if without:
        limit = f"all schemas together can have at most {_MAX_ALL_SCHEMAS_BYTES} bytes"
        them = f"{without} {'tool' if without == 1 else 'tools'}"
        log(logging.WARNING, f"the schemas of {them} are ignored: {limit}; select fewer with include")
    return tools


def _make_tool(listed: types.Tool, owner: str, call: CallTool, settings: ToolSettings, log: Log) -> Tool:
    name = listed.name
    input = _document(listed.input_schema, f"{owner}: tool {name!r}: input schema", log)
    unwrap = Unwrapping(listed.output_schema, owner=f"{owner}: {name}")
    output: OutputSchema | None = ANYTHING
    if unwrap.schema is not None:
        output = _document(unwrap.schema, f"{owner}: tool {name!r}: output schema", log)
    if output is None:
        unwrap, output = Unwrapping(None, owner=f"{owner}: {name}"), ANYTHING

    async def execute(arguments: Any, context: ExecutionContext) -> object:
        return unwrap(await call(name, arguments, context))

    description = cut(listed.description or listed.title or "", _MAX_DESCRIPTION_CHARACTERS)
    tool = define_tool(name=name, description=description, execute=execute, **settings)
    return replace(tool, input=input or _ANY_OBJECT, output=output)


def _document(schema: JsonSchema, what: str, log: Log) -> DocumentSchema | None:
    """Returns the schema, or the schema without `$schema` if only that is usable; None if neither is."""
    if (size := len(to_json(schema))) > _MAX_SCHEMA_BYTES:
        log(logging.WARNING, f"{what} is ignored: it has {size} bytes, more than {_MAX_SCHEMA_BYTES}")
        return None
    try:
        return DocumentSchema(schema, owner=what, foreign=True)
    except ToolDefinitionError as error:
        if "$schema" in schema:
            return _document({key: value for key, value in schema.items() if key != "$schema"}, what, log)
        log(logging.WARNING, f"it is ignored, as {error}")
        return None


_ANY_OBJECT = DocumentSchema({"type": "object"}, owner="MCP")
