"""`McpServer`: the address of an MCP server, the selection of its tools, and the connection of each Corral."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientSession, Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp.server import MCPServer, Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ConfigError, InvalidArguments, StartFailed, ToolDefinitionError, ToolError
from corral.logs import get_logger
from corral.rendering.masking import Mask
from corral.rendering.secret_names import names_a_secret
from corral.sources.mcp.tool_listing import CallTool, Log, listed_tools, made, needs_task
from corral.sources.mcp.tool_results import as_sent, failure, oddity, shown
from corral.sources.mcp.transports import FORGOTTEN, BoundedMessages, ListRoom, RateLimiter, stdio, streamable_http
from corral.tools import Approval, Offer, Tool, ToolSource
from corral.tools.rates import RateLimit
from corral.tools.tool import OutputValidation, ToolSettings, check_settings
from corral.types import ExecutionContext

logger = get_logger("corral.sources.mcp")

_FIRST_PAUSE_SECONDS = 1.0
_LAST_PAUSE_SECONDS = 60.0
_STABLE_SECONDS = 10.0
"""Seconds after which a connection counts as stable: once it is lost, the first pause is short again."""
_FRESH_SECONDS = 5.0
"""Seconds for which a failed attempt to connect makes calls fail at once."""
_WAIT_SECONDS = 5.0
"""Seconds that a call waits for an attempt to connect."""
_GRACE_SECONDS = 4.0
"""Seconds that closing a connection can take. A process needs up to three times as long."""
_RELIST_PAUSE_SECONDS = 0.5
_RELIST_PAUSE_FACTOR = 10
"""Pause after listing tools, as a multiple of the time it took to read and convert the list."""
_MAX_TEXT_CHARACTERS = 1_000
_MAX_ERROR_CHARACTERS = 2_000
_MAX_LOG_CHARACTERS = 500
_LINES_PER_SECOND = 50
_REFUSALS_SECONDS = 1.0
"""Seconds for other calls to receive their own refusals, once a call was refused for lack of a session."""
_LOST = ("Connection closed", "SSE stream ")
"""Prefixes of mcp's messages for requests that get no answer."""

_Answer: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class _TooLargeList(RuntimeError):
    """The server's list of tools is larger than the maximum."""


