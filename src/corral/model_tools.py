"""Tools and prompts for models."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from corral.bridges import Approve
from corral.declarations import Catalog
from corral.errors import InvalidArguments, SandboxError, ToolError
from corral.events import OnEvent
from corral.json_schema.document_schema import PendingValidation
from corral.json_schema.problems import SchemaMismatch
from corral.languages import LANGUAGES
from corral.logs import get_logger
from corral.results import ExecutionResult
from corral.tools import Tool, ToolCall, ToolRegistry, define_tool
from corral.types import Audience, ExecutionContext, ExecutionError, JsonSchema, Language

__all__ = ["NOWHERE", "ModelOptions", "ModelTool", "Surroundings", "model_tools", "system_prompt"]

logger = get_logger("corral")

Execute: TypeAlias = Callable[..., Awaitable[ExecutionResult]]
"""`Corral.execute`."""
Answer: TypeAlias = Callable[[Any, ExecutionContext, OnEvent | None, str | None], Awaitable[ExecutionResult]]
"""Function from validated arguments, caller, `on_event` and `tool_call_id` to a result."""
_NOTHING: Mapping[Language, str] = {
    "typescript": "There is nothing but the language and `tools`: no imports, no network, no files.\n",
    "python": "The standard library is there to import; no network, files or processes.\n",
}
_SKILLS_CHARS = 4_000
"""Characters of all skills in the rules: about 1,000 tokens."""
_ONLY_NETWORK: Mapping[Language, str] = {
    "typescript": "There are no imports and no files.",
    "python": "The standard library is there to import; no files or processes.",
}
_CLIENTS: Mapping[Language, str] = {
    "typescript": "`fetch`, `EventSource` and `WebSocket`",
    "python": "`urllib`, and `requests` and `httpx` where they are installed,",
}
_IMPORTS: Mapping[Language, str] = {
    "typescript": "Programs may import {packages}parts of node such as {files}`path`, `stream` and `zlib`",
    "python": "Programs may import {packages}the standard library",
}
Discovery: TypeAlias = Callable[[ExecutionContext], Mapping[str, Tool]]
"""Function from a caller to its `tools.search` and `tools.describe`, by name."""

_RULES: Mapping[Language, str] = {
    "typescript": """\
Write the body of an async function: `await` at the top level, and `return` what you need to know, small and plain \
as JSON. Only that and what `console.log` prints come back. Programs share nothing{but}: return what the next \
one needs, such as ids, and write it there.
Call tools as `await tools.name({ ... })`. Make independent calls together, with `Promise.all`. A call that \
fails throws an Error with `code` and `message`.
""",
    "python": """\
Write a module: `await` at the top level, and the last expression is the result: what you need to know, small and \
plain as JSON. Only that and what is printed come back. Programs share nothing{but}: return what the next \
one needs, such as ids, and write it there.
Call tools as `await tools.name(key=value)`; objects come as dicts. Make independent calls together, with \
`asyncio.gather`. A call that fails raises an exception that says why.
""",
}
_STREAMS: Mapping[Language, str] = {
    "typescript": """\
A tool that gives an AsyncIterable is a stream: `for await (const item of tools.name({ ... }))`; `break` ends it.
""",
    "python": """\
A tool that gives an AsyncIterator is a stream: `async for item in tools.name(key=value)`; `break` ends it.
""",
}
"""Rules where a tool streams."""
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
    "properties": {
        "name": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 20}],
            "description": "As programs write it, without `tools.`; or several of them",
        },
        "depth": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "Levels of objects shown of results; by default at most 2",
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Things that programs have besides the language and their tools."""

    mounts: tuple[tuple[str, bool], ...] = ()
    """Directories of a session, and if programs may change them."""
    packages: tuple[str, ...] = ()
    """Packages that they may import."""
    origins: tuple[str, ...] = ()
    """Origins that they may send requests to."""
    skills: tuple[tuple[str, str, str], ...] = ()
    """Name, description and folder of each skill."""

    @classmethod
    def of(cls, several: Sequence[Surroundings]) -> Surroundings:
        """Things that one of several has."""
        return cls(
            mounts=tuple(dict.fromkeys(mount for each in several for mount in each.mounts)),
            packages=tuple(dict.fromkeys(name for each in several for name in each.packages)),
            origins=tuple(dict.fromkeys(origin for each in several for origin in each.origins)),
            skills=tuple(dict.fromkeys(skill for each in several for skill in each.skills)),
        )

    def told(self, language: Language) -> str:
        """Rules about them for a model."""
        packages = self.packages
        if not (self.mounts or packages or self.origins or self.skills):
            return _NOTHING[language]
        named = ", ".join([*map("`{}`".format, packages), ""]) + ("and " if packages else "")
        imports = _IMPORTS[language].format(packages=named, files="`fs`, " if self.mounts else "")
        network = "There is no network."
        if self.origins:
            network = f"{_CLIENTS[language]} send requests to {', '.join(self.origins)} and nowhere else."
        lines = [f"{imports}. {network}"]
        if not (self.mounts or packages):
            lines = [network, _ONLY_NETWORK[language]]
        if self.mounts:
            places = [f"{path} ({'' if writable else 'read-only, '}by absolute path)" for path, writable in self.mounts]
            home = next((place for place, (_, writable) in enumerate(self.mounts) if writable), None)
            if home is not None:
                places[home] = f"{self.mounts[home][0]} (the working directory)"
            lines.append(f"Files stay from one program to the next: {', '.join(places)}.")
        return "".join(f"{line}\n" for line in [*lines, *self._skills_told()])

    def _skills_told(self) -> list[str]:
        """A line for each skill, as far as there is room for them."""
        if not self.skills:
            return []
        lines = [f"- {name}, {folder}: {description}" for name, description, folder in self.skills]
        shown = [line for number, line in enumerate(lines) if sum(map(len, lines[: number + 1])) <= _SKILLS_CHARS]
        more = [f"- and {len(lines) - len(shown)} more"] if len(shown) < len(lines) else []
        return ["Skills are folders with instructions, in SKILL.md, and modules to import:", *shown, *more]


