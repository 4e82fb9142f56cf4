"""Corral as a model meets it: the tools that it is given, and what it is told of programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, cast

from corral.declarations import Catalog
from corral.errors import ToolError
from corral.results import ExecutionResult
from corral.tools import Tool, define_tool
from corral.types import ExecutionContext, ExecutionError, JsonSchema, Language

__all__ = ["ModelOptions", "ModelTool", "model_tools", "system_prompt"]

Execute: TypeAlias = Callable[..., Awaitable[ExecutionResult]]
"""`Corral.execute`."""

_NAMES: Mapping[Language, str] = {"typescript": "TypeScript", "python": "Python"}
_RULES: Mapping[Language, str] = {
    "typescript": """\
Write the body of an async function: `await` at the top level, and `return` what you need to know, small and plain \
as JSON. Only that and what `console.log` prints come back, and nothing is kept for the next program.
Call tools as `await tools.name({ ... })`. Make independent calls at the same time, with `Promise.all`. A call that \
fails throws an Error with `code` and `message`.
There is nothing but the language and `tools`: no imports, no network, no files.
""",
    "python": """\
Write a module: `await` at the top level, and the last expression is the result: what you need to know, small and \
plain as JSON. Only that and what is printed come back, and nothing is kept for the next program.
Call tools as `await tools.name(key=value)`; objects come as dicts. Make independent calls at the same time, with \
`asyncio.gather`. A call that fails raises an exception that says why.
There are the standard library and `tools`: no network, no files, no processes.
""",
}
_FAILURE = """\
If the program fails, you get the error, its line and the calls that had succeeded, which are not undone; \
if it is rejected, nothing ran. Mend it and run it again.
"""

_CODE: JsonSchema = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program."}},
    "required": ["code"],
    "additionalProperties": False,
}
_SEARCH: JsonSchema = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words; without any, all tools are listed."},
        "namespace": {"type": "string", "description": "Only tools of this one."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
    },
    "additionalProperties": False,
}
_DESCRIBE: JsonSchema = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "As programs write it, without `tools.`"}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTool:
    """A tool of a model's own, which integrations give to it. It takes one JSON object, described by `input_schema`."""

    name: str
    description: str
    input_schema: JsonSchema
    language: Language
    """Of the programs that it runs, or finds tools for."""
    tool: Tool[..., Awaitable[ExecutionResult]] = field(repr=False)
    """What reads the arguments, and runs."""

    async def __call__(self, arguments: Mapping[str, object], context: ExecutionContext | None = None) -> str:
        """The text for the model, also where something is wrong with the arguments or the program.

        Raises:
            As `run`.
        """
        return (await self.run(arguments, context)).model_text()

    async def run(self, arguments: Mapping[str, object], context: ExecutionContext | None = None) -> ExecutionResult:
        """The result itself. Wrong arguments are a result with the status `rejected`; null is no argument.

        Raises:
            StartFailed: the sandbox did not start.
            ConfigError: the Corral is closed, or runs no programs in this language.
        """
        try:
            parsed = self.tool.parse_input(_without_nulls(arguments))
            result: Any = await self.tool.execute(parsed, context or ExecutionContext())
        except ToolError as error:
            return _refused(error, self.language)
        return result


class ModelOptions(TypedDict, total=False):
    """What may be said of the tools of a model."""

    name: str
    """Of the tool that runs programs: `execute_code`, if it is not given."""
    catalog: Catalog | None
    """What declares the host's tools, instead of a new one."""
    in_prompt: bool
    """Whether the prompt is that of `system_prompt`, so that the description needs only one sentence."""


def model_tools(
    execute: Execute, language: Language, catalog: Catalog, discovery: Mapping[str, Tool], options: ModelOptions
) -> tuple[ModelTool, ...]:
    """The tool that runs programs; and two to search with, unless the catalog declares every tool in full."""

    async def run(input: dict[str, str], context: ExecutionContext) -> ExecutionResult:
        return await execute(input["code"], language=language, context=context)

    in_prompt = options.get("in_prompt", False)
    how = ", as the system prompt says." if in_prompt else f".\n\n{_told(language, catalog)}"
    description = f"Runs a program in {_NAMES[language]} that calls tools{how}"
    runs = _model_tool(options.get("name", "execute_code"), description, _CODE, run, language)
    return (runs,) if catalog.level == "full" else (runs, *_search_tools(discovery, language))


def _search_tools(discovery: Mapping[str, Tool], language: Language) -> tuple[ModelTool, ModelTool]:
    """`tools.search` and `tools.describe` as tools of the model's own."""

    async def ask(which: str, input: object, context: ExecutionContext) -> Any:
        tool = discovery[which]
        return tool.dump_output(await tool.execute(tool.parse_input(input), context))

    async def search(input: object, context: ExecutionContext) -> ExecutionResult:
        return _answered(_found_text(await ask("search", input, context), language), language)

    async def describe(input: object, context: ExecutionContext) -> ExecutionResult:
        return _answered((await ask("describe", input, context))["declaration"], language)

    return (
        _model_tool("search_tools", "Finds tools that programs can call, best first.", _SEARCH, search, language),
        _model_tool("describe_tools", "Declares in full a tool that programs can call.", _DESCRIBE, describe, language),
    )


def system_prompt(base: str, language: Language, catalog: Catalog) -> str:
    """`base`, and all that a model is to be told of programs and tools."""
    told = f"You call tools from programs in {_NAMES[language]}.\n\n{_told(language, catalog)}"
    return f"{base.rstrip()}\n\n{told}" if base else told


def _told(language: Language, catalog: Catalog) -> str:
    return f"{_RULES[language]}{_FAILURE}\n{catalog.text.rstrip()}"


def _model_tool(
    name: str,
    description: str,
    schema: JsonSchema,
    function: Callable[[Any, ExecutionContext], Awaitable[ExecutionResult]],
    language: Language,
) -> ModelTool:
    tool = define_tool(name=name, description=description, input_schema=schema, execute=function)
    return ModelTool(name=name, description=description, input_schema=deepcopy(schema), language=language, tool=tool)


def _without_nulls(arguments: object) -> object:
    """Providers that have every argument written send null for those that a model leaves out."""
    if not isinstance(arguments, Mapping):
        return arguments
    given = cast("Mapping[object, object]", arguments)
    return {key: value for key, value in given.items() if value is not None}


def _found_text(found: dict[str, Any], language: Language) -> str:
    comment = "#" if language == "python" else "//"
    lines = [
        f"{item['signature']}  {comment} {item['description']}" if item["description"] else item["signature"]
        for item in found["items"]
    ]
    if "hint" in found:
        lines.append(found["hint"])
    if found["next_offset"] is not None:
        lines.append(f"{found['remaining']} more, from offset {found['next_offset']} on")
    return "\n".join([*lines, ""])


def _answered(text: str, language: Language) -> ExecutionResult:
    return ExecutionResult(execution_id="", status="succeeded", language=language, value=text)


def _refused(error: ToolError, language: Language) -> ExecutionResult:
    shown = ExecutionError(code=error.code, name=type(error).__name__, message=str(error))
    return ExecutionResult(execution_id="", status="rejected", language=language, error=shown, exit_code=1)