class Connection:
    """State of one connection."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        """Set once the connection is lost or no longer needed."""
        self.changed = anyio.Event()
        """Set when the tools of the server may have changed."""
        self.messages: BoundedMessages | None = None
        self.lists = ListRoom()
        self.reason: str | None = None
        self.refused_with: int | None = None
        """HTTP status of the last answer if it was an error."""
        self.stood = False
        """True once the connection has been established."""
        self.scope = anyio.CancelScope()
        self.idle = anyio.Event()
        """Set while there are no calls."""
        self.idle.set()
        self._calls = 0

    @contextmanager
    def calling(self) -> Generator[None]:
        """Counts a call during the block."""
        if not self._calls:
            self.idle = anyio.Event()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self.idle.set()

    def leave(self) -> None:
        """Closes the connection: gracefully if it has been established, else at once."""
        self.over.set()
        if not self.stood:
            self.scope.cancel()

    def lose(self, reason: str) -> None:
        """Marks the connection as lost; only the first reason is kept."""
        if not self.over.is_set():
            self.reason = reason
            self.over.set()

    def refuse(self, status: int | None) -> None:
        self.refused_with = status


class Link:
    """Stays connected to a server, offers its tools as they change, and calls them.

    `run` is the task that does so, until `close`. Use each link in one event loop.
    """

    def __init__(
        self,
        name: str,
        offer: Offer,
        *,
        connect: Callable[[Connection, Link], Client],
        make: Callable[[Sequence[types.Tool], CallTool, Log], Sequence[Tool]],
        mask: Mask,
        connect_timeout_seconds: float,
        meta: Callable[[ExecutionContext], Mapping[str, Any]] | None,
    ) -> None:
        self.settled = anyio.Event()
        """Set once the first attempt to connect has ended."""
        self.refused: ToolDefinitionError | None = None
        """Reason why the tools of the first attempt cannot be offered."""
        self.problem: str | None = None
        """Reason why it is not connected."""
        self._label = f"the MCP server {name!r}"
        self._offer = offer
        self._connect = connect
        self._make = make
        self._mask = mask
        self._connect_timeout_seconds = connect_timeout_seconds
        self._meta = meta
        self._connection: Connection | None = None
        self._session: ClientSession | None = None
        self._listed = b""
        """Digest of the list from which its tools were made."""
        self._tools: Sequence[Tool] = ()
        self._as_tasks: frozenset[str] = frozenset()
        """Names of tools that run only as tasks."""
        self._wanted = anyio.Event()
        self._attempted = anyio.Event()
        self._failed_at = -math.inf
        self._closing = anyio.Event()
        self._limit = RateLimiter(_LINES_PER_SECOND)

    # --- keeping the connection

    async def run(self) -> None:
        """Connects again and again, with growing pauses. A call that needs the connection shortens a pause."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._closing.is_set():
            began = anyio.current_time()
            self._wanted = anyio.Event()
            await self._attempt()
            lasted = anyio.current_time() - began
            if lasted >= _STABLE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            with anyio.move_on_after(pause):
                await self._wanted.wait()
                with anyio.move_on_after(_FIRST_PAUSE_SECONDS - lasted):
                    await self._closing.wait()
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    def close(self) -> None:
        """Ends `run`. From now on, calls fail."""
        self._closing.set()
        self._session = None
        self.problem = f"{self._label} is closed"
        self._wanted.set()
        self._wake_calls()
        if self._connection is not None:
            self._connection.leave()

    async def _attempt(self) -> None:
        """Connects, and stays connected until the connection is lost or closed."""
        self._connection = connection = Connection()
        try:
            reason = await self._stay(connection)
        except Exception as error:  # servers, and libraries that handle their data, can cause any error
            logger.debug("%s: the connection failed", self._label, exc_info=True)
            reason = connection.reason or _describe_error(error, connection)
        self._connection = self._session = None
        if not self._closing.is_set():
            self._out_of_order(reason, connection)

    async def _stay(self, connection: Connection) -> str:
        """Returns or raises the reason why the connection has ended."""
        reason = f"it did not answer within {self._connect_timeout_seconds:g} s"
        with connection.scope as scope:
            scope.deadline = anyio.current_time() + self._connect_timeout_seconds
            async with self._connect(connection, self) as client:
                await self._build(await self._listed_by(client, connection))
                self._in_order(client.session)
                scope.deadline = math.inf
                reason = "the connection was lost"
                connection.stood = True
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, client, connection)
                    tasks.start_soon(self._list_again, client, connection)
                    await connection.over.wait()
                    tasks.cancel_scope.cancel()
                self._session = None
                if connection.reason == FORGOTTEN:
                    with anyio.move_on_after(_REFUSALS_SECONDS):
                        await connection.idle.wait()
                scope.deadline = anyio.current_time() + _GRACE_SECONDS
        return connection.reason or reason

    def _in_order(self, session: ClientSession) -> None:
        if self._closing.is_set():
            return
        if self.problem is not None and self.settled.is_set():
            logger.info("%s is connected", self._label)
        self._session, self.problem = session, None
        self._offer_them()
        self._failed_at = -math.inf
        self.settled.set()
        self._wake_calls()

    def _out_of_order(self, reason: str, connection: Connection) -> None:
        known = self.problem
        self.problem = f"{self._label} is not connected: {shown(reason, self._mask, _MAX_TEXT_CHARACTERS)}"
        if self.problem != known:
            logger.warning("%s", self.problem)
            self._offer_them()
        self.settled.set()
        if not connection.stood:  # otherwise calls wait for the next attempt
            self._failed_at = anyio.current_time()
            self._wake_calls()

    def _wake_calls(self) -> None:
        self._attempted.set()
        self._attempted = anyio.Event()

    # --- its tools

    async def _listed_by(self, client: Client, connection: Connection) -> Sequence[types.Tool]:
        try:
            return await listed_tools(client, self.log)
        except MCPError as error:
            if connection.lists.left < 0:
                raise _TooLargeList(connection.lists.problem) from error
            raise
        except ValidationError:
            if connection.messages is None or connection.messages.mends:
                raise
            self.log(logging.WARNING, "its list of tools violates the protocol; it is read as far as possible")
            connection.messages.mends = True
            return await listed_tools(client, self.log)

    async def _build(self, listed: Sequence[types.Tool]) -> bool:
        """Makes tools from the list, in a thread because that can take a second. Returns True if they have changed."""
        digest = await run_in_own_thread(_digest, listed)
        if digest == self._listed:
            return False
        self._tools = await run_in_own_thread(self._make, listed, self.call, self.log)
        self._as_tasks = frozenset(tool.name for tool in listed if needs_task(tool))
        self._listed = digest
        return True

    def _offer_them(self) -> None:
        if self._closing.is_set():
            return
        try:
            self._offer(self._tools, problem=self.problem)
        except ToolDefinitionError as error:
            if self.settled.is_set():
                self.log(logging.WARNING, f"its tools cannot be offered: {error}")
            else:
                self.refused = error

    async def _listen(self, client: Client, connection: Connection) -> None:
        """Subscribes to changes of the tools, as the protocol requires since 2026-07-28. Earlier servers notify
        anyway."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    connection.changed.set()  # they may have changed since they were listed
                    async for _ in subscription:
                        connection.changed.set()
            except (MCPError, SubscriptionLost) as error:
                self.log(logging.DEBUG, f"does not report changes: {error}")
            await anyio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    async def _list_again(self, client: Client, connection: Connection) -> None:
        """Lists the tools again whenever they change, with growing pauses while changes continue."""
        pause = _RELIST_PAUSE_SECONDS
        while True:
            if not connection.changed.is_set():
                pause = _RELIST_PAUSE_SECONDS
            await connection.changed.wait()
            connection.changed = anyio.Event()
            began = anyio.current_time()
            try:
                with anyio.fail_after(self._connect_timeout_seconds):
                    listed = await self._listed_by(client, connection)
            except (MCPError, ValidationError, TimeoutError, _TooLargeList) as error:
                self.log(logging.WARNING, f"does not list its tools again: {_describe_error(error, connection)}")
            else:
                if await self._build(listed):
                    self._offer_them()
            await anyio.sleep(max(pause, _RELIST_PAUSE_FACTOR * (anyio.current_time() - began)))
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    # --- calls

    async def call(self, name: str, arguments: Any, context: ExecutionContext) -> object:
        """Calls a tool, and returns the result as sent. If the caller is cancelled, cancels the request at the server.

        Raises:
            ToolError: the server is not connected, or its answer is invalid.
            InvalidArguments: the arguments cannot be written as JSON.
        """
        params = types.CallToolRequestParams(
            name=name,
            arguments=_as_json(arguments),
            task=types.TaskMetadata() if name in self._as_tasks else None,
            _meta=None if self._meta is None else dict(self._meta(context)),  # pyright: ignore[reportArgumentType]
        )
        result = await self._request(types.CallToolRequest(params=params))
        match result:
            case {"task": {"taskId": str(task)}} if params.task is not None:
                result = await self._result_of(task)
            case {"resultType": "input_required"}:
                raise ToolError(f"{self._label} asks for user input before it does {name}, which is not supported here")
            case _:
                pass
        if error := failure(result, f"{self._label}: {name}", self._mask):
            raise error
        if problem := oddity(result):
            self.log(logging.WARNING, f"{name} returned {problem}, which MCP does not allow; the value was delivered")
        return result

    async def _result_of(self, task: str) -> object:
        """Returns the result of a task once it has ended. If the caller is cancelled, cancels the task."""
        try:
            return await self._request(
                types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=task))
            )
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_FIRST_PAUSE_SECONDS, shield=True), suppress(ToolError):
                await self._request(types.CancelTaskRequest(params=types.CancelTaskRequestParams(task_id=task)))
            raise

    async def _request(self, request: types.Request[Any, Any], *, again: bool = False) -> object:
        session, connection = await self._connected()
        progress = self._progress if logger.isEnabledFor(logging.DEBUG) else None
        try:
            with connection.calling():
                result = await session.send_request(request, _Answer, progress_callback=progress)
        except MCPError as error:
            if error.message != FORGOTTEN or again:
                raise self._call_failed(error, connection) from error
        except ValidationError as error:
            raise ToolError(f"{self._label} sent an answer that MCP does not allow", outcome_known=False) from error
        else:
            return as_sent(result)
        connection.lose(FORGOTTEN)
        self._session = None
        return await self._request(request, again=True)

    async def _connected(self) -> tuple[ClientSession, Connection]:
        if self._standing is None and anyio.current_time() - self._failed_at > _FRESH_SECONDS:
            self._wanted.set()
            with anyio.move_on_after(0 if self._closing.is_set() else _WAIT_SECONDS):
                await self._attempted.wait()
        if self._standing is None:
            raise ToolError(self.problem or f"{self._label} is not connected")
        return self._standing

    @property
    def _standing(self) -> tuple[ClientSession, Connection] | None:
        session, connection = self._session, self._connection
        return None if session is None or connection is None or connection.over.is_set() else (session, connection)

    def _call_failed(self, error: MCPError, connection: Connection) -> ToolError:
        lost = error.message.startswith(_LOST)  # many servers use its code for their own errors
        if lost:
            reason = connection.reason or error.message
            text = f"{self._label} was lost during the call: {reason}; the call may have taken effect"
        else:
            text = f"{self._label} refused the call: {_describe_error(error, connection)}"
        return ToolError(shown(text, self._mask, _MAX_ERROR_CHARACTERS), outcome_known=not lost)

    # --- for the host only

    async def notified(self, message: types.ServerNotification | Exception) -> None:
        """Handles notifications of the server."""
        if isinstance(message, types.ToolListChangedNotification):
            if self._connection is not None:
                self._connection.changed.set()
        elif isinstance(message, types.LoggingMessageNotification):
            self.log(logging.DEBUG, f"{message.params.level}: {message.params.data}")

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.log(logging.DEBUG, f"progress {progress:g} of {total}: {message}")

    def log(self, level: int, text: str) -> None:
        """Logs a text as one line, without secrets and at a limited rate. Thread-safe."""
        if logger.isEnabledFor(level) and self._limit.take():
            logger.log(level, "%s: %s", self._label, shown(text, self._mask, _MAX_LOG_CHARACTERS))


def _digest(listed: Sequence[types.Tool]) -> bytes:
    return hashlib.sha256(to_json([each.model_dump(by_alias=True) for each in listed])).digest()


def _as_json(arguments: Any) -> dict[str, Any]:
    """Converts arguments to JSON: bytes as base64, dates as strings, NaN as null."""
    try:
        return from_json(to_json(arguments, by_alias=True, bytes_mode="base64"))
    except (ValueError, PydanticSerializationError) as error:
        raise InvalidArguments("the input has text that is not Unicode, or is too deeply nested") from error


def _describe_error(error: BaseException, connection: Connection | None) -> str:
    """Describes an error to a program, with the server's message but without details of the host."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case MCPError():
            status = connection and connection.refused_with
            text = f"{error.message} (HTTP {status})" if status else error.message
            return f"{text}: {json.dumps(error.data, ensure_ascii=False, default=str)}" if error.data else text
        case ValidationError():
            return "its answer is not allowed by MCP"
        case TimeoutError():
            return "it did not answer in time"
        case OSError():
            return f"it cannot be started: {error.strerror}: {error.filename}"
        case RuntimeError():
            return str(error)
        case _:
            return f"the connection failed ({type(error).__name__})"


