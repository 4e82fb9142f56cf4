"""Tools and prompts for models."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from corral.errors import InvalidArguments, SandboxError, SessionElsewhere, ToolError
from corral.events import OnEvent
from corral.languages import LANGUAGES
from corral.logs import get_logger
from corral.model.catalog import Catalog
from corral.model.discovery import NAMED, QUESTION
from corral.rendering.lists import both, either
from corral.results import ExecutionResult
from corral.tools import Tool, ToolCall, ToolRegistry, define_tool
from corral.tools.json_schema.document_schema import PendingValidation
from corral.tools.json_schema.problems import SchemaMismatch
from corral.types import Approve, Audience, ExecutionContext, ExecutionError, JsonSchema, Language

logger = get_logger("corral")

Execute: TypeAlias = Callable[..., Awaitable[ExecutionResult]]
"""`Corral.execute`."""
Answer: TypeAlias = Callable[
    [Any, ExecutionContext, OnEvent | None, str | None, str | None], Awaitable[ExecutionResult]
]
"""Takes validated arguments, caller, `on_event`, `tool_call_id` and `execution_id`, and returns a result."""
_SKILLS_CHARS = 4_000
"""Maximum characters of all skills in the rules: about 1,000 tokens."""
_NAMES_SHOWN, _MAX_NAME_CHARACTERS = 20, 60
"""Maximum number of a session's files that are named, and maximum characters of a name. Other files are counted."""
_PLAIN_NAME = re.compile(r"\w[\w .()+@-]*/?")
"""File names that are safe in a prompt, because programs and users choose them."""
_CLIENTS: Mapping[Language, tuple[str, ...]] = {
    "typescript": ("fetch", "EventSource", "WebSocket"),
    "python": ("urllib.request",),
}
_LIBRARY: Mapping[Language, str] = {"typescript": "", "python": "the standard library"}
_ABSENT: Mapping[Language, tuple[str, ...]] = {"typescript": (), "python": ("processes",)}
"""Things that programs in each language lack."""
_PYTHON_CLIENTS = ("requests", "httpx")
"""Packages that send requests, like `urllib.request`."""
_Discovery: TypeAlias = Callable[[ExecutionContext], Mapping[str, Tool]]
"""Returns a caller's `tools.search` and `tools.describe`, by name."""

_RULES: Mapping[Language, str] = {
    "typescript": """\
Write the body of an async function: top-level `await`; `return` a small JSON value. You read that and what \
`console.log` prints, nothing else; nothing{but} carries over to the next program.
`await tools.name({ ... })`, names and fields exactly as declared. Results are parsed already (no `JSON.parse`)\
{unknown}. Together: `await Promise.all(list.map(async ...))`; in turn: `for ... of`, not `forEach`.
A failed call throws (`error.message`); where some may fail, use `Promise.allSettled` and return what failed.
""",
    "python": """\
Write a module: top-level `await`; the last expression is the result, a small JSON value. You read that and what is \
printed, nothing else; nothing{but} carries over to the next program.
`await tools.name(key=value)`, names exactly as declared; objects are dicts. Results are parsed already (no \
`json.loads`){unknown}. Together: `await asyncio.gather(*...)`.
A failed call raises; where some may fail, use `return_exceptions=True` and return what failed.
""",
}
_UNKNOWN: Mapping[Language, str] = {
    "typescript": "; `unknown` is a string or JSON: look at one before you rely on it",
    "python": "; `Any` is a string or JSON: look at one before you rely on it",
}
"""Rule for when a tool declares no output."""
_STREAMS: Mapping[Language, str] = {
    "typescript": """\
A tool that gives an AsyncIterable is a stream: `for await (const item of tools.name({ ... }))`; `break` ends it.
""",
    "python": """\
A tool that gives an AsyncIterator is a stream: `async for item in tools.name(key=value)`; `break` ends it.
""",
}
"""Rules for when a tool streams."""
_FAILURE = """\
{checked}If a program is rejected, nothing ran; if it fails, you are told which calls took effect: write only the rest.
"""

_CODE: JsonSchema = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program."}},
    "required": ["code"],
    "additionalProperties": False,
}
_REPEAT: JsonSchema = {
    "type": "boolean",
    "description": (
        "After a failed program, calls that took effect are not made again: the same call with the same input gets the "
        "recorded result, once. True makes them again."
    ),
}


def _explained(schema: JsonSchema, **descriptions: str) -> JsonSchema:
    """Adds descriptions of members."""
    members = {name: {**schema["properties"][name], "description": text} for name, text in descriptions.items()}
    return {**schema, "properties": {**schema["properties"], **members}}


