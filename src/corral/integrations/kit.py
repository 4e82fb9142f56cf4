"""Prompt and tools of a Corral, from which each framework's module makes its own objects."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import from_json, to_json
from typing_extensions import Unpack

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, ExecutionResult, Tool
from corral.concurrency.lifecycle import may_stay_open
from corral.concurrency.ref_counted import RefCounted
from corral.errors import AccessDenied, ConfigError, InvalidArguments, ToolDefinitionError
from corral.events import OnEvent
from corral.logs import get_logger
from corral.model import Catalog, ModelTool
from corral.model.model_tools import Surroundings, system_prompt
from corral.rendering.images import Picture
from corral.rendering.preview import json_text, preview_json, preview_text
from corral.sessions.shell import Shell, use_shell
from corral.tools import ToolRegistry, ToolSource
from corral.types import TRANSCRIPT, Approve, Language, Retry, Transcript

T = TypeVar("T")
B = TypeVar("B")
P = ParamSpec("P")

logger = get_logger("corral.tools")

Corrals: TypeAlias = Corral | Mapping[str, Corral]
"""One Corral, or several by name. The name becomes a suffix of their tools: {"sales": ...} makes
`execute_code_sales`."""

Context: TypeAlias = ExecutionContext | Callable[P, ExecutionContext] | None
"""Caller of programs, or a function that returns it for the framework's call."""

ShellChoice: TypeAlias = Shell | Callable[[], AbstractAsyncContextManager[Shell]]
"""Shell for each call: an open one, or a function that opens one, which is closed after the call."""

Asked: TypeAlias = Callable[P, Iterable[str]] | None
"""Function that returns the texts that persons wrote in the conversation of the framework's call."""

DescribeShell: TypeAlias = Callable[[Shell], str]
"""Function that describes an open shell for the instructions."""


class Options(TypedDict, Generic[P], total=False):
    """Options of `CodeMode` in every integration."""

    language: Language
    """Language of programs. Default: `typescript`."""
    context: Context[P]
    """Caller of programs, or a function that returns it."""
    budget_tokens: int
    """Maximum number of tokens for each Corral's declarations. Default: 4,000."""
    on_event: OnEvent | None
    """Called for every event of every program."""
    approve: Approve | None
    """Function that decides on calls that need approval, instead of the Corral's."""
    shell: ShellChoice | None
    """Shell for programs, or a function that opens one for each call."""
    describe_shell: DescribeShell | None
    """Function that describes the open shell for the model."""
    durable: bool
    """True makes programs durable, as in `Corral.model.tools`. Needs a ledger."""
    asked: Asked[P]
    """Function that returns the texts that persons wrote in the conversation, for a policy that follows data. Default:
    the user's messages of the framework's run."""


Entry: TypeAlias = tuple[str | None, str]
"""Entry of a conversation: None and a text that a person wrote, or the name of a tool whose result the model read."""

