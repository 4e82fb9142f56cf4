"""A Corral's prompt and tools, from which each framework's module makes its own objects."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, cast

from pydantic_core import from_json
from typing_extensions import Unpack

from corral import Approve, Catalog, Corral, ExecutionContext, ExecutionResult, Language, ModelTool, Tool, ToolSource
from corral.arguments import checked
from corral.concurrency.lifecycle import may_stay_open
from corral.concurrency.ref_counted import RefCounted
from corral.errors import ConfigError, ToolDefinitionError
from corral.events import OnEvent
from corral.logs import get_logger
from corral.model.model_tools import Surroundings, system_prompt
from corral.rendering.images import Picture
from corral.sessions.shell import Shell, use_shell
from corral.tools import ToolRegistry

T = TypeVar("T")
B = TypeVar("B")
P = ParamSpec("P")

logger = get_logger("corral.tools")

Corrals: TypeAlias = Corral | Mapping[str, Corral]
"""One, or several by a name that ends the names of their tools: {"sales": ...} gives `execute_code_sales`."""

Context: TypeAlias = ExecutionContext | Callable[P, ExecutionContext] | None
"""On whose behalf programs run: always the same, or found out from what the framework says of a call."""

ShellChoice: TypeAlias = Shell | Callable[[], AbstractAsyncContextManager[Shell]]
"""The shell of each call: one that is open, or a function that opens one, which is closed at the call's end."""

DescribeShell: TypeAlias = Callable[[Shell], str]
"""Function from an open shell to a text for the instructions."""


class Options(TypedDict, Generic[P], total=False):
    """Options of `CodeMode` in every integration."""

    language: Language
    """Language of programs; by default `typescript`."""
    context: Context[P]
    """On whose behalf programs run, or a function that finds out."""
    budget_tokens: int
    """Room for the declarations of each Corral; by default 4,000."""
    on_event: OnEvent | None
    """Called for every event of every program."""
    approve: Approve | None
    """Decides on calls that need an approval, in place of the Corral's function."""
    shell: ShellChoice | None
    """Shell of each call's programs, or a function that opens one for each."""
    describe_shell: DescribeShell | None
    """Makes the text by which the model learns of an open shell."""