# --- the server ---------------------------------------------------------------------------------------------

Chosen: TypeAlias = Collection[str] | Callable[[types.Tool], bool] | None
"""Names of tools, or a function that decides for each tool."""


@checked
@dataclass(frozen=True, eq=False)
class McpServer(ToolSource):
    """Tools of an MCP server: one to start (`command`), at a URL (`url`), or in this process (`server`).

    Opening waits for at most `connect_timeout_seconds`. While the server is disconnected, its tools fail, and
    Corral keeps trying to connect.

    Raises:
        ConfigError: not exactly one of `command`, `url` and `server` is set, or an option is invalid.
    """

    name: str
    _: KW_ONLY
    command: Sequence[str] | None = field(default=None, repr=False)
    """Program and its arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables for the process, in addition to our PATH, HOME, LOGNAME, SHELL, TERM and USER."""
    cwd: str | Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers of the HTTP requests to `url`."""
    server: MCPServer | Server[Any] | None = field(default=None, repr=False)
    namespace: str | None = None
    """Namespace of its tools in programs; by default `name`."""
    include: Chosen = None
    """Tools to use; None for all."""
    exclude: Chosen = None
    """Tools to leave out of these."""
    needs_approval: Literal["annotated"] | bool | Callable[[types.Tool], Approval] = "annotated"
    """Tools whose calls need approval: those that the server declares destructive ("annotated"), all or none, or as a
    function decides for each tool."""
    scopes: Iterable[str] = frozenset()
    """Scopes that a caller needs for all of its tools."""
    sequential: Chosen = ()
    """Tools whose calls run while no other calls of the execution run."""
    rate_limit: RateLimit | None = None
    """Rate limit of each tool."""
    meta: Callable[[ExecutionContext], Mapping[str, Any]] | None = field(default=None, repr=False)
    """Function that returns the `_meta` to send with a call, such as the user for whom the program runs."""
    trusted: bool = False
    """True if a policy that follows data believes `readOnlyHint` and `openWorldHint: false`."""
    required: bool = False
    """True if opening the Corral must fail without this server."""
    connect_timeout_seconds: float = 30.0
    timeout_seconds: float = 30.0
    max_message_bytes: int = 10_000_000
    """Maximum size of one message of the server, such as one result or one page of its list of tools."""
    validate_output: OutputValidation | bool = "warn"
    """Treatment of results that do not match the server's output schemas."""

    def __post_init__(self) -> None:
        if self.namespace is None:
            object.__setattr__(self, "namespace", self.name)
        check_settings(
            f"MCP server {self.name!r}",
            namespace=self.namespace,
            rate_limit=self.rate_limit,
            validate_output=self.validate_output,
        )
        targets = [name for name in ("command", "url", "server") if getattr(self, name) is not None]
        if len(targets) != 1:
            names = " and ".join(targets) or "none"
            raise self._wrong(f"needs exactly one of command, url and server; it has {names}")
        if self.command is not None and not self.command:
            raise self._wrong('command is empty; pass a list: ["program", "argument"]')
        if self.url is not None:
            self._check_url(self.url)
        for name in ("connect_timeout_seconds", "timeout_seconds", "max_message_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise self._wrong(f"{name} must be positive, not {getattr(self, name)}")

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise self._wrong("url has an invalid host or port") from None
        if parts.scheme not in ("http", "https"):
            raise self._wrong("url must begin with http:// or https://")

    def _wrong(self, text: str) -> ConfigError:
        return ConfigError(f"MCP server {self.name!r}: {text}")

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """Connects; see `ToolSource.open`.

        Raises:
            StartFailed: the server is `required` and not available.
            ToolDefinitionError: its tools conflict with others.
        """
        link = Link(
            self.name,
            offer,
            connect=self._client,
            make=self._make_tools,
            mask=Mask(self._secrets()),
            connect_timeout_seconds=self.connect_timeout_seconds,
            meta=self.meta,
        )
        async with plain_task_group() as tasks:
            tasks.start_soon(link.run)
            try:
                await link.settled.wait()
                if link.refused is not None:
                    raise link.refused
                if self.required and link.problem is not None:
                    raise StartFailed(link.problem)
                yield
            finally:
                link.close()

    def _client(self, connection: Connection, link: Link) -> Client:
        return Client(
            self._target(connection, link.log),
            cache=None,
            client_info=types.Implementation(name="corral", version=version("corral")),
            message_handler=link.notified,
        )

    def _target(self, connection: Connection, log: Log) -> MCPServer | Server[Any] | Transport:
        if self.server is not None:
            return self.server
        if self.url is not None:
            transport = streamable_http(
                self.url,
                headers=self.headers,
                connect_timeout_seconds=self.connect_timeout_seconds,
                max_message_bytes=self.max_message_bytes,
                lists=connection.lists,
                log=log,
                refused=connection.refuse,
                lost=connection.lose,
            )
        else:
            transport = stdio(
                cast("Sequence[str]", self.command),
                env=self.env,
                cwd=self.cwd,
                max_message_bytes=self.max_message_bytes,
                lists=connection.lists,
                log=log,
                lost=connection.lose,
            )
        connection.messages = BoundedMessages(partial(connection.lose, "it closed the connection"), connection.lists)
        return connection.messages.over(transport)

    def _make_tools(self, listed: Sequence[types.Tool], call: CallTool, log: Log) -> Sequence[Tool]:
        chosen = [each for each in listed if _has(self.include, each, without=True) and not _has(self.exclude, each)]
        for names in (self.include, self.exclude, self.sequential):
            missing = [] if names is None or callable(names) else sorted({*names} - {each.name for each in listed})
            if missing:
                log(logging.WARNING, f"has no tool {', '.join(missing)}")
        return made(chosen, owner=f"the MCP server {self.name!r}", call=call, settings=self._settings, log=log)

    def _settings(self, tool: types.Tool) -> ToolSettings:
        hints = tool.annotations or types.ToolAnnotations()
        return ToolSettings(
            namespace=self.namespace,
            scopes=self.scopes,
            rate_limit=self.rate_limit,
            needs_approval=self._approval(tool, hints),
            read_only=hints.read_only_hint is True,
            untrusted=False if self.trusted and hints.open_world_hint is False else None,
            changes=True if hints.destructive_hint is True and not (self.trusted and hints.read_only_hint) else None,
            trusted_hints=self.trusted,
            idempotent=hints.idempotent_hint is True,
            sequential=_has(self.sequential, tool),
            timeout_seconds=self.timeout_seconds,
            validate_output=self.validate_output,
        )

    def _approval(self, tool: types.Tool, hints: types.ToolAnnotations) -> Approval:
        if callable(self.needs_approval):
            return self.needs_approval(tool)
        if self.needs_approval == "annotated":
            return hints.destructive_hint is True and hints.read_only_hint is not True
        return self.needs_approval

    def _secrets(self) -> Iterable[str]:
        """Returns credentials, which texts of the server or a library can contain."""
        parts = urlsplit(self.url or "")
        user, password = (unquote(each or "") for each in (parts.username, parts.password))
        return [
            *(value for name, value in self.env.items() if names_a_secret(name)),
            *self.headers.values(),
            *(value for _, value in parse_qsl(parts.query)),
            *(each.partition("=")[2] for each in parts.query.split("&")),
            *(user, password, parts.username or "", parts.password or ""),
            base64.b64encode(f"{user}:{password}".encode()).decode() if parts.username or parts.password else "",
        ]


def _has(chosen: Chosen, tool: types.Tool, *, without: bool = False) -> bool:
    """True if `chosen` includes a tool; `without` is the result for None."""
    if chosen is None:
        return without
    return chosen(tool) if callable(chosen) else tool.name in chosen