NOWHERE = Surroundings()
"""Nothing but the language and tools."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ModelTool:
    """Tool for a model, which an integration passes to its framework. It takes one object, as in `input_schema`."""

    name: str
    description: str
    input_schema: JsonSchema
    language: Language
    """Language of its programs."""
    answer: Answer = field(repr=False)
    read: Callable[[object], Any] = field(repr=False)
    """Validates arguments. Raises ToolError."""

    def __repr__(self) -> str:
        return f"<ModelTool {self.name}, {LANGUAGES[self.language].title}>"

    async def __call__(
        self,
        arguments: Mapping[str, object],
        context: ExecutionContext | None = None,
        *,
        on_event: OnEvent | None = None,
        tool_call_id: str | None = None,
    ) -> str:
        """Returns the text for the model, also if the arguments or the program are wrong.

        Raises:
            As `run`.
        """
        return (await self.run(arguments, context, on_event=on_event, tool_call_id=tool_call_id)).model_text()

    async def run(
        self,
        arguments: Mapping[str, object],
        context: ExecutionContext | None = None,
        *,
        on_event: OnEvent | None = None,
        tool_call_id: str | None = None,
    ) -> ExecutionResult:
        """Runs the tool and returns the result; for wrong arguments its status is `rejected`. Nulls are ignored.

        `on_event` receives the program's events, as with `Corral.execute`. `tool_call_id` is the framework's id of the
        model's tool call, for the events.

        Raises:
            StartFailed: the sandbox did not start. Only the log has the reason: frameworks show errors to models.
            ConfigError: the Corral is closed, or runs no programs in this language.
        """
        try:
            read = self.read(_without_nulls(arguments))
            return await self.answer(read, context or ExecutionContext(), on_event, tool_call_id)
        except ToolError as error:
            return _refused(error, self.language)
        except SandboxError as error:
            correlation = secrets.token_hex(6)
            logger.error("a program for a model could not be run (correlation id %s): %s", correlation, error)
            raise type(error)(f"the sandbox could not be used (correlation id {correlation})") from error


class ModelOptions(Audience, total=False):
    """Options of `Corral.model_tools`. `context` is the caller of the catalog, if none is given."""

    name: str
    """Name of the tool that runs programs; by default `execute_code`."""
    label: str
    """Suffix of all names, as in `execute_code_sales`, for a model with several Corrals."""
    catalog: Catalog | None
    """Catalog of the tools, instead of a new one."""
    tools: ToolRegistry | None
    """Tools of the programs, instead of the Corral's."""
    search: bool
    """True adds `search_tools` and `describe_tools`; by default, unless the catalog declares all tools in full."""
    env: Mapping[str, str] | None
    """Environment of programs: `process.env`, in Python `os.environ`."""
    approve: Approve | None
    """Decides on calls that need an approval, in place of the Corral's function."""
    in_prompt: bool
    """True if the prompt is that of `system_prompt`, so that the description needs only one sentence."""