_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Characters that model providers accept in a tool's name, which may have 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A model's prompt and tools."""

    prompt: str
    """The instructions that were given, and then how to write programs, and what tools they have."""
    tools: tuple[ModelTool, ...]
    catalogs: Mapping[str, Catalog]
    """The catalog in the prompt for each Corral, by the name of the tool that runs programs."""
    corrals: Mapping[str, Corral]
    """The Corral of each, by the same names."""


@checked
def kit(
    corrals: Corrals,
    *,
    instructions: str = "",
    language: Language = "typescript",
    budget_tokens: int = 4_000,
    context: object = None,
    callable_tools: ToolRegistry | None = None,
    approve: Approve | None = None,
    shell: ShellChoice | None = None,
    describe_shell: DescribeShell | None = None,
) -> Kit:
    """Prompt and tools of these Corrals; the budget is for each of their catalogs. `callable_tools` are what programs
    call, where that is something else than the Corral's own.

    A Corral that is not open is opened by a program, and closed after a minute without any, or with the program if it
    cannot be kept.

    A Corral that hides tools from those who may not call them shows what the `context` may call. Of a caller who is
    only known later, when `context` is something else, it shows what anybody may call, and that there may be more.

    `shell` is the current shell of each call's programs. Only the text of `describe_shell` tells the model of it.

    Raises:
        ConfigError: as `by_label`, or no programs are in this language, or `describe_shell` has no open shell.
    """
    named = by_label(corrals)
    caller = context if isinstance(context, ExecutionContext) else None
    tools: list[ModelTool] = []
    catalogs: dict[str, Catalog] = {}
    running: dict[str, Corral] = {}
    for label, corral in named.items():
        catalog = corral.model.catalog(language, budget_tokens=budget_tokens, context=caller, tools=callable_tools)
        execute, *others = corral.model.tools(
            language, catalog=catalog, in_prompt=True, label=label, tools=callable_tools, approve=approve
        )
        catalogs[execute.name] = catalog
        running[execute.name] = corral
        tools += [_held(execute, corral, shell), *others]
    if describe_shell is not None:
        if not isinstance(shell, Shell):
            raise ConfigError("describe_shell describes an open shell; give shell=, and not a function that opens one")
        instructions = "\n\n".join(filter(None, (instructions, describe_shell(shell.restricted()))))
    surroundings = Surroundings.of([corral.model.surroundings(language) for corral in running.values()])
    prompt = system_prompt(instructions, language, catalogs, surroundings)
    return Kit(prompt=prompt, tools=tuple(tools), catalogs=catalogs, corrals=running)


_KEPT_SECONDS = 60.0
"""Time for which a Corral stays open that only a run, or a call, has opened."""

_in_use = RefCounted[Corral](open_=lambda corral: corral, is_open=lambda corral: corral.is_open)
"""Corrals that agents use. Agents and their runs may share one."""


async def enter_corral(corral: Corral, language: Language) -> None:
    """Opens a Corral unless it is open, until `leave_corral`, and has it ready for programs in this language first."""
    corral.first_language = language
    await _in_use.enter(corral)


async def leave_corral(corral: Corral, *, keep: bool) -> None:
    """Closes a Corral that `enter_corral` has opened and nobody else uses; with `keep` after a minute without use, if
    that is possible."""
    keep = keep and corral.can_be_kept and _in_use.has_opened(corral)
    if keep:
        may_stay_open(corral)
    await _in_use.leave(corral, keep_seconds=_KEPT_SECONDS if keep else 0.0)


@asynccontextmanager
async def _opened(corral: Corral, language: Language) -> AsyncGenerator[None]:
    """Holds a Corral open for the duration of the block, and for a minute after it if that is possible."""
    await enter_corral(corral, language)
    try:
        yield
    finally:
        await leave_corral(corral, keep=True)


@asynccontextmanager
async def open_shell(shell: ShellChoice | None) -> AsyncGenerator[None]:
    """Makes a shell the current one of the block; None changes nothing. One that a function opens is closed after."""
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
    """The tool, for which its Corral and its shell are open while it runs."""

    async def answer(
        arguments: Any, context: ExecutionContext, on_event: OnEvent | None, call_id: str | None
    ) -> ExecutionResult:
        async with _opened(corral, tool.language), open_shell(shell):
            return await tool.answer(arguments, context, on_event, call_id)

    return replace(tool, answer=answer)


class CodeModeBase(Generic[P]):
    """Options of a `CodeMode`, and the kit that is made of them."""

    def __init__(self, corrals: Corrals | None = None, **options: Unpack[Options[P]]) -> None:
        if corrals is None:
            raise ConfigError(
                "CodeMode() needs the Corral whose tools programs call, CodeMode(Corral([...])); programs can call an "
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

    def kit(
        self,
        own: Iterable[str] = (),
        *,
        instructions: str = "",
        tools: ToolRegistry | None = None,
        context: object = None,
    ) -> Kit:
        """Prompt and tools, beside the tools `own` of the agent. `tools` are what programs call.

        Raises:
            ConfigError: as `kit`; or a tool of the agent has the name of one of these.
        """
        made = kit(
            self.corrals,
            instructions=instructions,
            language=self.language,
            budget_tokens=self.budget_tokens,
            context=self.context if context is None else context,
            callable_tools=tools,
            approve=self.approve,
            shell=self.shell,
            describe_shell=self.describe_shell,
        )
        require_distinct(made, own)
        return made


class AgentCodeMode(CodeModeBase[P]):
    """A `CodeMode` whose programs can call the agent's own tools: without a Corral all of them, else those of `tools`,
    but for the names in `outside`."""

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
        """The tools of the agent that programs call, before `outside` is left out."""
        self.outside = frozenset(outside)
        if self.choice is None and outside:
            raise ConfigError("outside names tools that programs do not call, so tools has to select some: tools='all'")
        if self.choice is not None and not isinstance(self.corrals, Corral):
            raise ConfigError("the agent's own tools go into the programs of one Corral; give CodeMode only one")

    @property
    def corral(self) -> Corral:
        """The Corral, of which the first counts."""
        return next(iter(self.named.values()))

    def takes(self, name: str) -> bool:
        """True if the tool of the agent with this name is one that programs are to call."""
        chosen = self.choice == "all" or name in (self.choice or ())
        return chosen and name not in self.outside


def register(registry: ToolRegistry, made: Callable[[], Iterable[Tool | ToolSource]]) -> bool:
    """Adds a tool of an agent; False, with a warning, if programs cannot call it."""
    try:
        for each in made():
            registry.register(cast("Tool", each))
    except ToolDefinitionError as error:
        logger.warning("a tool of the agent stays with the model: %s", error)
        return False
    return True


def by_label(corrals: Corrals) -> dict[str, Corral]:
    """The Corrals by what ends the names of their tools; "": nothing does.

    Raises:
        ConfigError: there is none, or no tool can have such a name.
    """
    if isinstance(corrals, Corral):
        return {"": corrals}
    if not corrals:
        raise ConfigError("code mode needs a Corral; there is none in {}")
    for label in corrals:
        if not _LABEL.fullmatch(label):
            raise ConfigError(
                f"{label!r:.100} cannot end the name of a tool; name the Corral with up to 40 letters, digits, - and _"
            )
    return dict(corrals)


def own_tools(tools: Iterable[T]) -> list[T]:
    """The caller's own tools beside Corral's.

    Raises:
        ConfigError: one is a tool of Corral's, which no framework can call.
    """
    own = list(tools)
    if any(isinstance(each, Tool | ToolSource) for each in own):
        raise ConfigError("tools of Corral go into Corral(tools=[...]); these are the framework's own, beside it")
    return own


def require_distinct(added: Kit, own: Iterable[str]) -> None:
    """Raises ConfigError if a tool of the caller's own has the name of one that the kit adds."""
    if taken := sorted({tool.name for tool in added.tools} & {*own}):
        raise ConfigError(
            f"there is a tool {taken[0]!r} already; name the Corral, {{'name': corral}}, to tell them apart"
        )


def context_for(given: Context[[T]], call: T, found: object = None) -> ExecutionContext:
    """On whose behalf a call of a model's tool runs: if nothing is given, what the framework passes on, where that is a
    context."""
    if given is not None:
        return given(call) if callable(given) else given
    return found if isinstance(found, ExecutionContext) else ExecutionContext()


def parts_of(result: ExecutionResult, text: Callable[[str], B], picture: Callable[[Picture], B]) -> str | list[B]:
    """A result for a model: its text, and its images if models can see them."""
    said = result.model_text()
    pictures = [each for each in result.images if each.is_common] if result.success else []
    return [text(said), *map(picture, pictures)] if pictures else said


def carrying(context: ExecutionContext, key: str, value: object) -> ExecutionContext:
    """Returns the same context with one more object in its `local`."""
    return context.model_copy(update={"local": {**context.local, key: value}})


def read_arguments(text: str) -> Any:
    """Arguments as a model wrote them. What is not JSON stays text, which a tool refuses as it refuses any that are
    wrong."""
    try:
        return from_json(text)
    except ValueError:
        return text
