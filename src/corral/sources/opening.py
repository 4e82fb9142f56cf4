"""Shared parts of a service's sources: settings, credentials, schemas built on first use, opening with back-off."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import anyio

from corral.concurrency.cached_property import cached_property
from corral.concurrency.task_groups import plain_task_group
from corral.errors import StartFailed, ToolDefinitionError, ToolError
from corral.tools import Approval, Tool, ToolCall, ToolSource
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.tool import OutputValidation, check_settings
from corral.types import ExecutionContext, JsonSchema

_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
"""Dialect of the built schemas, which spares a search for the keywords of older dialects."""


class _DeferredSchema:
    """Input or output schema that is built on first use."""

    runs_code = False

    def __init__(self, build: Callable[[], JsonSchema], *, owner: str) -> None:
        self._build = build
        self._owner = owner

    @property
    def json_schema(self) -> JsonSchema:
        return self._built

    @property
    def is_made(self) -> bool:
        """True once the schema has been built."""
        return "_built" in self.__dict__

    @cached_property
    def _built(self) -> JsonSchema:
        return self._build()

    @cached_property
    def _document(self) -> DocumentSchema:
        try:
            return DocumentSchema({**_DIALECT, **self._built}, owner=self._owner, foreign=True)
        except ToolDefinitionError as error:  # rare: documents were already checked
            raise ToolError(f"this tool cannot be called: {error}") from error

    def load(self, raw: object) -> object:
        return self._document.load(raw)

    def dump(self, value: object) -> object:
        return self._document.dump(value)


class RemoteSource(ToolSource):
    """Operations of one service as tools, which share settings."""

    def __init__(
        self,
        namespace: str | None,
        *,
        scopes: Iterable[str],
        timeout_seconds: float,
        validate_output: OutputValidation | bool,
        needs_approval: Approval,
    ) -> None:
        self.namespace = namespace
        self.scopes = frozenset(scopes)
        self._timeout_seconds = timeout_seconds
        self._needs_approval = needs_approval
        self._settings: dict[str, Any] = {
            "namespace": namespace,
            "scopes": self.scopes,
            "timeout_seconds": timeout_seconds,
            "validate_output": validate_output,
        }
        check_settings(type(self).__name__, **self._settings)

    def _make_tool(
        self,
        name: str,
        input: Callable[[], JsonSchema],
        output: Callable[[], JsonSchema],
        *,
        read_only: bool,
        **settings: Any,
    ) -> Tool:
        """Makes a tool whose schemas `input` and `output` build. `needs_approval` does not apply to reading ones."""
        owner = f"tool {name!r}: "
        return Tool(
            name=name,
            read_only=read_only,
            input=_DeferredSchema(input, owner=f"{owner}input_schema"),
            output=_DeferredSchema(output, owner=f"{owner}output_schema"),
            needs_approval=not read_only and self._needs_approval,
            **settings,
            **self._settings,
        )


async def credential_of(
    credentials: Callable[[ExecutionContext], Any], context: ExecutionContext, name: str = ""
) -> Any:
    """Returns a caller's credential from a function of the host. Raises ToolError if the caller has none."""
    credential = credentials(context)
    credential = await credential if inspect.isawaitable(credential) else credential
    if credential is None:
        raise ToolError(f"there is no credential for this caller{f' ({name})' if name else ''}")
    return credential


_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0


@asynccontextmanager
async def asked(ask: Callable[[], Awaitable[str | None]], *, required: bool) -> AsyncGenerator[None]:
    """Calls `ask` before the block. While `ask` returns a problem, calls it again during the block, with back-off.

    Raises:
        StartFailed: the source is `required`, and the first call returned a problem.
    """
    problem = await ask()
    if problem is None:
        yield
        return
    if required:
        raise StartFailed(problem)
    async with plain_task_group() as tasks:
        tasks.start_soon(_ask_again, ask)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _ask_again(ask: Callable[[], Awaitable[str | None]]) -> None:
    wait = _RETRY_SECONDS
    while True:
        await anyio.sleep(wait)
        if await ask() is None:
            return
        wait = min(2 * wait, _LONGEST_RETRY_SECONDS)


def bind_context(value: Any, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
    """Binds the input and the caller's context to the arguments of a tool's function."""
    return [value, call.context], {}


async def closed(*_: object) -> NoReturn:
    """Function of a tool whose source is not open."""
    raise ToolError("the source of this tool is not open")


async def closed_stream(*_: object) -> AsyncGenerator[object]:
    """Function of a streaming tool whose source is not open."""
    await closed()
    yield