_SEARCH = _explained(
    QUESTION, query="Search words. Leave out to list all tools.", namespace="Search only this namespace."
)
_DESCRIBE = _explained(
    NAMED,
    name="Name as in programs, without `tools.`; or a list of names",
    depth="Levels of objects shown in results; by default at most 2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Environment of programs, apart from their language and tools."""

    mounts: tuple[tuple[str, bool], ...] = ()
    """Directories of a session, and whether programs can write to them."""
    files: tuple[str, ...] = ()
    """Names of files and folders in the working directory."""
    packages: tuple[str, ...] = ()
    """Packages that programs can import."""
    python: str = ""
    """Version of Python, if it is not the newest."""
    standard_library: bool = True
    """False if programs in Python have only parts of the language."""
    origins: tuple[str, ...] = ()
    """Origins to which programs can send requests."""
    skills: tuple[tuple[str, str, str], ...] = ()
    """Name, description and folder of each skill."""
    calls: int | None = None
    """Maximum number of calls per program."""
    seconds: float | None = None
    """Maximum duration of a program."""
    checked: bool = False
    """True if programs are checked against the declarations before they run."""
    variables: bool = False
    """True if programs see the variables of earlier ones."""

    @classmethod
    def of(cls, several: Sequence[Surroundings]) -> Surroundings:
        """Merges several environments: everything that any of them has, and the limits of each."""
        return cls(
            mounts=tuple(dict.fromkeys(mount for each in several for mount in each.mounts)),
            files=tuple(dict.fromkeys(name for each in several for name in each.files)),
            packages=tuple(dict.fromkeys(name for each in several for name in each.packages)),
            python=min((each.python for each in several), default=""),
            standard_library=all(each.standard_library for each in several),
            origins=tuple(dict.fromkeys(origin for each in several for origin in each.origins)),
            skills=tuple(dict.fromkeys(skill for each in several for skill in each.skills)),
            calls=min((each.calls for each in several if each.calls is not None), default=None),
            seconds=min((each.seconds for each in several if each.seconds is not None), default=None),
            checked=all(each.checked for each in several),
            variables=bool(several) and all(each.variables for each in several),
        )

    def rules(self, language: Language) -> str:
        """Returns rules about the environment for a model."""
        importable = self._importable(language)
        absent = [
            *([] if importable else ["imports"]),
            *([] if self.origins else ["network"]),
            *([] if self.mounts else ["files"]),
            *_ABSENT[language],
        ]
        sentences = [
            *([f"You may import {importable}."] if importable else []),
            *([f"No {either(absent)}."] if absent else []),
            *self._limits(),
        ]
        lines = [" ".join(sentences)] if sentences else []
        if self.origins:
            clients = [*_CLIENTS[language], *(each for each in _PYTHON_CLIENTS if each in self.packages)]
            named = both([f"`{each}`" for each in clients])
            verb = "sends" if len(clients) == 1 else "send"
            lines.append(f"{named} {verb} requests to {', '.join(self.origins)} and nowhere else.")
        if self.mounts:
            places = [f"{path} ({'' if writable else 'read-only, '}by absolute path)" for path, writable in self.mounts]
            home = next((place for place, (_, writable) in enumerate(self.mounts) if writable), None)
            if home is not None:
                places[home] = f"{self.mounts[home][0]} (the working directory)"
            lines.append(f"Files stay from one program to the next: {', '.join(places)}.{self._file_names()}")
        if self.variables:
            lines.append("Top-level variables, functions, classes and imports stay from one program to the next.")
        return "".join(f"{line}\n" for line in [*lines, *self._skill_lines()])

    def _importable(self, language: Language) -> str | None:
        """Returns everything that programs can import; None if there is nothing."""
        named = [f"`{name}`" for name in self.packages]
        if library := _LIBRARY[language]:
            library = library if self.standard_library else f"some modules of {library}"
            return both([*named, f"{library} of Python {self.python}" if self.python else library])
        if not (self.mounts or named):
            return None
        files = "`fs`, " if self.mounts else ""
        return both([*named, f"parts of node such as {files}`path`, `stream` and `zlib`"])

    def _limits(self) -> list[str]:
        limits = [] if self.calls is None else [f"{self.calls} calls"]
        limits += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return [f"At most {both(limits)}."] if limits else []

    def _file_names(self) -> str:
        plain = [name for name in self.files if len(name) <= _MAX_NAME_CHARACTERS and _PLAIN_NAME.fullmatch(name)]
        shown = [f"`{name}`" for name in plain[:_NAMES_SHOWN]]
        more = len(self.files) - len(shown)
        return f" There are {both([*shown, *([f'{more} more'] if more else [])])}." if self.files else ""

    def _skill_lines(self) -> list[str]:
        """Returns a line for each skill, as many as fit."""
        if not self.skills:
            return []
        lines = [f"- {name}, {folder}: {description}" for name, description, folder in self.skills]
        shown = [line for number, line in enumerate(lines) if sum(map(len, lines[: number + 1])) <= _SKILLS_CHARS]
        more = [f"- and {len(lines) - len(shown)} more"] if len(shown) < len(lines) else []
        return ["Skills are folders with instructions, in SKILL.md, and modules to import:", *shown, *more]


_NOWHERE = Surroundings()
"""Environment with nothing but the language and tools."""


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
    """Validates the arguments. Raises ToolError."""

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
        """Returns the text for the model, also for invalid arguments and failed programs.

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
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Runs the tool and returns the result, whose status is `rejected` for invalid arguments. Ignores nulls.

        `on_event` receives the program's events, as with `Corral.execute`. `tool_call_id` is the framework's id of the
        model's tool call, for the events. With an `execution_id` the program is durable, and is continued if that
        execution is on record.

        Raises:
            StartFailed: the sandbox did not start. Only the log has the reason: frameworks show errors to models.
            SessionElsewhere: another host has the session of the context open.
            ConfigError: the Corral is closed, or runs no programs in this language.
        """
        try:
            read = self.read(_without_nulls(arguments))
            return await self.answer(read, context or ExecutionContext(), on_event, tool_call_id, execution_id)
        except ToolError as error:
            return _rejection(error, self.language)
        except SessionElsewhere:
            raise
        except SandboxError as error:
            correlation = secrets.token_hex(6)
            logger.error("a program for a model could not be run (correlation id %s): %s", correlation, error)
            raise type(error)(f"the sandbox could not be used (correlation id {correlation})") from error


class ModelOptions(Audience, total=False):
    """Options of `Corral.model.tools`. `context` is the caller to whom the catalog is shown; None means any caller."""

    name: str
    """Name of the tool that runs programs; by default `execute_code`."""
    label: str
    """Suffix of all names, as in `execute_code_sales`, for a model that has several Corrals."""
    catalog: Catalog | None
    """Catalog of the tools to use instead of a new one."""
    tools: ToolRegistry | None
    """Tools for the programs, instead of the Corral's."""
    search: bool
    """True adds `search_tools` and `describe_tools`. By default they are added unless the catalog declares all tools in
    full."""
    env: Mapping[str, str] | None
    """Environment variables of programs: `process.env`, in Python `os.environ`."""
    approve: Approve | None
    """Function that decides on calls that need approval, instead of the Corral's."""
    in_prompt: bool
    """True if the system prompt is that of `Corral.model.prompt`, so that the description needs only one sentence."""
    durable: bool
    """True makes programs durable, which needs a ledger: after a failed program, the next one of the same user and
    `session_id` does not make its changes again, but gets their recorded results, unless the model asks for it."""


def model_tools(
    execute: Execute,
    language: Language,
    catalog: Catalog,
    discovery: _Discovery,
    options: ModelOptions,
    surroundings: Surroundings = _NOWHERE,
) -> tuple[ModelTool, ...]:
    """Makes the tool that runs programs and, depending on `options`, two tools for searching."""

    async def run(
        input: dict[str, Any],
        context: ExecutionContext,
        on_event: OnEvent | None,
        tool_call_id: str | None,
        execution_id: str | None,
    ) -> ExecutionResult:
        lasting: dict[str, Any] = {"repeat": input.get("repeat", False)} if durable else {}
        if execution_id is not None:
            lasting |= {"durable": True, "execution_id": execution_id}
        return await execute(
            input["code"],
            language=language,
            context=context,
            env=env,
            hide_denied=hide_denied,
            on_event=on_event,
            tool_call_id=tool_call_id,
            approve=approve,
            **lasting,
        )

    durable = options.get("durable", False)
    hide_denied, env, approve = options.get("hide_denied"), options.get("env"), options.get("approve")
    in_prompt = options.get("in_prompt", False)
    label = options.get("label", "")
    end = f"_{label}" if label else ""
    how = ", as the system prompt says." if in_prompt else f".\n\n{_rules_and_catalog(language, surroundings, catalog)}"
    description = f"Runs a program in {LANGUAGES[language].title} that calls tools{how}{_variables(language, env)}"
    schema = {**_CODE, "properties": {**_CODE["properties"], "repeat": _REPEAT}} if durable else _CODE
    runs = _model_tool(options.get("name", "execute_code") + end, description, schema, run, language)
    searches = options.get("search", catalog.level != "full" or not catalog.complete)
    return (runs, *_search_tools(discovery, language, end)) if searches else (runs,)


def _search_tools(discovery: _Discovery, language: Language, end: str = "") -> tuple[ModelTool, ModelTool]:
    """Wraps `tools.search` and `tools.describe` as tools for the model."""

    async def ask(which: str, input: object, context: ExecutionContext) -> Any:
        tool = discovery(context)[which]
        return await tool.dump_output(await tool.execute(await tool.parse_input(input), ToolCall(context)))

    async def search(input: object, context: ExecutionContext, *_: object) -> ExecutionResult:
        return _success(_page_text(await ask("search", input, context), language), language)

    async def describe(input: object, context: ExecutionContext, *_: object) -> ExecutionResult:
        answer: object = await ask("describe", input, context)
        described = cast("list[dict[str, str]]", answer if isinstance(answer, list) else [answer])
        return _success("\n".join(each["declaration"] for each in described), language)

    return (
        _model_tool(f"search_tools{end}", "Finds tools that programs can call, best first.", _SEARCH, search, language),
        _model_tool(
            f"describe_tools{end}",
            "Returns the declarations of one or more tools that programs can call.",
            _DESCRIBE,
            describe,
            language,
        ),
    )


def system_prompt(
    base: str, language: Language, catalogs: Mapping[str, Catalog], surroundings: Surroundings = _NOWHERE
) -> str:
    """Appends to `base` the rules for programs and, by tool name, the catalog of each tool that runs programs."""
    rules = _rules(language, surroundings, *catalogs.values())
    rules = f"You call tools from programs in {LANGUAGES[language].title}.\n\n{rules}"
    shown = [
        f"Programs that `{name}` runs have these tools, and no others:\n{catalog.text.rstrip()}"
        if len(catalogs) > 1
        else catalog.text.rstrip()
        for name, catalog in catalogs.items()
    ]
    return "\n\n".join(part for part in (base.rstrip(), rules.rstrip(), *shown) if part)


def _rules_and_catalog(language: Language, surroundings: Surroundings, catalog: Catalog) -> str:
    return f"{_rules(language, surroundings, catalog)}\n{catalog.text.rstrip()}"


def _rules(language: Language, surroundings: Surroundings, *catalogs: Catalog) -> str:
    streams = _STREAMS[language] if any(catalog.has_streams for catalog in catalogs) else ""
    rules = _RULES[language].replace("{but}", " but files" if surroundings.mounts else "")
    rules = rules.replace("{unknown}", _UNKNOWN[language] if any(each.has_untyped for each in catalogs) else "")
    failure = _FAILURE.replace("{checked}", "Programs are type-checked. " if surroundings.checked else "")
    return f"{rules}{surroundings.rules(language)}{streams}{failure}"


def _variables(language: Language, env: Mapping[str, str] | None) -> str:
    return f"\n\n`{LANGUAGES[language].environment}` has {', '.join(sorted(env))}." if env else ""


def _model_tool(name: str, description: str, schema: JsonSchema, answer: Answer, language: Language) -> ModelTool:
    def signature(input: object) -> None:
        """Provides a signature. Never called."""

    tool = define_tool(name=name, input_schema=schema, execute=signature)

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
    members = cast("Mapping[object, object]", arguments)
    return {key: value for key, value in members.items() if value is not None}


def _page_text(page: dict[str, Any], language: Language) -> str:
    comment = LANGUAGES[language].comment
    lines = [
        f"{item['signature']}  {comment} {item['description']}" if item["description"] else item["signature"]
        for item in page["items"]
    ]
    if "hint" in page:
        lines.append(page["hint"])
    if page["next_offset"] is not None:
        lines.append(f"{page['remaining']} more, from offset {page['next_offset']} on")
    return "\n".join([*lines, ""])


def _success(text: str, language: Language) -> ExecutionResult:
    return ExecutionResult(execution_id="", status="succeeded", language=language, value=text)


def _rejection(error: ToolError, language: Language) -> ExecutionResult:
    shown = ExecutionError(code=error.code, name=type(error).__name__, message=str(error))
    return ExecutionResult(execution_id="", status="rejected", language=language, error=shown)