FOR_SESSION = "session"
"""Answer of a person that approves a call and, for the rest of the session, its destinations."""
RESULT_FOLLOWS = "The program that was "
"""Beginning of messages with a program's result that hosts send in place of a user. They are not a person's."""

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Pattern of tool names that model providers accept: up to 64 of these characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Prompt and tools for a model."""

    prompt: str
    """Your own instructions, then how to write programs, then the available tools."""
    tools: tuple[ModelTool, ...]
    catalogs: Mapping[str, Catalog]
    """Catalog in the prompt for each Corral, by the name of the tool that runs programs."""
    corrals: Mapping[str, Corral]
    """The Corrals, by the same names."""

    async def run(
        self,
        tool: ModelTool,
        arguments: Any,
        context: ExecutionContext,
        *,
        on_event: OnEvent | None = None,
        tool_call_id: str | None = None,
        run: Sequence[object] = (),
        ask: Ask | None = None,
    ) -> ExecutionResult | Pause:
        """Runs a tool for a model's call, or continues its program if it has paused; see `run_durably`.

        `run`, the call's id and the arguments identify the execution. Without `ask` it is not durable.
        """
        corral = self.corrals.get(tool.name)
        execution_id = None
        if corral is not None and ask is not None:
            execution_id = execution_of(corral, tool.language, context, *run, tool_call_id, arguments)
        execute = partial(
            tool.run, arguments, context, on_event=on_event, tool_call_id=tool_call_id, execution_id=execution_id
        )
        if corral is None or ask is None or execution_id is None:
            return await execute()
        async with _opened(corral, tool.language):
            return await run_durably(corral, execution_id, context, lambda _: execute(), ask)


# --- pauses -------------------------------------------------------------------------------------------------

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Pause of a durable program whose calls wait for decisions."""

    execution_id: str
    number: int
    """Number of the pause within its execution, from 1. A decision applies to one pause."""
    calls: tuple[ApprovalRequest, ...]

    def model_text(self) -> str:
        """Formats it for a model."""
        calls = "; ".join(f"{call.tool} {preview_json(call.input, _SHOWN_CHARS)}" for call in self.calls)
        return (
            f"The program is paused: it waits for approval of {preview_text(calls, 10 * _SHOWN_CHARS)}. "
            f"You get its result later; do not run it again. Its id is {self.execution_id}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the pause as plain data, for a framework's own request."""
        calls = [
            {
                "sequence": call.sequence,
                "tool": call.tool,
                "input": from_json(json_text(call.input)),
                "description": call.description,
                **({} if call.reason is None else {"reason": call.reason}),
                **provenance(call),
            }
            for call in self.calls
        ]
        return {"execution_id": self.execution_id, "pause": self.number, "calls": calls}


Decide: TypeAlias = Callable[[ApprovalRequest], Approved | Denied | None]
"""Function that decides on a call of a pause. None leaves the call waiting."""
Ask: TypeAlias = Callable[[Pause], Decide | None]
"""Function that returns the framework's answer to a pause, or None if there is no answer yet."""


def provenance(request: ApprovalRequest) -> dict[str, Any]:
    """Returns the reasons of a policy to ask, as plain data for a framework's own request; empty if it has none."""
    if not request.doubts:
        return {}
    return {"doubts": [asdict(each) for each in request.doubts], "seen": list(request.seen)}


def read_decision(decision: object) -> Approved | Denied:
    """Returns the decision that a person's answer in JSON means: True, "session" (which also allows the destinations
    for the rest of the session), False, or the reason of a denial."""
    if decision == FOR_SESSION:
        return Approved(for_session=True)
    return Approved() if decision is True else Denied(decision if isinstance(decision, str) else "")


def execution_of(corral: Corral, language: Language, context: ExecutionContext, *call: object) -> str | None:
    """Returns the execution id for a model's tool call, always the same one; None if the program is not durable."""
    if not corral.can_be_durable(language, context):
        return None
    return f"execution-{blake2b(to_json(call, fallback=str), digest_size=16).hexdigest()}"


async def run_durably(
    corral: Corral,
    execution_id: str,
    context: ExecutionContext,
    execute: Callable[[bool], Awaitable[ExecutionResult]],
    ask: Ask,
) -> ExecutionResult | Pause:
    """Runs or continues a durable execution, to its end or to a pause without an answer.

    `execute` is called with True if the execution is new.

    Raises:
        AccessDenied: the execution belongs to another user or organization.
    """
    while True:
        record = await corral.executions.find(execution_id)
        if record is not None:
            if (record.organization_id, record.user_id) != context.owner:
                raise AccessDenied(f"{execution_id} belongs to another user or organization")
            waiting = [call for call in record.pending if call.sequence not in record.decided]
            if record.status == "paused" and waiting:
                pause = Pause(execution_id=execution_id, number=record.pauses, calls=tuple(waiting))
                decide = ask(pause)
                decisions = {} if decide is None else {call.sequence: _decision(decide(call), call) for call in waiting}
                made = {sequence: decision for sequence, decision in decisions.items() if decision is not None}
                if made:
                    own = {each.by for each in made.values()} <= {None, context.user_id}
                    by = context if own else context.user_id
                    await corral.executions.settle(execution_id, made, by=by)
                if len(made) < len(waiting):
                    return replace(pause, calls=tuple(call for call in waiting if call.sequence not in made))
        result = await execute(record is None)
        if result.status != "paused":
            return result


def _decision(decision: Approved | Denied | None, call: ApprovalRequest) -> Approved | Denied | Retry | None:
    """Returns the decision for `settle`. Approving an uncertain call repeats it."""
    return Retry(by=decision.by) if isinstance(decision, Approved) and call.reason is not None else decision


_KEPT_SECONDS = 60.0
"""Seconds for which a Corral stays open after the run or call that opened it."""

_in_use = RefCounted[Corral](open_=lambda corral: corral, is_open=lambda corral: corral.is_open)
"""Corrals that agents use. Agents and their runs can share them."""


async def enter_corral(corral: Corral, language: Language) -> None:
    """Opens a Corral if necessary, until `leave_corral`. Prepares it for programs in this language first."""
    corral.first_language = language
    await _in_use.enter(corral)


async def leave_corral(corral: Corral, *, keep: bool) -> None:
    """Closes a Corral that `enter_corral` opened, unless it is still in use. With `keep`, closes it after a minute
    without use, if possible."""
    keep = keep and corral.can_be_kept and _in_use.has_opened(corral)
    if keep:
        may_stay_open(corral)
    await _in_use.leave(corral, keep_seconds=_KEPT_SECONDS if keep else 0.0)


@asynccontextmanager
async def _opened(corral: Corral, language: Language) -> AsyncGenerator[None]:
    """Keeps a Corral open during the block and, if possible, for a minute after it."""
    await enter_corral(corral, language)
    try:
        yield
    finally:
        await leave_corral(corral, keep=True)


@asynccontextmanager
async def open_shell(shell: ShellChoice | None) -> AsyncGenerator[None]:
    """Makes a shell the current one during the block; None changes nothing. Closes a shell that it has opened."""
    if shell is None:
        yield
    elif isinstance(shell, Shell):
        with use_shell(shell):
            yield
    else:
        async with shell() as opened:
            with use_shell(opened):
                yield


def _held(tool: ModelTool, corral: Corral, shell: ShellChoice | None) -> ModelTool:
    """Returns the tool. Its Corral and shell are open while it runs."""

    async def answer(
        arguments: Any,
        context: ExecutionContext,
        on_event: OnEvent | None,
        call_id: str | None,
        execution_id: str | None,
    ) -> ExecutionResult:
        async with _opened(corral, tool.language), open_shell(shell):
            return await tool.answer(arguments, context, on_event, call_id, execution_id)

    return replace(tool, answer=answer)


class CodeModeBase(Generic[P]):
    """Options of a `CodeMode`, and the kit that is made from them."""

    def __init__(self, corrals: Corrals | None = None, **options: Unpack[Options[P]]) -> None:
        if corrals is None:
            raise ConfigError(
                "CodeMode() needs a Corral with tools for programs: CodeMode(Corral([...])). Programs can call an "
                "agent's own tools only with pydantic-ai, LangChain and openai-agents"
            )
        self.corrals = corrals
        self.named = by_label(corrals)
        self.language: Language = options.get("language", "typescript")
        self.context: Context[P] = options.get("context")
        self.budget_tokens = options.get("budget_tokens", 4_000)
        self.listener = options.get("on_event")
        self.approve = options.get("approve")
        self.shell = options.get("shell")
        self.describe_shell = options.get("describe_shell")
        self.durable = options.get("durable", False)
        self.asked = options.get("asked")

    def kit(
        self,
        own: Iterable[str] = (),
        *,
        instructions: str = "",
        tools: ToolRegistry | None = None,
        context: object = None,
    ) -> Kit:
        """Makes the prompt and tools of these Corrals, in addition to the agent's tools `own`.

        `tools` replace the Corral's own tools for programs. A program opens a Corral that is not open. It is closed
        after a minute without programs or, if it cannot be kept, with the program.

        If a Corral hides tools from callers who may not call them, the prompt has the tools that `context` may call. If
        `context` is not an `ExecutionContext`, it has the tools that anyone may call, and a note that there can be
        more.

        Raises:
            ConfigError: the language is not supported, `describe_shell` has no open shell, or a tool of the agent has
                the name of one of these.
        """
        context = self.context if context is None else context
        caller = context if isinstance(context, ExecutionContext) else None
        made: list[ModelTool] = []
        catalogs: dict[str, Catalog] = {}
        running: dict[str, Corral] = {}
        for label, corral in self.named.items():
            catalog = corral.model.catalog(self.language, budget_tokens=self.budget_tokens, context=caller, tools=tools)
            execute, *others = corral.model.tools(
                self.language,
                catalog=catalog,
                in_prompt=True,
                label=label,
                tools=tools,
                approve=self.approve,
                durable=self.durable,
            )
            catalogs[execute.name] = catalog
            running[execute.name] = corral
            made += [_held(execute, corral, self.shell), *others]
        if self.describe_shell is not None:
            if not isinstance(self.shell, Shell):
                raise ConfigError("describe_shell needs an open shell as shell=, not a function that opens one")
            instructions = "\n\n".join(filter(None, (instructions, self.describe_shell(self.shell.restricted()))))
        surroundings = Surroundings.of(
            [corral.model.surroundings(self.language, durable=self.durable) for corral in running.values()]
        )
        prompt = system_prompt(instructions, self.language, catalogs, surroundings)
        added = Kit(prompt=prompt, tools=tuple(made), catalogs=catalogs, corrals=running)
        require_distinct(added, own)
        return added

    async def resume(
        self,
        execution_id: str,
        decisions: Mapping[int, Approved | Denied],
        context: ExecutionContext | None = None,
        *,
        corral: str = "",
    ) -> ExecutionResult | Pause:
        """Decides on the calls that a paused program waits for, by their `sequence`, and continues it.

        The `model_text()` of what it returns is for the model: the result, also of a program that has ended before, or
        the next pause. `corral` is the name of its Corral if there are several. Decisions apply to calls that wait now.
        So a decision that is sent again does not repeat a call whose host was lost: that call waits for a new one.

        Raises:
            ConfigError: there is no such execution.
            AccessDenied: it is of another user or organization than `context`.
            HeldElsewhere: another host runs it.
        """
        caller, chosen = context or ExecutionContext(), self.named[corral]
        async with _opened(chosen, self.language), open_shell(self.shell):
            record = await chosen.executions.get(execution_id)
            assert record.request is not None
            request = record.request.model_copy(update={"context": caller, "execution_id": execution_id})

            async def execute(_: bool) -> ExecutionResult:
                return await chosen.execute(request, on_event=self.listener, approve=self.approve)

            waiting = {(call.sequence, call.reason) for call in record.pending}

            def ask(_: Pause) -> Decide:
                return lambda call: decisions.get(call.sequence) if (call.sequence, call.reason) in waiting else None

            return await run_durably(chosen, execution_id, caller, execute, ask)


class AgentCodeMode(CodeModeBase[P]):
    """`CodeMode` whose programs can call the agent's own tools: all of them if there is no Corral, else those in
    `tools`; in both cases except those in `outside`."""

    def __init__(
        self,
        corrals: Corrals | None = None,
        *,
        tools: object = None,
        outside: Collection[str] = (),
        **options: Unpack[Options[P]],
    ) -> None:
        super().__init__(Corral() if corrals is None else corrals, **options)
        self.choice: Any = "all" if corrals is None and tools is None else tools
        """The agent's tools for programs, before `outside` is removed."""
        self.outside = frozenset(outside)
        if self.choice is None and outside:
            raise ConfigError("outside= excludes tools of tools=, which is missing; add tools='all'")
        if self.choice is not None and not isinstance(self.corrals, Corral):
            raise ConfigError("programs of several Corrals cannot call the agent's own tools; pass only one Corral")

    @property
    def corral(self) -> Corral:
        """First Corral."""
        return next(iter(self.named.values()))

    def takes(self, name: str) -> bool:
        """True if programs call the agent's tool with this name."""
        chosen = self.choice == "all" or name in (self.choice or ())
        return chosen and name not in self.outside


def register(registry: ToolRegistry, made: Callable[[], Iterable[Tool | ToolSource]]) -> bool:
    """Adds a tool of an agent. If programs cannot call it, logs a warning and returns False."""
    try:
        for each in made():
            registry.register(cast("Tool", each))
    except ToolDefinitionError as error:
        logger.warning("a tool of the agent stays with the model: %s", error)
        return False
    return True


def by_label(corrals: Corrals) -> dict[str, Corral]:
    """Returns the Corrals by the suffix of their tools' names; "" for none.

    Raises:
        ConfigError: there are no Corrals, or a name cannot be such a suffix.
    """
    if isinstance(corrals, Corral):
        return {"": corrals}
    if not corrals:
        raise ConfigError("code mode needs a Corral, but {} is empty; pass a Corral, or several by name")
    for label in corrals:
        if not _LABEL.fullmatch(label):
            raise ConfigError(f"{label!r:.100} cannot be part of a tool's name; use up to 40 letters, digits, - and _")
    return dict(corrals)


def own_tools(tools: Iterable[T]) -> list[T]:
    """Checks your own tools. Raises ConfigError if one is a tool of Corral, which frameworks cannot call."""
    own = list(tools)
    if any(isinstance(each, Tool | ToolSource) for each in own):
        raise ConfigError("tools of Corral go into Corral(tools=[...]); tools= here are the framework's own")
    return own


def require_distinct(added: Kit, own: Iterable[str]) -> None:
    """Raises ConfigError if one of your own tools has the name of a tool of the kit."""
    if taken := sorted({tool.name for tool in added.tools} & {*own}):
        raise ConfigError(
            f"there is already a tool {taken[0]!r}; name the Corral to distinguish them: {{'name': corral}}"
        )


def invalid(tool: str, error: ValidationError) -> InvalidArguments:
    """Makes the error for arguments that the framework rejects."""
    problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return InvalidArguments(f'tool "{tool}": {problems}')


def context_for(
    configured: Context[[T]], call: T, passed: object = None, default: ExecutionContext | None = None
) -> ExecutionContext:
    """Returns the caller for a call of a model's tool: `configured`, or else the framework's own context if it is one,
    or else `default`."""
    if configured is not None:
        return configured(call) if callable(configured) else configured
    return passed if isinstance(passed, ExecutionContext) else default or ExecutionContext()


def person(text: str) -> Entry:
    """Returns the entry of a text that a person wrote."""
    return None, text


def result_of(tool: str | None) -> Entry:
    """Returns the entry of a result that the model has read."""
    return tool or "(unknown tool)", ""


def entries_of(items: Iterable[object], *, is_nested: bool = False) -> Iterator[Entry]:
    """Yields the entries of the input of OpenAI's Responses API, a text or items, or of messages of chat completions.

    Items are mappings, or objects of the SDK, also within each other. `is_nested`: a model wrote the users' messages.

    Calls of the provider's own tools are results. Hand-overs from one agent to another are left out.
    """
    names: dict[str, str] = {}
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind, role, content = str(member(item, "type") or "message"), member(item, "role"), member(item, "content")
        if role == "user" and not is_nested:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
            texts = [member(part, "text") for part in parts if member(part, "type") in ("input_text", "text")]
            yield from (person(text) for text in texts if isinstance(text, str))
        elif role in ("tool", "function"):
            yield result_of(names.get(str(member(item, "tool_call_id"))) or member(item, "name"))
        elif kind in ("function_call", "custom_tool_call"):
            names[str(member(item, "call_id"))] = str(member(item, "name"))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            name = names.get(str(member(item, "call_id")))
            if not _is_handed_over(name, member(item, "output")):
                yield result_of(name)
        elif kind.endswith(("_call", "_output")):
            yield result_of(kind)
        for call in member(item, "tool_calls") or ():
            names[str(member(call, "id"))] = str(member(member(call, "function") or member(call, "custom"), "name"))


def member(thing: object, name: str) -> Any:
    """Returns a member of a mapping, or an attribute of an object of an SDK; None if there is none."""
    return cast("Mapping[str, Any]", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


_HANDED_OVER = re.compile(r'\{"assistant": "[^"\\]{0,200}"\}')


def _is_handed_over(name: str | None, output: object) -> bool:
    """True for the SDK's own result of a hand-over. Another tool's result could look like it."""
    return name is not None and name.startswith("transfer_to_") and _HANDED_OVER.fullmatch(str(output)) is not None


def in_conversation(
    context: ExecutionContext, tool: str, asked: Asked[[T]], call: T, entries: Callable[[], Iterable[Entry]]
) -> ExecutionContext:
    """Returns a copy of the context of a call of `tool`, with its conversation: persons' texts and results of other
    tools.

    The persons' texts come from `asked`, else from the conversation that the context already has, such as that of a
    chat page, else from `entries`. They are read when a program begins, if a policy follows data.
    """
    outer: Callable[[], Transcript] | None = context.local.get(TRANSCRIPT)

    def read() -> Transcript:
        listed = [*entries()]
        own = {tool, *(tool.replace("execute_code", name, 1) for name in ("search_tools", "describe_tools"))}
        others = dict.fromkeys(name for name, _ in listed if name is not None and name not in own)
        if asked is not None:
            texts = tuple(asked(call))
        elif outer is not None:
            texts = outer().asked
        else:
            texts = tuple(text for name, text in listed if name is None and not text.startswith(RESULT_FOLLOWS))
        return Transcript(texts, tuple(others))

    return carrying(context, TRANSCRIPT, read)


def parts_of(result: ExecutionResult | Pause, part: Callable[[str | Picture], B]) -> str | list[B]:
    """Converts a result for a model: its text, and the images that models can see."""
    message = result.model_text()
    pictures: list[Picture] = []
    if isinstance(result, ExecutionResult) and result.success:
        pictures = [each for each in result.images if each.is_common]
    return [part(message), *map(part, pictures)] if pictures else message


def carrying(context: ExecutionContext, key: str, value: object) -> ExecutionContext:
    """Returns a copy of the context with one more object in its `local`."""
    return context.model_copy(update={"local": {**context.local, key: value}})


def read_arguments(text: str) -> Any:
    """Parses a model's arguments. Invalid JSON stays text, which a tool rejects like other wrong arguments."""
    try:
        return from_json(text)
    except ValueError:
        return text