def model_tools(
    execute: Execute,
    language: Language,
    catalog: Catalog,
    discovery: Discovery,
    options: ModelOptions,
    surroundings: Surroundings = NOWHERE,
) -> tuple[ModelTool, ...]:
    """Makes the tool that runs programs; and, by `options`, two search tools."""

    async def run(
        input: dict[str, str], context: ExecutionContext, on_event: OnEvent | None, tool_call_id: str | None
    ) -> ExecutionResult:
        return await execute(
            input["code"],
            language=language,
            context=context,
            env=env,
            hide_denied=hide_denied,
            on_event=on_event,
            tool_call_id=tool_call_id,
            approve=approve,
        )

    hide_denied, env, approve = options.get("hide_denied"), options.get("env"), options.get("approve")
    in_prompt = options.get("in_prompt", False)
    label = options.get("label", "")
    end = f"_{label}" if label else ""
    how = ", as the system prompt says." if in_prompt else f".\n\n{_told(language, surroundings, catalog)}"
    description = f"Runs a program in {LANGUAGES[language].title} that calls tools{how}{_told_of_env(language, env)}"
    runs = _model_tool(options.get("name", "execute_code") + end, description, _CODE, run, language)
    searches = options.get("search", catalog.level != "full" or not catalog.complete)
    return (runs, *_search_tools(discovery, language, end)) if searches else (runs,)


def _search_tools(discovery: Discovery, language: Language, end: str = "") -> tuple[ModelTool, ModelTool]:
    """Wraps `tools.search` and `tools.describe` as tools for the model."""

    async def ask(which: str, input: object, context: ExecutionContext) -> Any:
        tool = discovery(context)[which]
        return await tool.dump_output(await tool.execute(await tool.parse_input(input), ToolCall(context)))

    async def search(input: object, context: ExecutionContext, *_: object) -> ExecutionResult:
        return _answered(_found_text(await ask("search", input, context), language), language)

    async def describe(input: object, context: ExecutionContext, *_: object) -> ExecutionResult:
        found: object = await ask("describe", input, context)
        described = cast("list[dict[str, str]]", found if isinstance(found, list) else [found])
        return _answered("\n".join(each["declaration"] for each in described), language)

    return (
        _model_tool(f"search_tools{end}", "Finds tools that programs can call, best first.", _SEARCH, search, language),
        _model_tool(
            f"describe_tools{end}",
            "Declares a tool that programs can call, or several.",
            _DESCRIBE,
            describe,
            language,
        ),
    )


def system_prompt(
    base: str, language: Language, catalogs: Mapping[str, Catalog], surroundings: Surroundings = NOWHERE
) -> str:
    """Appends to `base` the rules for programs, and the catalog of each tool that runs programs, by its name."""
    rules = _rules(language, surroundings, *catalogs.values())
    rules = f"You call tools from programs in {LANGUAGES[language].title}.\n\n{rules}"
    shown = [
        f"Programs that `{name}` runs have these tools, and no others:\n{catalog.text.rstrip()}"
        if len(catalogs) > 1
        else catalog.text.rstrip()
        for name, catalog in catalogs.items()
    ]
    return "\n\n".join(part for part in (base.rstrip(), rules.rstrip(), *shown) if part)


def _told(language: Language, surroundings: Surroundings, catalog: Catalog) -> str:
    return f"{_rules(language, surroundings, catalog)}\n{catalog.text.rstrip()}"


def _rules(language: Language, surroundings: Surroundings, *catalogs: Catalog) -> str:
    streams = _STREAMS[language] if any(catalog.has_streams for catalog in catalogs) else ""
    rules = _RULES[language].replace("{but}", " but files" if surroundings.mounts else "")
    return f"{rules}{surroundings.told(language)}{streams}{_FAILURE}"


def _told_of_env(language: Language, env: Mapping[str, str] | None) -> str:
    return f"\n\n`{LANGUAGES[language].environment}` has {', '.join(sorted(env))}." if env else ""


def _model_tool(name: str, description: str, schema: JsonSchema, answer: Answer, language: Language) -> ModelTool:
    def called(input: object) -> None:
        """Never called: only its signature is used."""

    tool = define_tool(name=name, input_schema=schema, execute=called)

    def read(arguments: object) -> Any:
        try:
            value: object = tool.input.load(arguments)
        except SchemaMismatch as mismatch:
            raise tool.refused(arguments, mismatch) from mismatch
        if type(value) is PendingValidation:
            raise InvalidArguments(f'tool "{name}": the arguments are too large')
        return value

    return ModelTool(
        name=name,
        description=description,
        input_schema=deepcopy(schema),
        language=language,
        answer=answer,
        read=read,
    )


def _without_nulls(arguments: object) -> object:
    """Drops null arguments: some providers make a model write every argument, and send null for omitted ones."""
    if not isinstance(arguments, Mapping):
        return arguments
    given = cast("Mapping[object, object]", arguments)
    return {key: value for key, value in given.items() if value is not None}


def _found_text(found: dict[str, Any], language: Language) -> str:
    comment = LANGUAGES[language].comment
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
