"""A Corral's prompt and tools, from which each framework's module makes its own objects."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from pydantic_core import from_json

from corral import Catalog, Corral, ExecutionContext, ExecutionResult, Language, ModelTool, Tool, ToolSource
from corral.arguments import checked
from corral.concurrency.lifecycle import may_stay_open
from corral.concurrency.ref_counted import RefCounted
from corral.errors import ConfigError
from corral.events import OnEvent
from corral.model.model_tools import Surroundings, system_prompt
from corral.rendering.images import Picture
from corral.sessions.shell import Shell, use_shell
from corral.tools import ToolRegistry

T = TypeVar("T")
B = TypeVar("B")

Corrals: TypeAlias = Corral | Mapping[str, Corral]
"""One, or several by a name that ends the names of their tools: {"sales": ...} gives `execute_code_sales`."""

Context: TypeAlias = ExecutionContext | Callable[[T], ExecutionContext] | None
"""On whose behalf programs run: always the same, or found out from what the framework says of a call."""

ShellChoice: TypeAlias = Shell | Callable[[], AbstractAsyncContextManager[Shell]]
"""The shell of each call: one that is open, or a function that opens one, which is closed at the call's end."""

DescribeShell: TypeAlias = Callable[[Shell], str]
"""Function from an open shell to a text for the instructions."""

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
    shell: ShellChoice | None = None,
    describe_shell: DescribeShell | None = None,
) -> Kit:
    """Prompt and tools of these Corrals; the budget is for each of their catalogs. `callable_tools` are what programs
    call, where that is something else than the Corral's own.

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
        catalog = corral.catalog(language, budget_tokens=budget_tokens, context=caller, tools=callable_tools)
        made = corral.model_tools(language, catalog=catalog, in_prompt=True, label=label, tools=callable_tools)
        catalogs[made[0].name] = catalog
        running[made[0].name] = corral
        tools += made
    if describe_shell is not None:
        if not isinstance(shell, Shell):
            raise ConfigError("describe_shell describes an open shell; give shell=, and not a function that opens one")
        instructions = "\n\n".join(filter(None, (instructions, describe_shell(shell.restricted()))))
    if shell is not None:
        tools = [_in_shell(each, shell) if each.name in running else each for each in tools]
    surroundings = Surroundings.of([corral.surroundings(language) for corral in running.values()])
    prompt = system_prompt(instructions, language, catalogs, surroundings)
    return Kit(prompt=prompt, tools=tuple(tools), catalogs=catalogs, corrals=running)


_KEPT_SECONDS = 60.0
"""Time for which a Corral stays open that only a run, or a call, has opened."""

_in_use = RefCounted[Corral](open_=lambda corral: corral, is_open=lambda corral: corral.is_open)
"""Corrals that agents use. Agents and their runs may share one."""


async def enter_corral(corral: Corral) -> None:
    """Opens a Corral unless it is open, until `leave_corral`."""
    await _in_use.enter(corral)


async def leave_corral(corral: Corral, *, keep: bool) -> None:
    """Closes a Corral that `enter_corral` has opened and nobody else uses; with `keep` after a minute without use, if
    that is possible."""
    keep = keep and corral.can_be_kept
    if keep:
        may_stay_open(corral)
    await _in_use.leave(corral, keep_seconds=_KEPT_SECONDS if keep else 0.0)


@asynccontextmanager
async def opened(corral: Corral) -> AsyncGenerator[None]:
    """Holds a Corral open for the duration of the block, and for a minute after it if that is possible."""
    await enter_corral(corral)
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


def _in_shell(tool: ModelTool, shell: ShellChoice) -> ModelTool:
    async def answer(
        arguments: Any, context: ExecutionContext, on_event: OnEvent | None, call_id: str | None
    ) -> ExecutionResult:
        async with open_shell(shell):
            return await tool.answer(arguments, context, on_event, call_id)

    return replace(tool, answer=answer)


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


def context_for(given: Context[T], call: T, found: object = None) -> ExecutionContext:
    """On whose behalf a call of a model's tool runs: if nothing is given, what the framework passes on, where that is a
    context."""
    if given is not None:
        return given(call) if callable(given) else given
    return found if isinstance(found, ExecutionContext) else ExecutionContext()


def parts_of(result: ExecutionResult, text: Callable[[str], B], picture: Callable[[Picture], B]) -> str | list[B]:
    """A result for a model: its text, and its images if models can see them."""
    said = result.model_text()
    pictures = [each for each in result.pictures if each.is_common] if result.success else []
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
